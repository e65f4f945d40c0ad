//! The runner's own bounds end a node finally, and the same again from the records; the cap only parks it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agentrun_adapter::{AdapterError, Seat, Start, Turn, TurnEnd};
use agentrun_cap::{Denied, Scope, Word};
use agentrun_kernel::{Built, EffectKind, LedgerBody, Replay, SessionKey, SessionStore as _, SharedBatch, Spent, Usd};
use agentrun_runner::{EMPTY_TURNS, HarnessRunner, HostCheck, HostFault, MAX_SENDS, Node, NodeError, NodeWord};
use async_trait::async_trait;
use serde_json::{Value, json};

use crate::stub::{Stub, Turns};
use crate::world::{Probe, World, books_are_quiet, calls, count, intents, ledger, node, says, step, submits, when};

/// Runs a node that must end by `word`, finally, and holds that the same command says the same and does nothing.
pub(crate) async fn ends_finally(world: &World, runner: HarnessRunner, node: Node, word: NodeWord) -> NodeError {
    let error = runner.run_node(node.clone(), step()).await.unwrap_err();
    assert_eq!((error.word, error.is_final()), (word, true), "{error}");
    let records = world.records().await;
    assert_eq!(count(&records, "failed"), 1);
    let again = world.runner(json!([])).run_node(node, step()).await.unwrap_err();
    assert_eq!(again, error, "the same from the records");
    assert_eq!(world.records().await, records, "nothing was opened for it");
    assert_eq!(world.homes(), 0);
    error
}

pub(crate) fn always(step: Value) -> Value {
    json!([when(json!({}), step)])
}

#[tokio::test]
async fn b92_the_turn_limit_ends_a_node() {
    let world = World::new();
    let mut limited = node(Vec::new());
    limited.turn_limit = Some(2);
    ends_finally(&world, world.runner(always(says("thinking"))), limited, NodeWord::TurnLimit).await;
    assert_eq!(count(&world.records().await, "placed"), 2);
    books_are_quiet(&world).await;
}

#[tokio::test]
async fn b94_without_a_turn_limit_the_sends_are_bounded() {
    let world = World::new();
    ends_finally(&world, world.runner(always(says("thinking"))), node(Vec::new()), NodeWord::MaxSends).await;
    assert_eq!(count(&world.records().await, "placed"), MAX_SENDS as usize);
}

#[tokio::test]
async fn b92_a_turn_that_asks_for_too_many_requests_ends_the_node() {
    let (world, probe) = (World::new(), Probe::new());
    let mut limited = node(vec![probe.tool(Replay::Safe)]);
    limited.request_limit = 3;
    let searches = json!(["a", "b", "c", "d"].map(|q| calls("search", json!({ "q": q }))));
    ends_finally(&world, world.runner(searches), limited, NodeWord::RequestLimit).await;
    assert_eq!((intents(&world.records().await, EffectKind::Request).len(), probe.runs()), (3, 3));
}

#[tokio::test]
async fn b92_a_call_of_an_unknown_tool_ends_the_node() {
    let (world, probe) = (World::new(), Probe::new());
    let runner = world.runner(json!([calls("destroy", json!({}))]));
    let error = ends_finally(&world, runner, node(vec![probe.tool(Replay::Never)]), NodeWord::UnknownTool).await;
    assert!(error.message.contains("`destroy`"), "{error}");
    assert_eq!(intents(&world.records().await, EffectKind::Tool).len(), 0);
}

/// A harness that takes every message and goes idle without asking a model.
struct Idle;

#[async_trait]
impl Turns for Idle {
    async fn turn(&self, _: &Seat, turn: Turn) -> Result<TurnEnd, AdapterError> {
        if let Start::Place(ticket) = turn.start {
            ticket.place().await.unwrap();
        }
        Ok(TurnEnd::Idle)
    }
}

fn idle() -> Arc<Stub<Idle>> {
    Stub::of("idle", Built::Neither, Idle)
}

#[tokio::test]
async fn b26_a_fork_on_an_adapter_that_cannot_is_refused_finally_and_nothing_is_opened() {
    let world = World::new();
    let mut fork = node(Vec::new());
    fork.fork = true;
    for _ in 0..2 {
        let runner = HarnessRunner::new(idle(), world.options());
        let error = runner.run_node(fork.clone(), step()).await.unwrap_err();
        assert_eq!((error.word, error.is_final()), (NodeWord::ForkRefused, true), "{error}");
        assert_eq!(world.records().await, [], "B25: refused by check, so the session is not taken for it");
    }
}

#[tokio::test]
async fn b95_turns_without_request_and_delivery_end_the_node_as_no_progress() {
    let world = World::new();
    let error = HarnessRunner::new(idle(), world.options()).run_node(node(Vec::new()), step()).await.unwrap_err();
    assert_eq!((error.word, error.is_final()), (NodeWord::NoProgress, true));
    assert_eq!(count(&world.records().await, "placed"), EMPTY_TURNS as usize);
}

