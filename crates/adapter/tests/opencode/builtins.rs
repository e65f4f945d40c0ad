//! Its own tools: allowed by list, recorded before they run and when they end, and nothing of theirs outlives the turn.

use std::path::Path;
use std::time::Duration;

use agentrun_adapter::{Start, TurnEnd};
use agentrun_kernel::{Body, OutcomeEnd, StopLevel, Why};
use agentrun_testing::script::Step;
use serde_json::{Value, json};

use crate::harness::result_sent;
use crate::rig::{Rig, Work, answer, calls};

/// Longest wait for what must happen.
const PATIENCE: Duration = Duration::from_secs(120);

fn shell(command: &str) -> (&'static str, Value) {
    ("bash", json!({"command": command, "description": "look"}))
}

/// The text of a result, however the API wraps it.
fn text_sent(rig: &Rig, request: usize, call: &str) -> String {
    match result_sent(&rig.model.requests()[request], call) {
        Value::String(text) => text,
        other => other[0]["text"].as_str().unwrap_or_default().to_owned(),
    }
}

async fn exists(path: &Path) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{} was not made", path.display()));
}

/// Waits until none of these processes runs.
async fn gone(pids: &str) {
    for pid in pids.split_whitespace() {
        let process = std::path::PathBuf::from(format!("/proc/{pid}"));
        let waited = tokio::time::timeout(PATIENCE, async {
            while std::fs::read_to_string(process.join("stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("{pid} still runs"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b70_its_own_tools_are_recorded_before_they_run_and_when_they_end_also_when_they_fail() {
    let rig = Rig::new(vec![
        calls(&[shell("echo 17 herons; env >environment; exit 3")]),
        calls(&[("read", json!({"filePath": "nowhere.txt"}))]),
        calls(&[shell("touch forbidden")]),
        Step::says("done"),
    ])
    .with_builtins(&["bash", "read"]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.close().await;
    let offered: Vec<_> = rig.model.requests()[0].body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["function"]["name"].clone())
        .collect();
    assert_eq!(offered, ["bash", "read", "submit", "work"]);
    assert_eq!(rig.model.requests().len(), 4);
    // The third was denied by the host: it has neither intent nor outcome, and did not run.
    let outcomes = rig.outcomes().await;
    let (shell, read) = (text_sent(&rig, 1, "call_bash_0"), text_sent(&rig, 2, "call_read_0"));
    assert!(shell.contains("17 herons") && read.contains("nowhere"), "{shell:?} {read:?}");
    assert_eq!(
        outcomes,
        [("bash".to_owned(), OutcomeEnd::Ok, shell), ("read".to_owned(), OutcomeEnd::Error, read)],
        "each outcome has the text the model was given"
    );
    let told = rig.model.requests()[3].body["messages"].to_string();
    assert!(told.contains("not here"), "the model is told of the denial: {told}");
    assert!(!rig.workspace.path().join("forbidden").exists());
    // Each end is recorded before the request that shows it: here the bodies only say that the order of the records is sound.
    rig.assert_valid().await;
    let environment = std::fs::read_to_string(rig.workspace.path().join("environment")).unwrap();
    for secret in ["OPENCODE_SERVER_PASSWORD=", "OPENCODE_CONFIG_CONTENT="] {
        let line = environment.lines().find(|line| line.starts_with(secret));
        assert!(line.is_none_or(|line| line == secret), "a command is told {secret}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b70_a_call_the_host_cannot_be_asked_about_is_not_run() {
    let rig = Rig::new(vec![calls(&[shell("touch made")]), Step::says("done")]).with_builtins(&["bash"]).with_program(
        r#"[ "$1" = serve ] && sed -i 's/"token":"[0-9a-f]*"/"token":"wrong"/' "$HOME/agentrun.js"; exec HARNESS "$@""#,
    );
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.close().await;
    let told = text_sent(&rig, 1, "call_bash_0");
    assert!(told.contains("This call was not run"), "{told}");
    assert!(!rig.workspace.path().join("made").exists());
    assert_eq!(rig.outcomes().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn b70_files_are_written_edited_and_read_as_the_list_says() {
    let rig = Rig::new(vec![
        calls(&[("write", json!({"filePath": "birds.txt", "content": "17 herons\n"}))]),
        calls(&[("edit", json!({"filePath": "birds.txt", "oldString": "17", "newString": "18"}))]),
        calls(&[("read", json!({"filePath": "birds.txt"}))]),
        Step::says("done"),
    ])
    .with_builtins(&["read", "edit", "write", "apply_patch"]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.close().await;
    assert_eq!(std::fs::read_to_string(rig.workspace.path().join("birds.txt")).unwrap(), "18 herons\n");
    let outcomes = rig.outcomes().await;
    let ends: Vec<_> = outcomes.iter().map(|(name, end, _)| (name.as_str(), *end)).collect();
    assert_eq!(ends, [("write", OutcomeEnd::Ok), ("edit", OutcomeEnd::Ok), ("read", OutcomeEnd::Ok)]);
    assert_eq!(outcomes[2].2, text_sent(&rig, 3, "call_read_0"));
    rig.assert_valid().await;
}

/// Notes its own process and two that leave it, one of them with nothing of its environment, and waits for ever.
const LEAVES: &str = "setsid sleep 3600 & echo $! >>pids; env -i setsid sleep 3600 & echo $! >>pids; echo $$ >>pids; touch held; sleep 3600";

#[tokio::test(flavor = "multi_thread")]
async fn b70_what_a_command_started_ends_with_an_abort_and_with_a_kill() {
    for level in [StopLevel::Interrupt, StopLevel::Kill] {
        let rig = Rig::new(vec![calls(&[shell(LEAVES)]), Step::says("never asked")]).with_builtins(&["bash"]);
        let mut owner = rig.own(Work::Answers, &[]).await;
        let turn = owner.place("do it").await;
        let (stop, held) = (owner.stop.clone(), rig.workspace.path().join("held"));
        let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
            exists(&held).await;
            stop.raise(level, Why::Host);
        });
        assert_eq!(end.unwrap(), TurnEnd::Stopped(level));
        gone(&std::fs::read_to_string(rig.workspace.path().join("pids")).unwrap()).await;
        assert_eq!(rig.model.requests().len(), 1);
        let ends: Vec<_> = rig.outcomes().await.into_iter().map(|(name, end, _)| (name, end)).collect();
        if level == StopLevel::Interrupt {
            // The program itself was told first: its own history shows the end.
            assert_eq!(ends, [("bash".to_owned(), OutcomeEnd::Interrupted)]);
            let native = rig.native().await;
            assert!(native.contains("MessageAbortedError"), "{native}");
        }
        rig.assert_valid().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b20_a_drain_waits_for_a_command_and_records_its_end() {
    let rig = Rig::new(vec![
        calls(&[shell("touch held; while [ ! -e go ]; do sleep 0.05; done; echo 17 herons")]),
        Step::says("never asked"),
    ])
    .with_builtins(&["bash"]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    // What the gate does with a request of a drained session.
    let (stop, folder, barrier) =
        (owner.stop.clone(), rig.workspace.path().to_owned(), owner.session.request_barrier());
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        exists(&folder.join("held")).await;
        stop.raise(StopLevel::Drain, Why::Host);
        // It is not the end that is waited for here, but the drain that must not have ended it.
        tokio::time::sleep(Duration::from_millis(300)).await;
        std::fs::write(folder.join("go"), "").unwrap();
    });
    assert_eq!(end.unwrap(), TurnEnd::Stopped(StopLevel::Drain));
    drop(barrier);
    let outcomes = rig.outcomes().await;
    assert_eq!((outcomes.len(), outcomes[0].1), (1, OutcomeEnd::Ok), "{outcomes:?}");
    assert!(outcomes[0].2.contains("17 herons"));
    rig.assert_valid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b53_a_command_that_a_crash_cut_is_told_as_interrupted_and_not_run_again() {
    let rig = Rig::new(vec![calls(&[shell("echo x >>runs; touch held; sleep 3600")]), Step::says("done")])
        .with_builtins(&["bash"]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let held = rig.workspace.path().join("held");
    tokio::select! {
        end = owner.session.run_turn(turn) => panic!("the turn ended: {end:?}"),
        () = exists(&held) => {}
    }
    owner.crash().await;
    let recorded =
        rig.records().await.iter().any(|it| matches!(&it.body, Body::Intent(intent) if intent.name == "bash"));
    assert!(recorded);
    let mut owner = rig.own(Work::Answers, &[answer("call_bash_0", "It was interrupted and not run again.")]).await;
    assert!(owner.survey.open_calls.is_empty());
    let turn = owner.turn(Start::Continue(owner.placed()));
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.close().await;
    assert_eq!(std::fs::read_to_string(rig.workspace.path().join("runs")).unwrap(), "x\n");
    assert_eq!(rig.model.requests().len(), 2);
    assert!(text_sent(&rig, 1, "call_bash_0").contains("interrupted"));
}
