//! Once a (session, name), only in a session that has answered, one at a time.

use agentrun_kernel::{Body, EffectKind, FollowUpState, NotAnswered, OutcomeEnd, Replay, follow_up_state};
use agentrun_runner::{FollowUpError, NodeWord};
use serde_json::json;

use crate::stage::{
    answered, ask, asked, cut, done, effect_key, follow, messages, of_follow_up, script, stalls, start, why,
};
use crate::world::{
    Probe, World, books_are_quiet, calls, count, intents, key, node, says, step, submits, when, within,
};

#[tokio::test]
async fn b56_a_follow_up_is_one_more_turn_with_the_hosts_prompt_in_the_same_session() {
    let world = answered(&node(Vec::new())).await;
    let (_, requests, _) = done(&world).await;
    let followed = follow(&world.runner(script()), why()).await.unwrap();
    assert_eq!((followed.end, followed.text.as_ref()), (OutcomeEnd::Ok, "Because it is prime."));
    assert!(!followed.from_records && followed.spent.booked > agentrun_kernel::Usd::ZERO);
    let records = world.records().await;
    assert_eq!(messages(&records).iter().map(AsRef::as_ref).collect::<Vec<_>>(), ["Find n.", "Why?"]);
    assert_eq!(intents(&records, EffectKind::Request).len(), requests + 1);
    let [intent] = intents(&records, EffectKind::FollowUp)[..] else { panic!("one effect") };
    assert_eq!((intent.replay, &intent.key), (Replay::Never, &effect_key("why")), "B58: never, on its own key");
    let state = world.state().await;
    assert_eq!(state.delivered.as_deref(), Some(&json!({"n": 7})), "the value stands");
    assert!(state.open_turn.is_none() && state.open_effects().next().is_none());
    books_are_quiet(&world).await;
    assert_eq!(world.homes(), 0);
}

#[tokio::test]
async fn b57_asked_again_it_answers_the_recorded_outcome_and_runs_nothing() {
    let world = answered(&node(Vec::new())).await;
    let first = follow(&world.runner(script()), why()).await.unwrap();
    let records = world.records().await;
    // A script without steps: any request would be an error. Another prompt under the name is still the same follow-up.
    for prompt in ["Why?", "Something else?"] {
        let again = follow(&world.runner(json!([])), ask("why", prompt)).await.unwrap();
        assert_eq!((again.end, &again.text, again.spent), (first.end, &first.text, first.spent));
        assert!(again.from_records);
    }
    assert_eq!(world.records().await, records, "nothing was opened");
}

#[tokio::test]
async fn b57_another_name_is_another_follow_up() {
    let world = answered(&node(Vec::new())).await;
    let runner = world.runner(script());
    follow(&runner, why()).await.unwrap();
    let other = follow(&runner, ask("else", "And why else?")).await.unwrap();
    assert_eq!((other.text.as_ref(), other.from_records), ("It is odd, too.", false));
    let first = follow(&runner, why()).await.unwrap();
    assert_eq!((first.text.as_ref(), first.from_records), ("Because it is prime.", true));
    assert_eq!(of_follow_up(&world.records().await).len(), 2);
}

#[tokio::test]
async fn b60_its_prompts_submission_is_named_after_its_key() {
    let world = answered(&node(Vec::new())).await;
    follow(&world.runner(script()), why()).await.unwrap();
    let records = world.records().await;
    let submission = records.iter().find_map(|record| match &record.body {
        Body::Submission(submission) if submission.text.as_ref() == "Why?" => Some(submission),
        _ => None,
    });
    let submission = submission.unwrap();
    let expected = format!("follow-up:{}", effect_key("why"));
    assert_eq!((submission.id.as_str(), submission.source.to_string()), (expected.as_str(), expected.clone()));
}

#[tokio::test]
async fn b56_a_session_that_has_not_answered_takes_no_follow_up_and_nothing_is_written() {
    let refused = async |world: &World, expected: NotAnswered| {
        let (records, ledger) = (world.records().await, world.ledger().await);
        let error = follow(&world.runner(script()), why()).await.unwrap_err();
        assert_eq!(error, FollowUpError::NotAnswered { session: key(), why: expected });
        assert_eq!((world.records().await, world.ledger().await), (records, ledger));
    };
    refused(&World::new(), NotAnswered::Fresh).await;

    let world = World::new();
    let running = tokio::spawn({
        let runner = world.runner(stalls());
        async move { runner.run_node(node(Vec::new()), step()).await }
    });
    asked(&world).await;
    running.abort();
    let _ = running.await;
    refused(&world, NotAnswered::TurnOpen).await;

    let world = World::new();
    let mut limited = node(Vec::new());
    limited.turn_limit = Some(1);
    let error = world.runner(json!([says("7, I think")])).run_node(limited, step()).await.unwrap_err();
    assert_eq!(error.word, NodeWord::TurnLimit);
    refused(&world, NotAnswered::Failed).await;
}

#[tokio::test]
async fn b56_a_session_whose_last_turn_ended_by_itself_has_answered() {
    let world = World::new();
    // Its first turn ends in words; the second one is cut before it is placed.
    let runner = world.runner(json!([says("It is 7.")]));
    let mut node = node(Vec::new());
    node.turn_limit = Some(2);
    runner.run_node(node.clone(), step()).await.unwrap_err();
    let logs = crate::logs::Logs::of(&world).await;
    let end = logs.records.iter().position(|record| record.body.kind() == "turn_end").unwrap();
    let world = logs.cut(end + 1).await;
    let runner = world.runner(script());
    let followed = within(runner.follow_up_once(node, step(), why())).await.unwrap();
    assert_eq!(followed.text.as_ref(), "Because it is prime.");
}

