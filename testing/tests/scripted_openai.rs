//! The scripted model server's two OpenAI APIs, seen from a client: one script, other words.
// Tests: a failed unwrap is the report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod raw;

use std::io::{ErrorKind, Read};

use agentrun_testing::scripted::ScriptedModel;
use raw::{Reply, model, read_chunk, reply, send};
use serde_json::{Value, json};

const RESPONSES: &str = "/v1/responses";
const CHAT: &str = "/v1/chat/completions";

fn post(model: &ScriptedModel, path: &str, body: &Value) -> Reply {
    reply(send(model, "POST", path, "authorization: Bearer made-up\r\n", &body.to_string()))
}

fn responses(text: &str, stream: bool) -> Value {
    json!({"model": "m-1", "stream": stream, "input": [{"role": "user", "content": text}]})
}

fn chat(text: &str, stream: bool) -> Value {
    json!({"model": "m-1", "stream": stream, "stream_options": {"include_usage": stream}, "messages": [{"role": "user", "content": text}]})
}

/// The data of each event; the names of Responses events are held to their data.
fn events(text: &str) -> Vec<Value> {
    text.split_terminator("\n\n")
        .map(|event| match event.split_once('\n') {
            Some((name, data)) => {
                let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
                assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
                data
            }
            None => {
                let data = event.strip_prefix("data: ").unwrap();
                serde_json::from_str(data).unwrap_or_else(|_| json!(data))
            }
        })
        .collect()
}

fn streamed(reply: Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("text/event-stream; charset=utf-8"));
    events(&reply.body().unwrap())
}

fn of<'e>(events: &'e [Value], kind: &str) -> Vec<&'e Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

fn text_of(events: &[&Value]) -> String {
    events.iter().map(|event| event["delta"].as_str().unwrap()).collect()
}

