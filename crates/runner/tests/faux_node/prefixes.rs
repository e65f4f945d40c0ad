//! Inv. 8: a session that was cut behind any of its batches goes on from there. A whole run's log is cut behind each of its records, laid
//! into a fresh store with the ledger records that belong to it, and the node is run again; then that run's own log is cut in turn.

use std::sync::Arc;

use agentrun_adapter::{NativeHistory as _, RecordedFiles};
use agentrun_kernel::{EffectKind, Record, Replay, SessionState, Usd};
use agentrun_testing::faux::FauxHistory;
use serde_json::{Value, json};

use crate::logs::{Logs, inside_a_batch};
use crate::world::{Probe, World, calls, count, intents, node, step, submits, when};

/// A model that asks again for what it is told was not run, and submits as soon as it knows how the search ended.
fn script() -> Value {
    json!([
        when(json!({"contains": "Not accepted"}), submits(1)),
        when(json!({"contains": "Accepted"}), json!({"text": "Done."})),
        when(json!({"contains": "found", "anywhere": "found"}), calls("submit", json!({"value": "bad"}))),
        when(json!({"contains": "Find out by other means"}), submits(2)),
        when(json!({"contains": "was not run", "anywhere": "found"}), submits(1)),
        when(json!({"anywhere": "Find out by other means"}), submits(2)),
        when(json!({}), calls("search", json!({"q": "n"}))),
    ])
}

/// Runs the node over the cut log and holds what must be true wherever it was cut.
async fn goes_on(world: &World, before: &[Record], replay: Replay, what: &str) {
    let probe = Probe::new();
    let result = world.runner(script()).run_node(node(vec![probe.tool(replay)]), step()).await;
    let delivered = result.unwrap_or_else(|error| panic!("{what}: {error}"));
    let records = world.records().await;
    let was = SessionState::fold(before);
    assert_eq!(
        records[..before.len()].iter().map(|record| &record.body).collect::<Vec<_>>(),
        before.iter().map(|record| &record.body).collect::<Vec<_>>()
    );
    if was.delivered.is_some() {
        assert_eq!(records.len(), before.len(), "{what}: answered from the records");
        return;
    }
    let begun = intents(before, EffectKind::Tool).len();
    match replay {
        Replay::Never => assert_eq!(probe.runs(), 1 - begun.min(1), "{what}: what was begun is not run again"),
        Replay::Safe => assert!(probe.runs() <= 1, "{what}"),
    }
    assert_eq!(intents(&records, EffectKind::Tool).len(), 1, "{what}");
    assert_eq!(count(&records, "placed"), 1, "{what}: the prompt is placed once");
    let survey = FauxHistory.survey(&RecordedFiles::fold(&records)).unwrap();
    assert_eq!(survey.taken.len(), 1, "{what}: and stands once in what the model sees");
    // A review that recovery asked again delivers without a harness: its history is mended when the session is next needed.
    let mended = SessionState::fold(&records).open_turn.is_none();
    assert_eq!(survey.open_calls.is_empty(), mended, "{what}");
    // Only requests that were in flight at a cut are unknown, and only they were asked anew.
    let lost = was.open_effects().filter(|effect| effect.intent.effect == EffectKind::Request).count();
    assert_eq!(delivered.spent.unknown_count, was.spent.unknown_count + u32::try_from(lost).unwrap(), "{what}");
    let books = world.books().await;
    assert_eq!(
        (books.booked(), books.held(), books.unknown()),
        (delivered.spent.booked, Usd::ZERO, delivered.spent.unknown),
        "{what}"
    );
}

async fn every_prefix(replay: Replay) {
    let whole = World::new();
    whole.runner(script()).run_node(node(vec![Probe::new().tool(replay)]), step()).await.unwrap();
    let logs = Arc::new(Logs::of(&whole).await);
    assert!(logs.records.len() > 20, "a run worth cutting");
    for length in 0..=logs.records.len() {
        if inside_a_batch(&logs.records, length) {
            continue;
        }
        let world = logs.cut(length).await;
        goes_on(&world, &logs.records[..length], replay, &format!("cut behind record {length}")).await;
        // And the recovery is cut in turn, at a place of its own each time.
        let again = Logs::of(&world).await;
        for second in (length..again.records.len()).step_by(3) {
            if inside_a_batch(&again.records, second) {
                continue;
            }
            let world = again.cut(second).await;
            goes_on(&world, &again.records[..second], replay, &format!("cut behind record {length}, then {second}"))
                .await;
        }
    }
}

#[tokio::test]
async fn b13_b14_a_session_cut_behind_any_record_goes_on_and_runs_no_never_call_twice() {
    every_prefix(Replay::Never).await;
}

#[tokio::test]
async fn b52_a_session_cut_behind_any_record_goes_on_with_its_safe_calls() {
    every_prefix(Replay::Safe).await;
}

#[tokio::test]
async fn b13_a_session_cut_behind_a_turn_without_delivery_is_nudged_when_it_goes_on() {
    let script = || {
        json!([
            when(json!({"anywhere": "ended without delivering"}), submits(1)),
            when(json!({}), json!({"text": "Let me think."})),
        ])
    };
    let whole = World::new();
    whole.runner(script()).run_node(node(Vec::new()), step()).await.unwrap();
    let logs = Logs::of(&whole).await;
    for length in 0..=logs.records.len() {
        if inside_a_batch(&logs.records, length) {
            continue;
        }
        let world = logs.cut(length).await;
        let result = world.runner(script()).run_node(node(Vec::new()), step()).await;
        let delivered = result.unwrap_or_else(|error| panic!("cut behind record {length}: {error}"));
        assert_eq!((delivered.value, delivered.turns), (json!({"n": 1}), 2), "cut behind record {length}");
    }
}
