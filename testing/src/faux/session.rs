//! One session of the faux harness: what comes next is a function of its history, so a restored one goes on exactly where it stood.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentrun_adapter::{
    AdapterError, AdapterErrorKind, AdapterSession, Answer, Capabilities, Checked, CloseReport, HistoryError, Journal,
    JournalError, ModelPort, NativeIdentity, Observed, PaidCall, PaidStep, PortRefused, RequestBarrier, Seat, Start,
    Tail, ToolCall, ToolHost, Turn, TurnEnd, Words,
};
use agentrun_kernel::{
    CallId, DriveError, Durability, Message, OpenEffect, Outcome, OutcomeEnd, PlaceTicket, Restart, StopLevel,
    StopSignal, crossing,
};
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::history::{Call, History, Line, Move, STREAM, line_bytes};
use super::played::Played;
use super::{PROFILE, Told};
use crate::script::{Conversation, Served, Side};

/// What every request says it may use at most; its quote follows from it.
const MAX_OUTPUT: u64 = 4_096;

pub(super) struct FauxSession {
    played: Arc<Mutex<Played>>,
    told: Option<Told>,
    port: Arc<dyn ModelPort>,
    seat: Seat,
    model: String,
    system: Vec<String>,
    builtins: Vec<String>,
    offered: Vec<String>,
    history: History,
    file: File,
    identity: NativeIdentity,
    capabilities: Capabilities,
}

/// How one step of the loop ended.
enum Done {
    GoOn,
    Turn(TurnEnd),
}

/// What became of a call.
enum Answered {
    Text { call: CallId, text: Arc<str>, is_error: bool, end_turn: bool },
    Withheld,
}

impl FauxSession {
    pub(super) async fn open(
        played: Arc<Mutex<Played>>,
        told: Option<Told>,
        checked: &Checked,
        seat: Seat,
        port: Arc<dyn ModelPort>,
    ) -> Result<Self, AdapterError> {
        let plan = &checked.plan;
        let path = seat.dirs.home.join(STREAM);
        let io = |error: std::io::Error| history_error(&format!("{}: {error}", path.display()));
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(io)?;
        }
        let mut file = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(io)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        let history = History::read(&bytes).map_err(unreadable)?;
        // Behind the last whole line stands at most a torn one.
        file.set_len(history.end()).map_err(io)?;
        file.seek(SeekFrom::Start(history.end())).map_err(io)?;
        let offered: Vec<String> =
            seat.tools.specs().iter().map(|spec| spec.name.clone()).chain(plan.builtins.iter().cloned()).collect();
        played.lock().unwrap_or_else(PoisonError::into_inner).catch_up(&history, &offered);
        let before = history.session().map(str::to_owned);
        let identity = NativeIdentity {
            resumed: before.is_some(),
            session: before.clone().unwrap_or_else(|| unique("faux")),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let mut session = Self {
            played,
            told,
            port,
            seat,
            model: plan.model.clone(),
            system: plan.system.clone(),
            builtins: plan.builtins.clone(),
            offered,
            history,
            file,
            identity,
            capabilities: checked.capabilities,
        };
        if before.is_none() {
            session.write(Line::Session { id: session.identity.session.clone() })?;
        }
        Ok(session)
    }

    /// Appends a line: on disk before anything follows from it.
    fn write(&mut self, line: Line) -> Result<(), AdapterError> {
        let bytes = self.history.push(line).map_err(unreadable)?;
        // Into the system's memory: a step off the runtime for each line takes far longer, with a thousand sessions at once.
        self.file.write_all(&bytes).map_err(|error| history_error(&format!("{STREAM}: {error}")))
    }

    async fn start(&mut self, start: Start, note: String) -> Result<(), AdapterError> {
        let placed = match start {
            Start::Place(ticket) => Some(ticket.place().await.map_err(of_drive)?),
            Start::Again(message) => Some(message),
            Start::Continue(_) => None,
        };
        crossing!(Send);
        if !note.is_empty() {
            self.write(Line::Note { text: note })?;
        }
        match placed {
            Some(Message { id, text, .. }) if !self.history.taken().any(|taken| *taken == id) => {
                self.write(Line::Prompt { id, text })?;
                crossing!(Taken);
                Ok(())
            }
            // Read back: it is there, so it is not said twice.
            Some(_) | None => Ok(()),
        }
    }

    async fn play(
        &mut self,
        start: Start,
        note: String,
        stop: StopSignal,
        mut words: Option<Box<dyn Words>>,
    ) -> Result<TurnEnd, AdapterError> {
        self.start(start, note).await?;
        loop {
            if stop.level() >= StopLevel::Drain {
                self.mirror().await?;
                return Ok(TurnEnd::Stopped(stop.level()));
            }
            let done = match self.history.next_move() {
                Move::Ask => self.ask(&stop).await?,
                Move::Call(calls) => self.call(calls, &stop, words.as_deref_mut()).await?,
                Move::Rest => Done::Turn(TurnEnd::Idle),
            };
            if let Done::Turn(end) = done {
                self.mirror().await?;
                return Ok(end);
            }
        }
    }

