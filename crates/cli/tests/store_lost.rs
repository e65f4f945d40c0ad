//! A store that is lost under a live owner is said to be that: not a takeover, and not the harness's fault.
// Tests: a failed unwrap is the report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use serde_json::json;
use support::{PATIENCE, Stage, calls_search, marked, searching, submits, wait_for};

#[test]
fn f16_a_store_moved_away_while_a_tool_runs_ends_as_storage_and_goes_on_once_it_is_back() {
    let stage = Stage::new();
    stage.node(&searching(&stage, "never"));
    stage.write("s.json", &json!({"steps": [calls_search(), submits("high")]}).to_string());
    let run = || {
        let args = ["run", "node.json", "--harness", "faux", "--script", "s.json", "--workspace", "work", "--json"];
        let mut command = stage.agentrun(&args);
        command.args(["--session", &stage.session]);
        command
    };
    let running = stage.start(run());
    wait_for("the tool to begin", PATIENCE, || stage.work("started").exists().then_some(()));
    let (folder, away) = (stage.at("store"), stage.at("away"));
    std::fs::rename(&folder, &away).unwrap();
    std::fs::write(stage.work("go"), "").unwrap();
    let lost = running.end(PATIENCE);
    assert_eq!(lost.code, Some(4), "{lost:?}");
    assert_eq!(lost.last()["word"], "storage", "{lost:?}");
    assert!(marked(&stage.session).is_empty());

    // What came up meanwhile (private homes) is not the store's.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::rename(&away, &folder).unwrap();
    stage.ends(run()).delivered();
    assert_eq!(stage.runs().len(), 1, "the tool is not run again");
    stage.check();
}
