//! OpenAI's two APIs on a bare socket: the routes that are served and the many that are not, what is refused with which status and in
//! which shape, and that what the gate was asked about is, byte for byte, what the provider gets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // Tests: a failure is a report.

mod common;
#[path = "common/openai.rs"]
mod openai;

use agentrun_cap::Word;
use agentrun_host::{Refusal, Timeouts};
use common::{CANARY, JSON, Session, Upstream, answer, ask_on, header, is_closed};
use openai::{Api, apis, chat, keyed, responses};
use serde_json::Value;

fn error(body: &str) -> Value {
    let error: Value = serde_json::from_str(body).unwrap();
    assert!(error["error"]["message"].is_string() && error["error"]["type"].is_string(), "{body}");
    error["error"].clone()
}

#[tokio::test]
async fn b82_the_edge_is_the_same_for_every_route() {
    for api in apis() {
        let upstream = Upstream::answering(&api.whole).await;
        let session = api.before(&upstream).await;
        let (path, body) = (api.path, &api.body);
        let n = body.len();
        let host = format!("Host: 127.0.0.1:{}\r\n", session.port);
        let length = format!("Content-Length: {n}\r\n");
        let auth = keyed(&session);
        let with = |extra: &str| format!("POST {path} HTTP/1.1\r\n{host}{auth}{extra}\r\n{body}");
        let cases: Vec<(&str, u16, String)> = vec![
            ("length, then chunked", 400, with(&format!("{length}Transfer-Encoding: chunked\r\n"))),
            ("two equal lengths", 400, with(&format!("{length}{length}"))),
            ("chunked alone", 411, with("Transfer-Encoding: chunked\r\n")),
            ("folded header", 400, with(&format!("x-a: a\r\n b\r\n{length}"))),
            ("bare line feeds", 400, with(&length).replace("\r\n", "\n")),
            ("a foreign host", 421, with(&length).replace(&host, "Host: evil.example\r\n")),
            ("a fragment", 400, with(&length).replace(path, &format!("{path}#x"))),
            ("an absolute target", 400, with(&length).replace(path, &format!("http://evil.example{path}"))),
            ("HTTP/1.0", 505, with(&length).replace("HTTP/1.1", "HTTP/1.0")),
            ("a page's request", 403, with(&format!("Origin: http://evil.example\r\n{length}"))),
            ("a compressed body", 415, with(&format!("Content-Encoding: zstd\r\n{length}"))),
            ("a body over 32 MiB", 413, with("Content-Length: 33554433\r\n")),
        ];
        for (name, status, request) in cases {
            let mut stream = session.connect().await;
            let answered = ask_on(&mut stream, request.as_bytes()).await;
            assert_eq!(answered.status, status, "{path}, {name}: {answered:?}");
            // What hyper itself refuses has no body.
            if !answered.body.is_empty() {
                error(&answered.body);
            }
            assert!(is_closed(&mut stream).await, "{path}, {name}: the connection stays open");
        }
        assert_eq!((*session.gate.asked.borrow(), upstream.seen().len()), (0, 0), "something got through");
    }
}

