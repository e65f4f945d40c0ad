//! What is asked and answered: requests shaped like an agent's, in the sizes the figures name, and the answers of the scripted provider.

use serde_json::{Value, json};

pub(crate) const MODEL: &str = "claude-sonnet-4-5";

/// What a tool gives back is real code: this program's own.
const CODE: &str = concat!(include_str!("load.rs"), include_str!("process.rs"), include_str!("report.rs"));

fn tool(n: usize) -> Value {
    let member = |name: &str| json!({"type": "string", "description": format!("The {name} of tool {n}, as the harness documents it.")});
    json!({"name": format!("tool_{n}"), "description": "Does one thing, and says in a paragraph what it does. ".repeat(4),
        "input_schema": {"type": "object", "required": ["path"], "additionalProperties": false,
            "properties": {"path": member("path"), "pattern": member("pattern"), "replacement": member("replacement")}}})
}

/// A Messages request of about so many bytes: tools, then calls and their results until the size is reached.
pub(crate) fn request(bytes: usize, stream: bool) -> Vec<u8> {
    let tools: Vec<Value> = (0..(bytes / 2_000).clamp(2, 20)).map(tool).collect();
    let mut messages = vec![json!({"role": "user", "content": "Look at the files and say what is wrong with them."})];
    let whole = |messages: &[Value]| {
        json!({"stream": stream, "model": MODEL, "max_tokens": 1024, "system": "You are a careful reader of code.",
            "tools": tools, "messages": messages})
        .to_string()
    };
    let mut n = 0;
    while whole(&messages).len() < bytes {
        let missing = bytes - whole(&messages).len();
        let id = format!("toolu_{n}");
        let input = json!({"path": format!("src/file_{n}.rs"), "pattern": "fn main"});
        // A piece of some 4 KB, another one each time.
        let from = (n * 2_003) % (CODE.len() / 2);
        let result: String = CODE.chars().skip(from).take((missing / 10 * 9).clamp(200, 4_000)).collect();
        messages.push(json!({"role": "assistant", "content": [{"type": "text", "text": "I look at it."},
            {"type": "tool_use", "id": id, "name": "tool_1", "input": input}]}));
        messages.push(json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id,
            "content": [{"type": "text", "text": result}]}]}));
        n += 1;
    }
    whole(&messages).into_bytes()
}

/// The answer in one piece, head and body.
pub(crate) fn answer() -> Vec<u8> {
    let body = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "stop_reason": "end_turn",
        "stop_sequence": null, "content": [{"type": "text", "text": "The second file opens what it never closes. ".repeat(20)}],
        "usage": {"input_tokens": 1500, "output_tokens": 200, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}})
    .to_string();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nrequest-id: req_1\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

pub(crate) const STREAM_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nrequest-id: req_1\r\ntransfer-encoding: chunked\r\n\r\n";

/// The answer as events, each in its chunk. The last one ends the answer.
pub(crate) fn events() -> Vec<Vec<u8>> {
    let event = |kind: &str, mut data: Value| {
        data["type"] = json!(kind);
        format!("event: {kind}\ndata: {data}\n\n")
    };
    let usage = json!({"input_tokens": 1500, "output_tokens": 1, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0});
    let mut all = vec![
        event(
            "message_start",
            json!({"message": {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": usage}}),
        ),
        event("content_block_start", json!({"index": 0, "content_block": {"type": "text", "text": ""}})),
    ];
    for _ in 0..20 {
        all.push(event(
            "content_block_delta",
            json!({"index": 0, "delta": {"type": "text_delta", "text": "a piece of text, "}}),
        ));
    }
    all.push(event("content_block_stop", json!({"index": 0})));
    all.push(event(
        "message_delta",
        json!({"delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": 200}}),
    ));
    all.push(event("message_stop", json!({})));
    let chunk = |event: String| format!("{:x}\r\n{event}\r\n", event.len()).into_bytes();
    let mut chunks: Vec<Vec<u8>> = all.into_iter().map(chunk).collect();
    chunks.last_mut().unwrap().extend_from_slice(b"0\r\n\r\n");
    chunks
}
