//! Anthropic Messages on the wire: a request read as a conversation, a served step written as a message, its events or an error.
//! Pure; the server decides what of it is sent.

use serde_json::{Value, json};

use super::wire::{Asked, Event, Wire, list, pieces, text, unique};
use crate::script::{Call, Conversation, Message, Served, Side, Tokens};

pub(super) struct Messages;

impl Wire for Messages {
    fn conversation(&self, body: &Value) -> Conversation {
        let messages = list(body, "messages").iter().map(message).collect();
        let tools = list(body, "tools").iter().filter_map(|t| Some(t.get("name")?.as_str()?.to_owned())).collect();
        Conversation { messages, tools }
    }

    fn whole(&self, served: &Served, asked: &Asked<'_>) -> Value {
        let content: Vec<Value> = blocks(served, asked.echo).iter().map(Block::whole).collect();
        let mut message = envelope(asked.model(), content, served.usage(), served.usage().output);
        if let Some(fields) = message.as_object_mut() {
            fields.insert("stop_reason".to_owned(), json!(served.stop_reason()));
        }
        message
    }

    fn events(&self, served: &Served, asked: &Asked<'_>) -> Vec<Event> {
        let named = |(name, data)| Event::named(name, &data, name == "content_block_delta");
        events(served, asked).into_iter().map(named).collect()
    }

    fn error(&self, status: u16, message: &str) -> Value {
        error(status, message)
    }
}

fn message(message: &Value) -> Message {
    let side =
        if message.get("role").and_then(Value::as_str) == Some("assistant") { Side::Assistant } else { Side::User };
    let mut found = Message::new(side);
    read(message.get("content"), &mut found);
    found
}

fn read(content: Option<&Value>, into: &mut Message) {
    match content {
        Some(Value::String(text)) => into.say(text),
        Some(Value::Array(blocks)) => {
            for block in blocks {
                match text(block, "type") {
                    "text" => into.say(text(block, "text")),
                    "thinking" => into.say(text(block, "thinking")),
                    "tool_use" => {
                        into.say(text(block, "name"));
                        into.say(&block.get("input").map(Value::to_string).unwrap_or_default());
                    }
                    "tool_result" => {
                        into.results += 1;
                        read(block.get("content"), into);
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

/// The events of a streamed answer: each its name and its data.
fn events(served: &Served, asked: &Asked<'_>) -> Vec<(&'static str, Value)> {
    let usage = served.usage();
    // As providers do: the input side is exact at once, the output side only in `message_delta`.
    let start = envelope(asked.model(), Vec::new(), usage, 1);
    let mut events = vec![("message_start", json!({"type": "message_start", "message": start}))];
    for (index, block) in blocks(served, asked.echo).iter().enumerate() {
        let (empty, deltas) = block.streamed();
        events.push((
            "content_block_start",
            json!({"type": "content_block_start", "index": index, "content_block": empty}),
        ));
        events.extend(deltas.into_iter().map(|delta| {
            ("content_block_delta", json!({"type": "content_block_delta", "index": index, "delta": delta}))
        }));
        events.push(("content_block_stop", json!({"type": "content_block_stop", "index": index})));
    }
    let after_first_start = events.len().min(2);
    events.insert(after_first_start, ("ping", json!({"type": "ping"})));
    if let Some(code) = &served.step.failure {
        let error = json!({"type": "error", "error": {"type": code, "message": "scripted failure"}});
        events.push(("error", error));
        return events;
    }
    events.push((
        "message_delta",
        json!({
            "type": "message_delta",
            "delta": {"stop_reason": served.stop_reason(), "stop_sequence": null},
            "usage": {
                "input_tokens": usage.input,
                "cache_creation_input_tokens": usage.cache_write_5m.saturating_add(usage.cache_write_1h),
                "cache_read_input_tokens": usage.cache_read,
                "output_tokens": usage.output,
            },
        }),
    ));
    events.push(("message_stop", json!({"type": "message_stop"})));
    events
}

/// An error body, with the word the provider has for the status.
fn error(status: u16, message: &str) -> Value {
    let word = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        405..500 => "invalid_request_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": word, "message": message}, "request_id": unique("req")})
}

/// The answer to a token count: a figure that grows with the request, no more.
pub(super) fn token_count(body: &Value) -> Value {
    json!({"input_tokens": body.to_string().len() / 4})
}

fn envelope(model: &str, content: Vec<Value>, usage: Tokens, output: u64) -> Value {
    json!({
        "id": unique("msg"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": null,
        "stop_sequence": null,
        "usage": {
            "input_tokens": usage.input,
            "cache_creation_input_tokens": usage.cache_write_5m.saturating_add(usage.cache_write_1h),
            "cache_read_input_tokens": usage.cache_read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": usage.cache_write_5m,
                "ephemeral_1h_input_tokens": usage.cache_write_1h,
            },
            "output_tokens": output,
            "service_tier": "standard",
        },
    })
}

enum Block<'a> {
    Text(&'a str),
    /// Goes out in one delta, so that whoever looks for it in the bytes can find it.
    Echo(String),
    Call(&'a Call),
}

fn blocks<'a>(served: &'a Served, echo: Option<&str>) -> Vec<Block<'a>> {
    let echo = echo.map(|credential| Block::Echo(format!("The request came with the credential {credential}\n")));
    echo.into_iter()
        .chain(served.step.text.as_deref().map(Block::Text))
        .chain(served.calls.iter().map(Block::Call))
        .collect()
}

impl Block<'_> {
    fn whole(&self) -> Value {
        match self {
            Self::Text(text) => json!({"type": "text", "text": text}),
            Self::Echo(text) => json!({"type": "text", "text": text}),
            Self::Call(call) => json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}),
        }
    }

    /// The block as it starts, and its deltas.
    fn streamed(&self) -> (Value, Vec<Value>) {
        let text_delta = |text: &str| json!({"type": "text_delta", "text": text});
        let json_delta = |json: &str| json!({"type": "input_json_delta", "partial_json": json});
        let empty_text = json!({"type": "text", "text": ""});
        match self {
            Self::Text(text) => (empty_text, pieces(text).map(text_delta).collect()),
            Self::Echo(text) => (empty_text, vec![text_delta(text)]),
            Self::Call(call) => {
                let arguments = Value::Object(call.input.clone()).to_string();
                // The provider opens arguments with an empty piece; a reader that parses each piece by itself fails on it.
                let deltas = std::iter::once("").chain(pieces(&arguments)).map(json_delta).collect();
                (json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}), deltas)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_is_read_from_all_its_blocks() {
        let talk = Messages.conversation(&json!({
            "system": "in the system prompt",
            "messages": [
                {"role": "user", "content": "plain"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "pondered"},
                    {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "disk"}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "found"}]},
                    {"type": "tool_result", "tool_use_id": "t2", "content": "broken", "is_error": true},
                    {"type": "image", "source": {}}]},
                {"role": "user", "content": [{"type": "text", "text": "reminder"}]}],
            "tools": [{"name": "search"}, {"type": "odd"}],
        }));
        assert_eq!(talk.results(), 2);
        assert_eq!(talk.tools, ["search"]);
        for new in ["found", "broken", "reminder"] {
            assert!(talk.newly_mentions(new), "{new}");
        }
        for old in ["plain", "pondered", "search", r#"{"q":"disk"}"#] {
            assert!(talk.mentions(old) && !talk.newly_mentions(old), "{old}");
        }
        assert!(!talk.mentions("in the system prompt"));
    }
}
