//! OpenAI's two APIs. What they share is here: error shape, credential, headers, the service tier that is pinned.

mod additions;
mod chat;
mod responses;

pub use chat::OpenAiChat;
pub use responses::OpenAiResponses;

use agentrun_cap::RequestFacts;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};

use super::Shaped;
use crate::credential::Credential;
use crate::json::{Kind, Raw, Unfit, Value};
use additions::Additions;

/// Codex asks with the version it has; the one that is measured. What it looks for is `models`, all others look for `data`.
const MODELS: &str = r#"{"object":"list","data":[],"models":[]}"#;

/// Headers that go out, for both APIs. What says who pays (`openai-organization`, `openai-project`) and what describes the machine
/// (`x-codex-turn-metadata`) stays here.
const REQUEST_HEADERS: &[&str] = &[
    "content-type",
    "accept",
    "user-agent",
    "originator",
    "session-id",
    "thread-id",
    "x-client-request-id",
    "x-session-id",
    "x-session-affinity",
];

const RESPONSE_HEADERS: &[&str] = &[
    "content-type",
    "x-request-id",
    "retry-after",
    "retry-after-ms",
    "x-ratelimit-limit-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
];

fn error_body(status: StatusCode, message: &str) -> Bytes {
    let (kind, code) = match status.as_u16() {
        401 => ("invalid_request_error", Some("invalid_api_key")),
        403 => ("permission_error", None),
        429 => ("requests", Some("rate_limit_exceeded")),
        500.. => ("server_error", None),
        _ => ("invalid_request_error", None),
    };
    let error = serde_json::json!({"message": message, "type": kind, "param": null, "code": code});
    Bytes::from(serde_json::json!({ "error": error }).to_string())
}

fn authorize(headers: &mut HeaderMap, credential: &Credential) {
    credential.put(headers, header::AUTHORIZATION, "Bearer ");
}

/// The tier of a request that names none. Without it the provider takes the project's own setting, which nobody here knows, and the hold
/// would have to be for the dearest.
const TIER: &str = "\"default\"";

/// A member that says something.
fn named<'r, 'b>(given: Option<&'r Raw<'b>>) -> Option<&'r Raw<'b>> {
    given.filter(|given| given.text != "null")
}

/// Pins the service tier, unless the request names one.
fn pin_tier(facts: &mut RequestFacts, additions: &mut Additions<'_>, given: Option<&Raw<'_>>) -> Result<(), Unfit> {
    let tier = match named(given) {
        Some(tier) => tier.text,
        None => {
            additions.set("service_tier", given, TIER);
            TIER
        }
    };
    let tier = serde_json::from_str(tier).map_err(|error| Unfit::unpriced(format!("service_tier: {error}")))?;
    facts.service_tier = Some(tier);
    Ok(())
}

/// The body with the additions, and its facts.
fn shaped(additions: Additions<'_>, mut facts: RequestFacts) -> Shaped {
    let body = additions.made();
    facts.body_bytes = body.len() as u64;
    Shaped { body, facts }
}