#[tokio::test]
async fn b57_of_two_at_once_the_second_is_busy_and_writes_nothing() {
    let world = answered(&node(Vec::new())).await;
    let slow = json!([when(json!({"contains": "Why?"}), json!({"stall_after_events": 0}))]);
    let runner = world.runner(slow);
    let first = start(&runner, node(Vec::new()), why());
    asked(&world).await;
    let records = world.records().await;
    for second in [why(), ask("else", "And why else?")] {
        let error = follow(&world.runner(script()), second).await.unwrap_err();
        assert_eq!(error, FollowUpError::Busy(key()));
    }
    assert_eq!(world.records().await, records);
    cut(first).await;
    let other = follow(&world.runner(script()), ask("else", "And why else?")).await.unwrap();
    assert_eq!(other.end, OutcomeEnd::Ok, "nobody lives in it any more");
}

#[tokio::test]
async fn b65_the_records_alone_say_whether_the_open_turn_is_a_follow_ups() {
    let world = answered(&node(Vec::new())).await;
    follow(&world.runner(script()), why()).await.unwrap();
    let records = world.records().await;
    let at = |kind: &str| records.iter().rposition(|record| record.body.kind() == kind).unwrap();
    let intent = records
        .iter()
        .position(|record| matches!(&record.body, Body::Intent(intent) if intent.effect == EffectKind::FollowUp));
    let (intent, placed, ended) = (intent.unwrap(), at("placed"), at("turn_end"));
    let key = effect_key("why");
    let turn = match &records[placed].body {
        Body::Placed(placed) => placed.turn.clone(),
        _ => unreachable!(),
    };
    for length in 0..=records.len() {
        let expected = match length {
            _ if length <= intent => FollowUpState::None,
            _ if length <= placed => FollowUpState::Begun { key: key.clone() },
            _ if length <= ended => FollowUpState::Open { key: key.clone(), turn: turn.clone() },
            // Its outcome is in the batch of the turn's end.
            _ if length == ended + 1 => FollowUpState::Begun { key: key.clone() },
            _ => FollowUpState::None,
        };
        assert_eq!(follow_up_state(&records[..length]), expected, "behind record {length}");
    }
}

#[tokio::test]
async fn b56_the_nodes_tools_run_in_it_and_a_submit_is_told_that_the_value_stands() {
    let probe = Probe::new();
    let node = node(vec![probe.tool(Replay::Never)]);
    let world = answered(&node).await;
    let runner = world.runner(json!([
        when(json!({"contains": "Why?"}), calls("search", json!({"q": "why"}))),
        when(json!({"contains": "found"}), submits(8)),
        when(json!({"contains": "the value stands"}), says("Then 7.")),
    ]));
    let followed = within(runner.follow_up_once(node, step(), why())).await.unwrap();
    assert_eq!((followed.end, followed.text.as_ref(), probe.runs()), (OutcomeEnd::Ok, "Then 7.", 1));
    let records = world.records().await;
    assert_eq!((count(&records, "delivered"), count(&records, "candidate")), (1, 1));
    assert_eq!(world.state().await.delivered.as_deref(), Some(&json!({"n": 7})));
}

#[tokio::test]
async fn b07_the_nodes_turn_limit_is_on_its_value_and_not_on_a_follow_up() {
    let mut limited = node(Vec::new());
    limited.turn_limit = Some(1);
    let world = answered(&limited).await;
    let followed = within(world.runner(script()).follow_up_once(limited, step(), why())).await.unwrap();
    assert_eq!(followed.end, OutcomeEnd::Ok);
}

#[tokio::test]
async fn a_follow_up_of_another_node_is_refused_and_a_known_one_is_answered_all_the_same() {
    let world = answered(&node(Vec::new())).await;
    let mut other = node(Vec::new());
    other.prompt = "Find m.".to_owned();
    let records = world.records().await;
    let error = within(world.runner(script()).follow_up_once(other.clone(), step(), why())).await.unwrap_err();
    assert!(matches!(error, FollowUpError::Node(error) if error.word == NodeWord::Binding));
    assert_eq!(world.records().await, records);
    follow(&world.runner(script()), why()).await.unwrap();
    assert!(within(world.runner(script()).follow_up_once(other, step(), why())).await.unwrap().from_records);
}

#[tokio::test]
async fn b95_follow_ups_that_ask_nothing_are_no_lack_of_the_nodes_progress() {
    let world = World::new();
    let talk = json!([says("It is 7."), {"status": 529}]);
    world.runner(talk).run_node(node(Vec::new()), step()).await.unwrap_err();
    let logs = crate::logs::Logs::of(&world).await;
    let end = logs.records.iter().position(|record| record.body.kind() == "turn_end").unwrap();
    let world = logs.cut(end + 1).await;
    for nth in 0..agentrun_runner::EMPTY_TURNS {
        let refused = crate::stage::held_to("0.000001", ask(&format!("n{nth}"), "Why?"));
        assert_eq!(follow(&world.runner(script()), refused).await.unwrap().end, OutcomeEnd::Error);
    }
    let runner = world.runner(json!([when(json!({"contains": "`submit` tool"}), submits(7))]));
    assert_eq!(runner.run_node(node(Vec::new()), step()).await.unwrap().value, json!({"n": 7}));
}
