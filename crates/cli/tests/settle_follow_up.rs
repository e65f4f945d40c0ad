//! `agentrun settle` and `agentrun follow-up` from outside, on the faux harness.
// Tests: a failed unwrap is the report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::process::Command;

use serde_json::{Value, json};
use support::{PATIENCE, Ran, Running, Stage, calls_search, of_kind, searching, wait_for};

/// A stage whose model searches once, submits, and answers what it is asked later.
fn stage() -> Stage {
    let mut stage = Stage::new();
    // None of this needs a program.
    stage.claude = stage.at("no-such-program");
    stage.node(&searching(&stage, "never"));
    let submit = |when: Value| json!({"when": when, "times": "always", "tools": [{"name": "submit", "input": {"value": {"severity": "high"}}}]});
    let steps = json!({"steps": [
        {"when": {"contains": "Why high?"}, "text": "Because the disk is full.", "times": "always"},
        {"when": {"contains": "Wait."}, "stall_after_events": 0, "times": "always"},
        submit(json!({"contains": "`submit` tool"})),
        submit(json!({"contains": "found by search"})),
        calls_search(),
    ]});
    stage.write("s.json", &steps.to_string());
    stage
}

fn run(stage: &Stage) -> Command {
    stage.agentrun(&[
        "run",
        "node.json",
        "--harness",
        "faux",
        "--script",
        "s.json",
        "--workspace",
        "work",
        "--session",
        &stage.session,
        "--json",
    ])
}

fn delivered() -> Stage {
    let stage = stage();
    std::fs::write(stage.work("go"), "").unwrap();
    stage.ends(run(&stage)).delivered();
    stage
}

/// A node in the middle of its tool call.
fn in_a_call(stage: &Stage) -> Running {
    let running = stage.start(run(stage));
    wait_for("the tool to begin", PATIENCE, || stage.work("started").exists().then_some(()));
    running
}

fn settle(stage: &Stage, more: &[&str]) -> Ran {
    let mut command = stage.agentrun(&["settle", &stage.session]);
    command.args(more);
    stage.ends(command)
}

fn asking(stage: &Stage, name: &str, prompt: &str, more: &[&str]) -> Command {
    let mut command = stage.agentrun(&["follow-up", &stage.session, "--name", name, "--prompt", prompt]);
    command.args(more);
    command
}

fn ask(stage: &Stage, name: &str, prompt: &str, more: &[&str]) -> Ran {
    stage.ends(asking(stage, name, prompt, more))
}

