//! A provider that somebody else adds: a policy and a tap of its own, written with what the crate exports, behind the same proxy.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // Tests: a failure is a report.

mod common;

use std::sync::Arc;

use agentrun_cap::{Catalog, Date, RequestFacts, Word, quote};
use agentrun_host::{
    Credential, Document, Metered, Provider, ProviderConfig, ProviderPolicy, Refusal, RequestEnd, Route, RouteKind,
    RouteMethod, Shaped, Steadfast, Tap, Timeouts, Unfit, shape,
};
use agentrun_kernel::Usage;
use bytes::Bytes;
use common::{Act, CANARY, JSON, LAST_CHUNK, Session, Upstream, answer, chunk, header};
use http::{HeaderMap, HeaderName, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

/// `POST /generate` with `{"model", "limit", "text"}`; the answer is lines, the last of which says what was used.
struct Lines;

const ROUTES: &[Route] = &[
    Route { method: RouteMethod::Post, path: "/generate", query: None, kind: RouteKind::Paid },
    Route { method: RouteMethod::Get, path: "/health", query: None, kind: RouteKind::Answered(r#"{"ok":true}"#) },
];

impl ProviderPolicy for Lines {
    fn name(&self) -> &'static str {
        "lines"
    }
    fn routes(&self) -> &'static [Route] {
        ROUTES
    }
    fn shape(&self, _: &Route, request: &mut Document<'_>) -> Result<Shaped, Unfit> {
        let asked: serde_json::Map<String, Value> = request.whole()?;
        let body = request.body().clone();
        let missing = || Unfit::unpriced("a member is missing");
        let known = ["model", "limit", "text"];
        let facts = RequestFacts {
            model: asked.get("model").and_then(Value::as_str).ok_or_else(missing)?.to_owned(),
            max_output: Some(asked.get("limit").and_then(Value::as_u64).ok_or_else(missing)?),
            choices: 1,
            body_bytes: body.len() as u64,
            escapes: asked.keys().filter(|name| !known.contains(&name.as_str())).cloned().collect(),
            ..RequestFacts::default()
        };
        Ok(Shaped { body, facts })
    }
    fn refused(&self) -> StatusCode {
        StatusCode::UNPROCESSABLE_ENTITY
    }
    fn error_body(&self, status: StatusCode, message: &str) -> Bytes {
        Bytes::from(json!({"failed": {"with": status.as_u16(), "why": message}}).to_string())
    }
    fn authorize(&self, headers: &mut HeaderMap, credential: &Credential) {
        credential.put(headers, HeaderName::from_static("x-lines-key"), "Key ");
    }
    fn request_headers(&self) -> &'static [&'static str] {
        &["content-type", "x-trace"]
    }
    fn response_headers(&self) -> &'static [&'static str] {
        &["content-type", "x-trace"]
    }
    fn tap(&self, _: &Route, model: &str, _: &str) -> Box<dyn Tap> {
        Box::new(LastLine { model: model.to_owned(), line: Vec::new(), used: None, broken: false })
    }
}

#[derive(Deserialize)]
struct Used {
    r#in: u64,
    out: u64,
}

struct LastLine {
    model: String,
    line: Vec<u8>,
    used: Option<Used>,
    broken: bool,
}

impl Tap for LastLine {
    fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte != b'\n' {
                // A line is short in this API; a longer one is none of it.
                self.broken |= self.line.len() >= 1_000;
                self.line.push(*byte);
                self.line.truncate(1_000);
                continue;
            }
            self.broken |= self.used.is_some();
            if let Some(used) = self.line.strip_prefix(b"used ") {
                self.used = serde_json::from_slice(used).ok();
                self.broken |= self.used.is_none();
            }
            self.line.clear();
        }
    }
    fn is_whole(&self) -> bool {
        self.used.is_some()
    }
    fn finish(self: Box<Self>) -> Option<Metered> {
        let used = self.used.filter(|_| !self.broken && self.line.is_empty())?;
        Some(Metered {
            model: self.model,
            id: None,
            usage: Usage { input: used.r#in, output: used.out, ..Usage::default() },
        })
    }
}

async fn session(upstream: &Upstream, refusal: Option<Refusal>) -> Session {
    // The nearest of the names that records and keys know; what is spoken is the policy's alone.
    let provider = ProviderConfig {
        api: Provider::OpenAiChat,
        policy: Arc::new(Lines),
        origin: upstream.origin.parse().unwrap(),
        credential: Credential::from_text(CANARY.to_owned()).unwrap(),
        timeouts: Timeouts::default(),
    };
    Session::speaking(provider, Steadfast::default(), refusal, None).await
}

