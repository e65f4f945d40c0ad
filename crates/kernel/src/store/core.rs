//! What every store of ours is made of: a committer for its writes, a reader beside it, and the watches both keep current. The public
//! stores are this over their own backend.

use std::sync::{Arc, Weak};

use tokio::sync::Semaphore;

use super::backend::{Backend, Reads};
use super::committer::{self, Common, Queue};
use super::whole::Removal;
use super::{
    AppendError, Arrival, Head, ImportError, LogEnd, OpenError, Page, RemoveError, SessionHead, SessionWriter,
    SharedAppend, SharedBatch, SharedFrames, StoreError, Tombstone, Watch, now_ms,
};
use crate::ids::{LogKey, Nonce, Seq, SessionKey, SharedLog};

/// Removals tried at a log that its owner keeps writing to before that owner is fenced first.
const REMOVALS: u32 = 4;

/// Reads at once off the task, of a backend whose reads block, and connections it keeps open for them: none is opened for one read and closed
/// again, and a thousand sessions that begin at once do not start a thread each.
pub(super) const READERS: usize = 4;

pub(super) struct Core<R> {
    queue: Arc<Queue>,
    reads: Arc<R>,
    common: Arc<Common>,
    readers: Arc<Semaphore>,
}

/// A core that does not keep its store open.
pub(super) struct WeakCore<R> {
    queue: Weak<Queue>,
    reads: Weak<R>,
    common: Weak<Common>,
    readers: Arc<Semaphore>,
}

impl<R> WeakCore<R> {
    /// `None` once nobody holds the store or a writer of it; its committer may still be closing it.
    pub(super) fn upgrade(&self) -> Option<Core<R>> {
        let (queue, reads, common) = (self.queue.upgrade()?, self.reads.upgrade()?, self.common.upgrade()?);
        Some(Core { queue, reads, common, readers: Arc::clone(&self.readers) })
    }
}

impl<R> Clone for Core<R> {
    fn clone(&self) -> Self {
        Self {
            queue: Arc::clone(&self.queue),
            reads: Arc::clone(&self.reads),
            common: Arc::clone(&self.common),
            readers: Arc::clone(&self.readers),
        }
    }
}

impl<R: Reads> Core<R> {
    pub(super) fn start(backend: impl Backend, reads: R) -> Result<Self, StoreError> {
        let (reads, common) = (Arc::new(reads), Arc::new(Common::default()));
        let queue = committer::start(backend, Arc::clone(&reads), Arc::clone(&common))?;
        Ok(Self { queue, reads, common, readers: Arc::new(Semaphore::new(READERS)) })
    }

    pub(super) fn downgrade(&self) -> WeakCore<R> {
        WeakCore {
            queue: Arc::downgrade(&self.queue),
            reads: Arc::downgrade(&self.reads),
            common: Arc::downgrade(&self.common),
            readers: Arc::clone(&self.readers),
        }
    }

    /// Says no once an earlier write's effect is unknown.
    pub(super) fn sound(&self) -> Result<(), StoreError> {
        self.common.sound()
    }

    pub(super) async fn open(&self, key: &SessionKey, expected: Option<Seq>) -> Result<SessionWriter, OpenError> {
        let nonce = Nonce::draw();
        let taken = self.queue.take(key.clone(), expected, nonce).await.map_err(|_gone| gone())??;
        let writer = Arc::clone(&self.queue);
        Ok(SessionWriter::new(key.clone(), taken.epoch, nonce, taken.seq, writer))
    }

    pub(super) async fn append_at(
        &self,
        log: &SharedLog,
        expected: Seq,
        batch: SharedBatch,
    ) -> Result<Seq, AppendError> {
        let append = SharedFrames::encode(SharedAppend { log: log.clone(), expected, batch }, now_ms())?;
        self.queue.append_at(append).await.map_err(|_gone| AppendError::Unknown(gone()))?
    }

    pub(super) async fn remove(&self, key: &SessionKey, expected: Option<Seq>) -> Result<Tombstone, RemoveError> {
        let log = LogKey::from(key);
        let mut tries = 0;
        loop {
            let end = self.end(&log).await?;
            let removal = Removal { key: key.clone(), expected, end, nonce: Nonce::draw() };
            match self.queue.remove(removal).await.map_err(|_gone| gone())? {
                // What was looked at is not what is there: an owner wrote, or a dead one's unsynced records became readable.
                Err(RemoveError::HeadChanged { found, .. }) if expected.is_none_or(|expected| expected == found) => {
                    tries += 1;
                }
                answer => return answer,
            }
            if tries >= REMOVALS && expected.is_none() {
                match self.open(key, None).await {
                    Ok(_)
                    | Err(OpenError::Moved { .. } | OpenError::Removed { .. } | OpenError::HeadChanged { .. }) => {}
                    Err(OpenError::Store(error)) => return Err(error.into()),
                }
            }
        }
    }

    /// Where a log ends, by its durable records.
    async fn end(&self, log: &LogKey) -> Result<LogEnd, StoreError> {
        loop {
            let seq = self.read(log, Seq(1), 0).await?.head.seq;
            let page = self.read(log, seq, 1).await?;
            if page.head.seq == seq {
                return Ok(LogEnd::of(page.frames.last().filter(|frame| frame.seq == seq)));
            }
        }
    }

    pub(super) async fn import(&self, arrival: Arrival) -> Result<Head, ImportError> {
        self.queue.import(arrival).await.map_err(|_gone| gone())?
    }

    pub(super) async fn read(&self, log: &LogKey, from: Seq, limit: usize) -> Result<Page, StoreError> {
        let log = log.clone();
        self.off_task(move |reads| reads.read(&log, from, limit)).await
    }

    pub(super) async fn heads(&self, after: Option<&SessionKey>, limit: usize) -> Result<Vec<SessionHead>, StoreError> {
        let after = after.cloned();
        self.off_task(move |reads| reads.heads(after.as_ref(), limit)).await
    }

    pub(super) async fn watch(&self, log: &LogKey) -> Result<Watch, StoreError> {
        let heads = self.common.watches.follow(log);
        self.queue.follow();
        let name = log.clone();
        let head = self.off_task(move |reads| reads.head(&name)).await?;
        Ok(self.common.watches.start(log, heads, head))
    }

    async fn off_task<T: Send + 'static>(
        &self,
        read: impl FnOnce(&R) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.common.sound()?;
        if !R::BLOCKING {
            return read(&self.reads);
        }
        // Never closed; without a place the read is one too many, and that is all.
        let place = Arc::clone(&self.readers).acquire_owned().await.ok();
        let reads = Arc::clone(&self.reads);
        let reading = move || {
            let answer = read(&reads);
            drop(place);
            answer
        };
        tokio::task::spawn_blocking(reading)
            .await
            .map_err(|error| StoreError::Io(format!("reading stopped: {error}")))?
    }
}

/// The committer's thread ended, which it does only when it broke.
fn gone() -> StoreError {
    StoreError::Io("the store's committer stopped".to_owned())
}
