//! The recovery driver: two attempts a step, counted by the records alone. What spends one, what does not, and what the second knows of the
//! first.

use std::sync::Arc;

use agentrun_adapter::{
    AdapterError, AdapterErrorKind, AdapterProfile, AdapterSession, Admission, AgentAdapter, Checked, NativeHistory,
    Refusal, Seat, SessionPlan,
};
use agentrun_kernel::{
    Body, EffectKind, LedgerBody, LogKey, OutcomeEnd, Record, Replay, RunId, SessionKey, SessionState,
    SessionStore as _, SharedBatch, Survey, Usd, read_all, validate,
};
use agentrun_runner::recovery::{self, attempt_key};
use agentrun_runner::{Delivered, HarnessRunner, HostFault, Node, NodeError, NodeWord, Review, ReviewVerdict};
use async_trait::async_trait;
use serde_json::{Value, json};

use crate::logs::{Logs, inside_a_batch};
use crate::world::{
    Probe, World, adapter, calls, count, intents, key, ledger, node, outcomes, says, submits, when, within,
};

fn run_id() -> RunId {
    RunId::from(&key())
}

fn second() -> SessionKey {
    attempt_key(&key(), 2).unwrap()
}

async fn drive(runner: &HarnessRunner, node: Node) -> Result<Delivered, NodeError> {
    recovery::run(runner, &node, &key(), &run_id()).await
}

/// The records of one attempt, which are a valid log.
async fn records(world: &World, session: &SessionKey) -> Vec<Record> {
    let records = read_all::<Body>(&world.store, &LogKey::from(session)).await.unwrap();
    validate(&records).unwrap();
    records
}

/// How many attempts the records say were begun, and which of them were given up.
async fn attempts(world: &World) -> (usize, Vec<bool>) {
    let mut begun = Vec::new();
    for attempt in 1..=3 {
        let records = records(world, &attempt_key(&key(), attempt).unwrap()).await;
        if !records.is_empty() {
            begun.push(SessionState::fold(&records).failed.is_some_and(|failed| failed.word == "harness"));
        }
    }
    (begun.len(), begun)
}

/// A harness that lives in a step's second attempt only; in the first it plays `first` and then breaks, however often it is started.
struct Breaks {
    first: Arc<dyn AgentAdapter>,
    second: Arc<dyn AgentAdapter>,
}

#[async_trait]
impl AgentAdapter for Breaks {
    fn profile(&self) -> &AdapterProfile {
        self.first.profile()
    }
    fn history(&self) -> &dyn NativeHistory {
        self.first.history()
    }
    async fn check(&self, plan: &SessionPlan, prior: Option<&Survey>) -> Result<Checked, Refusal> {
        self.first.check(plan, prior).await
    }
    async fn open(&self, admission: Admission, seat: Seat) -> Result<Box<dyn AdapterSession>, AdapterError> {
        let of = if admission.plan().session == key() { &self.first } else { &self.second };
        of.open(admission, seat).await
    }
}

fn breaks(world: &World, first: Value, second: Value) -> HarnessRunner {
    HarnessRunner::new(Arc::new(Breaks { first: adapter(first), second: adapter(second) }), world.options())
}

/// A harness that cannot be started at all.
struct Dead(Arc<dyn AgentAdapter>);

#[async_trait]
impl AgentAdapter for Dead {
    fn profile(&self) -> &AdapterProfile {
        self.0.profile()
    }
    fn history(&self) -> &dyn NativeHistory {
        self.0.history()
    }
    async fn check(&self, plan: &SessionPlan, prior: Option<&Survey>) -> Result<Checked, Refusal> {
        self.0.check(plan, prior).await
    }
    async fn open(&self, _: Admission, _: Seat) -> Result<Box<dyn AdapterSession>, AdapterError> {
        Err(AdapterError::new(AdapterErrorKind::Spawn, "it does not start"))
    }
}

/// One search, and behind its result no step for any model: a harness that breaks there each time.
fn one_search() -> Value {
    json!([when(json!({"results": 0}), calls("search", json!({"q": "n"})))])
}

