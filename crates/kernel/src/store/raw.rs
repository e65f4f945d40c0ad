//! What the benches hold the stores against: the same committer, rules and frames over nothing but a preallocated file that is written
//! in order and synced once a group. It keeps no state on the disk that could be read back: it is no store.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use async_trait::async_trait;

use super::backend::{Backend, CommitError, LogState, Reads, Write, WriteError};
use super::core::Core;
use super::{
    AppendError, Arrival, Durability, Head, ImportError, OpenError, Page, RemoveError, SessionHead, SessionStore,
    SessionWriter, SharedBatch, StoreError, Tombstone, Watch,
};
use crate::ids::{LogKey, Seq, SessionKey, SharedLog};

/// Appends to a preallocated file and begins at its front again when it is full.
pub struct RawLog {
    core: Core<NoReads>,
}

impl RawLog {
    /// Makes the file and writes all of it, so that no later write has to find room.
    ///
    /// # Errors
    /// As the file system answers.
    pub fn create(path: &Path, bytes: u64) -> io::Result<Self> {
        let mut file = OpenOptions::new().create_new(true).write(true).open(path)?;
        let zeros = vec![0; 1 << 20];
        for _ in 0..bytes.div_ceil(zeros.len() as u64) {
            file.write_all(&zeros)?;
        }
        file.sync_all()?;
        let backend = RawBackend { file, size: bytes, at: 0, buffer: Vec::new(), logs: HashMap::new() };
        Ok(Self { core: Core::start(backend, NoReads).map_err(io::Error::other)? })
    }
}

struct RawBackend {
    file: File,
    size: u64,
    at: u64,
    buffer: Vec<u8>,
    logs: HashMap<LogKey, LogState>,
}

impl Backend for RawBackend {
    fn begin(&mut self, _durability: Durability) -> Result<(), String> {
        self.buffer.clear();
        Ok(())
    }

    fn state(&mut self, log: &LogKey) -> Result<LogState, StoreError> {
        Ok(self.logs.get(log).cloned().unwrap_or(LogState::EMPTY))
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<(), WriteError> {
        for write in writes {
            for frame in write.frames {
                self.buffer.extend_from_slice(&frame.bytes);
            }
            self.logs.insert(write.log.clone(), write.after.clone());
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), CommitError> {
        let bytes = self.buffer.len() as u64;
        if self.at + bytes > self.size {
            self.at = 0;
        }
        let written = self.file.write_all_at(&self.buffer, self.at).and_then(|()| self.file.sync_data());
        self.at += bytes;
        written.map_err(|error| CommitError::Unknown(error.to_string()))
    }

    fn rollback(&mut self) {}

    fn changed_elsewhere(&mut self) -> bool {
        false
    }
}

struct NoReads;

fn unread<T>() -> Result<T, StoreError> {
    Err(StoreError::Io("a raw log is not read back".to_owned()))
}

impl Reads for NoReads {
    const BLOCKING: bool = false;

    fn read(&self, _: &LogKey, _: Seq, _: usize) -> Result<Page, StoreError> {
        unread()
    }

    fn heads(&self, _: Option<&SessionKey>, _: usize) -> Result<Vec<SessionHead>, StoreError> {
        unread()
    }

    fn head(&self, _: &LogKey) -> Result<Head, StoreError> {
        unread()
    }
}

#[async_trait]
impl SessionStore for RawLog {
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

    async fn remove(&self, _: &SessionKey, _: Option<Seq>) -> Result<Tombstone, RemoveError> {
        Ok(unread()?)
    }

    async fn import(&self, _: Arrival) -> Result<Head, ImportError> {
        Ok(unread()?)
    }

    fn id(&self) -> &str {
        "raw"
    }
}
