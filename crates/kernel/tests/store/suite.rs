//! What every store must do, run on each backend by `memory` and `sqlite`. A test gets the data twice: `store` and
//! `again`, a second handle on it with a committer of its own, as another process would have.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agentrun_kernel::*;
use serde_json::json;

/// Two handles on the same data.
pub(crate) struct Both {
    pub(crate) store: Store,
    pub(crate) again: Store,
    /// Opens one more.
    pub(crate) reopen: Box<dyn Fn() -> Store + Send + Sync>,
}

macro_rules! suite {
    ($both:expr => $($name:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let (_kept, both) = $both;
                crate::suite::$name(both).await;
            }
        )*
    };
    ($both:expr) => {
        $crate::suite::suite! { $both =>
            b42_records_come_back_in_order_and_whole
            b42_what_resolved_is_there_for_the_next_handle
            b43_an_open_fences_every_earlier_writer_of_that_key
            b43_an_open_fences_no_writer_of_another_key
            b43_epochs_grow_over_handles
            b44_a_refused_append_leaves_every_byte_as_it_was
            b44_a_fenced_writer_stays_fenced
            an_open_at_another_head_takes_nothing
            f14_two_openers_that_saw_one_head_are_not_both_let_in
            a_shared_log_takes_one_of_two_that_saw_the_same_place
            many_tasks_append_to_one_shared_log_and_none_is_lost
            a_batch_over_two_logs_lands_whole
            a_batch_whose_shared_part_conflicts_lands_in_neither_log
            a_fenced_batch_touches_no_shared_log
            f02_the_fence_is_told_before_the_conflict
            f18_buffered_batches_keep_their_order_before_a_synced_one
            f18_readers_stop_before_records_that_are_not_synced
            f18_a_dead_owners_buffered_records_are_shown_to_the_next_before_it_takes
            f18_a_buffered_batch_of_a_fenced_writer_fails_its_next_synced_one
            f22_a_sealed_session_is_not_opened_and_says_where_it_went
            an_empty_batch_and_a_record_too_large_are_refused_and_write_nothing
            the_list_shows_each_session_with_its_run_and_end_in_key_order
            a_watch_sees_both_handles_commits
            a_dropped_append_is_still_in_the_log
            a_long_log_reads_back_from_any_place
            an_unknown_log_is_an_empty_one
        }
    };
}

pub(crate) use suite;

pub(crate) fn key(name: &str) -> SessionKey {
    SessionKey::new(name).unwrap()
}

pub(crate) fn data(n: u64) -> Body {
    Body::Data { name: "n".to_owned(), value: json!(n) }
}

pub(crate) fn native(bytes: &[u8]) -> Body {
    Body::Native(NativeWrite { stream: "s".to_owned(), offset: 0, bytes: Arc::from(bytes) })
}

pub(crate) fn buffered(body: Body) -> Batch {
    Batch { bodies: vec![body], durability: Durability::Buffered }
}

pub(crate) fn ledger(run: &str) -> SharedLog {
    SharedLog::Ledger(RunId::new(run).unwrap())
}

fn inbox(session: &str) -> SharedLog {
    SharedLog::Inbox(key(session))
}

pub(crate) fn raise(id: &str) -> SharedBatch {
    SharedBatch::Ledger(vec![LedgerBody::Raise { id: id.to_owned(), cap: Usd::default() }])
}

fn also(run: &str, expected: Seq, id: &str) -> Option<SharedAppend> {
    Some(SharedAppend { log: ledger(run), expected, batch: raise(id) })
}

pub(crate) async fn session(store: &Store, name: &str) -> Vec<Record> {
    read_all::<Body>(store.as_ref(), &LogKey::from(&key(name))).await.unwrap()
}

pub(crate) async fn numbers(store: &Store, name: &str) -> Vec<u64> {
    session(store, name)
        .await
        .into_iter()
        .filter_map(|record| match record.body {
            Body::Data { value, .. } => value.as_u64(),
            _ => None,
        })
        .collect()
}

async fn raises(store: &Store, run: &str) -> Vec<String> {
    let records = read_all::<LedgerBody>(store.as_ref(), &ledger(run).into()).await.unwrap();
    records
        .into_iter()
        .map(|record| match record.body {
            LedgerBody::Raise { id, .. } => id,
            other => panic!("not a raise: {other:?}"),
        })
        .collect()
}

