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

use crate::ids::{Digest, Epoch, LogKey, Nonce, RunId, Seq, SessionKey, SharedLog};
use crate::record::{Frame, LogBody, Record};

mod backend;
mod batch;
mod committer;
mod core;
mod disk;
mod error;
mod memory;
#[cfg(feature = "bench")]
mod raw;
mod rules;
mod sled;
mod sqlite;
mod tail;
mod transfer;
mod url;
mod watches;
mod whole;
mod writer;

pub(crate) use batch::encode_all;
pub use batch::{Arrival, Batch, Durability, FencedAppend, SharedAppend, SharedBatch, SharedFrames, WriterBackend};
pub use error::{AppendError, ImportError, OpenError, Refused, RemoveError, StoreError};
pub use memory::MemoryStore;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub use raw::RawLog;
pub use sled::SledStore;
pub use sqlite::SqliteStore;
pub use tail::{PAGE, read_all, read_from};
pub use transfer::{
    ExportError, Exported, FileError, FileFault, IMPORTED, Import, LandError, Landed, SealError, Sealed, export, seal,
};
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
/// # What every method keeps
///
/// * **Order.** The records of a log are dense from seq 1 and are answered in that order, on every handle and in every process alike. A
///   record, once it was answered by a read, MUST be answered by every later read as the same bytes, until its session is removed.
/// * **Atomicity.** A step (an open, a batch with its shared part, an append to a shared log, a removal, an import) MUST happen whole or
///   not at all, crashes and power cuts included. What it depends on (fence, seqs, seal) MUST be checked inside the same atomic step: a
///   check before the write is no check.
/// * **Durability.** A method that resolves with `Ok` MUST have made its step durable against a power cut; a buffered batch is the one
///   exception ([`Durability::Buffered`]). A refusal MUST rest on durable facts too: nobody may be told of a fence or a seq that a crash
///   could take back.
/// * **An append has four answers.** `Ok`: it is in the log. [`Fenced`](AppendError::Fenced), [`Conflict`](AppendError::Conflict) and
///   [`Refused`](AppendError::Refused): surely nothing of it is and nothing will be. [`Unknown`](AppendError::Unknown): nobody can say; the
///   writer is dead, and the log decides. A store MUST NOT call an append refused when it may land, and MUST NOT try it again by itself.
/// * **Dropping a future cancels nothing** that was handed over: what the log holds is the truth, also of an append nobody waited for.
/// * **Poison.** After a commit whose effect is unknown, every write of this process MUST fail until the store is opened anew: what its
///   memory knows of the logs may be wrong.
/// * **Damage.** Each record MUST carry a checksum over its log, its place and its bytes. A log that does not read back as it was written is
///   [`StoreError::Corrupt`], with the log and the seq; a store MUST NOT skip over it, guess, or write behind it. A version or kind it does
///   not know is [`StoreError::Version`], which is no damage.
/// * **Bounds come before effects.** A record over [`RECORD_BYTES`] is refused, and below [`FREE_BYTES`] of free disk so is a batch with an
///   intent, while outcomes of what already runs are still taken. A store SHOULD take what its callers bound (outcome texts, submissions) as
///   bounded, and MUST NOT shorten anything itself.
/// * **Ends.** A sealed session (its last record is `moved`) and a removed one MUST refuse every open, append and post to the inbox, for
///   good. Their keys are never used again: nothing in this store may begin a log under them anew.
///
/// Implementations MUST be usable from any task at once. Methods SHOULD NOT block the thread they are polled on.
#[async_trait]
pub trait SessionStore: Send + Sync + 'static {
    /// Takes the session: a new epoch (one above the last, 1 for a new session) and a new nonce, durable before this returns.
    ///
    /// Every earlier writer of that key MUST be fenced from then on, and no writer of another key. It MUST NOT wait for the old owner.
    /// With `expected`, the take happens only if the log's last seq is that one, checked in the same atomic step: the decision to
    /// take it was made on what a read showed. Buffered records of an older owner become durable and readable with the take, or with its
    /// refusal: a decision never rests on less than the next writer builds on.
    ///
    /// The fence is epoch **and** nonce. Two copies of a store (a restored backup, a snapshot of a machine) raise the same epochs, and only
    /// the nonce tells their writers apart.
    ///
    /// # Errors
    /// [`OpenError::HeadChanged`]: fold again and decide anew. [`OpenError::Moved`] and [`OpenError::Removed`] are for good. Nothing was
    /// taken.
    async fn open(&self, key: &SessionKey, expected: Option<Seq>) -> Result<SessionWriter, OpenError>;

    /// Up to `limit` durable records of `log`, the first at `from` (or at 1 for `Seq(0)`), and the log's head as of the same instant. A
    /// `limit` of 0 asks for the head alone. An unknown log is an empty one, and so is a removed session's (at the epoch of its removal).
    /// A page may hold fewer (large records): whoever wants all goes on until its head, as [`read_all`] does.
    ///
    /// It MUST stop at the durable seq, and MUST NOT block a writer or wait for one.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] names the log and the place; nothing is skipped over.
    async fn read(&self, log: &LogKey, from: Seq, limit: usize) -> Result<Page, StoreError>;

    /// Sessions in the order of their keys, those after `after`: sealed and removed ones too, since their keys are taken.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read.
    async fn heads(&self, after: Option<&SessionKey>, limit: usize) -> Result<Vec<SessionHead>, StoreError>;

    /// The durable seq and epoch of `log` and their changes, also by other processes (then within 250 ms). Carries no records, so a
    /// slow watcher misses nothing it cannot read. Seqs and epochs a watch shows only grow: a removal shows as its epoch. It is a hint of a
    /// fence, never the fence.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read.
    async fn watch(&self, log: &LogKey) -> Result<Watch, StoreError>;

    /// Appends to a shared log if its last seq is `expected`; durable before this returns. Answers the new last seq. It asks for no fence:
    /// any process may, also while another one owns the session.
    ///
    /// # Errors
    /// [`AppendError::Conflict`]: somebody came first; fold the tail and try again. [`Refused::Ended`]: the inbox of a session that was
    /// sealed or removed, where a post would reach nobody. [`AppendError::Unknown`]: the log decides.
    async fn append_at(&self, log: &SharedLog, expected: Seq, batch: SharedBatch) -> Result<Seq, AppendError>;

    /// Removes a session for good: its records and its inbox go, and a [`Tombstone`] stays, durable before this returns.
    ///
    /// **Who may:** anybody who can write the store. Like [`open`](Self::open) it raises the epoch, draws a nonce and does not wait for an
    /// owner that lives: that owner's next append MUST be answered [`AppendError::Fenced`], and its watch shows the new epoch. What it had
    /// in flight may still finish outside; nothing of it is recorded. Whoever removes SHOULD decide on a read first, and SHOULD end the
    /// owner's processes after it as a resume does. With `expected`, it happens only if the log's last seq is that one.
    ///
    /// **What stays:** the tombstone, and what other logs say of the session. A run's ledger keeps every hold and booking, so removing a
    /// session MUST NOT free money: what was spent counts, and a hold that was open keeps counting in full against the run's cap until a
    /// raise makes room. A sealed session may be removed; it stays moved for nobody.
    ///
    /// **What is lost:** the receipts of its `never` effects. A later attempt of the same step rests on them, so remove a step's attempts
    /// together. Bytes of removed records MAY stay in free pages of the store's files until those are used again.
    ///
    /// Again for a removed session: the same tombstone, nothing written.
    ///
    /// # Errors
    /// [`RemoveError::Unknown`] for a session this store never knew. [`RemoveError::Unsupported`] from a store that keeps no tombstones,
    /// which is what this default says.
    async fn remove(&self, _key: &SessionKey, _expected: Option<Seq>) -> Result<Tombstone, RemoveError> {
        Err(RemoveError::Unsupported)
    }

    /// Lands a whole session that lived elsewhere, its inbox, and what its run's ledger is told of it: all of it in one atomic step, so
    /// that an import that was cut is either there or can be done again. [`Import`] makes an arrival from an export file and holds the
    /// rules of what may arrive under which key.
    ///
    /// Neither the session nor its inbox may have been known in this store, sealed and removed ones included. The log starts at the
    /// arrival's epoch under a nonce that no writer holds: the first [`open`](Self::open) goes one up.
    ///
    /// # Errors
    /// [`ImportError::Taken`]: another key. [`ImportError::Conflict`]: the ledger moved on; ask again. [`ImportError::Unsupported`] is what
    /// this default says.
    async fn import(&self, _arrival: Arrival) -> Result<Head, ImportError> {
        Err(ImportError::Unsupported)
    }

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

/// Where a log ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// Its last seq.
    pub seq: Seq,
    /// Digest of the last record's bytes as the store kept them; of nothing for an empty log. Two copies of a log that end alike are of
    /// one history: the checksum in a record covers the log's name and its place.
    pub digest: Digest,
}

impl LogEnd {
    /// The end of a log whose last record is `last`.
    #[must_use]
    pub fn of(last: Option<&Frame>) -> Self {
        let (seq, bytes) = last.map_or((Seq::START, &[][..]), |frame| (frame.seq, &frame.bytes));
        Self { seq, digest: Digest::of(bytes) }
    }
}

/// What stays of a removed session, for good: enough that no old writer matches, nobody uses the key again, and a copy that turns up can
/// be told to be of this session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// The key that stays taken.
    pub key: SessionKey,
    /// The epoch that the removal raised.
    pub epoch: Epoch,
    /// Drawn at the removal.
    pub nonce: Nonce,
    /// Where the log ended.
    pub end: LogEnd,
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
