//! The session task and its drive over a store in memory: what is durable before what, who is joined, who is refused, and what a fence ends.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a failed test is a report"
)]

mod common;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use agentrun_kernel::{
    Batch, Begun, Body, Digest, Drive, DriveError, Durability, EffectKind, EffectSpec, HoldId, Invariant, LedgerBody,
    LogKey, MemoryStore, Message, OnRepeat, OpenEffect, Outcome, OutcomeEnd, Owned, Record, Replay, RunId, Seq,
    SessionKey, SessionState, SessionStore as _, SessionTask, SharedAppend, SharedBatch, SharedLog, Source, Unfinished,
    read_all, validate,
};
use common::{bound, effect, key, message, native, opened, outcome, submission, turn, usd, words};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// One owner of the session.
struct Owner {
    store: MemoryStore,
    task: SessionTask,
    drive: Drive,
    events: mpsc::UnboundedReceiver<Arc<Record>>,
}

impl Owner {
    /// Takes the session and records its opening.
    async fn take(store: &MemoryStore, earlier: Vec<SessionState>) -> Self {
        let store = store.again().unwrap();
        let records = read_all::<Body>(&store, &LogKey::from(&key())).await.unwrap();
        let state = validate(&records).unwrap();
        let writer = store.open(&key(), Some(state.head)).await.unwrap();
        let watch = store.watch(&LogKey::from(&key())).await.unwrap();
        let (to, events) = mpsc::unbounded_channel();
        let fresh = state.bound.is_none();
        let task = SessionTask::spawn(Owned { writer, state, watch, earlier, events: Some(to) });
        let drive = task.drive();
        drive.append(Batch::of(fresh.then(bound).into_iter().chain([opened()])), None).await.unwrap();
        Self { store, task, drive, events }
    }

    async fn first() -> Self {
        Self::take(&MemoryStore::new().unwrap(), Vec::new()).await
    }

    /// What the log holds, which is a legal log.
    async fn log(&self) -> Vec<Record> {
        let records = read_all::<Body>(&self.store, &LogKey::from(&key())).await.unwrap();
        validate(&records).unwrap();
        records
    }

    /// Begins `spec` and must be let run it.
    async fn opens(&self, spec: EffectSpec) -> OpenEffect {
        match self.drive.begin(spec, Vec::new(), None).await.unwrap() {
            Begun::Open(effect) => effect,
            other => panic!("not opened: {other:?}"),
        }
    }

    /// Begins `spec` and must be told how it ended.
    async fn knows(&self, spec: EffectSpec) -> Arc<Outcome> {
        match self.drive.begin(spec, Vec::new(), None).await.unwrap() {
            Begun::Known(outcome) => outcome,
            other => panic!("not known: {other:?}"),
        }
    }

    /// The events so far.
    fn seen(&mut self) -> Vec<Arc<Record>> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }
}

/// A never call of `tool` under this key, with arguments of its own.
fn call(name: &str, arguments: Value) -> EffectSpec {
    EffectSpec {
        key: effect(name),
        kind: EffectKind::Tool,
        replay: Replay::Never,
        on_repeat: OnRepeat::Refuse,
        name: "tool".to_owned(),
        turn: None,
        call: None,
        digest: Digest::of_json(&arguments),
        arguments,
        paid: None,
    }
}

fn plain(name: &str) -> EffectSpec {
    call(name, json!({ "of": name }))
}

fn ok(name: &str) -> Outcome {
    outcome(name, OutcomeEnd::Ok)
}

fn note(name: &str) -> Body {
    Body::Data { name: name.to_owned(), value: Value::Null }
}

fn fenced<T: std::fmt::Debug>(answer: Result<T, DriveError>) {
    assert!(matches!(&answer, Err(DriveError::Restart(restart)) if restart.is_fenced()), "{answer:?}");
}

