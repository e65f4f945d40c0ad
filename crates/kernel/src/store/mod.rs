//! Where logs live. This file is the specification: a backend is right when it keeps every MUST below, and the conformance suite
//! (`agentrun-testing`) is how it shows it.
//!
//! ```text
//!  open(key) ──► epoch n+1, new nonce, durable          writer(n) is fenced from here on
//!  append(batch, also) ──► [session records][shared records]   one atomic step: fence, expected seqs, write, sync
//!  read / watch ──► durable records only                      never blocks a writer, never sees an unsynced one
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::ids::{Epoch, LogKey, Nonce, RunId, Seq, SessionKey, SharedLog};
use crate::record::{Body, DecodeError, Frame, InboxBody, LedgerBody, LogBody, Record};

mod backend;
mod committer;
mod core;
mod memory;
mod rules;
mod sqlite;
mod tail;
mod url;
mod watches;
mod writer;

pub use memory::MemoryStore;
pub use sqlite::SqliteStore;
pub use tail::{PAGE, read_all, read_from};
pub use url::{UrlError, open_url};
pub use writer::SessionWriter;

/// Most bytes of one record.
pub const RECORD_BYTES: usize = 16 << 20;
/// Below this much free disk no new intent is written, so that outcomes of what already runs still can be.
pub const FREE_BYTES: u64 = 64 << 20;
/// A buffered batch is handed to the backend within this time.
pub const BUFFER_TIME: Duration = Duration::from_millis(50);

/// A set of session logs and shared logs.
///
/// Implementations MUST be usable from any task at once. Dropping a future of any method cancels nothing that was handed over: what
/// the log holds is the truth, also of an append nobody waited for.
#[async_trait]
pub trait SessionStore: Send + Sync + 'static {
    /// Takes the session: a new epoch (one above the last, 1 for a new session) and a new nonce, durable before this returns.
    ///
    /// Every earlier writer of that key MUST be fenced from then on, and no writer of another key. It MUST NOT wait for the old owner.
    /// With `expected`, the take happens only if the log's last seq is that one, checked in the same atomic step: the decision to
    /// take it was made on what a read showed.
    ///
    /// # Errors
    /// [`OpenError::HeadChanged`]: fold again and decide anew. The others say what to do; nothing was taken.
    async fn open(&self, key: &SessionKey, expected: Option<Seq>) -> Result<SessionWriter, OpenError>;

    /// Up to `limit` durable records of `log`, the first at `from` (or at 1 for `Seq(0)`). An unknown log is an empty one. A page may
    /// hold fewer (large records): whoever wants all goes on until its head, as [`read_all`] does.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] names the log and the place; nothing is skipped over.
    async fn read(&self, log: &LogKey, from: Seq, limit: usize) -> Result<Page, StoreError>;

    /// Sessions in the order of their keys, those after `after`.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read.
    async fn heads(&self, after: Option<&SessionKey>, limit: usize) -> Result<Vec<SessionHead>, StoreError>;

    /// The durable seq and epoch of `log` and their changes, also by other processes (then within 250 ms). Carries no records, so a
    /// slow watcher misses nothing it cannot read.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read.
    async fn watch(&self, log: &LogKey) -> Result<Watch, StoreError>;

    /// Appends to a shared log if its last seq is `expected`; durable before this returns. Answers the new last seq.
    ///
    /// # Errors
    /// [`AppendError::Conflict`]: somebody came first; fold the tail and try again. [`AppendError::Unknown`]: the log decides.
    async fn append_at(&self, log: &SharedLog, expected: Seq, batch: SharedBatch) -> Result<Seq, AppendError>;

    /// A name of this store that its processes' children can be marked with: equal for every handle on the same data, different for
    /// other data.
    fn id(&self) -> &str;
}

/// What a log is at: its last durable seq and its epoch (0 for a shared log).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Last durable seq.
    pub seq: Seq,
    /// Epoch of the newest open.
    pub epoch: Epoch,
}

