//! A node comes to its value through the submit tool and nothing else, and an answered one is answered from its records.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentrun_kernel::{Body, EffectKind, OutcomeEnd, Replay, Usd};
use agentrun_runner::{HostFault, NodeWord, Review, ReviewVerdict, What};
use async_trait::async_trait;
use serde_json::{Value, json};

use crate::world::{
    Probe, World, books_are_quiet, calls, count, intents, key, node, outcomes, says, step, submits, within,
};

#[tokio::test]
async fn b01_a_node_runs_its_tool_once_and_delivers() {
    let (world, probe) = (World::new(), Probe::new());
    let runner = world.runner(json!([calls("search", json!({"q": "n"})), submits(7)]));
    let delivered = runner.run_node(node(vec![probe.tool(Replay::Never)]), step()).await.unwrap();
    assert_eq!(delivered.value, json!({"n": 7}));
    assert_eq!((delivered.turns, delivered.from_records), (1, false));
    assert_eq!(probe.runs(), 1);
    let records = world.records().await;
    assert_eq!(intents(&records, EffectKind::Request).len(), 2);
    assert_eq!(outcomes(&records, EffectKind::Tool)[0].text.as_ref(), "found \"n\"");
    assert_eq!(count(&records, "turn_end"), 1);
    books_are_quiet(&world).await;
    assert_eq!(world.homes(), 0, "no private home is left");
}

