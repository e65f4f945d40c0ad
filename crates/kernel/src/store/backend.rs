//! What a backend is to the committer: a transaction it can fill, and a snapshot others can read. The rules (fence, place, seal, disk)
//! are not here but in `rules`, once for every backend; a backend promises only atomicity, order and durability.

use crate::ids::{Epoch, LogKey, Nonce, RunId, Seq, SessionKey};
use crate::record::Frame;

use super::{Durability, End, Head, LogEnd, Page, SessionHead, StoreError};

/// A log as a group sees it: what is committed, and what the group itself has written so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogState {
    /// Last seq, buffered records included.
    pub(super) seq: Seq,
    /// Last seq that was part of a synced group: where readers stop.
    pub(super) durable: Seq,
    /// The fence: epoch and nonce of the newest open. Epoch 0 is a log nobody opened.
    pub(super) epoch: Epoch,
    pub(super) nonce: Nonce,
    /// The session's end as a list shows it.
    pub(super) end: Option<End>,
    /// Where a sealed session went.
    pub(super) moved: Option<String>,
    /// What a removed session's log ended with: set with [`End::Removed`], and kept for good.
    pub(super) removed: Option<LogEnd>,
}

impl LogState {
    pub(super) const EMPTY: Self = Self {
        seq: Seq::START,
        durable: Seq::START,
        epoch: Epoch(0),
        nonce: Nonce([0; 16]),
        end: None,
        moved: None,
        removed: None,
    };

    pub(super) const fn head(&self) -> Head {
        Head { seq: self.durable, epoch: self.epoch }
    }
}

/// One log's part of a step.
pub(super) struct Write<'a> {
    pub(super) log: &'a LogKey,
    /// The log's state once this is written.
    pub(super) after: LogState,
    /// Land right behind the last record.
    pub(super) frames: &'a [Frame],
    /// Set once the session is bound.
    pub(super) run: Option<&'a RunId>,
    /// Every record of the log goes; then `after` is at seq 0 and `frames` is empty. Records that damage hides from the backend may stay
    /// behind as waste, never as records: the log answers none of them again.
    pub(super) erase: bool,
}

impl<'a> Write<'a> {
    /// Records behind the last.
    pub(super) const fn of(log: &'a LogKey, after: LogState, frames: &'a [Frame]) -> Self {
        Self { log, after, frames, run: None, erase: false }
    }

    /// The log's records go.
    pub(super) const fn erase(log: &'a LogKey, after: LogState) -> Self {
        Self { log, after, frames: &[], run: None, erase: true }
    }
}

/// Why a step or a group was not written. Surely nothing of it is on disk.
#[derive(Clone, Debug)]
pub(super) enum WriteError {
    /// This step alone; the group goes on.
    Step(String),
    /// The whole group was rolled back.
    Group(String),
}

/// How a group's commit failed.
#[derive(Clone, Debug)]
pub(super) enum CommitError {
    /// Surely nothing was written.
    Refused(String),
    /// Nobody can say: the store is to be poisoned.
    Unknown(String),
}

/// The write side, used by the committer's thread alone. Calls come as `begin (state | write)* (commit | rollback)`.
pub(super) trait Backend: Send + 'static {
    /// Starts a group, alone among all processes. An error means nothing was begun, and that trying again can help.
    fn begin(&mut self, durability: Durability) -> Result<(), String>;

    /// The log as this group sees it; [`LogState::EMPTY`] for an unknown one.
    fn state(&mut self, log: &LogKey) -> Result<LogState, StoreError>;

    /// Writes one step: all of `writes`, or nothing of them.
    fn write(&mut self, writes: &[Write<'_>]) -> Result<(), WriteError>;

    /// Ends the group. When it returns `Ok` the group is as durable as `begin` asked, and the files written are still those that a new
    /// process would open.
    fn commit(&mut self) -> Result<(), CommitError>;

    /// Forgets the group.
    fn rollback(&mut self);

    /// Bytes free where the store lives, if that can be known.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// Whether another process (or handle) has committed since the last call.
    fn changed_elsewhere(&mut self) -> bool;
}

/// The read side, used from many threads. Sees committed groups only, and of those stops at each log's durable seq.
pub(super) trait Reads: Send + Sync + 'static {
    /// Whether a call can wait for a disk, so must not run on a task's own thread.
    const BLOCKING: bool;

    fn read(&self, log: &LogKey, from: Seq, limit: usize) -> Result<Page, StoreError>;

    fn heads(&self, after: Option<&SessionKey>, limit: usize) -> Result<Vec<SessionHead>, StoreError>;

    fn head(&self, log: &LogKey) -> Result<Head, StoreError>;
}
