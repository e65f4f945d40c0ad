//! A recorded model response, whole: the items it made, from the stream as it came. Used to write a response back that was paid for and
//! never reached the rollout.

use serde_json::Value;

/// The items of the response in `bytes`: an event stream, or the one JSON object of a request that did not stream. `None` unless it came
/// to its end: half a response is not what was paid for, and a call in it may be cut. One that ended early (`incomplete`, `failed`) gives
/// the items it had finished.
pub(super) fn items(bytes: &[u8]) -> Option<Vec<Value>> {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(whole) = serde_json::from_str::<Value>(&text) {
        let is_response = whole.get("object").and_then(Value::as_str) == Some("response");
        return is_response.then(|| output(&whole)).flatten();
    }
    let mut done = Vec::new();
    for line in text.lines() {
        // `event:` lines repeat what the data says.
        let Some(data) = line.strip_prefix("data:").map(str::trim_start).filter(|data| *data != "[DONE]") else {
            continue;
        };
        let event: Value = serde_json::from_str(data).ok()?;
        match event.get("type").and_then(Value::as_str).unwrap_or_default() {
            "response.output_item.done" => done.extend(event.get("item").cloned()),
            "response.completed" | "response.incomplete" | "response.failed" => return Some(done),
            _ => {}
        }
    }
    None
}

fn output(response: &Value) -> Option<Vec<Value>> {
    response.get("output").and_then(Value::as_array).cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const STREAM: &str = r#"event: response.created
data: {"type":"response.created","response":{"id":"resp_1","output":[]}}

data: {"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"msg_1","content":[]}}
data: {"type":"response.output_text.delta","item_id":"msg_1","delta":"Wor"}
data: {"type":"response.output_item.done","output_index":0,"item":{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"Working."}]}}
data: {"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"fc_1","call_id":"c","name":"work","arguments":"{}"}}
"#;

    #[test]
    fn f08_a_recorded_stream_gives_the_items_it_made() {
        let stream = format!("{STREAM}data: {{\"type\":\"response.completed\",\"response\":{{\"id\":\"resp_1\"}}}}\n");
        let items = items(stream.as_bytes()).unwrap();
        assert_eq!(items.len(), 2);
        assert_eq!((&items[0]["content"][0]["text"], &items[1]["call_id"]), (&json!("Working."), &json!("c")));
    }

    #[test]
    fn a_stream_that_was_cut_is_no_response() {
        assert_eq!(items(STREAM.as_bytes()), None);
        assert_eq!(items(b""), None);
        assert_eq!(items(br#"{"error":{}}"#), None);
    }
}
