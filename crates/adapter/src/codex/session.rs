//! A session of Codex: when its program runs, on which thread, and how it ends. The turn itself is in `turn`.
//!
//! ```text
//!  run_turn ──► program running? ──no──► start, initialize, thread/start | thread/resume ──► place ──► turn/start ──► turn loop
//!     turn ended by itself ──► mirror, the program stays        delivered ──► kill, end the turn in the rollout ourselves
//!     cut ──► kill: a clean tail. Never interrupted, never ended in the middle by its closed input: both write into the history
//! ```

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agentrun_kernel::{DriveError, Durability, Message, StopLevel};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use super::barrier::RolloutBarrier;
use super::launch::{Launch, PROVIDER};
use super::schema::carried;
use super::steer::Steering;
use super::turn::{Ended, Ground, Running};
use super::wire::{self, Asked, Line};
use crate::adapter::{Admission, Capabilities};
use crate::calls::Calls;
use crate::error::{AdapterError, AdapterErrorKind};
use crate::journal::JournalError;
use crate::process::{Dialogue, Spawn};
use crate::seat::{ModelEndpoint, RequestBarrier, Seat};
use crate::session::{AdapterSession, CloseReport, NativeIdentity, Start, Turn, TurnEnd};

/// Each step of the start is answered in under a second, in several when cold and busy.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// A program whose output ended is given this long to exit by itself, for its exit code.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// One session.
pub(super) struct CodexSession {
    admission: Admission,
    seat: Seat,
    /// How long the program may say nothing in a turn.
    silence: Duration,
    rollout: Arc<RolloutBarrier>,
    calls: Arc<Calls>,
    running: Option<Program>,
    identity: Option<NativeIdentity>,
}

/// The running program on the session's thread.
pub(super) struct Program {
    pub(super) child: Dialogue,
    thread: String,
    /// The id of our last request.
    pub(super) asked: u64,
}

/// Why the program is not ready.
enum NotReady {
    Ended,
    Slow(&'static str),
    Said(String),
}

impl CodexSession {
    /// A session over what the runner restored into the private home. Starts nothing.
    pub(super) fn new(admission: Admission, seat: Seat, silence: Duration) -> Self {
        let rollout = Arc::new(RolloutBarrier::new(&seat, &admission.plan().builtins));
        let calls = Arc::new(Calls::new(seat.tools.clone(), rollout.clone()));
        Self { admission, seat, silence, rollout, calls, running: None, identity: None }
    }

    /// Starts the program and has it on the session's thread: the one the rollout holds, else a new one.
    async fn start(&mut self) -> Result<Program, AdapterError> {
        let checked = self.admission.checked();
        let ModelEndpoint::Http { base_url, key, .. } = &self.seat.model else {
            return Err(AdapterError::new(
                AdapterErrorKind::Spawn,
                "Codex asks its model over HTTP; this session was given an in-process model",
            ));
        };
        let program = checked
            .program
            .as_deref()
            .ok_or_else(|| AdapterError::new(AdapterErrorKind::Spawn, "the check found no Codex program to start"))?;
        let dirs = &self.seat.dirs;
        let launch = Launch {
            model: &checked.plan.model,
            builtins: &checked.plan.builtins,
            home: &dirs.home,
            tmp: &dirs.tmp,
            workspace: &dirs.workspace,
            base_url,
            key,
        };
        let spawning = |why: String| AdapterError::new(AdapterErrorKind::Spawn, why);
        launch
            .prepare()
            .map_err(|error| spawning(format!("the private home {} cannot be filled: {error}", dirs.home.display())))?;
        let mut spawn = Spawn::new(program, &dirs.workspace, self.seat.marker.clone()).args(launch.arguments());
        spawn.env = launch.environment();
        let restored = self.rollout.restored().await.map_err(of_journal)?;
        let child = Dialogue::start(&spawn).map_err(|error| spawning(error.to_string()))?;
        let mut program = Program { child, thread: String::new(), asked: 0 };
        match self.ready(&mut program, restored.as_deref()).await {
            Ok(()) => {
                self.identity = Some(NativeIdentity {
                    session: program.thread.clone(),
                    version: checked.harness.version.clone(),
                    resumed: restored.is_some(),
                });
                Ok(program)
            }
            Err(error) => Err(not_ready(program.child, error).await),
        }
    }

