//! What went wrong in other gateways between a provider's answer and the bill, each as a test named after it. crates/cap/tests/regressions.rs
//! lists all such reports and where each is held.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // a failed test is a report

mod common;
#[path = "common/openai.rs"]
mod openai;

use agentrun_cap::{Catalog, price};
use agentrun_host::{Metered, Provider, Route, RouteKind};
use common::{Session, Upstream};
use serde_json::{Value, json};

fn route(provider: Provider, ends: &str) -> Route {
    *provider
        .policy()
        .routes()
        .iter()
        .find(|route| route.kind == RouteKind::Paid && route.path.ends_with(ends))
        .unwrap()
}

fn cost(metered: &Metered) -> String {
    let day = "2026-11-01".parse().unwrap();
    price(&Catalog::bundled().unwrap(), &metered.model, &metered.usage, day).unwrap().amount.to_string()
}

fn read(provider: Provider, path: &str, content_type: &str, answer: &str) -> Option<Metered> {
    let mut tap = provider.policy().tap(&route(provider, path), "gpt-5", content_type);
    tap.feed(answer.as_bytes());
    tap.finish()
}

fn whole(provider: Provider, path: &str, answer: &Value) -> Metered {
    read(provider, path, "application/json", &answer.to_string()).unwrap()
}

