//! Every admitted request of OpenAI's two APIs has exactly one end, and it is the true one; and the credential that a provider echoes
//! reaches neither the harness nor the records.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // Tests: a failure is a report.

mod common;
#[path = "common/openai.rs"]
mod openai;

use std::sync::Arc;
use std::time::Duration;

use agentrun_host::{RequestEnd, Timeouts};
use agentrun_kernel::Usage;
use common::{Act, CANARY, JSON, LAST_CHUNK, PATIENCE, Upstream, answer, chunk, header, stream_head, streamed};
use openai::{Api, apis, chat, responses};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;

/// Holds that the end is complete and says what [`Api`] says.
fn holds(api: &Api, end: &RequestEnd) {
    let RequestEnd::Complete { usage, model, response_id, .. } = end else { panic!("not complete: {end:?}") };
    assert_eq!((model.as_str(), response_id.as_deref()), ("gpt-x", Some(api.id)));
    assert_eq!(*usage, Usage { input: 10, cache_read: 8, output: 20, ..Usage::default() });
}

#[tokio::test]
async fn b90_the_same_usage_streamed_or_not_and_the_bytes_as_they_came() {
    for api in apis() {
        for (acts, body) in
            [(streamed(&api.events), api.events.concat()), (vec![Act::Send(api.whole.clone())], String::new())]
        {
            let upstream = Upstream::start(vec![acts]).await;
            let mut session = api.before(&upstream).await;
            let answered = session.ask(&api.paid(&session)).await;
            assert!(answered.whole && answered.status == 200, "{answered:?}");
            assert!(body.is_empty() || answered.body == body);
            let end = session.end().await;
            holds(&api, &end);
            let RequestEnd::Complete { response, .. } = end else { unreachable!() };
            assert_eq!(response, answered.body.as_bytes(), "what is kept is what was sent");
        }
    }
}

#[tokio::test]
async fn b90_a_stream_cut_at_any_event_is_unknown_until_it_is_complete_and_the_harness_sees_the_cut() {
    for api in apis() {
        for events in 0..=api.events.len() {
            let mut acts = vec![Act::Send(stream_head())];
            acts.extend(api.events[..events].iter().map(|event| Act::Send(chunk(event))));
            acts.push(Act::Close);
            let upstream = Upstream::start(vec![acts]).await;
            let mut session = api.before(&upstream).await;
            let answered = session.ask(&api.paid(&session)).await;
            let end = session.end().await;
            let came = api.events[..events].concat();
            if events == api.events.len() {
                holds(&api, &end);
                assert!(answered.whole);
            } else {
                let RequestEnd::Unknown { status, response, .. } = end else { panic!("{events}: {end:?}") };
                assert_eq!((status, response.as_ref()), (Some(200), came.as_bytes()));
                assert!(!answered.whole, "{events}: a cut answer must not look whole");
            }
            assert_eq!(answered.body, came);
        }
    }
}

#[tokio::test]
async fn f_a_harness_that_hangs_up_in_the_stream_is_drained_and_booked() {
    // Codex does so on purpose, once it has its call.
    for api in apis() {
        let go = Arc::new(Notify::new());
        let mut acts = streamed(&api.events);
        acts.insert(3, Act::Wait(go.clone()));
        let upstream = Upstream::start(vec![acts]).await;
        let mut session = api.before(&upstream).await;
        let mut socket = session.connect().await;
        socket.write_all(&api.paid(&session)).await.unwrap();
        let mut first = [0; 64];
        tokio::time::timeout(PATIENCE, socket.read_exact(&mut first)).await.unwrap().unwrap();
        drop(socket);
        go.notify_one();
        holds(&api, &session.end().await);
    }
}

#[tokio::test]
async fn b90_a_providers_error_passes_through_once_and_only_the_unbilled_ones_are_free() {
    let body = r#"{"error":{"message":"as the provider says it","type":"t","param":null,"code":"c"}}"#;
    for api in apis() {
        for status in [400, 401, 403, 404, 408, 413, 429, 500, 502, 503, 504] {
            let upstream = Upstream::answering(answer(status, &format!("{JSON}retry-after: 7\r\n"), body)).await;
            let mut session = api.before(&upstream).await;
            let answered = session.ask(&api.paid(&session)).await;
            assert_eq!((answered.status, answered.body.as_str(), answered.whole), (status, body, true));
            assert_eq!(header(&answered.head, "retry-after"), Some("7"));
            match session.end().await {
                RequestEnd::Refused { status: told } => assert!(told == status && status < 500 && status != 408),
                RequestEnd::Unknown { status: told, .. } => {
                    assert!(told == Some(status) && (status >= 500 || status == 408));
                }
                other => panic!("{status}: {other:?}"),
            }
            assert_eq!(upstream.seen().len(), 1, "{status}: one request, no retry");
        }
    }
}

