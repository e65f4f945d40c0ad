//! Each time-out by its name: who waits is told which one it was, the ledger is told the truth, and nothing hangs. The time-out under test is
//! short and all others are as they are, so that a slow machine cannot mistake one for another.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // Tests: a failure is a report.

mod common;

use std::time::Duration;

use agentrun_host::{RequestEnd, Timeouts};
use common::{Act, EVENTS, JSON, Session, Upstream, answer, chunk, stream_head};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const SHORT: Duration = Duration::from_millis(100);

fn usual() -> Timeouts {
    Timeouts::default()
}

#[tokio::test]
async fn connect_a_provider_that_never_finishes_its_handshake_got_nothing_and_costs_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("https://{}", listener.local_addr().unwrap());
    let mut session = Session::with(&origin, Timeouts { connect: SHORT, ..usual() }, None, None).await;
    let answered = session.ask(&session.paid()).await;
    assert!(answered.status == 502 && answered.body.contains("connect time-out"), "{answered:?}");
    let RequestEnd::NotSent { why } = session.end().await else { panic!("it was not sent") };
    assert!(why.contains("connect time-out"), "{why}");
}

#[tokio::test]
async fn head_a_provider_that_takes_the_request_and_says_nothing_is_unknown_in_full() {
    // Nothing at all, and a head that never ends.
    for acts in [vec![Act::Stall], vec![Act::Send(b"HTTP/1.1 200 OK\r\ncontent-".to_vec()), Act::Stall]] {
        let upstream = Upstream::start(vec![acts]).await;
        let mut session = Session::with(&upstream.origin, Timeouts { head: SHORT, ..usual() }, None, None).await;
        let answered = session.ask(&session.paid()).await;
        assert!(answered.status == 502 && answered.body.contains("head time-out"), "{answered:?}");
        let RequestEnd::Unknown { status: None, why, .. } = session.end().await else { panic!("it may be billed") };
        assert!(why.contains("head time-out"), "{why}");
        assert_eq!(upstream.seen().len(), 1);
    }
}

#[tokio::test]
async fn idle_a_provider_that_stops_in_its_answer_is_unknown_and_the_harness_sees_the_cut() {
    let begun = [stream_head(), chunk(EVENTS[0])].concat();
    let upstream = Upstream::start(vec![vec![Act::Send(begun), Act::Stall]]).await;
    let mut session = Session::with(&upstream.origin, Timeouts { idle: SHORT, ..usual() }, None, None).await;
    let answered = session.ask(&session.paid()).await;
    assert!(!answered.whole && answered.body == EVENTS[0], "{answered:?}");
    let RequestEnd::Unknown { status: Some(200), why, .. } = session.end().await else { panic!("it may be billed") };
    assert!(why.contains("idle time-out"), "{why}");
}

#[tokio::test]
async fn idle_an_error_page_that_never_ends_is_cut_and_its_status_is_told() {
    let begun = format!("HTTP/1.1 429 X\r\n{JSON}content-length: 100\r\n\r\n{{").into_bytes();
    let upstream = Upstream::start(vec![vec![Act::Send(begun), Act::Stall]]).await;
    let mut session = Session::with(&upstream.origin, Timeouts { idle: SHORT, ..usual() }, None, None).await;
    let answered = session.ask(&session.paid()).await;
    assert_eq!((answered.status, answered.whole), (429, true), "{answered:?}");
    assert_eq!(session.end().await, RequestEnd::Refused { status: 429 });
}

/// A provider whose answer never ends.
async fn endless() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        while !bytes.ends_with(common::BODY.as_bytes()) {
            stream.read_buf(&mut bytes).await.unwrap();
        }
        stream.write_all(&stream_head()).await.unwrap();
        while stream.write_all(&chunk(EVENTS[2])).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    origin
}

#[tokio::test]
async fn total_an_answer_that_goes_on_and_on_is_cut() {
    // A piece now and then keeps the idle time-out away for ever.
    let origin = endless().await;
    let mut session = Session::with(&origin, Timeouts { total: SHORT, ..usual() }, None, None).await;
    let answered = session.ask(&session.paid()).await;
    assert!(answered.status == 200 && !answered.whole, "{answered:?}");
    let RequestEnd::Unknown { status: Some(200), why, .. } = session.end().await else { panic!("it may be billed") };
    assert!(why.contains("total time-out"), "{why}");
}

#[tokio::test]
async fn total_an_answer_whose_harness_hung_up_is_drained_no_longer_than_that() {
    let origin = endless().await;
    let mut session = Session::with(&origin, Timeouts { total: SHORT, ..usual() }, None, None).await;
    let mut socket = session.connect().await;
    socket.write_all(&session.paid()).await.unwrap();
    drop(socket);
    // Gone before it was sent, or drained until its time was up: never for ever.
    match session.end().await {
        RequestEnd::NotSent { .. } => {}
        RequestEnd::Unknown { why, .. } => assert!(why.contains("total time-out"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_free_request_waits_no_longer_than_a_paid_one() {
    let upstream = Upstream::start(vec![vec![Act::Stall], vec![Act::Send(answer(200, JSON, "{}"))]]).await;
    let session = Session::with(&upstream.origin, Timeouts { head: SHORT, ..usual() }, None, None).await;
    let count = session.post("/v1/messages/count_tokens", common::BODY);
    let answered = session.ask(&count).await;
    assert!(answered.status == 502 && answered.body.contains("head time-out"), "{answered:?}");
}