/// Polls a future once, as far as handing its command over, and drops it.
async fn begin_and_drop(future: impl Future) {
    let mut future = pin!(future);
    poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending(), "it must still wait for its answer");
        Poll::Ready(())
    })
    .await;
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it did not come within the bound")
}

#[tokio::test]
async fn b49_what_a_drive_writes_is_in_the_log_under_its_epoch() {
    let first = Owner::first().await;
    first.drive.append(Batch::of([note("a")]), None).await.unwrap();
    let second = Owner::take(&first.store, Vec::new()).await;
    second.drive.append(Batch::of([note("b")]), None).await.unwrap();
    let epochs: Vec<_> = second.log().await.iter().map(|record| record.epoch.0).collect();
    assert_eq!(epochs, [1, 1, 1, 2, 2]);
    assert_eq!(second.drive.state(), SessionState::fold(&second.log().await), "what it shows is what the log says");
}

#[tokio::test]
async fn b50_an_intent_is_durable_before_the_effect_may_run() {
    let owner = Owner::first().await;
    let running = owner.opens(plain("a")).await;
    // Another process reads it before the effect has done anything.
    let elsewhere = owner.store.again().unwrap();
    let records = read_all::<Body>(&elsewhere, &LogKey::from(&key())).await.unwrap();
    assert!(matches!(&records.last().unwrap().body, Body::Intent(intent) if intent.key == effect("a")));
    running.finish(ok("a"), Vec::new(), None).await.unwrap();
}

#[tokio::test]
async fn inv7_what_explains_an_intent_stands_before_it_in_one_batch() {
    let owner = Owner::first().await;
    let begun = owner.drive.begin(plain("a"), vec![native(0, "call\n")], None).await.unwrap();
    let kinds: Vec<_> = owner.log().await.iter().map(|record| record.body.kind()).collect();
    assert_eq!(kinds[2..], ["native", "intent"]);
    // An intent that is refused takes its explanation with it.
    let again = owner.drive.begin(EffectSpec { paid: None, ..plain("b") }, vec![native(99, "x")], None).await;
    assert!(
        matches!(again, Err(DriveError::Illegal(illegal)) if illegal.invariant == Invariant::NativeExtent),
        "{again:?}"
    );
    assert_eq!(owner.log().await.len(), 4);
    drop(begun);
}

#[tokio::test]
async fn b51_f05_the_same_key_joins_the_running_call_and_is_known_afterwards() {
    let owner = Owner::first().await;
    let running = owner.opens(plain("a")).await;
    let Begun::Running(joined) = owner.drive.begin(plain("a"), Vec::new(), None).await.unwrap() else {
        panic!("not joined")
    };
    let waits = tokio::spawn(joined.outcome());
    let ended = running.finish(ok("a"), Vec::new(), None).await.unwrap();
    assert_eq!(within(waits).await.unwrap(), Some(ended.clone()));
    assert_eq!(owner.knows(plain("a")).await, ended);
    let kinds: Vec<_> = owner.log().await.iter().map(|record| record.body.kind()).collect();
    assert_eq!(kinds[2..], ["intent", "outcome"], "one intent, one outcome");
}

#[tokio::test]
async fn b51_a_second_outcome_is_illegal_and_not_written() {
    let owner = Owner::first().await;
    owner.opens(plain("a")).await.finish(ok("a"), Vec::new(), None).await.unwrap();
    let again = owner.drive.append(Batch::of([Body::Outcome(ok("a"))]), None).await;
    assert!(
        matches!(again, Err(DriveError::Illegal(illegal)) if illegal.invariant == Invariant::OneOutcome),
        "{again:?}"
    );
    assert_eq!(owner.log().await.len(), 4);
    owner.drive.append(Batch::of([note("a")]), None).await.expect("a refused batch harms nothing");
}

