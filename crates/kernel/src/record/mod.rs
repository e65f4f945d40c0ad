//! What a log is made of. One enum for a session's records, one for a run's ledger, one for a session's inbox; each variant's doc says
//! when it is written. The bytes on disk are `codec`'s.

mod codec;
mod inbox;
mod ledger;
mod session;

pub use codec::{DecodeError, FORMAT, Frame, FrameParts, LogBody};
pub use inbox::InboxBody;
pub use ledger::{LedgerBody, TotalsDecision, TotalsKnown, TotalsPayer};
pub use session::{
    Ask, AskAnswer, Body, Bound, Built, Candidate, Checkpoint, Delivered, EffectKind, Failed, HarnessVersion, Intent,
    NativeWrite, Opened, Outcome, OutcomeEnd, Parked, Placed, PlanDigests, Replay, Settled, Source, Submission,
    TurnEndHow, Verdict, Withdrawn,
};

use crate::ids::{Epoch, Seq};

/// One entry of a log, as read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<B = Body> {
    /// Its place; dense from 1.
    pub seq: Seq,
    /// The epoch of the writer that wrote it; 0 in a shared log.
    pub epoch: Epoch,
    /// Milliseconds since 1970 by the writer's clock. For eyes: no decision reads it.
    pub at: u64,
    /// What it says.
    pub body: B,
}
