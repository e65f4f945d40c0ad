//! One turn: hears the program, answers what it asks, and knows when it is idle. Calls run in tasks, so that the program is heard while
//! they do, and a barrier that waits holds up only its own call. They end with the turn; what they asked the host for goes on there.
//!
//! ```text
//!  item/tool/call ─► rollout holds it ─► [native tail, intent] ─► runs ─► answered          (accepted submit: not answered)
//!  requestApproval ─► the same ─► accept ─► its output stands in the rollout ─► outcome
//!                              └─► denied: the reason into the history ─► decline
//!  anything else that is asked ─► declined at once
//!  a person's words ─► [placed] ─► turn/steer
//!  turn/completed ─► idle, or another turn of the program's for words it did not take
//! ```

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use agentrun_kernel::{DriveError, Durability, Outcome, OutcomeEnd, PlaceTicket, Restart, StopLevel, StopSignal};
use serde_json::Value;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::barrier::{Became, RolloutBarrier};
use super::session::Program;
use super::steer::Steering;
use super::wire::{self, Approval, Asked, Fault, Line, ToolCalled, TurnEnded};
use crate::calls::{Calls, Failure, above, finish, until, unwind};
use crate::error::AdapterErrorKind;
use crate::journal::JournalError;
use crate::seat::Seat;
use crate::session::TurnEnd;
use crate::tools::{Answer, Observed};

/// How long tasks may take to end behind a turn that has ended.
const BEHIND: Duration = Duration::from_secs(5);
/// A terminal stays open for input, and of what is typed into it the program asks nobody. Without one a command's input is closed.
const NO_TERMINAL: &str =
    "This command was not run: commands run without a terminal here. Call exec_command again, without `tty`.";

/// The status of a turn that ended as it should.
const COMPLETED: &str = "completed";

/// What a call's task found.
enum Done {
    Called {
        request: Value,
        call: String,
        answer: Result<Answer, Restart>,
    },
    Observed {
        request: Value,
        call: String,
        observed: Result<(Observed, u32), Failure>,
    },
    /// A built-in that ran has its outcome.
    Ran(Result<(), Failure>),
    /// The response that made an accepted submit came whole.
    Whole,
}

/// How a turn ended.
pub(super) enum Ended {
    /// The program is idle, or is to be ended for a stop.
    By(TurnEnd),
    /// A submit was accepted. The program still waits for its answer and is to be killed; these calls have theirs in the records.
    Delivered(Vec<(String, Arc<str>)>),
}

/// What each turn of a session runs on.
pub(super) struct Ground<'a> {
    pub(super) seat: &'a Seat,
    pub(super) calls: Arc<Calls>,
    pub(super) rollout: Arc<RolloutBarrier>,
    /// How long the program may say nothing while no call of ours runs.
    pub(super) silence: Duration,
}

/// A turn that runs.
pub(super) struct Running<'a> {
    program: &'a mut Program,
    on: Ground<'a>,
    stop: StopSignal,
    /// People's words for it.
    steering: Steering,
    /// Our request that starts it.
    start: u64,
    /// The program's id of it, once it was told.
    turn: Option<String>,
    /// The program says that it runs.
    began: bool,
    ended: Option<TurnEnded>,
    /// One for each call. Those that wait for a result to be written would hold the session's records behind a turn that was cut.
    tasks: JoinSet<Done>,
    /// The model is asked, or answers.
    streaming: bool,
    /// Calls that were asked for and not answered: any result the history shows for one was made up.
    unanswered: &'a mut HashSet<String>,
    /// Something was asked that must not be answered: the program ends once no task runs.
    withheld: bool,
    /// Calls after whose result the turn ends: they are not answered.
    last_calls: Vec<(String, Arc<str>)>,
    /// Built-ins to decline once the reason stands in the history, by our request that puts it there: what asks, and its call.
    denied: HashMap<u64, (Value, String)>,
}