    async fn ready(&self, program: &mut Program, restored: Option<&str>) -> Result<(), NotReady> {
        #[derive(Deserialize)]
        struct Threaded {
            thread: Thread,
        }
        #[derive(Deserialize)]
        struct Thread {
            id: String,
            path: Option<PathBuf>,
        }
        let client = json!({ "name": "agentrun", "title": "agentrun", "version": env!("CARGO_PKG_VERSION") });
        let initialize = json!({ "clientInfo": client, "capabilities": { "experimentalApi": true } });
        program.ask("initialize", initialize).await?;
        program.child.tell(&json!({ "method": "initialized" })).await;
        let said = match restored {
            Some(thread) => program.ask("thread/resume", self.taken_up(thread)).await?,
            None => program.ask("thread/start", self.begun()).await?,
        };
        let said = Threaded::deserialize(said)
            .map_err(|error| NotReady::Said(format!("Codex's answer on its thread cannot be read: {error}")))?;
        let Thread { id, path } = said.thread;
        if restored.is_some_and(|thread| thread != id) {
            return Err(NotReady::Said(format!("Codex took up the thread {id}, not the one it was asked for")));
        }
        if !path.as_deref().is_some_and(|path| self.rollout.written_to(path)) {
            let place = path.unwrap_or_default();
            let why = format!("Codex writes its history to `{}`, where it is not looked for", place.display());
            return Err(NotReady::Said(why));
        }
        program.thread = id;
        Ok(())
    }

    /// What a thread is started and taken up with.
    fn settings(&self) -> serde_json::Map<String, Value> {
        let plan = self.admission.plan();
        let told = self.seat.tools.specs().iter().filter_map(|spec| carried(spec).1);
        let instructions: Vec<_> = plan.system.iter().cloned().chain(told).collect();
        let policy = if plan.builtins.is_empty() { "never" } else { "untrusted" };
        let settings = json!({
            "cwd": self.seat.dirs.workspace,
            "model": plan.model,
            "modelProvider": PROVIDER,
            "baseInstructions": instructions.join("\n\n"),
            // Each built-in is asked for and recorded first; what runs then runs as the host's own tools do.
            "approvalPolicy": policy,
            "sandbox": "danger-full-access",
        });
        settings.as_object().cloned().unwrap_or_default()
    }

    fn begun(&self) -> Value {
        let tools = self.seat.tools.specs().iter().map(|spec| {
            let schema = carried(spec).0;
            json!({ "type": "function", "name": spec.name, "description": spec.description, "inputSchema": schema })
        });
        let mut settings = self.settings();
        settings.insert("dynamicTools".to_owned(), tools.collect());
        // One file that stands for itself: it can be taken up in any home, and a fork holds what it was forked from.
        settings.insert("historyMode".to_owned(), json!("legacy"));
        Value::Object(settings)
    }

    /// Its tools come from the rollout.
    fn taken_up(&self, thread: &str) -> Value {
        let mut settings = self.settings();
        settings.insert("threadId".to_owned(), json!(thread));
        settings.insert("excludeTurns".to_owned(), json!(true));
        Value::Object(settings)
    }
}

impl Program {
    /// Sends a request; answers its id.
    async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.asked = self.asked.saturating_add(1);
        self.child.tell(&wire::request(self.asked, method, params)).await;
        self.asked
    }

    /// Begins a turn, with a message or on what the thread's history holds; answers our request's id.
    pub(super) async fn begin(&mut self, message: Option<&Message>) -> u64 {
        let params = match message {
            Some(message) => self.given(message),
            None => json!({ "threadId": self.thread, "input": [] }),
        };
        self.send("turn/start", params).await
    }

