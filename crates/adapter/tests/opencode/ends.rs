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
async fn an_interrupt_aborts_the_turn_and_ends_the_program() {
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
        Rig::new(vec![calls(&[("work", json!({}))])]).with_program(r#"HARNESS "$@" & echo $! > "$HOME/pid"; wait $!"#);
    let mut owner = rig.own(Work::Hangs, &[]).await;
    let turn = owner.place("do it").await;
    let (host, pid) = (owner.host.clone(), owner.home().join("pid"));
    let kill = tokio::spawn(async move {
        host.begun.notified().await;
        let pid = std::fs::read_to_string(pid).unwrap();
        assert!(std::process::Command::new("kill").args(["-9", pid.trim()]).status().unwrap().success());
    });
    let error = owner.session.run_turn(turn).await.unwrap_err();
    kill.await.unwrap();
    assert!(matches!(error.kind, AdapterErrorKind::Exited { code: Some(137) }), "{error:?}");
    assert_gone(&owner).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b19_a_stop_while_the_program_starts_is_not_kept_waiting_and_nothing_was_placed() {
    let rig = Rig::new(vec![Step::says("never asked")]).with_program(r#"echo > "$HOME/begun"; sleep 600"#);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let (stop, begun) = (owner.stop.clone(), owner.home().join("begun"));
    tokio::spawn(async move {
        while !begun.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        stop.raise(StopLevel::Drain, Why::Host);
    });
    // Far below what a start may take.
    let end = tokio::time::timeout(Duration::from_secs(60), owner.session.run_turn(turn)).await;
    assert_eq!(end.expect("the stop was kept waiting").unwrap(), TurnEnd::Stopped(StopLevel::Drain));
    assert!(owner.drive.with_state(|state| state.open_turn.is_none()), "nothing was placed");
    owner.close().await;
}
