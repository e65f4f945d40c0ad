//! People beside a session, from outside, on the faux harness: `send`, `retract`, `show --follow`, and a second `run`.
// Tests: a failed unwrap is the report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::process::Command;

use serde_json::{Value, json};
use support::{PATIENCE, Ran, Running, Stage, calls_search, of_kind, searching, wait_for};

const WORDS: &str = "Look at db-4 too.";

/// A stage whose model searches, says what it found, and submits `low` once it has read the words, else `high` when it is reminded.
fn stage() -> Stage {
    let mut stage = Stage::new();
    // None of this needs a program.
    stage.claude = stage.at("no-such-program");
    stage.node(&searching(&stage, "safe"));
    let submits = |severity: &str| json!([{"name": "submit", "input": {"value": {"severity": severity}}}]);
    let mut searches = calls_search();
    searches["times"] = json!("always");
    let steps = json!({"steps": [
        {"when": {"contains": WORDS}, "times": "always", "tools": submits("low")},
        {"when": {"contains": "`submit` tool"}, "times": "always", "tools": submits("high")},
        searches,
        {"when": {"contains": "found by search"}, "times": "always", "text": "I found something."},
    ]});
    stage.write("s.json", &steps.to_string());
    stage
}

fn run(stage: &Stage) -> Command {
    let session = stage.session.as_str();
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
        session,
        "--json",
    ])
}

/// A node in the middle of its tool call.
fn in_a_call(stage: &Stage) -> Running {
    let running = stage.start(run(stage));
    wait_for("the tool to begin", PATIENCE, || stage.work("started").exists().then_some(()));
    running
}

fn let_go(stage: &Stage) {
    std::fs::write(stage.work("go"), "").unwrap();
}

fn send(stage: &Stage, id: &str, words: &str) -> Ran {
    stage.ends(stage.agentrun(&["send", &stage.session, words, "--id", id, "--json"]))
}

fn retract(stage: &Stage, id: &str) -> Ran {
    stage.ends(stage.agentrun(&["retract", &stage.session, id, "--json"]))
}

fn follow(stage: &Stage) -> Running {
    let following = stage.start(stage.agentrun(&["show", &stage.session, "--follow", "--json"]));
    wait_for("what is there to be shown", PATIENCE, || (!following.lines().is_empty()).then_some(()));
    following
}

/// What `agentrun show` prints for a person.
fn shown(stage: &Stage) -> String {
    stage.ends(stage.agentrun(&["show", &stage.session])).stdout
}