fn asked(session: &Session, target: &str, body: &str) -> Vec<u8> {
    let headers =
        format!("x-api-key: {}\r\nx-trace: t1\r\nx-lines-key: mine\r\ncookie: c\r\n{JSON}", session.key.as_str());
    session.raw(&format!("POST {target} HTTP/1.1"), &headers, body.as_bytes())
}

const BODY: &str = r#"{"model":"claude-sonnet-4-5","limit":100,"text":"hi"}"#;

fn lines(pieces: &[&str]) -> Vec<Act> {
    let head =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nx-trace: t1\r\nx-org: o\r\ntransfer-encoding: chunked\r\n\r\n";
    let pieces = pieces.iter().map(|piece| Act::Send(chunk(piece)));
    std::iter::once(Act::Send(head.to_vec())).chain(pieces).chain([Act::Send(LAST_CHUNK.to_vec())]).collect()
}

#[tokio::test]
async fn b90_a_provider_of_somebody_else_is_admitted_sent_and_metered_as_ours_are() {
    let said = ["hello ", CANARY, "\nus", "ed {\"in\":10,\"out\":20}\n"];
    let upstream = Upstream::start(vec![lines(&said)]).await;
    let mut session = session(&upstream, None).await;
    let answered = session.ask(&asked(&session, "/generate", BODY)).await;
    assert!(answered.whole && answered.status == 200, "{answered:?}");
    assert_eq!(answered.body, format!("hello {}\nused {{\"in\":10,\"out\":20}}\n", "*".repeat(CANARY.len())));
    assert_eq!((header(&answered.head, "x-trace"), header(&answered.head, "x-org")), (Some("t1"), None));
    let RequestEnd::Complete { model, usage, .. } = session.end().await else { panic!() };
    assert_eq!((model.as_str(), usage), ("claude-sonnet-4-5", Usage { input: 10, output: 20, ..Usage::default() }));

    let seen = upstream.seen().remove(0);
    assert!(seen.starts_with("POST /generate HTTP/1.1\r\n") && seen.ends_with(BODY), "{seen}");
    assert_eq!(header(&seen, "x-lines-key"), Some(format!("Key {CANARY}").as_str()));
    assert!(header(&seen, "cookie").is_none() && !seen.contains(session.key.as_str()));
}

#[tokio::test]
async fn b90_a_cut_answer_of_somebody_elses_provider_is_unknown() {
    for said in [
        &["hello\n"][..],
        &["used {\"in\":10,\"out\":20}"],
        &["used {\"in\":1}\n"],
        &["used {\"in\":1,\"out\":2}\nmore\n"],
    ] {
        let upstream = Upstream::start(vec![lines(said)]).await;
        let mut session = session(&upstream, None).await;
        session.ask(&asked(&session, "/generate", BODY)).await;
        assert!(matches!(session.end().await, RequestEnd::Unknown { status: Some(200), .. }), "{said:?}");
    }
}

#[tokio::test]
async fn b83_b87_the_rules_of_the_proxy_hold_for_it_in_its_own_words() {
    let upstream = Upstream::answering(answer(200, JSON, "{}")).await;
    let refusal = Refusal { word: Word::OverCap, message: "no room".to_owned() };
    let session = session(&upstream, Some(refusal)).await;
    for (target, body, status) in [
        ("/generate", BODY, 422),
        ("/generate", r#"{"model":"m","model":"n","limit":1}"#, 400),
        ("/generate", r#"{"model":"m"}"#, 400),
        ("/generate?x", BODY, 404),
        ("/v1/messages", BODY, 404),
    ] {
        let answered = session.ask(&asked(&session, target, body)).await;
        assert_eq!(answered.status, status, "{target} {body}");
        let told: Value = serde_json::from_str(&answered.body).unwrap();
        assert_eq!(told["failed"]["with"], status, "{told}");
    }
    assert_eq!(upstream.seen().len(), 0);

    // What it does not know is named, and no quote takes it.
    let body = Bytes::from(r#"{"model":"claude-sonnet-4-5","limit":1,"batch":true}"#);
    let facts = shape(&Lines, &ROUTES[0], &body).unwrap().facts;
    let refused = quote(&Catalog::bundled().unwrap(), &facts, "2026-11-30".parse::<Date>().unwrap()).unwrap_err();
    assert!(refused.to_string().contains("`batch`"), "{refused}");
}
