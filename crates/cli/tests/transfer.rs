//! A session leaves a store: removed for good, copied, or moved to another store, where it goes on.
// Tests: a failed unwrap is the report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use agentrun_kernel::{Batch, Body, MemoryStore, SessionKey, SessionStore as _, seal};
use serde_json::{Value, json};
use support::{PATIENCE, Ran, Stage, calls_search, marked, of_kind, says_done, searching, submits, wait_for};

/// A node whose `never` tool waits for the file `go`, and whose model then submits.
fn stage() -> Stage {
    let stage = Stage::new();
    stage.node(&searching(&stage, "never"));
    stage.write("s.json", &json!({"steps": [calls_search(), submits("high"), says_done()]}).to_string());
    stage
}

/// Runs the stage's node on the faux harness.
fn faux(stage: &Stage, more: &[&str]) -> Command {
    let mut args = vec![
        "run",
        "node.json",
        "--harness",
        "faux",
        "--script",
        "s.json",
        "--workspace",
        "work",
        "--json",
        "--session",
    ];
    args.push(&stage.session);
    args.extend(more);
    stage.agentrun(&args)
}

/// A run that was killed in the middle of its tool.
fn killed(stage: &Stage, more: &[&str]) {
    let running = stage.start(faux(stage, more));
    wait_for("the tool to begin", PATIENCE, || stage.work("started").exists().then_some(()));
    running.kill();
    wait_for("the guards to end all of it", PATIENCE, || marked(&stage.session).is_empty().then_some(()));
}

fn delivered(stage: &Stage) {
    std::fs::write(stage.work("go"), "").unwrap();
    stage.ends(faux(stage, &[])).delivered();
}

fn other(stage: &Stage) -> String {
    format!("sqlite:{}", stage.at("other/agentrun.db").display())
}

/// The program on the other store.
fn there(stage: &Stage, args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentrun"));
    command.args(args).args(["--store", &other(stage)]).current_dir(stage.root());
    command.env_remove("ANTHROPIC_API_KEY");
    stage.ends(command)
}

fn here(stage: &Stage, args: &[&str]) -> Ran {
    stage.ends(stage.agentrun(args))
}

/// Private homes and owner marks beside the store.
fn homes(stage: &Stage) -> Vec<std::ffi::OsString> {
    std::fs::read_dir(stage.at("store/homes"))
        .map(|homes| homes.map(|home| home.unwrap().file_name()).collect())
        .unwrap_or_default()
}

fn ok(ran: Ran) -> Value {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.last()
}

fn refused(ran: &Ran, code: i32, words: &[&str]) {
    assert_eq!(ran.code, Some(code), "{ran:?}");
    for words in words {
        assert!(ran.stderr.contains(words), "{words}: {ran:?}");
    }
}

#[test]
fn f22_a_session_killed_in_a_never_tool_moves_and_goes_on_without_running_it_again() {
    let stage = stage();
    let session = stage.session.as_str();
    killed(&stage, &[]);
    let told = ok(here(&stage, &["export", session, "t.jsonl", "--seal-to", "host b", "--json"]));
    assert_eq!((&told["type"], &told["sealed"]), (&json!("exported"), &json!("host b")));
    let records = told["records"].as_u64().unwrap();
    assert_eq!(homes(&stage), [""; 0], "what the harness kept of it here is not needed any more");

    // Here it ended: it is told where it went, and nothing begins.
    std::fs::write(stage.work("go"), "").unwrap();
    refused(&stage.ends(faux(&stage, &[])), 3, &["moved to host b"]);
    refused(&here(&stage, &["resume", session]), 3, &["moved to host b"]);

    let landed = ok(there(&stage, &["import", "t.jsonl", "--json"]));
    assert_eq!(
        (&landed["type"], &landed["moved"], &landed["session"]),
        (&json!("imported"), &json!(true), &json!(session))
    );
    assert_eq!(landed["records"], records, "the seal stayed behind, and where it came from was added");
    assert_eq!(there(&stage, &["resume", session, "--json"]).delivered(), json!({"severity": "high"}));
    assert_eq!(stage.runs().len(), 1, "the tool ran once, in the first store");
    assert_eq!(there(&stage, &["show", session, "--check"]).code, Some(0));
    let records: Vec<Value> = there(&stage, &["show", session, "--json"])
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let ends: Vec<_> = of_kind(&records, "outcome").iter().map(|outcome| outcome["end"].clone()).collect();
    assert!(ends.contains(&json!("interrupted")), "{ends:?}");

    // Twice is once too often, here and there.
    refused(&there(&stage, &["import", "t.jsonl"]), 2, &["is taken here", "another key"]);
    refused(&here(&stage, &["import", "t.jsonl"]), 2, &["sealed and moved away"]);
}

