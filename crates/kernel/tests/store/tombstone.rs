//! Removal (B43, f21): what a store keeps of a session that is gone, on each backend.

use std::sync::Arc;

use agentrun_kernel::*;
use serde_json::json;

use crate::suite::{Both, buffered, data, key, ledger, numbers, poll, session};

macro_rules! tombstones {
    ($both:expr => $($name:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let (_kept, both) = $both;
                super::$name(both).await;
            }
        )*
    };
    ($both:expr) => {
        crate::tombstone::tombstones! { $both =>
            f21_a_removed_key_is_used_by_nobody_again
            f21_an_old_writer_of_a_removed_session_is_fenced
            f21_a_removal_frees_no_money
            f21_removed_records_and_messages_are_answered_to_nobody
            f21_a_tombstone_says_where_the_log_ended_and_is_the_same_each_time
            f21_a_removal_decided_on_an_older_head_removes_nothing
            f21_a_removal_does_not_wait_for_an_owner_that_keeps_writing
            f18_a_removal_counts_what_its_owner_left_unsynced
            an_unknown_session_is_not_removed_and_leaves_no_tombstone
            the_other_sessions_do_not_notice_a_removal
            f27_a_watcher_of_a_removed_session_sees_its_epoch
            an_inbox_of_a_session_that_left_takes_nothing
        }
    };
}

pub(crate) use tombstones;

mod on_memory {
    crate::tombstone::tombstones!(crate::backends::memory());
}

mod on_sqlite {
    crate::tombstone::tombstones!(crate::backends::sqlite());
}

mod on_sled {
    crate::tombstone::tombstones!(crate::backends::sled());
}

fn post(words: &str) -> SharedBatch {
    let submission = Submission::new(SubmissionId(words.to_owned()), Source::Person, words);
    SharedBatch::Inbox(vec![InboxBody::Post { submission }])
}

fn inbox(name: &str) -> SharedLog {
    SharedLog::Inbox(key(name))
}

async fn written(store: &Store, name: &str, count: u64) -> SessionWriter {
    let mut writer = store.open(&key(name), None).await.unwrap();
    for n in 1..=count {
        writer.append(Batch::of([data(n)]), None).await.unwrap();
    }
    writer
}

pub(crate) async fn f21_a_removed_key_is_used_by_nobody_again(both: Both) {
    drop(written(&both.store, "a", 3).await);
    both.store.remove(&key("a"), None).await.unwrap();
    for store in [&both.store, &both.again, &(both.reopen)()] {
        for expected in [None, Some(Seq::START), Some(Seq(3))] {
            let refused = store.open(&key("a"), expected).await;
            assert!(matches!(&refused, Err(OpenError::Removed { key: of }) if *of == key("a")), "{refused:?}");
        }
        let heads = store.heads(None, 10).await.unwrap();
        assert_eq!(heads.len(), 1, "the key stays taken, and a list shows it");
        assert_eq!((heads[0].end, heads[0].head.epoch), (Some(End::Removed), Epoch(2)));
    }
}

pub(crate) async fn f21_an_old_writer_of_a_removed_session_is_fenced(both: Both) {
    let mut here = written(&both.store, "a", 2).await;
    both.again.remove(&key("a"), None).await.unwrap();
    for n in 3..5 {
        let refused = here.append(Batch::of([data(n)]), None).await;
        assert!(matches!(refused, Err(AppendError::Fenced { newer: Epoch(2) })), "{refused:?}");
    }
    assert!(session(&both.store, "a").await.is_empty(), "a fenced append brought the log back");
}

pub(crate) async fn f21_a_removal_frees_no_money(both: Both) {
    let mut writer = both.store.open(&key("a"), None).await.unwrap();
    let cap: Usd = "5".parse().unwrap();
    both.store
        .append_at(&ledger("r"), Seq(0), SharedBatch::Ledger(vec![LedgerBody::Cap { cap: Some(cap) }]))
        .await
        .unwrap();
    let hold = LedgerBody::Hold {
        id: HoldId("h".to_owned()),
        session: key("a"),
        epoch: Epoch(1),
        what: "m".to_owned(),
        quote: cap,
        catalog: "c".to_owned(),
    };
    let also = SharedAppend { log: ledger("r"), expected: Seq(1), batch: SharedBatch::Ledger(vec![hold]) };
    writer.append(Batch::of([data(1)]), Some(also)).await.unwrap();
    let before = both.again.read(&ledger("r").into(), Seq(1), 10).await.unwrap();
    both.store.remove(&key("a"), None).await.unwrap();
    let after = (both.reopen)().read(&ledger("r").into(), Seq(1), 10).await.unwrap();
    assert_eq!((&after.frames, after.head), (&before.frames, before.head), "the hold keeps counting");
    assert_eq!(after.frames.len(), 2);
}

