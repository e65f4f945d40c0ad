//! OpenAI's two APIs. What they share is here: error shape, credential, headers, the service tier that is pinned.

mod additions;
mod chat;
mod responses;

pub use chat::OpenAiChat;
pub use responses::OpenAiResponses;

use std::fmt;

use agentrun_cap::RequestFacts;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::Shaped;
use super::parts::{Text, text};
use crate::credential::Credential;
use additions::{Additions, Given};

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

/// The tier of a request that names none. Without it the provider takes the project's own setting, which nobody here knows, and the hold
/// would have to be for the dearest.
const TIER: &str = "\"default\"";

/// A member that is not there, or says nothing.
fn is_absent(given: Given<'_>) -> bool {
    given.is_none_or(|given| given.get() == "null")
}

/// Pins the service tier, unless the request names one.
fn pin_tier<'b>(facts: &mut RequestFacts, additions: &mut Additions<'b>, given: Given<'b>) -> Result<(), String> {
    if is_absent(given) {
        additions.set("service_tier", given, TIER);
    }
    let named = given.filter(|_| !is_absent(given)).map_or(TIER, |given| given.get());
    facts.service_tier = Some(serde_json::from_str(named).map_err(|error| format!("service_tier: {error}"))?);
    Ok(())
}

/// The body with the additions, and its facts.
fn shaped(body: &Bytes, additions: Additions<'_>, mut facts: RequestFacts) -> Shaped {
    let body = additions.made().unwrap_or_else(|| body.clone());
    facts.body_bytes = body.len() as u64;
    Shaped { body, facts }
}

/// Whether an image is in the body: its URL, or the `url` of an object in the URL's place, holds the data itself.
struct InBody;

impl<'de> DeserializeSeed<'de> for InBody {
    type Value = bool;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for InBody {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the URL of an image")
    }
    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }
    fn visit_str<E>(self, url: &str) -> Result<bool, E> {
        Ok(url.starts_with("data:"))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<bool, A::Error> {
        let mut is_data = false;
        while let Some(name) = members.next_key::<Text<'de>>()? {
            if name == "url" {
                is_data = text(&mut members)?.is_some_and(|url| url.starts_with("data:"));
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(is_data)
    }
}
