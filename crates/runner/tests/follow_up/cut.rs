//! A follow-up that is cut inside stays interrupted: its turn is settled, never resumed, and nobody's words but its own are withdrawn.

use std::time::Duration;

use agentrun_adapter::{NativeHistory as _, RecordedFiles};
use agentrun_kernel::{Body, EffectKind, OutcomeEnd, Record, SubmissionId, TurnEndHow};
use agentrun_runner::What;
use agentrun_testing::faux::FauxHistory;
use serde_json::json;

use crate::logs::{Logs, inside_a_batch};
use crate::stage::{
    answered, ask, asked, cut, done, effect_key, follow, messages, of_follow_up, said, script, stalls, start, why,
};
use crate::world::{Probe, World, calls, count, intents, node, step, when, within};

/// The batch that ends a cut follow-up, wherever it stands: outcome, withdrawn, settled.
fn settling(records: &[Record]) -> Vec<(usize, Vec<SubmissionId>, Vec<SubmissionId>)> {
    let of = |place: usize| {
        let [Body::Outcome(outcome), Body::Withdrawn(withdrawn), Body::Settled(settled)] =
            [0, 1, 2].map(|more| &records[place + more].body)
        else {
            return None;
        };
        let cut = outcome.key == effect_key("why") && outcome.end == OutcomeEnd::Interrupted;
        cut.then(|| (place, withdrawn.ids.clone(), settled.unsent.clone()))
    };
    (0..records.len().saturating_sub(2)).filter_map(of).collect()
}

#[tokio::test]
async fn b58_b59_cut_inside_it_is_interrupted_its_turn_settled_and_nothing_resumed() {
    let world = answered(&node(Vec::new())).await;
    let running = start(&world.runner(stalls()), node(Vec::new()), why());
    asked(&world).await;
    cut(running).await;
    let before = done(&world).await;

    // No step is served: what would be asked would be an error.
    let after = world.again();
    let followed = follow(&after.runner(json!([])), why()).await.unwrap();
    assert_eq!((followed.end, followed.from_records), (OutcomeEnd::Interrupted, true));
    let records = after.records().await;
    let own = SubmissionId::of_follow_up(&effect_key("why"));
    assert_eq!(settling(&records).into_iter().map(|(_, own, _)| own).collect::<Vec<_>>(), [vec![own]], "B61");
    assert_eq!(done(&after).await, before, "nothing was placed, sent or held");
    let state = after.state().await;
    assert!(state.open_turn.is_none() && state.open_effects().next().is_none());
    assert_eq!(state.last_turn.unwrap().how, TurnEndHow::Interrupted);
    assert_eq!(state.spent.unknown_count, 1, "the request in flight may have been paid");
    assert!(
        FauxHistory.survey(&RecordedFiles::fold(&records)).unwrap().ended,
        "its history shows no turn to go on with"
    );

    let again = follow(&after.runner(script()), why()).await.unwrap();
    assert_eq!(
        (again.end, after.records().await),
        (OutcomeEnd::Interrupted, records),
        "asked again nothing is written"
    );
    let other = follow(&after.runner(script()), ask("else", "And why else?")).await.unwrap();
    assert_eq!(other.text.as_ref(), "It is odd, too.", "another name goes on in the session");
}

#[tokio::test]
async fn b59_a_node_that_resumes_behind_a_cut_follow_up_settles_it_and_goes_on_with_its_own() {
    // A session that answered in words and delivered nothing: its next command is the node's.
    let whole = World::new();
    let talk = json!([{"text": "It is 7."}, {"status": 529}]);
    whole.runner(talk).run_node(node(Vec::new()), step()).await.unwrap_err();
    let logs = Logs::of(&whole).await;
    let end = logs.records.iter().position(|record| record.body.kind() == "turn_end").unwrap();
    let world = logs.cut(end + 1).await;
    let running = start(&world.runner(stalls()), node(Vec::new()), why());
    asked(&world).await;
    cut(running).await;

    let submit = json!([when(json!({"contains": "`submit` tool"}), crate::world::submits(7))]);
    let delivered = world.runner(submit).run_node(node(Vec::new()), step()).await.unwrap();
    assert_eq!(delivered.value, json!({"n": 7}));
    let records = world.records().await;
    assert_eq!(settling(&records).len(), 1);
    let texts = messages(&records);
    assert_eq!(texts.len(), 3, "its prompt, the follow-up's, the reminder: {texts:?}");
    assert!(!texts[2].contains("Why?"), "B41: {}", texts[2]);
}

