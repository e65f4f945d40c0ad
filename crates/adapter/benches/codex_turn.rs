//! What the adapter adds to a turn of the real Codex: the same turn (a message, a call of a host tool, an answer) by hand over the same pipes
//! and through the adapter, in turn in one run, on two programs started with the same arguments and told the same words.
//!
//! `cargo bench -p agentrun-adapter --bench codex_turn` prints the medians, with `AGENTRUN_CODEX` naming the program. By hand, too, a call is
//! answered only once the rollout holds it: what that wait takes is told apart and is no part of what the adapter adds. The store is in
//! memory and the model scripted, so what is left is lines, tasks, records and files.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)] // a bench is a report: it may stop, and it prints

#[allow(dead_code)] // the tests read what was sent; here it is only timed
#[path = "../tests/codex/harness.rs"]
mod harness;
#[path = "../tests/rig/mod.rs"]
mod rig;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use agentrun_adapter::TurnEnd;
use agentrun_kernel::MessageId;
use agentrun_testing::script::{Step, Times, When};
use serde_json::{Value, json};

use rig::{Owner, Rig, Work, calls};

const ROUNDS: usize = 60;
/// Turns of each that do not count.
const WARM: usize = 5;
const PROMPT: &str = "do it";

/// Every turn alike: a call of `work`, then words.
fn steps() -> Vec<Step> {
    let mut call = calls(&[("work", json!({"a": 1}))]);
    call.tools[0].id = None;
    let when = |contains: &str| When { contains: Some(contains.to_owned()), ..When::default() };
    vec![
        Step { when: when(PROMPT), times: Times::Always, ..call },
        Step { when: when("work done"), times: Times::Always, ..Step::says("done") },
    ]
}

async fn turn(owner: &mut Owner) -> Duration {
    let turn = owner.place(PROMPT).await;
    let begun = Instant::now();
    assert_eq!(owner.session.run_turn(turn).await.unwrap(), TurnEnd::Idle);
    let took = begun.elapsed();
    owner.end_turn().await;
    took
}

/// What the adapter starts its program with and tells it, from a session of it.
struct Recorded {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// Its lines, up to the first turn.
    said: Vec<Value>,
    home: PathBuf,
    catalog: Vec<u8>,
}

async fn record(rig: &Rig) -> Recorded {
    let mut owner = rig.own(Work::Answers, &[]).await;
    turn(&mut owner).await;
    let home = owner.home();
    let catalog = std::fs::read(home.join("codex/catalog.json")).unwrap();
    owner.close().await;
    let kept = |name: &str| std::fs::read_to_string(rig.scratch(name)).unwrap();
    let parts = |name: &str| kept(name).split_terminator('\0').map(str::to_owned).collect::<Vec<_>>();
    let pair = |line: &String| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Recorded {
        arguments: parts("arguments"),
        environment: parts("environment").iter().filter_map(pair).collect(),
        said: kept("said").lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        home,
        catalog,
    }
}

/// The program, spoken to by hand.
struct ByHand {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    asked: u64,
    rollout: PathBuf,
    start: Value,
}

impl ByHand {
    fn start(recorded: &Recorded, home: &Path, workspace: &Path) -> Self {
        let here = |text: &str| text.replace(recorded.home.to_str().unwrap(), home.to_str().unwrap());
        std::fs::create_dir_all(home.join("codex")).unwrap();
        std::fs::create_dir_all(home.join("tmp")).unwrap();
        std::fs::write(home.join("codex/catalog.json"), &recorded.catalog).unwrap();
        let mut command = Command::new(rig::real());
        command.args(recorded.arguments.iter().map(|it| here(it))).current_dir(workspace).env_clear();
        command.envs(recorded.environment.iter().map(|(name, value)| (name, here(value))));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program");
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let [initialize, initialized, thread, start] = &recorded.said[..4] else { panic!("{:?}", recorded.said) };
        let mut it = Self { child, stdin, stdout, asked: 0, rollout: PathBuf::new(), start: start["params"].clone() };
        it.ask("initialize", initialize["params"].clone());
        it.tell(initialized);
        let begun = it.ask("thread/start", thread["params"].clone());
        it.rollout = PathBuf::from(begun["thread"]["path"].as_str().unwrap());
        it.start["threadId"] = begun["thread"]["id"].clone();
        it
    }

