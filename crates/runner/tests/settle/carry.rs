//! Which prompts a later message carries: those that the harness's recorded history lacks, and no other, so that no prompt reaches a model
//! twice and none is lost.

use agentrun_adapter::{NativeHistory as _, RecordedFiles};
use agentrun_kernel::{Body, Placed, Record, SubmissionId};
use agentrun_runner::HarnessRunner;
use agentrun_testing::faux::FauxHistory;
use serde_json::json;

use crate::logs::Logs;
use crate::world::{World, node, step, submits, when};
use crate::{blind, settle};

const NOTICE: &str = "did not reach you";

fn placed(records: &[Record]) -> Vec<&Placed> {
    records
        .iter()
        .filter_map(|record| if let Body::Placed(placed) = &record.body { Some(placed) } else { None })
        .collect()
}

/// A run cut right behind its `nth` placement: the message may have been written to the harness, and its history shows nothing of it.
async fn cut_at_placement(world: &World, nth: usize) -> World {
    let logs = Logs::of(world).await;
    let places = logs.records.iter().enumerate().filter(|(_, record)| record.body.kind() == "placed");
    let (place, _) = places.clone().nth(nth).unwrap();
    logs.cut(place + 1).await
}

async fn delivered() -> World {
    let world = World::new();
    world.runner(json!([submits(7)])).run_node(node(Vec::new()), step()).await.unwrap();
    world
}

#[tokio::test]
async fn b34_b35_b31_a_prompt_placed_and_never_taken_is_carried_with_one_notice() {
    let world = cut_at_placement(&delivered().await, 0).await;
    assert_eq!(settle(&world).await.unwrap().unsent, [SubmissionId("node".to_owned())]);
    world.runner(json!([submits(7)])).run_node(node(Vec::new()), step()).await.unwrap();
    let records = world.records().await;
    let messages = placed(&records);
    assert_eq!(messages.len(), 2);
    let text = &messages[1].text;
    assert!(text.contains(NOTICE) && text.ends_with("Find n."), "{text}");
    assert_eq!(messages[1].replaces, [messages[0].message.clone()], "B39: what it stands for is recorded with it");
    let survey = FauxHistory.survey(&RecordedFiles::fold(&records)).unwrap();
    assert_eq!(survey.taken, [messages[1].message.clone()], "B36: the model was given one of them");
}

#[tokio::test]
async fn b36_a_prompt_that_the_history_holds_is_never_carried() {
    let whole = delivered().await;
    let logs = Logs::of(&whole).await;
    // Behind the request's intent the history is in the records, the prompt in it.
    let asked = logs.records.iter().position(|record| record.body.kind() == "intent").unwrap();
    let world = logs.cut(asked + 1).await;
    assert_eq!(settle(&world).await.unwrap().unsent, []);
    let reminded = json!([when(json!({"contains": "`submit` tool"}), submits(7))]);
    world.runner(reminded).run_node(node(Vec::new()), step()).await.unwrap();
    let records = world.records().await;
    assert!(!placed(&records)[1].text.contains("Find n."), "{:?}", placed(&records)[1]);
}

#[tokio::test]
async fn b38_a_harness_that_takes_our_ids_is_given_the_same_message_again_and_nothing_is_carried() {
    let world = cut_at_placement(&delivered().await, 0).await;
    world.runner(json!([submits(7)])).run_node(node(Vec::new()), step()).await.unwrap();
    let records = world.records().await;
    let messages = placed(&records);
    assert_eq!(messages.len(), 1);
    let survey = FauxHistory.survey(&RecordedFiles::fold(&records)).unwrap();
    assert_eq!(survey.taken, [messages[0].message.clone()], "under its own id, once");
}

