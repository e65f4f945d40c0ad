//! The group committer, once for every backend. One thread owns a store's write side; whatever queued up during the last sync is the
//! next group, committed in one transaction with one sync, and only then answered.
//!
//! ```text
//!  writers ──┐                        ┌─ step ─┐
//!  opens ────┼──► queue ──► begin ──► │  step  │ ──► commit + sync ──► publish heads ──► answer each
//!  shared ───┘                        └─ step ─┘          │
//!                                                         └─ failed at commit: poisoned, all answered `Unknown`
//! ```
//!
//! There is no timer before a synced group: at one caller it would only add its wait, at many the last sync is the wait. But those whom
//! the last group answered are about to ask again, and the first of them would begin a group of one while the others queue up behind it
//! (half of all groups, measured): so as many as were answered are waited for, never longer than half of what their commit took.
//!
//! Refusals are answered with the group too, so that nobody hears of a fence or a place that a crash could still take back.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::backend::{Backend, CommitError, LogState, Reads};
use super::rules::{self, GroupFailed, Touched};
use super::watches::Watches;
use super::whole::{self, Removal};
use super::{
    AppendError, Arrival, BUFFER_TIME, Durability, FencedAppend, Head, ImportError, OpenError, RECORD_BYTES, Refused,
    RemoveError, SharedFrames, StoreError, Tombstone, WriterBackend,
};
use crate::ids::{Nonce, Seq, SessionKey};

/// Most steps of a group: above it a group's own time, not the sync, is what its callers wait for.
const GROUP_STEPS: usize = 512;
/// A group takes no further step once its records hold this many bytes.
const GROUP_BYTES: usize = RECORD_BYTES;
/// How often other processes' commits are looked for while somebody watches; the promise is 250 ms.
const POLL: Duration = Duration::from_millis(200);
/// A buffered batch waits this long for a synced one to go with; the rest of `BUFFER_TIME` is for the write.
const LINGER: Duration = Duration::from_millis(BUFFER_TIME.as_millis() as u64 / 2);

/// Longest time that those who were answered last are waited for.
const GATHER: Duration = Duration::from_micros(500);

/// How long the shortest sleep takes: the system wakes a thread some 50 us later than it asked for. Who has less time does not sleep.
const NAP: Duration = Duration::from_micros(50);

/// What the store's handles and its committer both see.
#[derive(Default)]
pub(super) struct Common {
    pub(super) watches: Watches,
    poison: OnceLock<String>,
}

impl Common {
    /// Says no once an earlier write's effect is unknown.
    pub(super) fn sound(&self) -> Result<(), StoreError> {
        self.poison.get().map_or(Ok(()), |why| Err(StoreError::Poisoned(why.clone())))
    }
}

/// The way to a committer. Its thread ends when the last one is gone.
pub(super) struct Queue {
    ops: Sender<Op>,
}

pub(super) struct Take {
    key: SessionKey,
    expected: Option<Seq>,
    nonce: Nonce,
    answer: oneshot::Sender<Result<LogState, OpenError>>,
}

pub(super) struct Append {
    batch: FencedAppend,
    /// `None` for a buffered batch: it was answered when it was queued.
    answer: Option<oneshot::Sender<Result<Seq, AppendError>>>,
}

pub(super) struct Share {
    batch: SharedFrames,
    answer: oneshot::Sender<Result<Seq, AppendError>>,
}

pub(super) struct Remove {
    removal: Removal,
    answer: oneshot::Sender<Result<Tombstone, RemoveError>>,
}

pub(super) struct Import {
    arrival: Arrival,
    answer: oneshot::Sender<Result<Head, ImportError>>,
}

enum Op {
    Take(Take),
    Append(Append),
    Share(Share),
    Remove(Remove),
    Import(Box<Import>),
    /// Somebody began to watch.
    Follow,
}

/// A step with its answer, which waits for the group.
enum Judged {
    Take(Take, Result<LogState, OpenError>),
    Append(Append, Result<Seq, AppendError>),
    Share(Share, Result<Seq, AppendError>),
    Remove(Remove, Result<Tombstone, RemoveError>),
    Import(Box<Import>, Result<Head, ImportError>),
}

/// Why a whole group was not answered as judged.
#[derive(Clone)]
enum Failed {
    /// Surely nothing written.
    Refused(String),
    Unknown(StoreError),
}

impl Queue {
    /// Takes a session; resolves once the new fence is durable.
    pub(super) fn take(
        &self,
        key: SessionKey,
        expected: Option<Seq>,
        nonce: Nonce,
    ) -> oneshot::Receiver<Result<LogState, OpenError>> {
        let (answer, answered) = oneshot::channel();
        // A send that fails drops the answer, which the receiver reports.
        let _ = self.ops.send(Op::Take(Take { key, expected, nonce, answer }));
        answered
    }