#[tokio::test]
async fn b61_a_persons_words_in_its_message_are_not_withdrawn_with_it() {
    let world = answered(&node(Vec::new())).await;
    said(&world, "p1", "Mind the units.").await;
    follow(&world.runner(script()), why()).await.unwrap();
    let logs = Logs::of(&world).await;
    let placed = logs.records.iter().rposition(|record| record.body.kind() == "placed").unwrap();
    assert!(messages(&logs.records).last().unwrap().contains("Mind the units."));
    // The harness had not taken the message yet, so the person's words reached nobody.
    let world = logs.cut(placed + 1).await;
    assert_eq!(follow(&world.runner(json!([])), why()).await.unwrap().end, OutcomeEnd::Interrupted);
    let records = world.records().await;
    let person = SubmissionId("p1".to_owned());
    let [(_, withdrawn, unsent)] = &settling(&records)[..] else { panic!("one batch") };
    assert_eq!((withdrawn, unsent), (&vec![SubmissionId::of_follow_up(&effect_key("why"))], &vec![person]));
    follow(&world.runner(script()), ask("else", "And why else?")).await.unwrap();
    let texts = messages(&world.records().await);
    let last = texts.last().unwrap();
    assert!(last.contains("Mind the units.") && !last.contains("\n\nWhy?"), "{last}");
}

/// Whether a log cut here ends inside a batch of a follow-up.
fn inside(records: &[Record], length: usize) -> bool {
    let of = |place: usize, kind: &str| records.get(place).is_some_and(|record| record.body.kind() == kind);
    let follow_up = |place: usize| match records.get(place).map(|record| &record.body) {
        Some(Body::Intent(intent)) => intent.effect == EffectKind::FollowUp,
        Some(Body::Outcome(outcome)) => outcome.key == effect_key("why"),
        _ => false,
    };
    let Some(last) = length.checked_sub(1) else { return false };
    inside_a_batch(records, length)
        || (of(last, "submission") && follow_up(length))
        || (of(last, "turn_end") && follow_up(length))
        || of(length, "withdrawn")
        || (of(last, "withdrawn") && of(length, "settled"))
}

#[tokio::test]
async fn b57_b58_f13_cut_behind_any_record_it_runs_at_most_once_and_is_settled_once() {
    let probe = Probe::new();
    let tools = || node(vec![probe.tool(agentrun_kernel::Replay::Safe)]);
    let steps = || {
        json!([
            when(json!({"contains": "found"}), json!({"text": "Because it is prime."})),
            when(json!({"contains": "Why?"}), calls("search", json!({"q": "why"}))),
            when(json!({"results": 0}), crate::world::submits(7)),
        ])
    };
    let whole = World::new();
    whole.runner(steps()).run_node(tools(), step()).await.unwrap();
    within(whole.runner(steps()).follow_up_once(tools(), step(), why())).await.unwrap();
    let logs = Logs::of(&whole).await;
    let begun = logs
        .records
        .iter()
        .position(|record| matches!(&record.body, Body::Intent(intent) if intent.effect == EffectKind::FollowUp))
        .unwrap();
    let delivered = logs.records.iter().position(|record| record.body.kind() == "delivered").unwrap();
    for length in delivered + 1..=logs.records.len() {
        if inside(&logs.records, length) {
            continue;
        }
        let what = format!("cut behind record {length}");
        let world = logs.cut(length).await;
        let runs = probe.runs();
        let followed = within(world.runner(steps()).follow_up_once(tools(), step(), why())).await.unwrap();
        let records = world.records().await;
        if length > begun && length < logs.records.len() {
            assert_eq!((followed.end, probe.runs()), (OutcomeEnd::Interrupted, runs), "{what}: nothing is run again");
            assert_eq!(settling(&records).len(), 1, "{what}");
        } else {
            assert_eq!(followed.end, OutcomeEnd::Ok, "{what}");
        }
        let placed = messages(&records).iter().filter(|text| text.contains("Why?")).count();
        assert!(placed <= 1 && intents(&records, EffectKind::FollowUp).len() == 1, "{what}");
        assert_eq!(of_follow_up(&records).len(), 1, "{what}");
        // And its recovery is cut in turn.
        let again = Logs::of(&world).await;
        for second in length..again.records.len() {
            if length <= begun || inside(&again.records, second) {
                continue;
            }
            let world = again.cut(second).await;
            let followed = within(world.runner(json!([])).follow_up_once(tools(), step(), why())).await.unwrap();
            assert_eq!(followed.end, of_follow_up(&records)[0].end, "{what}, then {second}");
            let records = world.records().await;
            assert_eq!((settling(&records).len(), of_follow_up(&records).len()), (1, 1), "{what}, then {second}");
        }
    }
}

