//! `agentrun proxy` in front of OpenAI's two APIs: what is asked for goes out pinned, what was used is billed to the last digit, and what
//! cannot be bounded is refused in the API's own shape. The provider is the scripted model; no harness is needed.
// Tests: a failed unwrap is the report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use agentrun_testing::script::Script;
use agentrun_testing::scripted::ScriptedModel;
use serde_json::{Value, json};
use support::{PATIENCE, Stage, wait_for};

/// Made up, and nowhere but in these tests.
const KEY: &str = "made-up-key-0123456789";

struct Api {
    provider: &'static str,
    path: &'static str,
    asks: Value,
    /// The status of a refusal.
    refused: u16,
}

fn apis() -> [Api; 2] {
    [
        Api {
            provider: "openai",
            path: "/v1/responses",
            asks: json!({"model": "gpt-5", "input": "hello", "max_output_tokens": 10_000}),
            refused: 400,
        },
        Api {
            provider: "openai-chat",
            path: "/v1/chat/completions",
            asks: json!({"model": "gpt-5", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 10_000}),
            refused: 403,
        },
    ]
}

fn post(url: &str, path: &str, key: &str, body: &Value) -> (u16, String) {
    let host = url.strip_prefix("http://").unwrap();
    let body = body.to_string();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn b90_both_apis_are_billed_the_same_streamed_or_not_and_what_has_no_bound_is_not_sent() {
    for api in apis() {
        let (stage, model) = (
            Stage::new(),
            ScriptedModel::start(
                Script::parse(
                    &json!({"steps": [{"text": "Done.", "times": "always",
                    "usage": {"input": 2_000, "cache_read": 8_000, "output": 2_000, "reasoning": 1_500}}]})
                    .to_string(),
                )
                .unwrap(),
            )
            .unwrap(),
        );
        let mut command = stage.agentrun(&[
            "proxy",
            "--provider",
            api.provider,
            "--base-url",
            &model.base_url(),
            "--cap",
            "1",
            "--json",
        ]);
        command.env("OPENAI_API_KEY", KEY);
        let running = stage.start(command);
        let first = wait_for("the first line", PATIENCE, || running.lines().into_iter().next());
        let (url, key) = (first["url"].as_str().unwrap(), first["key"].as_str().unwrap());

        for stream in [false, true] {
            let mut asks = api.asks.clone();
            asks["stream"] = json!(stream);
            let (status, answer) = post(url, api.path, key, &asks);
            assert!(status == 200 && answer.contains("Done."), "{answer}");
        }
        for (member, value) in [("n", json!(2)), ("store", json!(true)), ("something_new", json!(1))] {
            let mut asks = api.asks.clone();
            asks[member] = value;
            let (status, body) = post(url, api.path, key, &asks);
            let error: Value = serde_json::from_str(&body).unwrap();
            let message = error["error"]["message"].as_str().unwrap();
            assert_eq!(status, api.refused, "{body}");
            assert!(message.contains("unbounded") && message.contains(&format!("`{member}`")), "{body}");
        }
        for seen in model.requests() {
            assert_eq!(seen.headers["authorization"], format!("Bearer {KEY}"));
            assert_eq!(seen.body["service_tier"], "default");
        }
        assert_eq!(model.requests().len(), 2, "{}: what was refused was not sent", api.provider);

        running.interrupt();
        let ran = running.end(PATIENCE);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let lines: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [_, one, two, .., bill] = lines.as_slice() else { panic!("{ran:?}") };
        for line in [one, two] {
            assert_eq!((&line["end"], &line["usd"]), (&json!("booked"), &json!("0.0235")), "{ran:?}");
        }
        assert_eq!(*bill, json!({"type": "bill", "requests": 2, "usd": "0.047", "unknown_usd": "0"}));
    }
}