#[tokio::test]
async fn b33_b39_b40_over_a_chain_of_recoveries_the_words_are_carried_until_the_history_holds_them_and_then_no_more() {
    let steps = json!([when(json!({"contains": "Find n."}), submits(7))]);
    let mut world = cut_at_placement(&delivered().await, 0).await;
    for nth in 1..4 {
        let runner = HarnessRunner::new(blind(&steps), world.options());
        runner.run_node(node(Vec::new()), step()).await.unwrap();
        let records = world.records().await;
        let messages = placed(&records);
        assert_eq!(messages.len(), nth + 1);
        let (last, before) = (messages[nth], messages[nth - 1]);
        assert_eq!(last.replaces, std::slice::from_ref(&before.message), "B39: recorded before it is sent");
        assert_eq!(last.text.matches(NOTICE).count(), 1, "B31: one notice, however long the chain: {}", last.text);
        assert_eq!(last.text.matches("Find n.").count(), 1);
        let survey = FauxHistory.survey(&RecordedFiles::fold(&records)).unwrap();
        assert_eq!(
            survey.taken,
            std::slice::from_ref(&last.message),
            "B36: no other message of the chain reached the model"
        );
        let state = world.state().await;
        assert!(state.submissions().all(|accepted| !accepted.unsent), "B40: what it carries counts as recorded");
        // The carrying message is placed and never recorded by the harness, each time.
        world = cut_at_placement(&world, nth).await;
    }
}

#[tokio::test]
async fn b40_words_whose_carrying_message_was_taken_are_not_unsent_at_a_settle() {
    let steps = json!([when(json!({"contains": "Find n."}), submits(7))]);
    let world = cut_at_placement(&delivered().await, 0).await;
    HarnessRunner::new(blind(&steps), world.options()).run_node(node(Vec::new()), step()).await.unwrap();
    let logs = Logs::of(&world).await;
    let asked = logs.records.iter().rposition(|record| record.body.kind() == "placed").unwrap();
    let intent = (asked..).find(|place| logs.records[*place].body.kind() == "intent").unwrap();
    let world = logs.cut(intent + 1).await;
    assert_eq!(settle(&world).await.unwrap().unsent, []);
}

#[tokio::test]
async fn b30_a_prompt_that_was_never_placed_is_named_unsent_by_a_settle_and_carried() {
    let world = cut_at_placement(&delivered().await, 0).await;
    let mut writer = agentrun_kernel::SessionStore::open(&world.store, &crate::world::key(), None).await.unwrap();
    let id = SubmissionId("p1".to_owned());
    let said = agentrun_kernel::Submission::new(id.clone(), agentrun_kernel::Source::Person, "Mind the units.");
    writer.append(agentrun_kernel::Batch::of([Body::Submission(said)]), None).await.unwrap();
    assert_eq!(settle(&world).await.unwrap().unsent, [SubmissionId("node".to_owned()), id]);
    world.runner(json!([submits(7)])).run_node(node(Vec::new()), step()).await.unwrap();
    let records = world.records().await;
    let text = placed(&records)[1].text.clone();
    let order = [NOTICE, "Find n.", "Mind the units."].map(|words| text.find(words).unwrap());
    assert!(order.is_sorted(), "{text}");
}

#[tokio::test]
async fn b37_killed_before_its_prompt_was_written_or_right_after_the_model_gets_it_once() {
    let whole = delivered().await;
    let logs = Logs::of(&whole).await;
    let placed = logs.records.iter().position(|record| record.body.kind() == "placed").unwrap();
    let written = (placed..).find(|place| logs.records[*place].body.kind() == "native").unwrap();
    let steps = json!([when(json!({"contains": "Find n."}), submits(7)), when(json!({}), submits(7))]);
    for (what, length) in [("placed, not written", placed + 1), ("written, nothing asked", written + 1)] {
        for own_ids in [true, false] {
            let world = logs.cut(length).await;
            let runner =
                if own_ids { world.runner(steps.clone()) } else { HarnessRunner::new(blind(&steps), world.options()) };
            runner.run_node(node(Vec::new()), step()).await.unwrap();
            let history = RecordedFiles::fold(&world.records().await);
            let bytes = agentrun_adapter::NativeFiles::bytes(&history, "faux/history.jsonl").unwrap();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            assert_eq!(text.matches("Find n.").count(), 1, "{what}, own ids {own_ids}: {text}");
        }
    }
}
