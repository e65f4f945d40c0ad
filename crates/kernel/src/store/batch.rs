//! What is handed to a store: a session's batch, a shared log's part, and both as the bytes a backend gets. Everything that can be said
//! no to without looking at the store (empty, too large, not writable) is said here.

use std::fmt;

use super::{AppendError, End, RECORD_BYTES, Refused};
use crate::ids::{Epoch, LogKey, Nonce, RunId, Seq, SessionKey, SharedLog};
use crate::record::{Body, Frame, InboxBody, LedgerBody, LogBody};

/// When a batch must be durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Before its append resolves.
    #[default]
    Synced,
    /// Handed to the backend within [`BUFFER_TIME`](super::BUFFER_TIME), so it survives this process; durable with the next synced batch of the same log.
    /// Only for native history.
    Buffered,
}

/// Session records to be appended together: all of them land, or none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// In order.
    pub bodies: Vec<Body>,
    /// When they must be durable.
    pub durability: Durability,
}

impl Batch {
    /// A synced batch.
    #[must_use]
    pub fn of(bodies: impl IntoIterator<Item = Body>) -> Self {
        Self { bodies: bodies.into_iter().collect(), durability: Durability::Synced }
    }

    /// Adds one more record.
    #[must_use]
    pub fn and(mut self, body: Body) -> Self {
        self.bodies.push(body);
        self
    }
}

/// Records for a shared log.
#[derive(Clone, Debug, PartialEq)]
pub enum SharedBatch {
    /// For a run's ledger.
    Ledger(Vec<LedgerBody>),
    /// For a session's inbox.
    Inbox(Vec<InboxBody>),
}

/// A shared log's part of a session's batch.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedAppend {
    /// Which log.
    pub log: SharedLog,
    /// Its last seq as the caller's decision saw it.
    pub expected: Seq,
    /// What to append.
    pub batch: SharedBatch,
}

/// The way from a writer to its store: what a store of your own implements beside [`SessionStore`](super::SessionStore). Only the store holds one, so only
/// the store makes a [`SessionWriter`](super::SessionWriter) that can write to it.
pub trait WriterBackend: Send + Sync {
    /// Hands one encoded session batch over; the receiver resolves as its durability asks. Dropping the receiver cancels nothing, and a
    /// sender dropped without an answer reads as [`AppendError::Unknown`].
    fn append(&self, append: FencedAppend) -> tokio::sync::oneshot::Receiver<Result<Seq, AppendError>>;
}

/// One session batch as the store gets it. It lands only if, in one atomic step with the write, the newest open of `key` is
/// (`epoch`, `nonce`), the log's last seq is `last`, and `also` is at its expected seq.
#[derive(Debug)]
pub struct FencedAppend {
    /// The session.
    pub key: SessionKey,
    /// The writer's fence, with `nonce`.
    pub epoch: Epoch,
    /// Drawn at the open that made the writer.
    pub nonce: Nonce,
    /// The writer's last seq: the batch lands right behind it or not at all.
    pub last: Seq,
    /// The records, dense from `last` on.
    pub frames: Vec<Frame>,
    /// When they must be durable.
    pub durability: Durability,
    /// Whether the batch begins an effect: then the disk must not be low.
    pub begins: bool,
    /// The run the session is bound to from here on, if the batch says so.
    pub run: Option<RunId>,
    /// What the batch makes of the session's end, if it changes it; `Some(None)` takes a park back.
    pub end: Option<Option<End>>,
    /// Where the session goes, if the batch seals it.
    pub moved: Option<String>,
    /// A shared log's part.
    pub also: Option<SharedFrames>,
}

/// A whole session that arrives from elsewhere, as the store gets it. It lands only if, in one atomic step with the write, neither the
/// session nor its inbox was ever written in this store and `also` is at its expected seq.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The session.
    pub key: SessionKey,
    /// The epoch its log is at once it has landed: above that of each record that another owner wrote.
    pub epoch: Epoch,
    /// The nonce of that epoch; nobody holds a writer of it.
    pub nonce: Nonce,
    /// How the session ended, as a list shows it.
    pub end: Option<End>,
    /// The run it is bound to.
    pub run: Option<RunId>,
    /// Its records, dense from 1.
    pub records: Vec<Frame>,
    /// Its inbox's records, dense from 1.
    pub inbox: Vec<Frame>,
    /// What the run's ledger is told of it.
    pub also: Option<SharedFrames>,
}

/// A shared log's part, encoded.
#[derive(Clone, Debug)]
pub struct SharedFrames {
    /// Which log.
    pub log: SharedLog,
    /// Its last seq as the caller's decision saw it.
    pub expected: Seq,
    /// The records, dense from `expected` on.
    pub frames: Vec<Frame>,
}

impl SharedFrames {
    /// The append as records; `at` is milliseconds since 1970.
    ///
    /// # Errors
    /// [`AppendError::Refused`]: empty, too large, or not writable as records.
    pub fn encode(append: SharedAppend, at: u64) -> Result<Self, AppendError> {
        let SharedAppend { log, expected, batch } = append;
        let name = LogKey::Shared(log.clone());
        let frames = match &batch {
            SharedBatch::Ledger(bodies) => encode_all(&name, expected, Epoch(0), at, bodies)?,
            SharedBatch::Inbox(bodies) => encode_all(&name, expected, Epoch(0), at, bodies)?,
        };
        Ok(Self { log, expected, frames })
    }
}

pub(crate) fn encode_all<'a, B: LogBody + 'a>(
    log: &LogKey,
    last: Seq,
    epoch: Epoch,
    at: u64,
    bodies: impl IntoIterator<Item = &'a B>,
) -> Result<Vec<Frame>, AppendError> {
    let mut seq = last;
    let frames: Vec<_> = bodies
        .into_iter()
        .map(|body| {
            seq = seq.next();
            let frame = Frame::encode(log, seq, epoch, at, body)
                .map_err(|error| AppendError::Refused(Refused::Unwritable(error)))?;
            if frame.bytes.len() > RECORD_BYTES {
                return Err(AppendError::Refused(Refused::TooLarge { bytes: frame.bytes.len() }));
            }
            Ok(frame)
        })
        .collect::<Result<_, _>>()?;
    if frames.is_empty() {
        return Err(AppendError::Refused(Refused::Empty));
    }
    Ok(frames)
}

impl fmt::Debug for dyn WriterBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WriterBackend")
    }
}
