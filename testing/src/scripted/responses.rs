//! OpenAI Responses on the wire. The events are those of the public API in its order; Codex needs of them `response.created`,
//! `response.output_item.added` (without it no deltas are shown), `response.output_item.done` and `response.completed`.

use serde_json::{Value, json};

use super::wire::{Asked, Event, Wire, arguments, free_text, list, openai_error, pieces, text, unique, with};
use crate::script::{Call, Conversation, Message, Served, Side, StopReason};

pub(super) struct Responses;

impl Wire for Responses {
    fn conversation(&self, body: &Value) -> Conversation {
        let tools = offered(body).into_iter().map(|tool| tool.full).collect();
        let messages = match body.get("input") {
            Some(Value::String(text)) => vec![said(Side::User, text)],
            _ => list(body, "input").iter().filter_map(message).collect(),
        };
        Conversation { messages, tools }
    }

    fn whole(&self, served: &Served, asked: &Asked<'_>) -> Value {
        let output = items(served, asked).iter().map(|item| item.whole("completed")).collect();
        ended(envelope(asked), served, output)
    }

    fn events(&self, served: &Served, asked: &Asked<'_>) -> Vec<Event> {
        let envelope = envelope(asked);
        let mut stream = Stream::default();
        stream.push("response.created", json!({ "response": envelope }), false);
        stream.push("response.in_progress", json!({ "response": envelope }), false);
        let mut output = Vec::new();
        for (index, item) in items(served, asked).iter().enumerate() {
            stream.push("response.output_item.added", json!({"output_index": index, "item": item.begun()}), false);
            item.stream(index, &mut stream);
            let done = item.whole("completed");
            stream.push("response.output_item.done", json!({"output_index": index, "item": done}), false);
            output.push(done);
        }
        let response = ended(envelope, served, output);
        let name = match text(&response, "status") {
            "failed" => "response.failed",
            "incomplete" => "response.incomplete",
            _ => "response.completed",
        };
        stream.push(name, json!({ "response": response }), false);
        stream.events
    }

    fn error(&self, status: u16, message: &str) -> Value {
        openai_error(status, message)
    }

    fn unserved(&self) -> u16 {
        400
    }
}

/// `POST /v1/responses/compact`: a model call whose answer is a shorter history. The script's text stands where the sealed summary does.
pub(super) struct Compaction;

impl Wire for Compaction {
    fn conversation(&self, body: &Value) -> Conversation {
        Responses.conversation(body)
    }

    fn whole(&self, served: &Served, _: &Asked<'_>) -> Value {
        let summary = served.step.text.as_deref().unwrap_or_default();
        let output = json!([{"type": "compaction", "id": unique("cmp"), "encrypted_content": summary}]);
        json!({"id": unique("resp"), "object": "response.compaction", "created_at": 0, "output": output, "usage": usage(served)})
    }

    /// It is never streamed.
    fn events(&self, _: &Served, _: &Asked<'_>) -> Vec<Event> {
        Vec::new()
    }

    fn error(&self, status: u16, message: &str) -> Value {
        openai_error(status, message)
    }

    fn unserved(&self) -> u16 {
        400
    }
}

#[derive(Default)]
struct Stream {
    events: Vec<Event>,
}

impl Stream {
    fn push(&mut self, name: &'static str, data: Value, is_content: bool) {
        let numbered = json!({"type": name, "sequence_number": self.events.len()});
        self.events.push(Event::named(name, &with(numbered, data), is_content));
    }
}

/// A tool as a request offers it.
struct Offered {
    /// By this a script finds it: `namespace__name` for one in a namespace.
    full: String,
    namespace: Option<String>,
    name: String,
    is_free_text: bool,
}

/// The tools of a request, wherever they stand: at the top, in a namespace, in an item of the input.
fn offered(body: &Value) -> Vec<Offered> {
    let mut found = Vec::new();
    for tool in list(body, "tools").iter().chain(list(body, "input").iter().flat_map(|item| list(item, "tools"))) {
        if text(tool, "type") == "namespace" {
            let namespace = text(tool, "name");
            found.extend(list(tool, "tools").iter().filter_map(|inner| one(inner, Some(namespace))));
        } else {
            found.extend(one(tool, None));
        }
    }
    found
}

