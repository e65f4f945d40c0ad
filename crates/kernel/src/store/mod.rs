//! Where logs live. This file is the specification: a backend is right when it keeps every MUST below, and the conformance suite
//! (`agentrun-testing`) is how it shows it.
//!
//! ```text
//!  open(key) ──► epoch n+1, new nonce, durable          writer(n) is fenced from here on
//!  append(batch, also) ──► [session records][shared records]   one atomic step: fence, expected seqs, write, sync
//!  read / watch ──► durable records only                      never blocks a writer, never sees an unsynced one
//! ```

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::ids::{Epoch, LogKey, RunId, Seq, SessionKey, SharedLog};
use crate::record::{Frame, LogBody, Record};

mod backend;
mod batch;
mod committer;
mod core;
mod error;
mod memory;
mod rules;
mod sqlite;
mod tail;
mod url;
mod watches;
mod writer;

pub(crate) use batch::encode_all;
pub use batch::{Batch, Durability, FencedAppend, SharedAppend, SharedBatch, SharedFrames, WriterBackend};
pub use error::{AppendError, OpenError, Refused, StoreError};
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

/// Milliseconds since 1970, for a record's `at`.
pub(crate) fn now_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .ok()
        .and_then(|since| u64::try_from(since.as_millis()).ok())
        .unwrap_or_default()
}

/// A store behind a pointer, as the rest of the workspace passes it.
pub type Store = Arc<dyn SessionStore>;
