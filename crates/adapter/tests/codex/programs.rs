//! Programs that are not what was asked for: an error with their last words, and nothing left running.

use std::time::Duration;

use agentrun_adapter::process::{Epochs, sweep};
use agentrun_adapter::{AdapterError, AdapterErrorKind, TurnEnd};
use agentrun_kernel::{StopLevel, Why};
use agentrun_testing::script::Step;

use crate::rig::{Rig, Work};

/// The error of a turn on this program. Nothing of it is left, no request was made, and the message is still to be placed.
async fn refused(script: &str) -> AdapterError {
    let rig = Rig::new(vec![Step::says("never asked")]).with_program(script);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let error = owner.session.run_turn(turn).await.unwrap_err();
    let left = sweep(&owner.marker, Epochs::UpTo, Duration::from_secs(20)).await.unwrap();
    assert!(left.is_empty(), "left running: {left:?}");
    assert_eq!(rig.model.all_requests().len(), 0);
    assert!(owner.drive.with_state(|state| state.open_turn.is_none()), "nothing was placed");
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_exits_in_the_handshake_is_an_error_with_its_code_and_its_last_words() {
    let error = refused("echo 'the config is broken' >&2; exit 3").await;
    assert!(matches!(error.kind, AdapterErrorKind::Exited { code: Some(3) }), "{error:?}");
    assert!(error.to_string().contains("the config is broken"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_stdout_is_passed_over_and_the_end_behind_it_is_told() {
    let error = refused(r#"printf 'hello\n\377\376{\n{"id": 1\n[]\n{"id":9,"result":{}}\n'; read line; exit 0"#).await;
    assert!(matches!(error.kind, AdapterErrorKind::Exited { code: Some(0) }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_start_is_an_error_with_the_programs_reason() {
    let no = r#"{"id":1,"error":{"code":-32600,"message":"not today"}}"#;
    let error = refused(&format!("read line; echo '{no}'; sleep 300 & wait")).await;
    assert!(matches!(error.kind, AdapterErrorKind::Protocol), "{error:?}");
    assert!(error.to_string().contains("not today"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_is_written_outside_its_home_is_refused_because_nobody_would_mirror_it() {
    let ready = r#"{"id":1,"result":{}}"#;
    for path in ["/somewhere/rollout-x.jsonl", "../rollout-x.jsonl", ""] {
        let thread = format!(r#"{{"id":2,"result":{{"thread":{{"id":"t","path":"{path}"}}}}}}"#);
        let error =
            refused(&format!("read line; echo '{ready}'; read line; read line; echo '{thread}'; read line")).await;
        assert!(matches!(error.kind, AdapterErrorKind::Protocol), "{error:?}");
        assert!(error.to_string().contains("where it is not looked for"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_there_any_more_is_said_to_be_not_startable() {
    let rig = Rig::new(vec![Step::says("never asked")]).with_program("exit 0");
    std::fs::remove_file(rig.scratch("program")).unwrap();
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let error = owner.session.run_turn(turn).await.unwrap_err();
    assert!(matches!(error.kind, AdapterErrorKind::Spawn), "{error:?}");
    assert!(error.to_string().contains("program"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b21_a_stop_does_not_wait_for_a_program_that_never_gets_ready() {
    let rig = Rig::new(vec![Step::says("never asked")]).with_program("touch \"$HOME/started\"; sleep 300 & wait");
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let (stop, started) = (owner.stop.clone(), owner.home().join("started"));
    let started = async {
        while !started.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let (end, ()) = tokio::join!(owner.session.run_turn(turn), async {
        tokio::time::timeout(Duration::from_secs(60), started).await.expect("it never started");
        stop.raise(StopLevel::Kill, Why::Host);
    });
    assert_eq!(end.unwrap(), TurnEnd::Stopped(StopLevel::Kill));
    // Its guard may be at it still; what must not be is a survivor.
    sweep(&owner.marker, Epochs::UpTo, Duration::from_secs(20)).await.unwrap();
    assert!(owner.drive.with_state(|state| state.open_turn.is_none()), "nothing was placed");
}
