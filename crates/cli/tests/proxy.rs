//! `agentrun proxy`: the cap holds under parallel requests, every request has its line, a signal brings the bill, and bad input starts
//! nothing. The provider is the scripted model; no harness is needed.
// Tests: a failed unwrap is the report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

use agentrun_kernel::Usd;
use agentrun_testing::script::Script;
use agentrun_testing::scripted::ScriptedModel;
use serde_json::{Value, json};
use support::{PATIENCE, Ran, Running, Stage, holds, wait_for};

/// Made up, and nowhere but in these tests.
const KEY: &str = "made-up-key-0123456789";

fn model(steps: &Value) -> ScriptedModel {
    ScriptedModel::start(Script::parse(&json!({ "steps": steps }).to_string()).unwrap()).unwrap()
}

/// Answers that cost nearly what the quote of [`asks`] holds for them, so that room which comes back is never enough for one more:
/// 10 input and 10,000 output tokens are $0.15003.
fn dear() -> Value {
    json!([{"text": "Done.", "times": "always",
        "usage": {"input": 10, "cache_read": 0, "cache_write_5m": 0, "cache_write_1h": 0, "output": 10_000}}])
}

fn asks() -> String {
    json!({"model": "claude-sonnet-4-5", "max_tokens": 10_000, "messages": [{"role": "user", "content": "hello"}]})
        .to_string()
}

/// A proxy that serves, and its first line.
struct Proxy {
    running: Running,
    first: Value,
}

impl Proxy {
    fn start(stage: &Stage, model: &ScriptedModel, more: &[&str]) -> Self {
        let mut command =
            stage.agentrun(&["proxy", "--provider", "anthropic", "--base-url", &model.base_url(), "--json"]);
        command.args(more).env("ANTHROPIC_API_KEY", KEY);
        let running = stage.start(command);
        let first = wait_for("the first line", PATIENCE, || running.lines().into_iter().next());
        assert_eq!(first["type"], "proxy", "{first}");
        Self { running, first }
    }

    fn text(&self, member: &str) -> String {
        self.first[member].as_str().unwrap().to_owned()
    }

    /// A request as a harness makes it: the status and the body.
    fn post(&self) -> (u16, String) {
        post(&self.text("url"), &self.text("key"), &asks())
    }

    /// Ctrl-C, and its end: the lines about requests, and the bill.
    fn bill(self) -> (Vec<Value>, Value, Ran) {
        self.running.interrupt();
        let ran = self.running.end(PATIENCE);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let mut lines: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let bill = lines.pop().unwrap();
        assert_eq!(bill["type"], "bill", "{ran:?}");
        lines.remove(0);
        assert!(lines.iter().all(|line| line["type"] == "request"), "{ran:?}");
        (lines, bill, ran)
    }
}

