//! The host's tools as the script in the program asks for them. A call is one task however often it is asked for: the script asks again
//! when the answer is not there yet, and a connection that breaks loses nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentrun_kernel::{CallId, DriveError, OpenEffect, Outcome, OutcomeEnd, Restart, StopLevel, StopSignal};
use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::{Notify, watch};

use super::json::at;
use super::mirror::{Mirror, SeenCall};
use super::timeline::{Call, Timeline};
use crate::calls::{Failure, finish, unknown};
use crate::journal::{JournalError, Tail};
use crate::seat::RequestBarrier;
use crate::tools::{Answer, Observed, ToolCall, ToolHost, ToolSpec};

/// Which call is asked for, by the provider's id of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Name {
    /// A host tool's, in the message with this id of the program's.
    Call { message: String, call: String },
    /// A built-in's. Whatever is asked for by one asking is one call.
    Builtin { asking: String, call: String },
}

/// What the script is told.
#[derive(Clone, Debug)]
pub(super) enum Told {
    /// The answer of a host tool.
    Text { text: Arc<str>, is_error: bool, end_turn: bool },
    /// The built-in may run: its intent is recorded.
    Run,
    /// It may not; the model is told this.
    Denied(Arc<str>),
}

/// Where a call stands: the program's id of its message, and the provider's of the call.
type Place = (String, String);

/// What is told of a built-in that was cut before the log had its end.
const CUT: &str = "The call was interrupted.";

/// What the turn knows of its calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    /// Calls that run, built-ins among them.
    pub(super) in_flight: usize,
    /// Something was asked that must not be answered: the program is ended once no call runs.
    pub(super) withheld: bool,
    /// The value was delivered: no further request is wanted.
    pub(super) delivered: bool,
    /// The session is no longer ours.
    pub(super) lost: Option<Restart>,
}

/// What the model may call.
pub(super) struct Offered {
    host: Arc<dyn ToolHost>,
    mirror: Arc<Mirror>,
    builtins: Vec<String>,
    turn: Mutex<TurnCalls>,
    /// Held while the ends of built-ins are recorded: who waits for it finds them recorded.
    ends: tokio::sync::Mutex<()>,
    /// Something of [`Standing`] changed.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct TurnCalls {
    stop: Option<StopSignal>,
    standing: Standing,
    calls: HashMap<Name, watch::Receiver<Option<Told>>>,
    /// Calls of tools nobody offers that the host was told of.
    told: Vec<Place>,
    /// Built-ins that run.
    running: Vec<(Place, OpenEffect)>,
    /// Calls of built-ins that were asked for.
    observed: Vec<Place>,
}

impl Offered {
    pub(super) fn new(host: Arc<dyn ToolHost>, mirror: Arc<Mirror>, builtins: Vec<String>) -> Arc<Self> {
        let (turn, ends) = (Mutex::default(), tokio::sync::Mutex::default());
        Arc::new(Self { host, mirror, builtins, turn, ends, changed: Notify::new() })
    }

    pub(super) fn specs(&self) -> &[ToolSpec] {
        self.host.specs()
    }

    /// A turn begins. Calls of an earlier one that still run are counted on.
    pub(super) fn begin_turn(&self, stop: StopSignal) {
        let mut turn = self.lock();
        // A built-in of an earlier turn is closed with that turn.
        let in_flight = turn.standing.in_flight.saturating_sub(turn.running.len());
        *turn = TurnCalls { stop: Some(stop), ..TurnCalls::default() };
        turn.standing.in_flight = in_flight;
    }

    pub(super) fn standing(&self) -> Standing {
        self.lock().standing.clone()
    }