#[tokio::test]
async fn f07_a_caller_that_goes_away_cancels_nothing_and_nothing_lands_twice() {
    let owner = Owner::first().await;
    begin_and_drop(owner.drive.begin(plain("a"), Vec::new(), None)).await;
    // The next command is served behind it.
    owner.drive.append(Batch::of([note("x")]), None).await.unwrap();
    assert_eq!(owner.log().await[2].body.kind(), "intent", "the intent landed though nobody waited");
    // Nobody runs it: it is not begun a second time, but this owner may end it.
    let again = owner.drive.begin(plain("a"), Vec::new(), None).await;
    assert!(
        matches!(again, Err(DriveError::Illegal(illegal)) if illegal.invariant == Invariant::OneIntent),
        "{again:?}"
    );
    let Begun::Open(open) = owner.drive.reopen(&effect("a")).await.unwrap() else { panic!("it is open") };

    begin_and_drop(open.finish(ok("a"), Vec::new(), None)).await;
    owner.drive.append(Batch::of([note("y")]), None).await.unwrap();
    let ends = owner.log().await.iter().filter(|record| record.body.kind() == "outcome").count();
    assert_eq!(ends, 1, "the outcome landed");
    assert!(
        matches!(owner.drive.reopen(&effect("a")).await.unwrap(), Begun::Known(known) if known.end == OutcomeEnd::Ok)
    );
}

#[tokio::test]
async fn f07_a_dropped_placement_places_once() {
    let owner = Owner::first().await;
    owner.drive.append(Batch::of([submission("w", Source::Node)]), None).await.unwrap();
    let said = Message {
        id: message("m"),
        turn: turn("t"),
        carries: vec![words("w")],
        replaces: Vec::new(),
        text: Arc::from("w"),
    };
    begin_and_drop(owner.drive.ticket(said.clone()).place()).await;
    let again = owner.drive.ticket(said).place().await;
    assert!(matches!(again, Err(DriveError::Illegal(illegal)) if illegal.invariant == Invariant::OneTurn), "{again:?}");
    assert_eq!(owner.drive.with_state(|state| state.turns), 1);
}

#[tokio::test]
async fn inv3_the_text_of_a_placed_message_is_the_text_it_yields() {
    let owner = Owner::first().await;
    owner.drive.append(Batch::of([submission("w", Source::Node)]), None).await.unwrap();
    let said = Message {
        id: message("m"),
        turn: turn("t"),
        carries: vec![words("w")],
        replaces: Vec::new(),
        text: Arc::from("exactly this"),
    };
    let sent = owner.drive.ticket(said).place().await.unwrap();
    assert!(matches!(&owner.log().await.last().unwrap().body, Body::Placed(placed) if placed.text == sent.text));
}

#[tokio::test]
async fn an_effect_whose_runner_lets_go_is_told_to_who_waits_and_can_be_ended() {
    let owner = Owner::first().await;
    let running = owner.opens(plain("a")).await;
    let Begun::Running(joined) = owner.drive.begin(plain("a"), Vec::new(), None).await.unwrap() else {
        panic!("not joined")
    };
    drop(running);
    assert_eq!(within(joined.outcome()).await, None);
    let Begun::Open(open) = owner.drive.reopen(&effect("a")).await.unwrap() else { panic!("it is open") };
    open.finish(outcome("a", OutcomeEnd::Interrupted), Vec::new(), None).await.unwrap();
    assert_eq!(owner.knows(plain("a")).await.end, OutcomeEnd::Interrupted);
    let unknown = owner.drive.reopen(&effect("never begun")).await;
    assert!(matches!(unknown, Err(DriveError::Illegal(_))), "{unknown:?}");
}

#[tokio::test]
async fn b55_a_fenced_drive_gets_restart_and_opens_nothing() {
    let mut first = Owner::first().await;
    let running = first.opens(plain("a")).await;
    first.seen();
    let second = Owner::take(&first.store, Vec::new()).await;
    let before = second.log().await;
    fenced(first.drive.begin(plain("b"), Vec::new(), None).await);
    let unfinished: Unfinished = running.finish(ok("a"), Vec::new(), None).await.unwrap_err();
    fenced(Err::<(), _>(unfinished.error));
    fenced(first.drive.append(Batch::of([note("c")]), None).await);
    fenced(first.drive.reopen(&effect("a")).await);
    assert_eq!(second.log().await, before, "nothing was written");
    assert_eq!(first.seen(), [], "B17: and nothing was told");
    assert!(within(first.drive.lost()).await.is_fenced());
    // The new owner decides about what the old one left open.
    assert!(matches!(second.drive.reopen(&effect("a")).await.unwrap(), Begun::Open(_)));
}

