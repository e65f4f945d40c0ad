//! The scripted model server, seen from a client: what it streams, how it fails, what it keeps.
// Tests: a failed unwrap is the report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod raw;

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;

use agentrun_testing::script::Script;
use agentrun_testing::scripted::{Options, ScriptedModel};
use raw::{Reply, model, read_chunk, reply, send};
use serde_json::{Value, json};

trait Events {
    fn events(self) -> Vec<(String, Value)>;
}

impl Events for Reply {
    fn events(self) -> Vec<(String, Value)> {
        events(&self.body().unwrap())
    }
}

fn events(text: &str) -> Vec<(String, Value)> {
    text.split_terminator("\n\n")
        .map(|event| {
            let (name, data) = event.split_once('\n').unwrap();
            let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            let name = name.strip_prefix("event: ").unwrap();
            assert_eq!(data["type"], name);
            (name.to_owned(), data)
        })
        .collect()
}

fn says(text: &str, stream: bool) -> Value {
    json!({"model": "m-1", "stream": stream, "messages": [{"role": "user", "content": text}]})
}

fn post(model: &ScriptedModel, body: &Value) -> Reply {
    reply(send(model, "POST", "/v1/messages?beta=true", "x-api-key: made-up\r\n", &body.to_string()))
}

/// Puts a streamed answer together again, as a client would.
fn assemble(events: &[(String, Value)]) -> Vec<Value> {
    let mut blocks: Vec<(Value, String)> = Vec::new();
    for (name, data) in events {
        match name.as_str() {
            "content_block_start" => {
                assert_eq!(data["index"], blocks.len());
                blocks.push((data["content_block"].clone(), String::new()));
            }
            "content_block_delta" => {
                assert_eq!(data["index"], blocks.len() - 1, "blocks do not interleave");
                let delta = &data["delta"];
                let piece = if delta["type"] == "text_delta" { &delta["text"] } else { &delta["partial_json"] };
                blocks.last_mut().unwrap().1.push_str(piece.as_str().unwrap());
            }
            _ => {}
        }
    }
    let close = |(mut block, text): (Value, String)| {
        if block["type"] == "text" {
            block["text"] = json!(text);
        } else {
            block["input"] = serde_json::from_str(&text).unwrap();
        }
        block
    };
    blocks.into_iter().map(close).collect()
}

