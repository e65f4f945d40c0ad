//! One ledger, many sessions: what is booked stays booked whatever becomes of them, a raise reaches a live one, and what no ledger takes is
//! refused before anything is begun.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agentrun_cap::Denied;
use agentrun_kernel::{
    EffectKind, LedgerBody, LogKey, Replay, RunId, Seq, SessionKey, SessionStore as _, SharedBatch, SharedLog, Spent,
    Usd, read_all,
};
use agentrun_runner::{HostCheck, HostFault, NodeWord, RunLedger, Step};
use async_trait::async_trait;
use serde_json::json;

use crate::parks::{costs, usd};
use crate::world::{Probe, World, calls, count, intents, key, node, step, submits};

fn in_run(session: &str, run: &str) -> Step {
    Step { run: RunId::new(run).unwrap(), ..Step::first(SessionKey::new(session).unwrap()) }
}

#[tokio::test]
async fn f21_b80_what_a_session_spent_counts_when_its_records_are_gone() {
    let (world, probe) = (World::new(), Probe::new());
    let cap = Some(usd("0.04"));
    let script = json!([costs(calls("search", json!({"q": "n"}))), costs(submits(1))]);
    let nodes = || node(vec![probe.tool(Replay::Never)]);
    let runner = world.runner_with(script.clone(), |options| options.cap = cap);
    runner.run_node(nodes(), in_run("first", "shared")).await.unwrap();

    // Another store that has the run's ledger and nothing of the session.
    let log = SharedLog::Ledger(RunId::new("shared").unwrap());
    let records = read_all::<LedgerBody>(&world.store, &LogKey::Shared(log.clone())).await.unwrap();
    let bodies: Vec<_> = records.into_iter().map(|record| record.body).collect();
    let length = bodies.len();
    let rest = World::new();
    rest.store.append_at(&log, Seq::START, SharedBatch::Ledger(bodies)).await.unwrap();
    let runner = rest.runner_with(script, |options| options.cap = cap);
    let error = runner.run_node(nodes(), in_run("second", "shared")).await.unwrap_err();
    assert_eq!(error.word, NodeWord::OverCap, "{error}");
    let books = runner.ledger(&RunId::new("shared").unwrap()).await.unwrap().books().await.unwrap();
    assert_eq!((books.booked(), books.seq().0), (usd("0.0302"), length as u64), "and nothing more was held");
}

#[tokio::test]
async fn b78_b81_a_raise_reaches_a_live_run_and_fences_nobody() {
    let (world, probe) = (World::new(), Probe::held());
    let script = json!([costs(calls("search", json!({"q": "n"}))), costs(submits(7))]);
    let runner = world.runner_with(script, |options| options.cap = Some(usd("0.03")));
    let nodes = node(vec![probe.tool(Replay::Never)]);
    let live = tokio::spawn(async move { runner.run_node(nodes, step()).await });
    probe.began().await;
    // Another process raises: the first request's bill leaves no room for a second one under the old cap.
    let other = world.again();
    let ledger = RunLedger::open(Arc::new(other.store.clone()), &(&key()).into(), None).await.unwrap();
    assert!(ledger.books().await.unwrap().admit(usd("0.02")).is_err());
    ledger.raise("r", usd("1"), None).await.unwrap();
    probe.let_go();
    let delivered = live.await.unwrap().unwrap();
    assert_eq!((delivered.value, delivered.spent.booked), (json!({"n": 7}), usd("0.0302")));
    let records = world.records().await;
    assert_eq!((count(&records, "opened"), count(&records, "parked")), (1, 0));
    assert!(records.iter().all(|record| record.epoch.0 == 1));
}

#[tokio::test]
async fn amounts_below_zero_are_refused_before_anything_is_opened_or_written() {
    let (world, probe) = (World::new(), Probe::new());
    let below = Some(usd("-0.01"));
    let plain = || node(vec![probe.tool(Replay::Never)]);
    let (mut budget, mut price) = (plain(), plain());
    budget.budget = below;
    price.tools[0].price = below;
    for (cap, node) in [(below, plain()), (None, budget), (None, price)] {
        let runner = world.runner_with(json!([submits(1)]), |options| options.cap = cap);
        let error = runner.run_node(node, step()).await.unwrap_err();
        assert_eq!(error.word, NodeWord::Refused, "{error}");
        assert!(error.message.contains("below zero"), "{error}");
        assert_eq!((world.records().await.len(), world.ledger().await.len()), (0, 0));
    }
}

/// Allows every request and counts them.
struct Counts(AtomicUsize);

#[async_trait]
impl HostCheck for Counts {
    async fn before_request(&self, _: &SessionKey, _: Option<Usd>, _: Spent) -> Result<Result<(), Denied>, HostFault> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Ok(()))
    }
}

#[tokio::test]
async fn b79_the_hosts_check_books_nothing_of_its_own() {
    let (world, probe, check) = (World::new(), Probe::new(), Arc::new(Counts(AtomicUsize::new(0))));
    let asked = check.clone();
    let script = json!([calls("search", json!({"q": "n"})), submits(1)]);
    let runner = world.runner_with(script, |options| options.before_request = Some(asked));
    let delivered = runner.run_node(node(vec![probe.tool(Replay::Never)]), step()).await.unwrap();
    let ledger = world.ledger().await;
    let of = |kind: fn(&LedgerBody) -> bool| ledger.iter().filter(|record| kind(&record.body)).count();
    let requests = intents(&world.records().await, EffectKind::Request).len();
    assert_eq!((check.0.load(Ordering::SeqCst), requests), (2, 2));
    assert_eq!(of(|body| matches!(body, LedgerBody::Hold { .. })), 2);
    assert_eq!(of(|body| matches!(body, LedgerBody::Booking { .. })), 2);
    assert_eq!((ledger.len(), world.books().await.booked()), (5, delivered.spent.booked));
    assert!(delivered.spent.booked > Usd::ZERO);
}