#[tokio::test]
async fn b55_f27_an_idle_owner_learns_that_it_was_fenced() {
    let first = Owner::first().await;
    let waits = tokio::spawn({
        let drive = first.drive.clone();
        async move { drive.lost().await }
    });
    let _second = Owner::take(&first.store, Vec::new()).await;
    assert!(within(waits).await.unwrap().is_fenced(), "though it wrote nothing");
    fenced(first.drive.begin(plain("a"), Vec::new(), None).await);
}

#[tokio::test]
async fn b43_a_fence_is_of_its_own_session_only() {
    let first = Owner::first().await;
    let other = SessionKey::new("another").unwrap();
    let _other = first.store.open(&other, None).await.unwrap();
    first.drive.append(Batch::of([note("a")]), None).await.unwrap();
}

#[tokio::test]
async fn b16_f30_events_are_the_records_in_their_order_whoever_appended_them() {
    let mut owner = Owner::first().await;
    let appends: Vec<_> = (0..40)
        .map(|n| {
            let drive = owner.drive.clone();
            tokio::spawn(async move {
                let name = format!("e{n}");
                let Begun::Open(open) = drive.begin(plain(&name), Vec::new(), None).await.unwrap() else {
                    panic!("not opened")
                };
                open.finish(ok(&name), vec![note(&name)], None).await.unwrap();
            })
        })
        .collect();
    for append in appends {
        within(append).await.unwrap();
    }
    let log: Vec<_> = owner.log().await;
    let seen: Vec<_> = owner.seen().iter().map(|record| (record.seq, record.epoch, record.body.clone())).collect();
    assert_eq!(seen, log.into_iter().map(|record| (record.seq, record.epoch, record.body)).collect::<Vec<_>>());
}

#[tokio::test]
async fn b16_b17_an_outcome_is_told_once_it_is_durable_with_the_text_of_its_record() {
    let mut owner = Owner::first().await;
    let running = owner.opens(plain("a")).await;
    owner.seen();
    let finishing = running.finish(ok("a"), Vec::new(), None).await.unwrap();
    let seen = owner.seen();
    let Body::Outcome(told) = &seen[0].body else { panic!("{seen:?}") };
    let Body::Outcome(kept) = owner.log().await.last().unwrap().body.clone() else { panic!("no outcome") };
    assert_eq!((&told.text, &finishing.text), (&kept.text, &kept.text));
}

#[tokio::test]
async fn f18_buffered_records_are_told_with_the_synced_batch_that_makes_them_durable() {
    let mut owner = Owner::first().await;
    owner.seen();
    let buffered = Batch { bodies: vec![native(0, "line\n")], durability: Durability::Buffered };
    owner.drive.append(buffered, None).await.unwrap();
    assert_eq!(owner.seen(), [], "not yet durable, not yet told");
    owner.drive.append(Batch::of([note("a")]), None).await.unwrap();
    let kinds: Vec<_> = owner.seen().iter().map(|record| record.body.kind()).collect();
    assert_eq!(kinds, ["native", "data"]);
}

/// A finished session with one never call under `arguments` that ended like this; `None`: it was open when the session was cut.
async fn attempt(arguments: Value, end: Option<OutcomeEnd>) -> SessionState {
    let owner = Owner::first().await;
    let open = owner.opens(call("first", arguments)).await;
    if let Some(end) = end {
        open.finish(outcome("first", end), Vec::new(), None).await.unwrap();
    }
    owner.drive.state()
}

