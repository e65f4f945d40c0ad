//! People's words in a turn that runs, on a harness that takes them there.

use std::sync::{Arc, Mutex};

use agentrun_kernel::{FollowUpName, Replay, Seq};
use agentrun_runner::{FollowUp, HarnessRunner, What, subscribe};
use agentrun_testing::faux::FauxAdapter;
use agentrun_testing::script::Script;
use serde_json::{Value, json};

use crate::messages::{Shown, WORDS, heeds_words, placed, seen, send, store};
use crate::world::{Probe, World, count, key, node, says, step, when, within};

/// A runner on a harness that takes words while its calls run, and all its model is shown.
fn steered(world: &World, steps: &Value) -> (HarnessRunner, Shown) {
    let shown = Shown::default();
    let to = shown.clone();
    let script = Script::parse(&json!({ "steps": steps }).to_string()).unwrap();
    let adapter =
        FauxAdapter::new(script).steered().telling(Arc::new(move |talk| to.lock().unwrap().push(talk.clone())));
    (HarnessRunner::new(Arc::new(adapter), world.options()), shown)
}

/// Waits until the session's records hold this many submissions.
async fn submitted(world: &World, many: usize) {
    within(async {
        while count(&world.records().await, "submission") < many {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn b71_m33_words_sent_in_a_turn_reach_a_harness_that_can_be_steered_in_that_turn() {
    let (world, probe) = (World::new(), Probe::held());
    let (runner, shown) = steered(&world, &heeds_words());
    let running = tokio::spawn({
        let node = node(vec![probe.tool(Replay::Never)]);
        async move { runner.run_node(node, step()).await }
    });
    probe.began().await;
    send(&world, "one", WORDS).await.unwrap();
    submitted(&world, 2).await;
    probe.let_go();
    let delivered = within(running).await.unwrap().unwrap();
    assert_eq!((delivered.value, delivered.turns), (json!({"n": 4}), 1));
    let records = world.records().await;
    let messages = placed(&records);
    assert_eq!(messages.len(), 2);
    assert_eq!(messages[0].turn, messages[1].turn, "no turn of its own");
    assert_eq!(&*messages[1].text, WORDS);
    assert_eq!(seen(&shown, WORDS), [0, 1]);
    assert_eq!(probe.runs(), 1);
    let mut events = Vec::new();
    let mut told = subscribe(&store(&world), &key(), Seq(0)).await.unwrap();
    while let Some(event) = within(told.next()).await.unwrap() {
        let last = matches!(event.what, What::Answered { .. });
        events.push(event.what);
        if last {
            break;
        }
    }
    let turns: Vec<_> =
        events.iter().filter(|what| matches!(what, What::TurnStart { .. } | What::Steered { .. })).collect();
    assert_eq!(turns, [&What::TurnStart { turn: 1 }, &What::Steered { turn: 1 }]);
}

/// The harness never asks again: its submit ends the turn. The words wait for a follow-up.
#[tokio::test]
async fn m33_words_taken_as_the_turn_is_delivered_are_not_lost() {
    let (world, probe) = (World::new(), Probe::held());
    let steps = json!([
        {"tools": [{"name": "search", "input": {"q": "n"}}, {"name": "submit", "input": {"value": {"n": 4}}}]},
        when(json!({"contains": WORDS}), says("I see.")),
    ]);
    let (runner, shown) = steered(&world, &steps);
    let running = tokio::spawn({
        let (runner, node) = (runner.clone(), node(vec![probe.tool(Replay::Never)]));
        async move { runner.run_node(node, step()).await }
    });
    probe.began().await;
    send(&world, "one", WORDS).await.unwrap();
    submitted(&world, 2).await;
    probe.let_go();
    let delivered = within(running).await.unwrap().unwrap();
    assert_eq!((delivered.value, delivered.turns), (json!({"n": 4}), 1));
    assert_eq!(seen(&shown, WORDS), [0], "the turn was over");
    let name = FollowUpName::new("more").unwrap();
    let ask = FollowUp { name, prompt: "Anything else?".to_owned(), reserve: None };
    within(runner.follow_up_once(node(vec![probe.tool(Replay::Never)]), step(), ask)).await.unwrap();
    assert_eq!(seen(&shown, WORDS), [0, 1], "and the follow-up brings them, once");
}