#[test]
fn b28_b29_a_killed_session_is_settled_from_its_store_alone_and_goes_on_with_a_turn_of_its_own() {
    let stage = stage();
    in_a_call(&stage).kill();
    for gone in ["node.json", "s.json", "search.sh"] {
        std::fs::rename(stage.at(gone), stage.at(&format!("{gone}.kept"))).unwrap();
    }
    let ran = settle(&stage, &["--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let last = ran.last();
    assert_eq!((&last["type"], &last["how"]), (&json!("settled"), &json!("interrupted")), "{ran:?}");
    assert_eq!((&last["interrupted"], &last["unsent"]), (&json!(["search"]), &json!([])), "{ran:?}");
    assert_eq!(stage.runs().len(), 1);
    stage.check();
    let again = settle(&stage, &[]);
    assert_eq!((again.code, again.stdout.trim()), (Some(0), "nothing was open"), "{again:?}");

    for kept in ["node.json", "s.json", "search.sh"] {
        std::fs::rename(stage.at(&format!("{kept}.kept")), stage.at(kept)).unwrap();
    }
    let ran = stage.ends(stage.agentrun(&["resume", &stage.session, "--json"]));
    assert_eq!(ran.delivered(), json!({"severity": "high"}));
    let records = stage.records();
    assert_eq!((of_kind(&records, "placed").len(), stage.runs().len()), (2, 1), "{ran:?}");
    stage.check();
}

#[test]
fn f14_a_live_owner_keeps_its_session_until_it_is_taken() {
    let stage = stage();
    let owner = in_a_call(&stage);
    let refused = settle(&stage, &["--json"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.stderr.contains("--take"), "{refused:?}");
    let records = stage.records();
    let taken = settle(&stage, &["--take"]);
    assert_eq!(taken.code, Some(0), "{taken:?}");
    assert!(taken.stdout.contains("interrupted: search"), "{taken:?}");
    assert_eq!(owner.end(PATIENCE).code, Some(5), "the owner ends as fenced");
    assert!(stage.records().len() > records.len());
    stage.check();
}

#[test]
fn b56_b57_a_follow_up_prints_the_models_words_once_asked_and_from_the_records_after_that() {
    let stage = delivered();
    let first = ask(&stage, "why", "Why high?", &["--reserve", "1"]);
    assert_eq!((first.code, first.stdout.trim()), (Some(0), "Because the disk is full."), "{first:?}");
    let records = stage.records();
    for gone in ["node.json", "s.json", "search.sh"] {
        std::fs::remove_file(stage.at(gone)).unwrap();
    }
    let again = ask(&stage, "why", "Whatever else?", &["--json"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    let last = again.last();
    assert_eq!(last["usd"].as_str(), Some("0.0006"), "what it cost alone: {again:?}");
    let expected = json!({
        "type": "follow_up", "session": stage.session, "name": "why", "end": "ok", "text": "Because the disk is full.",
        "usd": "0.0006", "unknown_usd": "0", "from_records": true,
    });
    assert_eq!(last, expected);
    assert_eq!(stage.records(), records, "nothing was opened");
    let value = stage.ends(stage.agentrun(&["resume", &stage.session, "--json"])).delivered();
    assert_eq!(value, json!({"severity": "high"}), "the value stands");
    stage.check();
}

#[test]
fn b56_a_session_that_has_not_answered_takes_none_and_a_busy_one_says_so() {
    let stage = stage();
    let owner = in_a_call(&stage);
    let refused = ask(&stage, "why", "Why high?", &["--json"]);
    assert_eq!((refused.code, &refused.last()["word"]), (Some(4), &json!("busy")), "it may answer yet: {refused:?}");
    std::fs::write(stage.work("go"), "").unwrap();
    owner.end(PATIENCE).delivered();

    let first = stage.start(asking(&stage, "wait", "Wait.", &["--drain", "0", "--json"]));
    wait_for("the first to ask its model", PATIENCE, || first.wrote("request_start").then_some(()));
    let records = stage.records();
    let second = ask(&stage, "why", "Why high?", &["--json"]);
    assert_eq!((second.code, &second.last()["word"]), (Some(4), &json!("busy")), "{second:?}");
    assert_eq!(stage.records(), records);
    first.interrupt();
    let first = first.end(PATIENCE);
    assert_eq!((first.code, &first.last()["end"]), (Some(3), &json!("interrupted")), "{first:?}");
    stage.check();
}

#[test]
fn b58_b59_a_killed_follow_up_stays_interrupted_and_another_name_goes_on() {
    let stage = delivered();
    let running = stage.start(asking(&stage, "wait", "Wait.", &["--json"]));
    wait_for("it to ask its model", PATIENCE, || running.wrote("request_start").then_some(()));
    running.kill();
    let settled = settle(&stage, &[]);
    assert!(settled.stdout.contains("the follow-up's turn was ended as interrupted"), "{settled:?}");
    let again = ask(&stage, "wait", "Wait.", &["--json"]);
    assert_eq!((again.code, &again.last()["end"]), (Some(3), &json!("interrupted")), "{again:?}");
    assert_eq!(again.last()["from_records"], true);
    assert!(again.last()["unknown_usd"].as_str().unwrap() != "0", "its request may have been paid: {again:?}");
    let other = ask(&stage, "why", "Why high?", &[]);
    assert_eq!(other.stdout.trim(), "Because the disk is full.", "{other:?}");
    let withdrawn = of_kind(&stage.records(), "withdrawn");
    assert_eq!(withdrawn.len(), 1);
    assert_eq!(withdrawn[0]["ids"], json!(["follow-up:name:wait"]), "B61");
    stage.check();
}

#[test]
fn b63_over_its_reserve_it_ends_with_the_word_and_nothing_spent() {
    let stage = delivered();
    let ran = ask(&stage, "why", "Why high?", &["--reserve", "0.000001", "--json"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let last = ran.last();
    assert!(last["text"].as_str().unwrap().starts_with("over_reserve"), "{ran:?}");
    assert_eq!((&last["usd"], &last["unknown_usd"]), (&json!("0"), &json!("0")), "{ran:?}");
}

#[test]
fn bad_usage_is_found_before_anything_is_opened() {
    let stage = delivered();
    let records = stage.records();
    for (bad, told) in [
        (&["follow-up", &stage.session, "--name", "two words", "--prompt", "x"][..], "blank"),
        (&["follow-up", &stage.session, "--name", "n", "--prompt", "x", "--reserve", "-1"], "at least 0"),
        (&["follow-up", &stage.session, "--prompt", "x"], "--name"),
        (&["follow-up", "nobody", "--name", "n", "--prompt", "x"], "there is no session"),
        (&["settle", "nobody"], "there is no session"),
    ] {
        let ran = stage.ends(stage.agentrun(bad));
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(told), "{told}: {ran:?}");
    }
    assert_eq!(stage.records(), records);
}