/// Searches, then submits what it is told: 1 for a result, 2 for an interruption, 3 for a refused repeat.
fn whole() -> Value {
    json!([
        when(json!({"contains": "found"}), submits(1)),
        when(json!({"contains": "was not run again. Find out"}), submits(2)),
        when(json!({"contains": "this tool must not run twice"}), submits(3)),
        when(json!({"results": 0}), calls("search", json!({"q": "n"}))),
    ])
}

#[tokio::test]
async fn b11_b12_a_step_runs_in_its_own_session_and_is_answered_from_its_records() {
    let (world, probe) = (World::new(), Probe::new());
    let delivered = drive(&world.runner(whole()), node(vec![probe.tool(Replay::Never)])).await.unwrap();
    assert_eq!((delivered.session, delivered.from_records), (key(), false));
    let before = world.records().await;
    let again = drive(&world.runner(json!([])), node(vec![probe.tool(Replay::Never)])).await.unwrap();
    assert_eq!((again.value, again.from_records, probe.runs()), (delivered.value, true, 1));
    assert_eq!(world.records().await, before, "nothing was opened for it");
}

#[tokio::test]
async fn b93_a_final_failure_gets_no_second_attempt() {
    let world = World::new();
    let mut limited = node(Vec::new());
    limited.turn_limit = Some(1);
    let error = drive(&world.runner(json!([says("no")])), limited.clone()).await.unwrap_err();
    assert_eq!(error.word, NodeWord::TurnLimit);
    let again = drive(&world.runner(json!([submits(1)])), limited).await.unwrap_err();
    assert_eq!(again, error);
    assert_eq!(attempts(&world).await, (1, vec![false]));
}

#[tokio::test]
async fn b93_a_session_whose_harness_breaks_again_gets_a_second_attempt_that_knows_its_receipts() {
    let (world, probe) = (World::new(), Probe::new());
    let node = node(vec![probe.tool(Replay::Never)]);
    let delivered = drive(&breaks(&world, one_search(), whole()), node.clone()).await.unwrap();
    assert_eq!((delivered.session, delivered.value), (second(), json!({"n": 1})));
    assert_eq!(attempts(&world).await, (2, vec![true, false]));
    assert_eq!(probe.runs(), 1, "the second attempt's search is answered from the first one's receipt");
    let first = world.records().await;
    assert_eq!(count(&first, "opened"), 3, "run, resumed once, settled for the next attempt");
    assert_eq!(SessionState::fold(&first).open_effects().count(), 0, "nothing is left open in it");
    let books = world.books().await;
    assert_eq!(books.held(), Usd::ZERO, "and nothing held");

    let again = drive(&world.runner(json!([])), node.clone()).await.unwrap();
    assert_eq!((again.session, again.from_records), (second(), true));
    assert_eq!(world.records().await, first);
    // Asked for by itself, the session that was given up says so, and nothing begins in it.
    let error = world.runner(whole()).run_node(node, crate::world::step()).await.unwrap_err();
    assert_eq!((error.word, error.is_final()), (NodeWord::Harness, false), "{error}");
    assert_eq!(world.records().await, first);
}

#[tokio::test]
async fn b93_behind_the_last_attempt_nothing_is_given_up_and_the_same_call_goes_on_in_it() {
    let (world, probe) = (World::new(), Probe::new());
    let node = node(vec![probe.tool(Replay::Never)]);
    let error = drive(&breaks(&world, one_search(), one_search()), node.clone()).await.unwrap_err();
    assert_eq!((error.word, error.session.clone()), (NodeWord::Harness, second()));
    assert_eq!(attempts(&world).await, (2, vec![true, false]));
    let still = drive(&breaks(&world, one_search(), one_search()), node.clone()).await.unwrap_err();
    assert_eq!((still.word, attempts(&world).await), (NodeWord::Harness, (2, vec![true, false])), "no third one");
    let delivered = drive(&breaks(&world, one_search(), whole()), node).await.unwrap();
    assert_eq!((delivered.session, delivered.value, probe.runs()), (second(), json!({"n": 1}), 1));
}

