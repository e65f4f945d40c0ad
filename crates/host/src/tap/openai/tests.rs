use super::*;
use agentrun_cap::{Catalog, price};
use serde_json::{Value, json};

/// A Responses stream; the end's `response` is given.
fn responses(end: &str, response: &Value) -> String {
    let begun = json!({"id": "resp_1", "object": "response", "status": "in_progress", "model": "gpt-x", "output": [], "usage": null});
    let item = json!({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": "data: {\"type\":\"response.completed\"}\n\nhello"}]});
    [
        ("response.created", json!({ "response": begun })),
        ("response.output_item.added", json!({"output_index": 0, "item": item})),
        ("response.output_text.delta", json!({"item_id": "msg_1", "delta": "hello"})),
        ("response.output_item.done", json!({"output_index": 0, "item": item})),
        (end, json!({ "response": response })),
    ]
    .iter()
    .map(|(kind, data)| {
        let mut data = data.clone();
        data["type"] = json!(kind);
        format!("event: {kind}\ndata: {data}\n\n")
    })
    .collect()
}

fn answered(usage: &Value) -> Value {
    json!({"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-x", "service_tier": "default",
        "output": [{"type": "message", "content": []}], "usage": usage})
}

fn response_usage() -> Value {
    json!({"input_tokens": 10_000, "input_tokens_details": {"cached_tokens": 6_000, "cache_write_tokens": 2_000},
        "output_tokens": 1_000, "output_tokens_details": {"reasoning_tokens": 800}, "total_tokens": 11_000})
}

/// A chat stream whose usage comes in a chunk of its own.
fn chat(usage: &Value) -> String {
    let chunk = |choices: Value, usage: Value| {
        json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "gpt-x", "service_tier": "default",
            "choices": choices, "usage": usage})
    };
    let choice = |delta: Value, finish: Value| json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
    [
        chunk(choice(json!({"role": "assistant", "content": ""}), Value::Null), Value::Null),
        chunk(choice(json!({"content": "data: [DONE]\n\nhello"}), Value::Null), Value::Null),
        chunk(choice(json!({}), json!("stop")), Value::Null),
        chunk(json!([]), usage.clone()),
    ]
    .iter()
    .map(|chunk| format!("data: {chunk}\n\n"))
    .chain(["data: [DONE]\n\n".to_owned()])
    .collect()
}

fn chat_usage() -> Value {
    json!({"prompt_tokens": 10_000, "prompt_tokens_details": {"cached_tokens": 6_000, "cache_write_tokens": 2_000, "audio_tokens": 0},
        "completion_tokens": 1_000, "completion_tokens_details": {"reasoning_tokens": 800, "audio_tokens": 0}, "total_tokens": 11_000})
}

fn used(id: &str) -> Option<Metered> {
    let usage = Usage { input: 2_000, cache_read: 6_000, cache_write_5m: 2_000, output: 1_000, ..Usage::default() };
    Some(Metered { model: "gpt-x".to_owned(), id: Some(id.to_owned()), usage })
}

/// A recorded stream, the tap that reads it, and what it says.
struct Case {
    text: String,
    tap: fn() -> Box<dyn Tap>,
    says: Option<Metered>,
}

fn cases() -> [Case; 2] {
    [
        Case {
            text: responses("response.completed", &answered(&response_usage())),
            tap: || Box::new(ResponsesStream::default()),
            says: used("resp_1"),
        },
        Case { text: chat(&chat_usage()), tap: || Box::new(ChatStream::default()), says: used("chatcmpl-1") },
    ]
}

fn fed<'p>(tap: fn() -> Box<dyn Tap>, parts: impl IntoIterator<Item = &'p [u8]>) -> Option<Metered> {
    let mut tap = tap();
    for part in parts {
        tap.feed(part);
    }
    tap.finish()
}

fn read(tap: fn() -> Box<dyn Tap>, text: &str) -> Option<Metered> {
    fed(tap, [text.as_bytes()])
}

#[test]
fn b90_cached_and_written_tokens_are_part_of_the_input_and_reasoning_of_the_output_wherever_the_stream_is_split() {
    for Case { text, tap, says } in cases() {
        for split in 0..=text.len() {
            let (head, tail) = text.as_bytes().split_at(split);
            assert_eq!(fed(tap, [head, tail]), says, "split at {split}");
        }
    }
}

