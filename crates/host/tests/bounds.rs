//! A quote of what a harness sends is never below what the provider then bills: for bodies as dense in tokens as a body can be
//! (testing/oracles/bodies.py made and counted them), for images, for every response these tests record, through all three APIs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // a failed test is a report

mod common;
#[path = "common/openai.rs"]
mod openai;

use agentrun_cap::{Catalog, Date, Denied, IMAGE_TOKENS, OVERHEAD_TOKENS, Quote, Word, price, quote};
use agentrun_host::{Metered, Provider, Route, RouteKind, Shaped, shape};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

const BODIES: &str = include_str!("../../../testing/oracles/bodies.jsonl");

/// The most tokens that any published rule makes of one image: 10,000 patches, each counted 1.62 times.
const TOKENS_OF_AN_IMAGE: u64 = 16_200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dense {
    api: String,
    kind: String,
    images: u64,
    tokens: u64,
    body: String,
}

fn day() -> Date {
    "2026-11-30".parse().unwrap()
}

fn paid(provider: Provider) -> Route {
    *provider.policy().routes().iter().find(|route| route.kind == RouteKind::Paid).unwrap()
}

fn shaped(provider: Provider, body: &str) -> Shaped {
    shape(&*provider.policy(), &paid(provider), &Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

fn quoted(provider: Provider, body: &str) -> Quote {
    quote(&Catalog::bundled().unwrap(), &shaped(provider, body).facts, day()).unwrap()
}

fn refused(provider: Provider, body: &str) -> Denied {
    quote(&Catalog::bundled().unwrap(), &shaped(provider, body).facts, day()).unwrap_err().into()
}

fn metered(provider: Provider, content_type: &str, parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Metered {
    let mut tap = provider.policy().tap(&paid(provider), "a-model", content_type);
    for part in parts {
        tap.feed(part.as_ref());
    }
    tap.finish().unwrap()
}

/// The answer of a provider that counted so many tokens of input, all of the dearest kind that the request allows, and gave all the
/// output it may.
fn answered(provider: Provider, model: &str, input: u64, output: u64, cached: bool) -> Value {
    match provider {
        Provider::Anthropic if cached => json!({"id": "m", "type": "message", "model": model, "content": [], "usage": {
            "input_tokens": 0, "cache_creation_input_tokens": input, "output_tokens": output,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": input}}}),
        Provider::Anthropic => json!({"id": "m", "type": "message", "model": model, "content": [], "usage": {
            "input_tokens": input, "output_tokens": output}}),
        Provider::OpenAi => json!({"id": "r", "object": "response", "status": "completed", "model": model,
            "service_tier": "default", "output": [], "usage": {"input_tokens": input, "output_tokens": output,
            "total_tokens": input + output}}),
        Provider::OpenAiChat => {
            json!({"id": "c", "object": "chat.completion", "model": model, "service_tier": "default",
            "choices": [], "usage": {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output}})
        }
    }
}

#[test]
fn b76_a_quote_is_never_below_what_the_densest_bodies_cost_through_all_three_apis() {
    let catalog = Catalog::bundled().unwrap();
    let mut kinds = Vec::new();
    for line in BODIES.lines() {
        let Dense { api, kind, images, tokens, body } = serde_json::from_str(line).unwrap();
        let provider: Provider = api.parse().unwrap();
        let bound = quoted(provider, &body);
        // Bytes alone hold the text; what the provider adds and what an image comes to are extra.
        let by_bytes = bound.input - OVERHEAD_TOKENS - images * IMAGE_TOKENS;
        assert!(tokens <= by_bytes, "{api}, {kind}: {tokens} tokens in a bound of {by_bytes}");

        let input = tokens + images * TOKENS_OF_AN_IMAGE + 2_000;
        let answer = answered(provider, &bound.model, input, 100, false);
        let used = metered(provider, "application/json", [answer.to_string()]);
        let cost = price(&catalog, &used.model, &used.usage, day()).unwrap().amount;
        assert!(cost <= bound.amount, "{api}, {kind}: {cost} above {}", bound.amount);
        kinds.push(format!(
            "{api:<17} {kind:<30} {:>6} bytes {tokens:>6} tokens  cost {cost:>11}  held {}",
            body.len(),
            bound.amount
        ));
    }
    println!("{}", kinds.join("\n"));
    assert_eq!(kinds.len(), 36, "each kind for each API");
}

#[test]
fn b76_a_body_that_asks_for_the_cache_is_held_as_if_all_of_it_were_written_for_the_longest() {
    let catalog = Catalog::bundled().unwrap();
    let body =
        json!({"model": "claude-sonnet-4-5", "max_tokens": 50, "cache_control": {"type": "ephemeral", "ttl": "1h"},
        "messages": [{"role": "user", "content": "x".repeat(20_000)}]})
        .to_string();
    let bound = quoted(Provider::Anthropic, &body);
    let answer = answered(Provider::Anthropic, "claude-sonnet-4-5", 20_000, 50, true);
    let used = metered(Provider::Anthropic, "application/json", [answer.to_string()]);
    assert_eq!((used.usage.cache_write_1h, used.usage.input), (20_000, 0));
    assert!(price(&catalog, &used.model, &used.usage, day()).unwrap().amount <= bound.amount);
}

#[test]
fn b76_every_response_these_tests_record_costs_no_more_than_the_quote_of_its_request() {
    let catalog = Catalog::bundled().unwrap();
    // The records name models that do not exist, so that no test depends on a price.
    let real = |text: &str| text.replace("claude-x", "claude-sonnet-4-5").replace("gpt-x", "gpt-5");
    let body_of = |whole: &[u8]| {
        let text = String::from_utf8(whole.to_vec()).unwrap();
        real(text.split_once("\r\n\r\n").unwrap().1)
    };
    let mut recorded = vec![(
        Provider::Anthropic,
        real(common::BODY),
        common::EVENTS.iter().map(|event| real(event)).collect::<Vec<_>>(),
        body_of(&common::message()),
    )];
    for api in openai::apis() {
        let events = api.events.iter().map(|event| real(event)).collect();
        recorded.push((api.provider, real(&api.body), events, body_of(&api.whole)));
    }
    for (provider, body, events, whole) in recorded {
        let bound = quoted(provider, &body);
        let streamed = metered(provider, "text/event-stream", &events);
        let whole = metered(provider, "application/json", [whole]);
        let cost = |used: &Metered| price(&catalog, &used.model, &used.usage, day()).unwrap().amount;
        assert_eq!(cost(&streamed), cost(&whole), "{provider}");
        assert!(cost(&whole) <= bound.amount && cost(&whole).pico() > 0, "{provider}");
    }
}

#[test]
fn b76_claude_codes_context_management_is_bounded_by_the_context_window_and_not_refused() {
    let body = |edit: &str| {
        format!(
            r#"{{"model":"claude-sonnet-4-5","max_tokens":1000,"context_management":{{"edits":[{{"type":"{edit}"}}]}},"messages":[]}}"#
        )
    };
    // What it always sends only clears; the body is the bound, and the window is at most.
    let clears = quoted(Provider::Anthropic, &body("clear_thinking_20251015"));
    assert!(clears.input < 200_000);
    let padded = body("clear_thinking_20251015")
        .replace("[]}", &format!("[{{\"role\":\"user\",\"content\":\"{}\"}}]}}", "a".repeat(300_000)));
    assert_eq!(quoted(Provider::Anthropic, &padded).input, 200_000);
    // An edit that nobody here knows may bring text back.
    assert_eq!(quoted(Provider::Anthropic, &body("restore_20270101")).input, 200_000);
    // A compaction is one more call with the whole window.
    let once = quoted(Provider::Anthropic, &body("restore_20270101")).amount;
    assert!(quoted(Provider::Anthropic, &body("compact_20260112")).amount.pico() >= 2 * once.pico());
}

#[test]
fn b76_what_can_spend_beyond_what_its_response_shows_is_refused_by_its_name_through_all_three_apis() {
    let asks = |provider: Provider| match provider {
        Provider::Anthropic => json!({"model": "claude-sonnet-4-5", "max_tokens": 10, "messages": []}),
        Provider::OpenAi => json!({"model": "gpt-5", "max_output_tokens": 10, "input": "hi"}),
        Provider::OpenAiChat => json!({"model": "gpt-5", "max_tokens": 10, "messages": []}),
    };
    for (provider, member, value) in [
        (Provider::Anthropic, "container", json!("c")),
        (Provider::Anthropic, "mcp_servers", json!([])),
        (Provider::Anthropic, "fallbacks", json!([])),
        (Provider::Anthropic, "billing_policy", json!({})),
        (Provider::Anthropic, "fallback_credit_token", json!("t")),
        (Provider::Anthropic, "thread", json!("continue")),
        (Provider::OpenAi, "background", json!(true)),
        (Provider::OpenAi, "background_options", json!({})),
        (Provider::OpenAi, "store", json!(true)),
        (Provider::OpenAi, "previous_response_id", json!("r")),
        (Provider::OpenAi, "conversation", json!("c")),
        (Provider::OpenAi, "prompt", json!({"id": "p"})),
        (Provider::OpenAi, "prompt_cache_retention", json!("24h")),
        (Provider::OpenAiChat, "store", json!(true)),
        (Provider::OpenAiChat, "prediction", json!({"type": "content"})),
        (Provider::OpenAiChat, "modalities", json!(["text", "audio"])),
        (Provider::OpenAiChat, "audio", json!({})),
        (Provider::OpenAiChat, "web_search_options", json!({})),
        (Provider::OpenAiChat, "n", json!(2)),
        (Provider::Anthropic, "something_of_tomorrow", json!(1)),
        (Provider::OpenAi, "something_of_tomorrow", json!(1)),
        (Provider::OpenAiChat, "something_of_tomorrow", json!(1)),
    ] {
        let mut body = asks(provider);
        assert!(quote(&Catalog::bundled().unwrap(), &shaped(provider, &body.to_string()).facts, day()).is_ok());
        body[member] = value;
        let denied = refused(provider, &body.to_string());
        assert_eq!(denied.word, Word::Unbounded, "{provider} {member}: {denied}");
        assert!(denied.to_string().contains(&format!("`{member}`")), "{provider} {member}: {denied}");
    }
}
