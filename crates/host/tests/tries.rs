//! Retry and fallback: off unless asked for, before the first byte of an answer alone, each try with a hold and an end of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // Tests: a failure is a report.

mod common;

use std::time::{Duration, Instant};

use agentrun_cap::Word;
use agentrun_host::{Credential, Fallback, Provider, Refusal, RequestEnd, Retry, Steadfast, Timeouts};
use common::{
    Act, CANARY, EVENTS, JSON, Session, Upstream, answer, chunk, header, message, quick, stream, stream_head,
};
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

/// Made up, and of the second provider alone.
const OTHER: &str = "sk-other-canary-0b7e5512aa";

fn again(again: u32) -> Retry {
    Retry { again, first_wait: Duration::from_millis(2), longest_wait: Duration::from_secs(20) }
}

async fn session(upstream: &Upstream, again_at_most: u32, fallback: &[&Upstream]) -> Session {
    let fallback = fallback.iter().map(|other| Fallback {
        origin: other.origin.parse().unwrap(),
        credential: Credential::from_text(OTHER.to_owned()).unwrap(),
        timeouts: Timeouts::default(),
    });
    let steadfast = Steadfast { retry: again(again_at_most), fallback: fallback.collect() };
    Session::steadfast(Provider::Anthropic, &upstream.origin, Timeouts::default(), steadfast, None, None).await
}

