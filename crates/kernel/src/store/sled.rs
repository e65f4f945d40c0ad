//! A store in a folder, kept by `sled`: faster than SQLite where many sessions write at once, and for one process at a time.
//!
//! `folder` is who owns the folder and what may be in it, `layout` the keys and values, `shield` how sled is called, `write` and `read`
//! the two sides.
//!
//! What sled 0.34.7 does not do by itself is done here: its `flush` syncs no disk cache, so `db` is synced after it; its log ends
//! silently at the first damaged entry, so what was acknowledged is counted beside it; values over 128 KiB a leaf go to files it never
//! syncs, so records are stored in parts; it panics on some damage, so every call is shielded.

mod folder;
mod layout;
mod read;
mod shield;
mod write;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use self::folder::{Found, Place};
use self::read::SledReads;
use self::write::SledBackend;
use super::core::{Core, WeakCore};
use super::{
    AppendError, Arrival, Head, ImportError, OpenError, Page, RemoveError, SessionHead, SessionStore, SessionWriter,
    SharedBatch, StoreError, Tombstone, Watch,
};
use crate::ids::{LogKey, Seq, SessionKey, SharedLog};

/// A store in a folder, owned by one process at a time. Clones are handles of the same store, and so is another `open` of the same
/// folder while this process has it.
///
/// Durable against the end of the process and, on a drive that keeps what it acknowledged, against a power cut. What no caller of sled
/// can close: it may reuse the place of moved data before the move is synced, so a drive with a volatile cache can lose records in a
/// power cut. Choose [`SqliteStore`](super::SqliteStore) where that matters.
#[derive(Clone)]
pub struct SledStore {
    core: Core<SledReads>,
    id: Arc<str>,
}

/// A handle that does not keep the store open.
struct WeakStore {
    core: WeakCore<SledReads>,
    id: Arc<str>,
}

impl WeakStore {
    fn upgrade(&self) -> Option<SledStore> {
        Some(SledStore { core: self.core.upgrade()?, id: Arc::clone(&self.id) })
    }
}

impl SledStore {
    /// Opens the store in the folder `path`, making it (for its owner alone) when it is not there. Waits for disk: call it where
    /// blocking is allowed.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] names the process that owns it, or says what is there instead (a file, other files, another program's
    /// database, a network file system) or what is damaged, and what to do; [`StoreError::Format`] when a newer version made it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let place = Place::prepare(path.as_ref())?;
        match folder::claim(&place)? {
            Found::Open(store) => {
                store.core.sound()?;
                Ok(store)
            }
            Found::Free(claim) => {
                let files = Arc::new(folder::open(place, &claim)?);
                let meta = layout::settle(&files)?;
                let reads = SledReads::new(&files);
                let backend = SledBackend::new(&files, &meta, reads.ahead());
                let store = Self { core: Core::start(backend, reads)?, id: meta.id.into() };
                claim.publish(WeakStore { core: store.core.downgrade(), id: Arc::clone(&store.id) });
                files.keep(claim);
                Ok(store)
            }
        }
    }
}

#[async_trait]
impl SessionStore for SledStore {
    async fn open(&self, key: &SessionKey, expected: Option<Seq>) -> Result<SessionWriter, OpenError> {
        self.core.open(key, expected).await
    }

    async fn read(&self, log: &LogKey, from: Seq, limit: usize) -> Result<Page, StoreError> {
        self.core.read(log, from, limit).await
    }

    async fn heads(&self, after: Option<&SessionKey>, limit: usize) -> Result<Vec<SessionHead>, StoreError> {
        self.core.heads(after, limit).await
    }

    async fn watch(&self, log: &LogKey) -> Result<Watch, StoreError> {
        self.core.watch(log).await
    }

    async fn append_at(&self, log: &SharedLog, expected: Seq, batch: SharedBatch) -> Result<Seq, AppendError> {
        self.core.append_at(log, expected, batch).await
    }

    async fn remove(&self, key: &SessionKey, expected: Option<Seq>) -> Result<Tombstone, RemoveError> {
        self.core.remove(key, expected).await
    }

    async fn import(&self, arrival: Arrival) -> Result<Head, ImportError> {
        self.core.import(arrival).await
    }

    fn id(&self) -> &str {
        &self.id
    }
}
