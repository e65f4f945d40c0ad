//! OpenAI Responses. Routes, headers and shapes as measured on Codex 0.171.0 and in the public API reference.

mod request;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::additions::Additions;
use super::{MODELS, REQUEST_HEADERS, RESPONSE_HEADERS, authorize, error_body, named, pin_tier, shaped};
use crate::credential::Credential;
use crate::json::{Document, Unfit};
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

    fn shape(&self, route: &Route, request: &mut Document<'_>) -> Result<Shaped, Unfit> {
        let (mut facts, top) = request::read(request)?;
        let mut additions = Additions::to(request.body());
        // A compaction takes neither of them; it is held at the dearest tier.
        if route.path == RESPONSES {
            pin_tier(&mut facts, &mut additions, top.service_tier.as_ref())?;
            if named(top.store.as_ref()).is_none() {
                additions.set("store", top.store.as_ref(), "false");
            }
        }
        Ok(shaped(additions, facts))
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
