//! A recorded model response, whole, as the program would have stored it: its words and its calls. Used to write back one that was paid
//! for and never stored.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::json::at;
use super::timeline::Row;

/// What a response says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Said {
    pub(super) text: String,
    pub(super) calls: Vec<SaidCall>,
}

/// A call in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SaidCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: Value,
}

impl Said {
    /// Whether this answer holds it whole.
    pub(super) fn is_whole_in(&self, row: &Row) -> bool {
        let made = row.calls().filter(|call| call.status() != "pending").map(|call| call.id);
        row.text().trim() == self.text.trim()
            && made.eq(self.calls.iter().map(|call| call.id.as_str()))
            && !(self.text.is_empty() && self.calls.is_empty() && row.parts.is_empty())
    }

    /// Whether this answer can have been made of it, and ends before it does.
    pub(super) fn may_fill(&self, row: &Row) -> bool {
        let text = row.text();
        (text.is_empty() || text.trim() == self.text.trim())
            && row.calls().all(|call| self.calls.iter().any(|wanted| wanted.id == call.id && wanted.name == call.tool))
    }
}

/// The response in `bytes`: an event stream as it came, or one JSON object, of chat completions or of Anthropic Messages. `None` unless it
/// is whole: half a response is not what was paid for, and a call in it may be cut.
pub(super) fn assemble(bytes: &[u8]) -> Option<Said> {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(whole) = serde_json::from_str::<Value>(&text) {
        return if *at(&whole, "/type") == "message" { message(&whole) } else { completion(&whole) };
    }
    let mut chat = Chat::default();
    let mut events = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim).peekable();
    if events.peek().is_some_and(|first| first.contains("message_start")) {
        return message(&crate::messages::assemble(bytes)?);
    }
    for data in events {
        if data == "[DONE]" {
            break;
        }
        chat.take(&serde_json::from_str(data).ok()?);
    }
    chat.whole()
}

/// A stream of chat completions, being put together.
#[derive(Default)]
struct Chat {
    text: String,
    calls: BTreeMap<u64, Piece>,
    finished: bool,
}

#[derive(Default)]
struct Piece {
    id: String,
    name: String,
    arguments: String,
}

impl Chat {
    fn take(&mut self, chunk: &Value) {
        // Other choices are not asked for, and the last chunk may have none.
        let choice = at(chunk, "/choices/0");
        self.finished |= choice["finish_reason"].is_string();
        self.text.push_str(at(choice, "/delta/content").as_str().unwrap_or_default());
        for call in at(choice, "/delta/tool_calls").as_array().into_iter().flatten() {
            let piece = self.calls.entry(at(call, "/index").as_u64().unwrap_or(0)).or_default();
            for (to, from) in [(&mut piece.id, at(call, "/id")), (&mut piece.name, at(call, "/function/name"))] {
                if let Some(text) = from.as_str().filter(|_| to.is_empty()) {
                    to.push_str(text);
                }
            }
            piece.arguments.push_str(at(call, "/function/arguments").as_str().unwrap_or_default());
        }
    }

    fn whole(self) -> Option<Said> {
        if !self.finished {
            return None;
        }
        let calls = self.calls.into_values().map(|piece| SaidCall {
            id: piece.id,
            name: piece.name,
            arguments: arguments(&piece.arguments),
        });
        Some(Said { text: self.text, calls: calls.collect() })
    }
}

/// One chat completion that did not stream.
fn completion(whole: &Value) -> Option<Said> {
    let choice = at(whole, "/choices/0");
    choice["finish_reason"].as_str()?;
    let calls = at(choice, "/message/tool_calls").as_array().into_iter().flatten().map(|call| SaidCall {
        id: at(call, "/id").as_str().unwrap_or_default().to_owned(),
        name: at(call, "/function/name").as_str().unwrap_or_default().to_owned(),
        arguments: arguments(at(call, "/function/arguments").as_str().unwrap_or_default()),
    });
    Some(Said { text: at(choice, "/message/content").as_str().unwrap_or_default().to_owned(), calls: calls.collect() })
}

/// A message of Anthropic's.
fn message(whole: &Value) -> Option<Said> {
    let mut said = Said::default();
    for block in at(whole, "/content").as_array()? {
        match at(block, "/type").as_str() {
            Some("text") => said.text.push_str(at(block, "/text").as_str().unwrap_or_default()),
            Some("tool_use") => said.calls.push(SaidCall {
                id: at(block, "/id").as_str()?.to_owned(),
                name: at(block, "/name").as_str()?.to_owned(),
                arguments: at(block, "/input").clone(),
            }),
            _ => {}
        }
    }
    Some(said)
}

/// Arguments are JSON in a string; what cannot be read is what the program could not read either.
fn arguments(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!({}))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = r#"data: {"id":"c1","choices":[{"index":0,"delta":{"role":"assistant","content":"Wor"},"finish_reason":null}]}

data: {"id":"c1","choices":[{"index":0,"delta":{"content":"king."},"finish_reason":null}]}

data: {"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t","function":{"name":"work","arguments":"{\"a\""}}]},"finish_reason":null}]}

data: {"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]},"finish_reason":null}]}

"#;
    const LAST: &str = r#"data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}

data: [DONE]
"#;

    #[test]
    fn f08_a_recorded_stream_of_chunks_becomes_the_words_and_calls_it_says() {
        let said = assemble(format!("{STREAM}{LAST}").as_bytes()).unwrap();
        let call = SaidCall { id: "t".to_owned(), name: "work".to_owned(), arguments: json!({"a": 1}) };
        assert_eq!(said, Said { text: "Working.".to_owned(), calls: vec![call] });
    }

    #[test]
    fn a_stream_that_was_cut_is_no_response() {
        assert_eq!(assemble(STREAM.as_bytes()), None);
        assert_eq!(assemble(b""), None);
        assert_eq!(assemble(br#"{"error":{"message":"no"}}"#), None);
    }

    #[test]
    fn f08_a_completion_that_did_not_stream_is_read_too() {
        let whole = json!({"choices": [{"finish_reason": "tool_calls", "message": {"content": null, "tool_calls": [
            {"id": "t", "type": "function", "function": {"name": "work", "arguments": "{}"}}]}}]});
        let said = assemble(whole.to_string().as_bytes()).unwrap();
        assert_eq!((said.text.as_str(), said.calls[0].name.as_str()), ("", "work"));
    }
}
