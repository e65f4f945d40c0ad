//! What the adapter adds to a turn of the real OpenCode: the same turn (a message, an answer) by hand over HTTP and through the adapter, in
//! turn in one run, on two programs that the adapter started alike.
//!
//! `cargo bench -p agentrun-adapter --bench opencode_turn` prints the medians, with `AGENTRUN_OPENCODE` naming the program. By hand it is the
//! one request that answers when the turn is over, in a session of its own. No tool is called: what a call waits for is a barrier. The store
//! is in memory and the model scripted, so what is left is requests, reads, tasks and records.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)] // a bench is a report: it may stop, and it prints

#[allow(dead_code)] // the tests read what was sent; here it is only timed
#[path = "../tests/opencode/harness.rs"]
mod harness;
#[path = "../tests/rig/mod.rs"]
mod rig;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use agentrun_adapter::TurnEnd;
use agentrun_testing::script::{Step, Times};
use serde_json::{Value, json};

use rig::{Owner, Rig, Work};

const ROUNDS: usize = 60;
/// Turns of each that do not count.
const WARM: usize = 5;
const PROMPT: &str = "do it";
/// Most that the adapter may add to the median turn, in milliseconds.
const FIGURE: f64 = 60.0;

fn steps() -> Vec<Step> {
    vec![Step { times: Times::Always, ..Step::says("done") }]
}

async fn turn(owner: &mut Owner) -> Duration {
    let turn = owner.place(PROMPT).await;
    let begun = Instant::now();
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    let took = begun.elapsed();
    owner.end_turn().await;
    took
}

/// The server of a program, spoken to by hand.
struct ByHand {
    address: String,
    authorization: String,
    session: String,
}

impl ByHand {
    /// Of a program that kept what it was told and what it said.
    fn of(rig: &Rig) -> Self {
        let kept = |name: &str| std::fs::read_to_string(rig.scratch(name)).unwrap();
        let said = kept("said");
        let address = said.lines().find_map(|line| line.strip_prefix("opencode server listening on http://")).unwrap();
        let environment = kept("environment");
        let mut told = environment.split('\0');
        let password = told.find_map(|line| line.strip_prefix("OPENCODE_SERVER_PASSWORD=")).unwrap();
        let authorization = format!("Basic {}", base64(&format!("opencode:{password}")));
        let mut it = Self { address: address.to_owned(), authorization, session: String::new() };
        it.session = it.post("/session", &json!({"title": "by hand"}))["id"].as_str().unwrap().to_owned();
        it
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        let (body, Self { address, authorization, .. }) = (body.to_string(), self);
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: {authorization}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        // Whether it came in chunks or not, the object is from its first brace to its last.
        let (from, to) = (answer.find("\r\n\r\n").unwrap(), answer.rfind('}').unwrap());
        let from = from + answer[from..].find('{').unwrap();
        serde_json::from_str(&answer[from..=to]).unwrap()
    }

    fn turn(&self) -> Duration {
        let body = json!({"agent": "node", "model": {"providerID": "host", "modelID": harness::MODEL},
            "parts": [{"type": "text", "text": PROMPT}]});
        let begun = Instant::now();
        let answer = self.post(&format!("/session/{}/message", self.session), &body);
        assert_eq!(answer["info"]["finish"], "stop", "{answer}");
        begun.elapsed()
    }
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |bytes: &[u8]| {
        let bits = (0..3).fold(0_usize, |bits, at| bits << 8 | usize::from(bytes.get(at).copied().unwrap_or(0)));
        let digit = |at: usize| if at > bytes.len() { '=' } else { char::from(DIGITS[bits >> (18 - 6 * at) & 63]) };
        (0..4).map(digit).collect::<String>()
    };
    text.as_bytes().chunks(3).map(group).collect()
}

/// In milliseconds: the median, and where nine of ten lie below.
fn told(name: &str, values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.map(|seconds| seconds * 1_000.0).collect();
    values.sort_by(f64::total_cmp);
    let at = |part: usize| values[(values.len() - 1) * part / 10];
    println!("{name:<50} p50 {:>7.2} ms   p90 {:>7.2} ms", at(5), at(9));
    at(5)
}

#[tokio::main]
async fn main() {
    let keeps = r#"keep="$(dirname "$0")"; env -0 > "$keep/environment"; HARNESS "$@" | tee "$keep/said""#;
    let by_hand = Rig::new(steps()).with_program(keeps);
    let mut idle = by_hand.own(Work::Answers, &[]).await;
    turn(&mut idle).await;
    let hand = ByHand::of(&by_hand);
    let adapter = Rig::new(steps());
    let mut owner = adapter.own(Work::Answers, &[]).await;
    let mut rounds = Vec::new();
    for round in 0..WARM + ROUNDS {
        // Who is first changes, so that neither has the warmer machine.
        let before = (round % 2 == 0).then(|| tokio::task::block_in_place(|| hand.turn()));
        let through = turn(&mut owner).await;
        let alone = before.unwrap_or_else(|| tokio::task::block_in_place(|| hand.turn()));
        if round >= WARM {
            rounds.push((alone.as_secs_f64(), through.as_secs_f64()));
        }
    }
    idle.close().await;
    owner.close().await;
    println!("{ROUNDS} turns each, in turn; each of one model request");
    told("by hand", rounds.iter().map(|it| it.0));
    told("through the adapter", rounds.iter().map(|it| it.1));
    let adds = told(&format!("what the adapter adds (<= {FIGURE} ms)"), rounds.iter().map(|it| it.1 - it.0));
    println!("{}", if adds <= FIGURE { "within its figure" } else { "OVER its figure" });
}
