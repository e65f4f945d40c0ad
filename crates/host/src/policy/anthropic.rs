//! Anthropic Messages. Routes, members and shapes as measured on Claude Code 2.1.332 and in the public API reference; see `tap::anthropic`
//! for usage.

use agentrun_cap::{CacheWrite, ContextEdits, RequestFacts, ServerTool};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{ProviderPolicy, Route, RouteKind, RouteMethod};
use crate::credential::Credential;
use crate::json::Seen;
use crate::tap::{AnthropicJson, AnthropicStream, Tap};

/// The policy for Anthropic Messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anthropic;

const BETA: Option<&str> = Some("beta=true");
const MODELS: &str = r#"{"data":[],"has_more":false,"first_id":null,"last_id":null}"#;

const ROUTES: &[Route] = &[
    Route { method: RouteMethod::Post, path: "/v1/messages", query: None, kind: RouteKind::Paid },
    Route { method: RouteMethod::Post, path: "/v1/messages", query: BETA, kind: RouteKind::Paid },
    Route { method: RouteMethod::Post, path: "/v1/messages/count_tokens", query: None, kind: RouteKind::Free },
    Route { method: RouteMethod::Post, path: "/v1/messages/count_tokens", query: BETA, kind: RouteKind::Free },
    Route { method: RouteMethod::Get, path: "/v1/models", query: None, kind: RouteKind::Answered(MODELS) },
    Route { method: RouteMethod::Post, path: "/api/event_logging/batch", query: None, kind: RouteKind::Answered("{}") },
    Route { method: RouteMethod::Head, path: "/", query: None, kind: RouteKind::Open("") },
];

/// Members whose spend the response shows, or that cost nothing. A member that is not here may spend in ways the catalog cannot price.
const KNOWN: &[&str] = &[
    "model",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "max_tokens",
    "metadata",
    "stop_sequences",
    "stream",
    "temperature",
    "top_k",
    "top_p",
    "thinking",
    "context_management",
    "output_config",
    "output_format",
    "service_tier",
    "speed",
    "inference_geo",
];

/// Tools of these types run where the harness is, not at the provider.
const CLIENT_TOOLS: &[&str] = &["custom", "bash_", "text_editor_", "computer_", "memory_"];

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    max_tokens: u64,
    #[serde(borrow, default)]
    tools: Option<Vec<ToolOf<'a>>>,
    #[serde(borrow, default)]
    service_tier: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    speed: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    inference_geo: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    context_management: Option<Edits<'a>>,
}

#[derive(Deserialize)]
struct ToolOf<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(default)]
    max_uses: Option<u64>,
}

#[derive(Deserialize)]
struct Edits<'a> {
    #[serde(borrow, default)]
    edits: Vec<Edit<'a>>,
}

#[derive(Deserialize)]
struct Edit<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
}