#[test]
fn a_responses_stream_carries_items_usage_and_an_end() {
    let model = model(&json!({"steps": [{
        "text": "A sentence that takes several pieces.",
        "tools": [{"name": "search", "id": "c1", "input": {"q": "disk full", "n": [1, 2]}},
            {"name": "apply_patch", "input": {"input": "*** Begin Patch\nand its end"}},
            {"name": "submit", "id": "c3"}],
        "usage": {"input": 7, "cache_read": 11, "cache_write_5m": 13, "cache_write_1h": 17, "output": 19, "reasoning": 5}}]}));
    let mut request = responses("hi", true);
    request["tools"] = json!([{"type": "function", "name": "search"}, {"type": "custom", "name": "apply_patch"},
        {"type": "namespace", "name": "mcp__host", "tools": [{"type": "function", "name": "submit"}]}]);
    let events = streamed(post(&model, RESPONSES, &request));

    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    assert_eq!((&events[0]["type"], &events[1]["type"]), (&json!("response.created"), &json!("response.in_progress")));
    assert_eq!(events[0]["response"]["usage"], Value::Null);

    let (added, done) = (of(&events, "response.output_item.added"), of(&events, "response.output_item.done"));
    assert_eq!((added.len(), done.len()), (4, 4));
    for (index, (added, done)) in added.iter().zip(&done).enumerate() {
        assert_eq!((&added["output_index"], &done["output_index"]), (&json!(index), &json!(index)));
        assert_eq!(added["item"]["id"], done["item"]["id"]);
        assert_eq!((&added["item"]["status"], &done["item"]["status"]), (&json!("in_progress"), &json!("completed")));
    }
    let said = of(&events, "response.output_text.delta");
    assert!(said.len() > 2, "split in pieces");
    assert_eq!(text_of(&said), "A sentence that takes several pieces.");
    assert_eq!(done[0]["item"]["content"][0]["text"], "A sentence that takes several pieces.");
    let call = &done[1]["item"];
    assert_eq!(
        (&call["type"], &call["call_id"], &call["name"]),
        (&json!("function_call"), &json!("c1"), &json!("search"))
    );
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"q": "disk full", "n": [1, 2]}));
    let patch = &done[2]["item"];
    assert_eq!((&patch["type"], &patch["input"]), (&json!("custom_tool_call"), &json!("*** Begin Patch\nand its end")));
    assert_eq!(text_of(&of(&events, "response.custom_tool_call_input.delta")), "*** Begin Patch\nand its end");
    let inner = &done[3]["item"];
    assert_eq!((&inner["namespace"], &inner["name"]), (&json!("mcp__host"), &json!("submit")));

    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.completed");
    let response = &last["response"];
    assert_eq!((&response["status"], &response["model"]), (&json!("completed"), &json!("m-1")));
    assert_eq!(response["id"], events[0]["response"]["id"]);
    assert_eq!(response["output"].as_array().unwrap().len(), 4);
    assert_eq!(
        response["usage"],
        json!({"input_tokens": 48, "input_tokens_details": {"cached_tokens": 11, "cache_write_tokens": 30},
            "output_tokens": 19, "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 67})
    );
}

#[test]
fn a_chat_stream_carries_calls_a_reason_usage_and_done() {
    let model = model(&json!({"steps": [{
        "text": "A sentence that takes several pieces.",
        "tools": [{"name": "search", "id": "c1", "input": {"q": "disk full"}}, {"name": "submit", "id": "c2"}],
        "usage": {"input": 7, "cache_read": 11, "output": 19, "reasoning": 5}, "times": 2}]}));
    let mut request = chat("hi", true);
    request["tools"] = json!([{"type": "function", "function": {"name": "search"}}]);
    let mut events = streamed(post(&model, CHAT, &request));
    assert_eq!(events.pop().unwrap(), "[DONE]");
    let used = events.pop().unwrap();
    assert_eq!(used["choices"], json!([]));
    assert_eq!(
        (&used["usage"]["prompt_tokens"], &used["usage"]["completion_tokens"], &used["usage"]["total_tokens"]),
        (&json!(18), &json!(19), &json!(37))
    );
    assert_eq!(used["usage"]["prompt_tokens_details"]["cached_tokens"], 11);
    assert_eq!(used["usage"]["completion_tokens_details"]["reasoning_tokens"], 5);
    assert!(events.iter().all(|event| event["usage"].is_null() && event["id"] == used["id"]));
    let choices: Vec<&Value> = events.iter().map(|event| &event["choices"][0]).collect();
    let (last, before) = choices.split_last().unwrap();
    assert_eq!((&last["finish_reason"], &last["delta"]), (&json!("tool_calls"), &json!({})));
    assert!(before.iter().all(|choice| choice["finish_reason"].is_null()));
    let said: String = choices.iter().filter_map(|choice| choice["delta"]["content"].as_str()).collect();
    assert_eq!(said, "A sentence that takes several pieces.");
    let mut calls: Vec<(String, String)> = Vec::new();
    for piece in choices.iter().filter_map(|choice| choice["delta"]["tool_calls"].get(0)) {
        let index = piece["index"].as_u64().unwrap() as usize;
        if let Some(id) = piece["id"].as_str() {
            assert_eq!((index, piece["type"].as_str()), (calls.len(), Some("function")));
            calls.push((format!("{id} {}", piece["function"]["name"].as_str().unwrap()), String::new()));
        }
        calls[index].1.push_str(piece["function"]["arguments"].as_str().unwrap());
    }
    let call = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
    assert_eq!(calls, [call("c1 search", r#"{"q":"disk full"}"#), call("c2 submit", "{}")]);

    request["stream_options"] = Value::Null;
    let unasked = streamed(post(&model, CHAT, &request));
    assert!(unasked.iter().all(|event| event.get("usage").is_none()), "no usage where none is asked for");
    assert_eq!(unasked.last().unwrap(), "[DONE]");
}

#[test]
fn without_stream_the_same_answer_is_plain_json() {
    let model = model(
        &json!({"steps": [{"text": "Hello.", "tools": [{"name": "t", "input": {"a": 1}, "id": "t1"}], "times": 2}]}),
    );
    let whole = post(&model, RESPONSES, &responses("hi", false)).json();
    assert_eq!((&whole["object"], &whole["status"]), (&json!("response"), &json!("completed")));
    assert_eq!(whole["output"][0]["content"][0]["text"], "Hello.");
    assert_eq!(
        (&whole["output"][1]["call_id"], &whole["output"][1]["arguments"]),
        (&json!("t1"), &json!(r#"{"a":1}"#))
    );
    assert_eq!((&whole["usage"]["input_tokens"], &whole["usage"]["output_tokens"]), (&json!(100), &json!(20)));
    let whole = post(&model, CHAT, &chat("hi", false)).json();
    let choice = &whole["choices"][0];
    assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!("tool_calls"), &json!("Hello.")));
    assert_eq!(choice["message"]["tool_calls"][0]["function"], json!({"name": "t", "arguments": r#"{"a":1}"#}));
    assert_eq!((&whole["usage"]["prompt_tokens"], &whole["usage"]["completion_tokens"]), (&json!(100), &json!(20)));
}

#[test]
fn steps_follow_the_conversation_in_either_api() {
    let steps = json!({"steps": [
        {"when": {"results": 0, "contains": "ticket"}, "text": "first"},
        {"when": {"results": 1, "contains": "not found", "anywhere": "ticket"}, "text": "second"},
        {"when": {"lacks": "ticket"}, "text": "other"}]});
    let after = model(&steps);
    let request = json!({"model": "m", "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "a ticket"}]},
        {"type": "function_call", "call_id": "c", "name": "search", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "not found"}]});
    assert_eq!(post(&after, RESPONSES, &request).json()["output"][0]["content"][0]["text"], "second");
    assert_eq!(post(&after, CHAT, &chat("hello", false)).json()["choices"][0]["message"]["content"], "other");
    let first = post(&after, RESPONSES, &json!({"model": "m", "input": "a ticket"})).json();
    assert_eq!(first["output"][0]["content"][0]["text"], "first");
    let steps_served: Vec<_> = after.requests().iter().map(|request| request.step).collect();
    assert_eq!(steps_served, [Some(1), Some(2), Some(0)]);

    let after = model(&steps);
    let request = json!({"model": "m", "messages": [
        {"role": "user", "content": "a ticket"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "search", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "not found"}]});
    assert_eq!(post(&after, CHAT, &request).json()["choices"][0]["message"]["content"], "second");
}

#[test]
fn failures_come_in_the_apis_own_shape() {
    for path in [RESPONSES, CHAT] {
        let model = model(&json!({"steps": [{"status": 429, "retry_after": 3}, {"status": 401}, {"status": 503}]}));
        let ask = || post(&model, path, &if path == CHAT { chat("hi", true) } else { responses("hi", true) });
        let limited = ask();
        assert_eq!((limited.status, limited.header("retry-after")), (429, Some("3")));
        assert_eq!(limited.json()["error"]["code"], "rate_limit_exceeded");
        let stranger = ask();
        assert_eq!((stranger.status, &stranger.json()["error"]["code"]), (401, &json!("invalid_api_key")));
        let broken = ask();
        assert_eq!((broken.status, &broken.json()["error"]["type"]), (503, &json!("server_error")));
        let unserved = ask();
        assert_eq!(unserved.status, 400, "a harness would try a 500 again");
        assert!(unserved.json()["error"]["message"].as_str().unwrap().contains("every step has been served"));
    }
}

#[test]
fn a_stream_can_end_in_the_apis_own_failure() {
    let model = model(&json!({"steps": [{"text": "so far", "failure": "server_error", "times": "always"}]}));
    let events = streamed(post(&model, RESPONSES, &responses("hi", true)));
    let last = events.last().unwrap();
    assert_eq!(
        (&last["type"], &last["response"]["error"]["code"]),
        (&json!("response.failed"), &json!("server_error"))
    );
    assert_eq!(last["response"]["usage"], Value::Null);
    assert_eq!(text_of(&of(&events, "response.output_text.delta")), "so far");
    let events = streamed(post(&model, CHAT, &chat("hi", true)));
    assert_eq!(events.last().unwrap()["error"]["code"], "server_error");
    let messages = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]});
    let events = streamed(post(&model, "/v1/messages", &messages));
    assert_eq!(events.last().unwrap()["error"]["type"], "server_error");
    for (path, body) in [(RESPONSES, responses("hi", false)), (CHAT, chat("hi", false))] {
        assert_eq!(post(&model, path, &body).status, 500);
    }
}

#[test]
fn a_reason_to_stop_has_each_apis_word() {
    for (reason, responses_end, chat_end) in [
        ("max_tokens", "response.incomplete", "length"),
        ("refusal", "response.incomplete", "content_filter"),
        ("model_context_window_exceeded", "response.failed", "length"),
        ("stop_sequence", "response.completed", "stop"),
    ] {
        let model = model(&json!({"steps": [{"text": "x", "stop_reason": reason, "times": 2}]}));
        assert_eq!(streamed(post(&model, RESPONSES, &responses("hi", true))).last().unwrap()["type"], responses_end);
        let whole = post(&model, CHAT, &chat("hi", false)).json();
        assert_eq!(whole["choices"][0]["finish_reason"], chat_end);
    }
}

#[test]
fn cut_and_corrupt_answers_count_events_in_every_api() {
    for (path, body) in [(RESPONSES, responses("hi", true)), (CHAT, chat("hi", true))] {
        let cut = model(&json!({"steps": [{"text": "A sentence that takes several pieces.", "cut_after_events": 4}]}));
        let came = post(&cut, path, &body).body().expect_err("the body has no proper end");
        assert_eq!(events(&came).len(), 4, "{path}");
        let corrupt = model(&json!({"steps": [{"text": "A sentence that takes several pieces.", "corrupt": true}]}));
        let came = post(&corrupt, path, &body).body().unwrap();
        let broken = came
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .filter(|data| *data != "[DONE]" && serde_json::from_str::<Value>(data).is_err());
        assert_eq!(broken.count(), 1, "{path}");
    }
}

#[test]
fn a_stalled_answer_stays_open_and_silent_in_every_api() {
    for (path, body) in [(RESPONSES, responses("hi", true)), (CHAT, chat("hi", true))] {
        let model = model(&json!({"steps": [{"text": "A sentence.", "stall_after_events": 2}, {"text": "next"}]}));
        let mut reply = post(&model, path, &body);
        let came: String = (0..2).map(|_| String::from_utf8(read_chunk(&mut reply.body).unwrap()).unwrap()).collect();
        assert_eq!(events(&came).len(), 2);
        // Another request is answered meanwhile, so the silence below is no want of time.
        assert_eq!(post(&model, path, &body).status, 200);
        reply.body.get_ref().set_nonblocking(true).unwrap();
        assert_eq!(reply.body.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "neither bytes nor an end");
    }
}

#[test]
fn a_credential_is_given_back_whole_when_asked() {
    let model = model(&json!({"steps": [{"text": "x", "echo_authorization": true, "times": 4}]}));
    for (path, body) in [
        (RESPONSES, responses("hi", true)),
        (RESPONSES, responses("hi", false)),
        (CHAT, chat("hi", true)),
        (CHAT, chat("hi", false)),
    ] {
        let reply = post(&model, path, &body);
        assert_eq!(reply.header("x-echo-authorization"), Some("Bearer made-up"));
        assert!(reply.body().unwrap().contains("Bearer made-up"), "{path}");
    }
}

#[test]
fn what_no_provider_bills_is_answered_without_the_script_and_a_socket_is_refused() {
    let model = model(&json!({"steps": [{"text": "x"}]}));
    let models = reply(send(&model, "GET", "/v1/models", "", "")).json();
    assert_eq!((&models["data"], &models["models"]), (&json!([]), &json!([])));
    let socket = reply(send(&model, "GET", RESPONSES, "upgrade: websocket\r\nconnection: upgrade\r\n", ""));
    assert_eq!(socket.status, 426);
    let count = post(&model, "/v1/responses/input_tokens", &responses("hi", false)).json();
    assert!(count["input_tokens"].as_u64().unwrap() > 0);
    let stored = reply(send(&model, "GET", "/v1/responses/resp_1", "", ""));
    assert_eq!((stored.status, &stored.json()["error"]["type"]), (404, &json!("invalid_request_error")));
    assert!(model.requests().is_empty());
    let compact = post(&model, "/v1/responses/compact", &responses("hi", false)).json();
    assert_eq!(
        (&compact["object"], &compact["output"][0]["type"]),
        (&json!("response.compaction"), &json!("compaction"))
    );
    assert_eq!((model.requests().len(), model.all_requests().len()), (1, 5));
}
