//! A store written outside the kernel, as small as the specification lets it be: one lock, a disk that is a map, a cache over it. It keeps
//! every promise; each [`Flaw`] is the same store with one promise broken, and the suite must say which.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use agentrun_kernel::{
    AppendError, End, Epoch, FencedAppend, Frame, Head, LogKey, Nonce, OpenError, Page, Refused, RunId, Seq,
    SessionHead, SessionKey, SessionStore, SessionWriter, SharedAppend, SharedBatch, SharedFrames, SharedLog,
    StoreError, Watch, WriterBackend,
};
use agentrun_testing::suites::store::Data;
use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::yield_now;

/// What a sync takes, and what lies between a look and a write that are two steps.
const SYNC: Duration = Duration::from_micros(40);

/// One broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// The fence is looked at before the lock is taken for the write.
    CheckThenWrite,
    /// So is a shared log's place.
    PlaceThenWrite,
    /// An owner keeps a lease: until it is over, a newer one does not fence it.
    FenceByClock,
    /// One fence over all keys.
    FenceAllKeys,
    /// Epochs live in memory.
    FenceForgottenOnReopen,
    /// A batch over two logs is two syncs.
    HalfABatch,
    /// The session's half lands though the shared log's place was taken.
    HalfOnConflict,
    /// Answered, then synced.
    AckBeforeSync,
    /// After a buffered group the next one is not synced either.
    SyncForgotten,
    /// A fenced append is refused by an epoch that is not synced yet.
    RefusedBeforeSync,
    /// The fence is the epoch alone.
    NoNonce,
    /// A failed sync is called a refusal.
    FailedSyncRefused,
    /// A failed sync is forgotten.
    PoisonForgotten,
    /// Readers see what is not synced.
    ShownBeforeSync,
    /// A fenced writer is told of the conflict first.
    ConflictFirst,
    /// An open does not look at the head it was to find.
    HeadIgnored,
    /// A sealed session opens.
    SealForgotten,
    /// Dropping an append cancels it.
    DropCancels,
}

#[derive(Clone, Debug, Default)]
struct Log {
    epoch: u64,
    nonce: Option<Nonce>,
    frames: Vec<Frame>,
    /// How many of them were in a synced batch.
    durable: usize,
    run: Option<RunId>,
    end: Option<End>,
    moved: Option<String>,
    /// The owner before the newest, and when it lost the session: for the lease.
    before: Option<(Nonce, Instant)>,
}

impl Log {
    fn seq(&self) -> Seq {
        Seq(self.frames.len() as u64)
    }

    fn head(&self) -> Head {
        Head { seq: Seq(self.durable as u64), epoch: Epoch(self.epoch) }
    }
}

type Logs = BTreeMap<LogKey, Log>;

#[derive(Default)]
struct Bytes {
    /// What the system would answer a read with.
    cache: Logs,
    /// What is left when the power goes.
    synced: Logs,
    dirty: BTreeSet<LogKey>,
    /// The last open of any key, for a fence over all of them.
    last_open: Option<Nonce>,
    saved: Logs,
}

#[derive(Default)]
struct Disk {
    bytes: Mutex<Bytes>,
    /// One step at a time over all handles.
    writing: tokio::sync::Mutex<()>,
    failing: AtomicBool,
    /// Raised by each power cut.
    power: AtomicU64,
    watches: Mutex<HashMap<LogKey, watch::Sender<Head>>>,
    handles: Mutex<Weak<()>>,
}