#[test]
fn b90_byte_by_byte_and_with_other_line_ends_it_says_the_same() {
    for Case { text, tap, says } in cases() {
        assert_eq!(fed(tap, text.as_bytes().chunks(1)), says);
        let crlf: String = text
            .lines()
            .map(|line| match line.strip_prefix("data: ") {
                Some(data) => format!(": a comment\r\nid: 1\r\ndata:{data}\r\n"),
                None => format!("{line}\r\n"),
            })
            .collect();
        assert_eq!(fed(tap, crlf.as_bytes().chunks(1)), says);
    }
}

#[test]
fn b90_a_stream_cut_anywhere_before_its_end_says_nothing() {
    for Case { text, tap, .. } in cases() {
        for cut in 0..text.len() {
            assert_eq!(fed(tap, [&text.as_bytes()[..cut]]), None, "cut at {cut}");
        }
    }
}

#[test]
fn b90_it_is_whole_with_its_last_word_and_not_before() {
    for Case { text, tap, .. } in cases() {
        let mut tap = tap();
        let (head, last) = text.as_bytes().split_at(text.len() - 1);
        tap.feed(head);
        assert!(!tap.is_whole());
        tap.feed(last);
        assert!(tap.is_whole());
    }
}

#[test]
fn b90_the_same_usage_streamed_or_not_is_read_the_same() {
    let [one, two] = cases();
    assert_eq!(response(answered(&response_usage()).to_string().as_bytes()), one.says);
    let whole = json!({"id": "chatcmpl-1", "object": "chat.completion", "model": "gpt-x", "service_tier": "default",
        "choices": [{"index": 0, "message": {"content": "hello"}}], "usage": chat_usage()});
    assert_eq!(completion(whole.to_string().as_bytes()), two.says);
}

#[test]
fn b90_an_end_that_is_no_success_counts_if_it_says_what_was_used() {
    for end in ["response.incomplete", "response.failed"] {
        let stream = |usage: &Value| responses(end, &answered(usage));
        assert_eq!(read(|| Box::new(ResponsesStream::default()), &stream(&response_usage())), used("resp_1"), "{end}");
        assert_eq!(read(|| Box::new(ResponsesStream::default()), &stream(&Value::Null)), None, "{end}");
    }
}

#[test]
fn b90_what_cannot_be_trusted_is_not_counted() {
    let [Case { text: responses, tap: of_responses, says: Some(says) }, Case { text: chat, tap: of_chat, .. }] =
        cases()
    else {
        panic!()
    };
    let end = responses.rfind("event: ").unwrap();
    let (before, end) = responses.split_at(end);
    for between in [
        "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"x\"}\n\n",
        "event: response.output_text.delta\ndata: {\"type\":\"response.outp\n\n",
        end,
    ] {
        assert_eq!(read(of_responses, &format!("{before}{between}{end}")), None, "{between}");
    }
    assert_eq!(read(of_responses, &format!("{responses}data: [DONE]\n\n")), Some(says), "some servers say it here too");

    let done = chat.rfind("data: ").unwrap();
    let (before, done) = chat.split_at(done);
    for between in [
        "data: {\"error\":{\"message\":\"x\",\"code\":\"server_error\"}}\n\n",
        "data: {\"id\":\"chatcmpl\n\n",
        "data: {\"id\":\"chatcmpl-1\",\"model\":\"gpt-y\",\"choices\":[]}\n\n",
    ] {
        assert_eq!(read(of_chat, &format!("{before}{between}{done}")), None, "{between}");
    }
    assert_eq!(read(of_chat, &format!("{chat}data: {{\"choices\":[]}}\n\n")), None, "something after its last word");

    for (from, to) in [
        ("\"output_tokens\":1000", "\"output_tokens\":-1000"),
        ("\"output_tokens\":1000", "\"output_tokens\":1e3"),
        ("\"output_tokens\":1000,", ""),
        // Parts that are more than their sum.
        ("\"cached_tokens\":6000", "\"cached_tokens\":60000"),
        ("\"cache_write_tokens\":2000", "\"cache_write_tokens\":4001"),
        ("\"input_tokens\":10000,", ""),
    ] {
        for (text, tap) in [(&responses, of_responses), (&chat, of_chat)] {
            let (from, to) = if text == &chat {
                (from.replace("output", "completion").replace("input", "prompt"), to.replace("output", "completion"))
            } else {
                (from.to_owned(), to.to_owned())
            };
            let changed = text.replace(&from, &to);
            assert_ne!(&changed, text, "{from}");
            assert_eq!(read(tap, &changed), None, "{to}");
        }
    }
    let sound = chat.replace("\"audio_tokens\":0", "\"audio_tokens\":1");
    assert_eq!(read(of_chat, &sound), None, "tokens of sound have no price");
}

