//! A store in memory, behind the same committer and rules as the ones on disk: for tests, and for runs that nothing need survive. The
//! data outlives a handle, and [`MemoryStore::again`] makes a second one over it, as another process would on a file.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::backend::{Backend, CommitError, LogState, Reads, Write, WriteError};
use super::core::Core;
use super::{
    AppendError, Arrival, Durability, Head, ImportError, OpenError, Page, RemoveError, SessionHead, SessionStore,
    SessionWriter, SharedBatch, StoreError, Tombstone, Watch,
};
use crate::ids::{LogKey, RunId, Seq, SessionKey, SharedLog};
use crate::record::Frame;

/// A store in memory. Clones are handles of the same store.
#[derive(Clone)]
pub struct MemoryStore {
    core: Core<MemoryReads>,
    data: Arc<Data>,
}

impl MemoryStore {
    /// An empty store.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] when no thread can be started.
    pub fn new() -> Result<Self, StoreError> {
        let id = format!("memory-{}", uuid::Uuid::new_v4());
        Self::over(Arc::new(Data { id, logs: Mutex::default(), group: Mutex::default(), ended: Condvar::new() }))
    }

    /// Another handle on the same data with its own committer: what a second process is to a file.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] when no thread can be started.
    pub fn again(&self) -> Result<Self, StoreError> {
        Self::over(Arc::clone(&self.data))
    }

    fn over(data: Arc<Data>) -> Result<Self, StoreError> {
        let (backend, reads) = Self::sides(&data);
        Ok(Self { core: Core::start(backend, reads)?, data })
    }

    fn sides(data: &Arc<Data>) -> (MemoryBackend, MemoryReads) {
        let seen = data.logs().version;
        (MemoryBackend { data: Arc::clone(data), group: None, seen }, MemoryReads(Arc::clone(data)))
    }

    /// The two sides of a further handle, for a test that puts faults between them and a committer.
    #[cfg(test)]
    pub(super) fn parts(&self) -> (MemoryBackend, MemoryReads) {
        Self::sides(&self.data)
    }
}

#[async_trait]
impl SessionStore for MemoryStore {
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
        &self.data.id
    }
}

struct Data {
    id: String,
    logs: Mutex<Logs>,
    /// Whether a group is open: one at a time over all handles, as a database's write lock.
    group: Mutex<bool>,
    ended: Condvar,
}

#[derive(Default)]
struct Logs {
    by_key: BTreeMap<LogKey, Log>,
    /// Raised by each group.
    version: u64,
}

#[derive(Clone)]
struct Log {
    state: LogState,
    frames: Vec<Frame>,
    run: Option<RunId>,
    /// Of a group's part: what was there before goes.
    erased: bool,
}

impl Log {
    const EMPTY: Self = Self { state: LogState::EMPTY, frames: Vec::new(), run: None, erased: false };
}

impl Data {
    fn logs(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct MemoryBackend {
    data: Arc<Data>,
    /// What the open group has written: each log's new state and the frames to add.
    group: Option<HashMap<LogKey, Log>>,
    seen: u64,
}

impl MemoryBackend {
    fn end_group(&mut self) {
        if self.group.take().is_some() {
            *self.data.group.lock().unwrap_or_else(PoisonError::into_inner) = false;
            self.data.ended.notify_one();
        }
    }
}

impl Backend for MemoryBackend {
    fn begin(&mut self, _durability: Durability) -> Result<(), String> {
        let mut taken = self.data.group.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken {
            taken = self.data.ended.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken = true;
        drop(taken);
        self.group = Some(HashMap::new());
        Ok(())
    }

    fn state(&mut self, log: &LogKey) -> Result<LogState, StoreError> {
        if let Some(staged) = self.group.as_ref().and_then(|group| group.get(log)) {
            return Ok(staged.state.clone());
        }
        Ok(self.data.logs().by_key.get(log).map_or(LogState::EMPTY, |log| log.state.clone()))
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<(), WriteError> {
        let group = self.group.as_mut().ok_or_else(|| WriteError::Group("no group was begun".to_owned()))?;
        for write in writes {
            let staged = group.entry(write.log.clone()).or_insert(Log::EMPTY);
            staged.state = write.after.clone();
            if write.erase {
                staged.frames.clear();
                staged.erased = true;
            }
            staged.frames.extend_from_slice(write.frames);
            staged.run = write.run.or(staged.run.as_ref()).cloned();
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), CommitError> {
        if let Some(group) = self.group.as_mut().filter(|group| !group.is_empty()) {
            let mut logs = self.data.logs();
            for (key, staged) in group.drain() {
                let log = logs.by_key.entry(key).or_insert(Log::EMPTY);
                log.state = staged.state;
                if staged.erased {
                    log.frames.clear();
                }
                log.frames.extend(staged.frames);
                log.run = staged.run.or(log.run.take());
            }
            let own = logs.version == self.seen;
            logs.version += 1;
            if own {
                self.seen = logs.version;
            }
        }
        self.end_group();
        Ok(())
    }

    fn rollback(&mut self) {
        self.end_group();
    }

    fn changed_elsewhere(&mut self) -> bool {
        let version = self.data.logs().version;
        std::mem::replace(&mut self.seen, version) != version
    }
}

impl Drop for MemoryBackend {
    fn drop(&mut self) {
        self.end_group();
    }
}

pub(super) struct MemoryReads(Arc<Data>);

impl Reads for MemoryReads {
    const BLOCKING: bool = false;

    fn read(&self, log: &LogKey, from: Seq, limit: usize) -> Result<Page, StoreError> {
        let logs = self.0.logs();
        let Some(found) = logs.by_key.get(log) else {
            return Ok(Page { log: log.clone(), frames: Vec::new(), head: Head::default() });
        };
        let head = found.state.head();
        let frames = found
            .frames
            .iter()
            .skip(usize::try_from(from.0.saturating_sub(1)).unwrap_or(usize::MAX))
            .take_while(|frame| frame.seq <= head.seq)
            .take(limit)
            .cloned()
            .collect();
        Ok(Page { log: log.clone(), frames, head })
    }

    fn heads(&self, after: Option<&SessionKey>, limit: usize) -> Result<Vec<SessionHead>, StoreError> {
        let logs = self.0.logs();
        let first = after.map_or(Bound::Unbounded, |key| Bound::Excluded(LogKey::from(key)));
        Ok(logs
            .by_key
            .range((first, Bound::Unbounded))
            .filter_map(|(key, log)| match key {
                LogKey::Session(key) => Some(SessionHead {
                    key: key.clone(),
                    run: log.run.clone(),
                    head: log.state.head(),
                    end: log.state.end,
                }),
                LogKey::Shared(_) => None,
            })
            .take(limit)
            .collect())
    }

    fn head(&self, log: &LogKey) -> Result<Head, StoreError> {
        Ok(self.0.logs().by_key.get(log).map_or_else(Head::default, |log| log.state.head()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Body;
    use crate::store::Batch;

    #[tokio::test]
    async fn f21_a_removed_session_takes_no_memory() {
        let store = MemoryStore::new().unwrap();
        let key = SessionKey::new("a").unwrap();
        let mut writer = store.open(&key, None).await.unwrap();
        writer.append(Batch::of([Body::Moved { to: "there".to_owned() }]), None).await.unwrap();
        store.remove(&key, None).await.unwrap();
        assert!(store.data.logs().by_key.values().all(|log| log.frames.is_empty()));
    }
}