impl<'a> Running<'a> {
    /// The turn that the program's last request starts.
    pub(super) fn new(
        program: &'a mut Program,
        on: Ground<'a>,
        stop: StopSignal,
        steering: Steering,
        unanswered: &'a mut HashSet<String>,
    ) -> Self {
        Self {
            start: program.asked,
            program,
            on,
            stop,
            steering,
            turn: None,
            began: false,
            ended: None,
            tasks: JoinSet::new(),
            streaming: true,
            unanswered,
            withheld: false,
            last_calls: Vec::new(),
            denied: HashMap::new(),
        }
    }

    /// Runs until the program is idle, or is to be ended.
    pub(super) async fn run(mut self) -> Result<Ended, Failure> {
        let ended = self.until_idle().await;
        self.steering.end().await;
        ended
    }

    async fn until_idle(&mut self) -> Result<Ended, Failure> {
        let drive = self.on.seat.drive.clone();
        let lost = drive.lost();
        tokio::pin!(lost);
        let mut heard = Instant::now();
        let mut over = None;
        loop {
            let quiet = self.tasks.is_empty();
            if quiet && !self.last_calls.is_empty() {
                return Ok(Ended::Delivered(std::mem::take(&mut self.last_calls)));
            }
            let level = self.stop.level();
            let late = over.is_some_and(|at| at <= Instant::now());
            // Words that the program neither took nor refused yet may be its to take.
            let rests = (quiet || late) && !self.steering.unanswered();
            if let Some(ended) = self.ended.take_if(|_| rests) {
                if !self.goes_on(&ended, level).await? {
                    return Ok(Ended::By(end_of(ended, level)));
                }
                (heard, over) = (Instant::now(), None);
                continue;
            }
            let drained = level >= StopLevel::Drain && quiet && !self.streaming;
            // An interrupt would write the program's own account of it into the history, and what it cut: it is killed instead.
            if level >= StopLevel::Interrupt || drained || (self.withheld && quiet) {
                return Ok(Ended::By(TurnEnd::Stopped(level.max(StopLevel::Drain))));
            }
            if self.takes_words(level) {
                self.steering.ask();
            }
            let owes = self.steering.unanswered();
            let stalled = heard.checked_add(self.on.silence).filter(|_| quiet || owes);
            let mut rises = self.stop.clone();
            tokio::select! {
                restart = &mut lost => return Err(unwind(restart)),
                line = self.program.child.line(wire::read) => {
                    heard = Instant::now();
                    let Some(line) = line.transpose().map_err(|error| (AdapterErrorKind::Protocol, error.to_string()))?
                    else {
                        return Err((
                            AdapterErrorKind::Exited { code: None },
                            "Codex ended in the middle of a turn; the session can be resumed".to_owned(),
                        ));
                    };
                    self.hear(line).await?;
                    if self.ended.is_some() && over.is_none() {
                        over = heard.checked_add(BEHIND);
                    }
                }
                // Words given before a result come with it, not a request later.
                Some(done) = self.tasks.join_next(), if !owes => {
                    heard = Instant::now();
                    let lost = |error: JoinError| (AdapterErrorKind::Protocol, format!("the task of a call was lost: {error}"));
                    self.settle(done.map_err(lost)?).await?;
                }
                next = self.steering.next() => if let Some(ticket) = next {
                    self.steer(ticket.map_err(unwind)?).await?;
                },
                _ = rises.reached(above(level)) => {}
                () = until(over.filter(|_| !late)) => {}
                () = until(stalled) => {
                    let silence = self.on.silence;
                    let message = format!(
                        "Codex said nothing for {silence:?}, and its model may have answered nothing; the session can be resumed"
                    );
                    return Err((AdapterErrorKind::Stalled, message));
                }
            }
        }
    }

