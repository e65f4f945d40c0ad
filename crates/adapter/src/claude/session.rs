//! A session of Claude Code: when its program runs, under which id, and how it ends. The turn itself is in `turn`.
//!
//! ```text
//!  run_turn ──► program running? ──no──► start, initialize ──► place ──► send ──► turn loop ──► idle ──► mirror
//!                   │ yes, but the turn was cut: it must be started anew, to take the turn up by itself
//! ```

use std::sync::Arc;
use std::time::Duration;

use agentrun_kernel::{DriveError, Durability, Message, StopLevel, StopSignal};
use async_trait::async_trait;
use serde::Deserialize as _;

use super::barrier::TranscriptBarrier;
use super::launch::{Entry, Launch};
use super::steer::Steering;
use super::turn::{Offered, Running};
use super::wire::{self, Asked, Initialized, Line};
use crate::adapter::{Admission, Capabilities};
use crate::error::{AdapterError, AdapterErrorKind};
use crate::journal::JournalError;
use crate::process::{Dialogue, Spawn};
use crate::seat::{ModelEndpoint, RequestBarrier, Seat};
use crate::session::{AdapterSession, CloseReport, NativeIdentity, Start, Turn, TurnEnd};

/// `initialize` is answered in about 0.6 s, in 4 s when cold and busy.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// A program whose output ended is given this long to exit by itself, for its exit code.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The id of our one control request that is waited for.
const INITIALIZE: &str = "initialize";

/// One session.
pub(super) struct ClaudeSession {
    admission: Admission,
    seat: Seat,
    transcript: Arc<TranscriptBarrier>,
    /// The transcript was there when the session was opened.
    restored: bool,
    offered: Arc<Offered>,
    child: Option<Dialogue>,
    identity: Option<NativeIdentity>,
}

impl ClaudeSession {
    /// A session over what the runner restored into the private home. Starts nothing.
    pub(super) async fn new(admission: Admission, seat: Seat) -> Result<Self, AdapterError> {
        let fresh = || uuid::Uuid::new_v4().to_string();
        let (transcript, restored) = TranscriptBarrier::find_or(seat.journal.clone(), fresh).await;
        let offered = Offered::new(&admission.plan().builtins, seat.tools.clone(), transcript.clone());
        Ok(Self { admission, seat, transcript, restored, offered: Arc::new(offered), child: None, identity: None })
    }

    /// Starts the program and waits until it answers `initialize`. Answers what it said before that and is still to be heard; a stop that came
    /// first ends the program.
    async fn start(&mut self, entry: Entry<'_>, mut stop: StopSignal) -> Result<Started, AdapterError> {
        let checked = self.admission.checked();
        let ModelEndpoint::Http { base_url, key, .. } = &self.seat.model else {
            return Err(AdapterError::new(
                AdapterErrorKind::Spawn,
                "Claude Code asks its model over HTTP; this session was given an in-process model",
            ));
        };
        let program = checked.program.as_deref().ok_or_else(|| {
            AdapterError::new(AdapterErrorKind::Spawn, "the check found no Claude Code program to start")
        })?;
        let launch = Launch {
            entry,
            session: self.transcript.session(),
            model: &checked.plan.model,
            builtins: &checked.plan.builtins,
            home: &self.seat.dirs.home,
            tmp: &self.seat.dirs.tmp,
            base_url,
            key,
        };
        let mut spawn =
            Spawn::new(program, &self.seat.dirs.workspace, self.seat.marker.clone()).args(launch.arguments());
        spawn.env = launch.environment();
        let mut child =
            Dialogue::start(&spawn).map_err(|error| AdapterError::new(AdapterErrorKind::Spawn, error.to_string()))?;
        let tools = self.offered.tools();
        child.tell(&wire::initialize(INITIALIZE, &checked.plan.system, &tools)).await;
        let answered = tokio::select! {
            answered = tokio::time::timeout(START_DEADLINE, initialized(&mut child, &tools)) => answered,
            level = stop.reached(StopLevel::Drain) => {
                child.end(Duration::ZERO).await;
                return Ok(Started::Stopped(level));
            }
        };
        match answered {
            Ok(Ok((said, early))) => {
                if !(said.hooks_applied && said.hook_on_failure_supported) {
                    return Err(failed(
                        child,
                        AdapterErrorKind::Protocol,
                        "Claude Code did not take our hooks; without them calls would run unrecorded",
                    )
                    .await);
                }
                self.identity = Some(NativeIdentity {
                    session: self.transcript.session().to_owned(),
                    version: said.claude_code_version,
                    resumed: entry != Entry::Begin,
                });
                Ok(Started::Ready(child, early))
            }
            Ok(Err(NotReady::Ended)) => {
                Err(failed(child, AdapterErrorKind::Exited { code: None }, "Claude Code ended before it was ready")
                    .await)
            }
            Ok(Err(NotReady::Said(why))) => {
                Err(failed(child, AdapterErrorKind::Protocol, format!("Claude Code refused `initialize`: {why}")).await)
            }
            Err(_) => {
                let message = format!("Claude Code was not ready within {} s", START_DEADLINE.as_secs());
                Err(failed(child, AdapterErrorKind::Stalled, message).await)
            }
        }
    }

    /// Whether the program has a transcript to go on from.
    async fn has_history(&self) -> bool {
        self.restored || self.transcript.exists().await
    }
}

/// What became of a start.
enum Started {
    Ready(Dialogue, Vec<Line>),
    Stopped(StopLevel),
}

/// Why there was no answer to `initialize`.
enum NotReady {
    Ended,
    Said(String),
}