    fn tell(&mut self, line: &Value) {
        self.stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "the program ended");
        serde_json::from_str(&line).unwrap()
    }

    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.asked += 1;
        self.tell(&json!({"id": self.asked, "method": method, "params": params}));
        self.asked
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        loop {
            let line = self.line();
            if line["method"].is_null() && line["id"] == id {
                return line["result"].clone();
            }
        }
    }

    /// How long the turn took, and how much of that the rollout was waited for.
    fn turn(&mut self) -> (Duration, Duration) {
        let mut params = self.start.clone();
        params["clientUserMessageId"] = json!(MessageId::fresh().as_str());
        let begun = Instant::now();
        let mut waited = Duration::ZERO;
        self.send("turn/start", params);
        loop {
            let line = self.line();
            match line["method"].as_str() {
                Some("item/tool/call") => {
                    let call = line["params"]["callId"].as_str().unwrap();
                    let waits = Instant::now();
                    while !std::fs::read_to_string(&self.rollout).unwrap().contains(call) {
                        // As often as the adapter looks.
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    waited += waits.elapsed();
                    let result = json!({"contentItems": [{"type": "inputText", "text": "work done"}], "success": true});
                    self.tell(&json!({"id": line["id"], "result": result}));
                }
                Some("turn/completed") => {
                    assert_eq!(line["params"]["turn"]["status"], "completed", "{line}");
                    return (begun.elapsed(), waited);
                }
                _ => {}
            }
        }
    }

    fn end(self) {
        let Self { mut child, stdin, .. } = self;
        drop(stdin);
        child.wait().unwrap();
    }
}

/// In milliseconds: the median, and where nine of ten lie below.
fn told(name: &str, values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.map(|seconds| seconds * 1_000.0).collect();
    values.sort_by(f64::total_cmp);
    let at = |part: usize| values[(values.len() - 1) * part / 10];
    println!("{name:<58} p50 {:>7.2} ms   p90 {:>7.2} ms", at(5), at(9));
    at(5)
}

#[tokio::main]
async fn main() {
    let keeps = r#"keep="$(dirname "$0")"; printf '%s\0' "$@" > "$keep/arguments"; env -0 > "$keep/environment"
        tee "$keep/said" | HARNESS "$@""#;
    let by_hand = Rig::new(steps()).with_program(keeps);
    let recorded = record(&by_hand).await;
    let home = tempfile::tempdir().unwrap();
    let mut hand = ByHand::start(&recorded, home.path(), by_hand.workspace.path());
    let adapter = Rig::new(steps());
    let mut owner = adapter.own(Work::Answers, &[]).await;
    let mut rounds = Vec::new();
    for round in 0..WARM + ROUNDS {
        // Who is first changes, so that neither has the warmer machine.
        let first = round % 2 == 0;
        let before = if first { Some(tokio::task::block_in_place(|| hand.turn())) } else { None };
        let through = turn(&mut owner).await;
        let (whole, waited) = before.unwrap_or_else(|| tokio::task::block_in_place(|| hand.turn()));
        if round >= WARM {
            rounds.push((whole.as_secs_f64(), waited.as_secs_f64(), through.as_secs_f64()));
        }
    }
    hand.end();
    owner.close().await;
    println!("{ROUNDS} turns each, in turn; each of two model requests and one call of a host tool");
    told("by hand", rounds.iter().map(|it| it.0));
    told("  of it, waiting for the rollout to hold the call", rounds.iter().map(|it| it.1));
    told("through the adapter", rounds.iter().map(|it| it.2));
    let adds = told("what the adapter adds, the same wait in both (<= 40 ms)", rounds.iter().map(|it| it.2 - it.0));
    println!("{}", if adds <= 40.0 { "within its figure" } else { "OVER its figure" });
}