    async fn hear(&mut self, line: Line) -> Result<(), Failure> {
        match line {
            Line::Asks { id, request } => self.asked(id, request).await,
            Line::Answers { id, answer } if id == self.start => self.started(answer)?,
            Line::Answers { id, .. } if self.steering.answered(id) => {}
            Line::Answers { id, .. } => {
                // Refused, the reason is lost to the model; the call is declined all the same.
                if let Some((request, call)) = self.denied.remove(&id) {
                    self.unanswered.remove(&call);
                    self.answer(&request, wire::decision(false)).await;
                    self.streaming = self.tasks.is_empty();
                }
            }
            Line::TurnStarted { turn } => {
                self.turn = Some(turn);
                self.began = true;
            }
            Line::Took { message } => self.steering.took(&message),
            Line::TurnCompleted(ended) => {
                if self.turn.as_ref().is_none_or(|turn| *turn == ended.id) {
                    self.streaming = false;
                    self.ended = Some(ended);
                }
            }
            Line::Delta(text) => self.on.seat.deltas.show(&text),
            Line::Odd { method, why } => {
                let message = format!("Codex sent a `{method}` message this version cannot read: {why}");
                return Err((AdapterErrorKind::Protocol, message));
            }
            Line::Other => {}
        }
        Ok(())
    }

    fn started(&mut self, answer: Result<Value, Fault>) -> Result<(), Failure> {
        match answer {
            Ok(answer) => {
                let id = answer.get("turn").and_then(|turn| turn.get("id")).and_then(Value::as_str);
                self.turn = id.map(str::to_owned);
                Ok(())
            }
            Err(fault) => Err((AdapterErrorKind::Protocol, format!("Codex did not start the turn: {}", fault.message))),
        }
    }

    /// Whether the turn still has its say, so that words for it are for it.
    fn takes_words(&self, level: StopLevel) -> bool {
        let over = self.ended.is_some() || self.withheld || !self.last_calls.is_empty();
        self.began && !over && level == StopLevel::Run
    }

    /// Places words into the turn and gives them to the program. One that takes none any more drops the ticket: the words stay.
    async fn steer(&mut self, ticket: PlaceTicket) -> Result<(), Failure> {
        let Some(turn) = self.turn.clone().filter(|_| self.takes_words(self.stop.level())) else { return Ok(()) };
        // The message before these stands in the rollout, and first it stands so in the records.
        self.on.rollout.mirror(Durability::Synced).await.map_err(of_journal)?;
        match ticket.place().await {
            Ok(message) => {
                self.on.rollout.expect_words(&message);
                let request = self.program.steer(&turn, &message).await;
                self.steering.gave(message, request);
                Ok(())
            }
            // It was delivered in the same moment.
            Err(DriveError::Illegal(_)) => {
                self.steering.close();
                Ok(())
            }
            Err(error) => Err(of_journal(error.into())),
        }
    }

    /// Begins another turn of the program's where the one that ended left words behind: it accepts them until its last moment, and then
    /// does not take them, or takes them and asks the model no more.
    async fn goes_on(&mut self, ended: &TurnEnded, level: StopLevel) -> Result<bool, Failure> {
        let Some(given) = self.steering.given() else { return Ok(false) };
        let over = level > StopLevel::Run || self.withheld || !self.last_calls.is_empty();
        if over || ended.status != COMPLETED {
            // The records tell what it took.
            return Ok(false);
        }
        let became = self.on.rollout.became(given.id.as_str(), &ended.id).await.map_err(of_journal)?;
        let message = match became {
            Became::Heard => return Ok(false),
            Became::Unheard => None,
            Became::Lost => {
                self.on.rollout.expect_message(given.id.as_str());
                Some(&given)
            }
        };
        self.start = self.program.begin(message).await;
        (self.turn, self.began, self.streaming) = (None, false, true);
        Ok(true)
    }

    async fn asked(&mut self, request: Value, asked: Asked) {
        if let Asked::Other(what) = &asked {
            self.program.child.tell(&wire::decline(&request, what)).await;
            return;
        }
        self.streaming = false;
        if let Asked::Tool(ToolCalled { call_id: call, .. }) | Asked::Approval(Approval { item_id: call }) = &asked {
            self.unanswered.insert(call.clone());
        }
        if self.stop.level() >= StopLevel::Drain {
            // Nothing new begins, and nothing is said about it: the program is ended.
            self.withheld = true;
            return;
        }
        match asked {
            Asked::Tool(ToolCalled { call_id: call, tool, arguments }) => {
                let calls = self.on.calls.clone();
                self.tasks.spawn(async move {
                    let answer = calls.call(&call, &tool, arguments).await;
                    Done::Called { request, call, answer }
                });
            }
            Asked::Approval(Approval { item_id: call }) => {
                let (calls, rollout) = (self.on.calls.clone(), self.on.rollout.clone());
                self.tasks.spawn(async move {
                    let observed = observe(&calls, &rollout, &call).await;
                    Done::Observed { request, call, observed }
                });
            }
            Asked::Other(_) => {}
        }
    }