fn events(events: &[Value]) -> String {
    let event = |data: &Value| match data["type"].as_str() {
        Some(kind) => format!("event: {kind}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    };
    events.iter().map(event).collect()
}

/// A Messages stream whose start and end say this.
fn messages(model: &str, at_start: &Value, at_end: &[Value]) -> String {
    let start = json!({"type": "message_start", "message": {"id": "m", "model": model, "usage": at_start}});
    let deltas = at_end.iter().map(|usage| json!({"type": "message_delta", "delta": {}, "usage": usage}));
    let stop = json!({"type": "message_stop"});
    events(&std::iter::once(start).chain(deltas).chain([stop]).collect::<Vec<_>>())
}

fn streamed(model: &str, at_start: &Value, at_end: &[Value]) -> Metered {
    read(Provider::Anthropic, "/v1/messages", "text/event-stream", &messages(model, at_start, at_end)).unwrap()
}

#[test]
fn report_07_a_streamed_answer_was_booked_at_nothing_while_the_same_in_one_piece_was_billed() {
    let usage = json!({"input_tokens": 1000, "cache_read_input_tokens": 300, "cache_creation_input_tokens": 200, "output_tokens": 500});
    let model = "claude-sonnet-4-5-20250929";
    let message = json!({"id": "m", "type": "message", "model": model, "content": [], "usage": usage});
    let in_one_piece = whole(Provider::Anthropic, "/v1/messages", &message);
    let at_start = json!({"input_tokens": 1000, "cache_read_input_tokens": 300, "cache_creation_input_tokens": 200, "output_tokens": 1});
    let as_stream = streamed(model, &at_start, &[json!({"output_tokens": 500})]);
    assert_eq!(as_stream.usage, in_one_piece.usage);
    assert_eq!((cost(&as_stream), cost(&in_one_piece)), ("0.01134".into(), "0.01134".into()));
}

#[test]
fn report_09_a_partial_stream_was_priced_at_the_model_asked_for_and_not_at_the_one_that_answered() {
    let used = streamed(
        "claude-opus-5-5",
        &json!({"input_tokens": 5000, "output_tokens": 1}),
        &[json!({"output_tokens": 1000})],
    );
    assert_eq!((used.model.as_str(), cost(&used).as_str()), ("claude-opus-5-5", "0.04"));
    // Cut before its end it says nothing at all, so that its hold is booked.
    let text = messages(
        "claude-opus-5-5",
        &json!({"input_tokens": 5000, "output_tokens": 1}),
        &[json!({"output_tokens": 1000})],
    );
    let cut = &text[..text.find("event: message_stop").unwrap()];
    assert_eq!(read(Provider::Anthropic, "/v1/messages", "text/event-stream", cut), None);
}

#[test]
fn report_11_cache_reads_were_priced_as_fresh_input_when_streamed() {
    let used = streamed(
        "claude-sonnet-4-5-20250929",
        &json!({"input_tokens": 1000, "cache_read_input_tokens": 30_000, "cache_creation_input_tokens": 2000,
            "cache_creation": {"ephemeral_5m_input_tokens": 1500, "ephemeral_1h_input_tokens": 500}, "output_tokens": 1}),
        &[json!({"output_tokens": 500})],
    );
    assert_eq!((used.usage.input, used.usage.cache_read), (1000, 30_000));
    assert_eq!(cost(&used), "0.028125");
    // OpenAI's input contains what was cached.
    let chat = events(&[
        json!({"id": "c", "model": "gpt-5", "service_tier": "default", "choices": [], "usage": {"prompt_tokens": 10_000,
            "prompt_tokens_details": {"cached_tokens": 8000}, "completion_tokens": 2000, "total_tokens": 12_000}}),
    ]) + "data: [DONE]\n\n";
    let used = read(Provider::OpenAiChat, "/v1/chat/completions", "text/event-stream", &chat).unwrap();
    assert_eq!(cost(&used), "0.0235");
}

#[test]
fn report_12_cache_writes_that_the_last_event_did_not_split_by_lifetime_were_free() {
    // With a server tool the totals of the end exceed those of the start and come without the split.
    let used = streamed(
        "claude-sonnet-4-5",
        &json!({"input_tokens": 0, "cache_creation_input_tokens": 1000,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 1000}, "output_tokens": 1}),
        &[
            json!({"cache_creation_input_tokens": 1500, "output_tokens": 50}),
            json!({"cache_creation_input_tokens": 2000, "output_tokens": 100}),
        ],
    );
    assert_eq!(used.usage.cache_write_5m + used.usage.cache_write_1h, 2000);
    assert_eq!((cost(&used).as_str(), used.usage.output), ("0.01125", 100), "cumulative, never added up");
}

#[test]
fn report_13_a_compaction_inside_a_request_was_not_counted() {
    let iterations = json!([{"type": "compaction", "input_tokens": 180_000, "output_tokens": 3500},
        {"type": "message", "input_tokens": 23_000, "output_tokens": 1000}]);
    let usage = json!({"input_tokens": 23_000, "output_tokens": 1000, "cache_creation_input_tokens": 2300,
        "server_tool_use": {"web_search_requests": 2}, "iterations": iterations});
    let message = json!({"id": "m", "type": "message", "model": "claude-sonnet-4-5", "content": [], "usage": usage});
    assert_eq!(cost(&whole(Provider::Anthropic, "/v1/messages", &message)), "0.705125");
}

#[test]
fn report_13_a_call_of_the_compact_route_was_free() {
    let answer = json!({"id": "r", "object": "response.compaction", "output": [],
        "usage": {"input_tokens": 2000, "output_tokens": 2000, "total_tokens": 4000}});
    assert_eq!(cost(&whole(Provider::OpenAi, "/compact", &answer)), "0.0225");
}

#[tokio::test]
async fn report_14_a_route_passed_through_without_asking_the_budget() {
    let upstream = Upstream::answering(common::message()).await;
    let session = Session::before(&upstream).await;
    for target in [
        "/v1/messages/batches",
        "/v1/complete",
        "/v1/files",
        "/anthropic/v1/messages",
        "/v1/messages?beta=false",
        "/v1/messages/",
        "/v1//messages",
        "/V1/messages",
        "/v1/chat/completions",
        "/v1/responses",
    ] {
        let answered = session.ask(&session.post(target, common::BODY)).await;
        assert_eq!(answered.status, 404, "{target}");
    }
    assert!(upstream.seen().is_empty(), "nothing was forwarded");
    assert_eq!(*session.gate.asked.borrow(), 0, "and there was nothing to ask");
}

#[tokio::test]
async fn report_10_one_request_of_the_responses_api_was_booked_twice() {
    for api in openai::apis() {
        let upstream = Upstream::start(vec![common::streamed(&api.events)]).await;
        let mut session = api.before(&upstream).await;
        let answered = session.ask(&api.paid(&session)).await;
        assert!(answered.whole);
        session.end().await;
        assert_eq!(*session.gate.asked.borrow(), 1, "{}", api.path);
        assert!(session.ends.try_recv().is_err(), "{}: one end of one request", api.path);
    }
}