#[test]
fn b47_a_session_moves_between_kinds_of_store() {
    let stage = stage();
    let session = stage.session.as_str();
    killed(&stage, &[]);
    ok(here(&stage, &["export", session, "t.jsonl", "--seal-to", "a sled store", "--json"]));
    std::fs::write(stage.work("go"), "").unwrap();
    let sled = format!("sled:{}", stage.at("pages/sessions").display());
    let on_sled = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agentrun"));
        command.args(args).args(["--store", &sled]).current_dir(stage.root());
        stage.ends(command)
    };
    refused(&on_sled(&["sessions"]), 2, &["there is no store at"]);
    ok(on_sled(&["import", "t.jsonl", "--json"]));
    assert_eq!(on_sled(&["resume", session, "--json"]).delivered(), json!({"severity": "high"}));
    assert_eq!(stage.runs().len(), 1);
    assert_eq!(ok(on_sled(&["rm", session, "--json"]))["type"], "removed");
    refused(&on_sled(&["resume", session]), 2, &["it was removed"]);
}

#[test]
fn f22_a_moved_run_has_no_room_until_a_person_gives_it_some() {
    let stage = stage();
    let session = stage.session.as_str();
    killed(&stage, &["--cap", "5"]);
    let before = ok(here(&stage, &["cap", session, "--json"]));
    ok(here(&stage, &["export", session, "t.jsonl", "--seal-to", "host b", "--json"]));
    assert_eq!(ok(here(&stage, &["cap", session, "--json"])), before, "the ledger stays, and all it says");

    let told = there(&stage, &["import", "t.jsonl"]);
    assert!(told.stdout.contains("--raise NEWCAP"), "{told:?}");
    let share = ok(there(&stage, &["cap", session, "--json"]));
    let spent = before["booked"].clone();
    assert_eq!((&share["cap"], &share["booked"], &share["left"]), (&spent, &spent, &json!("0")), "{share}");
    std::fs::write(stage.work("go"), "").unwrap();
    let parked = there(&stage, &["resume", session, "--json"]);
    assert_eq!(parked.code, Some(6), "{parked:?}");
    let needed = parked.last()["park"]["needed"].as_str().unwrap().to_owned();
    ok(there(&stage, &["cap", session, "--raise", &needed, "--json"]));
    there(&stage, &["resume", session, "--json"]).delivered();
}

#[test]
fn f22_an_export_that_was_not_sealed_is_a_copy_under_another_key_alone() {
    let stage = stage();
    let session = stage.session.as_str();
    killed(&stage, &[]);
    ok(here(&stage, &["export", session, "t.jsonl", "--json"]));
    refused(&there(&stage, &["import", "t.jsonl"]), 2, &["was not sealed", "--as NEWKEY", "--seal-to"]);
    refused(&there(&stage, &["import", "t.jsonl", "--as", session]), 2, &["was not sealed"]);
    assert!(!stage.at("other").exists(), "and no store was made for it");
    // In the store it lives in as well as in another.
    std::fs::write(stage.work("go"), "").unwrap();
    let landed = ok(here(&stage, &["import", "t.jsonl", "--as", "copy", "--json"]));
    assert_eq!(
        (&landed["from"], &landed["moved"], &landed["interrupted"]),
        (&json!(session), &json!(false), &json!(1))
    );
    here(&stage, &["resume", "copy", "--json"]).delivered();
    assert_eq!(here(&stage, &["show", "copy", "--check"]).code, Some(0));
    stage.ends(faux(&stage, &[])).delivered();
    stage.check();
    assert_eq!(stage.runs().len(), 1, "neither the original nor its copy ran the tool again");
}