#[tokio::test]
async fn f04_what_an_earlier_attempt_may_have_half_done_is_refused_in_the_next() {
    let (world, probe) = (World::new(), Probe::held());
    let node = node(vec![probe.tool(Replay::Never)]);
    let running = tokio::spawn({
        let (runner, node) = (world.runner(whole()), node.clone());
        async move { drive(&runner, node).await }
    });
    probe.began().await;
    running.abort();
    assert!(within(running).await.unwrap_err().is_cancelled());

    let after = world.again();
    let delivered = drive(&breaks(&after, json!([]), whole()), node).await;
    // A script without a step breaks the harness in the first attempt, which is told of the interruption there.
    let delivered = delivered.unwrap();
    assert_eq!((delivered.session, delivered.value), (second(), json!({"n": 3})));
    assert_eq!(probe.runs(), 1);
    let of_second: Vec<_> =
        outcomes(&records(&after, &second()).await, EffectKind::Tool).iter().map(|outcome| outcome.end).collect();
    assert_eq!(of_second, [OutcomeEnd::Refused]);
}

#[tokio::test]
async fn f04_a_provider_that_fails_is_asked_once_more_and_spends_no_attempt() {
    let world = World::new();
    let down = || json!({"status": 529});
    let delivered = drive(&world.runner(json!([down(), submits(1)])), node(Vec::new())).await.unwrap();
    assert_eq!((delivered.session, delivered.turns), (key(), 1), "resumed: its prompt was not placed again");

    let world = World::new();
    let runner = world.runner(json!([down(), down(), submits(2)]));
    let error = drive(&runner, node(Vec::new())).await.unwrap_err();
    assert_eq!(error.word, NodeWord::Upstream);
    let delivered = drive(&runner, node(Vec::new())).await.unwrap();
    assert_eq!((delivered.session, delivered.value), (key(), json!({"n": 2})));
    assert_eq!(attempts(&world).await, (1, vec![false]));
}

/// Fails itself, as often as it is told to, then accepts.
struct Fails(std::sync::atomic::AtomicUsize);

#[async_trait]
impl Review for Fails {
    async fn review(&self, _: &str, _: &Value) -> Result<ReviewVerdict, HostFault> {
        use std::sync::atomic::Ordering::SeqCst;
        let left = self.0.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        left.map_or(Ok(ReviewVerdict::Accept), |_| Err(HostFault("the reviewer is away".to_owned())))
    }
}

#[tokio::test]
async fn a_hosts_own_fault_spends_no_attempt_and_no_request() {
    let world = World::new();
    let mut reviewed = node(Vec::new());
    reviewed.review = Some(Arc::new(Fails(4.into())));
    let runner = world.runner(json!([submits(1)]));
    let error = drive(&runner, reviewed.clone()).await.unwrap_err();
    assert_eq!(error.word, NodeWord::HostFault, "{error}");
    let error = drive(&runner, reviewed.clone()).await.unwrap_err();
    assert_eq!(error.word, NodeWord::HostFault, "asked again from the records, it failed once more");
    reviewed.review = None;
    let delivered = drive(&runner, reviewed).await.unwrap();
    assert_eq!((delivered.session, delivered.value), (key(), json!({"n": 1})));
    assert_eq!(intents(&world.records().await, EffectKind::Request).len(), 1);
    assert_eq!(attempts(&world).await, (1, vec![false]));
}

#[tokio::test]
async fn b22_a_stop_spends_no_attempt() {
    let (world, probe) = (World::new(), Probe::held());
    let (runner, node) = (world.runner(whole()), node(vec![probe.tool(Replay::Never)]));
    let running = tokio::spawn({
        let (runner, node) = (runner.clone(), node.clone());
        async move { drive(&runner, node).await }
    });
    probe.began().await;
    runner.stop(std::time::Duration::from_secs(600));
    probe.let_go();
    let error = within(running).await.unwrap().unwrap_err();
    assert_eq!(error.word, NodeWord::Aborted);
    let delivered = drive(&world.runner(whole()), node).await.unwrap();
    assert_eq!((delivered.session, delivered.value, probe.runs()), (key(), json!({"n": 1}), 1));
    assert_eq!(attempts(&world).await, (1, vec![false]));
}