#[tokio::test]
async fn b83_to_b86_what_is_well_formed_and_not_served_is_refused_in_the_apis_own_shape() {
    for api in apis() {
        let upstream = Upstream::answering(&api.whole).await;
        let session = api.before(&upstream).await;
        let key = session.key.as_str();
        let ok = keyed(&session);
        let post = |target: &str| format!("POST {target} HTTP/1.1");
        let get = |target: &str| format!("GET {target} HTTP/1.1");
        let here = post(api.path);
        let paid = api.body.as_str();
        let deep = format!(r#"{{"model":"m",{}:{}{}}}"#, "\"input\"", "[".repeat(100), "]".repeat(100));
        let limited = |limit: &str| {
            let more = format!(r#""max_output_tokens":{limit},"max_tokens":{limit},"n":{limit},"#);
            format!(r#"{{"model":"m","input":"hi","messages":[],{more}"x":null}}"#)
        };
        let other = if api.path == "/v1/responses" { "/v1/chat/completions" } else { "/v1/responses" };
        let (exponent, below, quoted) = (limited("1e3"), limited("-1"), limited("\"9\""));
        let mut cases: Vec<(String, u16, String, String, &str)> = vec![
            ("no key".into(), 401, here.clone(), JSON.into(), paid),
            ("a wrong key".into(), 401, here.clone(), format!("Authorization: Bearer agentrun-0\r\n{JSON}"), paid),
            ("basic".into(), 401, here.clone(), format!("Authorization: Basic {key}\r\n{JSON}"), paid),
            ("both kinds of key".into(), 401, here.clone(), format!("x-api-key: {key}\r\n{ok}"), paid),
            ("models without a key".into(), 401, get("/v1/models"), String::new(), ""),
            ("a socket without a key".into(), 401, get("/v1/responses"), "Upgrade: websocket\r\n".into(), ""),
            ("a form's content type".into(), 415, here.clone(), ok.replace(JSON, "Content-Type: text/plain\r\n"), paid),
            ("no body".into(), 400, here.clone(), ok.clone(), ""),
            ("an array".into(), 400, here.clone(), ok.clone(), "[]"),
            (
                "a member twice".into(),
                400,
                here.clone(),
                ok.clone(),
                r#"{"model":"m","input":"a","messages":[],"input":"b","messages":[]}"#,
            ),
            (
                "a member twice, once escaped".into(),
                400,
                here.clone(),
                ok.clone(),
                r#"{"model":"m","mo\u0064el":"n","input":"a","messages":[]}"#,
            ),
            (
                "something after the document".into(),
                400,
                here.clone(),
                ok.clone(),
                r#"{"model":"m","input":"a","messages":[]}{}"#,
            ),
            ("a hundred levels".into(), 400, here.clone(), ok.clone(), &deep),
            ("a limit with an exponent".into(), 400, here.clone(), ok.clone(), &exponent),
            ("a limit below zero".into(), 400, here.clone(), ok.clone(), &below),
            ("a limit in quotes".into(), 400, here.clone(), ok.clone(), &quoted),
            ("no model".into(), 400, here.clone(), ok.clone(), r#"{"input":"a","messages":[]}"#),
            ("nothing to answer".into(), 400, here.clone(), ok.clone(), r#"{"model":"m"}"#),
        ];
        for target in [
            other,
            "/v1/messages",
            "/v1/completions",
            "/v1/embeddings",
            "/v1/batches",
            "/v1/files",
            "/v1/images/generations",
            "/v1/audio/speech",
            "/v1/conversations",
            "/v1/assistants",
            "/v1/threads",
            "/v1/responses/resp_1/cancel",
            "/v1/",
            "/v1/chat/completions/chatcmpl-1",
            "//v1/responses",
            "/v1/./responses",
            "/v1/x/../responses",
            "/v1/%72esponses",
            "/V1/responses",
            "/v1/responses/",
            "/v1/chat/completions/",
            "/v1/responses?x=1",
            "/v1/chat/completions?x=1",
            "/v1/responses?",
            "/responses",
            "/chat/completions",
            "/",
        ] {
            cases.push((format!("POST {target}"), 404, post(target), ok.clone(), paid));
        }
        for target in [
            "/v1/responses/resp_1",
            "/v1/responses/resp_1/input_items",
            "/v1/chat/completions",
            "/v1/models/gpt-x",
            "/v1/models?client_version=9",
            "/v1/models?",
            "/v1/files",
            "/v1/organization/usage",
            "/",
        ] {
            cases.push((format!("GET {target}"), 404, get(target), ok.clone(), ""));
        }
        for method in ["DELETE", "PUT", "PATCH", "OPTIONS"] {
            let line = format!("{method} {} HTTP/1.1", api.path);
            cases.push((line.clone(), 404, line, ok.clone(), ""));
        }
        for (name, status, line, headers, sent) in cases {
            let mut stream = session.connect().await;
            let answered = ask_on(&mut stream, &session.raw(&line, &headers, sent.as_bytes())).await;
            assert_eq!(answered.status, status, "{} {name}: {answered:?}", api.path);
            error(&answered.body);
            assert!(!answered.body.contains(&key[9..]), "{name}: the key is shown");
            // The same connection serves the next request: it was read to where the refused one ended.
            let next = ask_on(&mut stream, &Api::probe(&session)).await;
            assert_eq!(next.status, 200, "{name}");
        }
        assert_eq!((*session.gate.asked.borrow(), upstream.seen().len()), (0, 0), "something got through");
    }
}

#[tokio::test]
async fn b85_a_socket_is_answered_426_and_the_connection_goes_on() {
    let api = responses();
    let upstream = Upstream::answering(&api.whole).await;
    let session = api.before(&upstream).await;
    let mut stream = session.connect().await;
    let upgrade =
        format!("{}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n", keyed(&session));
    let answered = ask_on(&mut stream, &session.raw("GET /v1/responses HTTP/1.1", &upgrade, b"")).await;
    assert_eq!(answered.status, 426, "{answered:?}");
    assert!(error(&answered.body)["message"].as_str().unwrap().contains("POST"));
    assert_eq!(ask_on(&mut stream, &api.paid(&session)).await.status, 200);
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn b83_b85_the_routes_a_harness_needs_are_served() {
    let api = responses();
    let upstream = Upstream::answering(&api.whole).await;
    let session = api.before(&upstream).await;
    for target in ["/v1/models", "/v1/models?client_version=0.171.0"] {
        let models = session.ask(&session.raw(&format!("GET {target} HTTP/1.1"), &keyed(&session), b"")).await;
        assert_eq!((models.status, models.body.as_str()), (200, r#"{"object":"list","data":[],"models":[]}"#));
    }
    assert_eq!(upstream.seen().len(), 0, "answered here");
    assert_eq!(session.ask(&api.post(&session, "/v1/responses/input_tokens", &api.body)).await.status, 200);
    assert_eq!((*session.gate.asked.borrow(), upstream.seen().len()), (0, 1), "free: passed on, not admitted");
    assert!(upstream.seen()[0].ends_with(&format!("\r\n\r\n{}", api.body)), "as it came");
    assert_eq!(session.ask(&api.post(&session, "/v1/responses/compact", &api.body)).await.status, 200);
    assert_eq!(*session.gate.asked.borrow(), 1, "a compaction is a paid call");

    let api = chat();
    let upstream = Upstream::answering(&api.whole).await;
    let session = api.before(&upstream).await;
    let bare = session.raw(
        "POST /v1/chat/completions HTTP/1.1",
        &format!("x-api-key: {}\r\n{JSON}", session.key.as_str()),
        api.body.as_bytes(),
    );
    assert_eq!(session.ask(&bare).await.status, 200, "either kind of key");
}

#[tokio::test]
async fn b87_what_the_gate_was_asked_about_is_what_the_provider_gets() {
    for api in apis() {
        let upstream = Upstream::answering(&api.whole).await;
        let session = api.before(&upstream).await;
        assert_eq!(session.ask(&api.paid(&session)).await.status, 200);
        let seen = upstream.seen().remove(0);
        assert!(seen.starts_with(&format!("POST {} HTTP/1.1\r\n", api.path)), "{seen}");
        assert_eq!(seen.split_once("\r\n\r\n").unwrap().1, api.sent);
        assert_eq!(header(&seen, "content-length"), Some(api.sent.len().to_string().as_str()));
        assert_eq!(session.gate.bodies.lock().unwrap().concat(), api.sent.as_bytes());
    }
}

#[tokio::test]
async fn b88_a_refusal_is_told_in_the_apis_shape_with_a_status_that_its_harness_does_not_retry() {
    for api in apis() {
        let upstream = Upstream::answering(&api.whole).await;
        let refusal = Refusal { word: Word::OverCap, message: "the cap has no room; raise it and resume".to_owned() };
        let session = api.with(&upstream.origin, Timeouts::default(), Some(refusal), None).await;
        let answered = session.ask(&api.paid(&session)).await;
        assert_eq!(answered.status, api.refused);
        let said = error(&answered.body)["message"].as_str().unwrap().to_owned();
        assert!(said.contains("over_cap") && said.contains("raise it and resume"), "{said}");
        assert!(header(&answered.head, "retry-after").is_none());
        assert_eq!(upstream.seen().len(), 0);
    }
}

#[tokio::test]
async fn b89_the_credential_is_the_bearer_and_only_listed_headers_pass() {
    for api in apis() {
        let headers = format!(
            "{JSON}x-request-id: req_1\r\nretry-after-ms: 3\r\nx-ratelimit-remaining-tokens: 7\r\nopenai-organization: org\r\nset-cookie: k=v\r\n"
        );
        let upstream = Upstream::answering(answer(200, &headers, "{}")).await;
        let session = api.before(&upstream).await;
        let given = format!(
            "{}accept: text/event-stream\r\naccept-encoding: gzip, br\r\nuser-agent: codex\r\noriginator: o\r\nsession-id: s\r\nthread-id: t\r\n\
             x-client-request-id: c\r\nx-session-id: s\r\nx-session-affinity: s\r\nopenai-organization: org\r\nopenai-project: p\r\nopenai-beta: b\r\n\
             x-codex-turn-metadata: {{}}\r\nchatgpt-account-id: a\r\ncookie: c=1\r\nx-forwarded-host: evil\r\n",
            keyed(&session)
        );
        let line = format!("POST {} HTTP/1.1", api.path);
        let answered = session.ask(&session.raw(&line, &given, api.body.as_bytes())).await;
        let seen = upstream.seen().remove(0);
        let mut names: Vec<String> = seen
            .lines()
            .skip(1)
            .take_while(|line| !line.is_empty())
            .map(|line| line.split(':').next().unwrap().to_lowercase())
            .collect();
        names.sort();
        assert_eq!(
            names,
            [
                "accept",
                "accept-encoding",
                "authorization",
                "content-length",
                "content-type",
                "host",
                "originator",
                "session-id",
                "thread-id",
                "user-agent",
                "x-client-request-id",
                "x-session-affinity",
                "x-session-id"
            ]
        );
        assert_eq!(header(&seen, "authorization"), Some(format!("Bearer {CANARY}").as_str()));
        assert_eq!(header(&seen, "accept-encoding"), Some("identity"));
        assert!(!seen.contains(session.key.as_str()));
        for (name, value) in [("x-request-id", "req_1"), ("retry-after-ms", "3"), ("x-ratelimit-remaining-tokens", "7")]
        {
            assert_eq!(header(&answered.head, name), Some(value));
        }
        assert!(
            header(&answered.head, "openai-organization").is_none() && header(&answered.head, "set-cookie").is_none()
        );
    }
}

#[tokio::test]
async fn b82_a_key_dies_with_its_session() {
    for api in apis() {
        let upstream = Upstream::answering(&api.whole).await;
        let mut session: Session = api.before(&upstream).await;
        let request = api.paid(&session);
        session.guard = None;
        assert_eq!(session.ask(&request).await.status, 401);
        assert_eq!(upstream.seen().len(), 0);
    }
}