fn post(url: &str, key: &str, body: &str) -> (u16, String) {
    let host = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(
        stream,
        "POST /v1/messages HTTP/1.1\r\nhost: {host}\r\nx-api-key: {key}\r\nanthropic-version: 2023-06-01\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    // An answer that was cut is looked at as far as it came.
    let _ = stream.read_to_string(&mut answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn sum(lines: &[Value], member: &str) -> Usd {
    lines.iter().fold(Usd::ZERO, |sum, line| sum.checked_add(line[member].as_str().unwrap().parse().unwrap()).unwrap())
}

/// Holds that a refusal has Anthropic's shape, and answers its message.
fn denied((status, body): &(u16, String)) -> String {
    assert_eq!(*status, 403, "{body}");
    let error: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!("permission_error")), "{body}");
    error["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn b76_of_64_requests_at_once_under_a_cap_that_fits_3_exactly_3_are_sent() {
    let (stage, model) = (Stage::new(), model(&dear()));
    // Three quotes are a little over $0.45; three bills and one more quote are over $0.60.
    let proxy = Proxy::start(&stage, &model, &["--cap", "0.55"]);
    let answers: Vec<(u16, String)> = thread::scope(|scope| {
        let asked: Vec<_> = (0..64).map(|_| scope.spawn(|| proxy.post())).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    let (sent, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(status, _)| *status == 200);
    assert_eq!((sent.len(), refused.len(), model.requests().len()), (3, 61, 3));
    for answer in &refused {
        let message = denied(answer);
        assert!(message.contains("over_cap") && message.contains("0.55"), "{message}");
    }

    let run = proxy.text("run");
    let (lines, bill, ran) = proxy.bill();
    let ends = |end: &str| lines.iter().filter(|line| line["end"] == end).count();
    assert_eq!((ends("booked"), ends("denied"), lines.len()), (3, 61, 64), "{ran:?}");
    assert!(lines.iter().all(|line| line["model"] == "claude-sonnet-4-5"), "{ran:?}");
    assert_eq!(bill, json!({"type": "bill", "requests": 3, "usd": "0.45009", "unknown_usd": "0"}));
    assert_eq!(sum(&lines, "usd").to_string(), "0.45009");

    let cap = stage.ends(stage.agentrun(&["cap", &run, "--json"])).last();
    assert_eq!(
        (&cap["cap"], &cap["booked"], &cap["held"], &cap["unknown"]),
        (&json!("0.55"), &json!("0.45009"), &json!("0"), &json!("0")),
        "the ledger in the store says the same"
    );
}

#[test]
fn b78_a_refusal_is_not_sticky_and_a_raise_reaches_a_proxy_that_serves() {
    let (stage, model) = (Stage::new(), model(&dear()));
    let proxy = Proxy::start(&stage, &model, &["--cap", "0.01"]);
    denied(&proxy.post());
    let raised = stage.ends(stage.agentrun(&["cap", &proxy.text("run"), "--raise", "1", "--id", "r1"]));
    assert_eq!(raised.code, Some(0), "{raised:?}");
    assert_eq!(proxy.post().0, 200);
    let (lines, bill, ran) = proxy.bill();
    assert_eq!((&lines[0]["end"], &lines[1]["end"]), (&json!("denied"), &json!("booked")), "{ran:?}");
    assert_eq!((&bill["requests"], &bill["usd"]), (&json!(1), &json!("0.15003")), "{ran:?}");
}

#[test]
fn b79_what_the_provider_refuses_costs_nothing_and_what_is_cut_is_unknown_in_full() {
    let (stage, model) = (Stage::new(), model(&json!([{"status": 529}, {"text": "Cut.", "cut_after_events": 1}])));
    let proxy = Proxy::start(&stage, &model, &[]);
    assert_eq!(proxy.post().0, 529);
    proxy.post();
    wait_for("both lines", PATIENCE, || (proxy.running.lines().len() == 3).then_some(()));
    let (lines, bill, ran) = proxy.bill();
    assert_eq!((&lines[0]["end"], &lines[1]["end"]), (&json!("released"), &json!("unknown")), "{ran:?}");
    assert!(lines[0]["why"].as_str().unwrap().contains("529"), "{ran:?}");
    assert_eq!((&bill["requests"], &bill["usd"]), (&json!(2), &json!("0")), "{ran:?}");
    assert_eq!(bill["unknown_usd"], lines[1]["unknown_usd"], "{ran:?}");
    assert!(sum(&lines, "unknown_usd") > "0.15".parse().unwrap(), "the whole quote: {ran:?}");
}

#[test]
fn b22_a_signal_refuses_what_is_new_and_a_second_one_ends_with_the_open_request_in_the_bill() {
    let (stage, model) = (Stage::new(), model(&json!([{"text": "Stalled.", "stall_after_events": 1}])));
    let proxy = Proxy::start(&stage, &model, &[]);
    thread::scope(|scope| {
        let (url, key) = (proxy.text("url"), proxy.text("key"));
        // A short answer that is no stream is told once it is booked; of a stream the head goes on at once.
        let streamed = asks().replacen('{', r#"{"stream":true,"#, 1);
        let open = scope.spawn(move || post(&url, &key, &streamed));
        wait_for("the request to be sent", PATIENCE, || (model.requests().len() == 1).then_some(()));
        proxy.running.interrupt();
        wait_for("the stop to be heard", PATIENCE, || proxy.running.said("stopping").then_some(()));
        let message = denied(&proxy.post());
        assert!(message.contains("stopped"), "{message}");
        let (lines, bill, ran) = proxy.bill();
        assert_eq!((lines.len(), &lines[0]["end"]), (1, &json!("denied")), "{ran:?}");
        assert_eq!((&bill["requests"], &bill["usd"]), (&json!(1), &json!("0")), "{ran:?}");
        assert!(sum(&[bill], "unknown_usd") > "0.15".parse().unwrap(), "what has no end yet counts in full: {ran:?}");
        assert_eq!(open.join().unwrap().0, 200, "its answer had begun");
    });
}

#[test]
fn b22_a_signal_lets_a_request_in_flight_end_and_its_price_is_in_the_bill() {
    let used = json!({"input": 10, "cache_read": 0, "cache_write_5m": 0, "cache_write_1h": 0, "output": 10_000});
    let (stage, model) = (Stage::new(), model(&json!([{"text": "Done.", "stall_ms": 1_500, "usage": used}])));
    let proxy = Proxy::start(&stage, &model, &[]);
    thread::scope(|scope| {
        let (url, key) = (proxy.text("url"), proxy.text("key"));
        let open = scope.spawn(move || post(&url, &key, &asks()));
        wait_for("the request to be sent", PATIENCE, || (model.requests().len() == 1).then_some(()));
        let (lines, bill, ran) = proxy.bill();
        assert_eq!((lines.len(), &lines[0]["end"]), (1, &json!("booked")), "{ran:?}");
        assert_eq!(bill, json!({"type": "bill", "requests": 1, "usd": "0.15003", "unknown_usd": "0"}));
        let (status, body) = open.join().unwrap();
        assert!(status == 200 && body.contains("Done."), "{status} {body}");
    });
}

#[test]
fn retries_are_off_unless_asked_for_and_each_has_its_own_line() {
    for (more, ends) in [(&[][..], &["released"][..]), (&["--retries", "1"], &["released", "booked"])] {
        let mut steps = dear();
        steps.as_array_mut().unwrap().insert(0, json!({"status": 529}));
        let (stage, model) = (Stage::new(), model(&steps));
        let proxy = Proxy::start(&stage, &model, more);
        assert_eq!(proxy.post().0, if more.is_empty() { 529 } else { 200 });
        let (lines, bill, ran) = proxy.bill();
        let told: Vec<_> = lines.iter().map(|line| line["end"].as_str().unwrap()).collect();
        assert_eq!((told.as_slice(), &bill["requests"]), (ends, &json!(ends.len())), "{ran:?}");
    }
}

#[test]
fn b89_the_credential_is_in_no_output_and_in_no_record() {
    let (stage, model) = (Stage::new(), model(&dear()));
    let proxy = Proxy::start(&stage, &model, &[]);
    assert_eq!(proxy.post().0, 200);
    assert_eq!(post(&proxy.text("url"), "another-key", &asks()).0, 401);
    assert!(!holds(&std::fs::read(format!("/proc/{}/environ", proxy.running.pid())).unwrap(), KEY));
    assert!(format!("{:?}", model.requests()).contains(KEY), "the provider gets it");
    let (_, _, ran) = proxy.bill();
    assert!(!ran.stdout.contains(KEY) && !ran.stderr.contains(KEY), "{ran:?}");
    for file in std::fs::read_dir(stage.at("store")).unwrap() {
        let path = file.unwrap().path();
        assert!(!holds(&std::fs::read(&path).unwrap(), KEY), "{}", path.display());
    }
}

#[test]
fn bad_input_is_exit_2_with_what_to_do_and_makes_no_store() {
    for (more, says) in [
        (&["--provider", "anthropic", "--cap", "-1"][..], "below zero"),
        (&["--provider", "anthropic", "--cap", "cheap"], "--cap"),
        (&["--provider", "gemini"], "anthropic"),
        (&[], "--provider"),
        (&["--provider", "anthropic", "--base-url", "nowhere"], "--base-url"),
        (&["--provider", "anthropic", "--catalog", "none.json"], "none.json"),
        (&["--provider", "anthropic", "--credential-file", "none"], "--credential-file"),
    ] {
        let stage = Stage::new();
        let mut command = stage.agentrun(&["proxy"]);
        command.args(more).env("ANTHROPIC_API_KEY", KEY);
        let ran = stage.ends(command);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{more:?}: {ran:?}");
        assert!(ran.stderr.contains(says), "{more:?}: {ran:?}");
        assert!(!stage.stored(), "{more:?}");
    }
    let stage = Stage::new();
    let ran = stage.ends(stage.agentrun(&["proxy", "--provider", "anthropic"]));
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("ANTHROPIC_API_KEY") && !stage.stored(), "{ran:?}");
}
