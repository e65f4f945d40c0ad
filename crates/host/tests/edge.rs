//! The HTTP edge on a bare socket beside the table of `conformance`: keys and what ends them, the routes a harness needs, pipelining.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // Tests: a failure is a report.

mod common;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use common::{BODY, JSON, PATIENCE, Session, Upstream, ask_on, message};

#[tokio::test]
async fn b82_wrong_and_missing_keys_get_the_same_answer() {
    let upstream = Upstream::answering(message()).await;
    let mut session = Session::before(&upstream).await;
    let dead = session.post("/v1/messages", BODY);
    let (_, other) = session.proxy.admit(session.gate.clone()).unwrap();
    session.guard = None;
    let none = session.raw("POST /v1/messages HTTP/1.1", JSON, BODY.as_bytes());
    let wrong =
        session.raw("POST /v1/messages HTTP/1.1", &format!("x-api-key: agentrun-00\r\n{JSON}"), BODY.as_bytes());
    let answers = [session.ask(&dead).await, session.ask(&none).await, session.ask(&wrong).await];
    for answered in &answers {
        assert_eq!((answered.status, &answered.body), (401, &answers[0].body));
    }
    drop(other);
    assert_eq!(upstream.seen().len(), 0);
}

#[tokio::test]
async fn b82_a_key_dies_also_for_a_connection_that_used_it() {
    let upstream = Upstream::answering(message()).await;
    let mut session = Session::before(&upstream).await;
    let mut stream = session.connect().await;
    let request = session.paid();
    assert_eq!(ask_on(&mut stream, &request).await.status, 200);
    session.guard = None;
    assert_eq!(ask_on(&mut stream, &request).await.status, 401);
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn b83_b85_the_routes_a_harness_needs_are_served() {
    let upstream = Upstream::answering(message()).await;
    let session = Session::before(&upstream).await;
    let key = session.key.as_str();
    let probe = session.raw("HEAD / HTTP/1.1", "", b"");
    assert_eq!(session.ask(&probe).await.status, 200, "the probe has no key");
    let models = session.raw("GET /v1/models HTTP/1.1", &format!("Authorization: bearer {key}\r\n"), b"");
    assert!(session.ask(&models).await.body.contains("\"data\":[]"));
    assert_eq!(session.ask(&session.post("/api/event_logging/batch", "{}")).await.status, 200);
    assert_eq!(upstream.seen().len(), 0, "answered here");

    assert_eq!(session.ask(&session.post("/v1/messages/count_tokens?beta=true", BODY)).await.status, 200);
    assert_eq!((*session.gate.asked.borrow(), upstream.seen().len()), (0, 1), "free: passed on, not admitted");

    for (target, keys) in [
        ("/v1/messages", format!("x-api-key: {key}\r\n")),
        ("/v1/messages?beta=true", format!("Authorization: Bearer {key}\r\n")),
        ("/v1/messages", format!("authorization: bearer {key}\r\nExpect: 100-continue\r\n")),
    ] {
        let request = session.raw(&format!("POST {target} HTTP/1.1"), &format!("{keys}{JSON}"), BODY.as_bytes());
        assert_eq!(session.ask(&request).await.status, 200, "{target}");
        let seen = upstream.seen().pop().unwrap();
        assert!(seen.starts_with(&format!("POST {target} HTTP/1.1\r\n")), "{seen}");
        assert!(seen.ends_with(&format!("\r\n\r\n{BODY}")), "the body is not as it came: {seen}");
    }
    assert_eq!(*session.gate.asked.borrow(), 3);
}

#[tokio::test]
async fn b82_requests_one_behind_the_other_in_one_write_are_each_answered() {
    let upstream = Upstream::answering(message()).await;
    let session = Session::before(&upstream).await;
    let mut stream = session.connect().await;
    // The body looks like a request; only the watch's own count of bytes tells them apart.
    let trap = BODY.replace("\"hi\"", "\"POST /v1/messages HTTP/1.1\\r\\nHost: evil\\r\\n\\r\\n\"");
    let two = [session.post("/v1/messages", &trap), session.raw("HEAD / HTTP/1.1", "", b"")].concat();
    stream.write_all(&two).await.unwrap();
    let (mut answers, mut piece) = (String::new(), [0; 4096]);
    while answers.matches("HTTP/1.1 200").count() < 2 {
        let read = timeout(PATIENCE, stream.read(&mut piece)).await.expect("the second is not answered").unwrap();
        assert!(read > 0, "closed after: {answers}");
        answers.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    assert_eq!(upstream.seen().len(), 1);
}