    async fn mirror(&self) -> Result<(), AdapterError> {
        self.seat.journal.mirror(&[STREAM], Durability::Synced).await.map_err(of_journal)
    }

    /// One model step.
    async fn ask(&mut self, stop: &StopSignal) -> Result<Done, AdapterError> {
        let talk = History::conversation(self.history.lines(), &self.offered);
        let body = request(&self.model, &self.system, &talk);
        let call = PaidCall { model: self.model.clone(), body, max_output: MAX_OUTPUT };
        let paid = match self.port.begin(call).await {
            Ok(paid) => paid,
            Err(refused) => return Ok(self.refused(refused, stop)),
        };
        crossing!(Request);
        let id = unique("resp");
        if let Some(told) = &self.told {
            told(&talk);
        }
        let served = self.played.lock().unwrap_or_else(PoisonError::into_inner).serve(&talk, &id);
        // Without a step the request is let go of, as when a server hangs up: its spend is unknown.
        let served = served.map_err(|none| AdapterError::new(AdapterErrorKind::Protocol, none.to_string()))?;
        if let Some(end) = fault(&served).await {
            return Ok(Done::Turn(end));
        }
        self.answer(served, id, paid, stop).await
    }

    async fn answer(
        &mut self,
        served: Served,
        id: String,
        paid: Box<dyn PaidStep>,
        stop: &StopSignal,
    ) -> Result<Done, AdapterError> {
        crossing!(Response);
        let usage = served.usage().into();
        let calls =
            served.calls.into_iter().map(|call| Call { id: CallId(call.id), name: call.name, input: call.input });
        let line = Line::Response { id: id.clone(), text: served.step.text, calls: calls.collect() };
        let bytes = line_bytes(&line).map_err(unreadable)?;
        if let Err(refused) = paid.finish(usage, id, Arc::from(bytes)).await {
            return Ok(self.refused(refused, stop));
        }
        if let Line::Response { text: Some(text), .. } = &line {
            self.seat.deltas.show(text);
        }
        self.write(line)?;
        crossing!(Written);
        Ok(Done::GoOn)
    }

    /// A refused step ends the turn; one that a stop refused is the stop.
    fn refused(&self, refused: PortRefused, stop: &StopSignal) -> Done {
        let level = stop.level();
        Done::Turn(if level >= StopLevel::Drain {
            TurnEnd::Stopped(level)
        } else {
            TurnEnd::Failed { status: None, message: refused.message }
        })
    }

