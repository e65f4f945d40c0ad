//! The committer over a backend that fails where a test says so: groups of a real disk fail too seldom to be asked.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use super::super::backend::{Backend, CommitError, LogState, Write, WriteError};
use super::super::core::Core;
use super::super::memory::{MemoryBackend, MemoryReads};
use super::super::{
    AppendError, Batch, Durability, FREE_BYTES, MemoryStore, OpenError, Refused, SessionWriter, SharedAppend,
    SharedBatch, StoreError,
};
use super::{Op, Take, gather};
use crate::ids::{Digest, EffectKey, Epoch, LogKey, Nonce, RunId, Seq, SessionKey, SharedLog};
use crate::money::Usd;
use crate::record::{Body, EffectKind, Intent, LedgerBody, Outcome, OutcomeEnd, Replay};

mod whole;

enum Fault {
    Begin,
    /// The next step that touches this log.
    Step(LogKey),
    Group(LogKey),
    Panic(LogKey),
    CommitRefused,
    CommitUnknown,
}

#[derive(Default)]
struct Script {
    faults: Mutex<VecDeque<Fault>>,
    /// The next commit says it was reached, and waits to be let on; no fault is for it.
    gate: AtomicBool,
    free: AtomicU64,
    commits: Mutex<Vec<Durability>>,
}

struct Faulty {
    inner: MemoryBackend,
    script: Arc<Script>,
    durability: Durability,
    reached: UnboundedSender<()>,
    on: Receiver<()>,
}

impl Faulty {
    /// The next fault, if it is one that `here` is the place for.
    fn fault(&self, here: impl FnOnce(&Fault) -> bool) -> Option<Fault> {
        let mut faults = self.script.faults.lock().unwrap();
        faults.front().is_some_and(here).then(|| faults.pop_front()).flatten()
    }
}

impl Backend for Faulty {
    fn begin(&mut self, durability: Durability) -> Result<(), String> {
        if self.fault(|fault| matches!(fault, Fault::Begin)).is_some() {
            return Err("busy".to_owned());
        }
        self.durability = durability;
        self.inner.begin(durability)
    }

    fn state(&mut self, log: &LogKey) -> Result<LogState, StoreError> {
        self.inner.state(log)
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<(), WriteError> {
        let touches = |log: &LogKey| writes.iter().any(|write| write.log == log && !write.frames.is_empty());
        let here = |fault: &Fault| match fault {
            Fault::Step(log) | Fault::Group(log) | Fault::Panic(log) => touches(log),
            _ => false,
        };
        match self.fault(here) {
            Some(Fault::Step(_)) => Err(WriteError::Step("a row".to_owned())),
            Some(Fault::Group(_)) => Err(WriteError::Group("the transaction".to_owned())),
            Some(_) => panic!("planted"),
            None => self.inner.write(writes),
        }
    }

    fn commit(&mut self) -> Result<(), CommitError> {
        self.script.commits.lock().unwrap().push(self.durability);
        if self.script.gate.swap(false, Ordering::SeqCst) {
            self.reached.send(()).unwrap();
            self.on.recv().unwrap();
            return self.inner.commit();
        }
        match self.fault(|fault| matches!(fault, Fault::CommitRefused | Fault::CommitUnknown)) {
            Some(Fault::CommitRefused) => {
                self.inner.rollback();
                Err(CommitError::Refused("locked".to_owned()))
            }
            Some(_) => {
                self.inner.rollback();
                Err(CommitError::Unknown("fsync failed".to_owned()))
            }
            None => self.inner.commit(),
        }
    }

    fn rollback(&mut self) {
        self.inner.rollback();
    }

    fn free_bytes(&self) -> Option<u64> {
        Some(self.script.free.load(Ordering::Relaxed))
    }

    fn changed_elsewhere(&mut self) -> bool {
        self.inner.changed_elsewhere()
    }
}

struct Bench {
    core: Core<MemoryReads>,
    script: Arc<Script>,
    reached: UnboundedReceiver<()>,
    on: Sender<()>,
}

fn bench() -> Bench {
    let (inner, reads) = MemoryStore::new().unwrap().parts();
    let script = Arc::new(Script { free: AtomicU64::new(u64::MAX), ..Script::default() });
    let (reached_here, reached) = unbounded_channel();
    let (on, let_on) = channel();
    let faulty = Faulty {
        inner,
        script: Arc::clone(&script),
        durability: Durability::Synced,
        reached: reached_here,
        on: let_on,
    };
    Bench { core: Core::start(faulty, reads).unwrap(), script, reached, on }
}

impl Bench {
    fn plant(&self, faults: impl IntoIterator<Item = Fault>) {
        self.script.faults.lock().unwrap().extend(faults);
    }

