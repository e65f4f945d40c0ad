//! Every admitted request has exactly one end, and it is the true one: whatever the provider does, whenever the harness hangs up.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // Tests: a failure is a report.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agentrun_cap::Word;
use agentrun_host::{Refusal, RequestEnd, Timeouts};
use agentrun_kernel::Usage;
use common::{
    Act, EVENTS, JSON, LAST_CHUNK, PATIENCE, Session, Upstream, answer, ask_on, chunk, header, message, quick, stream,
    stream_head,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

fn complete(end: &RequestEnd) -> Usage {
    match end {
        RequestEnd::Complete { usage, model, response_id, .. } => {
            assert_eq!((model.as_str(), response_id.as_deref()), ("claude-x", Some("msg_1")));
            usage.clone()
        }
        other => panic!("not complete: {other:?}"),
    }
}

fn used() -> Usage {
    Usage { input: 10, output: 20, ..Usage::default() }
}

#[tokio::test]
async fn b90_the_same_usage_streamed_or_not_and_the_bytes_as_they_came() {
    for (acts, body) in [(stream(), EVENTS.concat()), (vec![Act::Send(message())], String::new())] {
        let upstream = Upstream::start(vec![acts]).await;
        let mut session = Session::before(&upstream).await;
        let answered = session.ask(&session.paid()).await;
        assert!(answered.whole && answered.status == 200, "{answered:?}");
        assert!(body.is_empty() || answered.body == body);
        let end = session.end().await;
        assert_eq!(complete(&end), used());
        let RequestEnd::Complete { response, .. } = end else { unreachable!() };
        assert_eq!(response, answered.body.as_bytes(), "what is kept is what was sent");
    }
}

#[tokio::test]
async fn b90_b91_a_short_answer_of_a_stated_length_comes_booked_and_one_that_is_cut_is_cut_for_the_harness() {
    let whole = message();
    let head = whole.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    for sent in [head, head + 1, whole.len() - 1, whole.len()] {
        let upstream = Upstream::start(vec![vec![Act::Send(whole[..sent].to_vec()), Act::Close]]).await;
        let mut session = Session::before(&upstream).await;
        let answered = session.ask(&session.paid()).await;
        let end = session.ends.try_recv().expect("the harness was first");
        assert_eq!((answered.status, answered.body.as_bytes()), (200, &whole[head..sent]), "{sent}");
        if sent == whole.len() {
            assert_eq!(complete(&end), used());
            assert_eq!(header(&answered.head, "content-length"), Some(answered.body.len().to_string().as_str()));
            assert!(answered.whole);
        } else {
            assert!(!answered.whole, "{sent}: a cut answer must not look whole");
            let RequestEnd::Unknown { status, response, .. } = end else { panic!("{sent}: {end:?}") };
            assert_eq!((status, response.as_ref()), (Some(200), &whole[head..sent]), "{sent}");
        }
    }
}

#[tokio::test]
async fn b90_a_stream_cut_at_any_event_is_unknown_until_it_is_complete_and_the_harness_sees_the_cut() {
    for events in 0..=EVENTS.len() {
        let mut acts = vec![Act::Send(stream_head())];
        acts.extend(EVENTS[..events].iter().map(|event| Act::Send(chunk(event))));
        acts.push(Act::Close);
        let upstream = Upstream::start(vec![acts]).await;
        let mut session = Session::before(&upstream).await;
        let answered = session.ask(&session.paid()).await;
        let end = session.end().await;
        if events == EVENTS.len() {
            assert_eq!(complete(&end), used());
            assert!(answered.whole);
        } else {
            let RequestEnd::Unknown { status, response, .. } = end else { panic!("{events}: {end:?}") };
            assert_eq!((status, response.as_ref()), (Some(200), EVENTS[..events].concat().as_bytes()));
            assert!(!answered.whole, "{events}: a cut answer must not look whole");
        }
        assert_eq!(answered.body, EVENTS[..events].concat());
    }
}

#[tokio::test]
async fn f_a_harness_that_hangs_up_before_the_head_is_drained_and_booked() {
    let go = Arc::new(Notify::new());
    let upstream = Upstream::start(vec![[vec![Act::Wait(go.clone())], stream()].concat()]).await;
    let mut session = Session::before(&upstream).await;
    let mut socket = session.connect().await;
    socket.write_all(&session.paid()).await.unwrap();
    upstream.wait_for(1).await;
    drop(socket);
    go.notify_one();
    let end = session.end().await;
    assert_eq!(complete(&end), used());
}

#[tokio::test]
async fn f_a_harness_that_hangs_up_in_the_stream_is_drained_and_booked() {
    let go = Arc::new(Notify::new());
    let mut acts = stream();
    acts.insert(3, Act::Wait(go.clone()));
    let upstream = Upstream::start(vec![acts]).await;
    let mut session = Session::before(&upstream).await;
    let mut socket = session.connect().await;
    socket.write_all(&session.paid()).await.unwrap();
    let mut first = [0; 64];
    tokio::time::timeout(PATIENCE, socket.read_exact(&mut first)).await.unwrap().unwrap();
    drop(socket);
    session.guard = None; // The session may be over too.
    go.notify_one();
    assert_eq!(complete(&session.end().await), used());
}

#[tokio::test]
async fn f_a_harness_that_hangs_up_while_the_gate_decides_sends_nothing() {
    let open = Arc::new(Notify::new());
    let upstream = Upstream::answering(message()).await;
    let mut session = Session::with(&upstream.origin, Timeouts::default(), None, Some(open.clone())).await;
    let mut socket = session.connect().await;
    socket.write_all(&session.paid()).await.unwrap();
    let mut asked = session.gate.asked.subscribe();
    asked.wait_for(|asked| *asked == 1).await.unwrap();
    drop(socket);
    // A second session's answer tells that the proxy has had its turn at the closed socket; then the gate opens.
    for _ in 0..20 {
        session.ask(&session.raw("HEAD / HTTP/1.1", "", b"")).await;
    }
    open.notify_one();
    let end = session.end().await;
    assert!(matches!(end, RequestEnd::NotSent { .. }), "{end:?}");
    assert_eq!(upstream.seen().len(), 0);
}

#[tokio::test]
async fn f_a_harness_that_does_not_read_is_drained_and_booked() {
    let mut acts = vec![Act::Send(stream_head())];
    acts.extend((0..300).map(|_| Act::Send(chunk(format!(": {}\n\n", "x".repeat(64 << 10))))));
    acts.extend(EVENTS.iter().map(|event| Act::Send(chunk(event))));
    acts.push(Act::Send(LAST_CHUNK.to_vec()));
    let upstream = Upstream::start(vec![acts]).await;
    // Also how long the provider may pause here, which is another task of this process: long enough for a busy machine.
    let timeouts = Timeouts { idle: Duration::from_secs(3), ..Timeouts::default() };
    let mut session = Session::with(&upstream.origin, timeouts, None, None).await;
    let mut socket = session.connect().await;
    socket.write_all(&session.paid()).await.unwrap();
    let end = session.end().await;
    assert_eq!(complete(&end), used());
    let RequestEnd::Complete { response, .. } = end else { unreachable!() };
    assert!(response.is_empty(), "too long to keep");
    drop(socket);
}

#[tokio::test]
async fn b91_hang_ups_at_any_moment_leave_no_request_without_its_end() {
    let upstream = Upstream::start(vec![stream()]).await;
    let mut session = Session::before(&upstream).await;
    let request = session.paid();
    for cut in 0..200_usize {
        let mut socket = session.connect().await;
        socket.write_all(&request[..request.len() - cut % 3]).await.unwrap();
        let mut sink = vec![0; cut * 7 % 900 + 1];
        if cut % 3 == 0 && cut % 2 == 0 {
            let _ = socket.read(&mut sink).await;
        }
        drop(socket);
    }
    // One more, whole: after it, everything before it was at least asked for.
    assert!(session.ask(&request).await.whole);
    let asked = *session.gate.asked.borrow();
    assert!(asked >= 2);
    for _ in 0..asked {
        session.end().await;
    }
    assert!(session.ends.try_recv().is_err(), "an end too many");
    assert_eq!(session.gate.dropped.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn b90_a_providers_error_passes_through_once_and_only_the_unbilled_ones_are_free() {
    let body = r#"{"type":"error","error":{"type":"some_error","message":"as the provider says it"}}"#;
    for status in [400, 401, 403, 404, 408, 413, 429, 499, 500, 502, 503, 504, 529] {
        let upstream = Upstream::answering(answer(status, &format!("{JSON}retry-after: 7\r\n"), body)).await;
        let mut session = Session::before(&upstream).await;
        let answered = session.ask(&session.paid()).await;
        assert_eq!((answered.status, answered.body.as_str(), answered.whole), (status, body, true));
        assert_eq!(header(&answered.head, "retry-after"), Some("7"));
        let free = matches!(status, 400..=407 | 409..=498 | 529);
        match session.end().await {
            RequestEnd::Refused { status: told } => assert_eq!((told, free), (status, true)),
            RequestEnd::Unknown { status: told, .. } => assert_eq!((told, free), (Some(status), false)),
            other => panic!("{status}: {other:?}"),
        }
        assert_eq!(upstream.seen().len(), 1, "{status}: one request, no retry");
    }
}

#[tokio::test]
async fn b89_a_redirect_is_not_followed_and_its_spend_is_unknown() {
    let other = Upstream::answering(message()).await;
    let upstream = Upstream::answering(answer(307, &format!("location: {}/v1/messages\r\n", other.origin), "")).await;
    let mut session = Session::before(&upstream).await;
    let answered = session.ask(&session.paid()).await;
    assert_eq!(answered.status, 502);
    assert!(header(&answered.head, "location").is_none() && !answered.body.contains(&other.origin));
    assert!(matches!(session.end().await, RequestEnd::Unknown { status: Some(307), .. }));
    assert_eq!((upstream.seen().len(), other.seen().len()), (1, 0));
}

#[tokio::test]
async fn a_provider_that_is_down_is_told_in_its_own_shape_and_nothing_was_sent() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let mut session = Session::with(&origin, Timeouts::default(), None, None).await;
    let answered = session.ask(&session.paid()).await;
    assert_eq!(answered.status, 502);
    let error: serde_json::Value = serde_json::from_str(&answered.body).unwrap();
    assert_eq!((&error["type"], &error["error"]["type"]), (&"error".into(), &"api_error".into()));
    let said = error["error"]["message"].as_str().unwrap();
    assert!(said.contains("cannot be reached") && !said.contains(&origin[7..]), "{said}");
    assert!(matches!(session.end().await, RequestEnd::NotSent { .. }));
}

#[tokio::test]
async fn a_provider_that_takes_the_request_and_says_nothing_may_have_billed_it() {
    for (acts, why) in [(vec![Act::Close], "broke"), (vec![Act::Stall], "head time-out")] {
        let upstream = Upstream::start(vec![acts]).await;
        let timeouts = Timeouts { head: quick().head, ..Timeouts::default() };
        let mut session = Session::with(&upstream.origin, timeouts, None, None).await;
        let answered = session.ask(&session.paid()).await;
        assert_eq!(answered.status, 502);
        let RequestEnd::Unknown { status: None, why: told, .. } = session.end().await else { panic!("{why}") };
        assert!(told.contains(why) && answered.body.contains(why), "{told}");
        assert_eq!(upstream.seen().len(), 1, "no second try");
    }
}

#[tokio::test]
async fn a_provider_that_has_said_everything_need_not_end_its_answer() {
    let mut acts = stream();
    acts.pop();
    acts.push(Act::Stall);
    let upstream = Upstream::start(vec![acts]).await;
    let timeouts = Timeouts { idle: Duration::from_secs(3), ..Timeouts::default() };
    let mut session = Session::with(&upstream.origin, timeouts, None, None).await;
    let answered = session.ask(&session.paid()).await;
    assert!(answered.whole, "a complete message ends well");
    assert_eq!(complete(&session.end().await), used());
}

#[tokio::test]
async fn a_connection_that_the_provider_closed_meanwhile_costs_nothing() {
    // It announces nothing and closes after each answer: the pooled connection is dead when the next request comes.
    let upstream = Upstream::start(vec![vec![Act::Send(message()), Act::Close]]).await;
    let mut session = Session::before(&upstream).await;
    let mut socket = session.connect().await;
    for sent in 1..=20 {
        let answered = ask_on(&mut socket, &session.paid()).await;
        assert_eq!(answered.status, 200, "{sent}: {answered:?}");
        assert_eq!(complete(&session.end().await), used());
        assert_eq!(upstream.seen().len(), sent);
    }
}

#[tokio::test]
async fn b88_a_refusal_is_told_in_the_providers_shape_with_a_status_that_is_not_retried() {
    let upstream = Upstream::answering(message()).await;
    let refusal = Refusal { word: Word::OverCap, message: "the cap has no room; raise it and resume".to_owned() };
    let session = Session::refusing(&upstream, refusal).await;
    let answered = session.ask(&session.paid()).await;
    assert_eq!(answered.status, 403);
    let error: serde_json::Value = serde_json::from_str(&answered.body).unwrap();
    assert_eq!(error["error"]["type"], "permission_error");
    let said = error["error"]["message"].as_str().unwrap();
    assert!(said.contains("over_cap") && said.contains("raise it and resume"), "{said}");
    assert_eq!(upstream.seen().len(), 0);
}

#[tokio::test]
async fn b91_who_has_read_the_end_of_an_answer_finds_it_booked() {
    let upstream = Upstream::start(vec![stream()]).await;
    let mut session = Session::before(&upstream).await;
    for _ in 0..20 {
        assert!(session.ask(&session.paid()).await.whole);
        session.ends.try_recv().expect("the harness was first");
    }
}