    /// The calls of an answer, together; each result is a line as it comes, and people's words that come meanwhile are one behind them.
    async fn call(
        &mut self,
        calls: Vec<Call>,
        stop: &StopSignal,
        mut words: Option<&mut (dyn Words + '_)>,
    ) -> Result<Done, AdapterError> {
        let mut running = JoinSet::new();
        for Call { id, name, input } in calls {
            // Whatever the stop cuts here never began and stays open in the history.
            if stop.level() >= StopLevel::Drain {
                break;
            }
            let tail = self.seat.journal.tail(&[STREAM]).await.map_err(of_journal)?;
            let builtin = self.builtins.contains(&name);
            let call = ToolCall {
                ordinal: self.history.results_of(&id),
                call: id,
                tool: name,
                arguments: Value::Object(input),
                tail,
            };
            let tools = self.seat.tools.clone();
            running.spawn(
                async move { if builtin { observed(&*tools, call).await } else { called(&*tools, call).await } },
            );
        }
        let (mut ended, mut withheld) = (false, false);
        let mut steered = None;
        loop {
            let answered = tokio::select! {
                answered = running.join_next() => match answered {
                    Some(answered) => answered,
                    None => break,
                },
                ticket = next_of(words.as_deref_mut()), if steered.is_none() => {
                    steered = Some(ticket?);
                    continue;
                }
            };
            // A tool host that panics is the host's fault, and the call stays open.
            let answered =
                answered.map_err(|error| AdapterError::new(AdapterErrorKind::Protocol, error.to_string()))?;
            match answered? {
                Answered::Text { call, text, is_error, end_turn } => {
                    ended |= end_turn;
                    self.write(Line::Result { call, text, is_error })?;
                    crossing!(Answered);
                }
                Answered::Withheld => withheld = true,
            }
        }
        if withheld {
            return Ok(Done::Turn(TurnEnd::Stopped(stop.level().max(StopLevel::Drain))));
        }
        if ended {
            self.write(Line::Ended)?;
        } else if let Some(ticket) = steered.filter(|_| stop.level() < StopLevel::Drain) {
            self.steer(ticket).await?;
        }
        Ok(Done::GoOn)
    }

    async fn steer(&mut self, ticket: PlaceTicket) -> Result<(), AdapterError> {
        match ticket.place().await {
            Ok(Message { id, text, .. }) => {
                crossing!(Send);
                self.write(Line::Prompt { id, text })?;
                crossing!(Taken);
                Ok(())
            }
            // The turn was ended in the same moment.
            Err(DriveError::Illegal(_)) => Ok(()),
            Err(error) => Err(of_drive(error)),
        }
    }
}

async fn next_of(words: Option<&mut (dyn Words + '_)>) -> Result<PlaceTicket, Restart> {
    match words {
        Some(words) => words.next().await,
        None => std::future::pending().await,
    }
}

async fn called(tools: &dyn ToolHost, call: ToolCall) -> Result<Answered, Restart> {
    let id = call.call.clone();
    Ok(match tools.call(call).await? {
        Answer::Text { text, is_error, end_turn } => Answered::Text { call: id, text, is_error, end_turn },
        Answer::Withhold => Answered::Withheld,
    })
}

/// A built-in of the harness. It does nothing but say that it ran.
async fn observed(tools: &dyn ToolHost, call: ToolCall) -> Result<Answered, Restart> {
    let (id, name) = (call.call.clone(), call.tool.clone());
    let text = |text, is_error| Answered::Text { call: id, text, is_error, end_turn: false };
    match tools.observe(call).await? {
        Observed::Run(effect) => {
            ran(effect, &name).await.map(|answer| answer.map_or(Answered::Withheld, |said| text(said, false)))
        }
        Observed::Deny(why) => Ok(text(why, true)),
        Observed::Withhold => Ok(Answered::Withheld),
    }
}

async fn ran(effect: OpenEffect, name: &str) -> Result<Option<Arc<str>>, Restart> {
    let said: Arc<str> = Arc::from(format!("`{name}` ran"));
    let outcome = Outcome::new(effect.key().clone(), OutcomeEnd::Ok, said.clone());
    match effect.finish(outcome, Vec::new(), None).await {
        Ok(_) => Ok(Some(said)),
        Err(unfinished) => match unfinished.error {
            DriveError::Restart(restart) => Err(restart),
            _ => Ok(None),
        },
    }
}

/// What a faulty step does instead of answering. A step that stalls waits for ever: the stop drops the turn.
async fn fault(served: &Served) -> Option<TurnEnd> {
    let step = &served.step;
    if let Some(silence) = step.stall_ms {
        tokio::time::sleep(Duration::from_millis(silence)).await;
    }
    if step.stall_after_events.is_some() {
        std::future::pending::<()>().await;
    }
    let failed = |status, message: &str| Some(TurnEnd::Failed { status, message: message.to_owned() });
    match step.status {
        Some(status) => failed(Some(status), &format!("the provider answered {status}")),
        None if step.failure.is_some() => failed(None, "the provider's answer ends in a failure"),
        None if step.corrupt => failed(None, "the provider's answer cannot be read"),
        None if step.cut_after_events.is_some() => failed(None, "the provider's answer was cut"),
        None => None,
    }
}

#[async_trait]
impl AdapterSession for FauxSession {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn native(&self) -> Option<NativeIdentity> {
        Some(self.identity.clone())
    }

    fn request_barrier(&self) -> Option<Arc<dyn RequestBarrier>> {
        Some(Arc::new(Barrier(self.seat.journal.clone())))
    }

    async fn run_turn(&mut self, turn: Turn) -> Result<TurnEnd, AdapterError> {
        let Turn { start, stop, recovery_note, words } = turn;
        let mut cut = stop.clone();
        tokio::select! {
            biased;
            level = cut.reached(StopLevel::Interrupt) => Ok(TurnEnd::Stopped(level)),
            end = self.play(start, recovery_note, stop, words) => end,
        }
    }

    async fn close(self: Box<Self>, _deadline: Duration) -> CloseReport {
        CloseReport::default()
    }
}

/// The history holds a request's last words before the request is made, so there is nothing to wait for.
struct Barrier(Journal);

#[async_trait]
impl RequestBarrier for Barrier {
    async fn before_request(&self, _body: &[u8]) -> Result<Tail, JournalError> {
        self.0.tail(&[STREAM]).await
    }
}

/// The request as a model would get it.
fn request(model: &str, system: &[String], talk: &Conversation) -> Arc<[u8]> {
    let messages: Vec<Value> = talk
        .messages
        .iter()
        .map(|message| {
            let role = match message.side {
                Side::User => "user",
                Side::Assistant => "assistant",
            };
            json!({ "role": role, "text": message.text, "results": message.results })
        })
        .collect();
    let body = json!({ "model": model, "system": system, "tools": talk.tools, "messages": messages });
    Arc::from(body.to_string().into_bytes())
}

fn unique(prefix: &str) -> String {
    format!("{prefix}_{}", uuid::Uuid::now_v7().simple())
}

fn history_error(what: &str) -> AdapterError {
    AdapterError::new(AdapterErrorKind::History, format!("the {} adapter's own history: {what}", PROFILE.name))
}

fn unreadable(error: HistoryError) -> AdapterError {
    AdapterError::new(AdapterErrorKind::History, error.to_string())
}

fn of_drive(error: DriveError) -> AdapterError {
    match error {
        DriveError::Restart(restart) => restart.into(),
        error => history_error(&error.to_string()),
    }
}

fn of_journal(error: JournalError) -> AdapterError {
    match error {
        JournalError::Drive(error) => of_drive(error),
        error => history_error(&error.to_string()),
    }
}
