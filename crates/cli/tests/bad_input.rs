//! Bad input, from outside: each is exit 2 (or 3 where the machine lacks something) with the place and the next step named, and nothing
//! is started or written.
// Tests: a failed unwrap is the report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::fs;

use agentrun_kernel::{Batch, Body, SessionKey, open_url};
use agentrun_testing::script::Script;
use agentrun_testing::scripted::ScriptedModel;
use serde_json::{Value, json};
use support::{Ran, Stage, marked, says_done, searching};

/// Runs the stage's node and holds that nothing was started, asked or written.
fn refused(stage: &Stage, code: i32) -> Ran {
    refused_with(stage, code, &[])
}

fn refused_with(stage: &Stage, code: i32, more: &[&str]) -> Ran {
    let model = ScriptedModel::start(Script::parse(&json!({"steps": [says_done()]}).to_string()).unwrap()).unwrap();
    let mut command = stage.run(&model.base_url());
    command.args(more);
    let ran = stage.ends(command);
    assert_eq!(ran.code, Some(code), "{ran:?}");
    assert!(model.all_requests().is_empty(), "nothing is asked");
    assert!(marked(&stage.session).is_empty(), "nothing is started");
    assert!(stage.runs().is_empty(), "no tool ran");
    assert!(ran.stdout.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{ran:?}");
    ran
}

/// Refused for its node, with the path and the reason, before the store is made.
fn node_refused(change: impl FnOnce(&mut Value), at: &str, why: &str) {
    let stage = Stage::new();
    let mut node = searching(&stage, "never");
    change(&mut node);
    stage.node(&node);
    let ran = refused(&stage, 2);
    assert!(ran.stderr.contains(&format!("at `{at}`")), "{ran:?}");
    assert!(ran.stderr.contains(why), "{ran:?}");
    assert!(ran.stderr.contains("node.json"), "{ran:?}");
    assert!(!stage.stored(), "no store is made");
}

#[test]
fn a_node_file_that_is_not_there_is_named() {
    let ran = refused(&Stage::new(), 2);
    assert!(ran.stderr.contains("node.json"), "{ran:?}");
}

#[test]
fn a_node_file_that_is_not_json_is_refused_with_the_line() {
    let stage = Stage::new();
    stage.write("node.json", "{\"prompt\": \"p\",\n oops}");
    let ran = refused(&stage, 2);
    assert!(ran.stderr.contains("line 2"), "{ran:?}");
    assert!(!stage.stored());
}

#[test]
fn an_unknown_member_is_refused() {
    node_refused(|node| node["promt"] = json!("p"), "promt", "unknown field `promt`");
    node_refused(|node| node["tools"][0]["relpay"] = json!("safe"), "tools[0].relpay", "unknown field `relpay`");
}

#[test]
fn a_missing_prompt_is_refused() {
    node_refused(|node| drop(node.as_object_mut().unwrap().remove("prompt")), "prompt", "missing");
}

#[test]
fn a_bad_schema_is_refused() {
    node_refused(|node| node["schema"] = json!({"type": "objekt"}), "schema.type", "objekt");
}

#[test]
fn a_reference_that_leaves_the_schema_is_refused_and_not_followed() {
    let reference = json!({"properties": {"a": {"$ref": "http://127.0.0.1:9/s.json"}}});
    node_refused(|node| node["schema"] = reference, "schema.properties.a.$ref", "leaves the schema");
}

#[test]
fn a_reserved_tool_name_is_refused() {
    node_refused(|node| node["tools"][0]["name"] = json!("submit"), "tools[0].name", "reserved");
}

#[test]
fn a_tool_named_twice_is_refused() {
    node_refused(
        |node| {
            let tool = node["tools"][0].clone();
            node["tools"].as_array_mut().unwrap().push(tool);
        },
        "tools[1].name",
        "two tools",
    );
}

#[test]
fn b54_a_priced_tool_declared_safe_is_refused() {
    node_refused(
        |node| {
            node["tools"][0]["price_usd"] = json!("0.01");
            node["tools"][0]["replay"] = json!("safe");
        },
        "tools[0].replay",
        "never",
    );
}

#[test]
fn a_tool_whose_command_is_not_there_is_refused() {
    node_refused(|node| node["tools"][0]["command"] = json!(["./gone.sh"]), "tools[0].command[0]", "not found");
}

#[test]
fn a_negative_budget_is_refused() {
    node_refused(|node| node["budget_usd"] = json!("-0.5"), "budget_usd", "below zero");
}

#[test]
fn a_missing_model_is_refused_and_both_ways_to_give_one_are_named() {
    node_refused(|node| drop(node.as_object_mut().unwrap().remove("model")), "model", "--model");
}

#[test]
fn a_model_without_a_price_is_refused_before_anything_is_started() {
    node_refused(|node| node["model"] = json!("claude-sonnet-45"), "model", "--catalog");
}

#[test]
fn an_unknown_harness_is_refused_with_the_known_ones() {
    let stage = Stage::new();
    stage.node(&searching(&stage, "never"));
    let ran = refused_with(&stage, 2, &["--harness", "gemini"]);
    assert!(ran.stderr.contains("claude") && ran.stderr.contains("faux"), "{ran:?}");
    assert!(!stage.stored());
}

#[test]
fn a_base_url_that_is_no_origin_is_refused() {
    let stage = Stage::new();
    stage.node(&searching(&stage, "never"));
    for bad in ["http://example.com", "https://user:pass@example.com", "https://example.com/v1", "example.com"] {
        let mut command = stage.run(bad);
        command.env("ANTHROPIC_API_KEY", "made-up-key-0123456789");
        let ran = stage.ends(command);
        assert_eq!(ran.code, Some(2), "{bad}: {ran:?}");
        assert!(ran.stderr.contains("--base-url"), "{ran:?}");
    }
    assert!(!stage.stored());
}

#[test]
fn a_workspace_and_a_catalog_that_are_not_there_are_refused() {
    let stage = Stage::new();
    stage.node(&searching(&stage, "never"));
    let mut command = stage.agentrun(&["run", "node.json", "--workspace", "nowhere"]);
    command.env("ANTHROPIC_API_KEY", "made-up-key-0123456789");
    let ran = stage.ends(command);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("--workspace nowhere"), "{ran:?}");
    let ran = refused_with(&stage, 2, &["--catalog", "none.json"]);
    assert!(ran.stderr.contains("none.json"), "{ran:?}");
    assert!(!stage.stored());
}