/// Hears the program until it answers `initialize`.
async fn initialized(child: &mut Dialogue, tools: &[wire::Tool]) -> Result<(Initialized, Vec<Line>), NotReady> {
    let mut early = Vec::new();
    loop {
        let line = child.line(wire::read).await.ok_or(NotReady::Ended)?;
        match line.map_err(|error| NotReady::Said(error.to_string()))? {
            Line::Answers { request_id, answer } if request_id == INITIALIZE => {
                let said = Initialized::deserialize(answer.map_err(NotReady::Said)?);
                return Ok((said.map_err(|error| NotReady::Said(error.to_string()))?, early));
            }
            // Housekeeping it may wait for before it answers.
            Line::Asks { request_id, request: Asked::Mcp(message) } if message.method != "tools/call" => {
                child.tell(&wire::answer(&request_id, wire::mcp_reply(&message, tools))).await;
            }
            // A turn taken up by itself is announced before the answer.
            line => early.push(line),
        }
    }
}

#[async_trait]
impl AdapterSession for ClaudeSession {
    fn capabilities(&self) -> Capabilities {
        self.admission.checked().capabilities
    }

    fn native(&self) -> Option<NativeIdentity> {
        self.identity.clone()
    }

    fn request_barrier(&self) -> Option<Arc<dyn RequestBarrier>> {
        Some(self.transcript.clone())
    }

    async fn run_turn(&mut self, turn: Turn) -> Result<TurnEnd, AdapterError> {
        let Turn { start, stop, recovery_note, words } = turn;
        let takes_up = matches!(start, Start::Continue(_));
        if takes_up && let Some(child) = self.child.take() {
            // Only a program that reads the cut turn at its start takes it up.
            self.end(child, Duration::ZERO).await;
        }
        if self.child.is_none() && !matches!(start, Start::Place(_)) {
            // Words steered into the turn come behind what it did, as a turn that is taken up goes on from it.
            let cut = self.transcript.cut_what_is_not_taken_up(&self.seat.drive).await;
            cut.map_err(|error| match error {
                JournalError::Drive(error) => not_placed(error),
                other => AdapterError::new(AdapterErrorKind::History, other.to_string()),
            })?;
        }
        self.transcript.expect_message(match &start {
            Start::Place(ticket) => ticket.id().as_str(),
            Start::Again(message) | Start::Continue(message) => message.id.as_str(),
        });
        let (mut child, early) = match self.child.take() {
            Some(child) => (child, Vec::new()),
            None => {
                let entry = match (self.has_history().await, takes_up) {
                    (false, _) => Entry::Begin,
                    (true, false) => Entry::Resume,
                    (true, true) => Entry::TakeUp { note: &recovery_note },
                };
                match self.start(entry, stop.clone()).await? {
                    Started::Ready(child, early) => (child, early),
                    // Nothing was placed.
                    Started::Stopped(level) => return Ok(TurnEnd::Stopped(level)),
                }
            }
        };
        let message = match start {
            Start::Place(ticket) => match ticket.place().await {
                Ok(message) => message,
                Err(error) => {
                    child.end(Duration::ZERO).await;
                    return Err(not_placed(error));
                }
            },
            Start::Again(message) | Start::Continue(message) => message,
        };
        let Message { id, text, .. } = message;
        // Taken already, it is absorbed by its id: acknowledged, and not run a second time.
        child.tell(&wire::user(id.as_str(), &text)).await;
        let opening = (!takes_up).then(|| id.as_str().to_owned());
        let steering = Steering::new(self.transcript.clone(), self.seat.drive.clone(), words, opening);
        let running = Running::new(&mut child, id.as_str(), self.offered.clone(), &self.seat, stop, steering);
        match running.run(early).await {
            Ok(TurnEnd::Stopped(level)) => {
                self.end(child, Duration::ZERO).await;
                Ok(TurnEnd::Stopped(level))
            }
            Ok(end) => {
                self.child = Some(child);
                let mirrored = self.transcript.mirror(Durability::Synced).await;
                mirrored.map_err(|error| AdapterError::new(AdapterErrorKind::History, error.to_string()))?;
                Ok(end)
            }
            Err((kind, message)) => {
                let error = failed(child, kind, message).await;
                // The records decide; what is lost here is asked for again.
                let _ = self.transcript.mirror(Durability::Buffered).await;
                Err(error)
            }
        }
    }

    async fn close(mut self: Box<Self>, deadline: Duration) -> CloseReport {
        match self.child.take() {
            Some(child) => self.end(child, deadline).await,
            None => CloseReport::default(),
        }
    }
}

impl ClaudeSession {
    /// Ends the program: it leaves by itself when its input ends, in about 30 ms when it is idle. What it wrote to its end is mirrored.
    async fn end(&self, child: Dialogue, grace: Duration) -> CloseReport {
        let ended = child.end(grace).await;
        // The records decide; what is lost here is asked for again.
        let _ = self.transcript.mirror(Durability::Synced).await;
        CloseReport { exit: ended.code, forced: ended.forced }
    }
}

fn not_placed(error: DriveError) -> AdapterError {
    match error {
        DriveError::Restart(restart) => restart.into(),
        other => AdapterError::new(AdapterErrorKind::History, format!("the message was not placed: {other}")),
    }
}

/// The error of a program that is ended for it, with its exit code where it had ended by itself.
async fn failed(child: Dialogue, kind: AdapterErrorKind, message: impl Into<String>) -> AdapterError {
    let by_itself = matches!(kind, AdapterErrorKind::Exited { .. });
    let ended = child.end(if by_itself { LAST_WORDS } else { Duration::ZERO }).await;
    let kind = if by_itself { AdapterErrorKind::Exited { code: ended.code } } else { kind };
    AdapterError { kind, message: message.into(), stderr_tail: ended.stderr_tail }
}