/// Fresh data of a store with `flaw`, able to everything.
pub(crate) fn toy(flaw: Flaw) -> Data {
    let disk = Arc::new(Disk::default());
    let (opens, saves, restores, fails) = (Arc::clone(&disk), Arc::clone(&disk), Arc::clone(&disk), Arc::clone(&disk));
    Data::new(move || Ok(Arc::new(Toy::open(&opens, flaw))))
        .beside()
        .copies(
            move || {
                let mut bytes = saves.bytes.lock().unwrap();
                bytes.saved = bytes.synced.clone();
                Ok(())
            },
            move || {
                let mut bytes = restores.bytes.lock().unwrap();
                (bytes.cache, bytes.synced) = (bytes.saved.clone(), bytes.saved.clone());
                Ok(())
            },
        )
        .sync_faults(move |failing| {
            fails.failing.store(failing, Ordering::SeqCst);
            Ok(())
        })
        .power_cuts(move || {
            let mut bytes = disk.bytes.lock().unwrap();
            disk.power.fetch_add(1, Ordering::SeqCst);
            bytes.cache = bytes.synced.clone();
            bytes.dirty.clear();
            Ok(())
        })
}

enum Op {
    Take { key: SessionKey, expected: Option<Seq>, nonce: Nonce, answer: oneshot::Sender<Result<Log, OpenError>> },
    Append(FencedAppend, oneshot::Sender<Result<Seq, AppendError>>),
    Share(SharedFrames, oneshot::Sender<Result<Seq, AppendError>>),
}

/// A handle.
struct Toy {
    ops: Sink,
    hand: Hand,
}

/// What a handle's task and its readers share.
#[derive(Clone)]
struct Hand {
    disk: Arc<Disk>,
    flaw: Flaw,
    /// The power it was opened under.
    power: u64,
    poison: Arc<OnceLock<String>>,
    /// Whether the last group was a buffered one.
    buffered: Arc<AtomicBool>,
}

/// A handle's way to its task, which does one step after the other, whoever still waits for it.
#[derive(Clone)]
struct Sink {
    ops: mpsc::UnboundedSender<Op>,
    hand: Hand,
    _alive: Arc<()>,
}

impl WriterBackend for Sink {
    fn append(&self, append: FencedAppend) -> oneshot::Receiver<Result<Seq, AppendError>> {
        let (answer, answered) = oneshot::channel();
        if self.hand.flaw == Flaw::RefusedBeforeSync
            && let Err(fenced) = self.hand.fence(&append)
        {
            let _ = answer.send(Err(fenced));
            return answered;
        }
        let _ = self.ops.send(Op::Append(append, answer));
        answered
    }
}

impl Toy {
    fn open(disk: &Arc<Disk>, flaw: Flaw) -> Self {
        let mut handles = disk.handles.lock().unwrap();
        let alive = handles.upgrade();
        let mut bytes = disk.bytes.lock().unwrap();
        if flaw == Flaw::FenceForgottenOnReopen && alive.is_none() {
            bytes.cache.values_mut().for_each(|log| (log.epoch, log.nonce) = (0, None));
        }
        // What a dead process left unsynced is synced first: nobody may build on less.
        sync_dirty(&mut bytes);
        drop(bytes);
        let alive = alive.unwrap_or_default();
        *handles = Arc::downgrade(&alive);
        let (ops, queued) = mpsc::unbounded_channel();
        let power = disk.power.load(Ordering::SeqCst);
        let hand = Hand { disk: Arc::clone(disk), flaw, power, poison: Arc::default(), buffered: Arc::default() };
        tokio::spawn(hand.clone().work(queued));
        Self { ops: Sink { ops, hand: hand.clone(), _alive: alive }, hand }
    }
}

fn sync_dirty(bytes: &mut Bytes) {
    for key in std::mem::take(&mut bytes.dirty) {
        let log = bytes.cache.get(&key).cloned().unwrap_or_default();
        bytes.synced.insert(key, log);
    }
}

impl Hand {
    async fn work(self, mut queued: mpsc::UnboundedReceiver<Op>) {
        while let Some(op) = queued.recv().await {
            match op {
                Op::Take { key, expected, nonce, answer } => {
                    let done = self.take(&key, expected, nonce).await;
                    let _ = answer.send(done);
                }
                Op::Append(append, answer) if self.flaw == Flaw::DropCancels && answer.is_closed() => drop(append),
                Op::Append(append, answer) => self.append(append, answer).await,
                Op::Share(share, answer) => {
                    let done = self.share(&share).await;
                    let _ = answer.send(done);
                }
            }
        }
    }

