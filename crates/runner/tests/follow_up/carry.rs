//! Words that did not reach the model begin the next message, behind one notice, and are part of its recorded text.

use agentrun_kernel::{Body, OutcomeEnd, SubmissionId};
use serde_json::json;

use crate::stage::{answered, ask, follow, messages, said, script, why};
use crate::world::{node, says, when};

const NOTICE: &str = "did not reach you";

#[tokio::test]
async fn b30_b31_b32_the_follow_ups_message_begins_with_the_words_that_wait() {
    let world = answered(&node(Vec::new())).await;
    said(&world, "p1", "Mind the units.").await;
    said(&world, "p2", "And the sign.").await;
    let runner = world.runner(json!([when(json!({"contains": "Mind the units."}), says("I do. It is prime."))]));
    let followed = follow(&runner, why()).await.unwrap();
    assert_eq!((followed.end, followed.text.as_ref()), (OutcomeEnd::Ok, "I do. It is prime."), "the model read them");
    let records = world.records().await;
    let text = messages(&records).last().unwrap().clone();
    let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words} in {text}"));
    let order = [NOTICE, "Mind the units.", "And the sign.", "Why?"].map(at);
    assert!(order.is_sorted(), "{text}");
    assert_eq!(text.matches(NOTICE).count(), 1, "B31: one notice");
    let Some(Body::Placed(placed)) =
        records.iter().rev().map(|record| &record.body).find(|body| body.kind() == "placed")
    else {
        panic!("placed")
    };
    let carried = placed.carries.iter().map(SubmissionId::as_str).collect::<Vec<_>>();
    assert_eq!(carried, ["p1", "p2", "follow-up:name:why"], "B32: the carry is the message's own");
}

#[tokio::test]
async fn b36_words_that_were_carried_are_not_carried_again() {
    let world = answered(&node(Vec::new())).await;
    said(&world, "p1", "Mind the units.").await;
    follow(&world.runner(script()), why()).await.unwrap();
    follow(&world.runner(script()), ask("else", "And why else?")).await.unwrap();
    assert_eq!(messages(&world.records().await).last().unwrap().as_ref(), "And why else?");
}