impl ProviderPolicy for Anthropic {
    fn name(&self) -> &'static str {
        "anthropic"
    }

    fn routes(&self) -> &'static [Route] {
        ROUTES
    }

    fn facts(&self, body: &[u8], seen: Seen) -> Result<RequestFacts, String> {
        let members: BTreeMap<Cow<'_, str>, IgnoredAny> =
            serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let read: Body<'_> =
            serde_json::from_slice(body).map_err(|error| format!("a priced member cannot be read: {error}"))?;
        let escapes =
            members.keys().filter(|name| !KNOWN.contains(&name.as_ref())).map(|name| name.to_string()).collect();
        let server_tools = read
            .tools
            .into_iter()
            .flatten()
            .filter_map(|tool| Some((tool.kind?, tool.max_uses)))
            .filter(|(kind, _)| !CLIENT_TOOLS.iter().any(|known| kind.starts_with(known)))
            .map(|(kind, max_uses)| ServerTool { kind: kind.into_owned(), max_uses })
            .collect();
        Ok(RequestFacts {
            model: read.model.into_owned(),
            body_bytes: body.len() as u64,
            max_output: Some(read.max_tokens),
            choices: 1,
            cache_write: match (seen.cache_control, seen.one_hour) {
                (false, _) => CacheWrite::None,
                (true, false) => CacheWrite::FiveMinutes,
                (true, true) => CacheWrite::OneHour,
            },
            images: seen.images,
            held_elsewhere: seen.held_elsewhere,
            context_edits: edits(read.context_management.as_ref()),
            server_tools,
            escapes,
            service_tier: read.service_tier.map(Cow::into_owned),
            speed: read.speed.map(Cow::into_owned),
            geo: read.inference_geo.map(Cow::into_owned),
        })
    }

    fn error_body(&self, status: StatusCode, message: &str) -> Bytes {
        let kind = match status.as_u16() {
            400 => "invalid_request_error",
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            _ => "api_error",
        };
        Bytes::from(serde_json::json!({"type": "error", "error": {"type": kind, "message": message}}).to_string())
    }

    fn authorize(&self, headers: &mut HeaderMap, credential: &Credential) {
        if let Ok(mut value) = HeaderValue::from_bytes(credential.expose()) {
            value.set_sensitive(true);
            headers.insert("x-api-key", value);
        }
    }

    fn request_headers(&self) -> &'static [&'static str] {
        &[
            "content-type",
            "accept",
            "anthropic-version",
            "anthropic-beta",
            "user-agent",
            "x-app",
            "x-claude-code-session-id",
        ]
    }

    fn response_headers(&self) -> &'static [&'static str] {
        &[
            "content-type",
            "request-id",
            "retry-after",
            "anthropic-ratelimit-requests-limit",
            "anthropic-ratelimit-requests-remaining",
            "anthropic-ratelimit-requests-reset",
            "anthropic-ratelimit-tokens-limit",
            "anthropic-ratelimit-tokens-remaining",
            "anthropic-ratelimit-tokens-reset",
        ]
    }

    fn tap(&self, content_type: &str) -> Box<dyn Tap> {
        if content_type.starts_with("text/event-stream") {
            Box::new(AnthropicStream::default())
        } else {
            Box::new(AnthropicJson::default())
        }
    }
}

fn edits(management: Option<&Edits<'_>>) -> ContextEdits {
    let Some(management) = management else { return ContextEdits::None };
    management.edits.iter().fold(ContextEdits::Clears, |so_far, edit| match (so_far, edit.kind.as_ref()) {
        (ContextEdits::Compacts, _) => ContextEdits::Compacts,
        (_, kind) if kind.starts_with("compact") => ContextEdits::Compacts,
        (so_far, kind) if kind.starts_with("clear_") => so_far,
        _ => ContextEdits::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::strict;

    fn facts(body: &str) -> Result<RequestFacts, String> {
        Anthropic.facts(body.as_bytes(), strict(body.as_bytes()).unwrap())
    }

    #[test]
    fn b87_members_that_can_spend_unseen_are_named() {
        let facts = facts(r#"{"model":"m","max_tokens":5,"messages":[],"mcp_servers":[],"container":"c"}"#).unwrap();
        assert_eq!(facts.escapes, ["container", "mcp_servers"]);
        assert_eq!(facts.max_output, Some(5));
    }

    #[test]
    fn a_limit_that_is_not_a_plain_whole_number_is_refused() {
        for limit in ["1e3", "1.0", "-1", "\"5\"", "null"] {
            assert!(facts(&format!(r#"{{"model":"m","max_tokens":{limit},"messages":[]}}"#)).is_err(), "{limit}");
        }
        assert!(facts(r#"{"model":"m","messages":[]}"#).is_err());
    }

    #[test]
    fn what_claude_code_sends_needs_no_bound_beyond_its_own() {
        let facts = facts(
            r#"{"model":"m","max_tokens":5,"messages":[],"tools":[{"name":"t","input_schema":{}},{"type":"bash_20250124","name":"bash"}],
            "context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},"thinking":{"type":"disabled"},"stream":true}"#,
        )
        .unwrap();
        assert_eq!(facts.context_edits, ContextEdits::Clears);
        assert!(facts.escapes.is_empty() && facts.server_tools.is_empty());
    }
}
