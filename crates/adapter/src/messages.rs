//! A recorded response of Anthropic Messages, whole: the stream's events put together into the message they make. Used to write a response back that was
//! paid for and never reached the transcript.

use serde_json::{Map, Value, json};

/// The message in `bytes`: an event stream as it came, or the one JSON object of a request that did not stream. `None` unless it is
/// whole: half a response is not what was paid for, and a call in it may be cut.
pub(crate) fn assemble(bytes: &[u8]) -> Option<Value> {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(message) = serde_json::from_str::<Value>(&text) {
        return (message.get("type")?.as_str()? == "message").then_some(message);
    }
    let mut building = Building::default();
    for line in text.lines() {
        // `event:` lines repeat what the data says.
        let Some(data) = line.strip_prefix("data:") else { continue };
        building.take(&serde_json::from_str(data.trim_start()).ok()?);
    }
    building.whole()
}

#[derive(Default)]
struct Building {
    message: Option<Map<String, Value>>,
    blocks: Vec<Value>,
    /// Arguments of the block being built, which come in pieces of JSON text.
    arguments: String,
    stopped: bool,
}

impl Building {
    fn take(&mut self, event: &Value) {
        match event.get("type").and_then(Value::as_str).unwrap_or_default() {
            "message_start" => self.message = event.get("message").and_then(Value::as_object).cloned(),
            "content_block_start" => {
                self.arguments.clear();
                self.blocks.extend(event.get("content_block").cloned());
            }
            "content_block_delta" => self.grow(event.get("delta").unwrap_or(&Value::Null)),
            "content_block_stop" => self.close(),
            "message_delta" => {
                if let Some(message) = &mut self.message {
                    for name in ["delta", "usage"] {
                        let from = event.get(name).and_then(Value::as_object).cloned().unwrap_or_default();
                        if name == "delta" {
                            message.extend(from);
                        } else if let Some(usage) = message.get_mut("usage").and_then(Value::as_object_mut) {
                            usage.extend(from);
                        }
                    }
                }
            }
            "message_stop" => self.stopped = true,
            _ => {}
        }
    }

    fn grow(&mut self, delta: &Value) {
        let piece = |name: &str| delta.get(name).and_then(Value::as_str).unwrap_or_default();
        let field = match delta.get("type").and_then(Value::as_str).unwrap_or_default() {
            "text_delta" => "text",
            "thinking_delta" => "thinking",
            "signature_delta" => "signature",
            "input_json_delta" => {
                self.arguments.push_str(piece("partial_json"));
                return;
            }
            _ => return,
        };
        let Some(block) = self.blocks.last_mut().and_then(Value::as_object_mut) else { return };
        let grown = block.get(field).and_then(Value::as_str).unwrap_or_default().to_owned() + piece(field);
        block.insert(field.to_owned(), json!(grown));
    }

    fn close(&mut self) {
        let arguments = std::mem::take(&mut self.arguments);
        if let (Ok(input), Some(block)) =
            (serde_json::from_str::<Value>(&arguments), self.blocks.last_mut().and_then(Value::as_object_mut))
        {
            block.insert("input".to_owned(), input);
        }
    }

    fn whole(self) -> Option<Value> {
        let mut message = self.message.filter(|_| self.stopped)?;
        message.insert("content".to_owned(), Value::Array(self.blocks));
        Some(Value::Object(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":3,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Wor"}}
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"king."}}
data: {"type":"content_block_stop","index":0}
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"mcp__host__work","input":{}}}
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":":1}"}}
data: {"type":"content_block_stop","index":1}
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":25}}
"#;

    #[test]
    fn f08_a_recorded_stream_becomes_the_message_it_made() {
        let message = assemble(format!("{STREAM}data: {{\"type\":\"message_stop\"}}\n").as_bytes()).unwrap();
        assert_eq!(message["content"][0]["text"], "Working.");
        assert_eq!(message["content"][1]["input"], json!({"a": 1}));
        assert_eq!(
            (&message["stop_reason"], &message["usage"]),
            (&json!("tool_use"), &json!({"input_tokens": 3, "output_tokens": 25}))
        );
    }

    #[test]
    fn a_stream_that_was_cut_is_no_response() {
        assert_eq!(assemble(STREAM.as_bytes()), None);
        assert_eq!(assemble(b""), None);
        assert_eq!(assemble(br#"{"type":"error","error":{}}"#), None);
    }
}
