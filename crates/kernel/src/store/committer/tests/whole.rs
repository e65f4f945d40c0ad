//! A session removed or landed whole, on a disk that fails: what each answer means, and that it can be asked again.

use super::*;
use crate::ids::{Digest, Nonce};
use crate::record::Frame;
use crate::store::{Arrival, End, Head, ImportError, LogEnd, RemoveError, SharedFrames};

/// A session `a` of one record, with what the ledger of run `r` is told.
fn arrival() -> Arrival {
    let Body::Data { name, value } = data().bodies.remove(0) else { panic!("not data") };
    let record = Frame::encode(&log("a"), Seq(1), Epoch(1), 0, &Body::Data { name, value }).unwrap();
    let cap = SharedBatch::Ledger(vec![LedgerBody::Cap { cap: None }]);
    let also = SharedAppend { log: ledger(), expected: Seq(0), batch: cap };
    Arrival {
        key: key("a"),
        epoch: Epoch(2),
        nonce: Nonce::draw(),
        end: None,
        run: None,
        records: vec![record],
        inbox: Vec::new(),
        also: Some(SharedFrames::encode(also, 0).unwrap()),
    }
}

fn ledger() -> SharedLog {
    SharedLog::Ledger(RunId::new("r").unwrap())
}

async fn nothing_of_a(bench: &Bench) {
    for log in [log("a"), ledger().into()] {
        assert_eq!(bench.core.read(&log, Seq(1), 1).await.unwrap().head, Head::default(), "{log}");
    }
}

#[tokio::test]
async fn f17_a_removal_or_import_the_store_refused_changed_nothing_and_is_done_again() {
    for fault in [Fault::Begin, Fault::CommitRefused] {
        let bench = bench();
        let mut writer = bench.open("b").await;
        writer.append(data(), None).await.unwrap();
        bench.plant([fault]);
        let answer = bench.core.remove(&key("b"), None).await;
        assert!(matches!(answer, Err(RemoveError::Store(StoreError::Io(_)))), "{answer:?}");
        writer.append(data(), None).await.unwrap();
        let tombstone = bench.core.remove(&key("b"), None).await.unwrap();
        assert_eq!(tombstone.end.seq, Seq(2));
    }
    for fault in [Fault::Begin, Fault::Step(log("a")), Fault::Group(log("a")), Fault::CommitRefused] {
        let bench = bench();
        bench.plant([fault]);
        let answer = bench.core.import(arrival()).await;
        assert!(
            matches!(answer, Err(ImportError::Store(StoreError::Io(_)) | ImportError::Refused(Refused::Busy(_)))),
            "{answer:?}"
        );
        nothing_of_a(&bench).await;
        assert_eq!(bench.core.import(arrival()).await.unwrap(), Head { seq: Seq(1), epoch: Epoch(2) });
    }
}

#[tokio::test]
async fn f17_a_removal_or_import_whose_commit_failed_is_unknown_and_poisons() {
    let bench = bench();
    bench.open("b").await.append(data(), None).await.unwrap();
    bench.plant([Fault::CommitUnknown]);
    let answer = bench.core.remove(&key("b"), None).await;
    assert!(matches!(answer, Err(RemoveError::Store(StoreError::Poisoned(_)))), "{answer:?}");
    let answer = bench.core.import(arrival()).await;
    assert!(matches!(answer, Err(ImportError::Store(StoreError::Poisoned(_)))), "{answer:?}");

    let bench = self::bench();
    bench.plant([Fault::CommitUnknown]);
    let answer = bench.core.import(arrival()).await;
    assert!(matches!(answer, Err(ImportError::Store(StoreError::Poisoned(_)))), "{answer:?}");
}

#[tokio::test]
async fn f19_an_import_leaves_room_for_the_outcomes_of_what_runs_and_a_removal_needs_none() {
    let bench = bench();
    bench.open("b").await.append(data(), None).await.unwrap();
    let bytes: u64 = arrival().records.iter().map(|frame| frame.bytes.len() as u64).sum();
    let short = FREE_BYTES + 2 * bytes - 1;
    bench.script.free.store(short, Ordering::Relaxed);
    let answer = bench.core.import(arrival()).await;
    assert!(matches!(answer, Err(ImportError::Refused(Refused::DiskLow { free })) if free == short), "{answer:?}");
    nothing_of_a(&bench).await;
    bench.script.free.store(0, Ordering::Relaxed);
    bench.core.remove(&key("b"), None).await.unwrap();
    bench.script.free.store(short + 1, Ordering::Relaxed);
    bench.core.import(arrival()).await.unwrap();
}

#[tokio::test]
async fn f01_an_import_whose_ledger_moved_on_is_a_conflict_and_changes_nothing() {
    let bench = bench();
    let raise = SharedBatch::Ledger(vec![LedgerBody::Raise { id: "x".to_owned(), cap: Usd::default() }]);
    bench.core.append_at(&ledger(), Seq(0), raise).await.unwrap();
    let answer = bench.core.import(arrival()).await;
    assert!(
        matches!(&answer, Err(ImportError::Conflict { log, expected: Seq(0), found: Seq(1) }) if *log == ledger()),
        "{answer:?}"
    );
    assert_eq!(bench.core.read(&log("a"), Seq(1), 1).await.unwrap().head, Head::default());
}

/// A removal, an append of its owner and an open that wait for the same sync: judged in order, each on what those before it did.
#[tokio::test]
async fn f21_steps_of_one_group_see_a_removal_before_it_is_on_disk() {
    let mut bench = bench();
    let mut writer = bench.open("b").await;
    writer.append(data(), None).await.unwrap();
    let core = bench.core.clone();
    let (removed, append, open, again) = bench
        .in_one_group([], || {
            let [one, two, three] = [core.clone(), core.clone(), core.clone()];
            let removed = tokio::spawn(async move { one.remove(&key("b"), None).await });
            let append = tokio::spawn(async move {
                removal_is_queued().await;
                writer.append(data(), None).await
            });
            let open = tokio::spawn(async move {
                removal_is_queued().await;
                two.open(&key("b"), None).await.map(drop)
            });
            let again = tokio::spawn(async move {
                removal_is_queued().await;
                three.remove(&key("b"), None).await
            });
            (removed, append, open, again)
        })
        .await;
    let tombstone = removed.await.unwrap().unwrap();
    assert_eq!(tombstone.end.seq, Seq(1));
    let answer = append.await.unwrap();
    assert!(matches!(answer, Err(AppendError::Fenced { newer: Epoch(2) })), "{answer:?}");
    assert!(matches!(open.await.unwrap(), Err(OpenError::Removed { .. })));
    assert_eq!(again.await.unwrap().unwrap(), tombstone);
    let heads = bench.core.heads(None, 9).await.unwrap();
    assert_eq!(heads.iter().find(|head| head.key == key("b")).unwrap().end, Some(End::Removed));
}

/// It looks at the log before it is queued.
async fn removal_is_queued() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn an_end_of_nothing_is_the_digest_of_nothing() {
    assert_eq!(LogEnd::of(None), LogEnd { seq: Seq(0), digest: Digest::of(b"") });
}
