//! Anthropic Messages. Routes, headers and shapes as measured on Claude Code 2.1.332 and in the public API reference; `request` reads
//! what a quote looks at, `tap::anthropic` what was used.

mod request;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode};

use super::{ProviderPolicy, Route, RouteKind, RouteMethod, Shaped};
use crate::credential::Credential;
use crate::json::{Document, Unfit};
use crate::tap::{AnthropicStream, Tap, Whole, message};

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

impl ProviderPolicy for Anthropic {
    fn name(&self) -> &'static str {
        "anthropic"
    }

    fn routes(&self) -> &'static [Route] {
        ROUTES
    }

    fn shape(&self, _: &Route, request: &mut Document<'_>) -> Result<Shaped, Unfit> {
        let facts = request::read(request)?;
        Ok(Shaped { body: request.body().clone(), facts })
    }

    /// Claude Code makes one request, then tells its person.
    fn refused(&self) -> StatusCode {
        StatusCode::FORBIDDEN
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
        credential.put(headers, HeaderName::from_static("x-api-key"), "");
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

    fn tap(&self, _: &Route, _: &str, content_type: &str) -> Box<dyn Tap> {
        if content_type.starts_with("text/event-stream") {
            Box::new(AnthropicStream::default())
        } else {
            Box::new(Whole::read_by(message))
        }
    }
}