    /// Gives the turn that runs a message; answers our request's id.
    pub(super) async fn steer(&mut self, turn: &str, message: &Message) -> u64 {
        let mut params = self.given(message);
        if let Some(params) = params.as_object_mut() {
            params.insert("expectedTurnId".to_owned(), json!(turn));
        }
        self.send("turn/steer", params).await
    }

    fn given(&self, message: &Message) -> Value {
        json!({
            "threadId": self.thread,
            "input": [{ "type": "text", "text": message.text }],
            "clientUserMessageId": message.id,
        })
    }

    /// Sends words for the thread's history, which the model reads with its next request; answers our request's id.
    pub(super) async fn inject(&mut self, role: &str, text: &str) -> u64 {
        let params = self.injected(role, text);
        self.send("thread/inject_items", params).await
    }

    fn injected(&self, role: &str, text: &str) -> Value {
        let item = json!({ "type": "message", "role": role, "content": [{ "type": "input_text", "text": text }] });
        json!({ "threadId": self.thread, "items": [item] })
    }

    /// Sends a request and waits for its answer. What the program asks meanwhile is refused: nothing runs yet.
    async fn ask(&mut self, method: &'static str, params: Value) -> Result<Value, NotReady> {
        let ours = self.send(method, params).await;
        let answered = tokio::time::timeout(START_DEADLINE, async {
            loop {
                let line = self.child.line(wire::read).await.ok_or(NotReady::Ended)?;
                match line.map_err(|error| NotReady::Said(error.to_string()))? {
                    Line::Answers { id, answer } if id == ours => {
                        let refused =
                            |fault: wire::Fault| NotReady::Said(format!("Codex refused `{method}`: {}", fault.message));
                        return answer.map_err(refused);
                    }
                    Line::Asks { id, request } => {
                        let what = match request {
                            Asked::Other(what) => what,
                            Asked::Tool(_) | Asked::Approval(_) => "a call outside a turn".to_owned(),
                        };
                        self.child.tell(&wire::decline(&id, &what)).await;
                    }
                    _ => {}
                }
            }
        });
        answered.await.unwrap_or(Err(NotReady::Slow(method)))
    }
}

#[async_trait]
impl AdapterSession for CodexSession {
    fn capabilities(&self) -> Capabilities {
        self.admission.checked().capabilities
    }

    fn native(&self) -> Option<NativeIdentity> {
        self.identity.clone()
    }

    fn request_barrier(&self) -> Option<Arc<dyn RequestBarrier>> {
        Some(self.rollout.clone())
    }

    async fn run_turn(&mut self, turn: Turn) -> Result<TurnEnd, AdapterError> {
        let Turn { start, stop, recovery_note, words } = turn;
        self.rollout.expect_message(match &start {
            Start::Place(ticket) => ticket.id().as_str(),
            Start::Again(message) | Start::Continue(message) => message.id.as_str(),
        });
        let mut program = match self.running.take() {
            Some(program) => program,
            None => {
                let mut cut = stop.clone();
                tokio::select! {
                    biased;
                    // Dropping the start ends what it started; nothing was placed.
                    level = cut.reached(StopLevel::Interrupt) => return Ok(TurnEnd::Stopped(level)),
                    started = self.start() => started?,
                }
            }
        };
        let (message, cut) = match start {
            Start::Place(ticket) => match ticket.place().await {
                Ok(message) => (Some(message), false),
                Err(error) => {
                    program.child.end(Duration::ZERO).await;
                    return Err(not_placed(error));
                }
            },
            // Words that were steered into it come behind what it did.
            Start::Again(message) => (Some(message), self.rollout.in_the_middle()),
            // The model is asked on what the rollout holds: no word is added to it but the note.
            Start::Continue(_) => (None, true),
        };
        if cut && let Err(error) = self.tell_of_interruption(&mut program, &recovery_note).await {
            return Err(not_ready(program.child, error).await);
        }
        program.begin(message.as_ref()).await;
        let mut unanswered = HashSet::new();
        let (seat, calls, rollout, silence) = (&self.seat, self.calls.clone(), self.rollout.clone(), self.silence);
        let steering = Steering::new(rollout.clone(), words, message.map(|message| message.id));
        let ground = Ground { seat, calls, rollout, silence };
        let running = Running::new(&mut program, ground, stop, steering, &mut unanswered);
        match running.run().await {
            Ok(Ended::By(end @ TurnEnd::Stopped(_))) => {
                self.end(program, Duration::ZERO).await;
                Ok(end)
            }
            Ok(Ended::By(end)) => {
                self.running = Some(program);
                self.rollout.mirror(Durability::Synced).await.map_err(of_journal)?;
                Ok(end)
            }
            Ok(Ended::Delivered(answers)) => {
                program.child.end(Duration::ZERO).await;
                self.rollout.end_turn(&answers).await.map_err(of_journal)?;
                Ok(TurnEnd::Idle)
            }
            Err((kind, message)) => {
                let error = failed(program.child, kind, message).await;
                // The records decide; what is lost here is asked for again.
                let _ = self.rollout.mirror_without(&unanswered).await;
                Err(error)
            }
        }
    }