fn fails(status: u16, headers: &str) -> Vec<Act> {
    vec![Act::Send(answer(status, &format!("{JSON}{headers}"), r#"{"type":"error"}"#))]
}

/// A provider that nobody is at.
fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

async fn ends(session: &mut Session, many: usize) -> Vec<RequestEnd> {
    let mut ends = Vec::new();
    for _ in 0..many {
        ends.push(session.end().await);
    }
    assert!(session.ends.try_recv().is_err(), "an end too many");
    assert_eq!(*session.gate.asked.borrow(), many, "a hold each try, and none without one");
    ends
}

#[tokio::test]
async fn unless_asked_for_nothing_is_tried_again() {
    let upstream = Upstream::start(vec![fails(529, ""), stream()]).await;
    let mut session = Session::before(&upstream).await;
    assert_eq!(session.ask(&session.paid()).await.status, 529);
    assert_eq!(ends(&mut session, 1).await, [RequestEnd::Refused { status: 529 }]);
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn each_try_has_its_own_hold_and_what_it_may_have_cost_counts() {
    let upstream = Upstream::start(vec![fails(529, ""), fails(503, ""), stream()]).await;
    let mut session = session(&upstream, 2, &[]).await;
    let answered = session.ask(&session.paid()).await;
    assert_eq!((answered.status, answered.whole, answered.body), (200, true, EVENTS.concat()));
    let ends = ends(&mut session, 3).await;
    assert_eq!(ends[0], RequestEnd::Refused { status: 529 });
    assert!(matches!(ends[1], RequestEnd::Unknown { status: Some(503), .. }), "{ends:?}");
    assert!(matches!(ends[2], RequestEnd::Complete { .. }), "{ends:?}");
    let seen = upstream.seen();
    assert!(seen.len() == 3 && seen.iter().all(|request| request == &seen[0]), "the same bytes each time");
}

#[tokio::test]
async fn tries_are_bounded_and_the_last_failure_is_passed_on_as_it_is() {
    let upstream = Upstream::start(vec![fails(529, "retry-after: 0\r\n")]).await;
    let mut session = session(&upstream, 3, &[]).await;
    let answered = session.ask(&session.paid()).await;
    assert_eq!((answered.status, header(&answered.head, "retry-after")), (529, Some("0")));
    ends(&mut session, 4).await;
    assert_eq!(upstream.seen().len(), 4);
}

#[tokio::test]
async fn what_another_try_would_be_told_the_same_is_not_tried_again() {
    for status in [400, 401, 403, 404, 408, 413, 501] {
        let (upstream, other) = (Upstream::start(vec![fails(status, "")]).await, Upstream::answering(message()).await);
        let mut session = session(&upstream, 3, &[&other]).await;
        assert_eq!(session.ask(&session.paid()).await.status, status);
        ends(&mut session, 1).await;
        assert_eq!((upstream.seen().len(), other.seen().len()), (1, 0), "{status}");
    }
}

#[tokio::test]
async fn retry_after_is_honoured() {
    let upstream = Upstream::start(vec![fails(429, "retry-after: 1\r\n"), stream()]).await;
    let mut session = session(&upstream, 1, &[]).await;
    let began = Instant::now();
    assert_eq!(session.ask(&session.paid()).await.status, 200);
    // No sooner, whatever the machine: later is always allowed.
    assert!(began.elapsed() >= Duration::from_secs(1));
    ends(&mut session, 2).await;
}

#[tokio::test]
async fn a_provider_that_asks_for_more_patience_than_there_is_is_not_asked_again() {
    let upstream = Upstream::start(vec![fails(429, "retry-after: 21\r\n")]).await;
    let mut session = session(&upstream, 5, &[]).await;
    let answered = session.ask(&session.paid()).await;
    assert_eq!((answered.status, header(&answered.head, "retry-after")), (429, Some("21")));
    ends(&mut session, 1).await;
}

#[tokio::test]
async fn once_a_byte_of_an_answer_came_nothing_is_tried_again() {
    let cut = vec![Act::Send(stream_head()), Act::Send(chunk(EVENTS[0])), Act::Close];
    let (upstream, other) = (Upstream::start(vec![cut, stream()]).await, Upstream::start(vec![stream()]).await);
    let mut session = session(&upstream, 5, &[&other]).await;
    let answered = session.ask(&session.paid()).await;
    assert!(!answered.whole && answered.body == EVENTS[0], "{answered:?}");
    assert!(matches!(ends(&mut session, 1).await[0], RequestEnd::Unknown { status: Some(200), .. }));
    assert_eq!((upstream.seen().len(), other.seen().len()), (1, 0));
}

#[tokio::test]
async fn a_request_that_may_still_be_running_is_not_sent_twice() {
    for act in [Act::Close, Act::Stall] {
        let (upstream, other) = (Upstream::start(vec![vec![act]]).await, Upstream::answering(message()).await);
        let steadfast = Steadfast {
            retry: again(5),
            fallback: vec![Fallback {
                origin: other.origin.parse().unwrap(),
                credential: Credential::from_text(OTHER.to_owned()).unwrap(),
                timeouts: Timeouts::default(),
            }],
        };
        let timeouts = Timeouts { head: quick().head, ..Timeouts::default() };
        let mut session =
            Session::steadfast(Provider::Anthropic, &upstream.origin, timeouts, steadfast, None, None).await;
        assert_eq!(session.ask(&session.paid()).await.status, 502);
        assert!(matches!(ends(&mut session, 1).await[0], RequestEnd::Unknown { status: None, .. }));
        assert_eq!((upstream.seen().len(), other.seen().len()), (1, 0));
    }
}

#[tokio::test]
async fn the_next_provider_is_asked_once_the_tries_are_used_up_with_its_own_credential_and_no_other() {
    let upstream = Upstream::start(vec![fails(529, "")]).await;
    let second = Upstream::start(vec![fails(503, "")]).await;
    let third = Upstream::start(vec![stream()]).await;
    let mut session = session(&upstream, 1, &[&second, &third]).await;
    let answered = session.ask(&session.paid()).await;
    assert_eq!((answered.status, answered.body), (200, EVENTS.concat()));
    let ends = ends(&mut session, 5).await;
    assert!(matches!(ends[4], RequestEnd::Complete { .. }), "{ends:?}");
    assert_eq!([&upstream, &second, &third].map(|it| it.seen().len()), [2, 2, 1], "in their order");
    for (provider, ours, not) in [(&upstream, CANARY, OTHER), (&second, OTHER, CANARY), (&third, OTHER, CANARY)] {
        assert!(provider.seen().iter().all(|request| request.contains(ours) && !request.contains(not)));
    }
}

#[tokio::test]
async fn a_provider_that_is_down_costs_nothing_and_the_next_one_is_asked() {
    let other = Upstream::start(vec![stream()]).await;
    let steadfast = Steadfast {
        retry: Retry::NEVER,
        fallback: vec![Fallback {
            origin: other.origin.parse().unwrap(),
            credential: Credential::from_text(OTHER.to_owned()).unwrap(),
            timeouts: Timeouts::default(),
        }],
    };
    let mut session =
        Session::steadfast(Provider::Anthropic, &nowhere(), Timeouts::default(), steadfast, None, None).await;
    assert_eq!(session.ask(&session.paid()).await.status, 200);
    let ends = ends(&mut session, 2).await;
    assert!(matches!(ends[0], RequestEnd::NotSent { .. }), "{ends:?}");
}

#[tokio::test]
async fn an_echo_of_the_second_providers_credential_does_not_reach_the_harness() {
    let upstream = Upstream::start(vec![fails(529, "")]).await;
    let other = Upstream::answering(answer(200, JSON, &format!(r#"{{"you":"{OTHER}"}}"#))).await;
    let session = session(&upstream, 0, &[&other]).await;
    let answered = session.ask(&session.paid()).await;
    assert!(answered.status == 200 && !answered.body.contains(OTHER), "{answered:?}");
}

#[tokio::test]
async fn a_refusal_of_the_gate_ends_the_tries() {
    let upstream = Upstream::start(vec![fails(529, "")]).await;
    let refusal = Refusal { word: Word::OverCap, message: "the cap has no room".to_owned() };
    let steadfast = Steadfast { retry: again(5), fallback: Vec::new() };
    let origin = upstream.origin.clone();
    let session =
        Session::steadfast(Provider::Anthropic, &origin, Timeouts::default(), steadfast, Some(refusal), None).await;
    assert_eq!(session.ask(&session.paid()).await.status, 403);
    assert_eq!((upstream.seen().len(), *session.gate.asked.borrow()), (0, 1));
}

#[tokio::test]
async fn a_harness_that_hangs_up_between_two_tries_holds_nothing() {
    let upstream = Upstream::start(vec![fails(429, "retry-after: 20\r\n"), stream()]).await;
    let mut session = session(&upstream, 5, &[]).await;
    let mut socket = session.connect().await;
    socket.write_all(&session.paid()).await.unwrap();
    assert_eq!(session.end().await, RequestEnd::Refused { status: 429 });
    drop(socket);
    // Its task has nothing more to do; a second request is not kept waiting by it.
    let next = timeout(common::PATIENCE, async { session.ask(&session.paid()).await }).await.unwrap();
    assert_eq!(next.status, 200);
    assert!(matches!(session.end().await, RequestEnd::Complete { .. }));
    assert_eq!((upstream.seen().len(), *session.gate.asked.borrow()), (2, 2));
}
