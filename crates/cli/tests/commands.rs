//! The commands beside the main job, from outside: the demo, the lists, and what a person sees.
// Tests: a failed unwrap is the report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::path::PathBuf;

use serde_json::{Value, json};
use support::{PATIENCE, Ran, Stage, calls_search, of_kind, says_done, searching, submits, wait_for};

/// Runs the stage's node on the faux harness.
fn faux(stage: &Stage, more: &[&str]) -> std::process::Command {
    let mut args = vec!["run", "node.json", "--harness", "faux", "--script", "s.json", "--workspace", "work"];
    args.extend(more);
    stage.agentrun(&args)
}

/// A stage whose node submits at once.
fn submitting() -> Stage {
    let stage = Stage::new();
    stage.node(&searching(&stage, "never"));
    let submit = json!({"tools": [{"name": "submit", "input": {"value": {"severity": "low"}}}]});
    stage.write("s.json", &json!({"steps": [submit, says_done()]}).to_string());
    stage
}

fn demonstrated(ran: &Ran, harness: &str) {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for words in
        [harness, "SIGKILL", "courier ran              1", "unknown                  $0.25", "nothing was paid twice"]
    {
        assert!(ran.stdout.contains(words), "{words}: {ran:?}");
    }
}

#[test]
fn the_demo_kills_and_resumes_on_the_real_program() {
    let stage = Stage::new();
    assert!(stage.claude.is_absolute(), "AGENTRUN_CLAUDE must name the program; testing/run installs it");
    let ran = stage.ends(stage.agentrun(&["demo"]));
    demonstrated(&ran, "Harness: Claude Code");
    assert!(ran.stdout.contains("model requests served    2"), "{ran:?}");
    assert!(!stage.stored(), "the demo leaves nothing");
}

#[test]
fn the_demo_falls_back_to_the_faux_harness_and_says_so() {
    let mut stage = Stage::new();
    stage.claude = stage.at("no-such-program");
    demonstrated(&stage.ends(stage.agentrun(&["demo"])), "Harness: the faux harness");
}