/// A session as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHead {
    /// Its key.
    pub key: SessionKey,
    /// Its run, once bound.
    pub run: Option<RunId>,
    /// Its head.
    pub head: Head,
    /// How it ended, if it did.
    pub end: Option<End>,
}

/// How a session ended, as a list shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It delivered its value.
    Delivered,
    /// One of the runner's bounds ended it.
    Failed,
    /// The cap refused; a raise lets it go on.
    Parked,
    /// Sealed, lives elsewhere.
    Moved,
    /// Removed; the key stays taken.
    Removed,
}

impl End {
    /// As stored and printed.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::Parked => "parked",
            Self::Moved => "moved",
            Self::Removed => "removed",
        }
    }

    /// Reads [`End::as_str`] back.
    #[must_use]
    pub fn from_stored(text: &str) -> Option<Self> {
        [Self::Delivered, Self::Failed, Self::Parked, Self::Moved, Self::Removed]
            .into_iter()
            .find(|end| end.as_str() == text)
    }
}

/// What a read answered.
#[derive(Clone, Debug)]
pub struct Page {
    /// The log.
    pub log: LogKey,
    /// The records, dense and in order.
    pub frames: Vec<Frame>,
    /// The log's head as of the same instant.
    pub head: Head,
}

impl Page {
    /// The records decoded.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] or [`StoreError::Version`] with the first seq that cannot be read.
    pub fn records<B: LogBody>(&self) -> Result<Vec<Record<B>>, StoreError> {
        self.frames
            .iter()
            .map(|frame| frame.decode(&self.log).map_err(|error| StoreError::undecoded(&self.log, frame.seq, error)))
            .collect()
    }
}

/// Follows a log's head.
#[derive(Clone, Debug)]
pub struct Watch {
    heads: watch::Receiver<Head>,
}

impl Watch {
    /// A watch over a channel the store keeps current.
    #[must_use]
    pub const fn new(heads: watch::Receiver<Head>) -> Self {
        Self { heads }
    }

    /// The head now.
    #[must_use]
    pub fn head(&self) -> Head {
        *self.heads.borrow()
    }

    /// Waits until the head is not what it was at the last call. Cancel safe. `None` when the store is gone.
    pub async fn changed(&mut self) -> Option<Head> {
        self.heads.changed().await.ok()?;
        Some(*self.heads.borrow_and_update())
    }
}

/// When a batch must be durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Before its append resolves.
    #[default]
    Synced,
    /// Handed to the backend within [`BUFFER_TIME`], so it survives this process; durable with the next synced batch of the same log.
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

/// Why a session was not taken. Nothing changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// The log is not where the caller's decision saw it.
    #[error("session moved on while it was being decided: expected seq {expected}, found {found}")]
    HeadChanged {
        /// What the caller saw.
        expected: Seq,
        /// What is there.
        found: Seq,
    },
    /// Sealed for a move.
    #[error("session `{key}` was moved to {to}; resume it there")]
    Moved {
        /// Which.
        key: SessionKey,
        /// Where to.
        to: String,
    },
    /// Removed; its key is not used again.
    #[error("session `{key}` was removed; its key cannot be used again, choose another")]
    Removed {
        /// Which.
        key: SessionKey,
    },
    /// The store itself.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why an append was not answered with a seq.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    /// A newer owner took the session; nothing was written, and nothing ever will be by this writer.
    #[error("a newer owner has taken the session (epoch {newer}); this one writes nothing more")]
    Fenced {
        /// The newer owner's epoch.
        newer: Epoch,
    },
    /// The shared log is not at the expected seq; nothing was written.
    #[error("{log} is at seq {found}, not {expected}: fold its tail and try again")]
    Conflict {
        /// Which log.
        log: SharedLog,
        /// What the caller saw.
        expected: Seq,
        /// What is there.
        found: Seq,
    },
    /// Surely nothing was written.
    #[error("refused, nothing written: {0}")]
    Refused(Refused),
    /// Nobody can say whether it was written: the writer is dead, and the log decides.
    #[error("the append may or may not have been written; read the log to know: {0}")]
    Unknown(StoreError),
}