pub(crate) async fn f21_removed_records_and_messages_are_answered_to_nobody(both: Both) {
    // More than a chunk, written by two owners with another log's records in between.
    drop(written(&both.store, "a", 200).await);
    let mut other = both.store.open(&key("b"), None).await.unwrap();
    other.append(Batch::of([data(7)]), None).await.unwrap();
    let mut writer = both.again.open(&key("a"), None).await.unwrap();
    writer.append(Batch::of((201..=300).map(data)), None).await.unwrap();
    both.store.append_at(&inbox("a"), Seq(0), post("words")).await.unwrap();
    both.store.remove(&key("a"), None).await.unwrap();
    for store in [&both.store, &both.again, &(both.reopen)()] {
        for log in [LogKey::from(&key("a")), LogKey::from(inbox("a"))] {
            for from in [0, 1, 128, 129, 300] {
                let page = store.read(&log, Seq(from), 500).await.unwrap();
                assert!(page.frames.is_empty(), "{log} from {from}");
                assert_eq!(page.head.seq, Seq::START);
            }
        }
        assert_eq!(numbers(store, "b").await, [7]);
    }
}

pub(crate) async fn f21_a_tombstone_says_where_the_log_ended_and_is_the_same_each_time(both: Both) {
    drop(written(&both.store, "a", 3).await);
    let last = both.store.read(&(&key("a")).into(), Seq(3), 1).await.unwrap().frames;
    let tombstone = both.store.remove(&key("a"), Some(Seq(3))).await.unwrap();
    assert_eq!((tombstone.key.clone(), tombstone.epoch, tombstone.end.seq), (key("a"), Epoch(2), Seq(3)));
    assert_eq!(tombstone.end.digest, Digest::of(&last[0].bytes));
    assert_ne!(tombstone.nonce, Nonce([0; 16]));
    // A removal whose answer was lost is asked for again, by whomever and however.
    for store in [&both.store, &both.again, &(both.reopen)()] {
        for expected in [None, Some(Seq(3)), Some(Seq(9))] {
            assert_eq!(store.remove(&key("a"), expected).await.unwrap(), tombstone);
        }
    }
    drop(both.store.open(&key("empty"), None).await.unwrap());
    let tombstone = both.store.remove(&key("empty"), None).await.unwrap();
    assert_eq!(tombstone.end, LogEnd { seq: Seq(0), digest: Digest::of(b"") });
}

pub(crate) async fn f21_a_removal_decided_on_an_older_head_removes_nothing(both: Both) {
    let mut writer = written(&both.store, "a", 3).await;
    for expected in [0, 2, 4] {
        let refused = both.again.remove(&key("a"), Some(Seq(expected))).await;
        let Err(RemoveError::HeadChanged { expected: saw, found }) = refused else { panic!("{refused:?}") };
        assert_eq!((saw, found), (Seq(expected), Seq(3)));
    }
    writer.append(Batch::of([data(4)]), None).await.unwrap();
    assert_eq!(numbers(&both.again, "a").await, [1, 2, 3, 4], "nor was its owner fenced");
}

pub(crate) async fn f21_a_removal_does_not_wait_for_an_owner_that_keeps_writing(both: Both) {
    let mut writer = both.store.open(&key("a"), None).await.unwrap();
    let owner = tokio::spawn(async move {
        let mut n = 0;
        loop {
            n += 1;
            if let Err(error) = writer.append(Batch::of([data(n)]), None).await {
                return error;
            }
        }
    });
    poll(|| async { (numbers(&both.again, "a").await.len() > 20).then_some(()) }).await;
    let tombstone = both.again.remove(&key("a"), None).await.unwrap();
    assert!(tombstone.end.seq > Seq(20));
    assert!(matches!(
        owner.await.unwrap(),
        AppendError::Fenced { .. } | AppendError::Refused(Refused::Ended(End::Removed))
    ));
    assert!(session(&both.store, "a").await.is_empty());
}

pub(crate) async fn f18_a_removal_counts_what_its_owner_left_unsynced(both: Both) {
    let mut writer = written(&both.store, "a", 1).await;
    writer.append(buffered(data(2)), None).await.unwrap();
    // No read shows it yet, and the removal comes behind it.
    let tombstone = both.store.remove(&key("a"), None).await.unwrap();
    assert_eq!(tombstone.end.seq, Seq(2));
}

