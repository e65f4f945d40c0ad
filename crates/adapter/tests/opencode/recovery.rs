//! A next owner goes on from the records, in a fresh home.

use std::sync::Arc;
use std::time::Duration;

use agentrun_adapter::{Start, Turn, TurnEnd};
use agentrun_kernel::{Batch, Body, EffectKey, Repair, StopLevel, Why};
use agentrun_testing::script::{Step, ToolUse};
use agentrun_testing::scripted::SeenRequest;
use serde_json::{Map, Value, json};

use crate::harness::{result_sent, times_sent};
use crate::rig::{NOTE, Owner, Rig, Work, answer, calls};

/// Far above what a loaded machine needs to start the program and call.
const BOUND: Duration = Duration::from_secs(120);

/// Runs a turn until `work` has its intent, then drops everything.
async fn crash_in_work(rig: &Rig) {
    let owner = rig.own(Work::Hangs, &[]).await;
    let turn = owner.place("do it").await;
    crash_once_begun(rig, owner, turn, 1).await;
}

/// Runs a turn until there are this many intents, then drops everything.
async fn crash_once_begun(rig: &Rig, mut owner: Owner, turn: Turn, intents: usize) {
    let begun = async {
        while rig.records().await.iter().filter(|it| matches!(it.body, Body::Intent(_))).count() < intents {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        end = owner.session.run_turn(turn) => panic!("the turn ended: {end:?}"),
        begun = tokio::time::timeout(BOUND, begun) => begun.expect("the calls do not begin"),
    }
    owner.crash().await;
}

/// Goes on with the open turn until the program is idle.
async fn go_on(owner: &mut Owner) {
    let turn = owner.turn(Start::Continue(owner.placed()));
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
}

/// What the model is shown behind the system prompt, a line for each message: whose it is, and its words or the ids of its calls.
fn shown(request: &SeenRequest) -> Vec<String> {
    let messages = request.body["messages"].as_array().unwrap();
    let line = |message: &Value| {
        let text = message["content"].as_str().unwrap_or_default();
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let calls: Vec<_> = calls.map(|call| call["id"].as_str().unwrap()).collect();
        match message["role"].as_str().unwrap() {
            "tool" => format!("{}: {text}", message["tool_call_id"].as_str().unwrap()),
            role => format!("{role}: {text}{}", calls.join(" ")),
        }
    };
    messages.iter().skip(1).map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn f10_b24_a_call_is_recorded_before_it_runs_and_after_a_crash_in_it_answered_from_its_recorded_outcome() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")]);
    crash_in_work(&rig).await;
    let open = rig.own(Work::Answers, &[]).await.survey.open_calls.clone();
    assert_eq!((open.len(), open[0].tool.as_str()), (1, "work"), "the crash forgot it");
    let mut owner = rig.own(Work::Answers, &[answer("call_work_0", "the recorded text")]).await;
    assert!(owner.survey.open_calls.is_empty() && !owner.survey.ended);
    go_on(&mut owner).await;
    assert_eq!(owner.calls(), [], "it is not run again");
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(times_sent(&requests[1], "do it"), 1);
    assert_eq!(result_sent(&requests[1], "call_work_0"), "the recorded text");
}

#[tokio::test(flavor = "multi_thread")]
async fn b68_the_model_is_told_of_an_interruption_behind_all_that_was_recorded_before_it() {
    let call = |id: &str| {
        // Each with arguments of its own: a call like one that was cut is not run again.
        let input = Map::from_iter([("call".to_owned(), id.into())]);
        Step { tools: vec![ToolUse { name: "work".to_owned(), input, id: Some(id.to_owned()) }], ..Step::default() }
    };
    let both = calls(&[("work", json!({"a": 1})), ("work", json!({"a": 2}))]);
    let rig = Rig::new(vec![both, call("later"), call("last"), Step::says("done")]);
    let owner = rig.own(Work::Hangs, &[]).await;
    let turn = owner.place("do it").await;
    crash_once_begun(&rig, owner, turn, 2).await;
    let open = rig.own(Work::Answers, &[]).await.survey.open_calls.clone();
    let want: Vec<_> = open.iter().map(|call| answer(call.call.as_str(), &format!("cut {}", call.call))).collect();
    let owner = rig.own(Work::Hangs, &want).await;
    let turn = owner.turn(Start::Continue(owner.placed()));
    crash_once_begun(&rig, owner, turn, 3).await;
    let mut owner = rig.own(Work::Answers, &[answer("later", "cut too")]).await;
    go_on(&mut owner).await;
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 4);
    let before = [
        "user: do it",
        "assistant: call_work_0 call_work_1",
        "call_work_0: cut call_work_0",
        "call_work_1: cut call_work_1",
    ];
    let note = format!("user: {NOTE}");
    let at = |request: usize, lines: &[&str]| {
        assert_eq!(shown(&requests[request]), [&before[..], lines].concat(), "request {request}")
    };
    at(1, &[&note]);
    // The later one is told of in place of the earlier one, and stays where it belongs when more is said.
    at(2, &["assistant: later", "later: cut too", &note]);
    at(3, &["assistant: later", "later: cut too", &note, "assistant: last", "last: work done"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn b36_a_prompt_that_was_taken_reaches_the_model_once_though_its_answer_was_cut() {
    let rig = Rig::new(vec![Step { stall_after_events: Some(2), ..Step::says("cut") }, Step::says("done")]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let barrier = owner.session.request_barrier().unwrap();
    let stop = owner.stop.clone();
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        let request = rig.model.wait_for_requests(1).await.unwrap().remove(0);
        // What the gate does before it admits a request.
        drop(barrier.before_request(request.body.to_string().as_bytes()).await.unwrap());
        stop.raise(StopLevel::Kill, Why::Host);
    });
    assert_eq!(end.unwrap(), TurnEnd::Stopped(StopLevel::Kill));
    owner.crash().await;
    let mut owner = rig.own(Work::Answers, &[]).await;
    let message = owner.placed();
    assert!(owner.survey.taken.contains(&message.id));
    go_on(&mut owner).await;
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!((times_sent(&requests[1], "do it"), times_sent(&requests[1], NOTE)), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn b38_a_prompt_that_was_placed_and_not_taken_is_placed_again_under_its_own_id() {
    let rig = Rig::new(vec![Step::says("done")]);
    let owner = rig.own(Work::Answers, &[]).await;
    // Placed in the records; the process died before the program had it.
    let message = owner.ticket("do it").await.place().await.unwrap();
    owner.crash().await;
    let mut owner = rig.own(Work::Answers, &[]).await;
    assert!(owner.survey.taken.is_empty());
    let turn = owner.turn(Start::Again(message.clone()));
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!((requests.len(), times_sent(&requests[0], "do it")), (1, 1));
    let owner = rig.own(Work::Answers, &[]).await;
    assert_eq!(owner.survey.taken, [message.id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn b29_a_settled_turn_is_not_taken_up_and_the_next_message_follows_its_end() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")]);
    crash_in_work(&rig).await;
    let mut owner = rig.own(Work::Answers, &[Repair::EndTurn]).await;
    assert!(owner.survey.ended);
    owner.end_turn().await;
    let turn = owner.place("something else").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    assert_eq!(owner.calls(), []);
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 2, "the settled turn asks nothing more");
    assert_eq!((times_sent(&requests[1], "do it"), times_sent(&requests[1], "something else")), (1, 1));
    assert!(result_sent(&requests[1], "call_work_0").to_string().contains("not run"));
}

#[tokio::test(flavor = "multi_thread")]
async fn f08_a_response_that_was_paid_for_and_never_stored_is_written_back_and_not_asked_for_again() {
    let rig = Rig::new(vec![Step { stall_after_events: Some(1), ..Step::says("cut") }, Step::says("done")]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let barrier = owner.session.request_barrier().unwrap();
    let (stop, drive) = (owner.stop.clone(), owner.drive.clone());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        let request = rig.model.wait_for_requests(1).await.unwrap().remove(0);
        let tail = barrier.before_request(request.body.to_string().as_bytes()).await.unwrap();
        drive.append(Batch::of(tail.bodies()), None).await.unwrap();
        drop(tail);
        stop.raise(StopLevel::Kill, Why::Host);
    });
    assert_eq!(end.unwrap(), TurnEnd::Stopped(StopLevel::Kill));
    owner.crash().await;
    let response = json!({"id": "r1", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": "Working.", "tool_calls": [
            {"id": "call_work_0", "type": "function", "function": {"name": "work", "arguments": "{\"a\":1}"}}]}}]});
    let response: Arc<[u8]> = Arc::from(response.to_string().into_bytes());
    let paid = Repair::Response { key: EffectKey("k".to_owned()), id: "r1".to_owned() };
    let want = [paid, answer("call_work_0", "recorded")];
    let mut owner = rig.own_with(Work::Answers, &want, &|id| (id == "r1").then(|| response.clone())).await;
    assert_eq!(owner.survey.responses, ["r1"]);
    assert!(owner.survey.open_calls.is_empty() && !owner.survey.ended);
    go_on(&mut owner).await;
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(result_sent(&requests[1], "call_work_0"), "recorded");
    assert_eq!((times_sent(&requests[1], "Working."), times_sent(&requests[1], "do it")), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn b66_a_session_goes_on_in_another_work_tree_of_another_history() {
    let mut rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")]);
    crash_in_work(&rig).await;
    rig.workspace = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str]| {
        let said =
            std::process::Command::new("git").args(arguments).current_dir(rig.workspace.path()).output().unwrap();
        assert!(said.status.success(), "{said:?}");
    };
    git(&["init", "--quiet"]);
    git(&["-c", "user.name=t", "-c", "user.email=t@t.example", "commit", "--quiet", "--allow-empty", "-m", "first"]);
    let mut owner = rig.own(Work::Answers, &[answer("call_work_0", "the recorded text")]).await;
    go_on(&mut owner).await;
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!(result_sent(&requests[1], "call_work_0"), "the recorded text");
}
