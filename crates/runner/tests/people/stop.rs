//! A stop, for what the tests of whole nodes leave open: harnesses that cannot drain, calls that wait for their turn, and the moment of the
//! stop itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use agentrun_cap::Denied;
use agentrun_kernel::{EffectKind, Replay, SessionKey, Spent, Usd};
use agentrun_runner::{HarnessRunner, HostCheck, HostFault, NodeWord};
use agentrun_testing::faux::FauxAdapter;
use agentrun_testing::script::Script;
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::world::{Probe, World, calls, count, intents, node, outcomes, says, step, submits, when, within};

/// Long enough that no test meets it.
const DRAIN: Duration = Duration::from_secs(600);

fn script() -> Value {
    json!([
        when(json!({"contains": "found"}), submits(1)),
        when(json!({"contains": "was not run again"}), submits(2)),
        when(json!({"results": 0}), calls("search", json!({"q": "n"}))),
    ])
}

#[tokio::test]
async fn b21_a_harness_that_cannot_drain_is_stopped_at_once_and_its_call_is_recorded_when_it_ends() {
    let (world, probe) = (World::new(), Probe::held());
    let script_of = || Script::parse(&json!({ "steps": script() }).to_string()).unwrap();
    let runner = HarnessRunner::new(Arc::new(FauxAdapter::new(script_of()).without_drain()), world.options());
    let owner = runner.clone();
    let node_of = |probe: &Arc<Probe>| node(vec![probe.tool(Replay::Never)]);
    let running = tokio::spawn({
        let node = node_of(&probe);
        async move { owner.run_node(node, step()).await }
    });
    probe.began().await;
    runner.stop(DRAIN);
    let error = within(running).await.unwrap().unwrap_err();
    assert_eq!((error.word, error.is_final()), (NodeWord::Aborted, false), "B22: {error}");
    assert!(
        outcomes(&world.records().await, EffectKind::Tool).is_empty(),
        "nothing is made up for the call that runs on"
    );
    probe.let_go();
    let recorded = async {
        while outcomes(&world.records().await, EffectKind::Tool).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    within(recorded).await;
    let again = HarnessRunner::new(Arc::new(FauxAdapter::new(script_of()).without_drain()), world.options());
    let delivered = within(again.run_node(node_of(&probe), step())).await.unwrap();
    assert_eq!((delivered.value, probe.runs()), (json!({"n": 1}), 1), "B23, B24");
}

#[tokio::test]
async fn f32_b19_a_call_that_waits_for_an_exclusive_one_never_began_at_the_stop_and_runs_once_on_resume() {
    let (world, alone, other) = (World::new(), Probe::held(), Probe::new());
    let steps = json!([
        when(json!({"results": 2}), submits(1)),
        when(
            json!({"results": 0}),
            json!({"tools": [
                {"name": "alone", "input": {"q": "a"}},
                {"name": "search", "input": {"q": "b"}},
            ]})
        ),
    ]);
    let tools = || {
        let mut exclusive = alone.tool(Replay::Never);
        exclusive.spec.name = "alone".to_owned();
        exclusive.exclusive = true;
        vec![exclusive, other.tool(Replay::Never)]
    };
    let runner = world.runner(steps.clone());
    let owner = runner.clone();
    let running = tokio::spawn({
        let node = node(tools());
        async move { owner.run_node(node, step()).await }
    });
    alone.began().await;
    runner.stop(DRAIN);
    alone.let_go();
    assert_eq!(within(running).await.unwrap().unwrap_err().word, NodeWord::Aborted);
    let records = world.records().await;
    assert_eq!(intents(&records, EffectKind::Tool).len(), 1, "no intent of the call that waited: {records:?}");
    assert_eq!((alone.runs(), other.runs()), (1, 0));

    let delivered = within(world.runner(steps).run_node(node(tools()), step())).await.unwrap();
    assert_eq!(delivered.value, json!({"n": 1}));
    assert_eq!((alone.runs(), other.runs()), (1, 1), "it runs as what it is: a call that had not begun");
}

/// A host that stops the runner in the middle of a paid request's admission.
struct StopsAt {
    runner: OnceCell<HarnessRunner>,
    request: usize,
    asked: AtomicUsize,
    stopped: AtomicBool,
}

#[async_trait]
impl HostCheck for StopsAt {
    async fn before_request(
        &self,
        _session: &SessionKey,
        _budget: Option<Usd>,
        _spent: Spent,
    ) -> Result<Result<(), Denied>, HostFault> {
        if self.asked.fetch_add(1, Ordering::SeqCst) + 1 == self.request {
            self.runner.get().unwrap().stop(DRAIN);
            self.stopped.store(true, Ordering::SeqCst);
        }
        Ok(Ok(()))
    }
}

#[tokio::test]
async fn b19_nothing_begins_from_the_moment_stop_is_called_not_even_the_request_that_is_being_admitted() {
    for request in 1..=3 {
        let world = World::new();
        let probe = Probe::new();
        let check = Arc::new(StopsAt {
            runner: OnceCell::new(),
            request,
            asked: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        });
        let steps = json!([calls("search", json!({"q": "n"})), says("Hm."), submits(1)]);
        let given = check.clone();
        let runner = world.runner_with(steps, |options| options.before_request = Some(given));
        check.runner.set(runner.clone()).ok().unwrap();
        let error = within(runner.run_node(node(vec![probe.tool(Replay::Never)]), step())).await.unwrap_err();
        assert_eq!(error.word, NodeWord::Aborted, "{error}");
        let records = world.records().await;
        assert_eq!(intents(&records, EffectKind::Request).len(), request - 1, "not a paid request");
        assert_eq!(probe.runs(), usize::from(request > 1), "not a tool call");
        assert_eq!(count(&records, "placed"), if request < 3 { 1 } else { 2 }, "not a turn");
    }
}