#[tokio::test]
async fn f04_a_completed_never_call_is_answered_from_its_receipt_in_a_later_attempt() {
    let (same, other) = (json!({"q": 1}), json!({"q": 2}));
    let earlier = attempt(same.clone(), Some(OutcomeEnd::Ok)).await;
    let owner = Owner::take(&MemoryStore::new().unwrap(), vec![earlier]).await;
    let known = owner.knows(call("later", same.clone())).await;
    assert_eq!((known.end, known.text.as_ref()), (OutcomeEnd::Ok, "first ended"));
    assert_eq!(owner.log().await.len(), 4, "with an intent and an outcome of its own");
    drop(owner.opens(call("other", other)).await);
    let safe = EffectSpec { replay: Replay::Safe, ..call("safe", same) };
    drop(owner.opens(safe).await);
}

#[tokio::test]
async fn f04_what_an_earlier_attempt_left_in_doubt_is_refused_and_what_failed_there_may_run() {
    let same = json!({"q": 1});
    for in_doubt in [None, Some(OutcomeEnd::Interrupted)] {
        let earlier = attempt(same.clone(), in_doubt).await;
        let owner = Owner::take(&MemoryStore::new().unwrap(), vec![earlier]).await;
        assert_eq!(owner.knows(call("later", same.clone())).await.end, OutcomeEnd::Refused, "{in_doubt:?}");
    }
    for ended in [OutcomeEnd::Error, OutcomeEnd::Refused] {
        let earlier = attempt(same.clone(), Some(ended)).await;
        let owner = Owner::take(&MemoryStore::new().unwrap(), vec![earlier]).await;
        drop(owner.opens(call("later", same.clone())).await);
    }
}

#[tokio::test]
async fn f04_the_newest_earlier_attempt_that_knows_a_call_decides() {
    let same = json!({"q": 1});
    let (interrupted, completed) =
        (attempt(same.clone(), Some(OutcomeEnd::Interrupted)).await, attempt(same.clone(), Some(OutcomeEnd::Ok)).await);
    let none = attempt(json!({"q": 2}), Some(OutcomeEnd::Ok)).await;
    let owner = Owner::take(&MemoryStore::new().unwrap(), vec![interrupted, completed, none]).await;
    assert_eq!(owner.knows(call("later", same)).await.end, OutcomeEnd::Ok);
}

#[tokio::test]
async fn f04_an_interrupted_never_call_is_refused_as_often_as_it_is_repeated() {
    let (owner, same) = (Owner::first().await, json!({"q": 1}));
    let cut = owner.opens(call("a", same.clone())).await;
    cut.finish(outcome("a", OutcomeEnd::Interrupted), Vec::new(), None).await.unwrap();
    for name in ["b", "c", "d"] {
        let refused = owner.knows(call(name, same.clone())).await;
        assert_eq!(refused.end, OutcomeEnd::Refused, "repeat {name}");
        assert!(refused.text.contains("`tool`") && refused.text.contains("may have partly run"), "{}", refused.text);
    }
    drop(owner.opens(call("e", json!({"q": 2}))).await);
}

#[tokio::test]
async fn f04_a_tool_that_allows_repeats_runs_again_and_a_completed_call_may_be_made_twice_in_a_session() {
    let (owner, same) = (Owner::first().await, json!({"q": 1}));
    let allowed = |name| EffectSpec { on_repeat: OnRepeat::Allow, ..call(name, same.clone()) };
    owner.opens(allowed("a")).await.finish(outcome("a", OutcomeEnd::Interrupted), Vec::new(), None).await.unwrap();
    owner.opens(allowed("b")).await.finish(ok("b"), Vec::new(), None).await.unwrap();
    drop(owner.opens(call("c", same.clone())).await);
}

