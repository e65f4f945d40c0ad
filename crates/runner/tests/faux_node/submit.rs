//! The two hard places of a submit: beside a built-in that only the harness can end, and cut before its candidate is recorded.

use std::sync::Arc;

use agentrun_adapter::{AdapterError, Answer, Observed, Seat, Start, Tail, ToolCall, Turn, TurnEnd};
use agentrun_kernel::{Body, Built, CallId, EffectKind, OutcomeEnd};
use agentrun_runner::HarnessRunner;
use async_trait::async_trait;
use serde_json::{Value, json};

use crate::logs::Logs;
use crate::stub::{Stub, Turns};
use crate::world::{World, intents, node, outcomes, step, submits};

/// A harness that submits while a built-in of its own runs, which it never says the end of.
struct Busy;

fn call(id: &str, tool: &str, arguments: Value) -> ToolCall {
    ToolCall { call: CallId(id.to_owned()), tool: tool.to_owned(), arguments, ordinal: 0, tail: Tail::none() }
}

#[async_trait]
impl Turns for Busy {
    async fn turn(&self, seat: &Seat, turn: Turn) -> Result<TurnEnd, AdapterError> {
        let Start::Place(ticket) = turn.start else { panic!("nothing was placed before") };
        ticket.place().await.unwrap();
        let tools = &seat.tools;
        let first = tools.observe(call("b1", "Bash", json!({"command": "sleep"}))).await.unwrap();
        let second = tools.observe(call("b2", "Bash", json!({"command": "wait"}))).await.unwrap();
        assert!(matches!((&first, &second), (Observed::Run(_), Observed::Run(_))));
        let answer = tools.call(call("s1", "submit", json!({"value": {"n": 1}}))).await.unwrap();
        assert!(matches!(answer, Answer::Text { is_error: false, end_turn: true, .. }), "{answer:?}");
        Ok(TurnEnd::Idle)
    }
}

#[tokio::test]
async fn f20_a_submit_beside_open_built_ins_delivers_and_they_end_interrupted_with_it() {
    let world = World::new();
    let mut busy = node(Vec::new());
    busy.builtins = vec!["Bash".to_owned()];
    let runner = HarnessRunner::new(Stub::of("busy", Built::Gated, Busy), world.options());
    let delivered = runner.run_node(busy, step()).await.unwrap();
    assert_eq!(delivered.value, json!({"n": 1}));
    let records = world.records().await;
    let ends: Vec<_> = outcomes(&records, EffectKind::Builtin).iter().map(|outcome| outcome.end).collect();
    assert_eq!(ends, [OutcomeEnd::Interrupted; 2]);
    let at = records.iter().position(|record| matches!(record.body, Body::Delivered(_))).unwrap();
    let batch: Vec<_> = records[at - 4..=at].iter().map(|record| record.body.kind()).collect();
    assert_eq!(batch, ["verdict", "outcome", "outcome", "outcome", "delivered"], "one batch");
}

/// Runs a node whose submits are `steps`, cuts it behind the last submit's intent, and goes on with a model that has nothing more to say.
async fn cut_behind_the_intent(
    steps: Value,
) -> (World, Result<agentrun_runner::Delivered, agentrun_runner::NodeError>) {
    let whole = World::new();
    whole.runner(steps).run_node(node(Vec::new()), step()).await.unwrap();
    let logs = Logs::of(&whole).await;
    let submit = |body: &Body| matches!(body, Body::Intent(intent) if intent.effect == EffectKind::Submit);
    let at = logs.records.iter().rposition(|record| submit(&record.body)).unwrap();
    assert_eq!(logs.records[at + 1].body.kind(), "candidate");
    let world = logs.cut(at + 1).await;
    let result = world.runner(json!([])).run_node(node(Vec::new()), step()).await;
    (world, result)
}

#[tokio::test]
async fn f20_a_submit_cut_before_its_candidate_is_decided_from_its_intent_and_costs_no_request() {
    let (world, result) = cut_behind_the_intent(json!([submits(7)])).await;
    let delivered = result.unwrap();
    assert_eq!(delivered.value, json!({"n": 7}));
    let records = world.records().await;
    assert_eq!(intents(&records, EffectKind::Request).len(), 1, "the model is not asked for it again");
    assert_eq!(intents(&records, EffectKind::Submit).len(), 1);
}

#[tokio::test]
async fn f20_a_cut_submit_that_does_not_fit_is_answered_in_the_repaired_history() {
    let (misfit, fits) = (json!({"tools": [{"name": "submit", "input": {"value": {"n": "two"}}}]}), submits(2));
    let whole = World::new();
    whole.runner(json!([misfit, fits])).run_node(node(Vec::new()), step()).await.unwrap();
    let logs = Logs::of(&whole).await;
    let at = logs.records.iter().position(|record| record.body.kind() == "candidate").unwrap();
    let world = logs.cut(at).await;
    let told = json!([{"when": {"contains": "/value/n"}, "tools": [{"name": "submit", "input": {"value": {"n": 2}}}]}]);
    let delivered = world.runner(told).run_node(node(Vec::new()), step()).await.unwrap();
    assert_eq!(delivered.value, json!({"n": 2}));
    assert_eq!(intents(&world.records().await, EffectKind::Request).len(), 2, "one for each answer of the model");
}

#[tokio::test]
async fn f20_a_cut_submit_of_a_settled_turn_stays_interrupted() {
    let whole = World::new();
    whole.runner(json!([submits(7)])).run_node(node(Vec::new()), step()).await.unwrap();
    let logs = Logs::of(&whole).await;
    let at = logs.records.iter().position(|record| record.body.kind() == "candidate").unwrap();
    let world = logs.cut(at).await;
    let settle = agentrun_runner::SettleIn {
        store: Arc::new(world.store.clone()),
        adapter: crate::world::adapter(json!([])),
        homes: world.options().homes,
    };
    agentrun_runner::settle_open_turn(&settle, &crate::world::key(), false).await.unwrap();
    let again = json!([{"text": "nothing"}, submits(8)]);
    let delivered = world.runner(again).run_node(node(Vec::new()), step()).await;
    assert_ne!(
        delivered.as_ref().map(|delivered| &delivered.value),
        Ok(&json!({"n": 7})),
        "the person ended that turn"
    );
    assert_eq!(outcomes(&world.records().await, EffectKind::Submit)[0].end, OutcomeEnd::Interrupted);
}