#[test]
fn a_store_that_cannot_be_written_is_refused_with_its_path() {
    let stage = Stage::new();
    stage.node(&searching(&stage, "never"));
    // A file where the folder should be: refused to root too, unlike a folder without rights.
    stage.write("store", "");
    let ran = refused(&stage, 2);
    assert!(ran.stderr.contains("store"), "{ran:?}");
    assert_eq!(fs::read(stage.at("store")).unwrap(), b"");
}

#[test]
fn a_url_that_names_no_store_is_refused_with_those_that_do() {
    let stage = Stage::new();
    stage.node(&searching(&stage, "never"));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_agentrun"));
    command
        .args(["run", "node.json", "--harness", "faux", "--script", "s.json", "--store", "mysql:x"])
        .current_dir(stage.root());
    stage.write("s.json", &json!({"steps": [says_done()]}).to_string());
    let ran = stage.ends(command);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("sqlite:PATH"), "{ran:?}");
}

/// A faux run that makes a store with one answered session.
fn answered() -> Stage {
    let stage = Stage::new();
    stage.node(&searching(&stage, "never"));
    let submit = json!({"tools": [{"name": "submit", "input": {"value": {"severity": "low"}}}]});
    stage.write("s.json", &json!({"steps": [submit, says_done()]}).to_string());
    stage.ends(faux(&stage, &[])).delivered();
    stage
}

fn faux(stage: &Stage, more: &[&str]) -> std::process::Command {
    let mut args = vec!["run", "node.json", "--harness", "faux", "--script", "s.json", "--workspace", "work", "--json"];
    args.extend(["--session", &stage.session]);
    args.extend(more);
    stage.agentrun(&args)
}

