//! What the three APIs have in common: a request read as a conversation, a served step written in the API's own words. Pure; the server
//! decides what of it is sent.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::script::{Call, Conversation, Served};

/// One API's way of saying things.
pub(super) trait Wire: Sync {
    /// Reads a request. Lenient: what is not understood is no text and no tool.
    fn conversation(&self, body: &Value) -> Conversation;
    /// The body of an answer that is not streamed.
    fn whole(&self, served: &Served, asked: &Asked<'_>) -> Value;
    /// The events of a streamed answer.
    fn events(&self, served: &Served, asked: &Asked<'_>) -> Vec<Event>;
    /// An error body, with the word the provider has for the status.
    fn error(&self, status: u16, message: &str) -> Value;
    /// The status of a request that no step fits: one that the API's harnesses do not try again for a minute.
    fn unserved(&self) -> u16 {
        500
    }
}

/// A request as an answer looks at it.
pub(super) struct Asked<'a> {
    /// The whole body.
    pub(super) body: &'a Value,
    /// The credential to give back, if the step says so.
    pub(super) echo: Option<&'a str>,
}

impl<'a> Asked<'a> {
    /// The model, as the request spells it.
    pub(super) fn model(&self) -> &'a str {
        text(self.body, "model")
    }

    /// What is said beside the script's own text. It goes out in one piece, so that whoever looks for it in the bytes can find it.
    pub(super) fn echoed(&self) -> Option<String> {
        self.echo.map(|credential| format!("The request came with the credential {credential}\n"))
    }

    /// The service tier an OpenAI answer names: the one asked for, or the standard one.
    pub(super) fn tier(&self) -> &'a str {
        match text(self.body, "service_tier") {
            "" | "auto" => "default",
            tier => tier,
        }
    }
}

/// One server-sent event.
pub(super) struct Event {
    name: Option<&'static str>,
    /// Its data; JSON but for the last word of a chat stream.
    pub(super) data: String,
    /// Whether it carries a piece of what the model says.
    pub(super) is_content: bool,
}

impl Event {
    /// An event with a name.
    pub(super) fn named(name: &'static str, data: &Value, is_content: bool) -> Self {
        Self { name: Some(name), data: data.to_string(), is_content }
    }

    /// An event of data alone.
    pub(super) fn bare(data: String, is_content: bool) -> Self {
        Self { name: None, data, is_content }
    }

    /// As it stands on the wire.
    pub(super) fn frame(&self) -> String {
        let name = self.name.map(|name| format!("event: {name}\n")).unwrap_or_default();
        format!("{name}data: {}\n\n", self.data)
    }
}

/// An OpenAI error body.
pub(super) fn openai_error(status: u16, message: &str) -> Value {
    let (kind, code) = match status {
        401 => ("invalid_request_error", Some("invalid_api_key")),
        429 => ("requests", Some("rate_limit_exceeded")),
        500.. => ("server_error", None),
        _ => ("invalid_request_error", None),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

/// The text that a tool without arguments is given.
pub(super) fn free_text(call: &Call) -> String {
    match (call.input.len(), call.input.get("input")) {
        (1, Some(Value::String(text))) => text.clone(),
        _ => arguments(call),
    }
}

/// A call's arguments as JSON text.
pub(super) fn arguments(call: &Call) -> String {
    Value::Object(call.input.clone()).to_string()
}

/// A new id such as providers make.
pub(super) fn unique(prefix: &str) -> String {
    format!("{prefix}_{}", Uuid::new_v4().simple())
}

/// A text piece or a piece of arguments is at least this many characters, so that short answers still come in several and long ones
/// (a megabyte of arguments) in no more than `MOST_PIECES`.
const LEAST_PIECE: usize = 12;
const MOST_PIECES: usize = 32;

/// `text` in pieces that end between characters and make up the text again; one empty piece for an empty text.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let length = text.chars().count().div_ceil(MOST_PIECES).max(LEAST_PIECE);
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let all = rest?;
        let (piece, after) = match all.char_indices().nth(length) {
            Some((at, _)) => all.split_at(at),
            None => (all, ""),
        };
        rest = (!after.is_empty()).then_some(after);
        Some(piece)
    })
}

pub(super) fn list<'a>(body: &'a Value, member: &str) -> &'a [Value] {
    body.get(member).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A member that is a text; empty without one.
pub(super) fn text<'a>(of: &'a Value, member: &str) -> &'a str {
    of.get(member).and_then(Value::as_str).unwrap_or_default()
}

/// `into` with the members of `from`.
pub(super) fn with(mut into: Value, from: Value) -> Value {
    if let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) {
        Map::extend(into, from);
    }
    into
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_up_the_text_and_stay_few() {
        for text in ["", "short", "exactly12chr", "grüße aus dem süden, çok güzel", &"é{\"a\":1}".repeat(5_000)] {
            let cut: Vec<&str> = pieces(text).collect();
            assert_eq!(cut.concat(), text);
            assert!((1..=MOST_PIECES).contains(&cut.len()));
        }
        assert!(pieces("a text of more than one piece").count() > 1);
    }
}
