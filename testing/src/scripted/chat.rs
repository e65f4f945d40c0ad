//! OpenAI chat completions on the wire: chunks without names, the usage in one of its own where the request asks for it, `[DONE]` last.

use serde_json::{Value, json};

use super::wire::{Asked, Event, Wire, arguments, list, openai_error, pieces, text, unique, with};
use crate::script::{Call, Conversation, Message, Served, Side, StopReason};

pub(super) struct Chat;

impl Wire for Chat {
    fn conversation(&self, body: &Value) -> Conversation {
        let messages = list(body, "messages").iter().filter_map(message).collect();
        let name = |tool: &Value| Some(tool.get("function").unwrap_or(tool).get("name")?.as_str()?.to_owned());
        Conversation { messages, tools: list(body, "tools").iter().filter_map(name).collect() }
    }

    fn whole(&self, served: &Served, asked: &Asked<'_>) -> Value {
        let said = [asked.echoed(), served.step.text.clone()].into_iter().flatten().collect::<Vec<_>>();
        let content = if said.is_empty() { Value::Null } else { json!(said.concat()) };
        let calls: Vec<Value> = served.calls.iter().map(|call| called(call, &arguments(call))).collect();
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if !calls.is_empty() {
            message = with(message, json!({ "tool_calls": calls }));
        }
        let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(served)});
        with(envelope(asked, "chat.completion"), json!({"choices": [choice], "usage": usage(served)}))
    }

    fn events(&self, served: &Served, asked: &Asked<'_>) -> Vec<Event> {
        let envelope = envelope(asked, "chat.completion.chunk");
        let counts = asked.body.pointer("/stream_options/include_usage") == Some(&Value::Bool(true));
        let chunk = |choices: Value, usage: Value| {
            let chunk = with(envelope.clone(), json!({ "choices": choices }));
            // A request that does not ask for usage gets no such member at all.
            let chunk = if counts { with(chunk, json!({ "usage": usage })) } else { chunk };
            chunk.to_string()
        };
        let piece = |delta: Value, finish: Value, is_content| {
            let choice = json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
            Event::bare(chunk(choice, Value::Null), is_content)
        };
        let says = |text: &str| piece(json!({ "content": text }), Value::Null, true);

        let mut events = vec![piece(json!({"role": "assistant", "content": ""}), Value::Null, false)];
        events.extend(asked.echoed().iter().map(|text| says(text)));
        events.extend(served.step.text.iter().flat_map(|text| pieces(text).map(says)));
        for (index, call) in served.calls.iter().enumerate() {
            let place = json!({ "index": index });
            let begun = with(place.clone(), called(call, ""));
            events.push(piece(json!({ "tool_calls": [begun] }), Value::Null, false));
            let all = arguments(call);
            events.extend(pieces(&all).map(|part| {
                let more = with(place.clone(), json!({"function": {"arguments": part}}));
                piece(json!({ "tool_calls": [more] }), Value::Null, true)
            }));
        }
        if let Some(code) = &served.step.failure {
            let error = json!({"error": {"message": "scripted failure", "type": code, "param": null, "code": code}});
            events.push(Event::bare(error.to_string(), false));
            return events;
        }
        events.push(piece(json!({}), json!(finish_reason(served)), false));
        if counts {
            events.push(Event::bare(chunk(json!([]), usage(served)), false));
        }
        events.push(Event::bare("[DONE]".to_owned(), false));
        events
    }

    fn error(&self, status: u16, message: &str) -> Value {
        openai_error(status, message)
    }

    fn unserved(&self) -> u16 {
        400
    }
}

/// A message of the request. What the developer and the system say is the system prompt, and no message.
fn message(message: &Value) -> Option<Message> {
    let (side, results) = match text(message, "role") {
        "developer" | "system" => return None,
        "assistant" => (Side::Assistant, 0),
        "tool" | "function" => (Side::User, 1),
        _ => (Side::User, 0),
    };
    let mut found = Message::new(side);
    found.results = results;
    match message.get("content") {
        Some(Value::String(text)) => found.say(text),
        Some(Value::Array(parts)) => parts.iter().for_each(|part| found.say(text(part, "text"))),
        _ => {}
    }
    for call in list(message, "tool_calls").iter().filter_map(|call| call.get("function")) {
        found.say(text(call, "name"));
        found.say(text(call, "arguments"));
    }
    Some(found)
}

fn called(call: &Call, arguments: &str) -> Value {
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
}

fn envelope(asked: &Asked<'_>, object: &str) -> Value {
    json!({
        "id": unique("chatcmpl"), "object": object, "created": 0, "model": asked.model(), "service_tier": asked.tier(),
        "system_fingerprint": null,
    })
}

fn finish_reason(served: &Served) -> &'static str {
    match served.stop_reason() {
        StopReason::ToolUse => "tool_calls",
        StopReason::MaxTokens | StopReason::ModelContextWindowExceeded => "length",
        StopReason::Refusal => "content_filter",
        StopReason::EndTurn | StopReason::StopSequence | StopReason::PauseTurn => "stop",
    }
}

/// OpenAI counts what came from the cache and what went there within the prompt, and reasoning within the completion.
fn usage(served: &Served) -> Value {
    let used = served.usage();
    let written = used.cache_write_5m.saturating_add(used.cache_write_1h);
    let prompt = used.input.saturating_add(used.cache_read).saturating_add(written);
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": used.output,
        "total_tokens": prompt.saturating_add(used.output),
        "prompt_tokens_details": {"cached_tokens": used.cache_read, "cache_write_tokens": written, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": used.reasoning, "audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_is_read_from_all_its_messages() {
        let talk = Chat.conversation(&json!({
            "messages": [
                {"role": "system", "content": "in the system prompt"},
                {"role": "user", "content": [{"type": "text", "text": "plain"}]},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{\"q\":\"disk\"}"}}]},
                {"role": "tool", "tool_call_id": "c1", "content": "found"},
                {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "and more"}]}],
            "tools": [{"type": "function", "function": {"name": "search"}}, {"type": "odd"}],
        }));
        assert_eq!((talk.results(), talk.tools.as_slice()), (2, ["search".to_owned()].as_slice()));
        for new in ["found", "and more"] {
            assert!(talk.newly_mentions(new), "{new}");
        }
        for old in ["plain", "search", r#"{"q":"disk"}"#] {
            assert!(talk.mentions(old) && !talk.newly_mentions(old), "{old}");
        }
        assert!(!talk.mentions("in the system prompt"));
    }
}
