//! Stopping on the real Claude Code program: the first signal drains, the second kills, and either way the session goes on from its records.
// Tests: a failed unwrap is the report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use agentrun_testing::script::Script;
use agentrun_testing::scripted::ScriptedModel;
use serde_json::json;
use support::{PATIENCE, Stage, calls_search, marked, of_kind, says_done, searching, submits, wait_for};

/// A stage with the node of one `never` tool, and the model it asks.
fn stage() -> (Stage, ScriptedModel) {
    let stage = Stage::new();
    assert!(stage.claude.is_absolute(), "AGENTRUN_CLAUDE must name the program; testing/run installs it");
    stage.node(&searching(&stage, "never"));
    let steps = json!({"steps": [calls_search(), submits("high"), says_done()]});
    (stage, ScriptedModel::start(Script::parse(&steps.to_string()).unwrap()).unwrap())
}

/// Starts the node and tells it to stop while its tool runs.
fn told_to_stop(stage: &Stage, model: &ScriptedModel) -> support::Running {
    let mut command = stage.run(&model.base_url());
    // Longer than any test waits: what ends it sooner is what is tested.
    command.args(["--drain", "1000"]);
    let running = stage.start(command);
    wait_for("the tool to begin", PATIENCE, || stage.work("started").exists().then_some(()));
    running.terminate();
    wait_for("the stop to be heard", PATIENCE, || running.said("stopping").then_some(()));
    running
}

/// The recorded outcome of the tool, and that the model saw exactly its text.
fn model_saw(stage: &Stage, model: &ScriptedModel, end: &str) {
    let records = stage.records();
    let intent = of_kind(&records, "intent").into_iter().find(|intent| intent["name"] == "search").unwrap();
    let outcome = of_kind(&records, "outcome").into_iter().find(|outcome| outcome["key"] == intent["key"]).unwrap();
    assert_eq!(outcome["end"], end, "{outcome}");
    let seen = model.requests()[1].body["messages"].to_string();
    // As JSON text, since that is what `seen` is.
    let text = outcome["text"].to_string();
    assert_eq!(seen.matches(text.trim_matches('"')).count(), 1, "the model sees {text} in {seen}");
}

fn let_go(stage: &Stage) {
    std::fs::write(stage.work("go"), "").unwrap();
}

#[test]
fn b20_b24_a_call_that_ends_in_the_drain_is_answered_from_its_record_on_resume() {
    let (stage, model) = stage();
    let running = told_to_stop(&stage, &model);
    let_go(&stage);
    let stopped = running.end(PATIENCE);
    assert_eq!(stopped.code, Some(4), "{stopped:?}");
    assert_eq!((&stopped.last()["word"], &stopped.last()["final"]), (&json!("aborted"), &json!(false)), "B22");
    assert_eq!(model.requests().len(), 1, "B19: nothing new begins");
    assert!(marked(&stage.session).is_empty());

    let resumed = stage.ends(stage.resume());
    assert_eq!(resumed.delivered(), json!({"severity": "high"}));
    assert_eq!(stage.runs().len(), 1);
    assert_eq!(model.requests().len(), 2);
    model_saw(&stage, &model, "ok");
    stage.check();
}

#[test]
fn an_api_that_moved_is_asked_where_it_is_now_and_the_request_that_reached_nobody_is_told_as_failed() {
    let (stage, model) = stage();
    let_go(&stage);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut first = stage.agentrun(&["run", "node.json", "--session", &stage.session, "--workspace", "work"]);
    first.args(["--base-url", &format!("http://{nobody}")]).env("ANTHROPIC_API_KEY", "made-up-key-0123456789");
    let first = stage.ends(first);
    assert_eq!(first.code, Some(4), "{first:?}");
    assert!(first.stderr.contains("model request failed, nothing booked"), "{first:?}");
    let mut moved = stage.resume();
    moved.args(["--base-url", &model.base_url()]);
    assert_eq!(stage.ends(moved).delivered(), json!({"severity": "high"}));
    assert_eq!(of_kind(&stage.records(), "placed").len(), 1);
    stage.check();
}

#[test]
fn b23_a_second_signal_kills_and_the_session_goes_on_from_its_records() {
    let (stage, model) = stage();
    let running = told_to_stop(&stage, &model);
    running.terminate();
    let killed = running.end(PATIENCE);
    assert_eq!(killed.code, Some(4), "{killed:?}");
    wait_for("its processes to be gone", PATIENCE, || marked(&stage.session).is_empty().then_some(()));
    let_go(&stage);

    let resumed = stage.ends(stage.resume());
    assert_eq!(resumed.delivered(), json!({"severity": "high"}));
    assert_eq!(stage.runs().len(), 1, "B53: not run again");
    model_saw(&stage, &model, "interrupted");
    stage.check();
}
