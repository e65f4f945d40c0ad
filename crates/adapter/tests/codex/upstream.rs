//! What the provider does wrong is a typed end within a bound: never a hang, never a second paid request.

use std::time::Duration;

use agentrun_adapter::codex::CodexAdapter;
use agentrun_adapter::process::{Epochs, sweep};
use agentrun_adapter::{AdapterErrorKind, Start, TurnEnd};
use agentrun_testing::script::{Step, StopReason};
use serde_json::json;

use crate::harness::times_sent;
use crate::rig::{Owner, Rig, Work, calls};

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

/// Gives up on a silent program soon. Longer than a busy machine needs between two lines of a turn that goes well.
const SILENCE: Duration = Duration::from_secs(15);

fn impatient(steps: Vec<Step>) -> Rig {
    Rig::new(steps).with_adapter(|| Box::new(CodexAdapter::with_silence(SILENCE)))
}

/// Runs the turn until it fails for its silence; nothing is left of it, and one request was made.
async fn stalls(rig: &Rig) -> Owner {
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let end = tokio::time::timeout(SILENCE + BOUND, owner.session.run_turn(turn)).await.expect("a hang");
    let error = end.unwrap_err();
    assert!(matches!(error.kind, AdapterErrorKind::Stalled), "{error:?}");
    assert!(error.to_string().contains("said nothing for 15s"), "{error}");
    let left = sweep(&owner.marker, Epochs::UpTo, Duration::from_secs(20)).await.unwrap();
    assert!(left.is_empty(), "left running: {left:?}");
    owner
}

/// A next owner goes on with the turn, and the message stands once in what the model is asked then.
async fn goes_on(rig: &Rig) {
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.turn(Start::Continue(owner.placed()));
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!((requests.len(), times_sent(&requests[1], "do it")), (2, 1));
    rig.assert_valid().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_takes_the_request_and_gives_no_headers_is_a_stall_after_the_hosts_bound_and_one_request() {
    // The program itself has no time-out for these.
    let silent = Step { stall_ms: Some(3_600_000), ..Step::says("never said") };
    let rig = impatient(vec![silent, Step::says("done")]);
    stalls(&rig).await.crash().await;
    assert_eq!(rig.model.requests().len(), 1, "a retry is another paid request");
    goes_on(&rig).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_stops_in_the_middle_is_a_stall_after_the_hosts_bound_and_one_request() {
    let rig = impatient(vec![Step { stall_after_events: Some(4), ..Step::says("half a word") }, Step::says("done")]);
    stalls(&rig).await.crash().await;
    assert_eq!(rig.model.requests().len(), 1, "a retry is another paid request");
    goes_on(&rig).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_end_is_never_told_is_a_stall_after_the_hosts_bound() {
    // The real program, but for the line that ends the turn.
    let deaf = "exec 3>&1; HARNESS \"$@\" | grep --line-buffered -v '\"method\":\"turn/completed\"' >&3";
    let rig = impatient(vec![Step::says("done"), Step::says("never asked")]).with_program(deaf);
    let owner = stalls(&rig).await;
    owner.crash().await;
    assert_eq!(rig.model.requests().len(), 1);
    // The history has the end that was not told: nothing is asked again.
    assert!(rig.own(Work::Answers, &[]).await.survey.ended);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_the_hosts_may_take_longer_than_the_program_may_say_nothing() {
    let rig = Rig::new(vec![calls(&[("work", json!({}))]), Step::says("done")])
        .with_adapter(|| Box::new(CodexAdapter::with_silence(SILENCE)));
    let mut owner = rig.own(Work::Takes(SILENCE + Duration::from_secs(2)), &[]).await;
    let turn = owner.place("do it").await;
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_the_provider_finds_too_long_fails_its_turn_and_no_request_sums_the_history_up_behind_it() {
    let too_long = Step { failure: Some("context_length_exceeded".to_owned()), ..Step::default() };
    let rig = Rig::new(vec![too_long, Step::says("done"), Step::says("never asked")]);
    let mut owner = rig.own(Work::Answers, &[]).await;
    let turn = owner.place("do it").await;
    let end = owner.session.run_turn(turn).await.unwrap();
    assert!(matches!(end, TurnEnd::Failed { status: Some(400), .. }), "{end:?}");
    let turn = owner.turn(Start::Continue(owner.placed()));
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    owner.end_turn().await;
    owner.close().await;
    let requests = rig.model.requests();
    assert_eq!((requests.len(), times_sent(&requests[1], "do it")), (2, 1), "{:?}", requests.last().unwrap().body);
}
