//! One turn: hears the program, answers what it asks, and knows when it is idle. Calls run in tasks, so that the program is heard while
//! they do, and a barrier that waits holds up only its own call.
//!
//! A turn is over when our message is closed (completed or cancelled) and no other command runs: a turn the program takes up by itself
//! after a resume runs under an id of its own, and ours is acknowledged beside it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use agentrun_kernel::{DriveError, OpenEffect, Outcome, OutcomeEnd, PlaceTicket, Restart, StopLevel, StopSignal};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::barrier::TranscriptBarrier;
use super::history::tool_name;
use super::steer::Steering;
use super::wire::{self, Asked, Assistant, Hook, HookInput, Lifecycle, Line, McpMessage, TOOL_PREFIX, TurnResult};
use crate::calls::{Calls, Failure, STALL, above, finish, unknown, until, unwind};
use crate::error::AdapterErrorKind;
use crate::process::Dialogue;
use crate::seat::Seat;
use crate::session::TurnEnd;
use crate::tools::{Answer, Observed, ToolHost};

/// How long an interrupted turn may take to end in the program's own way.
const INTERRUPT_DEADLINE: Duration = Duration::from_secs(5);
/// How long the `result` of a turn that is done with is waited for: it says whether the turn failed, and comes first as a rule.
const LATE_RESULT: Duration = Duration::from_secs(5);
/// The reason the program records for a turn that ended with its delivery.
const DELIVERED: &str = "delivered";

/// What the model may call.
pub(super) struct Offered {
    host: Arc<dyn ToolHost>,
    calls: Calls,
    builtins: HashSet<String>,
    transcript: Arc<TranscriptBarrier>,
}

impl Offered {
    pub(super) fn new(builtins: &[String], host: Arc<dyn ToolHost>, transcript: Arc<TranscriptBarrier>) -> Self {
        let calls = Calls::new(host.clone(), transcript.clone());
        Self { host, calls, builtins: builtins.iter().cloned().collect(), transcript }
    }

    /// The host's tools as the program is told of them.
    pub(super) fn tools(&self) -> Vec<wire::Tool> {
        let tool = |spec: &crate::tools::ToolSpec| {
            wire::Tool::new(spec.name.clone(), spec.description.clone(), spec.input_schema.clone())
        };
        self.host.specs().iter().map(tool).collect()
    }

    fn of(&self, name: &str) -> Whose {
        match name.strip_prefix(TOOL_PREFIX) {
            Some(ours) if self.host.specs().iter().any(|spec| spec.name == ours) => Whose::Host,
            None if self.builtins.contains(name) => Whose::Builtin,
            _ => Whose::Nobody,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Host,
    Builtin,
    Nobody,
}

/// What a call's task found.
enum Done {
    Called { request: String, message: McpMessage, call: String, answer: Result<Answer, Restart> },
    Observed { request: String, call: String, observed: Result<Observed, Restart> },
    Unknown(Result<Answer, Restart>),
}

/// A turn that runs.
pub(super) struct Running<'a> {
    child: &'a mut Dialogue,
    seat: &'a Seat,
    offered: Arc<Offered>,
    stop: StopSignal,
    /// Our message.
    message: String,
    /// Our message is done with.
    closed: bool,
    /// Commands that run, ours and the program's own.
    started: HashSet<String>,
    /// One of them ran, so that a `result` is due; a message that is absorbed has none.
    ran: bool,
    /// Until when it is waited for.
    result_due: Option<Instant>,
    result: Option<TurnResult>,
    done: (mpsc::UnboundedSender<Done>, mpsc::UnboundedReceiver<Done>),
    /// Tasks whose answer has not come.
    in_flight: usize,
    /// A response streams.
    streaming: bool,
    /// Something was asked that must not be answered: the program ends once no task runs.
    withheld: bool,
    /// Calls run, whose results the next request waits for: words can be given before it.
    calling: bool,
    steering: Steering,
    /// Calls after whose result the turn ends.
    last_calls: HashSet<String>,
    /// Built-ins that run, by call.
    builtins: HashMap<String, OpenEffect>,
    /// Calls our hook let run.
    allowed: HashSet<String>,
    /// When an interrupted turn must have ended.
    interrupted: Option<Instant>,
}

impl<'a> Running<'a> {
    pub(super) fn new(
        child: &'a mut Dialogue,
        message: &str,
        offered: Arc<Offered>,
        seat: &'a Seat,
        stop: StopSignal,
        steering: Steering,
    ) -> Self {
        Self {
            child,
            seat,
            offered,
            stop,
            message: message.to_owned(),
            closed: false,
            started: HashSet::new(),
            ran: false,
            result_due: None,
            result: None,
            done: mpsc::unbounded_channel(),
            in_flight: 0,
            streaming: false,
            withheld: false,
            calling: false,
            steering,
            last_calls: HashSet::new(),
            builtins: HashMap::new(),
            allowed: HashSet::new(),
            interrupted: None,
        }
    }