fn names(events: &[(String, Value)]) -> Vec<&str> {
    events.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn a_stream_carries_text_calls_usage_and_a_stop_reason() {
    let model = model(&json!({"steps": [{
        "text": "A sentence that takes several pieces.",
        "tools": [{"name": "search", "input": {"q": "disk full", "deep": {"n": [1, 2, 3]}}}, {"name": "submit", "id": "t2"}],
        "usage": {"input": 7, "cache_read": 11, "cache_write_5m": 13, "cache_write_1h": 17, "output": 19}}]}));
    let mut request = says("hi", true);
    request["tools"] = json!([{"name": "search"}, {"name": "mcp__host__submit"}]);
    let reply = post(&model, &request);
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let events = reply.events();

    let names = names(&events);
    assert_eq!(names[..4], ["message_start", "content_block_start", "ping", "content_block_delta"]);
    assert_eq!(names[names.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    assert!(names.iter().filter(|n| **n == "content_block_delta").count() > 5, "split in pieces: {names:?}");

    let message = &events[0].1["message"];
    assert_eq!(message["model"], "m-1");
    let used = &message["usage"];
    assert_eq!(used["input_tokens"], 7);
    assert_eq!(used["cache_read_input_tokens"], 11);
    assert_eq!(used["cache_creation_input_tokens"], 30);
    assert_eq!(used["cache_creation"], json!({"ephemeral_5m_input_tokens": 13, "ephemeral_1h_input_tokens": 17}));
    let delta = &events[events.len() - 2].1;
    assert_eq!(delta["delta"]["stop_reason"], "tool_use");
    assert_eq!(delta["usage"]["output_tokens"], 19);

    let blocks = assemble(&events);
    assert_eq!(blocks[0], json!({"type": "text", "text": "A sentence that takes several pieces."}));
    assert_eq!(blocks[1]["name"], "search");
    assert_eq!(blocks[1]["input"], json!({"q": "disk full", "deep": {"n": [1, 2, 3]}}));
    assert_eq!(blocks[2], json!({"type": "tool_use", "id": "t2", "name": "mcp__host__submit", "input": {}}));
}

#[test]
fn without_stream_the_same_answer_is_plain_json() {
    let step =
        json!({"text": "Hello there, and more.", "tools": [{"name": "t", "input": {"a": 1}, "id": "t1"}], "times": 2});
    let model = model(&json!({"steps": [step]}));
    let whole = post(&model, &says("hi", false)).json();
    assert_eq!(whole["content"], json!(assemble(&post(&model, &says("hi", true)).events())));
    assert_eq!(whole["stop_reason"], "tool_use");
    assert_eq!((&whole["usage"]["input_tokens"], &whole["usage"]["output_tokens"]), (&json!(100), &json!(20)));
}

#[test]
fn a_stop_reason_can_be_scripted() {
    let model = model(&json!({"steps": [{"text": "cut sh", "stop_reason": "max_tokens"}, {"text": "whole"}]}));
    assert_eq!(post(&model, &says("hi", false)).json()["stop_reason"], "max_tokens");
    assert_eq!(post(&model, &says("hi", false)).json()["stop_reason"], "end_turn");
}

#[test]
fn an_offered_name_with_a_prefix_is_called_for_the_scripted_one() {
    let model = model(&json!({"steps": [{"tools": [{"name": "submit"}], "times": "always"}]}));
    let called = |tools: &[&str]| {
        let mut request = says("hi", false);
        request["tools"] = tools.iter().map(|name| json!({"name": name})).collect();
        post(&model, &request).json()["content"][0]["name"].clone()
    };
    assert_eq!(called(&["Bash", "submit"]), "submit");
    assert_eq!(called(&["Bash", "mcp__host__submit"]), "mcp__host__submit");
    assert_eq!(called(&["mcp__a__submit", "mcp__b__submit"]), "submit");
    assert_eq!(called(&[]), "submit");
}

#[test]
fn steps_follow_the_conversation_and_not_the_order_of_requests() {
    let model = model(&json!({"steps": [
        {"when": {"results": 0, "contains": "ticket"}, "text": "first"},
        {"when": {"results": 1, "contains": "not found", "anywhere": "ticket"}, "text": "second"},
        {"when": {"lacks": "ticket"}, "text": "other"}]}));
    let after_call = json!({"model": "m", "messages": [
        {"role": "user", "content": "a ticket"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "search", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "not found"}]}]}]});
    assert_eq!(post(&model, &after_call).json()["content"][0]["text"], "second");
    assert_eq!(post(&model, &says("hello", false)).json()["content"][0]["text"], "other");
    assert_eq!(post(&model, &says("a ticket", false)).json()["content"][0]["text"], "first");
    let steps: Vec<_> = model.requests().iter().map(|r| r.step).collect();
    assert_eq!(steps, [Some(1), Some(2), Some(0)]);
}

#[test]
fn a_request_that_fits_no_step_is_refused_kept_and_told_what_is_left() {
    let model = model(&json!({"steps": [{"text": "x"}, {"when": {"contains": "ticket"}, "text": "y"}]}));
    post(&model, &says("hi", false)).json();
    let refused = post(&model, &says("hi", true));
    assert_eq!(refused.status, 500);
    let body = refused.json();
    assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!("api_error")));
    let message = body["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("steps[1]") && message.contains("\"ticket\"") && !message.contains("steps[0]"),
        "{message}"
    );
    let requests = model.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].step, None);
}

#[test]
fn a_status_is_answered_in_the_providers_shape() {
    let model = model(
        &json!({"steps": [{"status": 429, "retry_after": 3}, {"status": 529}, {"status": 401}, {"text": "well"}]}),
    );
    let limited = post(&model, &says("hi", true));
    assert_eq!((limited.status, limited.header("retry-after")), (429, Some("3")));
    assert_eq!(limited.json()["error"]["type"], "rate_limit_error");
    let overloaded = post(&model, &says("hi", true));
    assert_eq!((overloaded.status, overloaded.header("retry-after")), (529, None));
    assert_eq!(overloaded.json()["error"]["type"], "overloaded_error");
    let stranger = post(&model, &says("hi", true));
    assert_eq!(stranger.status, 401);
    assert_eq!(stranger.json()["error"]["type"], "authentication_error");
    assert_eq!(post(&model, &says("hi", true)).status, 200);
}

