//! The program's own tools: recorded before they run, denied with a reason, without our key, and gone with their program.

use std::time::Duration;

use agentrun_adapter::process::{Epochs, sweep};
use agentrun_adapter::{RefusalKind, TurnEnd};
use agentrun_kernel::{StopLevel, Why};
use agentrun_testing::script::Step;
use serde_json::json;

use crate::harness::{input, result_sent};
use crate::rig::{Rig, Work, calls};

/// The lines of an environment that hold the key, or name a variable for it.
fn keys(environment: &str) -> Vec<&str> {
    environment.lines().filter(|line| line.contains("made-up-key") || line.contains("MODEL_KEY")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn b70_a_denied_built_in_does_not_run_and_why_reaches_the_model_and_the_records() {
    let patch = "*** Begin Patch\n*** Add File: forbidden.txt\n+hello\n*** End Patch";
    let rig = Rig::new(vec![
        calls(&[
            ("exec_command", json!({"cmd": "touch forbidden"})),
            ("apply_patch", json!({"input": patch})),
            ("exec_command", json!({"cmd": "echo allowed"})),
        ]),
        Step::says("done"),
    ])
    .with_builtins(&["exec_command", "apply_patch"]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("look").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.close().await;
    for made in ["forbidden", "forbidden.txt"] {
        assert!(!rig.workspace.path().join(made).exists(), "{made}: a denied built-in does not run");
    }
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 2);
    let native = rig.native().await;
    for call in ["call_exec_command_0", "call_apply_patch_1"] {
        let why = format!("On the call `{call}`: not here");
        let told = input(&requests[1]).iter().filter(|item| item["content"][0]["text"] == why.as_str()).count();
        assert_eq!(told, 1, "the model reads why, once: {}", requests[1].body["input"]);
        assert!(native.contains(&why), "and the records keep it");
        assert!(!result_sent(&requests[1], call).is_null(), "each call has a result");
    }
    assert!(result_sent(&requests[1], "call_exec_command_2").to_string().contains("allowed"), "the turn goes on");
    assert_eq!(rig.outcomes().await.len(), 1, "what did not run is no effect");
    rig.assert_valid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b70_each_command_is_asked_for_a_harmless_one_and_one_that_ran_before_too() {
    let command = || ("exec_command", json!({"cmd": "ls"}));
    let rig = Rig::new(vec![calls(&[command(), command()]), Step::says("done")]).with_builtins(&["exec_command"]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("look").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    assert_eq!(owner.calls().len(), 2);
    assert_eq!(rig.outcomes().await.len(), 2);
    owner.close().await;
    rig.assert_valid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b70_a_terminal_is_denied_because_what_is_typed_into_it_is_asked_of_nobody() {
    let terminal = ("exec_command", json!({"cmd": "cat > typed", "tty": true}));
    let rig = Rig::new(vec![calls(&[terminal]), Step::says("done")]).with_builtins(&["exec_command"]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("look").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    assert_eq!(owner.calls(), [], "the host is not asked either");
    owner.close().await;
    assert!(!rig.workspace.path().join("typed").exists());
    let told = rig.model.requests()[1].body["input"].to_string();
    assert!(told.contains("without a terminal"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b70_without_a_terminal_nothing_can_be_typed_into_a_command_that_was_recorded() {
    // The session's number is in the result: the model asks for it by the text of the step.
    let command = json!({"cmd": "cat > typed; echo closed; sleep 300", "yield_time_ms": 500});
    let rig = Rig::new(vec![calls(&[("exec_command", command)]), Step::says("read")]).with_builtins(&["exec_command"]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let barrier = owner.session.request_barrier().unwrap();
    let turn = owner.place("look").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    let shown = result_sent(&rig.model.requests()[1], "call_exec_command_0");
    assert!(shown.to_string().contains("closed"), "its input was at its end from the start: {shown}");
    // Reading on comes with the shell: it is no tool that nobody offered.
    let mut next = rig.model.requests()[1].body.clone();
    next["input"].as_array_mut().unwrap().push(
        json!({"type": "function_call", "call_id": "poll", "name": "write_stdin", "arguments": "{\"session_id\":1}"}),
    );
    assert!(barrier.before_request(next.to_string().as_bytes()).await.is_ok());
    drop(barrier);
    owner.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b89_the_sessions_key_is_not_in_the_environment_of_a_command() {
    let rig = Rig::new(vec![calls(&[("exec_command", json!({"cmd": "env"}))]), Step::says("done")])
        .with_builtins(&["exec_command"]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("look").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.close().await;
    let shown = result_sent(&rig.model.requests()[1], "call_exec_command_0");
    let environment = shown.as_str().unwrap();
    assert!(environment.contains("PATH="), "{environment}");
    assert_eq!(keys(environment), Vec::<&str>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn b21_a_command_that_left_for_a_session_of_its_own_ends_with_the_program() {
    // Two forks and a session of its own: no group and no parent leads to it any more.
    let away =
        "(setsid sh -c 'echo $$ > away; exec sleep 300' >/dev/null 2>&1 &) ; while [ ! -s away ]; do sleep 0.05; done";
    let rig = Rig::new(vec![calls(&[("exec_command", json!({"cmd": away}))]), Step::says("done")])
        .with_builtins(&["exec_command"]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("look").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    let pid = std::fs::read_to_string(rig.workspace.path().join("away")).unwrap();
    let marker = owner.marker.clone();
    // By its mark too: a pid may be another's by then.
    let runs = || {
        let environment = std::fs::read(format!("/proc/{}/environ", pid.trim())).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&marker.session)
    };
    assert!(runs(), "it runs on behind its call");
    owner.close().await;
    let gone = async {
        while runs() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("it outlived the program");
    let left = sweep(&marker, Epochs::UpTo, Duration::from_secs(20)).await.unwrap();
    assert!(left.is_empty(), "left running: {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b53_a_command_that_is_cut_has_no_outcome_and_nobody_waits_for_one_behind_the_turn() {
    let command = json!({"cmd": "touch begun; sleep 300", "yield_time_ms": 30_000});
    let rig = Rig::new(vec![calls(&[("exec_command", command)])]).with_builtins(&["exec_command"]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("look").await;
    let stop = owner.stop.clone();
    let begun = async {
        while !rig.workspace.path().join("begun").exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        tokio::time::timeout(Duration::from_secs(60), begun).await.expect("the command never began");
        stop.raise(StopLevel::Kill, Why::Host);
    });
    assert_eq!(end.unwrap(), TurnEnd::Stopped(StopLevel::Kill));
    // Holds that nothing of the turn has the session's records any more.
    owner.close().await;
    assert_eq!(rig.outcomes().await, [], "it may have partly run: the next owner decides");
    let owner = rig.own(Work::Answers, &[]).await;
    assert_eq!(owner.survey.open_calls.len(), 1);
    rig.assert_valid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b25_b26_what_cannot_be_held_back_and_a_start_from_anothers_context_are_refused_before_anything() {
    use agentrun_adapter::{Ability, SessionPlan, admit};
    let adapter = crate::harness::adapter();
    let plan = |builtins: &[&str], fork: bool| SessionPlan {
        session: agentrun_kernel::SessionKey::new("s".to_owned()).unwrap(),
        model: crate::harness::MODEL.to_owned(),
        api: Some(agentrun_adapter::ModelApi::Responses),
        system: Vec::new(),
        tools: Vec::new(),
        builtins: builtins.iter().map(|it| (*it).to_owned()).collect(),
        fork,
    };
    for unheld in ["write_stdin", "web_search", "Bash"] {
        let refusal = admit(&*adapter, &plan(&[unheld], false), None).await.unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Plan, "{unheld}");
    }
    let refusal = admit(&*adapter, &plan(&[], true), None).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Lacks(Ability::Fork));
    assert!(admit(&*adapter, &plan(&["exec_command", "apply_patch"], false), None).await.is_ok());
}
