//! Inv. 8 for a settle: wherever a session was cut, a settle ends what is open in it, can itself be cut and repeated, and the node goes on.

use agentrun_adapter::{NativeHistory as _, RecordedFiles};
use agentrun_kernel::{Body, EffectKind, Replay, SessionState, Usd};
use agentrun_testing::faux::FauxHistory;
use serde_json::{Value, json};

use crate::logs::{Logs, inside_a_batch};
use crate::settle;
use crate::world::{Probe, World, calls, count, intents, node, step, submits, when};

fn script() -> Value {
    json!([
        when(json!({"contains": "`submit` tool"}), submits(1)),
        when(json!({"contains": "Not accepted"}), submits(1)),
        when(json!({"contains": "found", "anywhere": "found"}), calls("submit", json!({"value": "bad"}))),
        when(json!({"contains": "must not run twice"}), submits(2)),
        when(json!({}), calls("search", json!({"q": "n"}))),
    ])
}

/// Settles and holds that nothing is open and nothing was done.
async fn settled(world: &World, what: &str) {
    let before = world.records().await;
    let was = SessionState::fold(&before);
    settle(world).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    let records = world.records().await;
    let state = SessionState::fold(&records);
    assert!(state.open_turn.is_none() && state.open_effects().next().is_none(), "{what}");
    assert!(state.undecided().is_none(), "{what}");
    let new = &records[before.len()..];
    let does = |body: &Body| matches!(body, Body::Placed(_) | Body::Intent(_) | Body::Delivered(_));
    assert!(!new.iter().any(|record| does(&record.body)), "{what}");
    assert_eq!(world.books().await.held(), Usd::ZERO, "{what}");
    assert_eq!(state.delivered, was.delivered, "{what}");
    let survey = FauxHistory.survey(&RecordedFiles::fold(&records)).unwrap();
    assert!(survey.open_calls.is_empty() && (survey.ended || !survey.resumable), "{what}");
    let length = records.len();
    settle(world).await.unwrap();
    assert_eq!(world.records().await.len(), length, "{what}: the second settle finds nothing");
}

#[tokio::test]
async fn b28_b29_cut_behind_any_record_it_is_settled_twice_over_and_the_node_goes_on() {
    let whole = World::new();
    whole.runner(script()).run_node(node(vec![Probe::new().tool(Replay::Never)]), step()).await.unwrap();
    let logs = Logs::of(&whole).await;
    assert!(logs.records.len() > 20, "a run worth cutting");
    for length in 0..=logs.records.len() {
        if inside_a_batch(&logs.records, length) {
            continue;
        }
        let what = format!("cut behind record {length}");
        let world = logs.cut(length).await;
        settled(&world, &what).await;
        // The settle is cut in turn, behind each of its records.
        let again = Logs::of(&world).await;
        for second in length..again.records.len() {
            // A submit that nobody reviewed is ended in one batch.
            if again.records[second - usize::from(second > 0)].body.kind() == "verdict" {
                continue;
            }
            settled(&again.cut(second).await, &format!("{what}, then {second}")).await;
        }
        let probe = Probe::new();
        let result = world.runner(script()).run_node(node(vec![probe.tool(Replay::Never)]), step()).await;
        result.unwrap_or_else(|error| panic!("{what}: {error}"));
        let records = world.records().await;
        let begun = intents(&logs.records[..length], EffectKind::Tool).len();
        assert!(begun == 0 || probe.runs() == 0, "{what}: what was begun is not run again");
        assert!(count(&records, "delivered") == 1, "{what}");
    }
}