#[test]
fn a_store_from_a_newer_format_is_refused_and_left_alone() {
    let stage = answered();
    let path = stage.at("store/agentrun.db");
    let store = rusqlite::Connection::open(&path).unwrap();
    store.execute("UPDATE store SET value = 99 WHERE name = 'format'", ()).unwrap();
    drop(store);
    let before = fs::read(&path).unwrap();
    for args in [&["sessions"][..], &["show", "s"], &["resume", "s"], &["run", "node.json", "--session", "s"]] {
        let mut command = stage.agentrun(args);
        command.env("ANTHROPIC_API_KEY", "made-up-key-0123456789");
        let ran = stage.ends(command);
        assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains("format 99") && ran.stderr.contains("version"), "{ran:?}");
    }
    assert_eq!(fs::read(&path).unwrap(), before, "nothing is written");
}

#[test]
fn commands_that_read_make_no_store() {
    let stage = Stage::new();
    for args in [&["sessions"][..], &["show", "s"], &["show", "s", "--check"], &["resume", "s"]] {
        let ran = stage.ends(stage.agentrun(args));
        assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains("no store"), "{ran:?}");
    }
    assert!(!stage.stored());
}

#[test]
fn a_session_nobody_began_is_named_with_where_to_look() {
    let stage = answered();
    for args in [&["show", "nobody"][..], &["show", "nobody", "--check"], &["resume", "nobody"]] {
        let ran = stage.ends(stage.agentrun(args));
        assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains("`nobody`"), "{ran:?}");
    }
}

#[test]
fn another_cap_on_a_run_that_has_begun_is_refused_and_the_raise_is_named() {
    let stage = Stage::new();
    stage.node(&searching(&stage, "never"));
    let submit = json!({"tools": [{"name": "submit", "input": {"value": {"severity": "low"}}}]});
    stage.write("s.json", &json!({"steps": [submit, says_done()]}).to_string());
    stage.ends(faux(&stage, &["--cap", "1"])).delivered();
    let ran = stage.ends(faux(&stage, &["--cap", "2"]));
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("cap of $1") && ran.stderr.contains("--raise 2"), "{ran:?}");
    stage.ends(faux(&stage, &["--cap", "1"])).delivered();
    let ran = stage.ends(faux(&stage, &["--run", "another"]));
    assert_eq!(ran.code, Some(2), "{ran:?}");
}

#[test]
fn an_api_that_moved_is_refused_where_none_is_asked_or_where_it_is_no_address() {
    let stage = answered();
    let resume = |origin: &str| stage.ends(stage.agentrun(&["resume", &stage.session, "--base-url", origin]));
    let ran = resume("http://127.0.0.1:9");
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("--base-url") && ran.stderr.contains("`faux`"), "{ran:?}");
    let mut follow_up = stage.agentrun(&["follow-up", &stage.session, "--name", "n", "--prompt", "p"]);
    follow_up.args(["--base-url", "http://127.0.0.1:9"]);
    assert_eq!(stage.ends(follow_up).code, Some(2));
}

#[test]
fn another_node_under_the_same_session_is_refused_finally_and_the_moved_field_is_named() {
    let stage = answered();
    let mut node = searching(&stage, "never");
    node["prompt"] = json!("Something else.");
    stage.node(&node);
    let ran = stage.ends(faux(&stage, &[]));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("prompt"), "{ran:?}");
    assert_eq!(ran.last()["word"], "binding");
}

#[test]
fn a_harness_that_is_not_installed_is_refused_with_how_to_get_it() {
    let mut stage = Stage::new();
    stage.node(&searching(&stage, "never"));
    stage.claude = stage.at("no-such-program");
    let ran = refused(&stage, 3);
    assert!(ran.stderr.contains("npm install"), "{ran:?}");
    assert_eq!(ran.last()["word"], "refused");
    assert_eq!(ran.last()["final"], true);
    assert!(!stage.work("ran").exists());
}

#[test]
fn a_version_that_is_not_supported_is_refused_and_both_are_named() {
    let mut stage = Stage::new();
    stage.node(&searching(&stage, "never"));
    stage.claude = stage.program("claude", "echo '9.0.1 (Claude Code)'");
    let ran = refused(&stage, 3);
    assert!(ran.stderr.contains("9.0.1") && ran.stderr.contains("2.1.332"), "{ran:?}");
}