/// The texts that were placed, in order.
fn placed(stage: &Stage) -> Vec<String> {
    of_kind(&stage.records(), "placed").iter().map(|it| it["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn b71_m33_m34_words_reach_a_live_owner_of_another_process_once_and_are_taken_back_until_then() {
    let stage = stage();
    let owner = in_a_call(&stage);
    let sent = send(&stage, "one", WORDS);
    let expected =
        json!({"type": "message", "session": stage.session, "id": "one", "state": "waiting", "again": false});
    assert_eq!((sent.code, sent.last()), (Some(0), expected), "{sent:?}");
    assert_eq!(send(&stage, "one", WORDS).last()["again"], true);
    let conflict = send(&stage, "one", "Other words.");
    assert_eq!(conflict.code, Some(3), "{conflict:?}");
    assert!(conflict.stderr.contains("under another id"), "{conflict:?}");
    assert_eq!(send(&stage, "two", "Forget it.").code, Some(0));
    let retracted = retract(&stage, "two");
    assert_eq!((retracted.code, &retracted.last()["state"]), (Some(0), &json!("retracted")), "{retracted:?}");
    assert_eq!(send(&stage, "two", "Forget it.").code, Some(3), "it stays retracted");
    assert_eq!(retract(&stage, "nobody").code, Some(2));
    let_go(&stage);
    assert_eq!(owner.end(PATIENCE).delivered(), json!({"severity": "low"}));
    assert_eq!(placed(&stage), [support::PROMPT, WORDS]);
    assert_eq!(
        (retract(&stage, "one").code, send(&stage, "one", WORDS).last()["state"].clone()),
        (Some(3), json!("taken"))
    );
    let late = send(&stage, "three", "And now?");
    assert_eq!(late.last()["state"], "waiting", "for a follow-up: {late:?}");
    for told in [stage.ends(run(&stage)).stderr, shown(&stage)] {
        assert!(told.contains("1 message waits and goes with the next follow-up: agentrun follow-up"), "{told}");
    }
    stage.check();
}

#[test]
fn b71_words_sent_between_a_kill_and_the_resume_are_taken_by_it_once() {
    let stage = stage();
    let owner = in_a_call(&stage);
    send(&stage, "one", WORDS);
    owner.kill();
    let told = stage.ends(stage.agentrun(&["send", &stage.session, WORDS, "--id", "one"]));
    assert!(told.stderr.contains("agentrun resume"), "no owner lives: {told:?}");
    send(&stage, "two", "And db-5.");
    let told = shown(&stage);
    assert!(told.contains("2 messages wait and are taken by: agentrun resume"), "{told}");
    retract(&stage, "two");
    let_go(&stage);
    assert_eq!(stage.ends(stage.resume()).delivered(), json!({"severity": "low"}));
    assert_eq!(placed(&stage), [support::PROMPT, WORDS]);
    assert!(!shown(&stage).contains("message"), "none waits");
    stage.check();
}

#[test]
fn words_that_a_node_ended_without_are_told_at_its_end() {
    let stage = stage();
    let mut node = searching(&stage, "safe");
    node["turn_limit"] = json!(1);
    stage.node(&node);
    let owner = in_a_call(&stage);
    send(&stage, "one", "Look at db-4.");
    let_go(&stage);
    let ended = owner.end(PATIENCE);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    for told in [ended.stderr, shown(&stage)] {
        assert!(told.contains("1 message waits and is never taken"), "{told}");
    }
}

#[test]
fn a_session_that_is_not_there_or_has_failed_takes_no_words() {
    let stage = stage();
    assert_eq!(send(&stage, "one", WORDS).code, Some(2), "no store");
    let mut node = searching(&stage, "safe");
    node["turn_limit"] = json!(1);
    stage.node(&node);
    let_go(&stage);
    assert_eq!(stage.ends(run(&stage)).code, Some(3));
    let over = send(&stage, "one", WORDS);
    assert_eq!(over.code, Some(3), "{over:?}");
    let mut nobody = stage.agentrun(&["send", "nobody", WORDS]);
    nobody.arg("--json");
    assert_eq!(stage.ends(nobody).code, Some(2));
}

#[test]
fn r40_a_follower_in_another_process_shows_every_record_once_over_a_kill_and_a_resume_and_ends_with_the_node() {
    let stage = stage();
    let owner = in_a_call(&stage);
    let followers = [follow(&stage), follow(&stage)];
    owner.kill();
    for follower in &followers {
        let told = || follower.said("no process on this machine has session").then_some(());
        wait_for("the follower to say that nobody has the session", PATIENCE, told);
    }
    let_go(&stage);
    stage.ends(stage.resume()).delivered();
    let records = stage.records();
    assert_eq!(of_kind(&records, "opened").len(), 2);
    for follower in followers {
        let ran = follower.end(PATIENCE);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let shown: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(shown, records);
    }
    let late = follow(&stage).end(PATIENCE);
    assert_eq!(late.stdout.lines().count(), records.len(), "of a session that has ended, all that is there");
}

#[test]
fn a_follower_that_is_interrupted_leaves_the_owner_alone() {
    let stage = stage();
    let owner = in_a_call(&stage);
    let follower = stage.start(stage.agentrun(&["show", &stage.session, "--follow"]));
    wait_for("what is there to be shown", PATIENCE, || {
        follower.wrote("never search").then_some(()).or_else(|| follower.wrote("safe search").then_some(()))
    });
    follower.interrupt();
    let ran = follower.end(PATIENCE);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.lines().last().unwrap().starts_with("spent $"), "{ran:?}");
    let_go(&stage);
    owner.end(PATIENCE).delivered();
    stage.check();
}

#[test]
fn b46_a_second_run_says_whom_it_took_the_session_from() {
    let stage = stage();
    let owner = in_a_call(&stage);
    let pid = owner.pid();
    let second = stage.start(run(&stage));
    let fenced = owner.end(PATIENCE);
    assert_eq!(fenced.code, Some(5), "{fenced:?}");
    let_go(&stage);
    let second = second.end(PATIENCE);
    second.delivered();
    assert!(second.stderr.contains(&format!("was taken over from process {pid}")), "{second:?}");
    let again = stage.ends(run(&stage));
    again.delivered();
    assert!(!again.stderr.contains("taken over"), "answered from the records: {again:?}");
    stage.check();
}
