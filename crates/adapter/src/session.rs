//! A running session of a harness, turn by turn.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use agentrun_kernel::{Message, PlaceTicket, Restart, StopLevel, StopSignal};
use async_trait::async_trait;

use crate::adapter::Capabilities;
use crate::error::AdapterError;
use crate::seat::RequestBarrier;

/// One session of a harness. Dropping it is the crash path: everything it started ends.
#[async_trait]
pub trait AdapterSession: Send {
    /// What it can do; never wider than the profile.
    fn capabilities(&self) -> Capabilities;

    /// Who the harness says it is; `None` until it was started.
    fn native(&self) -> Option<NativeIdentity>;

    /// What the gate asks before each paid request; `None` for harnesses without a history of their own.
    fn request_barrier(&self) -> Option<Arc<dyn RequestBarrier>>;

    /// Runs one turn until the harness is idle, or the stop signal ends it. A message is placed through its ticket, so it cannot be sent
    /// unrecorded.
    ///
    /// Not cancel safe: the runner never drops it; it raises the signal.
    ///
    /// # Errors
    /// [`AdapterError`]; its kind decides what follows. The session is then closed, not used again.
    async fn run_turn(&mut self, turn: Turn) -> Result<TurnEnd, AdapterError>;

    /// Ends the harness within `deadline`, by force at its end. Cannot fail: what is left running is in the report.
    async fn close(self: Box<Self>, deadline: Duration) -> CloseReport;
}

/// One turn.
#[derive(Debug)]
pub struct Turn {
    /// What it starts with.
    pub start: Start,
    /// When to end it.
    pub stop: StopSignal,
    /// What a resumed harness is told of the interruption; empty when there was none.
    pub recovery_note: String,
    /// People's words while it runs; `None` where the turn takes none.
    pub words: Option<Box<dyn Words>>,
}

/// People's words for a turn that runs, a message at a time. Given to sessions that can be steered.
///
/// An adapter asks while the turn runs and nothing ends it: no stop, no accepted submit. A message that was placed MUST end up in the
/// harness's history under its id, in this turn, or be out of the harness's hands when the turn ends: the runner then says by the recorded
/// history what was taken, and the rest begins the next message.
#[async_trait]
pub trait Words: Send + fmt::Debug {
    /// Waits for the next message. Its words come through the ticket, which records them as placed into the open turn first; refused as
    /// illegal, the turn was ended in the same moment and the words stay for a later one.
    ///
    /// Ask again once the message before it, and the one that opened the turn, stand in the harness's history: then a crash finds at most
    /// one on its way, and that is placed again under its id.
    ///
    /// Waits for ever when nobody sends, and once the session is told to stop. Cancel safe: words that were not handed out stay in the
    /// session.
    ///
    /// # Errors
    /// [`Restart`]: the session is no longer this process's.
    async fn next(&mut self) -> Result<PlaceTicket, Restart>;
}

/// What a turn starts with.
#[derive(Debug)]
pub enum Start {
    /// A new message.
    Place(PlaceTicket),
    /// The turn is open and a message of it was placed but not taken: the same message under the same id. It is the one that opened the
    /// turn, or words steered into it; those come behind what the history holds of the turn.
    Again(Message),
    /// The turn is open and its messages were taken: nothing is placed. This is the one that opened it.
    Continue(Message),
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// The harness is idle.
    Idle,
    /// The signal ended it.
    Stopped(StopLevel),
    /// The harness says the turn failed (a refused request, the provider's fault); it is idle.
    Failed {
        /// The provider's status, where it says one.
        status: Option<u16>,
        /// Its words.
        message: String,
    },
}

/// Who a harness says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeIdentity {
    /// Its id of the session.
    pub session: String,
    /// Its version.
    pub version: String,
    /// Whether it went on from the restored history.
    pub resumed: bool,
}

/// What a close left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloseReport {
    /// The program's exit code, when it is known.
    pub exit: Option<i32>,
    /// It did not end by itself in time.
    pub forced: bool,
}
