//! OpenAI's two APIs as the tests look at them, so that one test holds for both.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its part of it")]

use std::sync::Arc;

use agentrun_host::{Provider, Refusal, Timeouts};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::common::{JSON, Session, Upstream, answer};

/// One API: a request, its answer, and what it says of itself.
pub struct Api {
    pub provider: Provider,
    pub path: &'static str,
    /// A streamed request, as a harness sends it.
    pub body: String,
    /// What the provider gets of it.
    pub sent: String,
    pub events: Vec<String>,
    /// The same answer in one piece.
    pub whole: Vec<u8>,
    pub id: &'static str,
    /// The status of a refusal.
    pub refused: u16,
}

pub fn apis() -> [Api; 2] {
    [responses(), chat()]
}

pub fn responses() -> Api {
    let usage = json!({"input_tokens": 18, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 38});
    let item = json!({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": "hello"}]});
    let envelope = |status: &str, output: Value, usage: Value| {
        json!({"id": "resp_1", "object": "response", "status": status, "model": "gpt-x", "service_tier": "default",
            "output": output, "usage": usage})
    };
    let event = |kind: &str, mut data: Value| {
        data["type"] = json!(kind);
        format!("event: {kind}\ndata: {data}\n\n")
    };
    let done = envelope("completed", json!([item]), usage);
    let events = vec![
        event("response.created", json!({"response": envelope("in_progress", json!([]), Value::Null)})),
        event("response.output_item.added", json!({"output_index": 0, "item": item})),
        event("response.output_text.delta", json!({"item_id": "msg_1", "delta": "hello"})),
        event("response.output_item.done", json!({"output_index": 0, "item": item})),
        event("response.completed", json!({ "response": done })),
    ];
    let body = r#"{"model":"gpt-x","input":[{"type":"message","role":"user","content":"hi"}],"store":false,"stream":true,"prompt_cache_key":"k"}"#;
    Api {
        provider: Provider::OpenAi,
        path: "/v1/responses",
        body: body.to_owned(),
        sent: format!(r#"{{"service_tier":"default",{}"#, &body[1..]),
        events,
        whole: answer(200, JSON, &done.to_string()),
        id: "resp_1",
        refused: 400,
    }
}

pub fn chat() -> Api {
    let usage = json!({"prompt_tokens": 18, "prompt_tokens_details": {"cached_tokens": 8}, "completion_tokens": 20,
        "completion_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 38});
    let chunk = |choices: Value, usage: &Value| {
        let chunk = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "gpt-x",
            "service_tier": "default", "choices": choices, "usage": usage});
        format!("data: {chunk}\n\n")
    };
    let choice = |delta: Value, finish: Value| json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
    let events = vec![
        chunk(choice(json!({"role": "assistant", "content": ""}), Value::Null), &Value::Null),
        chunk(choice(json!({"content": "hello"}), Value::Null), &Value::Null),
        chunk(choice(json!({}), json!("stop")), &Value::Null),
        chunk(json!([]), &usage),
        "data: [DONE]\n\n".to_owned(),
    ];
    let whole = json!({"id": "chatcmpl-1", "object": "chat.completion", "model": "gpt-x", "service_tier": "default",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}], "usage": usage});
    let body = r#"{"model":"gpt-x","max_tokens":100,"messages":[{"role":"user","content":"hi"}],"stream":true}"#;
    Api {
        provider: Provider::OpenAiChat,
        path: "/v1/chat/completions",
        body: body.to_owned(),
        sent: format!(r#"{{"service_tier":"default","stream_options":{{"include_usage":true}},{}"#, &body[1..]),
        events,
        whole: answer(200, JSON, &whole.to_string()),
        id: "chatcmpl-1",
        refused: 403,
    }
}

impl Api {
    pub async fn before(&self, upstream: &Upstream) -> Session {
        self.with(&upstream.origin, Timeouts::default(), None, None).await
    }

    pub async fn with(
        &self,
        origin: &str,
        timeouts: Timeouts,
        refusal: Option<Refusal>,
        open: Option<Arc<Notify>>,
    ) -> Session {
        Session::of(self.provider, origin, timeouts, refusal, open).await
    }

    /// A paid request as a harness sends it.
    pub fn paid(&self, session: &Session) -> Vec<u8> {
        self.post(session, self.path, &self.body)
    }

    pub fn post(&self, session: &Session, target: &str, body: &str) -> Vec<u8> {
        session.raw(&format!("POST {target} HTTP/1.1"), &keyed(session), body.as_bytes())
    }

    /// A request that a proxy of this API answers itself.
    pub fn probe(session: &Session) -> Vec<u8> {
        session.raw("GET /v1/models HTTP/1.1", &keyed(session), b"")
    }
}

/// The headers of a request with its key.
pub fn keyed(session: &Session) -> String {
    format!("Authorization: Bearer {}\r\n{JSON}", session.key.as_str())
}
