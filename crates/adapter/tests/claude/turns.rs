//! A turn from its message to the idle program.

use agentrun_adapter::TurnEnd;
use agentrun_kernel::{Body, OutcomeEnd};
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
    assert_eq!(owner.calls(), [("toolu_work_0".to_owned(), "work".to_owned(), 0)]);
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(times_sent(&requests[0], "do it"), 1);
    assert!(result_sent(&requests[1], "toolu_work_0").to_string().contains("work done"));
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
    assert!(String::from_utf8(native).unwrap().contains("toolu_work_0"));
    let identity = owner.session.native().unwrap();
    assert_eq!((identity.version.as_str(), identity.resumed), ("2.1.332", false));
    owner.close().await;
    rig.assert_valid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b17_a_long_result_reaches_the_model_and_no_file_of_the_programs_own() {
    for (characters, whole) in [(480_000, true), (1_000_000, false)] {
        let rig = Rig::new(vec![calls(&[("work", json!({"characters": characters}))]), Step::says("done")]);
        let mut owner = rig.own(Work::Answers, &[]).await;
        let turn = owner.place("do it").await;
        assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
        owner.end_turn().await;
        owner.close().await;
        let sent = result_sent(&rig.model.requests()[1], "toolu_work_0");
        let text = sent["content"][0]["text"].as_str().unwrap_or_else(|| panic!("not shown: {sent:.300}"));
        assert_eq!(text.trim_end().len() == characters, whole);
        assert!(text.starts_with("xxx") && text.trim_end().ends_with("xxx") && text.len() > 400_000);
    }
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
    assert!(result_sent(&requests[1], "toolu_submit_0").to_string().contains("submit done"));
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

#[test]
fn eight_sessions_run_side_by_side_in_one_process_and_none_hears_of_another() {
    let session = |number: usize| async move {
        let prompt = format!("do it for {number}");
        let rig = Rig::new(vec![calls(&[("work", json!({"a": number}))]), Step::says("done")]);
        let mut owner = rig.own(Work::Answers, &[]).await;
        let turn = owner.place(&prompt).await;
        assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
        owner.end_turn().await;
        assert_eq!(owner.calls(), [("toolu_work_0".to_owned(), "work".to_owned(), 0)]);
        let native = owner.session.native().unwrap().session;
        owner.close().await;
        let requests = rig.model.requests();
        assert_eq!(requests.len(), 2);
        for other in 0..8 {
            let due = usize::from(other == number);
            assert_eq!(times_sent(&requests[1], &format!("do it for {other}")), due);
        }
        rig.assert_valid().await;
        native
    };
    // A thread each: what a rig awaits is not `Send`.
    let running: Vec<_> = (0..8)
        .map(|number| {
            std::thread::spawn(move || {
                let runtime =
                    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
                runtime.block_on(session(number))
            })
        })
        .collect();
    let sessions: std::collections::HashSet<_> = running.into_iter().map(|one| one.join().unwrap()).collect();
    assert_eq!(sessions.len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn b70_a_built_in_is_an_intent_before_it_runs_and_an_outcome_with_the_text_the_model_gets() {
    let rig = Rig::new(vec![
        calls(&[
            ("Read", json!({"file_path": "FILE"})),
            ("Bash", json!({"command": "echo forbidden > made"})),
            ("Bash", json!({"command": "exit 3"})),
        ]),
        Step::says("done"),
    ])
    .with_builtins(&["Read", "Bash"]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("look").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    let outcomes = rig.outcomes().await;
    let read = outcomes.iter().find(|(name, ..)| name == "Read").unwrap();
    assert_eq!(read.1, OutcomeEnd::Error, "there is no such file: {outcomes:?}");
    let bash: Vec<_> = outcomes.iter().filter(|(name, ..)| name == "Bash").collect();
    assert!(matches!(bash[..], [(_, OutcomeEnd::Error, text)] if text.contains("Exit code 3")), "{outcomes:?}");
    assert!(!rig.workspace.path().join("made").exists(), "a denied built-in does not run");
    let sent = &rig.model.requests()[1];
    assert!(result_sent(sent, "toolu_Bash_1").to_string().contains("not here"));
    assert!(result_sent(sent, "toolu_Bash_2").to_string().contains("Exit code 3"));
    owner.close().await;
    rig.assert_valid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b92_a_tool_nobody_offered_is_told_to_the_host_by_its_own_name() {
    for (called, told) in [("mcp__host__nosuch", "nosuch"), ("Bash", "Bash")] {
        let rig = Rig::new(vec![calls(&[(called, json!({"command": "touch made"}))])]);
        let mut owner = rig.own(Work::Answers, &[]).await;
        let turn = owner.place("do it").await;
        assert!(matches!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Stopped(_)));
        let tools: Vec<_> = owner.calls().into_iter().map(|(_, tool, _)| tool).collect();
        assert_eq!(tools, [told]);
        assert!(!rig.workspace.path().join("made").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f09_the_request_barrier_holds_until_the_transcript_has_the_message_and_every_result() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let barrier = owner.session.request_barrier().unwrap();
    let turn = owner.place("do it").await;
    owner.session.run_turn(turn).await.unwrap();
    let held = rig.model.requests()[1].body.to_string();
    drop(barrier.before_request(held.as_bytes()).await.unwrap());
    let lacks = held.replace("toolu_work_0", "toolu_of_no_history");
    let waits = tokio::time::timeout(std::time::Duration::from_millis(500), barrier.before_request(lacks.as_bytes()));
    assert!(waits.await.is_err(), "a result the transcript lacks must hold the request");
    // It holds the session's records.
    drop(barrier);
    owner.close().await;
}