#[tokio::test]
async fn f04_a_refused_repeat_of_a_paid_call_holds_nothing() {
    let (owner, same) = (Owner::first().await, json!({"q": 1}));
    owner
        .opens(call("a", same.clone()))
        .await
        .finish(outcome("a", OutcomeEnd::Interrupted), Vec::new(), None)
        .await
        .unwrap();
    let spec = EffectSpec { paid: Some((HoldId("h".to_owned()), usd("1"))), ..call("b", same) };
    let begun = owner.drive.begin(spec, Vec::new(), Some(hold(Seq::START, "h"))).await.unwrap();
    assert!(matches!(begun, Begun::Known(_)));
    assert_eq!(owner.drive.state().spent.counted(), agentrun_kernel::Usd::ZERO);
    assert!(read_all::<LedgerBody>(&owner.store, &LogKey::Shared(ledger())).await.unwrap().is_empty());
}

fn ledger() -> SharedLog {
    SharedLog::Ledger(RunId::from(&key()))
}

fn hold(expected: Seq, id: &str) -> SharedAppend {
    let body = LedgerBody::Hold {
        id: HoldId(id.to_owned()),
        session: key(),
        epoch: agentrun_kernel::Epoch(1),
        what: "tool".to_owned(),
        quote: usd("1"),
        catalog: "c".to_owned(),
    };
    SharedAppend { log: ledger(), expected, batch: SharedBatch::Ledger(vec![body]) }
}

#[tokio::test]
async fn inv6_a_hold_and_its_intent_land_together_or_not_at_all() {
    let owner = Owner::first().await;
    let paid = |name: &str| EffectSpec { paid: Some((HoldId(name.to_owned()), usd("1"))), ..plain(name) };
    let begun = owner.drive.begin(paid("a"), Vec::new(), Some(hold(Seq::START, "a"))).await.unwrap();
    let stale = owner.drive.begin(paid("b"), Vec::new(), Some(hold(Seq::START, "b"))).await;
    assert!(matches!(stale, Err(DriveError::Conflict { found: Seq(1), .. })), "{stale:?}");
    assert_eq!(owner.log().await.len(), 3, "no intent without its hold");
    let mut waits = vec![owner.drive.begin(paid("b"), Vec::new(), Some(hold(Seq(1), "b"))).await.unwrap(), begun];
    // A conflict at the end gives the effect back for another try.
    let Some(Begun::Open(open)) = waits.pop() else { panic!("not opened") };
    let unfinished = open.finish(ok("a"), Vec::new(), Some(hold(Seq::START, "c"))).await.unwrap_err();
    assert!(matches!(unfinished.error, DriveError::Conflict { .. }));
    unfinished.effect.finish(ok("a"), Vec::new(), Some(hold(Seq(2), "c"))).await.unwrap();
}

#[tokio::test]
async fn f20_verdict_outcome_and_delivery_are_one_batch() {
    let owner = Owner::first().await;
    let spec = EffectSpec { kind: EffectKind::Submit, replay: Replay::Safe, ..plain("a") };
    let open = owner.opens(spec).await;
    owner.drive.append(Batch::of([common::candidate(1, "a")]), None).await.unwrap();
    open.finish_after(vec![common::verdict(1, true)], ok("a"), vec![common::delivered()]).await.unwrap();
    let kinds: Vec<_> = owner.log().await.iter().map(|record| record.body.kind()).collect();
    assert_eq!(kinds[2..], ["intent", "candidate", "verdict", "outcome", "delivered"]);
    let late = owner.drive.begin(plain("b"), Vec::new(), None).await;
    assert!(
        matches!(late, Err(DriveError::Illegal(illegal)) if illegal.invariant == Invariant::DeliveredOnce),
        "{late:?}"
    );
}

#[tokio::test]
async fn a_joined_task_gives_its_writer_back_once_every_handle_is_gone() {
    let Owner { task, drive, .. } = Owner::first().await;
    let held = drive.clone();
    let joined = tokio::spawn(task.join());
    drop(drive);
    held.append(Batch::of([note("a")]), None).await.unwrap();
    drop(held);
    assert_eq!(within(joined).await.unwrap().unwrap().last(), Seq(3));
}
