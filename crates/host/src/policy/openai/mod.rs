//! OpenAI's two APIs. What they share is here: error shape, credential, headers, the service tier that is pinned.

mod chat;
mod responses;

pub use chat::OpenAiChat;
pub use responses::OpenAiResponses;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::credential::Credential;

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
    let bearer = zeroize::Zeroizing::new([b"Bearer ", credential.expose()].concat());
    if let Ok(mut value) = HeaderValue::from_bytes(&bearer) {
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
}