fn one(tool: &Value, namespace: Option<&str>) -> Option<Offered> {
    let name = tool.get("name")?.as_str()?.to_owned();
    let full = namespace.map_or_else(|| name.clone(), |namespace| format!("{namespace}__{name}"));
    let is_free_text = text(tool, "type") == "custom";
    Some(Offered { full, namespace: namespace.map(str::to_owned), name, is_free_text })
}

fn said(side: Side, text: &str) -> Message {
    let mut message = Message::new(side);
    message.say(text);
    message
}

/// An item of the input. What the developer and the system say is the system prompt, and no message.
fn message(item: &Value) -> Option<Message> {
    let (side, results) = match (text(item, "type"), text(item, "role")) {
        ("message" | "", "developer" | "system") => return None,
        ("message" | "", "assistant") => (Side::Assistant, 0),
        ("message" | "", _) => (Side::User, 0),
        (kind, _) if kind.ends_with("_output") => (Side::User, 1),
        (kind, _) if kind.ends_with("_call") || kind == "reasoning" => (Side::Assistant, 0),
        _ => return None,
    };
    let mut found = Message::new(side);
    found.results = results;
    for member in ["name", "arguments", "input"] {
        if let Some(text) = item.get(member).and_then(Value::as_str) {
            found.say(text);
        }
    }
    for member in ["content", "summary", "output"] {
        match item.get(member) {
            Some(Value::String(text)) => found.say(text),
            Some(Value::Array(parts)) => parts.iter().for_each(|part| found.say(text(part, "text"))),
            _ => {}
        }
    }
    Some(found)
}

fn envelope(asked: &Asked<'_>) -> Value {
    json!({
        "id": unique("resp"), "object": "response", "created_at": 0, "status": "in_progress", "background": false,
        "error": null, "incomplete_details": null, "model": asked.model(), "output": [], "parallel_tool_calls": true,
        "service_tier": asked.tier(), "store": false, "usage": null, "metadata": {},
    })
}

/// The envelope as it ends.
fn ended(envelope: Value, served: &Served, output: Vec<Value>) -> Value {
    let failed = |code: &str| json!({"status": "failed", "error": {"code": code, "message": "scripted failure"}});
    let incomplete =
        |reason| json!({"status": "incomplete", "incomplete_details": {"reason": reason}, "usage": usage(served)});
    let end = match (&served.step.failure, served.stop_reason()) {
        (Some(code), _) => failed(code),
        (None, StopReason::ModelContextWindowExceeded) => failed("context_length_exceeded"),
        (None, StopReason::MaxTokens) => incomplete("max_output_tokens"),
        (None, StopReason::Refusal) => incomplete("content_filter"),
        (None, _) => json!({"status": "completed", "usage": usage(served)}),
    };
    with(with(envelope, json!({ "output": output })), end)
}

/// OpenAI counts what came from the cache and what went there within the input, and reasoning within the output.
fn usage(served: &Served) -> Value {
    let used = served.usage();
    let written = used.cache_write_5m.saturating_add(used.cache_write_1h);
    let input = used.input.saturating_add(used.cache_read).saturating_add(written);
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": used.cache_read, "cache_write_tokens": written},
        "output_tokens": used.output,
        "output_tokens_details": {"reasoning_tokens": used.reasoning},
        "total_tokens": input.saturating_add(used.output),
    })
}

/// An item of the output.
struct Item {
    id: String,
    said: Said,
}

enum Said {
    Text { text: String, in_one_piece: bool },
    Call { call: Call, name: String, namespace: Option<String> },
    FreeText { call: Call, input: String },
}

fn items(served: &Served, asked: &Asked<'_>) -> Vec<Item> {
    let tools = offered(asked.body);
    let message = |text: String, in_one_piece| Item { id: unique("msg"), said: Said::Text { text, in_one_piece } };
    let call = |call: &Call| {
        let tool = tools.iter().find(|tool| tool.full == call.name);
        let call = call.clone();
        match tool {
            Some(tool) if tool.is_free_text => {
                let input = free_text(&call);
                Item { id: unique("ctc"), said: Said::FreeText { call, input } }
            }
            Some(tool) => {
                let (name, namespace) = (tool.name.clone(), tool.namespace.clone());
                Item { id: unique("fc"), said: Said::Call { call, name, namespace } }
            }
            None => {
                let name = call.name.clone();
                Item { id: unique("fc"), said: Said::Call { call, name, namespace: None } }
            }
        }
    };
    let echo = asked.echoed().map(|text| message(text, true));
    let text = served.step.text.clone().map(|text| message(text, false));
    echo.into_iter().chain(text).chain(served.calls.iter().map(call)).collect()
}