    pub(super) fn append_at(&self, batch: SharedFrames) -> oneshot::Receiver<Result<Seq, AppendError>> {
        let (answer, answered) = oneshot::channel();
        let _ = self.ops.send(Op::Share(Share { batch, answer }));
        answered
    }

    /// Removes a session; resolves once its tombstone is durable.
    pub(super) fn remove(&self, removal: Removal) -> oneshot::Receiver<Result<Tombstone, RemoveError>> {
        let (answer, answered) = oneshot::channel();
        let _ = self.ops.send(Op::Remove(Remove { removal, answer }));
        answered
    }

    /// Lands a whole session; resolves once it is durable.
    pub(super) fn import(&self, arrival: Arrival) -> oneshot::Receiver<Result<Head, ImportError>> {
        let (answer, answered) = oneshot::channel();
        let _ = self.ops.send(Op::Import(Box::new(Import { arrival, answer })));
        answered
    }

    pub(super) fn follow(&self) {
        let _ = self.ops.send(Op::Follow);
    }
}

impl WriterBackend for Queue {
    fn append(&self, mut batch: FencedAppend) -> oneshot::Receiver<Result<Seq, AppendError>> {
        let (answer, answered) = oneshot::channel();
        let plain = batch.also.is_none() && !batch.begins && batch.end.is_none() && batch.run.is_none();
        if batch.durability == Durability::Buffered && plain {
            let seq = batch.last.plus(batch.frames.len() as u64);
            if self.ops.send(Op::Append(Append { batch, answer: None })).is_ok() {
                let _ = answer.send(Ok(seq));
            }
        } else {
            // Buffering is for native history: a batch that others decide on is synced whatever it asks.
            batch.durability = Durability::Synced;
            let _ = self.ops.send(Op::Append(Append { batch, answer: Some(answer) }));
        }
        answered
    }
}

/// Starts the committer of `backend` on its own thread.
pub(super) fn start<B: Backend, R: Reads>(
    backend: B,
    reads: Arc<R>,
    common: Arc<Common>,
) -> Result<Arc<Queue>, StoreError> {
    let (ops, queued) = channel();
    let last = Last { answered: 0, took: Duration::ZERO };
    let committer = Committer { backend, reads, common, queued, failed: HashMap::new(), last };
    std::thread::Builder::new().name("agentrun-store".to_owned()).spawn(move || committer.run()).map_err(|error| {
        StoreError::Unusable { place: "this process".to_owned(), why: format!("no thread for its writes: {error}") }
    })?;
    Ok(Arc::new(Queue { ops }))
}

struct Committer<B, R> {
    backend: B,
    reads: Arc<R>,
    common: Arc<Common>,
    queued: Receiver<Op>,
    /// Writers whose buffered batch was not written, by the nonce of their open, with the reason for their next synced batch.
    failed: HashMap<Nonce, String>,
    last: Last,
}

/// The last group.
struct Last {
    /// How many waited for its answers.
    answered: usize,
    took: Duration,
}

impl<B: Backend, R: Reads> Committer<B, R> {
    fn run(mut self) {
        // Drops with the thread, also by a panic: then nobody may wait for heads that never come.
        let _closing = Closing(Arc::clone(&self.common));
        let mut waiting = Vec::new();
        let mut due: Option<Instant> = None;
        loop {
            let open = self.collect(&mut waiting, due);
            if waiting.is_empty() {
                due = None;
            } else {
                let deadline = *due.get_or_insert_with(|| Instant::now() + LINGER);
                let lingers = waiting.len() < GROUP_STEPS && waiting.iter().all(Op::is_buffered);
                if open && lingers && Instant::now() < deadline {
                    continue;
                }
                due = None;
                gather(&self.queued, &mut waiting, self.last.answered, Instant::now() + GATHER.min(self.last.took / 2));
                let (answered, began) = (waiting.iter().filter(|op| !op.is_buffered()).count(), Instant::now());
                waiting = self.group(std::mem::take(&mut waiting));
                self.last = Last { answered, took: began.elapsed() };
            }
            self.look_elsewhere();
            if !open {
                return;
            }
        }
    }