#[test]
fn an_export_of_a_live_session_disturbs_nobody_and_goes_to_stdout_by_itself() {
    let stage = stage();
    let session = stage.session.as_str();
    let running = stage.start(faux(&stage, &[]));
    wait_for("the tool to begin", PATIENCE, || stage.work("started").exists().then_some(()));
    let copy = here(&stage, &["export", session]);
    assert_eq!(copy.code, Some(0), "{copy:?}");
    assert_eq!(copy.last()["type"], "end");
    assert!(copy.stderr.contains("--as NEWKEY"), "{copy:?}");
    stage.write("t.jsonl", &copy.stdout);
    // Nor may its seal take it from its owner unasked.
    refused(&here(&stage, &["export", session, "s.jsonl", "--seal-to", "b"]), 2, &["lives", "--take"]);
    assert!(!stage.at("s.jsonl").exists());
    std::fs::write(stage.work("go"), "").unwrap();
    running.end(PATIENCE).delivered();
    ok(there(&stage, &["import", "t.jsonl", "--as", "copy", "--json"]));
}

#[test]
fn f21_a_removed_session_is_gone_and_its_key_stays_taken() {
    let stage = stage();
    let session = stage.session.as_str();
    delivered(&stage);
    let count = stage.records().len();
    let told = ok(here(&stage, &["rm", session, "--json"]));
    assert_eq!(
        (&told["type"], &told["session"], &told["records"]),
        (&json!("removed"), &json!(session), &json!(count))
    );
    assert_eq!((&told["epoch"], &told["held_usd"]), (&json!(2), &json!("0")));
    refused(&stage.ends(faux(&stage, &[])), 3, &["was removed", "choose another"]);
    refused(&here(&stage, &["show", session]), 2, &["it was removed"]);
    refused(&here(&stage, &["export", session, "t.jsonl"]), 2, &["nothing to export"]);
    let listed = ok(here(&stage, &["sessions", "--json"]));
    assert_eq!(listed["state"], "removed");
    let again = ok(here(&stage, &["rm", session, "--json"]));
    assert_eq!((&again["records"], &again["digest"]), (&told["records"], &told["digest"]));
    refused(&here(&stage, &["rm", "nobody"]), 2, &["there is no session `nobody`", "agentrun sessions"]);
    let spent = ok(here(&stage, &["cap", session, "--json"]));
    assert_ne!(spent["booked"], "0", "what it spent stays counted");
}

#[test]
fn f21_what_a_removed_session_held_keeps_counting() {
    let stage = stage();
    let mut node = searching(&stage, "never");
    node["tools"][0]["price_usd"] = json!("0.25");
    stage.node(&node);
    killed(&stage, &["--run", "night", "--cap", "5"]);
    assert_ne!(homes(&stage), [""; 0], "the kill left a home");
    let told = here(&stage, &["rm", &stage.session]);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert_eq!(homes(&stage), [""; 0], "what the harness kept of the session goes with it");
    assert!(told.stdout.contains("$0.25 that it held keeps counting against run night"), "{told:?}");
    assert!(told.stdout.contains("agentrun cap night --raise"), "{told:?}");
    assert_eq!(ok(here(&stage, &["cap", "night", "--json"]))["held"], "0.25");
}