    /// Asks for a call: the channel its answer comes over, the same for each time it is asked for. `None`: it is not to be answered.
    pub(super) fn ask(self: &Arc<Self>, name: Name, tool: &str) -> Option<watch::Receiver<Option<Told>>> {
        let mut turn = self.lock();
        if let Some(asked) = turn.calls.get(&name) {
            return Some(asked.clone());
        }
        if turn.stop.as_ref().is_none_or(|stop| stop.level() >= StopLevel::Drain) {
            // Nothing new begins, and nothing is said about it: the program is ended.
            turn.standing.withheld = true;
            self.changed.notify_one();
            return None;
        }
        let (tell, told) = watch::channel(None);
        turn.calls.insert(name.clone(), told.clone());
        turn.standing.in_flight = turn.standing.in_flight.saturating_add(1);
        drop(turn);
        let (it, tool) = (self.clone(), tool.to_owned());
        tokio::spawn(async move {
            let told = match name {
                Name::Call { message, call } => {
                    let answer = it.call(&message, &call, &tool).await;
                    it.ended(answer)
                }
                Name::Builtin { call, .. } => it.observe(&call, &tool).await,
            };
            // The script sees its answer before the turn sees that the call is over.
            if let Some(told) = told {
                tell.send_replace(Some(told));
            }
            it.changed.notify_one();
        });
        Some(told)
    }

    async fn call(&self, message: &str, call: &str, tool: &str) -> Result<Answer, Restart> {
        match seen(call, tool, self.mirror.before_call(message, call).await)? {
            Ok((call, _)) => self.host.call(call).await,
            Err(text) => Ok(Answer::Text { text: Arc::from(text), is_error: true, end_turn: false }),
        }
    }

    /// A built-in is to run: recorded first, or denied. One that may run counts as in flight until its end is recorded.
    async fn observe(&self, call: &str, tool: &str) -> Option<Told> {
        // A provider may give two calls one id: each asking takes one that no other took.
        let taken = |place: &Place| self.lock().observed.contains(place);
        let observed = match seen(call, tool, self.mirror.before_builtin(call, taken).await) {
            Ok(Ok((call, place))) => {
                self.lock().observed.push(place.clone());
                self.host.observe(call).await.map(|observed| (observed, place))
            }
            Ok(Err(text)) => Ok((Observed::Deny(Arc::from(text)), Place::default())),
            Err(restart) => Err(restart),
        };
        let mut turn = self.lock();
        if let Ok((Observed::Run(effect), place)) = observed {
            turn.running.push((place, effect));
            return Some(Told::Run);
        }
        turn.standing.in_flight = turn.standing.in_flight.saturating_sub(1);
        match observed {
            Ok((Observed::Deny(why), _)) => return Some(Told::Denied(why)),
            Ok(_) => turn.standing.withheld = true,
            Err(restart) => {
                turn.standing.lost.get_or_insert(restart);
            }
        }
        None
    }

    /// Records how built-ins ended that the log shows as ended, with the text the model is given. `cut`: those it does not show, and all of
    /// a turn that was aborted, are interrupted.
    ///
    /// # Errors
    /// An end could not be recorded.
    pub(super) async fn record_ends(&self, cut: Cut) -> Result<(), Failure> {
        let _order = self.ends.lock().await;
        let running: Vec<Place> = self.lock().running.iter().map(|(place, _)| place.clone()).collect();
        if running.is_empty() {
            return Ok(());
        }
        let ends = self.mirror.known(|log| running.iter().map(|place| end_of(log, place)).collect::<Vec<_>>()).await;
        for (place, end) in running.into_iter().zip(ends) {
            let (how, text) = match (end, cut) {
                (None, Cut::Nothing) => continue,
                (None, _) => (OutcomeEnd::Interrupted, Arc::from(CUT)),
                (Some((_, text)), Cut::Aborted) => (OutcomeEnd::Interrupted, text),
                (Some(end), _) => end,
            };
            let effect = {
                let mut turn = self.lock();
                let at = turn.running.iter().position(|(it, _)| *it == place);
                at.map(|at| turn.running.swap_remove(at).1)
            };
            let Some(effect) = effect else { continue };
            let outcome = Outcome::new(effect.key().clone(), how, &*text);
            let finished = finish(effect, outcome).await;
            let mut turn = self.lock();
            turn.standing.in_flight = turn.standing.in_flight.saturating_sub(1);
            drop(turn);
            finished?;
        }
        Ok(())
    }

    /// A tool nobody offers: the program has answered the model by itself, and the host is told once, which ends the node.
    fn report_unknown(self: &Arc<Self>, name: Place, tool: String, arguments: Value) {
        let mut turn = self.lock();
        if turn.told.contains(&name) {
            return;
        }
        turn.told.push(name.clone());
        turn.standing.in_flight = turn.standing.in_flight.saturating_add(1);
        drop(turn);
        let it = self.clone();
        tokio::spawn(async move {
            let (_, call) = name;
            let answer = unknown(&*it.host, &call, &tool, arguments).await;
            it.ended(answer);
            it.changed.notify_one();
        });
    }