#[test]
fn doctor_says_what_is_installed_and_how_to_get_what_is_not_and_makes_nothing() {
    let mut stage = Stage::new();
    let ran = stage.ends(stage.agentrun(&["doctor", "--verbose"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("2.1.332") && ran.stdout.contains("in range"), "{ran:?}");
    assert!(ran.stdout.contains("recorded before they run"), "{ran:?}");
    stage.claude = PathBuf::from("/no/such/program");
    let ran = stage.ends(stage.agentrun(&["doctor"]));
    assert!(ran.stdout.contains("not usable") && ran.stdout.contains("npm install"), "{ran:?}");
    assert!(!stage.stored());
}

#[test]
fn without_a_session_a_fresh_key_is_made_and_the_way_to_resume_is_told() {
    let stage = submitting();
    let ran = stage.ends(faux(&stage, &[]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(serde_json::from_str::<Value>(&ran.stdout).unwrap(), json!({"severity": "low"}), "stdout is the value");
    let told = ran.stderr.split("agentrun resume ").nth(1).expect("the resume command is told");
    let key = told.split_whitespace().next().unwrap();
    let again = stage.ends(stage.agentrun(&["resume", key]));
    assert_eq!(again.stdout, ran.stdout);
    assert!(again.stderr.contains("from the records"), "{again:?}");
    let another = stage.ends(faux(&stage, &[]));
    assert!(!another.stderr.contains(key), "B15: each call without a key is a session of its own");
}

#[test]
fn sessions_are_listed_with_where_they_stand() {
    let stage = submitting();
    for session in ["b", "a"] {
        stage.ends(faux(&stage, &["--session", session, "--run", "night", "--json"])).delivered();
    }
    let ran = stage.ends(stage.agentrun(&["sessions", "--json"]));
    let lines: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = lines.iter().map(|line| (&line["session"], &line["state"], &line["run"])).collect();
    let (delivered, night) = (json!("delivered"), json!("night"));
    assert_eq!(told, [(&json!("a"), &delivered, &night), (&json!("b"), &delivered, &night)]);
    let ran = stage.ends(stage.agentrun(&["sessions"]));
    assert_eq!(ran.stdout.lines().count(), 3, "a head and two lines: {ran:?}");
}

#[test]
fn show_tells_each_record_and_the_spend_and_follows_a_session_as_it_goes() {
    let stage = Stage::new();
    stage.node(&searching(&stage, "never"));
    let steps = json!({"steps": [support::calls_search(), submits("high"), says_done()]});
    stage.write("s.json", &steps.to_string());
    let running = stage.start(faux(&stage, &["--session", &stage.session, "--json"]));
    wait_for("the tool to begin", PATIENCE, || stage.work("started").exists().then_some(()));
    let follower = stage.start(stage.agentrun(&["show", &stage.session, "--follow", "--json"]));
    wait_for("the follower to show the intent", PATIENCE, || follower.wrote("\"intent\"").then_some(()));
    assert!(!follower.wrote("\"delivered\""));
    std::fs::write(stage.work("go"), "").unwrap();
    running.end(PATIENCE).delivered();
    wait_for("the follower to show the delivery", PATIENCE, || follower.wrote("\"delivered\"").then_some(()));

    let records = stage.records();
    let seqs: Vec<u64> = records.iter().map(|record| record["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "dense");
    assert_eq!(of_kind(&records, "delivered").len(), 1);
    let ran = stage.ends(stage.agentrun(&["show", &stage.session]));
    assert_eq!(ran.stdout.lines().count(), records.len() + 2, "a head, a line a record, the spend: {ran:?}");
    for words in ["never search", "search ok after", "delivered", "spent $0.0012"] {
        assert!(ran.stdout.contains(words), "{words}: {ran:?}");
    }
}

#[test]
fn b05_a_review_command_sends_a_value_back_and_its_own_failure_is_no_verdict() {
    let stage = Stage::new();
    let mut node = searching(&stage, "never");
    stage.program("review.sh", "grep -q high || { echo 'look again'; exit 1; }");
    node["review"] = json!({"command": ["./review.sh"]});
    stage.node(&node);
    let submit = |severity: &str, results: u32| json!({"when": {"results": results}, "tools": [{"name": "submit", "input": {"value": {"severity": severity}}}]});
    stage.write("s.json", &json!({"steps": [submit("low", 0), submit("high", 1), says_done()]}).to_string());
    let run = || faux(&stage, &["--session", &stage.session, "--json"]);
    std::fs::rename(stage.at("review.sh"), stage.at("review.kept")).unwrap();
    stage.program("review.sh", "exit 7");
    let ran = stage.ends(run());
    assert_eq!((ran.code, &ran.last()["word"]), (Some(4), &json!("host_fault")), "{ran:?}");
    std::fs::rename(stage.at("review.kept"), stage.at("review.sh")).unwrap();
    let ran = stage.ends(run());
    assert_eq!(ran.delivered(), json!({"severity": "high"}));
    let verdicts = of_kind(&stage.records(), "verdict");
    assert_eq!(verdicts[0]["accepted"], false);
    assert!(verdicts[0]["message"].as_str().unwrap().contains("look again"), "{verdicts:?}");
    stage.check();
}

#[test]
fn b78_a_cap_without_room_parks_with_exit_6_and_says_what_would_do() {
    let stage = submitting();
    let run = || faux(&stage, &["--session", &stage.session, "--cap", "0.000001", "--json"]);
    let ran = stage.ends(run());
    assert_eq!(ran.code, Some(6), "{ran:?}");
    let last = ran.last();
    assert_eq!((&last["word"], &last["park"]["cap"]), (&json!("over_cap"), &json!("0.000001")), "{ran:?}");
    assert!(last["park"]["needed"].is_string(), "{ran:?}");
    assert!(ran.stderr.contains("--raise"), "{ran:?}");
    assert_eq!(stage.ends(run()).code, Some(6), "parked again, nothing sent");
    // Nothing more comes by itself, so who follows is not kept waiting.
    let followed = stage.ends(stage.agentrun(&["show", &stage.session, "--follow"]));
    assert_eq!(followed.code, Some(0), "{followed:?}");
    assert!(followed.stderr.contains("is parked") && followed.stderr.contains("--raise"), "{followed:?}");
    assert!(followed.stdout.lines().next().unwrap().contains("opened 1 time · 1 turn"), "{followed:?}");
    stage.check();
}

#[test]
fn b78_a_raise_that_does_lets_a_parked_session_go_on_and_is_one_raise_by_its_id() {
    let stage = submitting();
    let run = || faux(&stage, &["--session", &stage.session, "--cap", "0.000001", "--json"]);
    let parked = stage.ends(run());
    let needed = parked.last()["park"]["needed"].as_str().unwrap().to_owned();
    let raise = |cap: &str, id: &str| {
        stage.ends(stage.agentrun(&["cap", &stage.session, "--raise", cap, "--id", id, "--json"]))
    };
    let little = raise("0.000002", "r0");
    assert_eq!(little.code, Some(2), "{little:?}");
    assert!(little.stderr.contains(&needed), "the least that would do is named: {little:?}");
    // Exactly the least: it has room for the note that a resumed request carries.
    for _ in 0..2 {
        let raised = raise(&needed, "r1");
        assert_eq!((raised.code, raised.last()["cap"].as_str()), (Some(0), Some(needed.as_str())), "{raised:?}");
    }
    // The same command goes on, though the cap it names is no longer the run's; another cap is refused.
    let other = stage.ends(faux(&stage, &["--session", &stage.session, "--cap", "0.000003"]));
    assert_eq!(other.code, Some(2), "{other:?}");
    assert!(other.stderr.contains("leave --cap out"), "{other:?}");
    assert_eq!(stage.ends(run()).delivered(), json!({"severity": "low"}));
    stage.check();
}

#[test]
fn b81_the_spend_of_a_session_is_told_by_model_by_tool_by_turn_and_in_all() {
    let stage = Stage::new();
    let mut node = searching(&stage, "never");
    node["tools"][0]["price_usd"] = json!("0.25");
    stage.node(&node);
    std::fs::write(stage.work("go"), "").unwrap();
    stage.write("s.json", &json!({"steps": [calls_search(), submits("low"), says_done()]}).to_string());
    let ran = stage.ends(faux(&stage, &["--session", &stage.session, "--json"]));
    ran.delivered();
    let spent = ran.last()["usd"].as_str().unwrap().to_owned();
    let told = stage.ends(stage.agentrun(&["show", &stage.session, "--spend", "--csv"]));
    let rows: Vec<Vec<&str>> = told.stdout.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0], ["by", "name", "count", "booked_usd", "unknown_usd", "held_usd"], "{told:?}");
    assert_eq!(rows[1][..2], ["model", "claude-sonnet-4-5"], "{told:?}");
    assert_eq!(rows[2], ["tool", "search", "1", "0.25", "0", "0"], "{told:?}");
    assert_eq!((&rows[3][..2], rows[3][3]), (&["turn", "1"][..], spent.as_str()), "{told:?}");
    assert_eq!((rows[4][0], rows[4][3]), ("all", spent.as_str()), "{told:?}");
    let told = stage.ends(stage.agentrun(&["show", &stage.session, "--spend"]));
    assert!(told.stdout.starts_with("BY") && told.stdout.contains(&format!("${spent}")), "{told:?}");
    for bad in [&["--csv"][..], &["--spend", "--json"], &["--spend", "--check"]] {
        let mut command = stage.agentrun(&["show", &stage.session]);
        command.args(bad);
        assert_eq!(stage.ends(command).code, Some(2), "{bad:?}");
    }
}

#[test]
fn b12_an_answered_session_needs_nothing_but_its_store() {
    let stage = submitting();
    stage.ends(faux(&stage, &["--session", &stage.session, "--json"])).delivered();
    for gone in ["search.sh", "s.json", "node.json"] {
        std::fs::remove_file(stage.at(gone)).unwrap();
    }
    let ran = stage.ends(stage.agentrun(&["resume", &stage.session, "--json"]));
    assert_eq!(ran.delivered(), json!({"severity": "low"}));
}