#[tokio::test]
async fn b22_a_stop_ends_it_interrupted_and_its_batch_is_written_at_once() {
    let world = answered(&node(Vec::new())).await;
    let runner = world.runner(stalls());
    let running = start(&runner, node(Vec::new()), why());
    asked(&world).await;
    runner.stop(Duration::ZERO);
    let followed = within(running).await.unwrap().unwrap();
    assert_eq!((followed.end, followed.from_records), (OutcomeEnd::Interrupted, false));
    let records = world.records().await;
    assert_eq!(settling(&records).len(), 1);
    assert!(world.state().await.open_turn.is_none());
    assert_eq!(follow(&world.runner(json!([])), why()).await.unwrap().end, OutcomeEnd::Interrupted);
}

#[tokio::test]
async fn b58_a_provider_that_fails_is_its_outcome_and_the_turn_is_over() {
    let world = answered(&node(Vec::new())).await;
    let runner = world.runner(json!([when(json!({"contains": "Why?"}), json!({"status": 529}))]));
    let followed = follow(&runner, why()).await.unwrap();
    assert_eq!(followed.end, OutcomeEnd::Error);
    assert!(followed.text.contains("529"), "{}", followed.text);
    assert_eq!(world.state().await.last_turn.unwrap().how, TurnEndHow::Failed);
    assert!(follow(&world.runner(script()), why()).await.unwrap().from_records);
    assert_eq!(follow(&world.runner(script()), ask("else", "And why else?")).await.unwrap().end, OutcomeEnd::Ok);
}

#[tokio::test]
async fn b46_a_newer_owner_ends_it_and_settles_it() {
    let world = answered(&node(Vec::new())).await;
    let running = start(&world.runner(stalls()), node(Vec::new()), why());
    asked(&world).await;
    // Another machine: it does not see the owner live.
    let second = world.again();
    assert_eq!(follow(&second.runner(json!([])), why()).await.unwrap().end, OutcomeEnd::Interrupted);
    let error = within(running).await.unwrap().unwrap_err();
    assert!(error.to_string().starts_with("fenced"), "{error}");
    assert_eq!(count(&second.records().await, "settled"), 1);
}

#[tokio::test]
async fn its_turn_is_told_to_the_host_as_any_other() {
    let world = answered(&node(Vec::new())).await;
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let to = seen.clone();
    let runner = world.runner_with(script(), |options| {
        options.on_event = Some(std::sync::Arc::new(move |event| to.lock().unwrap().push(event.what)));
    });
    follow(&runner, why()).await.unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.contains(&What::TurnStart { turn: 2 }), "{seen:?}");
    assert!(seen.contains(&What::TurnEnd { how: TurnEndHow::Done }), "{seen:?}");
}

#[tokio::test]
async fn f04_a_never_call_that_an_earlier_attempt_completed_is_answered_from_its_receipt_in_it_too() {
    let probe = Probe::new();
    let tools = node(vec![probe.tool(agentrun_kernel::Replay::Never)]);
    let mut limited = tools.clone();
    limited.turn_limit = Some(1);
    let world = World::new();
    let first = json!([calls("search", json!({"q": "n"})), {"text": "I give up."}]);
    world.runner(first).run_node(limited, step()).await.unwrap_err();
    let second = agentrun_runner::Step {
        session: "s-2".parse().unwrap(),
        attempt: 2,
        earlier: vec![crate::world::key()],
        ..step()
    };
    let steps = json!([
        when(json!({"contains": "found \"n\""}), json!({"text": "As before."})),
        when(json!({"contains": "Why?"}), calls("search", json!({"q": "n"}))),
        when(json!({"results": 0}), crate::world::submits(7)),
    ]);
    world.runner(steps.clone()).run_node(tools.clone(), second.clone()).await.unwrap();
    let followed = within(world.runner(steps).follow_up_once(tools, second, why())).await.unwrap();
    assert_eq!((followed.text.as_ref(), probe.runs()), ("As before.", 1));
}