#[test]
fn a_cut_answer_ends_after_exactly_so_many_events() {
    for count in [0, 1, 4] {
        let model =
            model(&json!({"steps": [{"text": "A sentence that takes several pieces.", "cut_after_events": count}]}));
        let reply = post(&model, &says("hi", true));
        assert_eq!(reply.status, 200);
        let came = reply.body().expect_err("the body has no proper end");
        assert_eq!(events(&came).len(), count);
    }
    let model = model(&json!({"steps": [{"text": "not streamed", "cut_after_events": 3}]}));
    let came = post(&model, &says("hi", false)).body().expect_err("shorter than promised");
    assert!(came.starts_with('{') && serde_json::from_str::<Value>(&came).is_err());
}

#[test]
fn a_stalled_answer_stays_open_and_silent() {
    let model = model(
        &json!({"steps": [{"text": "A sentence that takes several pieces.", "stall_after_events": 3}, {"text": "next"}]}),
    );
    let mut reply = post(&model, &says("hi", true));
    let came: String = (0..3).map(|_| String::from_utf8(read_chunk(&mut reply.body).unwrap()).unwrap()).collect();
    assert_eq!(names(&events(&came)), ["message_start", "content_block_start", "ping"]);
    // Another request is answered meanwhile, so the silence below is no want of time.
    assert_eq!(post(&model, &says("hi", false)).json()["content"][0]["text"], "next");
    reply.body.get_ref().set_nonblocking(true).unwrap();
    assert_eq!(reply.body.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "neither bytes nor an end");
    drop(model);
    reply.body.get_ref().set_nonblocking(false).unwrap();
    let mut rest = Vec::new();
    let end = reply.body.read_to_end(&mut rest);
    assert!(
        rest.is_empty() && !matches!(end, Err(e) if e.kind() == ErrorKind::WouldBlock),
        "dropping the model closes the connection"
    );
}