#[tokio::test]
async fn b95_a_paid_request_in_each_turn_is_progress() {
    let world = World::new();
    let thinks = json!({"text": "thinking", "times": EMPTY_TURNS * 2});
    let delivered = world.runner(json!([thinks, submits(1)])).run_node(node(Vec::new()), step()).await.unwrap();
    assert_eq!(delivered.turns, EMPTY_TURNS * 2 + 1);
}

#[tokio::test]
async fn b92_a_budget_too_small_for_a_request_ends_the_node_and_nothing_is_held() {
    let world = World::new();
    let mut poor = node(Vec::new());
    poor.budget = Some(Usd::from_pico(1));
    ends_finally(&world, world.runner(json!([submits(1)])), poor, NodeWord::OverBudget).await;
    assert_eq!(world.books().await.counted(), Usd::ZERO);
}

/// Counts the questions and says no to the nth.
struct Nth(AtomicUsize, usize);

#[async_trait]
impl HostCheck for Nth {
    async fn before_request(
        &self,
        _: &SessionKey,
        budget: Option<Usd>,
        spent: Spent,
    ) -> Result<Result<(), Denied>, HostFault> {
        let asked = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        assert_eq!(budget, Some("1".parse().unwrap()), "B9");
        assert_eq!(spent.booked > Usd::ZERO, asked > 1, "B9");
        Ok(if asked == self.1 { Err(Denied::because(Word::Host, Scope::Node, "enough")) } else { Ok(()) })
    }
}

#[tokio::test]
async fn b08_b10_the_host_is_asked_once_a_request_and_its_no_stops_it() {
    let (world, probe, check) = (World::new(), Probe::new(), Arc::new(Nth(AtomicUsize::new(0), 2)));
    let asked = check.clone();
    let runner = world.runner_with(json!([calls("search", json!({"q": "n"})), submits(1)]), |options| {
        options.before_request = Some(asked)
    });
    let mut rich = node(vec![probe.tool(Replay::Never)]);
    rich.budget = Some("1".parse().unwrap());
    ends_finally(&world, runner, rich, NodeWord::HostRefused).await;
    assert_eq!(check.0.load(Ordering::SeqCst), 2);
    assert_eq!(intents(&world.records().await, EffectKind::Request).len(), 1, "nothing was held for the second");
    books_are_quiet(&world).await;
}

/// Runs over a cap that has room for `room` more than nothing, raises it by what the park says, and goes on.
async fn parks_and_goes_on(steps: Value, cap: Usd, runs: usize) {
    let (world, probe) = (World::new(), Probe::new());
    let node = node(vec![probe.tool(Replay::Never)]);
    let capped = |world: &World| world.runner_with(steps.clone(), |options| options.cap = Some(cap));
    let error = capped(&world).run_node(node.clone(), step()).await.unwrap_err();
    assert_eq!(error.word, NodeWord::OverCap, "{error}");
    let park = error.park.unwrap();
    assert!(park.needed > cap && park.cap == cap);
    assert_eq!(probe.runs(), runs);
    let requests = intents(&world.records().await, EffectKind::Request).len();

    let still = capped(&world).run_node(node.clone(), step()).await.unwrap_err();
    assert_eq!((still.word, still.park.unwrap().needed), (NodeWord::OverCap, park.needed), "parked again");
    assert_eq!(intents(&world.records().await, EffectKind::Request).len(), requests, "and nothing sent");

    let raise = LedgerBody::Raise { id: "r1".to_owned(), cap: "10".parse().unwrap() };
    let head = world.books().await.seq();
    world.store.append_at(&ledger(), head, SharedBatch::Ledger(vec![raise])).await.unwrap();
    let delivered = capped(&world).run_node(node, step()).await.unwrap();
    assert_eq!(delivered.value, json!({"n": 7}));
    assert_eq!(probe.runs(), 1);
    assert_eq!(count(&world.records().await, "placed"), 1, "the prompt was placed once over all three runs");
    books_are_quiet(&world).await;
}

#[tokio::test]
async fn b78_f11_a_run_over_its_cap_parks_and_goes_on_after_a_raise() {
    parks_and_goes_on(json!([calls("search", json!({"q": "n"})), submits(7)]), Usd::from_pico(1), 0).await;
}

#[tokio::test]
async fn b78_f11_a_park_in_the_middle_of_a_turn_keeps_what_was_done() {
    // Dear enough that nothing is left for a second request: the first one's bill alone fills the cap.
    let dear = json!({"tools": [{"name": "search", "input": {"q": "n"}}], "usage": {"input": 20_000, "output": 4_000}});
    parks_and_goes_on(json!([dear, submits(7)]), "0.04".parse().unwrap(), 1).await;
}
