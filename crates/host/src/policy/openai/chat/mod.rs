//! OpenAI chat completions, and the many servers that speak them. Routes, headers and shapes as measured on OpenCode 1.18.33 and in the
//! public API reference.

mod request;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::additions::Additions;
use super::{MODELS, REQUEST_HEADERS, RESPONSE_HEADERS, authorize, error_body, pin_tier, shaped};
use crate::credential::Credential;
use crate::json::{Document, Unfit};
use crate::policy::{ProviderPolicy, Route, RouteKind, RouteMethod, Shaped};
use crate::tap::{ChatStream, Tap, Whole, completion};

/// The policy for OpenAI chat completions.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiChat;

const ROUTES: &[Route] = &[
    Route { method: RouteMethod::Post, path: "/v1/chat/completions", query: None, kind: RouteKind::Paid },
    Route { method: RouteMethod::Get, path: "/v1/models", query: None, kind: RouteKind::Answered(MODELS) },
];

impl ProviderPolicy for OpenAiChat {
    fn name(&self) -> &'static str {
        "openai-chat"
    }

    fn routes(&self) -> &'static [Route] {
        ROUTES
    }

    fn shape(&self, _: &Route, request: &mut Document<'_>) -> Result<Shaped, Unfit> {
        let (mut facts, top) = request::read(request)?;
        let mut additions = Additions::to(request.body());
        pin_tier(&mut facts, &mut additions, top.service_tier.as_ref())?;
        if top.stream
            && let Some(options) = request::with_usage(top.stream_options.as_ref())?
        {
            additions.set("stream_options", top.stream_options.as_ref(), &options);
        }
        Ok(shaped(additions, facts))
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

    fn tap(&self, _: &Route, _: &str, content_type: &str) -> Box<dyn Tap> {
        if content_type.starts_with("text/event-stream") {
            Box::new(ChatStream::default())
        } else {
            Box::new(Whole::read_by(completion))
        }
    }
}
