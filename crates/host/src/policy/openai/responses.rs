//! OpenAI Responses. Routes, headers and shapes as measured on Codex 0.171.0 and in the public API reference.

use agentrun_cap::RequestFacts;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::{MODELS, REQUEST_HEADERS, RESPONSE_HEADERS, authorize, error_body};
use crate::credential::Credential;
use crate::policy::{ProviderPolicy, Route, RouteKind, RouteMethod, Shaped};
use crate::tap::{Tap, Untold};

/// The policy for OpenAI Responses.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiResponses;

/// A program that is refused with another status tries the socket again.
const NO_SOCKET: RouteKind = RouteKind::Refused(
    StatusCode::UPGRADE_REQUIRED,
    "WebSockets are not served here; send the request with POST and read server-sent events",
);

const ROUTES: &[Route] = &[
    Route { method: RouteMethod::Post, path: "/v1/responses", query: None, kind: RouteKind::Paid },
    Route { method: RouteMethod::Post, path: "/v1/responses/compact", query: None, kind: RouteKind::Paid },
    Route { method: RouteMethod::Post, path: "/v1/responses/input_tokens", query: None, kind: RouteKind::Free },
    Route { method: RouteMethod::Get, path: "/v1/responses", query: None, kind: NO_SOCKET },
    Route { method: RouteMethod::Get, path: "/v1/models", query: None, kind: RouteKind::Answered(MODELS) },
    Route {
        method: RouteMethod::Get,
        path: "/v1/models",
        query: Some("client_version=0.171.0"),
        kind: RouteKind::Answered(MODELS),
    },
];

#[derive(Deserialize)]
struct Top {
    model: String,
    max_output_tokens: Option<u64>,
}

impl ProviderPolicy for OpenAiResponses {
    fn name(&self) -> &'static str {
        "openai"
    }

    fn routes(&self) -> &'static [Route] {
        ROUTES
    }

    fn shape(&self, _: &Route, body: Bytes) -> Result<Shaped, String> {
        let Top { model, max_output_tokens } =
            serde_json::from_slice(&body).map_err(|error| format!("the request cannot be priced: {error}"))?;
        let body_bytes = body.len() as u64;
        let facts = RequestFacts {
            model,
            body_bytes,
            max_output: max_output_tokens,
            held_elsewhere: true,
            ..RequestFacts::default()
        };
        Ok(Shaped { body, facts })
    }

    /// Codex never retries it, and shows its person the whole body.
    fn refused(&self) -> StatusCode {
        StatusCode::BAD_REQUEST
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
