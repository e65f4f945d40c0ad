//! What the ledger refuses before it writes, and what recovery posts from the session.

use std::sync::Arc;

use agentrun_cap::{Books, Decided, RaiseError, Word};
use agentrun_kernel::{Body, Epoch, HoldId, LedgerBody, LogKey, Record, Seq, SharedBatch, SharedLog, Usd, read_all};

use super::super::{Decide, LedgerError, RunLedger, read_books};
use super::{begin, booking, key, ledger, memory, outcome, records, run, session, usd};

#[tokio::test]
async fn a_cap_below_zero_is_refused_and_nothing_is_written() {
    let (store, _) = memory();
    let error = RunLedger::open(store.clone(), &run(), Some(usd("-0.5"))).await.unwrap_err();
    assert!(matches!(error, LedgerError::NegativeCap(cap) if cap == usd("-0.5")), "{error}");
    assert_eq!(records(&store, &run()).await.len(), 0);
}

#[tokio::test]
async fn b77_a_quote_below_zero_is_refused_and_nothing_is_written() {
    let (store, _) = memory();
    let (ledger, session) = (ledger(&store).await, session(&store, &key("a"), &run()).await);
    let error = begin(&ledger, &session.drive, usd("-0.5")).await.unwrap_err();
    assert!(matches!(&error, LedgerError::Denied(denied) if denied.word == Word::Unpriced), "{error}");
    assert_eq!(records(&store, &run()).await.len(), 1);
    drop(begin(&ledger, &session.drive, usd("0.5")).await.unwrap());
}

#[tokio::test]
async fn b81_a_raise_is_checked_before_it_is_written_and_is_one_raise_by_its_id() {
    let (store, other) = memory();
    let (one, two) = (ledger(&store).await, ledger(&other).await);
    let session = session(&store, &key("a"), &run()).await;
    drop(begin(&one, &session.drive, usd("0.75")).await.unwrap());
    let seq = one.books().await.unwrap().seq();
    let refused = |error: LedgerError| if let LedgerError::Raise(error) = error { error } else { panic!("{error}") };

    let below = refused(two.raise("r", usd("1.5"), Some(usd("0.8"))).await.unwrap_err());
    assert_eq!(below, RaiseError::BelowMinimum { asked: usd("1.5"), minimum: usd("1.55") });
    assert!(below.to_string().contains("ask for $1.55 or more"), "{below}");
    for low in ["1", "0", "-2"] {
        let error = refused(two.raise("r", usd(low), None).await.unwrap_err());
        assert!(matches!(error, RaiseError::BelowMinimum { minimum, .. } if minimum == usd("1.000000000001")));
    }
    assert_eq!(records(&store, &run()).await.len() as u64, seq.0, "nothing was written");

    two.raise("r", usd("1.55"), Some(usd("0.8"))).await.unwrap();
    one.raise("r", usd("1.55"), None).await.unwrap();
    let error = refused(one.raise("r", usd("2"), None).await.unwrap_err());
    assert!(matches!(error, RaiseError::Conflict { recorded, .. } if recorded == usd("1.55")), "{error}");
    assert_eq!(records(&store, &run()).await.len() as u64, seq.0 + 1, "one raise, however often it was asked for");
    drop(begin(&one, &session.drive, usd("0.8")).await.unwrap());
}

/// Ledger and session as a crash would leave them if the two were not one batch: the ledger lacks the end that the session has.
async fn end_in_the_session_only(cost: Option<Usd>) -> Books {
    let (store, other) = memory();
    let first = session(&store, &key("a"), &run()).await;
    let (effect, hold) = begin(&*ledger(&store).await, &first.drive, usd("0.5")).await.unwrap();
    let end = outcome(&effect, cost);
    effect.finish(end, Vec::new(), None).await.unwrap();
    let books = read_books(&*other, &run()).await.unwrap();
    assert_eq!((books.held(), books.open(&hold).is_some()), (usd("0.5"), true));

    let (second, ledger) = (session(&other, &key("a"), &run()).await, ledger(&other).await);
    ledger.reconcile(&second.drive).await.unwrap();
    let written = records(&store, &run()).await.len();
    ledger.reconcile(&second.drive).await.unwrap();
    assert_eq!(records(&store, &run()).await.len(), written, "posted once");
    ledger.books().await.unwrap()
}

#[tokio::test]
async fn f02_a_booking_that_the_ledger_lacks_is_posted_from_the_session_by_its_hold() {
    let books = end_in_the_session_only(Some(usd("0.125"))).await;
    assert_eq!((books.booked(), books.held(), books.unknown()), (usd("0.125"), Usd::ZERO, Usd::ZERO));
}