#[test]
fn f21_a_live_owner_keeps_its_session_unless_it_is_taken_and_then_ends_as_fenced() {
    let stage = stage();
    let session = stage.session.as_str();
    let running = stage.start(faux(&stage, &[]));
    wait_for("the tool to begin", PATIENCE, || stage.work("started").exists().then_some(()));
    refused(&here(&stage, &["rm", session]), 2, &["lives", "--take"]);
    let told = ok(here(&stage, &["rm", session, "--take", "--json"]));
    assert_eq!(told["type"], "removed");
    assert!(marked(session).is_empty(), "what it started was ended before the command returned");
    let ended = running.end(PATIENCE);
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert!(!ended.stdout.contains("\"delivered\""), "{ended:?}");
    assert_eq!(homes(&stage), [""; 0], "no home of it stays");
    assert_eq!(ok(here(&stage, &["sessions", "--json"]))["state"], "removed");
}

#[test]
fn a_damaged_cut_or_foreign_file_is_refused_with_its_line_and_makes_nothing() {
    let stage = stage();
    delivered(&stage);
    ok(here(&stage, &["export", &stage.session, "t.jsonl", "--seal-to", "b", "--json"]));
    let file = std::fs::read_to_string(stage.at("t.jsonl")).unwrap();
    let lines: Vec<&str> = file.lines().collect();
    let with = |content: String| {
        stage.write("bad.jsonl", &content);
        there(&stage, &["import", "bad.jsonl"])
    };
    let third = file.replacen(lines[2], &lines[2].replacen("opened", "opener", 1), 1);
    assert_ne!(third, file);
    refused(&with(third), 2, &["bad.jsonl: line 3 (byte ", "damaged"]);
    refused(&with(file[..file.len() / 2].to_owned()), 2, &["it was cut", "export the session again"]);
    refused(&with("{\"type\":\"delivered\"}\n".to_owned()), 2, &["line 1 (byte 0)", "no export of a session"]);
    refused(&with(file.replacen("\"version\":1", "\"version\":7", 1)), 2, &["version 7", "this program reads 1"]);
    refused(&there(&stage, &["import", "nowhere.jsonl"]), 2, &["nowhere.jsonl"]);
    refused(&there(&stage, &["import", "work"]), 2, &["work"]);
    assert!(!stage.at("other").exists());
    // The same from stdin, and whole.
    let mut command = Command::new("sh");
    command.args([
        "-c",
        &format!("cat t.jsonl | {} import - --json --store {}", env!("CARGO_BIN_EXE_agentrun"), other(&stage)),
    ]);
    command.current_dir(stage.root());
    let ran = stage.ends(command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(there(&stage, &["resume", &stage.session, "--json"]).delivered(), json!({"severity": "high"}));
}

#[test]
fn a_file_is_its_owners_alone_never_written_over_and_whole() {
    let stage = stage();
    let session = stage.session.as_str();
    delivered(&stage);
    stage.write("taken.jsonl", "mine");
    refused(&here(&stage, &["export", session, "taken.jsonl", "--seal-to", "b"]), 2, &["is there already"]);
    assert_eq!(std::fs::read_to_string(stage.at("taken.jsonl")).unwrap(), "mine");
    refused(&here(&stage, &["export", session, "no/such/folder.jsonl", "--seal-to", "b"]), 2, &["folder.jsonl"]);
    refused(&here(&stage, &["export", session, "--json"]), 2, &["needs a FILE"]);
    refused(&here(&stage, &["export", session, "t.jsonl", "--take"]), 2, &["--seal-to"]);
    refused(&here(&stage, &["export", "nobody", "t.jsonl", "--seal-to", "b"]), 2, &["there is no session `nobody`"]);
    assert_eq!(stage.ends(faux(&stage, &[])).code, Some(0), "none of these sealed it");
    let mut files: Vec<_> = std::fs::read_dir(stage.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    files.retain(|name| name.to_string_lossy().contains("tmp"));
    assert!(files.is_empty(), "{files:?}");
    ok(here(&stage, &["export", session, "t.jsonl", "--json"]));
    assert_eq!(std::fs::metadata(stage.at("t.jsonl")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn no_credential_is_in_a_file() {
    let stage = stage();
    std::fs::write(stage.work("go"), "").unwrap();
    let key = "made-up-key-0123456789-canary";
    let mut run = faux(&stage, &[]);
    run.env("ANTHROPIC_API_KEY", key).env("OPENAI_API_KEY", key);
    stage.ends(run).delivered();
    let mut export = stage.agentrun(&["export", &stage.session, "t.jsonl", "--seal-to", "b"]);
    export.env("ANTHROPIC_API_KEY", key).env("OPENAI_API_KEY", key);
    assert_eq!(stage.ends(export).code, Some(0));
    let file = std::fs::read(stage.at("t.jsonl")).unwrap();
    assert!(file.len() > 1_000);
    assert!(!support::holds(&file, key));
}

/// Kills an import while its records go into the file: each time the session is not there, or whole, and the same import then lands or
/// is told it has.
#[test]
fn f17_an_import_killed_in_the_middle_is_not_there_or_whole() {
    let stage = Stage::new();
    std::fs::write(stage.at("big.jsonl"), big()).unwrap();
    let mut absent = 0;
    for round in 0..6_u64 {
        let url = format!("sqlite:{}", stage.at(&format!("round-{round}/agentrun.db")).display());
        let on = |args: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_agentrun"));
            command.args(args).args(["--store", &url]).current_dir(stage.root());
            command
        };
        let importing = stage.start(on(&["import", "big.jsonl"]));
        let log = stage.at(&format!("round-{round}/agentrun.db-wal"));
        // Its one transaction reaches the log at its commit, a piece at a time: so far in, it is killed.
        wait_for("the import to be written", PATIENCE, || {
            let written = std::fs::metadata(&log).map_or(0, |log| log.len());
            (written > round * 500_000 || importing.wrote("moved here")).then_some(())
        });
        importing.kill();
        let listed = stage.ends(on(&["sessions", "--json"]));
        if listed.stdout.is_empty() {
            absent += 1;
            assert_eq!(stage.ends(on(&["import", "big.jsonl"])).code, Some(0), "round {round}");
        } else {
            refused(&stage.ends(on(&["import", "big.jsonl"])), 2, &["is taken here"]);
        }
        let checked = stage.ends(on(&["show", "big", "--check"]));
        assert!(checked.stdout.contains("1502 records hold every invariant"), "round {round}: {checked:?}");
    }
    assert!(absent > 0, "every one was whole: none was killed in time");
}

/// The file of a sealed session of 3 MB.
fn big() -> Vec<u8> {
    tokio::runtime::Builder::new_multi_thread().build().unwrap().block_on(async {
        let store = MemoryStore::new().unwrap();
        let key = SessionKey::new("big").unwrap();
        let mut writer = store.open(&key, None).await.unwrap();
        let first: Body = serde_json::from_value(json!({
            "kind": "bound", "format": 1, "adapter": "faux", "binding": "b", "run": "big", "builtins": "neither",
            "plan": {"prompt": "p", "system": "s", "schema": "v", "tools": "t", "model": "m", "label": "l", "attempt": 1}
        }))
        .unwrap();
        writer.append(Batch::of([first]), None).await.unwrap();
        let data = |n: u64| Body::Data { name: "n".to_owned(), value: json!([n, "x".repeat(2_000)]) };
        for chunk in 0..6 {
            writer.append(Batch::of((0..250).map(|n| data(chunk * 250 + n))), None).await.unwrap();
        }
        seal(&store, &key, "there").await.unwrap();
        let mut file = Vec::new();
        agentrun_kernel::export(&store, &key, &mut file).await.unwrap();
        file
    })
}