/// Whether an image is in the body: its URL, or the `url` of an object in the URL's place, holds the data itself.
fn in_body(value: Value<'_, '_>) -> Result<bool, Unfit> {
    let is_data = |url: Value<'_, '_>| Ok(url.text()?.is_some_and(|url| url.starts_with("data:")));
    if value.kind() != Kind::Object {
        return is_data(value);
    }
    let mut is_in_body = false;
    value.members(|name, value| {
        if name == "url" {
            is_in_body = is_data(value)?;
        }
        Ok(())
    })?;
    Ok(is_in_body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{self, ProviderPolicy, Route, RouteMethod, route};
    use agentrun_cap::{Catalog, Date, quote};
    use http::Method;

    fn shape(policy: &dyn ProviderPolicy, path: &str, body: &str) -> Shaped {
        let route = route(policy, &Method::POST, path, None).unwrap();
        let shaped = policy::shape(policy, &route, &Bytes::copy_from_slice(body.as_bytes())).unwrap();
        assert_eq!(shaped.facts.body_bytes, shaped.body.len() as u64, "what is priced is what is sent");
        shaped
    }

    fn sent(policy: &dyn ProviderPolicy, path: &str, body: &str) -> String {
        String::from_utf8(shape(policy, path, body).body.to_vec()).unwrap()
    }

    #[test]
    fn b87_what_a_responses_request_leaves_open_is_pinned_and_all_else_is_sent_as_it_came() {
        for (body, made) in [
            (r#"{"model":"m","input":"hi"}"#, r#"{"service_tier":"default","store":false,"model":"m","input":"hi"}"#),
            (
                r#"{ "model":"m","service_tier":null, "store" : null ,"temperature":1.0e0,"input":"\u00e9"}"#,
                r#"{ "model":"m","service_tier":"default", "store" : false ,"temperature":1.0e0,"input":"\u00e9"}"#,
            ),
            (
                r#"{"model":"m","input":"hi","service_tier":"flex","store":false}"#,
                r#"{"model":"m","input":"hi","service_tier":"flex","store":false}"#,
            ),
            (
                r#"{"model":"m","input":"hi","service_tier":"auto","store":false}"#,
                r#"{"model":"m","input":"hi","service_tier":"auto","store":false}"#,
            ),
        ] {
            assert_eq!(sent(&OpenAiResponses, "/v1/responses", body), made);
        }
        let compact = r#"{"model":"m","input":"hi"}"#;
        assert_eq!(sent(&OpenAiResponses, "/v1/responses/compact", compact), compact, "it knows neither member");
    }

    #[test]
    fn b87_a_chat_stream_is_asked_for_its_usage() {
        let pinned = r#""service_tier":"default","#;
        for (body, made) in [
            (
                r#"{"model":"m","messages":[],"stream":true}"#,
                format!(
                    r#"{{{pinned}"stream_options":{{"include_usage":true}},"model":"m","messages":[],"stream":true}}"#
                ),
            ),
            (
                r#"{"stream_options":null,"model":"m","messages":[],"stream":true}"#,
                format!(
                    r#"{{{pinned}"stream_options":{{"include_usage":true}},"model":"m","messages":[],"stream":true}}"#
                ),
            ),
            (
                r#"{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":false,"include_obfuscation":false}}"#,
                format!(
                    r#"{{{pinned}"model":"m","messages":[],"stream":true,"stream_options":{{"include_obfuscation":false,"include_usage":true}}}}"#
                ),
            ),
            (
                r#"{"model":"m","messages":[],"stream":true,"stream_options":{ "include_usage" : true }}"#,
                format!(
                    r#"{{{pinned}"model":"m","messages":[],"stream":true,"stream_options":{{ "include_usage" : true }}}}"#
                ),
            ),
            (
                r#"{"model":"m","messages":[],"stream":false}"#,
                format!(r#"{{{pinned}"model":"m","messages":[],"stream":false}}"#),
            ),
        ] {
            assert_eq!(sent(&OpenAiChat, "/v1/chat/completions", body), made);
        }
        for wrong in [r#""stream_options":[]"#, r#""stream_options":"all""#] {
            let body = format!(r#"{{"model":"m","messages":[],"stream":true,{wrong}}}"#);
            let route = Route { method: RouteMethod::Post, ..OpenAiChat.routes()[0] };
            assert!(policy::shape(&OpenAiChat, &route, &Bytes::from(body)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn b76_a_pinned_tier_is_held_for_at_its_own_price_and_an_open_one_at_the_dearest() {
        let catalog = Catalog::bundled().unwrap();
        let at: Date = "2026-11-01".parse().unwrap();
        let held = |tier: &str| {
            let body = format!(r#"{{"model":"gpt-5","input":"hi","max_output_tokens":1000{tier}}}"#);
            quote(&catalog, &shape(&OpenAiResponses, "/v1/responses", &body).facts, at).unwrap().amount
        };
        assert_eq!(held(""), held(r#","service_tier":"default""#));
        assert!(held(r#","service_tier":"auto""#) > held(""));
        // Blanks make up for the shorter word: each byte of a body is held for.
        assert_eq!(held(r#","service_tier":"flex"   "#), held(""), "it may be served as the standard tier");
        // Without a limit of its own a request is held for at the model's maximum.
        let body = r#"{"model":"gpt-5","messages":[],"n":1}"#;
        let quoted = quote(&catalog, &shape(&OpenAiChat, "/v1/chat/completions", body).facts, at).unwrap();
        assert_eq!(quoted.output, 128_000);
    }

    #[test]
    fn b76_what_cannot_be_bounded_is_refused_by_its_name() {
        let catalog = Catalog::bundled().unwrap();
        for (policy, path, body, named) in [
            (
                &OpenAiChat as &dyn ProviderPolicy,
                "/v1/chat/completions",
                r#"{"model":"gpt-5","messages":[],"n":2}"#,
                "`n`",
            ),
            (&OpenAiResponses, "/v1/responses", r#"{"model":"gpt-5","input":"hi","background":true}"#, "`background`"),
            (
                &OpenAiResponses,
                "/v1/responses",
                r#"{"model":"gpt-5","input":"hi","tools":[{"type":"web_search"}]}"#,
                "`web_search`",
            ),
            (
                &OpenAiResponses,
                "/v1/responses",
                r#"{"model":"gpt-5","input":"hi","tools":[{"type":"mcp"}],"max_tool_calls":1}"#,
                "`mcp`",
            ),
            (
                &OpenAiResponses,
                "/v1/responses/compact",
                r#"{"model":"gpt-5","input":"hi","previous_response_id":"r"}"#,
                "`previous_response_id`",
            ),
            (
                &OpenAiResponses,
                "/v1/responses",
                r#"{"model":"gpt-5.6-sol","input":"hi","service_tier":"ultrafast"}"#,
                "`ultrafast`",
            ),
            (&OpenAiResponses, "/v1/responses", r#"{"model":"gpt-99","input":"hi"}"#, "`gpt-99`"),
        ] {
            let refused = quote(&catalog, &shape(policy, path, body).facts, "2026-11-01".parse().unwrap()).unwrap_err();
            assert!(refused.to_string().contains(named), "{named}: {refused}");
        }
    }
}