pub(crate) async fn an_unknown_session_is_not_removed_and_leaves_no_tombstone(both: Both) {
    for expected in [None, Some(Seq(0)), Some(Seq(4))] {
        let refused = both.store.remove(&key("nobody"), expected).await;
        assert!(matches!(&refused, Err(RemoveError::Unknown { key: of }) if *of == key("nobody")), "{refused:?}");
    }
    assert!(both.again.heads(None, 10).await.unwrap().is_empty());
    assert_eq!(both.store.open(&key("nobody"), None).await.unwrap().epoch(), Epoch(1));
}

pub(crate) async fn the_other_sessions_do_not_notice_a_removal(both: Both) {
    let mut other = written(&both.store, "b", 2).await;
    drop(written(&both.store, "a", 2).await);
    both.again.append_at(&inbox("b"), Seq(0), post("for b")).await.unwrap();
    both.again.remove(&key("a"), None).await.unwrap();
    other.append(Batch::of([data(3)]), None).await.unwrap();
    assert_eq!(numbers(&both.again, "b").await, [1, 2, 3]);
    assert_eq!(both.again.read(&inbox("b").into(), Seq(1), 5).await.unwrap().frames.len(), 1);
}

pub(crate) async fn f27_a_watcher_of_a_removed_session_sees_its_epoch(both: Both) {
    drop(written(&both.store, "a", 2).await);
    let mut watch = both.store.watch(&(&key("a")).into()).await.unwrap();
    both.again.remove(&key("a"), None).await.unwrap();
    let seen = async {
        while watch.head().epoch < Epoch(2) {
            watch.changed().await.unwrap();
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), seen).await.expect("the removal was never shown");
}

pub(crate) async fn an_inbox_of_a_session_that_left_takes_nothing(both: Both) {
    both.store.append_at(&inbox("gone"), Seq(0), post("before")).await.unwrap();
    drop(written(&both.store, "gone", 1).await);
    let mut sealed = written(&both.store, "sealed", 1).await;
    sealed.append(Batch::of([Body::Moved { to: "there".to_owned() }]), None).await.unwrap();
    both.store.remove(&key("gone"), None).await.unwrap();
    for store in [&both.store, &both.again] {
        for (name, end) in [("gone", End::Removed), ("sealed", End::Moved)] {
            for expected in [Seq(0), Seq(1)] {
                let refused = store.append_at(&inbox(name), expected, post("late")).await;
                assert!(
                    matches!(refused, Err(AppendError::Refused(Refused::Ended(told))) if told == end),
                    "{name}: {refused:?}"
                );
            }
            assert!(store.read(&inbox(name).into(), Seq(1), 5).await.unwrap().frames.is_empty());
        }
    }
    // A ledger of the same name is another log.
    both.store.append_at(&ledger("gone"), Seq(0), crate::suite::raise("x")).await.unwrap();
}

/// Rows of a removed session are gone from the file itself, not only from the answers.
#[tokio::test]
async fn f21_no_row_of_a_removed_session_stays_in_the_file() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("sessions.db");
    let store: Store = Arc::new(SqliteStore::open(&path).unwrap());
    let conn = rusqlite::Connection::open(&path).unwrap();
    drop(written(&store, "a", 200).await);
    let mut writer = store.open(&key("b"), None).await.unwrap();
    writer.append(Batch::of([Body::Data { name: "n".to_owned(), value: json!("kept") }]), None).await.unwrap();
    store.append_at(&inbox("a"), Seq(0), post("words")).await.unwrap();
    store.remove(&key("a"), None).await.unwrap();
    let rows = |table: &str| -> i64 {
        conn.query_row(&format!("SELECT count(*) FROM {table}"), (), |row| row.get(0)).unwrap()
    };
    assert_eq!((rows("record"), rows("chunk"), rows("tombstone")), (1, 0, 1));
}

/// What damage hides is not in the way of a removal: the session goes, its neighbours stay.
#[tokio::test]
async fn a_session_with_a_lost_record_can_still_be_removed() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("sessions.db");
    let store: Store = Arc::new(SqliteStore::open(&path).unwrap());
    drop(written(&store, "a", 40).await);
    drop(written(&store, "b", 2).await);
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute("DELETE FROM record WHERE seq = 20", ()).unwrap();
    let read = read_all::<Body>(store.as_ref(), &(&key("a")).into()).await;
    assert!(matches!(read, Err(StoreError::Corrupt { .. })), "{read:?}");
    store.remove(&key("a"), None).await.unwrap();
    assert!(session(&store, "a").await.is_empty());
    assert_eq!(numbers(&store, "b").await, [1, 2]);
}
