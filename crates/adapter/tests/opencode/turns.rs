//! A turn from its message to the idle program.

use std::time::Duration;

use agentrun_adapter::{AdapterErrorKind, JournalError, ModelApi, Start, TurnEnd};
use agentrun_kernel::{Body, Message, StopLevel, Why};
use agentrun_testing::script::Step;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{result_sent, texts, times_sent};
use crate::rig::{Rig, Work, calls};

/// A turn with a call, over one API: the call is run once, behind its record, and the model is shown its text; the barrier of the next
/// request holds until the log has what the request shows.
async fn a_turn_with_a_call(api: ModelApi) {
    let rig = Rig::new(vec![calls(&[("work", json!({"a": 1}))]), Step::says("done")]).speaking(api);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let barrier = owner.session.request_barrier().unwrap();
    let turn = owner.place("do it").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    assert_eq!(owner.calls(), [("call_work_0".to_owned(), "work".to_owned(), 0)]);
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        assert_eq!(times_sent(request, "do it"), 1);
    }
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
    let held = requests[1].body.to_string();
    drop(barrier.before_request(held.as_bytes()).await.unwrap());
    let lacks = held.replace("call_work_0", "call_of_no_history");
    let waits = tokio::time::timeout(Duration::from_millis(500), barrier.before_request(lacks.as_bytes()));
    assert!(waits.await.is_err(), "a result the log lacks must hold the request");
    // It holds the session's records.
    drop(barrier);
    let identity = owner.session.native().unwrap();
    assert_eq!((identity.version.as_str(), identity.resumed), ("1.18.33", false));
    owner.close().await;
    rig.assert_valid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b69_f09_a_host_tool_is_called_once_behind_its_recorded_call_and_no_request_shows_what_the_log_lacks() {
    a_turn_with_a_call(ModelApi::ChatCompletions).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b69_f09_the_same_over_anthropic_messages() {
    a_turn_with_a_call(ModelApi::Messages).await;
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
async fn b38_two_messages_are_two_turns_of_one_program_and_only_the_last_is_ever_resent() {
    let rig = Rig::new(vec![Step::says("one"), Step::says("two")]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    for text in ["first", "second"] {
        let turn = owner.place(text).await;
        assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
        owner.end_turn().await;
    }
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!((times_sent(&requests[1], "first"), times_sent(&requests[1], "second")), (1, 1));
    rig.assert_valid().await;
    // Given an older message once more, the program would run it once more: it is not given it.
    let older = owner.drive.with_state(|state| {
        let first = state.messages().next().unwrap();
        Message::from(&*first.placed)
    });
    let turn = owner.turn(Start::Continue(older));
    let error = owner.session.run_turn(turn).await.unwrap_err();
    assert!(matches!(error.kind, AdapterErrorKind::History), "{error:?}");
    assert_eq!(rig.model.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn b92_a_tool_nobody_offered_is_told_to_the_host_by_its_own_name_before_more_is_paid() {
    for called in ["nosuch", "bash"] {
        let rig = Rig::new(vec![
            calls(&[(called, json!({"command": "touch made", "description": "d"}))]),
            Step::says("done"),
        ]);
        let mut owner = rig.own(Work::Answers, &[]).await;
        let barrier = owner.session.request_barrier().unwrap();
        let turn = owner.place("do it").await;
        assert!(matches!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Stopped(_)));
        // What the gate does before it admits a next request.
        let next = rig.model.requests().pop().unwrap().body.to_string();
        let refused = barrier.before_request(next.as_bytes()).await;
        assert!(matches!(refused, Err(JournalError::Ended)), "{called}: {refused:?}");
        let tools: Vec<_> = owner.calls().into_iter().map(|(_, tool, _)| tool).collect();
        assert_eq!(tools, [called]);
        assert!(!rig.workspace.path().join("made").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b25_the_model_is_told_what_the_node_says_and_nothing_of_the_work_trees() {
    let rig = Rig::new(vec![Step::says("done")]);
    for file in ["AGENTS.md", "CLAUDE.md", "opencode.json"] {
        let text = if file.ends_with("json") { r#"{"instructions":["AGENTS.md"]}"# } else { "the work tree's words" };
        std::fs::write(rig.workspace.path().join(file), text).unwrap();
    }
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.close().await;
    let requests = rig.model.all_requests();
    assert_eq!(requests.len(), 1, "no side call");
    assert_eq!(texts(&requests[0]), ["You are a test.", "do it"]);
    assert!(requests[0].body.get("max_tokens").is_none(), "newer models refuse it");
    let offered: Vec<_> =
        requests[0].body["tools"].as_array().unwrap().iter().map(|it| it["function"].clone()).collect();
    let names: Vec<_> = offered.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["submit", "work"]);
    assert_eq!(offered[1]["parameters"], json!({"type": "object"}), "the schema as it stands");
}

#[tokio::test(flavor = "multi_thread")]
async fn f24_a_tool_that_takes_longer_than_one_asking_is_asked_for_again_and_runs_once() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")]);
    // An asking ends after 10 s.
    let mut owner = rig.own(Work::Takes(Duration::from_secs(13)), &[]).await;
    let turn = owner.place("do it").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    assert_eq!(owner.calls().len(), 1);
    assert_eq!(result_sent(&rig.model.requests()[1], "call_work_0"), "work done");
    owner.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_endpoint_of_the_tools_answers_nobody_but_the_script() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))])]);
    let mut owner = rig.own(Work::Hangs, &[]).await;
    let turn = owner.place("do it").await;
    let (host, stop, script) = (owner.host.clone(), owner.stop.clone(), owner.home().join("agentrun.js"));
    let asking = tokio::spawn(async move {
        host.begun.notified().await;
        let script = std::fs::read_to_string(script).unwrap();
        let host: Value =
            serde_json::from_str(script.lines().next().unwrap().strip_prefix("const host = ").unwrap()).unwrap();
        let (token, url) = (host["token"].as_str().unwrap(), host["url"].as_str().unwrap());
        let address = url.strip_prefix("http://").unwrap().strip_suffix("/call").unwrap();
        let call = r#"{"tool":"work","args":{},"message":"msg_x","call":"c"}"#;
        let mut answers = Vec::new();
        for (host, path, token, body) in [
            (address, "/call", "wrong", call),
            ("example.com", "/call", token, call),
            (address, "/", token, call),
            (address, "/call", token, "no json"),
            (address, "/call", token, r#"{"tool":"work","args":{}}"#),
        ] {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let length = body.len();
            let request = format!(
                "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answers.push(answer.split(' ').nth(1).unwrap().to_owned());
        }
        stop.raise(StopLevel::Kill, Why::Host);
        answers
    });
    let _ = owner.session.run_turn(turn).await.unwrap();
    assert_eq!(asking.await.unwrap(), ["401", "421", "404", "400", "400"]);
    assert_eq!(owner.calls().len(), 1, "nothing was run");
}