#[tokio::test]
async fn f02_an_end_without_a_price_is_posted_as_unknown_in_full() {
    let books = end_in_the_session_only(None).await;
    assert_eq!((books.booked(), books.held(), books.unknown()), (Usd::ZERO, Usd::ZERO, usd("0.5")));
    assert_eq!(books.unknown_count(), 1);
}

#[tokio::test]
async fn f02_a_hold_without_an_intent_is_released_by_a_newer_owner_only() {
    let (store, other) = memory();
    let first = session(&store, &key("a"), &run()).await;
    let ledger = ledger(&store).await;
    let lone = |id: &str, session: &str, epoch| LedgerBody::Hold {
        id: HoldId(id.into()),
        session: key(session),
        epoch: Epoch(epoch),
        what: "model".into(),
        quote: usd("0.25"),
        catalog: "test 1".into(),
    };
    // Its own, a proxy's in the same name, and another session's.
    let batch = SharedBatch::Ledger(vec![lone("own", "a", 1), lone("proxy", "a", 0), lone("other", "b", 1)]);
    store.append_at(&SharedLog::Ledger(run()), Seq(1), batch).await.unwrap();
    ledger.reconcile(&first.drive).await.unwrap();
    assert_eq!(ledger.books().await.unwrap().held(), usd("0.75"), "whoever held it may still begin it");

    let second = session(&other, &key("a"), &run()).await;
    ledger.reconcile(&second.drive).await.unwrap();
    let books = ledger.books().await.unwrap();
    assert_eq!((books.open(&HoldId("own".into())), books.held()), (None, usd("0.5")));
    assert_eq!(books.counted(), usd("0.5"), "and nothing of it was spent");
}

#[tokio::test]
async fn f02_an_open_request_is_left_to_the_decision_table() {
    let (store, other) = memory();
    let first = session(&store, &key("a"), &run()).await;
    let ledger = ledger(&store).await;
    let (effect, hold) = begin(&ledger, &first.drive, usd("0.5")).await.unwrap();
    drop((effect, first));
    let second = session(&other, &key("a"), &run()).await;
    ledger.reconcile(&second.drive).await.unwrap();
    assert!(ledger.books().await.unwrap().open(&hold).is_some());
}

#[tokio::test]
async fn report_5_a_price_that_cannot_be_booked_counts_as_unknown_in_both_logs() {
    let (store, _) = memory();
    let session = session(&store, &key("a"), &run()).await;
    let ledger = ledger(&store).await;
    let (effect, hold) = begin(&ledger, &session.drive, usd("0.5")).await.unwrap();
    let end = outcome(&effect, Some(usd("-3")));
    let outcome = ledger.finish(effect, end, &hold, booking(&hold, usd("-3"))).await.unwrap();
    assert_eq!(outcome.cost, None);
    let (books, spent) = (ledger.books().await.unwrap(), session.drive.with_state(|state| state.spent));
    assert_eq!((books.unknown(), books.held(), books.booked()), (usd("0.5"), Usd::ZERO, Usd::ZERO));
    assert_eq!((spent.unknown, spent.held, spent.booked), (usd("0.5"), Usd::ZERO, Usd::ZERO));
}

async fn open_decision(ledger: &Arc<RunLedger>, id: &str, quote: &str) -> super::super::PaidDecision {
    match ledger.clone().decide(id, &key("a"), usd(quote)).await.unwrap() {
        Decide::Open(decision) => decision,
        Decide::Known(amount) => panic!("known at ${amount}"),
    }
}

#[tokio::test]
async fn b75_b80_a_hosts_decision_is_held_booked_and_made_once_over_all_processes() {
    let (store, other) = memory();
    let (one, two) = (ledger(&store).await, ledger(&other).await);
    let decision = open_decision(&one, "route", "0.75").await;
    let held = two.clone().decide("route", &key("a"), usd("0.75")).await.unwrap_err();
    assert!(matches!(&held, LedgerError::Deciding { quote, .. } if *quote == usd("0.75")), "{held}");
    let denied = two.clone().decide("other", &key("a"), usd("0.3")).await.unwrap_err();
    assert!(matches!(&denied, LedgerError::Denied(denied) if denied.word == Word::OverCap), "{denied}");
    // A session's request stands before the same cap.
    let session = session(&other, &key("a"), &run()).await;
    assert!(matches!(begin(&two, &session.drive, usd("0.3")).await, Err(LedgerError::Denied(_))));

    decision.made(usd("0.25")).await.unwrap();
    let written = records(&store, &run()).await.len();
    let known = two.clone().decide("route", &key("a"), usd("0.75")).await.unwrap();
    assert!(matches!(known, Decide::Known(amount) if amount == usd("0.25")));
    let elsewhere = two.clone().decide("route", &key("b"), usd("0.75")).await.unwrap_err();
    assert!(matches!(elsewhere, LedgerError::DecidedElsewhere { .. }), "{elsewhere}");
    assert_eq!(records(&store, &run()).await.len(), written);
    let books = two.books().await.unwrap();
    assert_eq!((books.booked(), books.held(), books.left()), (usd("0.25"), Usd::ZERO, Some(usd("0.75"))));
}