    /// Tells the host of every call of a tool nobody offers among the answers to `message`. Whether there was one.
    pub(super) fn look_for_unknown(self: &Arc<Self>, timeline: &Timeline, message: &str, from: usize) -> bool {
        let mut found = false;
        for answer in timeline.answers(message, from) {
            for call in answer.calls() {
                // Its own words on it are the error; a call of an offered tool reaches the script.
                if call.status() == "error" && !self.offers(call.tool) {
                    found = true;
                    let name = (answer.id.clone(), call.id.to_owned());
                    self.report_unknown(name, call.tool.to_owned(), call.arguments().clone());
                }
            }
        }
        found
    }

    fn offers(&self, tool: &str) -> bool {
        self.specs().iter().any(|spec| spec.name == tool) || self.builtins.iter().any(|name| name == tool)
    }

    /// Notes how a call ended; its answer, if there is one to give.
    fn ended(&self, answer: Result<Answer, Restart>) -> Option<Told> {
        let mut turn = self.lock();
        turn.standing.in_flight = turn.standing.in_flight.saturating_sub(1);
        match answer {
            Ok(Answer::Text { text, is_error, end_turn }) => {
                turn.standing.delivered |= end_turn;
                Some(Told::Text { text, is_error, end_turn })
            }
            Ok(Answer::Withhold) => {
                turn.standing.withheld = true;
                None
            }
            Err(restart) => {
                turn.standing.lost.get_or_insert(restart);
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, TurnCalls> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has become of built-ins whose end is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// They may run on.
    Nothing,
    /// The program does nothing any more: what has no end by now was cut.
    Idle,
    /// They were aborted: one that shows an end may show the abort's.
    Aborted,
}

/// The call as it is recorded and where it stands, or why it was not run.
fn seen(
    call: &str,
    tool: &str,
    seen: Result<SeenCall, JournalError>,
) -> Result<Result<(ToolCall, Place), String>, Restart> {
    match seen {
        Ok(seen) if seen.tool != tool => {
            Ok(Err(format!("This call was not run: the history has it as a call of `{}`.", seen.tool)))
        }
        Ok(SeenCall { message, tool, arguments, ordinal, tail }) => {
            let made = ToolCall { call: CallId(call.to_owned()), tool, arguments, ordinal, tail };
            Ok(Ok((made, (message, call.to_owned()))))
        }
        Err(JournalError::Drive(DriveError::Restart(restart))) => Err(restart),
        Err(error) => Ok(Err(format!("This call was not run, because it could not be recorded first: {error}"))),
    }
}

/// How the log says that a call ended.
fn end_of(log: &Timeline, (message, id): &Place) -> Option<(OutcomeEnd, Arc<str>)> {
    let call: Call<'_> = log.row(message)?.calls().find(|it| it.id == id)?;
    let text = |pointer: &str| Arc::from(at(call.part, pointer).as_str().unwrap_or_default());
    match call.status() {
        _ if call.is_open() => None,
        "completed" => Some((OutcomeEnd::Ok, text("/state/output"))),
        "error" => Some((OutcomeEnd::Error, text("/state/error"))),
        _ => None,
    }
}

/// What the gate asks before each paid request.
pub(super) struct Barrier(pub(super) Arc<Offered>);

#[async_trait]
impl RequestBarrier for Barrier {
    async fn before_request(&self, body: &[u8]) -> Result<Tail, JournalError> {
        let Self(offered) = self;
        let standing = offered.standing();
        if standing.delivered || standing.withheld {
            return Err(JournalError::Ended);
        }
        let tail = offered.mirror.before_request(body).await?;
        // What the request shows the model of a built-in is recorded before it leaves. One that cannot be recorded ends the turn there.
        if offered.record_ends(Cut::Nothing).await.is_err() {
            return Err(JournalError::Ended);
        }
        let Some(message) = offered.mirror.expected() else { return Ok(tail) };
        // The node ends with such a call; what it would ask next is not paid for.
        let unknown = offered.mirror.known(|log| offered.look_for_unknown(log, &message, 0)).await;
        if unknown { Err(JournalError::Ended) } else { Ok(tail) }
    }
}