    /// Runs until the program is idle, or is to be ended: on [`TurnEnd::Stopped`] and on a failure the caller ends it.
    pub(super) async fn run(mut self, early: Vec<Line>) -> Result<TurnEnd, Failure> {
        for line in early {
            self.hear(line).await?;
        }
        let drive = self.seat.drive.clone();
        let lost = drive.lost();
        tokio::pin!(lost);
        let mut heard = Instant::now();
        loop {
            if self.closed && self.started.is_empty() && self.steering.queued().is_none() {
                let due = *self.result_due.get_or_insert(heard.checked_add(LATE_RESULT).unwrap_or(heard));
                if self.result.is_some() || !self.ran || Instant::now() >= due {
                    return self.idle().await;
                }
            }
            let level = self.stop.level();
            if level >= StopLevel::Kill {
                // Nothing is said before: a program that heard of an interrupt records it as its turn's end, and takes up nothing.
                return Ok(TurnEnd::Stopped(level));
            }
            if level >= StopLevel::Interrupt && self.interrupted.is_none() {
                let deadline = Instant::now().checked_add(INTERRUPT_DEADLINE).unwrap_or(heard);
                self.interrupted = Some(deadline);
                if let Some(words) = self.steering.queued() {
                    self.child.tell(&wire::cancel(words)).await;
                }
                let interrupt = wire::control("interrupt", serde_json::json!({ "subtype": "interrupt" }));
                self.child.tell(&interrupt).await;
            }
            let quiet = self.in_flight == 0;
            let drained = level >= StopLevel::Drain && quiet && !self.streaming && self.interrupted.is_none();
            if drained || (self.withheld && quiet) {
                return Ok(TurnEnd::Stopped(level.max(StopLevel::Drain)));
            }
            if self.takes_words(level) {
                self.steering.ask();
            }
            let stalled = heard.checked_add(STALL).filter(|_| quiet);
            let mut rises = self.stop.clone();
            tokio::select! {
                restart = &mut lost => return Err(unwind(restart)),
                line = self.child.line(wire::read) => {
                    heard = Instant::now();
                    let Some(line) = line.transpose().map_err(|error| (AdapterErrorKind::Protocol, error.to_string()))?
                    else {
                        return Err((
                            AdapterErrorKind::Exited { code: None },
                            "Claude Code ended in the middle of a turn; the session can be resumed".to_owned(),
                        ));
                    };
                    self.hear(line).await?;
                }
                Some(done) = self.done.1.recv() => {
                    heard = Instant::now();
                    self.in_flight = self.in_flight.saturating_sub(1);
                    self.settle(done).await?;
                }
                next = self.steering.next() => if let Some(ticket) = next {
                    self.steer(ticket.map_err(unwind)?).await?;
                },
                _ = rises.reached(above(level)) => {}
                () = until(self.interrupted) => {
                    return Ok(TurnEnd::Stopped(level.max(StopLevel::Interrupt)));
                }
                () = until(self.result_due) => {}
                () = until(stalled) => {
                    let message = format!("Claude Code said nothing for {} s; the session can be resumed", STALL.as_secs());
                    return Err((AdapterErrorKind::Stalled, message));
                }
            }
        }
    }

    /// The turn is over and the program is idle.
    async fn idle(mut self) -> Result<TurnEnd, Failure> {
        for (_, effect) in std::mem::take(&mut self.builtins) {
            // Its end was never told: it was interrupted, or rejected.
            let outcome = Outcome::new(effect.key().clone(), OutcomeEnd::Interrupted, "The call was interrupted.");
            finish(effect, outcome).await?;
        }
        let level = self.stop.level();
        if level >= StopLevel::Interrupt {
            return Ok(TurnEnd::Stopped(level));
        }
        match self.result {
            Some(result) if result.is_error => {
                Ok(TurnEnd::Failed { status: result.api_error_status, message: result.said() })
            }
            _ => Ok(TurnEnd::Idle),
        }
    }