impl Item {
    fn begun(&self) -> Value {
        self.written("in_progress", "", json!([]))
    }

    fn whole(&self, status: &str) -> Value {
        match &self.said {
            Said::Text { text, .. } => self.written(status, "", json!([part(text)])),
            Said::Call { call, .. } => self.written(status, &arguments(call), Value::Null),
            Said::FreeText { input, .. } => self.written(status, input, Value::Null),
        }
    }

    fn written(&self, status: &str, given: &str, content: Value) -> Value {
        let id = &self.id;
        match &self.said {
            Said::Text { .. } => {
                json!({"type": "message", "id": id, "status": status, "role": "assistant", "content": content})
            }
            Said::Call { call, name, namespace } => {
                let item = json!({"type": "function_call", "id": id, "status": status, "call_id": call.id, "name": name, "arguments": given});
                let namespace = namespace.as_ref().map_or_else(|| json!({}), |space| json!({ "namespace": space }));
                with(item, namespace)
            }
            Said::FreeText { call, .. } => {
                json!({"type": "custom_tool_call", "id": id, "status": status, "call_id": call.id, "name": call.name, "input": given})
            }
        }
    }

    /// What comes between the item's beginning and its end.
    fn stream(&self, index: usize, stream: &mut Stream) {
        let of = json!({"item_id": self.id, "output_index": index});
        let about = |more: Value| with(of.clone(), more);
        match &self.said {
            Said::Text { text, in_one_piece } => {
                let place = json!({"content_index": 0});
                let about = |more: Value| about(with(place.clone(), more));
                stream.push("response.content_part.added", about(json!({ "part": part("") })), false);
                let mut delta = |piece: &str| {
                    stream.push("response.output_text.delta", about(json!({"delta": piece, "logprobs": []})), true);
                };
                if *in_one_piece {
                    delta(text)
                } else {
                    pieces(text).for_each(delta)
                }
                stream.push("response.output_text.done", about(json!({"text": text, "logprobs": []})), false);
                stream.push("response.content_part.done", about(json!({ "part": part(text) })), false);
            }
            Said::Call { call, name, .. } => {
                let all = arguments(call);
                for piece in pieces(&all) {
                    stream.push("response.function_call_arguments.delta", about(json!({ "delta": piece })), true);
                }
                let done = about(json!({"arguments": all, "name": name}));
                stream.push("response.function_call_arguments.done", done, false);
            }
            Said::FreeText { input, .. } => {
                for piece in pieces(input) {
                    stream.push("response.custom_tool_call_input.delta", about(json!({ "delta": piece })), true);
                }
                stream.push("response.custom_tool_call_input.done", about(json!({ "input": input })), false);
            }
        }
    }
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_is_read_from_all_its_items() {
        let talk = Responses.conversation(&json!({
            "instructions": "in the instructions",
            "input": [
                {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "in the system prompt"}]},
                {"role": "user", "content": "plain"},
                {"type": "additional_tools", "tools": [{"type": "custom", "name": "exec"}]},
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "pondered"}], "encrypted_content": "x"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look"}]},
                {"type": "function_call", "call_id": "c1", "name": "search", "arguments": "{\"q\":\"disk\"}"},
                {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin"},
                {"type": "function_call_output", "call_id": "c1", "output": "found"},
                {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "patched"}]}],
            "tools": [{"type": "function", "name": "search"}, {"type": "web_search"},
                {"type": "namespace", "name": "mcp__host", "tools": [{"type": "function", "name": "submit"}]}],
        }));
        assert_eq!(talk.results(), 2);
        assert_eq!(talk.tools, ["search", "mcp__host__submit", "exec"]);
        assert_eq!(talk.offered_name("submit"), "mcp__host__submit");
        for new in ["found", "patched"] {
            assert!(talk.newly_mentions(new), "{new}");
        }
        for old in ["plain", "pondered", "I look", "search", r#"{"q":"disk"}"#, "*** Begin"] {
            assert!(talk.mentions(old) && !talk.newly_mentions(old), "{old}");
        }
        assert!(!talk.mentions("in the"));
        assert!(Responses.conversation(&json!({"input": "just a text"})).newly_mentions("just a text"));
    }
}