#[tokio::test]
async fn b78_a_park_spends_no_attempt() {
    let world = World::new();
    let capped = || world.runner_with(json!([submits(7)]), |options| options.cap = Some(Usd::from_pico(1)));
    for _ in 0..2 {
        let error = drive(&capped(), node(Vec::new())).await.unwrap_err();
        assert_eq!(error.word, NodeWord::OverCap);
    }
    let raise = LedgerBody::Raise { id: "r1".to_owned(), cap: "10".parse().unwrap() };
    let head = world.books().await.seq();
    world.store.append_at(&ledger(), head, SharedBatch::Ledger(vec![raise])).await.unwrap();
    let delivered = drive(&capped(), node(Vec::new())).await.unwrap();
    assert_eq!((delivered.session, delivered.value), (key(), json!({"n": 7})));
    assert_eq!(attempts(&world).await, (1, vec![false]));
}

#[tokio::test]
async fn f03_a_fenced_driver_neither_takes_the_session_back_nor_begins_another() {
    let (world, probe) = (World::new(), Probe::held());
    let node = node(vec![probe.tool(Replay::Never)]);
    let first = tokio::spawn({
        let (runner, node) = (world.runner(whole()), node.clone());
        async move { drive(&runner, node).await }
    });
    probe.began().await;
    let other = world.again();
    let delivered = within(drive(&other.runner(whole()), node)).await.unwrap();
    assert_eq!((delivered.session, delivered.value), (key(), json!({"n": 2})));
    assert_eq!(within(first).await.unwrap().unwrap_err().word, NodeWord::Fenced);
    assert_eq!(attempts(&other).await, (1, vec![false]));
    probe.let_go();
}

#[tokio::test]
async fn b93_a_harness_that_cannot_be_started_spends_the_first_attempt_only() {
    let world = World::new();
    let dead = HarnessRunner::new(Arc::new(Dead(adapter(json!([])))), world.options());
    let error = drive(&dead, node(Vec::new())).await.unwrap_err();
    assert_eq!((error.word, error.session), (NodeWord::Harness, second()));
    let delivered = drive(&world.runner(json!([submits(1)])), node(Vec::new())).await.unwrap();
    assert_eq!(delivered.session, second());
}

/// A step of two attempts is cut behind each of its batches, in the first session and in the second: the death of the process there spends
/// nothing, whoever calls the driver again goes on in the attempt that the records say, and the tool runs once at most over all of them.
#[tokio::test]
async fn b93_a_process_death_behind_any_record_spends_no_attempt() {
    let before = World::new();
    let node = |probe: &Arc<Probe>| node(vec![probe.tool(Replay::Never)]);
    drive(&breaks(&before, one_search(), whole()), node(&Probe::new())).await.unwrap();
    let logs = Logs::of(&before).await;
    let of_second = records(&before, &second()).await;
    let given_up = logs.records.len();
    for length in 0..=given_up + of_second.len() {
        let (one, two) = (&logs.records[..length.min(given_up)], &of_second[..length.saturating_sub(given_up)]);
        if inside_a_batch(one, one.len()) || inside_a_batch(&of_second, two.len()) {
            continue;
        }
        let sessions: &[(SessionKey, &[Record])] =
            if two.is_empty() { &[(key(), one)] } else { &[(key(), one), (second(), two)] };
        let (world, probe) = (logs.lay(sessions).await, Probe::new());
        // The harness is sound now, so what goes on delivers where it stands.
        let delivered = drive(&world.runner(whole()), node(&probe)).await;
        let delivered = delivered.unwrap_or_else(|error| panic!("cut behind record {length}: {error}"));
        let expected = if length < given_up { key() } else { second() };
        assert_eq!(delivered.session, expected, "cut behind record {length}");
        let begun = intents(one, EffectKind::Tool).len() + intents(two, EffectKind::Tool).len();
        assert_eq!(probe.runs(), usize::from(begun == 0), "cut behind record {length}: it ran before, or runs now");
        assert!(attempts(&world).await.0 <= 2);
    }
}