/// Why an append was refused before anything was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Over [`RECORD_BYTES`].
    #[error("a record of {bytes} bytes is over the bound of {RECORD_BYTES}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Less than [`FREE_BYTES`] of disk.
    #[error("only {free} bytes of disk are free at the store; free at least {FREE_BYTES} and go on")]
    DiskLow {
        /// What is free.
        free: u64,
    },
    /// The session is sealed or removed.
    #[error("the session is {}", .0.as_str())]
    Ended(End),
    /// A batch with nothing in it.
    #[error("an empty batch")]
    Empty,
    /// The store is busy with another writer, or its transaction was refused; trying again can help.
    #[error("the store did not take it: {0}")]
    Busy(String),
    /// The bodies could not be written as records.
    #[error("not writable as a record: {0}")]
    Unwritable(DecodeError),
}

/// What is wrong with a store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Damage: reading stops here, nothing is guessed.
    #[error(
        "{log} is damaged at seq {seq}: {what}; restore the store from a backup, the records before it can still be read"
    )]
    Corrupt {
        /// Which log.
        log: LogKey,
        /// Where.
        seq: Seq,
        /// How it shows.
        what: String,
    },
    /// Written by a newer version.
    #[error("{log} at seq {seq}: {error}")]
    Version {
        /// Which log.
        log: LogKey,
        /// Where.
        seq: Seq,
        /// What is not known.
        error: DecodeError,
    },
    /// The store as a whole has a newer or unknown format.
    #[error(
        "the store has format {found}, this version knows {known}; use the version of agentrun that made it, or a newer one"
    )]
    Format {
        /// What it says.
        found: String,
        /// What is known here.
        known: String,
    },
    /// An earlier write failed in this process in a way that leaves its effect unknown; nothing is retried over it.
    #[error("the store stopped after a failed write ({0}); start the command again, the log decides what was written")]
    Poisoned(String),
    /// It cannot be used where it is.
    #[error("the store at {place} cannot be used: {why}")]
    Unusable {
        /// Where.
        place: String,
        /// Why, and what to do.
        why: String,
    },
    /// Reading or writing failed.
    #[error("the store failed: {0}")]
    Io(String),
}

impl StoreError {
    pub(crate) fn undecoded(log: &LogKey, seq: Seq, error: DecodeError) -> Self {
        match error {
            DecodeError::Damaged | DecodeError::Shape(_) => {
                Self::Corrupt { log: log.clone(), seq, what: error.to_string() }
            }
            DecodeError::Format { .. } | DecodeError::Kind { .. } => Self::Version { log: log.clone(), seq, error },
        }
    }
}

/// The way from a writer to its store: what a store of your own implements beside [`SessionStore`]. Only the store holds one, so only
/// the store makes a [`SessionWriter`] that can write to it.
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

/// A shared log's part, encoded.
#[derive(Debug)]
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

pub(crate) fn encode_all<B: LogBody>(
    log: &LogKey,
    last: Seq,
    epoch: Epoch,
    at: u64,
    bodies: &[B],
) -> Result<Vec<Frame>, AppendError> {
    if bodies.is_empty() {
        return Err(AppendError::Refused(Refused::Empty));
    }
    let mut seq = last;
    bodies
        .iter()
        .map(|body| {
            seq = seq.next();
            let frame = Frame::encode(log, seq, epoch, at, body)
                .map_err(|error| AppendError::Refused(Refused::Unwritable(error)))?;
            if frame.bytes.len() > RECORD_BYTES {
                return Err(AppendError::Refused(Refused::TooLarge { bytes: frame.bytes.len() }));
            }
            Ok(frame)
        })
        .collect()
}

/// Milliseconds since 1970, for a record's `at`.
pub(crate) fn now_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .ok()
        .and_then(|since| u64::try_from(since.as_millis()).ok())
        .unwrap_or_default()
}

impl fmt::Debug for dyn WriterBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WriterBackend")
    }
}

/// A store behind a pointer, as the rest of the workspace passes it.
pub type Store = Arc<dyn SessionStore>;
