//! OpenAI chat completions, and the many servers that speak them. Routes, headers and shapes as measured on OpenCode 1.18.33 and in the
//! public API reference.

use agentrun_cap::RequestFacts;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::{MODELS, REQUEST_HEADERS, RESPONSE_HEADERS, authorize, error_body};
use crate::credential::Credential;
use crate::policy::{ProviderPolicy, Route, RouteKind, RouteMethod, Shaped};
use crate::tap::{Tap, Untold};

/// The policy for OpenAI chat completions.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiChat;

const ROUTES: &[Route] = &[
    Route { method: RouteMethod::Post, path: "/v1/chat/completions", query: None, kind: RouteKind::Paid },
    Route { method: RouteMethod::Get, path: "/v1/models", query: None, kind: RouteKind::Answered(MODELS) },
];

#[derive(Deserialize)]
struct Top {
    model: String,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    n: Option<u64>,
}

impl ProviderPolicy for OpenAiChat {
    fn name(&self) -> &'static str {
        "openai-chat"
    }

    fn routes(&self) -> &'static [Route] {
        ROUTES
    }

    fn shape(&self, _: &Route, body: Bytes) -> Result<Shaped, String> {
        let Top { model, max_tokens, max_completion_tokens, n } =
            serde_json::from_slice(&body).map_err(|error| format!("the request cannot be priced: {error}"))?;
        let body_bytes = body.len() as u64;
        let facts = RequestFacts {
            model,
            body_bytes,
            max_output: max_tokens.max(max_completion_tokens),
            choices: n.unwrap_or(1),
            held_elsewhere: true,
            ..RequestFacts::default()
        };
        Ok(Shaped { body, facts })
    }

    /// OpenCode makes one request, then tells its person; a 400 it may take for an overflow of its context.
    fn refused(&self) -> StatusCode {
        StatusCode::FORBIDDEN
    }

    fn error_body(&self, status: StatusCode, message: &str) -> Bytes {
        error_body(status, message)
    }

    fn authorize(&self, headers: &mut HeaderMap, credential: &Credential) {
        authorize(headers, credential);
    }

    fn request_headers(&self) -> &'static [&'static str] {
        REQUEST_HEADERS
    }

    fn response_headers(&self) -> &'static [&'static str] {
        RESPONSE_HEADERS
    }

    fn tap(&self, _: &Route, _: &str, _: &str) -> Box<dyn Tap> {
        Box::new(Untold)
    }
}
