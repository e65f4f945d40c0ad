//! OpenAI Responses. Routes, headers and shapes as measured on Codex 0.171.0 and in the public API reference.

mod request;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::additions::Additions;
use super::{MODELS, REQUEST_HEADERS, RESPONSE_HEADERS, authorize, error_body, is_absent, pin_tier, shaped};
use crate::credential::Credential;
use crate::policy::{ProviderPolicy, Route, RouteKind, RouteMethod, Shaped};
use crate::tap::{ResponsesStream, Tap, Whole, compaction, response};

/// The policy for OpenAI Responses.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiResponses;

const RESPONSES: &str = "/v1/responses";
const COMPACT: &str = "/v1/responses/compact";

/// A program that is refused with another status tries the socket again.
const NO_SOCKET: RouteKind = RouteKind::Refused(
    StatusCode::UPGRADE_REQUIRED,
    "WebSockets are not served here; send the request with POST and read server-sent events",
);

const ROUTES: &[Route] = &[
    Route { method: RouteMethod::Post, path: RESPONSES, query: None, kind: RouteKind::Paid },
    Route { method: RouteMethod::Post, path: COMPACT, query: None, kind: RouteKind::Paid },
    Route { method: RouteMethod::Post, path: "/v1/responses/input_tokens", query: None, kind: RouteKind::Free },
    Route { method: RouteMethod::Get, path: RESPONSES, query: None, kind: NO_SOCKET },
    Route { method: RouteMethod::Get, path: "/v1/models", query: None, kind: RouteKind::Answered(MODELS) },
    Route {
        method: RouteMethod::Get,
        path: "/v1/models",
        query: Some("client_version=0.171.0"),
        kind: RouteKind::Answered(MODELS),
    },
];

impl ProviderPolicy for OpenAiResponses {
    fn name(&self) -> &'static str {
        "openai"
    }

    fn routes(&self) -> &'static [Route] {
        ROUTES
    }

    fn shape(&self, route: &Route, body: Bytes) -> Result<Shaped, String> {
        let (mut facts, top) = request::read(&body)?;
        let mut additions = Additions::to(&body);
        // A compaction takes neither of them; it is held at the dearest tier.
        if route.path == RESPONSES {
            pin_tier(&mut facts, &mut additions, top.service_tier)?;
            if is_absent(top.store) {
                additions.set("store", top.store, "false");
            }
        }
        Ok(shaped(&body, additions, facts))
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

    fn tap(&self, route: &Route, model: &str, content_type: &str) -> Box<dyn Tap> {
        if route.path == COMPACT {
            let model = model.to_owned();
            Box::new(Whole::read_by(move |answer| compaction(answer, &model)))
        } else if content_type.starts_with("text/event-stream") {
            Box::new(ResponsesStream::default())
        } else {
            Box::new(Whole::read_by(response))
        }
    }
}