#[test]
fn a_silent_head_holds_only_its_own_request() {
    let model = model(
        &json!({"steps": [{"when": {"contains": "slow"}, "text": "late", "stall_ms": 600_000}, {"text": "prompt"}]}),
    );
    let slow = send(&model, "POST", "/v1/messages", "", &says("slow", false).to_string());
    wait_for(&model, 1);
    assert_eq!(post(&model, &says("quick", false)).json()["content"][0]["text"], "prompt");
    slow.set_nonblocking(true).unwrap();
    assert_eq!((&slow).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_paced_answer_gives_one_event_and_then_waits() {
    let model = model(&json!({"steps": [{"text": "paced", "event_delay_ms": 600_000}, {"text": "prompt"}]}));
    let mut reply = post(&model, &says("hi", true));
    let first = String::from_utf8(read_chunk(&mut reply.body).unwrap()).unwrap();
    assert_eq!(names(&events(&first)), ["message_start"]);
    assert_eq!(post(&model, &says("hi", false)).json()["content"][0]["text"], "prompt");
    reply.body.get_ref().set_nonblocking(true).unwrap();
    assert_eq!(reply.body.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn silence_and_pacing_end_and_the_answer_is_whole() {
    let model = model(&json!({"steps": [{"text": "at last", "stall_ms": 1, "event_delay_ms": 1}]}));
    let events = post(&model, &says("hi", true)).events();
    assert_eq!(assemble(&events), [json!({"type": "text", "text": "at last"})]);
    assert_eq!(events.last().unwrap().0, "message_stop");
}

#[test]
fn a_corrupt_answer_breaks_one_event_and_keeps_the_usage() {
    let model = model(&json!({"steps": [{"text": "some words", "corrupt": true, "times": 2}]}));
    let body = post(&model, &says("hi", true)).body().unwrap();
    let data: Vec<_> =
        body.lines().filter_map(|l| l.strip_prefix("data: ")).map(serde_json::from_str::<Value>).collect();
    assert_eq!(data.iter().filter(|d| d.is_err()).count(), 1);
    assert_eq!(data[0].as_ref().unwrap()["message"]["usage"]["input_tokens"], 100);
    assert_eq!(data.last().unwrap().as_ref().unwrap()["type"], "message_stop");
    let body = post(&model, &says("hi", false)).body().unwrap();
    assert!(serde_json::from_str::<Value>(&body).is_err());
}

#[test]
fn a_credential_is_given_back_in_header_and_body_when_asked() {
    let model = model(&json!({"steps": [
        {"text": "x", "echo_authorization": true, "times": 2}, {"status": 401, "echo_authorization": true}, {"text": "x"}]}));
    let ask = |stream| {
        let body = says("hi", stream).to_string();
        let reply = reply(send(&model, "POST", "/v1/messages", "authorization: Bearer canary-0123456789\r\n", &body));
        (reply.header("x-echo-authorization").map(str::to_owned), reply.body().unwrap())
    };
    for stream in [true, false, true] {
        let (header, body) = ask(stream);
        assert_eq!(header.as_deref(), Some("Bearer canary-0123456789"));
        assert!(body.contains("Bearer canary-0123456789"), "whole in the bytes: {body}");
    }
    let (header, body) = ask(true);
    assert_eq!(header, None);
    assert!(!body.contains("canary"));
}

#[test]
fn what_no_provider_bills_is_answered_without_the_script() {
    let model = model(&json!({"steps": [{"text": "x"}]}));
    assert_eq!(reply(send(&model, "HEAD", "/", "", "")).status, 200);
    let count =
        reply(send(&model, "POST", "/v1/messages/count_tokens?beta=true", "", &says("hi", false).to_string())).json();
    assert!(count["input_tokens"].as_u64().unwrap() > 0);
    let models = reply(send(&model, "GET", "/v1/models?client_version=1", "", ""));
    assert_eq!((models.status, &models.json()["data"]), (200, &json!([])));
    let unknown = reply(send(&model, "GET", "/v1/complete", "", ""));
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.json()["error"]["type"], "not_found_error");
    let broken = reply(send(&model, "POST", "/v1/messages", "", "{not json"));
    assert_eq!(broken.status, 400);
    assert_eq!(broken.json()["error"]["type"], "invalid_request_error");
    assert!(model.requests().is_empty());
    let all = model.all_requests();
    assert_eq!(all.iter().map(|r| r.method.as_str()).collect::<Vec<_>>(), ["HEAD", "POST", "GET", "GET", "POST"]);
    assert_eq!(all[4].body, json!("{not json"));
}

#[test]
fn a_request_is_kept_whole() {
    let model = model(&json!({"steps": [{"text": "x"}]}));
    let request = says("hi", false);
    post(&model, &request).json();
    let seen = &model.requests()[0];
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/v1/messages?beta=true"));
    assert_eq!(seen.headers["x-api-key"], "made-up");
    assert_eq!(seen.body, request);
    assert_eq!(seen.step, Some(0));
}

#[test]
fn the_log_holds_a_request_before_its_answer_begins() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = OpenOptions::new().create(true).append(true).open(&path).unwrap();
    // The answer never begins: whatever stands in the log was written before it.
    let script = Script::parse(r#"{"steps":[{"text":"x","stall_ms":600000}]}"#).unwrap();
    let model = ScriptedModel::start_with(script, Options { port: 0, log: Some(log) }).unwrap();
    let _held = send(&model, "POST", "/v1/messages", "x-api-key: made-up\r\n", &says("hi", true).to_string());
    wait_for(&model, 1);
    let line: Value =
        serde_json::from_str(std::fs::read_to_string(&path).unwrap().strip_suffix('\n').unwrap()).unwrap();
    assert_eq!(line["step"], 0);
    assert_eq!(line["path"], "/v1/messages");
    assert_eq!(line["headers"]["x-api-key"], "made-up");
    assert_eq!(line["body"]["messages"][0]["content"], "hi");
    assert!(line["time_ms"].as_u64().unwrap() > 0);
}

#[test]
fn a_log_that_cannot_be_written_fails_the_request() {
    let full = OpenOptions::new().append(true).open("/dev/full").unwrap();
    let script = Script::parse(r#"{"steps":[{"text":"x"}]}"#).unwrap();
    let model = ScriptedModel::start_with(script, Options { port: 0, log: Some(full) }).unwrap();
    let reply = post(&model, &says("hi", true));
    assert_eq!(reply.status, 500);
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("log"));
}

#[test]
fn a_dropped_model_takes_no_more_connections() {
    let model = model(&json!({"steps": [{"text": "x"}]}));
    let address = model.base_url().strip_prefix("http://").unwrap().to_owned();
    drop(model);
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn waiting_ends_with_the_request_that_was_waited_for() {
    let model = model(&json!({"steps": [{"text": "x", "times": "always"}]}));
    let (_, seen) = tokio::join!(
        async {
            tokio::task::yield_now().await;
            let _ = send(&model, "HEAD", "/", "", "");
            for text in ["one", "two"] {
                post(&model, &says(text, true)).events();
            }
        },
        model.wait_for_requests(2)
    );
    assert_eq!(seen.unwrap()[1].body["messages"][0]["content"], "two");
}

fn wait_for(model: &ScriptedModel, requests: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(model.wait_for_requests(requests)).unwrap();
}
