//! A turn from its message to the idle program.

use std::time::Duration;

use agentrun_adapter::process::{Epochs, sweep};
use agentrun_adapter::{JournalError, TurnEnd};
use agentrun_kernel::Body;
use agentrun_testing::script::Step;
use serde_json::json;

use crate::harness::{result_sent, times_sent};
use crate::rig::{Rig, Work, calls};

#[tokio::test(flavor = "multi_thread")]
async fn b69_a_host_tool_is_called_once_behind_its_recorded_call_and_the_model_sees_its_text() {
    let rig = Rig::new(vec![calls(&[("work", json!({"a": 1}))]), Step::says("done")]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    assert_eq!(owner.calls(), [("call_work_0".to_owned(), "work".to_owned(), 0)]);
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(times_sent(&requests[0], "do it"), 1);
    assert!(result_sent(&requests[1], "call_work_0").to_string().contains("work done"));
    // Inv. 7: the call stands in the native history before, or in the same batch as, its intent.
    let records = rig.records().await;
    let intent = records.iter().position(|record| matches!(record.body, Body::Intent(_))).unwrap();
    let native: Vec<u8> = records[..intent]
        .iter()
        .filter_map(|record| match &record.body {
            Body::Native(write) => Some(write.bytes.to_vec()),
            _ => None,
        })
        .flatten()
        .collect();
    assert!(String::from_utf8(native).unwrap().contains("call_work_0"));
    let identity = owner.session.native().unwrap();
    assert_eq!((identity.version.as_str(), identity.resumed), ("0.171.0", false));
    owner.close().await;
    rig.assert_valid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b17_a_long_result_reaches_the_model_whole() {
    let rig = Rig::new(vec![calls(&[("work", json!({"characters": 480_000}))]), Step::says("done")]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.close().await;
    let sent = result_sent(&rig.model.requests()[1], "call_work_0");
    assert_eq!(sent.as_str().map(str::len), Some(480_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_submit_ends_the_turn_with_no_further_request() {
    let rig = Rig::new(vec![calls(&[("submit", json!({"value": 1}))]), Step::says("never asked")]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.close().await;
    assert_eq!(rig.model.requests().len(), 1);
    // Its history is clean: a next message sees the submit and its answer, and nothing is taken up by itself.
    let mut owner = rig.own(Work::Answers, &[]).await;
    assert!(owner.survey.ended && owner.survey.resumable);
    let turn = owner.place("and now?").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    assert!(owner.session.native().unwrap().resumed);
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!((times_sent(&requests[1], "do it"), times_sent(&requests[1], "and now?")), (1, 1));
    assert!(result_sent(&requests[1], "call_submit_0").to_string().contains("submit done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_messages_are_two_turns_of_one_program() {
    let rig = Rig::new(vec![Step::says("one"), Step::says("two")]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    for text in ["first", "second"] {
        let turn = owner.place(text).await;
        assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
        owner.end_turn().await;
    }
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!((times_sent(&requests[1], "first"), times_sent(&requests[1], "second")), (1, 1));
    rig.assert_valid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b70_a_built_in_is_an_intent_before_it_runs_and_an_outcome_with_the_text_the_model_gets() {
    let patch = "*** Begin Patch\n*** Add File: patched.txt\n+hello\n*** End Patch";
    let rig = Rig::new(vec![
        calls(&[
            ("exec_command", json!({"cmd": "echo seen; printenv AGENTRUN_MODEL_KEY; printenv AGENTRUN_MARK"})),
            ("exec_command", json!({"cmd": "echo forbidden > made"})),
            ("exec_command", json!({"cmd": "exit 3"})),
            ("apply_patch", json!({"input": patch})),
        ]),
        Step::says("done"),
    ])
    .with_builtins(&["exec_command", "apply_patch"]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("look").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    let outcomes = rig.outcomes().await;
    let sent = &rig.model.requests()[1];
    for (call, says) in [
        ("call_exec_command_0", "seen"),
        ("call_exec_command_2", "exited with code 3"),
        ("call_apply_patch_3", "A patched.txt"),
    ] {
        let shown = result_sent(sent, call);
        assert!(shown.to_string().contains(says), "{shown}");
        assert!(outcomes.iter().any(|(_, _, text)| shown == text.as_str()), "{shown} is not in {outcomes:?}");
    }
    assert_eq!(outcomes.len(), 3, "{outcomes:?}");
    assert!(rig.workspace.path().join("patched.txt").exists());
    assert!(!rig.workspace.path().join("made").exists(), "a denied built-in does not run");
    assert!(!result_sent(sent, "call_exec_command_1").is_null(), "and the model is told");
    let environment = result_sent(sent, "call_exec_command_0").to_string();
    assert!(!environment.contains("made-up-key"), "{environment}");
    assert!(environment.contains(&owner.marker.session), "a command carries the mark: {environment}");
    owner.close().await;
    rig.assert_valid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b70_a_command_that_runs_on_behind_its_result_has_that_result_for_an_outcome_and_ends_with_the_program() {
    let command = json!({"cmd": "echo begun; sleep 300", "yield_time_ms": 500});
    let rig = Rig::new(vec![calls(&[("exec_command", command)]), Step::says("done")]).with_builtins(&["exec_command"]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("look").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    let outcomes = rig.outcomes().await;
    let shown = result_sent(&rig.model.requests()[1], "call_exec_command_0");
    assert!(matches!(&outcomes[..], [(_, _, text)] if shown == text.as_str()), "{shown} is not {outcomes:?}");
    assert!(shown.as_str().unwrap().contains("begun"), "{shown}");
    let marker = owner.marker.clone();
    owner.close().await;
    let left = sweep(&marker, Epochs::UpTo, Duration::from_secs(20)).await.unwrap();
    assert!(left.is_empty(), "left running: {left:?}");
    assert_eq!(rig.model.requests().len(), 2);
    rig.assert_valid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b92_a_tool_nobody_offered_is_told_to_the_host_by_its_own_name_before_more_is_paid() {
    for called in ["nosuch", "exec_command"] {
        let rig = Rig::new(vec![calls(&[(called, json!({"cmd": "touch made"}))]), Step::says("done")]);
        let mut owner = rig.own(Work::Answers, &[]).await;
        let barrier = owner.session.request_barrier().unwrap();
        let turn = owner.place("do it").await;
        owner.session.run_turn(turn).await.unwrap();
        // What the gate does before it admits the next request.
        let next = rig.model.requests()[1].body.to_string();
        assert!(matches!(barrier.before_request(next.as_bytes()).await, Err(JournalError::Ended)));
        let tools: Vec<_> = owner.calls().into_iter().map(|(_, tool, _)| tool).collect();
        assert_eq!(tools, [called]);
        assert!(!rig.workspace.path().join("made").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f09_the_request_barrier_holds_until_the_rollout_has_the_message_and_every_result() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let barrier = owner.session.request_barrier().unwrap();
    let turn = owner.place("do it").await;
    owner.session.run_turn(turn).await.unwrap();
    let held = rig.model.requests()[1].body.to_string();
    drop(barrier.before_request(held.as_bytes()).await.unwrap());
    let lacks = held.replace("call_work_0", "call_of_no_history");
    let waits = tokio::time::timeout(std::time::Duration::from_millis(500), barrier.before_request(lacks.as_bytes()));
    assert!(waits.await.is_err(), "a result the rollout lacks must hold the request");
    // It holds the session's records.
    drop(barrier);
    owner.close().await;
}