    fn sound(&self) -> Result<(), StoreError> {
        if self.disk.power.load(Ordering::SeqCst) != self.power {
            return Err(StoreError::Io("the power went".to_owned()));
        }
        match self.poison.get() {
            Some(why) if self.flaw != Flaw::PoisonForgotten => Err(StoreError::Poisoned(why.clone())),
            _ => Ok(()),
        }
    }

    /// Makes the logs' cached bytes durable. A failure is for good.
    async fn sync(&self, logs: &[LogKey]) -> Result<(), StoreError> {
        // A disk takes its time, so that there is an instant between two syncs and one between a write and its sync.
        pass_time().await;
        let mut bytes = self.disk.bytes.lock().unwrap();
        self.sound()?;
        if self.disk.failing.load(Ordering::SeqCst) {
            let why = self.poison.get_or_init(|| "a sync failed".to_owned());
            return Err(StoreError::Poisoned(why.clone()));
        }
        for key in logs {
            let log = bytes.cache.get(key).cloned().unwrap_or_default();
            if let Some(watch) = self.disk.watches.lock().unwrap().get(key) {
                watch.send_replace(log.head());
            }
            bytes.dirty.remove(key);
            bytes.synced.insert(key.clone(), log);
        }
        Ok(())
    }

    async fn take(&self, key: &SessionKey, expected: Option<Seq>, nonce: Nonce) -> Result<Log, OpenError> {
        let _one = self.disk.writing.lock().await;
        self.sound()?;
        let name = LogKey::from(key);
        let taken = {
            let mut bytes = self.disk.bytes.lock().unwrap();
            let log = bytes.cache.entry(name.clone()).or_default();
            if log.end == Some(End::Moved) && self.flaw != Flaw::SealForgotten {
                return Err(OpenError::Moved { key: key.clone(), to: log.moved.clone().unwrap_or_default() });
            }
            let found = log.seq();
            log.durable = log.frames.len();
            let taken = match expected.filter(|expected| *expected != found && self.flaw != Flaw::HeadIgnored) {
                Some(expected) => Err(OpenError::HeadChanged { expected, found }),
                None => {
                    log.before = log.nonce.map(|nonce| (nonce, Instant::now()));
                    log.epoch += 1;
                    log.nonce = Some(nonce);
                    Ok(log.clone())
                }
            };
            bytes.dirty.insert(name.clone());
            bytes.last_open = Some(nonce);
            taken
        };
        self.sync(&[name]).await?;
        taken
    }

    fn fence(&self, append: &FencedAppend) -> Result<(), AppendError> {
        let bytes = self.disk.bytes.lock().unwrap();
        let log = bytes.cache.get(&LogKey::from(&append.key)).cloned().unwrap_or_default();
        let mut owns = log.epoch == append.epoch.0;
        if self.flaw != Flaw::NoNonce {
            owns &= log.nonce == Some(append.nonce);
        }
        if self.flaw == Flaw::FenceAllKeys {
            owns &= bytes.last_open == Some(append.nonce);
        }
        if self.flaw == Flaw::FenceByClock
            && let Some((before, lost)) = log.before
        {
            owns |= before == append.nonce && lost.elapsed() < Duration::from_millis(50);
        }
        if owns { Ok(()) } else { Err(AppendError::Fenced { newer: Epoch(log.epoch) }) }
    }

    fn place(&self, share: &SharedFrames) -> Result<(), AppendError> {
        let bytes = self.disk.bytes.lock().unwrap();
        let found = bytes.cache.get(&share.log.clone().into()).map(Log::seq).unwrap_or_default();
        if found == share.expected {
            return Ok(());
        }
        Err(AppendError::Conflict { log: share.log.clone(), expected: share.expected, found })
    }

