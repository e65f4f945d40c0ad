//! What the provider does wrong is a typed end within a bound: never a hang, never a second paid request.

use std::time::Duration;

use agentrun_adapter::TurnEnd;
use agentrun_testing::script::{Step, StopReason};

use crate::rig::{Rig, Work};

/// Far above what a loaded machine needs; a hang is what fails it.
const BOUND: Duration = Duration::from_secs(60);

/// How a turn on this step ends, and how many requests it made.
async fn end_of(step: Step) -> (TurnEnd, usize) {
    let rig = Rig::new(vec![step, Step::says("never asked")]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let end = tokio::time::timeout(BOUND, owner.session.run_turn(turn)).await.expect("a hang").unwrap();
    owner.close().await;
    (end, rig.model.requests().len())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_status_fails_the_turn_after_one_request() {
    for status in [400, 401, 403, 404, 413, 429, 500, 502, 503, 529] {
        let (end, requests) = end_of(Step::fails(status)).await;
        let TurnEnd::Failed { status: said, message } = end else { panic!("{status}: {end:?}") };
        assert_eq!(requests, 1, "{status} was tried again");
        assert!(!message.is_empty());
        // Of a plain 400 and of what is broken on the way the program tells no number; the gate saw it.
        assert!(said.is_none_or(|said| said == status), "{status} became {said:?}");
        let told = !matches!(status, 400 | 404 | 413 | 502 | 529);
        assert!(!told || said.is_some(), "{status} was not told");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_cut_or_broken_fails_the_turn_after_one_request() {
    for cut in [0, 1, 4] {
        let (end, requests) = end_of(Step { cut_after_events: Some(cut), ..Step::says("half a word") }).await;
        assert!(matches!(end, TurnEnd::Failed { .. }), "cut after {cut}: {end:?}");
        assert_eq!(requests, 1, "cut after {cut}: a retry is another paid request");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_not_there_fails_the_turn_and_is_not_waited_for() {
    let rig = Rig::new(vec![Step::says("never asked")]).with_program(
        // A port nobody listens on.
        r#"set -- $(printf '%s\n' "$@" | sed 's#http://127.0.0.1:[0-9]*/#http://127.0.0.1:9/#' | base64 -w0)
           echo "$1" | base64 -d > "$TMPDIR/args"; set --
           while IFS= read -r arg; do set -- "$@" "$arg"; done < "$TMPDIR/args"
           exec HARNESS "$@""#,
    );
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let end = tokio::time::timeout(BOUND, owner.session.run_turn(turn)).await.expect("a hang").unwrap();
    assert!(matches!(end, TurnEnd::Failed { .. }), "{end:?}");
    assert_eq!(rig.model.all_requests().len(), 0);
    owner.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_the_provider_in_its_stream_fails_the_turn_after_one_request() {
    for (code, told) in [
        ("context_length_exceeded", Some(400)),
        ("insufficient_quota", Some(429)),
        ("server_error", None),
        ("rate_limit_exceeded", Some(429)),
    ] {
        let (end, requests) = end_of(Step { failure: Some(code.to_owned()), ..Step::default() }).await;
        let TurnEnd::Failed { status, .. } = end else { panic!("{code}: {end:?}") };
        assert_eq!((requests, status), (1, told), "{code}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_cut_at_its_length_fails_the_turn_and_an_empty_one_is_an_idle_turn_that_delivered_nothing() {
    let (end, requests) = end_of(Step { stop_reason: Some(StopReason::MaxTokens), ..Step::says("half a") }).await;
    assert!(matches!(end, TurnEnd::Failed { .. }) && requests == 1, "{end:?}");
    let (end, requests) = end_of(Step::says("")).await;
    assert!(end == TurnEnd::Idle && requests == 1, "{end:?}");
}
