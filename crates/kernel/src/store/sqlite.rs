//! A store in one SQLite file: the default. Other processes may read it and take sessions over while a run is live, and a person can
//! open it with `sqlite3`. The fence is inside the write transaction, so it holds across processes.
//!
//! `file` is where the database may be and whether it still is, `schema` what it is made of, `head` where a log stands, `write` and `read` the two sides.
//!
//! The database, its `-wal` and its `-shm` MUST be opened by nothing but SQLite in a process that holds a store: closing any other
//! descriptor of theirs drops SQLite's locks (POSIX), and two writers then lose each other's records (seen).

mod file;
mod head;
mod read;
mod schema;
mod write;

use std::path::Path;

use async_trait::async_trait;

use self::read::SqliteReads;
use self::write::SqliteBackend;
use super::core::Core;
use super::{
    AppendError, Arrival, Head, ImportError, OpenError, Page, RemoveError, SessionHead, SessionStore, SessionWriter,
    SharedBatch, StoreError, Tombstone, Watch,
};
use crate::ids::{LogKey, Seq, SessionKey, SharedLog};

/// A store in one SQLite file. Clones are handles of the same store.
#[derive(Clone)]
pub struct SqliteStore {
    core: Core<SqliteReads>,
    id: std::sync::Arc<str>,
}

impl SqliteStore {
    /// Opens the store at `path`, making the file (readable by its owner only) and its folders when they are not there. Other processes
    /// may have it open. Waits for disk, at most 10 s for other processes' locks: call it where blocking is allowed.
    ///
    /// What a process that died left unsynced is synced first, when no other process is using the store: a new owner must not build on
    /// pages whose sync failed.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] says what is at the path instead (a folder, another program's file, a network file system, damage);
    /// [`StoreError::Format`] when a newer version made it. The file is then left as it is.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let place = file::Place::prepare(path.as_ref())?;
        let (conn, id) = schema::open_writer(&place)?;
        let reads = SqliteReads::new(place.clone());
        let backend = SqliteBackend::new(conn, place)?;
        Ok(Self { core: Core::start(backend, reads)?, id: id.into() })
    }
}

#[async_trait]
impl SessionStore for SqliteStore {
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