    async fn hear(&mut self, line: Line) -> Result<(), Failure> {
        match line {
            Line::Asks { request_id, request } => self.asked(request_id, request).await,
            Line::Lifecycle { uuid, state } => self.lifecycle(uuid, state).await,
            Line::Assistant(assistant) => self.look_for_unknown_tools(&assistant),
            Line::Results(results) => {
                for result in results {
                    let Some(effect) = self.builtins.remove(&result.call) else { continue };
                    let end = if result.is_error { OutcomeEnd::Error } else { OutcomeEnd::Ok };
                    let outcome = Outcome::new(effect.key().clone(), end, result.text);
                    finish(effect, outcome).await?;
                }
            }
            Line::Stream(event) => self.stream(&event),
            Line::Init(init) => {
                let ours = self.offered.transcript.session();
                if init.session_id != ours {
                    let message =
                        format!("Claude Code runs session {}, not {ours}, which it was started for", init.session_id);
                    return Err((AdapterErrorKind::Protocol, message));
                }
            }
            Line::Result(result) => self.result = Some(result),
            Line::Odd { kind, why } => {
                let message = format!("Claude Code sent a `{kind}` line this version cannot read: {why}");
                return Err((AdapterErrorKind::Protocol, message));
            }
            Line::Answers { .. } | Line::Other => {}
        }
        Ok(())
    }

    /// Whether words that come now can be given before the next request, and nothing ends the turn.
    fn takes_words(&self, level: StopLevel) -> bool {
        self.calling && !self.withheld && self.last_calls.is_empty() && level == StopLevel::Run
    }

    /// Places words into the turn. One that takes none any more drops the ticket: the words stay.
    async fn steer(&mut self, ticket: PlaceTicket) -> Result<(), Failure> {
        if !self.takes_words(self.stop.level()) {
            return Ok(());
        }
        match ticket.place().await {
            Ok(message) => self.steering.hold(message),
            // It was delivered in the same moment.
            Err(DriveError::Illegal(_)) => self.steering.close(),
            Err(DriveError::Restart(restart)) => return Err(unwind(restart)),
            Err(error) => return Err((AdapterErrorKind::History, format!("the records took no more: {error}"))),
        }
        Ok(())
    }

    async fn lifecycle(&mut self, uuid: String, state: Lifecycle) {
        if let Some(hook) = self.steering.has(&uuid) {
            self.answer(&hook, serde_json::json!({})).await;
        }
        if matches!(state, Lifecycle::Started | Lifecycle::Completed | Lifecycle::Cancelled) {
            self.steering.folded(&uuid);
        }
        match state {
            Lifecycle::Started => {
                self.ran = true;
                self.result_due = None;
                self.started.insert(uuid);
            }
            Lifecycle::Completed | Lifecycle::Cancelled => {
                self.started.remove(&uuid);
                self.closed |= uuid == self.message;
            }
            Lifecycle::Queued | Lifecycle::Unknown => {}
        }
    }

    fn stream(&mut self, event: &Value) {
        match event.get("type").and_then(Value::as_str) {
            Some("message_start") => {
                self.streaming = true;
                // A batch of calls that was cut has no end of its own.
                self.calling = false;
            }
            Some("message_stop") => self.streaming = false,
            Some("content_block_delta") => {
                if let Some(text) = event.get("delta").and_then(|delta| delta.get("text")).and_then(Value::as_str) {
                    self.seat.deltas.show(text);
                }
            }
            _ => {}
        }
    }

    /// A tool the program does not know reaches no hook: it answers the model by itself.
    fn look_for_unknown_tools(&mut self, assistant: &Assistant) {
        for (call, name, arguments) in assistant.calls() {
            if self.offered.of(name) == Whose::Nobody {
                self.report_unknown(call.to_owned(), name.to_owned(), arguments.clone());
            }
        }
    }

    fn report_unknown(&mut self, call: String, name: String, arguments: Value) {
        let offered = self.offered.clone();
        self.spawn(async move { Done::Unknown(unknown(&*offered.host, &call, tool_name(&name), arguments).await) });
    }

    fn spawn(&mut self, task: impl Future<Output = Done> + Send + 'static) {
        self.in_flight = self.in_flight.saturating_add(1);
        let done = self.done.0.clone();
        tokio::spawn(async move {
            // The turn may have ended meanwhile; the outcome is recorded by whom the host's call belongs to.
            let _ = done.send(task.await);
        });
    }