#[test]
fn without_a_key_nothing_is_started_or_written() {
    let stage = Stage::new();
    stage.node(&searching(&stage, "never"));
    let mut command = stage.run("http://127.0.0.1:9");
    command.env_remove("ANTHROPIC_API_KEY");
    let ran = stage.ends(command);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("ANTHROPIC_API_KEY") && ran.stderr.contains("--credential-file"), "{ran:?}");
    assert!(!stage.stored());
}

#[test]
fn prices_are_exact_and_what_the_catalog_lacks_is_refused() {
    let stage = Stage::new();
    let price = |model: &str, usage: &str| {
        stage.ends(stage.agentrun(&["price", model, "--usage", usage, "--at", "2026-11-30", "--json"]))
    };
    let ran = price("claude-sonnet-4-5", r#"{"input":100,"output":20}"#);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.last()["usd"], "0.0006");
    let ran = price("claude-sonnet-4-5-typo", r#"{"input":100}"#);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let ran = price("claude-sonnet-4-5", r#"{"inptu":100}"#);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("inptu"), "{ran:?}");
    let ran = stage.ends(stage.agentrun(&["price"]));
    assert!(ran.stdout.contains("claude-sonnet-4-5"), "{ran:?}");
}

#[test]
fn a_damaged_record_is_named_by_the_check_with_its_seq() {
    let stage = answered();
    let ran = stage.ends(stage.agentrun(&["show", &stage.session, "--check"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let store = rusqlite::Connection::open(stage.at("store/agentrun.db")).unwrap();
    let third = "s = (SELECT s FROM log WHERE kind = 'session') AND seq = 3";
    let mut frame: Vec<u8> =
        store.query_row(&format!("SELECT frame FROM record WHERE {third}"), (), |row| row.get(0)).unwrap();
    *frame.last_mut().unwrap() ^= 1;
    store.execute(&format!("UPDATE record SET frame = ?1 WHERE {third}"), [frame]).unwrap();
    drop(store);
    let ran = stage.ends(stage.agentrun(&["show", &stage.session, "--check"]));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("damaged at seq 3"), "{ran:?}");
}

#[tokio::test]
async fn a_broken_invariant_is_named_by_the_check_with_its_seq() {
    let stage = answered();
    let key = SessionKey::new("forged").unwrap();
    let store = open_url(&stage.url()).unwrap();
    let mut writer = store.open(&key, None).await.unwrap();
    // The writer alone checks no invariant: that is the session task's, which a foreign program would not run.
    let data = Body::Data { name: "x".to_owned(), value: json!(1) };
    writer.append(Batch::of([data]), None).await.unwrap();
    drop((writer, store));
    let ran = stage.ends(stage.agentrun(&["show", "forged", "--check"]));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("seq 1") && ran.stderr.contains("bound-first"), "{ran:?}");
}

#[test]
fn a_model_that_the_harnesses_provider_does_not_serve_is_refused_unless_a_server_is_named() {
    let stage = Stage::new();
    stage.node(&searching(&stage, "never"));
    let session = stage.session.as_str();
    let run = |more: &[&str]| {
        let mut command = stage.agentrun(&["run", "node.json", "--session", session, "--workspace", "work"]);
        command.args(more).env("OPENAI_API_KEY", "made-up-key-0123456789").env("AGENTRUN_CODEX", "/nowhere/codex");
        stage.ends(command)
    };
    let refused = run(&["--harness", "codex"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    for told in ["`claude-sonnet-4-5` is not served by https://api.openai.com", "--harness codex", "--base-url"] {
        assert!(refused.stderr.contains(told), "{told}: {refused:?}");
    }
    assert!(!stage.stored());
    // A gateway may serve it, but that the node's own model is meant has to be said.
    let gateway = ["--harness", "codex", "--base-url", "http://127.0.0.1:9"];
    let refused = run(&gateway);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("--model claude-sonnet-4-5"), "{refused:?}");
    assert!(!stage.stored());
    // Then the harness is looked for, which is not there.
    let looked = run(&[&gateway[..], &["--model", "claude-sonnet-4-5"]].concat());
    assert_eq!(looked.code, Some(3), "{looked:?}");
}