    async fn settle(&mut self, done: Done) -> Result<(), Failure> {
        match done {
            Done::Called { request, call, answer } => match answer.map_err(unwind)? {
                Answer::Text { text, end_turn: true, .. } => {
                    // Answered, the program would ask the model once more. What the response still holds is waited for.
                    let (rollout, made) = (self.on.rollout.clone(), call.clone());
                    self.last_calls.push((call, text));
                    self.tasks.spawn(async move {
                        rollout.response_of(&made).await;
                        Done::Whole
                    });
                }
                Answer::Text { text, is_error, .. } => {
                    self.unanswered.remove(&call);
                    self.answer(&request, wire::tool_result(&text, is_error)).await;
                    self.streaming = self.tasks.is_empty();
                }
                Answer::Withhold => self.withheld = true,
            },
            Done::Observed { request, call, observed } => match observed? {
                (Observed::Run(effect), ordinal) => {
                    self.unanswered.remove(&call);
                    self.answer(&request, wire::decision(true)).await;
                    let rollout = self.on.rollout.clone();
                    self.tasks.spawn(async move {
                        let ran = match rollout.output_of(&call, ordinal).await {
                            Ok(text) => {
                                let outcome = Outcome::new(effect.key().clone(), OutcomeEnd::Ok, text);
                                finish(effect, outcome).await
                            }
                            // Closed as interrupted with its turn.
                            Err(_) => Ok(()),
                        };
                        Done::Ran(ran)
                    });
                }
                (Observed::Deny(why), _) => {
                    let told = self.program.inject("developer", &format!("On the call `{call}`: {why}")).await;
                    self.denied.insert(told, (request, call));
                }
                (Observed::Withhold, _) => self.withheld = true,
            },
            Done::Ran(ran) => {
                ran?;
                self.streaming = self.tasks.is_empty();
            }
            Done::Whole => {}
        }
        Ok(())
    }

    async fn answer(&mut self, request: &Value, result: Value) {
        self.program.child.tell(&wire::answer(request, result)).await;
    }
}

/// A built-in on its way: looked up in the rollout, where its arguments stand as the model gave them, then recorded.
async fn observe(calls: &Calls, rollout: &RolloutBarrier, call: &str) -> Result<(Observed, u32), Failure> {
    let made = rollout.call_of(call).await.ok().flatten();
    let Some((name, arguments, ordinal)) = made else {
        return Ok((Observed::Deny(Arc::from("This call was not run: it is not in the history.")), 0));
    };
    if arguments.get("tty").and_then(Value::as_bool) == Some(true) {
        return Ok((Observed::Deny(Arc::from(NO_TERMINAL)), ordinal));
    }
    let observed = calls.observe(call, &name, arguments).await.map_err(unwind)?;
    Ok((observed, ordinal))
}

fn of_journal(error: JournalError) -> Failure {
    match error {
        JournalError::Drive(DriveError::Restart(restart)) => unwind(restart),
        error => (AdapterErrorKind::History, error.to_string()),
    }
}

fn end_of(ended: TurnEnded, level: StopLevel) -> TurnEnd {
    if ended.status == COMPLETED {
        return TurnEnd::Idle;
    }
    if level >= StopLevel::Drain {
        // A request that the stop refused.
        return TurnEnd::Stopped(level);
    }
    match ended.error {
        Some(error) => TurnEnd::Failed { status: error.status(), message: error.message },
        None => TurnEnd::Failed { status: None, message: format!("the turn ended `{}`", ended.status) },
    }
}