    async fn asked(&mut self, request: String, asked: Asked) {
        match asked {
            Asked::Hook { hook: Hook::PreToolUse, input } => self.before_tool(request, input).await,
            Asked::Hook { hook: Hook::PostToolUse | Hook::PostToolUseFailure, input } => {
                let last = self.last_calls.contains(&input.tool_use_id);
                let word = if last { wire::end_turn(DELIVERED) } else { serde_json::json!({}) };
                self.answer(&request, word).await;
            }
            // The outcomes of its calls were recorded as they were heard, before this.
            Asked::Hook { hook: Hook::PostToolBatch, .. } => {
                let goes_on = self.takes_words(self.stop.level());
                self.calling = false;
                match goes_on.then(|| self.steering.give(&request)).flatten() {
                    Some(words) => self.child.tell(&wire::user(words.id.as_str(), &words.text)).await,
                    None => self.answer(&request, serde_json::json!({})).await,
                }
            }
            Asked::Permission { call, input } => {
                let word = if self.allowed.contains(&call) {
                    serde_json::json!({ "behavior": "allow", "updatedInput": input })
                } else {
                    serde_json::json!({ "behavior": "deny", "message": "The host did not allow this call." })
                };
                self.answer(&request, word).await;
            }
            Asked::Mcp(message) if message.method == "tools/call" => self.tool_called(request, message).await,
            Asked::Mcp(message) => {
                let reply = wire::mcp_reply(&message, &self.offered.tools());
                self.answer(&request, reply).await;
            }
            Asked::Unknown(what) => {
                let line = wire::refuse(&request, &format!("the host does not know `{what}`"));
                self.child.tell(&line).await;
            }
        }
    }

    async fn before_tool(&mut self, request: String, input: HookInput) {
        if self.stop.level() >= StopLevel::Drain {
            // Nothing new begins, and nothing is said about it: the program is ended.
            self.withheld = true;
            return;
        }
        let HookInput { tool_name: name, tool_input, tool_use_id: call } = input;
        match self.offered.of(&name) {
            // The barrier and the intent come when it is called; nothing has run before.
            Whose::Host => {
                self.calling = true;
                self.allowed.insert(call);
                self.answer(&request, wire::allow_call()).await;
            }
            Whose::Builtin => {
                self.calling = true;
                let offered = self.offered.clone();
                self.spawn(async move {
                    let observed = offered.calls.observe(&call, &name, tool_input).await;
                    Done::Observed { request, call, observed }
                });
            }
            // Reported when the model's words were heard.
            Whose::Nobody => self.answer(&request, wire::deny_call("This tool is not offered here.")).await,
        }
    }

    async fn tool_called(&mut self, request: String, message: McpMessage) {
        let Some(call) = message.tool_use_id().map(str::to_owned) else {
            let refusal = "This call was not run: it came without the id it must be recorded under.";
            self.answer(&request, wire::tool_result(&message, refusal, true)).await;
            return;
        };
        let part = |name: &str| message.params.get(name).cloned();
        let tool = part("name").and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default();
        let arguments = part("arguments").unwrap_or_else(|| serde_json::json!({}));
        let offered = self.offered.clone();
        self.spawn(async move {
            let answer = offered.calls.call(&call, &tool, arguments).await;
            Done::Called { request, message, call, answer }
        });
    }

    async fn settle(&mut self, done: Done) -> Result<(), Failure> {
        match done {
            Done::Called { request, message, call, answer } => match answer.map_err(unwind)? {
                Answer::Text { text, is_error, end_turn } => {
                    if end_turn {
                        self.last_calls.insert(call);
                    }
                    self.answer(&request, wire::tool_result(&message, &text, is_error)).await;
                }
                Answer::Withhold => self.withheld = true,
            },
            Done::Observed { request, call, observed } => match observed.map_err(unwind)? {
                Observed::Run(effect) => {
                    self.builtins.insert(call.clone(), effect);
                    self.allowed.insert(call);
                    self.answer(&request, wire::allow_call()).await;
                }
                Observed::Deny(why) => self.answer(&request, wire::deny_call(&why)).await,
                Observed::Withhold => self.withheld = true,
            },
            Done::Unknown(answer) => self.withheld |= answer.map_err(unwind)? == Answer::Withhold,
        }
        Ok(())
    }

    async fn answer(&mut self, request: &str, response: Value) {
        self.child.tell(&wire::answer(request, response)).await;
    }
}
