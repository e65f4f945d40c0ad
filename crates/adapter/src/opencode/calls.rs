//! The host's tools as the script in the program asks for them. A call is one task however often it is asked for: the script asks again
//! when the answer is not there yet, and a connection that breaks loses nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentrun_kernel::{CallId, DriveError, Restart, StopLevel, StopSignal};
use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::{Notify, watch};

use super::mirror::Mirror;
use super::timeline::Timeline;
use crate::calls::unknown;
use crate::journal::{JournalError, Tail};
use crate::seat::RequestBarrier;
use crate::tools::{Answer, ToolCall, ToolHost, ToolSpec};

/// Which call: the program's id of the message it stands in, and the provider's of the call.
pub(super) type Name = (String, String);

/// What the turn knows of its calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    /// Calls that run.
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
    turn: Mutex<TurnCalls>,
    /// Something of [`Standing`] changed.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct TurnCalls {
    stop: Option<StopSignal>,
    standing: Standing,
    calls: HashMap<Name, watch::Receiver<Option<Answer>>>,
    /// Calls of tools nobody offers that the host was told of.
    told: Vec<Name>,
}

impl Offered {
    pub(super) fn new(host: Arc<dyn ToolHost>, mirror: Arc<Mirror>) -> Arc<Self> {
        Arc::new(Self { host, mirror, turn: Mutex::default(), changed: Notify::new() })
    }

    pub(super) fn specs(&self) -> &[ToolSpec] {
        self.host.specs()
    }

    /// A turn begins. Calls of an earlier one that still run are counted on.
    pub(super) fn begin_turn(&self, stop: StopSignal) {
        let mut turn = self.lock();
        let in_flight = turn.standing.in_flight;
        *turn = TurnCalls { stop: Some(stop), ..TurnCalls::default() };
        turn.standing.in_flight = in_flight;
    }

    pub(super) fn standing(&self) -> Standing {
        self.lock().standing.clone()
    }

    /// Asks for a call: the channel its answer comes over, the same for each time it is asked for. `None`: it is not to be answered.
    pub(super) fn ask(self: &Arc<Self>, name: Name, tool: &str) -> Option<watch::Receiver<Option<Answer>>> {
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
            let answer = it.call(&name, &tool).await;
            // The script sees its answer before the turn sees that the call is over.
            if let Some(answer) = it.ended(answer) {
                tell.send_replace(Some(answer));
            }
            it.changed.notify_one();
        });
        Some(told)
    }

    async fn call(&self, (message, call): &Name, tool: &str) -> Result<Answer, Restart> {
        match self.mirror.before_call(message, call).await {
            Ok(seen) if seen.tool != tool => {
                let text = format!("This call was not run: the history has it as a call of `{}`.", seen.tool);
                Ok(Answer::Text { text: Arc::from(text), is_error: true, end_turn: false })
            }
            Ok(seen) => {
                let call = ToolCall {
                    call: CallId(call.clone()),
                    tool: seen.tool,
                    arguments: seen.arguments,
                    ordinal: seen.ordinal,
                    tail: seen.tail,
                };
                self.host.call(call).await
            }
            Err(JournalError::Drive(DriveError::Restart(restart))) => Err(restart),
            Err(error) => {
                let text = format!("This call was not run, because it could not be recorded first: {error}");
                Ok(Answer::Text { text: Arc::from(text), is_error: true, end_turn: false })
            }
        }
    }

    /// A tool nobody offers: the program has answered the model by itself, and the host is told once, which ends the node.
    fn report_unknown(self: &Arc<Self>, name: Name, tool: String, arguments: Value) {
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
                if call.status() == "error" && !self.specs().iter().any(|spec| spec.name == call.tool) {
                    found = true;
                    let name = (answer.id.clone(), call.id.to_owned());
                    self.report_unknown(name, call.tool.to_owned(), call.arguments().clone());
                }
            }
        }
        found
    }

    /// Notes how a call ended; its answer, if there is one to give.
    fn ended(&self, answer: Result<Answer, Restart>) -> Option<Answer> {
        let mut turn = self.lock();
        turn.standing.in_flight = turn.standing.in_flight.saturating_sub(1);
        match answer {
            Ok(answer @ Answer::Text { end_turn, .. }) => {
                turn.standing.delivered |= end_turn;
                Some(answer)
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
        let Some(message) = offered.mirror.expected() else { return Ok(tail) };
        // The node ends with such a call; what it would ask next is not paid for.
        let unknown = offered.mirror.known(|log| offered.look_for_unknown(log, &message, 0)).await;
        if unknown { Err(JournalError::Ended) } else { Ok(tail) }
    }
}