#[tokio::test]
async fn b90_an_answer_without_usage_is_unknown() {
    let api = responses();
    let failed = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"id\":\"resp_1\",\"model\":\"gpt-x\",\"status\":\"failed\",\"error\":{\"code\":\"server_error\"},\"usage\":null}}\n\n";
    let upstream = Upstream::start(vec![streamed(&[&api.events[0], failed])]).await;
    let mut session = api.before(&upstream).await;
    assert!(session.ask(&api.paid(&session)).await.whole, "it came to its own end");
    let RequestEnd::Unknown { why, .. } = session.end().await else { panic!() };
    assert!(why.contains("without saying what was used"), "{why}");

    let api = chat();
    let mut events = api.events.clone();
    events.remove(3);
    let upstream = Upstream::start(vec![streamed(&events)]).await;
    let mut session = api.before(&upstream).await;
    assert!(session.ask(&api.paid(&session)).await.whole);
    assert!(matches!(session.end().await, RequestEnd::Unknown { status: Some(200), .. }));
}

#[tokio::test]
async fn a_provider_that_has_said_everything_need_not_end_its_answer() {
    for api in apis() {
        let mut acts = streamed(&api.events);
        acts.pop();
        acts.push(Act::Stall);
        let upstream = Upstream::start(vec![acts]).await;
        let timeouts = Timeouts { idle: Duration::from_secs(3), ..Timeouts::default() };
        let mut session = api.with(&upstream.origin, timeouts, None, None).await;
        let answered = session.ask(&api.paid(&session)).await;
        assert!(answered.whole, "a complete answer ends well");
        holds(&api, &session.end().await);
    }
}

#[tokio::test]
async fn b90_a_compaction_is_booked_for_the_model_it_was_asked_of() {
    let api = responses();
    let body = r#"{"id":"resp_1","object":"response.compaction","output":[],"usage":{"input_tokens":18,"input_tokens_details":{"cached_tokens":8},"output_tokens":20}}"#;
    let upstream = Upstream::answering(answer(200, JSON, body)).await;
    let mut session = api.before(&upstream).await;
    let asked = r#"{"model":"gpt-x","input":[]}"#;
    assert_eq!(session.ask(&api.post(&session, "/v1/responses/compact", asked)).await.status, 200);
    assert!(upstream.seen()[0].ends_with(&format!("\r\n\r\n{asked}")), "nothing is added to it");
    holds(&api, &session.end().await);
}

#[tokio::test]
async fn b89_an_echoed_credential_reaches_neither_the_harness_nor_the_records() {
    for api in apis() {
        let headers = format!("{JSON}x-request-id: req-{CANARY}\r\nset-cookie: k={CANARY}\r\n");
        let error = format!(r#"{{"error":{{"message":"bad key {CANARY}, Bearer {CANARY}","type":"x"}}}}"#);
        let echo = |event: &String| event.replace("hello", &format!("key {CANARY} key"));
        let whole = String::from_utf8(api.whole.clone()).unwrap();
        let whole = whole.split_once("\r\n\r\n").unwrap().1.replace("hello", CANARY);
        let mut split = vec![Act::Send(stream_head())];
        for event in api.events.iter().map(echo) {
            // In two chunks, cut within the credential where it stands.
            let at = event.find(CANARY).map_or(0, |at| at + 7);
            split.extend(
                [&event[..at], &event[at..]]
                    .iter()
                    .filter(|piece| !piece.is_empty())
                    .map(|piece| Act::Send(chunk(piece))),
            );
        }
        split.push(Act::Send(LAST_CHUNK.to_vec()));
        let mut cut = split[..6].to_vec();
        cut.push(Act::Close);
        let redirect = answer(307, &format!("location: http://127.0.0.1:1/{CANARY}\r\n{headers}"), &error);
        let cases = [
            ("an answer", vec![Act::Send(answer(200, &headers, &whole))]),
            ("a stream", split),
            ("a cut stream", cut),
            ("a redirect", vec![Act::Send(redirect)]),
            (
                "a compressed answer",
                vec![Act::Send(answer(200, &format!("content-encoding: gzip\r\n{headers}"), &whole))],
            ),
            ("an error", vec![Act::Send(answer(401, &headers, &error))]),
            ("an overload", vec![Act::Send(answer(503, &headers, &error))]),
        ];
        for (name, acts) in cases {
            let upstream = Upstream::start(vec![acts]).await;
            let mut session = api.before(&upstream).await;
            let answered = session.ask(&api.paid(&session)).await;
            let end = session.end().await;
            if name == "a stream" {
                holds(&api, &end);
                assert!(answered.body.contains(&format!("key {} key", "*".repeat(CANARY.len()))), "{answered:?}");
            }
            let everything = format!("{answered:?} {end:?}");
            assert!(!everything.contains(&CANARY[3..]), "{name}: {everything}");
            assert_eq!(
                header(&upstream.seen()[0], "authorization"),
                Some(format!("Bearer {CANARY}").as_str()),
                "{name}"
            );
        }
    }
}