/// Everything a store shows of `log`, byte for byte.
async fn bytes_of(store: &Store, log: &LogKey) -> (Vec<Frame>, Head) {
    let page = store.read(log, Seq(1), 10_000).await.unwrap();
    (page.frames, page.head)
}

pub(crate) async fn b42_records_come_back_in_order_and_whole(both: Both) {
    let mut writer = both.store.open(&key("a"), None).await.unwrap();
    assert_eq!((writer.epoch(), writer.last()), (Epoch(1), Seq::START));
    assert_eq!(writer.append(Batch::of([data(1), data(2)]), None).await.unwrap(), Seq(2));
    let big: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    assert_eq!(writer.append(Batch::of([native(&big)]).and(data(3)), None).await.unwrap(), Seq(4));
    let records = session(&both.store, "a").await;
    assert_eq!(records.iter().map(|record| record.seq.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(records.iter().all(|record| record.epoch == Epoch(1)));
    assert_eq!(records[2].body, native(&big));
    assert_eq!(numbers(&both.store, "a").await, [1, 2, 3]);
}

pub(crate) async fn b42_what_resolved_is_there_for_the_next_handle(both: Both) {
    let mut writer = both.store.open(&key("a"), None).await.unwrap();
    for n in 1..=20 {
        writer.append(Batch::of([data(n)]), None).await.unwrap();
        assert_eq!(numbers(&both.again, "a").await.last(), Some(&n));
    }
    drop((writer, both.store, both.again));
    assert_eq!(numbers(&(both.reopen)(), "a").await, (1..=20).collect::<Vec<_>>());
}

pub(crate) async fn b43_an_open_fences_every_earlier_writer_of_that_key(both: Both) {
    let mut first = both.store.open(&key("a"), None).await.unwrap();
    let mut second = both.again.open(&key("a"), None).await.unwrap();
    second.append(Batch::of([data(2)]), None).await.unwrap();
    let mut third = both.store.open(&key("a"), Some(Seq(1))).await.unwrap();
    for writer in [&mut first, &mut second] {
        let refused = writer.append(Batch::of([data(9)]), None).await;
        assert!(matches!(refused, Err(AppendError::Fenced { newer: Epoch(3) })), "{refused:?}");
    }
    third.append(Batch::of([data(3)]), None).await.unwrap();
    assert_eq!(numbers(&both.again, "a").await, [2, 3]);
}

pub(crate) async fn b43_an_open_fences_no_writer_of_another_key(both: Both) {
    let mut a = both.store.open(&key("a"), None).await.unwrap();
    let mut b = both.store.open(&key("b"), None).await.unwrap();
    let _taken = both.again.open(&key("a"), None).await.unwrap();
    b.append(Batch::of([data(1)]), None).await.unwrap();
    assert!(matches!(a.append(Batch::of([data(1)]), None).await, Err(AppendError::Fenced { .. })));
    b.append(Batch::of([data(2)]), None).await.unwrap();
    assert_eq!(numbers(&both.store, "b").await, [1, 2]);
}

pub(crate) async fn b43_epochs_grow_over_handles(both: Both) {
    let mut epochs = Vec::new();
    for _ in 0..2 {
        epochs.push(both.store.open(&key("a"), None).await.unwrap().epoch().0);
        epochs.push(both.again.open(&key("a"), None).await.unwrap().epoch().0);
        epochs.push((both.reopen)().open(&key("a"), None).await.unwrap().epoch().0);
    }
    assert_eq!(epochs, [1, 2, 3, 4, 5, 6]);
}

pub(crate) async fn b44_a_refused_append_leaves_every_byte_as_it_was(both: Both) {
    let log = LogKey::from(&key("a"));
    let mut old = both.store.open(&key("a"), None).await.unwrap();
    old.append(Batch::of([data(1)]), None).await.unwrap();
    let _new = both.again.open(&key("a"), None).await.unwrap();
    let before = bytes_of(&both.again, &log).await;
    assert!(matches!(old.append(Batch::of([data(2), data(3)]), None).await, Err(AppendError::Fenced { .. })));
    assert_eq!(bytes_of(&both.again, &log).await, before);
    assert_eq!(bytes_of(&(both.reopen)(), &log).await, before);
}

pub(crate) async fn b44_a_fenced_writer_stays_fenced(both: Both) {
    let mut old = both.store.open(&key("a"), None).await.unwrap();
    drop(both.again.open(&key("a"), None).await.unwrap());
    for _ in 0..3 {
        let refused = old.append(Batch::of([data(1)]), None).await;
        assert!(matches!(refused, Err(AppendError::Fenced { newer: Epoch(2) })), "{refused:?}");
    }
    assert!(session(&both.store, "a").await.is_empty());
}

pub(crate) async fn an_open_at_another_head_takes_nothing(both: Both) {
    let mut writer = both.store.open(&key("a"), Some(Seq::START)).await.unwrap();
    writer.append(Batch::of([data(1)]), None).await.unwrap();
    for wrong in [Seq::START, Seq(2)] {
        let refused = both.again.open(&key("a"), Some(wrong)).await;
        assert!(
            matches!(refused, Err(OpenError::HeadChanged { expected, found: Seq(1) }) if expected == wrong),
            "{refused:?}"
        );
    }
    writer.append(Batch::of([data(2)]), None).await.unwrap();
    assert_eq!(both.again.open(&key("a"), Some(Seq(2))).await.unwrap().epoch(), Epoch(2));
}

pub(crate) async fn f14_two_openers_that_saw_one_head_are_not_both_let_in(both: Both) {
    let mut first = both.store.open(&key("a"), None).await.unwrap();
    first.append(Batch::of([data(1)]), None).await.unwrap();
    let mut second = both.store.open(&key("a"), Some(Seq(1))).await.unwrap();
    second.append(Batch::of([data(2)]), None).await.unwrap();
    assert!(matches!(both.again.open(&key("a"), Some(Seq(1))).await, Err(OpenError::HeadChanged { .. })));
    second.append(Batch::of([data(3)]), None).await.unwrap();
}

pub(crate) async fn a_shared_log_takes_one_of_two_that_saw_the_same_place(both: Both) {
    assert_eq!(both.store.append_at(&ledger("r"), Seq::START, raise("one")).await.unwrap(), Seq(1));
    let refused = both.again.append_at(&ledger("r"), Seq::START, raise("two")).await;
    assert!(matches!(refused, Err(AppendError::Conflict { expected: Seq(0), found: Seq(1), .. })), "{refused:?}");
    assert_eq!(both.again.append_at(&ledger("r"), Seq(1), raise("two")).await.unwrap(), Seq(2));
    let post = SharedBatch::Inbox(vec![InboxBody::Retract { id: SubmissionId::fresh() }]);
    assert_eq!(both.store.append_at(&inbox("r"), Seq::START, post).await.unwrap(), Seq(1));
    assert_eq!(raises(&both.store, "r").await, ["one", "two"]);
}

pub(crate) async fn many_tasks_append_to_one_shared_log_and_none_is_lost(both: Both) {
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let store = Arc::clone(if task % 2 == 0 { &both.store } else { &both.again });
            tokio::spawn(async move {
                for turn in 0..8 {
                    let mut at = Seq::START;
                    loop {
                        match store.append_at(&ledger("r"), at, raise(&format!("{task}-{turn}"))).await {
                            Ok(_) => break,
                            Err(AppendError::Conflict { found, .. }) => at = found,
                            Err(other) => panic!("{other}"),
                        }
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let ids = raises(&both.store, "r").await;
    assert_eq!(ids.len(), 128);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 128, "one landed twice");
    for task in 0..16 {
        let own: Vec<_> = ids.iter().filter(|id| id.starts_with(&format!("{task}-"))).cloned().collect();
        assert_eq!(own, (0..8).map(|turn| format!("{task}-{turn}")).collect::<Vec<_>>());
    }
}

pub(crate) async fn a_batch_over_two_logs_lands_whole(both: Both) {
    let mut writer = both.store.open(&key("a"), None).await.unwrap();
    writer.append(Batch::of([data(1)]), also("r", Seq::START, "one")).await.unwrap();
    writer.append(Batch::of([data(2)]), also("r", Seq(1), "two")).await.unwrap();
    assert_eq!(numbers(&both.again, "a").await, [1, 2]);
    assert_eq!(raises(&both.again, "r").await, ["one", "two"]);
}

pub(crate) async fn a_batch_whose_shared_part_conflicts_lands_in_neither_log(both: Both) {
    let mut writer = both.store.open(&key("a"), None).await.unwrap();
    both.again.append_at(&ledger("r"), Seq::START, raise("other")).await.unwrap();
    let refused = writer.append(Batch::of([data(1)]), also("r", Seq::START, "mine")).await;
    assert!(matches!(refused, Err(AppendError::Conflict { found: Seq(1), .. })), "{refused:?}");
    assert!(session(&both.again, "a").await.is_empty());
    assert_eq!(raises(&both.again, "r").await, ["other"]);
    writer.append(Batch::of([data(1)]), also("r", Seq(1), "mine")).await.unwrap();
    assert_eq!(numbers(&both.again, "a").await, [1]);
}

pub(crate) async fn a_fenced_batch_touches_no_shared_log(both: Both) {
    let mut old = both.store.open(&key("a"), None).await.unwrap();
    let _new = both.again.open(&key("a"), None).await.unwrap();
    let refused = old.append(Batch::of([data(1)]), also("r", Seq::START, "mine")).await;
    assert!(matches!(refused, Err(AppendError::Fenced { .. })), "{refused:?}");
    assert!(raises(&both.again, "r").await.is_empty());
    assert_eq!(bytes_of(&both.again, &ledger("r").into()).await.1, Head::default());
}

/// A loser must not be sent to fold the ledger and try again.
pub(crate) async fn f02_the_fence_is_told_before_the_conflict(both: Both) {
    let mut old = both.store.open(&key("a"), None).await.unwrap();
    let _new = both.again.open(&key("a"), None).await.unwrap();
    both.again.append_at(&ledger("r"), Seq::START, raise("other")).await.unwrap();
    let refused = old.append(Batch::of([data(1)]), also("r", Seq::START, "mine")).await;
    assert!(matches!(refused, Err(AppendError::Fenced { .. })), "{refused:?}");
    assert_eq!(raises(&both.store, "r").await, ["other"]);
}

pub(crate) async fn f18_buffered_batches_keep_their_order_before_a_synced_one(both: Both) {
    let mut writer = both.store.open(&key("a"), None).await.unwrap();
    let mut expected = Vec::new();
    for round in 0..20_u64 {
        for n in 0..round % 4 {
            expected.push(round * 10 + n);
            let seq = writer.append(buffered(data(round * 10 + n)), None).await.unwrap();
            assert_eq!(seq.0, expected.len() as u64);
        }
        expected.push(round * 10 + 9);
        writer.append(Batch::of([data(round * 10 + 9)]), None).await.unwrap();
        assert_eq!(numbers(&both.again, "a").await, expected);
    }
}

pub(crate) async fn f18_readers_stop_before_records_that_are_not_synced(both: Both) {
    let mut writer = both.store.open(&key("a"), None).await.unwrap();
    writer.append(Batch::of([data(1)]), None).await.unwrap();
    writer.append(buffered(data(2)), None).await.unwrap();
    // Wait until it is surely with the backend: a take elsewhere finds it.
    let moved_on = poll(|| async {
        match both.again.open(&key("a"), Some(Seq(7))).await {
            Err(OpenError::HeadChanged { found: Seq(1), .. }) => None,
            other => Some(other),
        }
    })
    .await;
    assert!(matches!(moved_on, Err(OpenError::HeadChanged { found: Seq(2), .. })));
    // That take showed it to readers; the next one is again only the backend's.
    writer.append(buffered(data(3)), None).await.unwrap();
    assert_eq!(numbers(&both.store, "a").await, [1, 2]);
    writer.append(Batch::of([data(4)]), None).await.unwrap();
    assert_eq!(numbers(&both.store, "a").await, [1, 2, 3, 4]);
}

pub(crate) async fn f18_a_dead_owners_buffered_records_are_shown_to_the_next_before_it_takes(both: Both) {
    let mut writer = both.store.open(&key("a"), None).await.unwrap();
    writer.append(Batch::of([data(1)]), None).await.unwrap();
    writer.append(buffered(data(2)), None).await.unwrap();
    drop(writer);
    let taken = poll(|| async {
        let seen = both.again.read(&LogKey::from(&key("a")), Seq(1), 10).await.unwrap().head.seq;
        let taken = both.again.open(&key("a"), Some(seen)).await;
        // Before the buffered batch reached the backend a take at 1 is right too; only what was seen may be taken.
        taken.ok().map(|writer| (seen, writer.last()))
    })
    .await;
    assert_eq!(taken.0, taken.1);
}

pub(crate) async fn f18_a_buffered_batch_of_a_fenced_writer_fails_its_next_synced_one(both: Both) {
    let mut old = both.store.open(&key("a"), None).await.unwrap();
    let _new = both.again.open(&key("a"), None).await.unwrap();
    old.append(buffered(data(1)), None).await.unwrap();
    let refused = old.append(Batch::of([data(2)]), None).await;
    assert!(matches!(refused, Err(AppendError::Fenced { .. })), "{refused:?}");
    assert!(session(&both.store, "a").await.is_empty());
}

pub(crate) async fn f22_a_sealed_session_is_not_opened_and_says_where_it_went(both: Both) {
    let mut writer = both.store.open(&key("a"), None).await.unwrap();
    writer.append(Batch::of([data(1)]).and(Body::Moved { to: "another store".to_owned() }), None).await.unwrap();
    let refused = writer.append(Batch::of([data(2)]), None).await;
    assert!(matches!(refused, Err(AppendError::Refused(Refused::Ended(End::Moved)))), "{refused:?}");
    for store in [&both.store, &both.again, &(both.reopen)()] {
        let refused = store.open(&key("a"), None).await;
        assert!(matches!(&refused, Err(OpenError::Moved { to, .. }) if to == "another store"), "{refused:?}");
    }
    assert_eq!(session(&both.store, "a").await.len(), 2);
}

pub(crate) async fn an_empty_batch_and_a_record_too_large_are_refused_and_write_nothing(both: Both) {
    let mut writer = both.store.open(&key("a"), None).await.unwrap();
    let refused = writer.append(Batch::of([]), None).await;
    assert!(matches!(refused, Err(AppendError::Refused(Refused::Empty))), "{refused:?}");
    let refused = writer.append(Batch::of([data(1), native(&vec![7; RECORD_BYTES])]), None).await;
    assert!(matches!(refused, Err(AppendError::Refused(Refused::TooLarge { .. }))), "{refused:?}");
    let refused = both.store.append_at(&ledger("r"), Seq::START, SharedBatch::Ledger(vec![])).await;
    assert!(matches!(refused, Err(AppendError::Refused(Refused::Empty))), "{refused:?}");
    assert!(session(&both.store, "a").await.is_empty());
    assert_eq!(writer.append(Batch::of([data(1)]), None).await.unwrap(), Seq(1));
}

pub(crate) async fn the_list_shows_each_session_with_its_run_and_end_in_key_order(both: Both) {
    for name in ["c", "a", "b", "d"] {
        let mut writer = both.store.open(&key(name), None).await.unwrap();
        if name != "c" {
            writer.append(Batch::of([bound("run-1")]), also("run-1", Seq::START, "x")).await.ok();
            writer.append(Batch::of([data(1)]), None).await.unwrap();
        }
        if name == "b" {
            writer.append(Batch::of([Body::Delivered(Delivered { value: json!(1) })]), None).await.unwrap();
        }
        if name == "d" {
            writer
                .append(Batch::of([Body::Failed(Failed { word: "w".into(), message: "m".into() })]), None)
                .await
                .unwrap();
        }
    }
    for store in [&both.store, &both.again] {
        let all = store.heads(None, 100).await.unwrap();
        let shown: Vec<_> = all.iter().map(|head| (head.key.as_str(), head.run.is_some(), head.end)).collect();
        assert_eq!(
            shown,
            [
                ("a", true, None),
                ("b", false, Some(End::Delivered)),
                ("c", false, None),
                ("d", false, Some(End::Failed))
            ]
        );
        assert_eq!(all[1].head, Head { seq: Seq(2), epoch: Epoch(1) });
        let page = store.heads(Some(&key("a")), 2).await.unwrap();
        assert_eq!(page, all[1..3]);
        assert!(store.heads(Some(&key("d")), 2).await.unwrap().is_empty());
    }
}

fn bound(run: &str) -> Body {
    let digest = Digest::of(b"");
    let plan = PlanDigests {
        prompt: digest.clone(),
        system: digest.clone(),
        schema: digest.clone(),
        tools: digest,
        model: "m".to_owned(),
        label: "l".to_owned(),
        attempt: 1,
    };
    Body::Bound(Bound {
        format: 1,
        adapter: "faux".to_owned(),
        binding: plan.binding(),
        plan,
        run: RunId::new(run).unwrap(),
        parent: None,
        builtins: Built::Neither,
        host: json!(null),
    })
}

pub(crate) async fn a_watch_sees_both_handles_commits(both: Both) {
    let log = LogKey::from(&key("a"));
    let mut watch = both.store.watch(&log).await.unwrap();
    assert_eq!(watch.head(), Head::default());
    let mut own = both.store.open(&key("a"), None).await.unwrap();
    own.append(Batch::of([data(1)]), None).await.unwrap();
    until(&mut watch, Head { seq: Seq(1), epoch: Epoch(1) }).await;
    let mut other = both.again.open(&key("a"), None).await.unwrap();
    until(&mut watch, Head { seq: Seq(1), epoch: Epoch(2) }).await;
    other.append(Batch::of([data(2), data(3)]), None).await.unwrap();
    until(&mut watch, Head { seq: Seq(3), epoch: Epoch(2) }).await;
    assert_eq!(both.store.watch(&log).await.unwrap().head(), Head { seq: Seq(3), epoch: Epoch(2) });
}

async fn until(watch: &mut Watch, wanted: Head) {
    let seen = async {
        while watch.head() != wanted {
            watch.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(20), seen).await.expect("the change was never shown");
}

/// Asks until there is an answer, for 20 s at most.
pub(crate) async fn poll<T, F: Future<Output = Option<T>>>(mut ask: impl FnMut() -> F) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), asking).await.expect("no answer in 20 s")
}

pub(crate) async fn a_dropped_append_is_still_in_the_log(both: Both) {
    let mut writer = both.store.open(&key("a"), None).await.unwrap();
    {
        let mut append = std::pin::pin!(writer.append(Batch::of([data(1)]), None));
        // Polled once: handed over, not answered.
        std::future::poll_fn(|context| {
            let _ = append.as_mut().poll(context);
            std::task::Poll::Ready(())
        })
        .await;
    }
    assert_eq!(poll(|| async { numbers(&both.again, "a").await.first().copied() }).await, 1);
    // It lost its place; it must not write over or beside what is there.
    let refused = writer.append(Batch::of([data(2)]), None).await;
    assert!(matches!(refused, Err(AppendError::Unknown(_)) | Ok(Seq(2))), "{refused:?}");
    assert_eq!(numbers(&both.again, "a").await.first(), Some(&1));
}

pub(crate) async fn a_long_log_reads_back_from_any_place(both: Both) {
    let (mut here, mut there) = (both.store.open(&key("b"), None).await.unwrap(), None);
    let mut n = 0;
    let mut sizes = [1_u64, 7, 128, 3, 250, 1, 128, 64].into_iter().cycle();
    while n < 1_200 {
        // The other log's records lie between this one's, and the owner changes, so that no writer knows all rows by itself.
        here.append(Batch::of([data(0)]), None).await.unwrap();
        let size = sizes.next().unwrap();
        let store = if n % 2 == 0 { &both.store } else { &both.again };
        let mut writer: SessionWriter = match there.take() {
            Some(writer) if n % 3 != 0 => writer,
            _ => store.open(&key("a"), Some(Seq(n))).await.unwrap(),
        };
        writer.append(Batch::of((n + 1..=n + size).map(data)), None).await.unwrap();
        n += size;
        there = Some(writer);
    }
    let store = (both.reopen)();
    assert_eq!(numbers(&store, "a").await, (1..=n).collect::<Vec<_>>());
    let log = LogKey::from(&key("a"));
    for from in [1, 2, 127, 128, 129, 256, 257, 700, n - 1, n, n + 1] {
        for limit in [1, 5, 130, 10_000] {
            let page = store.read(&log, Seq(from), limit).await.unwrap();
            let seqs: Vec<_> = page.frames.iter().map(|frame| frame.seq.0).collect();
            assert_eq!(seqs, (from..=n).take(limit).collect::<Vec<_>>(), "from {from}, limit {limit}");
            assert_eq!(page.head.seq, Seq(n));
        }
    }
}

pub(crate) async fn an_unknown_log_is_an_empty_one(both: Both) {
    let log = LogKey::from(&key("nobody"));
    let page = both.store.read(&log, Seq(1), 10).await.unwrap();
    assert!(page.frames.is_empty());
    assert_eq!(page.head, Head::default());
    assert_eq!(both.store.watch(&log).await.unwrap().head(), Head::default());
    assert!(both.store.heads(None, 10).await.unwrap().is_empty(), "looking at a session does not make one");
    assert_eq!(both.store.id(), both.again.id());
}