#[test]
fn b90_usage_that_comes_with_every_chunk_is_cumulative() {
    let early = json!({"prompt_tokens": 10_000, "completion_tokens": 1});
    let text = chat(&chat_usage()).replacen("\"usage\":null", &format!("\"usage\":{early}"), 2);
    assert_eq!(read(|| Box::new(ChatStream::default()), &text), used("chatcmpl-1"));
}

#[test]
fn b90_cumulative_usage_that_shrinks_is_no_figure() {
    let said = |first: &str, last: &str| {
        let chunk =
            |usage: &str| format!("data: {{\"id\":\"c\",\"model\":\"gpt-5\",\"choices\":[],\"usage\":{usage}}}\n\n");
        let mut tap = Box::new(ChatStream::default());
        tap.feed(format!("{}{}data: [DONE]\n\n", chunk(first), chunk(last)).as_bytes());
        tap.finish().map(|metered| (metered.usage.input, metered.usage.output))
    };
    let (less, more) =
        (r#"{"prompt_tokens":10,"completion_tokens":2}"#, r#"{"prompt_tokens":10,"completion_tokens":9}"#);
    assert_eq!(said(less, more), Some((10, 9)));
    assert_eq!(said(more, more), Some((10, 9)));
    assert_eq!(said(more, less), None);
    assert_eq!(said(more, r#"{"prompt_tokens":0,"completion_tokens":0}"#), None);
}

#[test]
fn b90_searches_are_counted_and_what_is_opened_after_them_is_not() {
    let mut answer = answered(&response_usage());
    answer["output"] = json!([
        {"type": "web_search_call", "status": "completed"},
        {"type": "web_search_call", "action": {"type": "search", "query": "q"}},
        {"type": "web_search_call", "action": {"type": "open_page"}},
        {"type": "web_search_call", "action": {"type": "a new one"}},
        {"type": "message"}]);
    assert_eq!(response(answer.to_string().as_bytes()).unwrap().usage.web_searches, 3);
}

#[test]
fn b90_a_compaction_ran_on_the_model_it_was_asked_of() {
    let answer =
        json!({"id": "resp_1", "object": "response.compaction", "output": [], "usage": response_usage()}).to_string();
    assert_eq!(compaction(answer.as_bytes(), "gpt-x"), used("resp_1"));
    assert_eq!(response(answer.as_bytes()), None, "an answer that names no model is not priced");
}

/// The vectors of three independent price libraries, as either API says them.
#[test]
fn b90_what_the_apis_say_is_priced_to_the_cent() {
    let catalog = Catalog::bundled().unwrap();
    let at = "2026-11-01".parse().unwrap();
    // Model, tier, input with what was cached and written, cached, written, output, dollars.
    for (model, tier, input, cached, written, output, dollars) in [
        ("gpt-5", "default", 10_000, 8_000, 0, 2_000, "0.0235"),
        ("gpt-5.4", "default", 300_000, 200_000, 0, 2_000, "0.645"),
        ("gpt-5.4", "default", 272_000, 0, 0, 0, "0.68"),
        ("gpt-5.4", "default", 272_001, 0, 0, 0, "1.360005"),
        ("gpt-5.6", "default", 10_000, 6_000, 2_000, 1_000, "0.0404"),
        ("gpt-5", "priority", 10_000, 8_000, 0, 2_000, "0.047"),
        ("gpt-5", "flex", 10_000, 8_000, 0, 2_000, "0.01175"),
    ] {
        let details = json!({"cached_tokens": cached, "cache_write_tokens": written});
        let responses = json!({"id": "r", "model": model, "service_tier": tier, "output": [], "usage":
            {"input_tokens": input, "input_tokens_details": details, "output_tokens": output}});
        let chat = json!({"id": "c", "model": model, "service_tier": tier, "choices": [], "usage":
            {"prompt_tokens": input, "prompt_tokens_details": details, "completion_tokens": output}});
        for metered in [response(responses.to_string().as_bytes()), completion(chat.to_string().as_bytes())] {
            let Metered { model: named, usage, .. } = metered.unwrap();
            assert_eq!(price(&catalog, &named, &usage, at).unwrap().amount.to_string(), dollars, "{model} {tier}");
        }
    }
    let ultrafast = json!({"model": "gpt-5.6-sol", "service_tier": "ultrafast", "usage": chat_usage()});
    let Metered { model, usage, .. } = completion(ultrafast.to_string().as_bytes()).unwrap();
    assert!(price(&catalog, &model, &usage, at).is_err(), "a tier without a price is not the standard one");
}