    /// Adds to `waiting` what is queued; waits for the first, but not past `due`. Answers whether anybody can still send.
    fn collect(&self, waiting: &mut Vec<Op>, due: Option<Instant>) -> bool {
        let until = due.map(|due| due.saturating_duration_since(Instant::now()));
        let wait = match (until, self.common.watches.any()) {
            (Some(until), true) => Some(until.min(POLL)),
            (Some(until), false) => Some(until),
            (None, true) => Some(POLL),
            (None, false) => None,
        };
        let first = match wait {
            Some(wait) => self.queued.recv_timeout(wait),
            None => self.queued.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let mut next = match first {
            Ok(op) => Ok(op),
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
        };
        let mut bytes: usize = waiting.iter().map(Op::bytes).sum();
        loop {
            match next {
                Ok(Op::Follow) => {}
                Ok(op) => {
                    bytes = bytes.saturating_add(op.bytes());
                    waiting.push(op);
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
            if waiting.len() >= GROUP_STEPS || bytes >= GROUP_BYTES {
                return true;
            }
            next = self.queued.try_recv();
        }
    }

    /// Commits `ops` as one group and answers them. Hands back what is to be tried again: buffered batches of a busy store.
    fn group(&mut self, ops: Vec<Op>) -> Vec<Op> {
        if let Err(poisoned) = self.common.sound() {
            self.fail_all(ops, &Failed::Unknown(poisoned));
            return Vec::new();
        }
        let durability = if ops.iter().all(Op::is_buffered) { Durability::Buffered } else { Durability::Synced };
        if let Err(busy) = self.backend.begin(durability) {
            let (again, refused) = ops.into_iter().partition(Op::is_buffered);
            self.fail_all(refused, &Failed::Refused(busy));
            return again;
        }
        let mut touched = Touched::new();
        let mut judged = Vec::with_capacity(ops.len());
        let mut ops = ops.into_iter();
        while let Some(op) = ops.next() {
            match self.judge(&mut touched, durability, op) {
                Ok(Some(step)) => judged.push(step),
                Ok(None) => {}
                Err(failed) => {
                    let (op, GroupFailed(why)) = *failed;
                    self.backend.rollback();
                    let all = judged.into_iter().map(Judged::into_op).chain([op]).chain(ops).collect();
                    self.fail_all(all, &Failed::Refused(why));
                    return Vec::new();
                }
            }
        }
        crate::crossing!(Commit);
        if crate::planted!(AnswerIntentEarly) && judged.iter().all(Judged::is_intent) {
            judged.drain(..).for_each(|step| self.answer(step));
            std::thread::sleep(LINGER);
        }
        match self.backend.commit() {
            Ok(()) => {
                for (log, state) in &touched {
                    self.common.watches.publish(log, state.head());
                }
                judged.into_iter().for_each(|step| self.answer(step));
            }
            Err(CommitError::Refused(why)) => {
                let all = judged.into_iter().map(Judged::into_op).collect();
                self.fail_all(all, &Failed::Refused(why));
            }
            Err(CommitError::Unknown(why)) => {
                let poisoned = StoreError::Poisoned(self.common.poison.get_or_init(|| why).clone());
                self.common.watches.close();
                let all = judged.into_iter().map(Judged::into_op).collect();
                self.fail_all(all, &Failed::Unknown(poisoned));
            }
        }
        Vec::new()
    }

    fn judge(
        &mut self,
        touched: &mut Touched,
        group: Durability,
        op: Op,
    ) -> Result<Option<Judged>, Box<(Op, GroupFailed)>> {
        match op {
            Op::Follow => Ok(None),
            Op::Take(take) => match rules::take(&mut self.backend, touched, &take.key, take.expected, take.nonce) {
                Ok(step) => Ok(Some(Judged::Take(take, step))),
                Err(failed) => Err(Box::new((Op::Take(take), failed))),
            },
            Op::Append(append) => match rules::append(&mut self.backend, touched, group, &append.batch) {
                Ok(step) => Ok(Some(Judged::Append(append, step))),
                Err(failed) => Err(Box::new((Op::Append(append), failed))),
            },
            Op::Share(share) => match rules::append_at(&mut self.backend, touched, &share.batch) {
                Ok(step) => Ok(Some(Judged::Share(share, step))),
                Err(failed) => Err(Box::new((Op::Share(share), failed))),
            },
            Op::Remove(remove) => match whole::remove(&mut self.backend, touched, &remove.removal) {
                Ok(step) => Ok(Some(Judged::Remove(remove, step))),
                Err(failed) => Err(Box::new((Op::Remove(remove), failed))),
            },
            Op::Import(import) => match whole::import(&mut self.backend, touched, &import.arrival) {
                Ok(step) => Ok(Some(Judged::Import(import, step))),
                Err(failed) => Err(Box::new((Op::Import(import), failed))),
            },
        }
    }

    /// Whoever no longer waits is not told: the log holds the truth.
    fn answer(&mut self, step: Judged) {
        match step {
            Judged::Take(take, result) => drop(take.answer.send(result)),
            Judged::Share(share, result) => drop(share.answer.send(result)),
            Judged::Remove(remove, result) => drop(remove.answer.send(result)),
            Judged::Import(import, result) => drop(import.answer.send(result)),
            Judged::Append(Append { batch, answer: Some(answer) }, result) => {
                let result = match (result, self.failed.remove(&batch.nonce)) {
                    (Err(AppendError::Unknown(_)), Some(why)) => {
                        let why = format!("a buffered batch before it was not written: {why}");
                        Err(AppendError::Unknown(StoreError::Io(why)))
                    }
                    (result, _) => result,
                };
                drop(answer.send(result));
            }
            Judged::Append(Append { batch, answer: None }, result) => match result {
                // A fenced writer hears so by itself.
                Ok(_) | Err(AppendError::Fenced { .. }) => {}
                Err(error) => self.remember(batch.nonce, error.to_string()),
            },
        }
    }

    fn fail_all(&mut self, ops: Vec<Op>, failed: &Failed) {
        for op in ops {
            match op {
                Op::Follow => {}
                Op::Take(take) => drop(take.answer.send(Err(OpenError::Store(failed.store())))),
                Op::Share(share) => drop(share.answer.send(Err(failed.append()))),
                Op::Remove(remove) => drop(remove.answer.send(Err(failed.store().into()))),
                Op::Import(import) => drop(import.answer.send(Err(failed.store().into()))),
                Op::Append(Append { answer: Some(answer), .. }) => drop(answer.send(Err(failed.append()))),
                Op::Append(Append { batch, answer: None }) => {
                    self.remember(batch.nonce, failed.append().to_string());
                }
            }
        }
    }

    fn remember(&mut self, writer: Nonce, why: String) {
        self.failed.entry(writer).or_insert(why);
    }

    /// Tells watchers of other processes' commits. A store that cannot be read is left to those who read it.
    fn look_elsewhere(&mut self) {
        if self.common.sound().is_err() || !self.common.watches.any() || !self.backend.changed_elsewhere() {
            return;
        }
        for log in self.common.watches.followed() {
            if let Ok(head) = self.reads.head(&log) {
                self.common.watches.publish(&log, head);
            }
        }
    }
}

/// Adds to `waiting`, until it is as long as `wanted` or `until` has come: those who were answered last ask again at once.
fn gather(queued: &Receiver<Op>, waiting: &mut Vec<Op>, wanted: usize, until: Instant) {
    let mut bytes: usize = waiting.iter().map(Op::bytes).sum();
    while waiting.len() < wanted && bytes < GROUP_BYTES {
        match queued.try_recv() {
            Ok(Op::Follow) => {}
            Ok(op) => {
                bytes = bytes.saturating_add(op.bytes());
                waiting.push(op);
            }
            // Not in the queue, where each of them would wake it and pay for that; and not by yielding, which on a busy machine is a wait
            // for everybody else's turn.
            Err(TryRecvError::Empty) if Instant::now() + NAP <= until => std::thread::sleep(NAP / 50),
            Err(_) => return,
        }
    }
}

struct Closing(Arc<Common>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.watches.close();
    }
}

impl Op {
    const fn is_buffered(&self) -> bool {
        matches!(self, Self::Append(Append { answer: None, .. }))
    }

    fn bytes(&self) -> usize {
        let frames = match self {
            Self::Take(_) | Self::Remove(_) | Self::Follow => return 0,
            Self::Import(import) => &import.arrival.records,
            Self::Append(append) => &append.batch.frames,
            Self::Share(share) => &share.batch.frames,
        };
        frames.iter().map(|frame| frame.bytes.len()).sum()
    }
}

impl Judged {
    /// An effect's intent that no shared log has part in.
    fn is_intent(&self) -> bool {
        matches!(self, Self::Append(Append { batch, .. }, _) if batch.begins && batch.also.is_none())
    }

    fn into_op(self) -> Op {
        match self {
            Self::Take(take, _) => Op::Take(take),
            Self::Append(append, _) => Op::Append(append),
            Self::Share(share, _) => Op::Share(share),
            Self::Remove(remove, _) => Op::Remove(remove),
            Self::Import(import, _) => Op::Import(import),
        }
    }
}

impl Failed {
    fn append(&self) -> AppendError {
        match self {
            Self::Refused(why) => AppendError::Refused(Refused::Busy(why.clone())),
            Self::Unknown(error) => AppendError::Unknown(error.clone()),
        }
    }

    fn store(&self) -> StoreError {
        match self {
            Self::Refused(why) => StoreError::Io(why.clone()),
            Self::Unknown(error) => error.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