    async fn append(&self, append: FencedAppend, answer: oneshot::Sender<Result<Seq, AppendError>>) {
        let early = if self.flaw == Flaw::CheckThenWrite {
            let checked = self.fence(&append);
            pass_time().await;
            Some(checked)
        } else {
            None
        };
        let _one = self.disk.writing.lock().await;
        let synced = append.durability == agentrun_kernel::Durability::Synced || append.also.is_some();
        let written = self.write(&append, synced, early);
        let (seq, logs) = match written {
            Ok(written) => written,
            Err(error) => return drop(answer.send(Err(error))),
        };
        let behind_buffered = self.buffered.swap(!synced, Ordering::SeqCst);
        let forgotten = self.flaw == Flaw::SyncForgotten && behind_buffered;
        if !synced || forgotten {
            return drop(answer.send(Ok(seq)));
        }
        if self.flaw == Flaw::AckBeforeSync {
            let _ = answer.send(Ok(seq));
            let _ = self.sync(&logs).await;
            return;
        }
        let done = match (self.flaw, logs.as_slice()) {
            (Flaw::HalfABatch, [session, shared]) => match self.sync(std::slice::from_ref(session)).await {
                Ok(()) => self.sync(std::slice::from_ref(shared)).await,
                failed => failed,
            },
            _ => self.sync(&logs).await,
        };
        let _ = answer.send(match done {
            Ok(()) => Ok(seq),
            Err(error) if self.flaw == Flaw::FailedSyncRefused => {
                Err(AppendError::Refused(Refused::Busy(error.to_string())))
            }
            Err(error) => Err(AppendError::Unknown(error)),
        });
    }

    /// Checks and writes to the cache; answers the new seq and what is to be synced.
    fn write(
        &self,
        append: &FencedAppend,
        synced: bool,
        early: Option<Result<(), AppendError>>,
    ) -> Result<(Seq, Vec<LogKey>), AppendError> {
        self.sound().map_err(AppendError::Unknown)?;
        if let (Flaw::ConflictFirst, Some(share)) = (self.flaw, &append.also) {
            self.place(share)?;
        }
        early.unwrap_or_else(|| self.fence(append))?;
        let name = LogKey::from(&append.key);
        let mut bytes = self.disk.bytes.lock().unwrap();
        let log = bytes.cache.entry(name.clone()).or_default();
        if let Some(end @ (End::Moved | End::Removed)) = log.end {
            return Err(AppendError::Refused(Refused::Ended(end)));
        }
        let lost = log.seq() != append.last && self.flaw != Flaw::CheckThenWrite;
        drop(bytes);
        if lost {
            return Err(AppendError::Unknown(StoreError::Io("the writer lost its place".to_owned())));
        }
        let conflict = append.also.as_ref().map_or(Ok(()), |share| self.place(share));
        if self.flaw != Flaw::HalfOnConflict {
            conflict.clone()?;
        }
        let mut bytes = self.disk.bytes.lock().unwrap();
        let log = bytes.cache.entry(name.clone()).or_default();
        log.frames.extend_from_slice(&append.frames);
        if synced {
            log.durable = log.frames.len();
        }
        log.run = append.run.clone().or(log.run.take());
        log.moved = append.moved.clone().or(log.moved.take());
        if let Some(end) = append.end {
            let answered = matches!(log.end, Some(End::Delivered | End::Failed)) && end != Some(End::Moved);
            log.end = if answered { log.end } else { end };
        }
        let seq = log.seq();
        let mut logs = vec![name];
        if let (Some(share), Ok(())) = (&append.also, &conflict) {
            let name = LogKey::from(share.log.clone());
            let log = bytes.cache.entry(name.clone()).or_default();
            log.frames.extend_from_slice(&share.frames);
            log.durable = log.frames.len();
            logs.push(name);
        }
        bytes.dirty.extend(logs.iter().cloned());
        conflict.map(|()| (seq, logs))
    }

