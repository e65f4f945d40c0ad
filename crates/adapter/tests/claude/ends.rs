//! How turns end that do not end by themselves.

use std::time::Duration;

use agentrun_adapter::process::{Epochs, sweep};
use agentrun_adapter::{AdapterErrorKind, Start, TurnEnd};
use agentrun_kernel::{StopLevel, Why};
use agentrun_testing::script::Step;
use serde_json::json;

use crate::harness::times_sent;
use crate::rig::{Owner, Rig, Work, calls};

/// Nothing of this owner's runs any more.
async fn assert_gone(owner: &Owner) {
    let left = sweep(&owner.marker, Epochs::UpTo, Duration::from_secs(20)).await.unwrap();
    assert!(left.is_empty(), "left running: {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b21_a_kill_ends_the_program_and_everything_below_it() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))])]);
    let mut owner = rig.own(Work::Hangs, &[]).await;
    let turn = owner.place("do it").await;
    let (host, stop) = (owner.host.clone(), owner.stop.clone());
    let raise = tokio::spawn(async move {
        host.begun.notified().await;
        stop.raise(StopLevel::Kill, Why::Host);
    });
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Stopped(StopLevel::Kill));
    raise.await.unwrap();
    assert_gone(&owner).await;
    assert_eq!(rig.model.requests().len(), 1);
}

/// What it is told of an interrupt it writes down as its turn's end, and the next owner's take-up then asks nobody.
#[tokio::test(flavor = "multi_thread")]
async fn b21_a_kill_tells_the_program_nothing() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))])])
        .with_program("echo $PPID > \"$HOME/guard\"; tee \"$HOME/told\" | HARNESS \"$@\"");
    let mut owner = rig.own(Work::Hangs, &[]).await;
    let turn = owner.place("do it").await;
    let (host, stop, home) = (owner.host.clone(), owner.stop.clone(), owner.home());
    let (end, told) = tokio::join!(owner.session.run_turn(turn), async {
        host.begun.notified().await;
        let guard = std::fs::read_to_string(home.join("guard")).unwrap();
        // Who kills stands still for a moment, so that whatever is said before it is heard.
        signal("-STOP", guard.trim());
        stop.raise(StopLevel::Kill, Why::Host);
        tokio::time::sleep(Duration::from_millis(500)).await;
        let told = std::fs::read_to_string(home.join("told")).unwrap();
        signal("-CONT", guard.trim());
        told
    });
    assert_eq!(end.unwrap(), TurnEnd::Stopped(StopLevel::Kill));
    assert!(told.contains("do it"), "the rig's own record of what it was told");
    assert!(!told.contains("\"interrupt\""), "{told}");
    assert_gone(&owner).await;
}

fn signal(which: &str, pid: &str) {
    assert!(std::process::Command::new("kill").args([which, pid]).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn b19_a_withheld_call_is_not_answered_and_no_request_follows() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("never asked")]);
    let mut owner = rig.own(Work::Withheld, &[]).await;
    let turn = owner.place("do it").await;
    assert!(matches!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Stopped(_)));
    assert_gone(&owner).await;
    assert_eq!(rig.model.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_ends_the_turn_in_the_programs_own_way() {
    let rig = Rig::new(vec![Step { stall_after_events: Some(1), ..Step::says("a long answer") }]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let stop = owner.stop.clone();
    let run = owner.session.run_turn(turn);
    let (end, seen) = tokio::join!(run, async {
        let seen = rig.model.wait_for_requests(1).await.map(|requests| requests.len());
        stop.raise(StopLevel::Interrupt, Why::Host);
        seen
    });
    assert_eq!(end.unwrap(), TurnEnd::Stopped(StopLevel::Interrupt));
    assert_eq!(seen.unwrap(), 1);
    assert_gone(&owner).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_fails_the_turn_with_its_status_and_the_same_turn_can_go_on() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::fails(403), Step::says("done")]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let end = owner.session.run_turn(turn).await.unwrap();
    assert!(matches!(end, TurnEnd::Failed { status: Some(403), .. }), "{end:?}");
    assert_eq!(rig.model.requests().len(), 2, "no retry of its own");
    let turn = owner.turn(Start::Continue(owner.placed()));
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(times_sent(&requests[2], "do it"), 1);
    rig.assert_valid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_dies_in_a_turn_is_an_error_with_its_exit_and_nothing_is_left() {
    let rig =
        Rig::new(vec![calls(&[("Bash", json!({"command": "kill -9 $PPID; sleep 300"}))])]).with_builtins(&["Bash"]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let error = owner.session.run_turn(turn).await.unwrap_err();
    assert!(matches!(error.kind, AdapterErrorKind::Exited { code: Some(137) }), "{error:?}");
    assert_gone(&owner).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_nobody_answers_for_is_a_failed_turn_and_not_a_hang() {
    let rig = Rig::new(vec![Step { cut_after_events: Some(0), ..Step::says("x") }, Step::says("never asked")]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let end = owner.session.run_turn(turn).await.unwrap();
    assert!(matches!(end, TurnEnd::Failed { .. }), "{end:?}");
    assert_eq!(rig.model.requests().len(), 1, "a retry is another paid request");
    owner.close().await;
}