#[tokio::test]
async fn b03_text_never_delivers_and_the_model_is_reminded() {
    let world = World::new();
    let reminded =
        json!({"when": {"contains": "`submit` tool"}, "tools": [{"name": "submit", "input": {"value": {"n": 1}}}]});
    let runner = world.runner(json!([says(r#"{"value": {"n": 1}}"#), reminded]));
    let delivered = runner.run_node(node(Vec::new()), step()).await.unwrap();
    assert_eq!((delivered.value, delivered.turns), (json!({"n": 1}), 2));
}

#[tokio::test]
async fn b05_a_submit_that_breaks_the_schema_is_named_and_tried_again_in_the_same_session() {
    let world = World::new();
    let named = json!({"when": {"contains": "/value/n"}, "tools": [{"name": "submit", "input": {"value": {"n": 2}}}]});
    let runner = world.runner(json!([calls("submit", json!({"value": {"n": "two"}})), named]));
    let delivered = runner.run_node(node(Vec::new()), step()).await.unwrap();
    assert_eq!((delivered.value, delivered.turns), (json!({"n": 2}), 1));
    let records = world.records().await;
    let verdicts: Vec<_> = records
        .iter()
        .filter_map(|record| if let Body::Verdict(verdict) = &record.body { Some(verdict.accepted) } else { None })
        .collect();
    assert_eq!(verdicts, [false, true]);
    assert_eq!(count(&records, "opened"), 1);
}

/// Accepts even numbers only, and keeps the keys it was asked under.
#[derive(Default)]
struct Even(Mutex<Vec<String>>);

#[async_trait]
impl Review for Even {
    async fn review(&self, key: &str, value: &Value) -> Result<ReviewVerdict, HostFault> {
        self.0.lock().unwrap().push(key.to_owned());
        let even = value["n"].as_i64().unwrap() % 2 == 0;
        Ok(if even { ReviewVerdict::Accept } else { ReviewVerdict::Reject("n is odd".to_owned()) })
    }
}

#[tokio::test]
async fn b05_a_review_that_rejects_is_answered_in_the_same_session() {
    let (world, review) = (World::new(), Arc::new(Even::default()));
    let again = json!({"when": {"contains": "n is odd"}, "tools": [{"name": "submit", "input": {"value": {"n": 4}}}]});
    let mut asked = node(Vec::new());
    asked.review = Some(review.clone());
    let delivered = world.runner(json!([submits(3), again])).run_node(asked, step()).await.unwrap();
    assert_eq!(delivered.value, json!({"n": 4}));
    assert_eq!(*review.0.lock().unwrap(), ["s/1", "s/2"], "each candidate under its own key");
}

#[tokio::test]
async fn b12_an_answered_node_is_answered_from_its_records() {
    let (world, probe, review) = (World::new(), Probe::new(), Arc::new(Even::default()));
    let mut asked = node(vec![probe.tool(Replay::Never)]);
    asked.review = Some(review.clone());
    let runner = world.runner(json!([calls("search", json!({"q": "n"})), submits(8)]));
    let first = runner.run_node(asked.clone(), step()).await.unwrap();
    let (records, ledger) = (world.records().await, world.ledger().await);
    // A script without steps: any request would be an error.
    let again = world.runner(json!([])).run_node(asked, step()).await.unwrap();
    assert_eq!((again.value, again.spent), (first.value, first.spent));
    assert!(again.from_records);
    assert_eq!((probe.runs(), review.0.lock().unwrap().len()), (1, 1));
    assert_eq!(world.records().await, records, "nothing was opened");
    assert_eq!(world.ledger().await, ledger, "nothing was held");
}

#[tokio::test]
async fn b16_b17_events_come_in_the_order_of_the_records_with_their_text() {
    let (world, probe) = (World::new(), Probe::new());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let to = seen.clone();
    let runner = world.runner_with(json!([calls("search", json!({"q": "n"})), submits(7)]), |options| {
        options.on_event = Some(Arc::new(move |event| to.lock().unwrap().push(event)));
    });
    runner.run_node(node(vec![probe.tool(Replay::Never)]), step()).await.unwrap();
    let records = world.records().await;
    let seen = seen.lock().unwrap().clone();
    assert!(seen.is_sorted_by(|one, two| one.seq < two.seq), "{seen:?}");
    let ended: Vec<_> = seen
        .iter()
        .filter_map(
            |event| if let What::ToolEnd { result, .. } = &event.what { Some((event.seq, result)) } else { None },
        )
        .collect();
    assert_eq!(ended.len(), 2, "search and submit");
    for (seq, result) in ended {
        let record = records.iter().find(|record| record.seq == seq).unwrap();
        assert!(matches!(&record.body, Body::Outcome(outcome) if outcome.text == *result), "{record:?}");
    }
}

#[tokio::test]
async fn m30_submit_waits_for_the_calls_beside_it_so_that_nothing_is_open_at_delivery() {
    let (world, probe) = (World::new(), Probe::held());
    let together = json!({"tools": [
        {"name": "search", "input": {"q": "a"}},
        {"name": "submit", "input": {"value": {"n": 5}}},
        {"name": "search", "input": {"q": "b"}},
    ]});
    let (runner, tool) = (world.runner(json!([together])), probe.tool(Replay::Never));
    let running = tokio::spawn(async move { runner.run_node(node(vec![tool]), step()).await });
    probe.began().await;
    let behind = tokio::time::timeout(Duration::from_millis(200), probe.began()).await;
    assert!(behind.is_err(), "what stands behind the submit waits as well");
    let submitted = intents(&world.records().await, EffectKind::Submit).len();
    probe.let_go();
    probe.let_go();
    let delivered = within(running).await.unwrap().unwrap();
    assert_eq!((delivered.value, submitted), (json!({"n": 5}), 0), "it had not begun while the search was held");
    let records = world.records().await;
    let delivered_at = records.iter().position(|record| matches!(record.body, Body::Delivered(_))).unwrap();
    assert_eq!(intents(&records[delivered_at..], EffectKind::Tool).len(), 0, "nothing begins behind the delivery");
}

#[tokio::test]
async fn b54_a_priced_tool_that_is_declared_safe_is_refused_before_anything_opens() {
    let (world, probe) = (World::new(), Probe::new());
    let mut tool = probe.tool(Replay::Safe);
    tool.price = Some(Usd::from_pico(1));
    let error = world.runner(json!([submits(1)])).run_node(node(vec![tool]), step()).await.unwrap_err();
    assert_eq!((error.word, error.is_final()), (NodeWord::Refused, true));
    assert!(error.message.contains("`search`"), "{error}");
    assert_eq!(world.records().await, []);
}

#[tokio::test]
async fn b75_a_priced_tool_is_held_and_booked_with_its_outcome() {
    let (world, probe) = (World::new(), Probe::new());
    let mut tool = probe.tool(Replay::Never);
    tool.price = Some("0.5".parse().unwrap());
    let runner = world.runner(json!([calls("search", json!({"q": "n"})), submits(7)]));
    let delivered = runner.run_node(node(vec![tool]), step()).await.unwrap();
    assert!(delivered.spent.booked > "0.5".parse().unwrap());
    let records = world.records().await;
    let outcome = outcomes(&records, EffectKind::Tool)[0];
    assert_eq!((outcome.end, outcome.cost), (OutcomeEnd::Ok, Some("0.5".parse().unwrap())));
    books_are_quiet(&world).await;
}

#[tokio::test]
async fn a_changed_node_is_not_the_session_it_was_and_names_what_moved() {
    let world = World::new();
    world.runner(json!([submits(1)])).run_node(node(Vec::new()), step()).await.unwrap();
    let mut changed = node(Vec::new());
    changed.prompt = "Find m.".to_owned();
    let error = world.runner(json!([])).run_node(changed, step()).await.unwrap_err();
    assert_eq!((error.word, error.session), (NodeWord::Binding, key()));
    assert!(error.message.contains("prompt changed"), "{}", error.message);
}