    async fn close(mut self: Box<Self>, deadline: Duration) -> CloseReport {
        match self.running.take() {
            // It is idle: its closed input adds no line.
            Some(program) => self.end(program, deadline).await,
            None => CloseReport::default(),
        }
    }
}

impl CodexSession {
    /// Tells the model that the session was interrupted, in the thread's history.
    async fn tell_of_interruption(&self, program: &mut Program, note: &str) -> Result<(), NotReady> {
        if note.is_empty() {
            return Ok(());
        }
        let params = program.injected("user", note);
        program.ask("thread/inject_items", params).await.map(drop)
    }

    /// Ends the program and mirrors what it wrote to its end.
    async fn end(&self, program: Program, grace: Duration) -> CloseReport {
        let ended = program.child.end(grace).await;
        // The records decide; what is lost here is asked for again.
        let _ = self.rollout.mirror(Durability::Synced).await;
        CloseReport { exit: ended.code, forced: ended.forced }
    }
}

fn of_journal(error: JournalError) -> AdapterError {
    match error {
        JournalError::Drive(error) => not_placed(error),
        other => AdapterError::new(AdapterErrorKind::History, other.to_string()),
    }
}

fn not_placed(error: DriveError) -> AdapterError {
    match error {
        DriveError::Restart(restart) => restart.into(),
        other => AdapterError::new(AdapterErrorKind::History, format!("the records took no more: {other}")),
    }
}

async fn not_ready(child: Dialogue, error: NotReady) -> AdapterError {
    let (kind, message) = match error {
        NotReady::Ended => (AdapterErrorKind::Exited { code: None }, "Codex ended before it was ready".to_owned()),
        NotReady::Slow(step) => {
            let message = format!("Codex did not answer `{step}` within {} s", START_DEADLINE.as_secs());
            (AdapterErrorKind::Stalled, message)
        }
        NotReady::Said(why) => (AdapterErrorKind::Protocol, why),
    };
    failed(child, kind, message).await
}

/// The error of a program that is ended for it, with its exit code where it had ended by itself.
async fn failed(child: Dialogue, kind: AdapterErrorKind, message: impl Into<String>) -> AdapterError {
    let by_itself = matches!(kind, AdapterErrorKind::Exited { .. });
    let ended = child.end(if by_itself { LAST_WORDS } else { Duration::ZERO }).await;
    let mut message = message.into();
    if let Some(code) = ended.code.filter(|_| by_itself) {
        message = format!("{message} (exit code {code})");
    }
    let kind = if by_itself { AdapterErrorKind::Exited { code: ended.code } } else { kind };
    AdapterError { kind, message, stderr_tail: ended.stderr_tail }
}