    fn commits(&self) -> usize {
        self.script.commits.lock().unwrap().len()
    }

    async fn open(&self, name: &str) -> SessionWriter {
        self.core.open(&key(name), None).await.unwrap()
    }

    async fn seq(&self, name: &str) -> Seq {
        self.core.read(&log(name), Seq(1), 100).await.unwrap().head.seq
    }

    /// Holds a group at its commit, queues what `queue` queues meanwhile, and lets the committer on: all that was queued is one group,
    /// and `faults` are for it.
    async fn in_one_group<T>(&mut self, faults: impl IntoIterator<Item = Fault>, queue: impl FnOnce() -> T) -> T {
        let plugged = self.hold("plug").await;
        self.plant(faults);
        let queued = queue();
        all_queued().await;
        self.on.send(()).unwrap();
        plugged.await.unwrap();
        queued
    }

    /// A group that is held at its commit until `on` is sent.
    async fn hold(&mut self, name: &str) -> JoinHandle<Seq> {
        let mut plug = self.open(name).await;
        self.script.gate.store(true, Ordering::SeqCst);
        let plugged = tokio::spawn(async move { plug.append(data(), None).await.unwrap() });
        self.reached.recv().await.unwrap();
        plugged
    }
}

fn key(name: &str) -> SessionKey {
    SessionKey::new(name).unwrap()
}

fn log(name: &str) -> LogKey {
    LogKey::from(&key(name))
}

fn data() -> Batch {
    Batch::of([Body::Data { name: "n".to_owned(), value: json!(1) }])
}

fn buffered() -> Batch {
    Batch { durability: Durability::Buffered, ..data() }
}

fn intent(name: &str) -> Body {
    Body::Intent(Intent {
        key: EffectKey(name.to_owned()),
        effect: EffectKind::Tool,
        replay: Replay::Never,
        name: "tool".to_owned(),
        turn: None,
        call: None,
        arguments: json!({}),
        digest: Digest::of_json(&json!({})),
        hold: None,
        quote: None,
    })
}

/// An append that was handed over and is not yet waited for.
fn spawn(mut writer: SessionWriter, batch: Batch) -> JoinHandle<(SessionWriter, Result<Seq, AppendError>)> {
    tokio::spawn(async move {
        let answer = writer.append(batch, None).await;
        (writer, answer)
    })
}

/// On this runtime's one thread every spawned task has run to its first wait, so has queued its step.
async fn all_queued() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

/// Waits for what another thread does, for 20 s at most.
async fn until(done: impl Fn() -> bool) {
    let waiting = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("it never happened");
}

#[tokio::test]
async fn f17_an_error_at_commit_is_unknown_to_its_group_and_poisons_the_store() {
    let mut bench = bench();
    let (a, b) = (bench.open("a").await, bench.open("b").await);
    let mut watch = bench.core.watch(&log("a")).await.unwrap();
    let core = bench.core.clone();
    let (a, b, open) = bench
        .in_one_group([Fault::CommitUnknown], || {
            let open = tokio::spawn(async move { core.open(&key("c"), None).await.map(drop) });
            (spawn(a, data()), spawn(b, data()), open)
        })
        .await;
    let (mut a, answer) = a.await.unwrap();
    assert!(matches!(answer, Err(AppendError::Unknown(StoreError::Poisoned(_)))), "{answer:?}");
    let (_b, answer) = b.await.unwrap();
    assert!(matches!(answer, Err(AppendError::Unknown(StoreError::Poisoned(_)))), "{answer:?}");
    let answer = open.await.unwrap();
    assert!(matches!(answer, Err(OpenError::Store(StoreError::Poisoned(_)))), "{answer:?}");

    let before = bench.commits();
    let answer = a.append(data(), None).await;
    assert!(matches!(answer, Err(AppendError::Unknown(StoreError::Poisoned(_)))), "{answer:?}");
    let answer = bench.core.open(&key("d"), None).await.map(drop);
    assert!(matches!(answer, Err(OpenError::Store(StoreError::Poisoned(_)))), "{answer:?}");
    assert!(matches!(bench.core.read(&log("a"), Seq(1), 1).await, Err(StoreError::Poisoned(_))));
    assert_eq!(watch.changed().await, None, "a watch of a poisoned store ends");
    assert_eq!(bench.commits(), before, "nothing is tried over a poisoned store");
}

#[tokio::test]
async fn f17_one_bad_step_fails_alone() {
    let mut bench = bench();
    let (a, b, c) = (bench.open("a").await, bench.open("b").await, bench.open("c").await);
    let (a, b, c) =
        bench.in_one_group([Fault::Step(log("b"))], || (spawn(a, data()), spawn(b, data()), spawn(c, data()))).await;
    for append in [a, c] {
        assert_eq!(append.await.unwrap().1.unwrap(), Seq(1));
    }
    let (mut b, answer) = b.await.unwrap();
    assert!(matches!(answer, Err(AppendError::Refused(Refused::Busy(_)))), "{answer:?}");
    assert_eq!(bench.seq("b").await, Seq::START);
    assert_eq!(b.append(data(), None).await.unwrap(), Seq(1), "refused is not dead");
}

#[tokio::test]
async fn a_group_that_was_rolled_back_is_refused_whole_and_can_be_tried_again() {
    for fault in [Fault::Begin, Fault::Group(log("b")), Fault::CommitRefused] {
        let mut bench = bench();
        let (a, b) = (bench.open("a").await, bench.open("b").await);
        let (a, b) = bench.in_one_group([fault], || (spawn(a, data()), spawn(b, data()))).await;
        for append in [a, b] {
            let (mut writer, answer) = append.await.unwrap();
            assert!(matches!(answer, Err(AppendError::Refused(Refused::Busy(_)))), "{answer:?}");
            assert_eq!(writer.append(data(), None).await.unwrap(), Seq(1));
        }
    }
}

#[tokio::test]
async fn what_waits_during_a_sync_is_one_group() {
    let mut bench = bench();
    let mut writers = Vec::new();
    for n in 0..64 {
        writers.push(bench.open(&format!("s{n}")).await);
    }
    let before = bench.commits();
    let appends =
        bench.in_one_group([], || writers.into_iter().map(|writer| spawn(writer, data())).collect::<Vec<_>>()).await;
    for append in appends {
        append.await.unwrap().1.unwrap();
    }
    assert_eq!(bench.commits() - before, 3, "the plug's open, its append, and one for all");
}

#[test]
fn those_who_were_answered_together_are_waited_for_and_nobody_else() {
    use std::time::Instant;
    let take = |n: u64| {
        let (answer, _) = tokio::sync::oneshot::channel();
        Op::Take(Take { key: key(&n.to_string()), expected: None, nonce: Nonce::draw(), answer })
    };
    let (ops, queued) = channel();
    let later = Instant::now() + Duration::from_secs(60);
    let mut waiting = vec![take(1)];
    gather(&queued, &mut waiting, 1, later);
    assert_eq!(waiting.len(), 1, "one alone waits for nobody");
    let asks = std::thread::spawn(move || {
        for n in 2..=4 {
            std::thread::yield_now();
            ops.send(take(n)).unwrap();
        }
        ops
    });
    gather(&queued, &mut waiting, 3, later);
    assert_eq!(waiting.len(), 3);
    let ops = asks.join().unwrap();
    gather(&queued, &mut waiting, 9, Instant::now());
    assert_eq!(waiting.len(), 4, "what is there is taken, and nobody is waited for too long");
    drop(ops);
    gather(&queued, &mut waiting, 9, later);
    assert_eq!(waiting.len(), 4);
}

#[tokio::test]
async fn a_refusal_is_answered_only_once_the_epoch_it_rests_on_is_durable() {
    let mut bench = bench();
    let old = bench.open("a").await;
    let core = bench.core.clone();
    // The take and the append it fences are one group, and that group's commit goes wrong: the fence may never have been.
    let (take, append) = bench
        .in_one_group([Fault::CommitUnknown], || {
            let take = tokio::spawn(async move { core.open(&key("a"), None).await.map(drop) });
            (take, spawn(old, data()))
        })
        .await;
    assert!(take.await.unwrap().is_err());
    let (_writer, answer) = append.await.unwrap();
    assert!(matches!(answer, Err(AppendError::Unknown(_))), "{answer:?}");
}

#[tokio::test]
async fn nothing_is_answered_or_shown_before_the_commit_returns() {
    let mut bench = bench();
    let watch = bench.core.watch(&log("held")).await.unwrap();
    let held = bench.hold("held").await;
    all_queued().await;
    assert!(!held.is_finished());
    assert_eq!((watch.head().seq, bench.seq("held").await), (Seq::START, Seq::START));
    bench.on.send(()).unwrap();
    held.await.unwrap();
    assert_eq!((watch.head().seq, bench.seq("held").await), (Seq(1), Seq(1)));
}

#[tokio::test]
async fn f19_a_low_disk_takes_no_new_intent_and_every_outcome() {
    let bench = bench();
    let mut writer = bench.open("a").await;
    writer.append(Batch::of([intent("one")]), None).await.unwrap();
    bench.script.free.store(FREE_BYTES - 1, Ordering::Relaxed);
    let log = SharedLog::Ledger(RunId::new("r").unwrap());
    let raise = LedgerBody::Raise { id: "x".to_owned(), cap: Usd::default() };
    let also = SharedAppend { log: log.clone(), expected: Seq::START, batch: SharedBatch::Ledger(vec![raise]) };
    let answer = writer.append(Batch::of([intent("two")]), Some(also)).await;
    assert!(
        matches!(answer, Err(AppendError::Refused(Refused::DiskLow { free })) if free == FREE_BYTES - 1),
        "{answer:?}"
    );
    assert!(bench.core.read(&log.into(), Seq(1), 1).await.unwrap().frames.is_empty());
    let outcome = Outcome::new(EffectKey("one".to_owned()), OutcomeEnd::Ok, "done");
    assert_eq!(writer.append(Batch::of([Body::Outcome(outcome)]), None).await.unwrap(), Seq(2));
    bench.script.free.store(FREE_BYTES, Ordering::Relaxed);
    assert_eq!(writer.append(Batch::of([intent("two")]), None).await.unwrap(), Seq(3));
}

#[tokio::test]
async fn f18_a_failed_buffered_batch_fails_the_next_synced_one() {
    for fault in [Fault::Step(log("a")), Fault::Group(log("a")), Fault::CommitRefused] {
        let bench = bench();
        let mut writer = bench.open("a").await;
        bench.plant([fault]);
        assert_eq!(writer.append(buffered(), None).await.unwrap(), Seq(1));
        until(|| bench.script.faults.lock().unwrap().is_empty()).await;
        let answer = writer.append(data(), None).await;
        assert!(
            matches!(&answer, Err(AppendError::Unknown(StoreError::Io(why))) if why.contains("a buffered batch before it")),
            "{answer:?}"
        );
        let again = writer.append(data(), None).await;
        assert!(matches!(again, Err(AppendError::Unknown(_))), "dead: {again:?}");
        assert_eq!(bench.seq("a").await, Seq::START);
        let mut next = bench.open("a").await;
        assert_eq!(next.append(data(), None).await.unwrap(), Seq(1));
    }
}

#[tokio::test]
async fn f18_a_busy_store_keeps_buffered_batches_for_later() {
    let mut bench = bench();
    let mut writer = bench.open("a").await;
    let held = bench.hold("plug").await;
    bench.plant([Fault::Begin, Fault::Begin]);
    writer.append(buffered(), None).await.unwrap();
    bench.on.send(()).unwrap();
    held.await.unwrap();
    loop {
        match writer.append(data(), None).await {
            Ok(seq) => break assert_eq!(seq, Seq(2)),
            Err(AppendError::Refused(Refused::Busy(_))) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(bench.seq("a").await, Seq(2));
}

#[tokio::test]
async fn a_buffered_batch_alone_is_committed_without_a_sync() {
    let bench = bench();
    let mut writer = bench.open("a").await;
    writer.append(buffered(), None).await.unwrap();
    until(|| bench.commits() == 2).await;
    assert_eq!(*bench.script.commits.lock().unwrap(), [Durability::Synced, Durability::Buffered]);
    assert_eq!(bench.seq("a").await, Seq::START);
}

#[tokio::test]
async fn what_others_decide_on_is_synced_even_if_it_asks_to_be_buffered() {
    let bench = bench();
    let mut writer = bench.open("a").await;
    let batch = Batch { durability: Durability::Buffered, ..Batch::of([intent("one")]) };
    writer.append(batch, None).await.unwrap();
    assert_eq!(bench.seq("a").await, Seq(1));
    assert_eq!(*bench.script.commits.lock().unwrap(), [Durability::Synced, Durability::Synced]);
}

#[tokio::test]
async fn a_committer_that_breaks_leaves_its_callers_with_unknown() {
    let bench = bench();
    let (mut a, mut b) = (bench.open("a").await, bench.open("b").await);
    let mut watch = bench.core.watch(&log("a")).await.unwrap();
    bench.plant([Fault::Panic(log("a"))]);
    for writer in [&mut a, &mut b] {
        let answer = writer.append(data(), None).await;
        assert!(matches!(answer, Err(AppendError::Unknown(_))), "{answer:?}");
    }
    assert!(matches!(bench.core.open(&key("c"), None).await.map(drop), Err(OpenError::Store(_))));
    assert_eq!(watch.changed().await, None);
    assert_eq!(b.epoch(), Epoch(1));
}