#[tokio::test]
async fn b80_a_decision_whose_maker_is_gone_counts_in_full_and_is_never_made_twice() {
    let (store, other) = memory();
    let one = ledger(&store).await;
    let late = open_decision(&one, "route", "0.5").await;
    let two = ledger(&other).await;
    assert_eq!(two.books().await.unwrap().decision("route"), Some(Decided::Held(usd("0.5"))), "no clock frees it");
    two.give_up_decision("route").await.unwrap();
    two.give_up_decision("route").await.unwrap();
    let lost = two.clone().decide("route", &key("a"), usd("0.5")).await.unwrap_err();
    assert!(matches!(&lost, LedgerError::DecisionLost { quote, .. } if *quote == usd("0.5")), "{lost}");
    // Its maker lived after all: what counts for it stands, and is not counted twice.
    assert!(matches!(late.made(usd("0.25")).await, Err(LedgerError::DecisionLost { .. })));
    let books = two.books().await.unwrap();
    assert_eq!((books.counted(), books.unknown_count()), (usd("0.5"), 1));

    let unspent = open_decision(&two, "again", "0.5").await;
    unspent.not_made("the model was not asked").await.unwrap();
    drop(open_decision(&two, "again", "0.25").await);
    assert_eq!(two.books().await.unwrap().counted(), usd("0.75"), "a dropped one stays held");
    let negative = open_decision(&two, "third", "0.1").await;
    assert!(matches!(negative.made(usd("-1")).await, Err(LedgerError::Unfit(_))));
}

#[tokio::test]
async fn b80_a_long_ledger_opens_at_its_last_totals_and_without_any_from_its_start() {
    let (store, _) = memory();
    let mut writer = RunLedger::open(store.clone(), &run(), Some(usd("100"))).await.unwrap();
    writer.every = u64::MAX;
    let session = session(&store, &key("a"), &run()).await;
    let turn = |ledger: &RunLedger| {
        let drive = session.drive.clone();
        let books = ledger.with(|books| books.seq());
        (drive, books)
    };
    let (drive, _) = turn(&writer);
    for _ in 0..700 {
        let (effect, hold) = begin(&writer, &drive, usd("0.001")).await.unwrap();
        let end = outcome(&effect, Some(usd("0.001")));
        writer.finish(effect, end, &hold, booking(&hold, usd("0.001"))).await.unwrap();
    }
    let whole = |records: &[Record<LedgerBody>]| {
        let mut books = Books::new();
        books.fold(records).unwrap();
        books
    };
    let log = records(&store, &run()).await;
    assert_eq!(log.len(), 1_401);
    assert_eq!(read_books(&*store, &run()).await.unwrap(), whole(&log), "no totals: from the start");

    writer.every = 512;
    for step in 0..1_500 {
        let (effect, hold) = begin(&writer, &drive, usd("0.001")).await.unwrap();
        let end = outcome(&effect, Some(usd("0.001")));
        writer.finish(effect, end, &hold, booking(&hold, usd("0.001"))).await.unwrap();
        if step % 100 == 0 {
            let log = records(&store, &run()).await;
            assert_eq!(read_books(&*store, &run()).await.unwrap(), whole(&log), "after {step} more");
        }
    }
    let log = records(&store, &run()).await;
    let totals = log.iter().filter(|record| matches!(record.body, LedgerBody::Totals { .. })).count();
    assert!((5..=6).contains(&totals), "{totals} totals in {} records", log.len());
    // Totals far behind, as after thousands of open holds: read further back, never guessed.
    writer.every = u64::MAX;
    for _ in 0..1_700 {
        drop(begin(&writer, &drive, usd("0.001")).await.unwrap());
    }
    let log = records(&store, &run()).await;
    assert_eq!(read_books(&*store, &run()).await.unwrap(), whole(&log));
    let session = read_all::<Body>(&*store, &LogKey::from(&key("a"))).await.unwrap();
    assert!(session.len() > 4_000);
}