    async fn share(&self, share: &SharedFrames) -> Result<Seq, AppendError> {
        if self.flaw == Flaw::PlaceThenWrite {
            self.place(share)?;
            pass_time().await;
        }
        let _one = self.disk.writing.lock().await;
        self.sound().map_err(AppendError::Unknown)?;
        if self.flaw != Flaw::PlaceThenWrite {
            self.place(share)?;
        }
        let name = LogKey::from(share.log.clone());
        let seq = {
            let mut bytes = self.disk.bytes.lock().unwrap();
            let log = bytes.cache.entry(name.clone()).or_default();
            log.frames.extend_from_slice(&share.frames);
            log.durable = log.frames.len();
            let seq = log.seq();
            bytes.dirty.insert(name.clone());
            seq
        };
        self.sync(&[name]).await.map_err(AppendError::Unknown)?;
        Ok(seq)
    }

    /// The log as readers see it.
    fn shown(&self, key: &LogKey) -> Log {
        let bytes = self.disk.bytes.lock().unwrap();
        let unsynced = matches!(self.flaw, Flaw::AckBeforeSync | Flaw::SyncForgotten | Flaw::ShownBeforeSync);
        let mut log = if unsynced { &bytes.cache } else { &bytes.synced }.get(key).cloned().unwrap_or_default();
        if self.flaw == Flaw::ShownBeforeSync {
            log.durable = log.frames.len();
        }
        log
    }
}

async fn pass_time() {
    let began = Instant::now();
    while began.elapsed() < SYNC {
        yield_now().await;
    }
}

fn gone() -> StoreError {
    StoreError::Io("the store's task ended".to_owned())
}

#[async_trait]
impl SessionStore for Toy {
    async fn open(&self, key: &SessionKey, expected: Option<Seq>) -> Result<SessionWriter, OpenError> {
        let (answer, answered) = oneshot::channel();
        let nonce = Nonce::draw();
        let _ = self.ops.ops.send(Op::Take { key: key.clone(), expected, nonce, answer });
        let log = answered.await.map_err(|_| gone())??;
        Ok(SessionWriter::new(key.clone(), Epoch(log.epoch), nonce, log.seq(), Arc::new(self.ops.clone())))
    }

    async fn read(&self, log: &LogKey, from: Seq, limit: usize) -> Result<Page, StoreError> {
        self.hand.sound()?;
        let shown = self.hand.shown(log);
        let skip = usize::try_from(from.0.saturating_sub(1)).unwrap();
        let frames = shown.frames.iter().take(shown.durable).skip(skip).take(limit).cloned().collect();
        Ok(Page { log: log.clone(), frames, head: shown.head() })
    }

    async fn heads(&self, after: Option<&SessionKey>, limit: usize) -> Result<Vec<SessionHead>, StoreError> {
        self.hand.sound()?;
        let bytes = self.hand.disk.bytes.lock().unwrap();
        let session = |(key, log): (&LogKey, &Log)| match key {
            LogKey::Session(key) if after.is_none_or(|after| key > after) => {
                Some(SessionHead { key: key.clone(), run: log.run.clone(), head: log.head(), end: log.end })
            }
            _ => None,
        };
        Ok(bytes.synced.iter().filter_map(session).take(limit).collect())
    }

    async fn watch(&self, log: &LogKey) -> Result<Watch, StoreError> {
        self.hand.sound()?;
        let mut watches = self.hand.disk.watches.lock().unwrap();
        let watch = watches.entry(log.clone()).or_insert_with(|| watch::Sender::new(Head::default()));
        watch.send_replace(self.hand.shown(log).head());
        Ok(Watch::new(watch.subscribe()))
    }

    async fn append_at(&self, log: &SharedLog, expected: Seq, batch: SharedBatch) -> Result<Seq, AppendError> {
        let frames = SharedFrames::encode(SharedAppend { log: log.clone(), expected, batch }, 0)?;
        let (answer, answered) = oneshot::channel();
        let _ = self.ops.ops.send(Op::Share(frames, answer));
        answered.await.map_err(|_| AppendError::Unknown(gone()))?
    }

    fn id(&self) -> &str {
        "toy"
    }
}
