//! A program that speaks Claude Code's wire over its pipes, keeps a transcript as it does, asks the model it is given, and does wrong what it
//! is told to: `agentrun-fake-claude ORDERS [Claude Code's own arguments…]`. It starts in milliseconds, so that orders and faults of the
//! wire can be tried by the hundred.
//!
//! `ORDERS` is a list with commas; `-` gives none:
//!
//! | order | what happens |
//! | --- | --- |
//! | `late-started` | a command's `started` comes behind the model's first words |
//! | `no-started` | it never comes |
//! | `completed-first` | `completed` comes before `result` |
//! | `asks-permission` | each call is asked for with `can_use_tool` too, behind its hook |
//! | `asks-all-at-once` | hook, permission and an unknown question go out together; a call waits for all three answers |
//! | `results-first` | a call's `user` line comes before it is asked for at all |
//! | `no-call-id` | a call comes without the id it was made under |
//! | `unknown-lines` | lines of unknown kinds and unknown fields stand among the others |
//! | `long-line` | one line of 64 MiB comes before the model's first words |
//! | `too-long-line` | one of a byte more |
//! | `dies-at-start`, `dies-in-turn` | exit 7 before `initialize` is answered, or once the model has answered |
//! | `interrupt-ends` | an interrupt is written down as the turn's end |
// A helper of tests: what cannot be done ends it, and the test says so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::{Value, json};

const VERSION: &str = "2.1.332";
/// A line's limit in the adapter.
const LONG: usize = 64 * 1024 * 1024;

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|it| it == "--version") {
        println!("{VERSION} (Claude Code)");
        return;
    }
    let orders = arguments.remove(0).split(',').map(str::to_owned).collect();
    let (to, from) = channel();
    let lines = to.clone();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            // As the real one: a line that is no JSON ends it.
            let line = serde_json::from_str(&line.unwrap()).unwrap_or_else(|_| std::process::exit(1));
            let _ = lines.send(Heard::Line(line));
        }
        let _ = lines.send(Heard::End);
    });
    Fake::new(orders, &arguments, to, from).run();
}

enum Heard {
    Line(Value),
    End,
    /// The model's answer: its status and its message, or nothing when the connection broke.
    Model(Option<(u16, Value)>),
}

/// Why a turn went no further.
enum Cut {
    Interrupted,
    Failed(Option<u16>),
    Hook,
}

struct Fake {
    orders: Vec<String>,
    session: String,
    builtins: Vec<String>,
    to: Sender<Heard>,
    from: Receiver<Heard>,
    waiting: VecDeque<Value>,
    answers: HashMap<String, Value>,
    file: File,
    lines: Vec<Value>,
    tools: Vec<Value>,
    asked: u32,
    started: Option<String>,
    /// Messages folded into the turn that runs.
    folded: Vec<String>,
}

impl Fake {
    fn new(orders: Vec<String>, arguments: &[String], to: Sender<Heard>, from: Receiver<Heard>) -> Self {
        let after = |flag: &str| arguments.iter().position(|it| it == flag).map(|at| arguments[at + 1].clone());
        let folder = PathBuf::from(std::env::var_os("CLAUDE_CONFIG_DIR").unwrap()).join("projects");
        let session = after("--session-id").or_else(|| after("--resume")).unwrap();
        let path = transcript(&folder, &session).unwrap_or_else(|| {
            std::fs::create_dir_all(folder.join("p")).unwrap();
            folder.join("p").join(format!("{session}.jsonl"))
        });
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if after("--resume").is_some() == lines.is_empty() {
            eprintln!("No conversation found with session ID {session}");
            std::process::exit(1);
        }
        let file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
        let builtins = after("--tools").unwrap_or_default().split(',').map(str::to_owned).collect();
        let (waiting, answers) = (VecDeque::new(), HashMap::new());
        Self {
            orders,
            session,
            builtins,
            to,
            from,
            waiting,
            answers,
            file,
            lines,
            tools: Vec::new(),
            asked: 0,
            started: None,
            folded: Vec::new(),
        }
    }

    fn told(&self, order: &str) -> bool {
        self.orders.iter().any(|it| it == order)
    }

    fn say(&self, line: &Value) {
        let mut out = std::io::stdout().lock();
        if self.told("unknown-lines") {
            writeln!(out, "{}", json!({ "type": "from_the_future", "x": [1] })).unwrap();
        }
        // Nobody reads any more: the end is near.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }

    fn run(mut self) {
        let Some(Heard::Line(first)) = self.from.recv().ok() else { return };
        if self.told("dies-at-start") {
            eprintln!("its last words");
            std::process::exit(7);
        }
        let manifests = &first["request"]["sdkMcpServerManifests"]["host"]["toolsListResult"]["tools"];
        self.tools = manifests.as_array().cloned().unwrap_or_default();
        let said = json!({ "claude_code_version": VERSION, "hooks_applied": true, "hook_on_failure_supported": true });
        let takes_up = std::env::var_os("CLAUDE_CODE_RESUME_INTERRUPTED_TURN").is_some() && self.is_cut();
        if takes_up {
            self.lifecycle("taken-up", "started");
        }
        self.say(&json!({ "type": "control_response", "response": {
            "subtype": "success", "request_id": first["request_id"], "response": said,
        }}));
        if takes_up {
            let note = std::env::var("CLAUDE_CODE_RESUME_PROMPT").unwrap_or_default();
            self.write("user", json!({ "role": "user", "content": note }), json!({ "isMeta": true }));
            self.turn("taken-up");
        }
        loop {
            let line = match self.waiting.pop_front() {
                Some(line) => line,
                None => match self.from.recv() {
                    Ok(Heard::Line(line)) => line,
                    Ok(Heard::Model(_)) => continue,
                    Ok(Heard::End) | Err(_) => return,
                },
            };
            if line["type"] == "user" {
                self.message(&line);
            } else if line["request"]["subtype"] == "cancel_async_message" {
                self.cancel(&line);
            } else if line["type"] == "control_request" {
                self.say(&json!({ "type": "control_response", "response": {
                    "subtype": "success", "request_id": line["request_id"], "response": {},
                }}));
            }
        }
    }

    fn message(&mut self, line: &Value) {
        let uuid = line["uuid"].as_str().unwrap().to_owned();
        if line["queued"] != true {
            self.lifecycle(&uuid, "queued");
        }
        if self.knows(line) {
            self.lifecycle(&uuid, "completed");
            return;
        }
        self.write("user", line["message"].clone(), json!({ "uuid": uuid, "rowSource": "local" }));
        self.turn(&uuid);
    }

    fn turn(&mut self, command: &str) {
        self.started = Some(command.to_owned());
        if !self.told("late-started") && !self.told("no-started") {
            self.start();
        }
        self.say(&json!({ "type": "system", "subtype": "init", "session_id": self.session }));
        let cut = self.steps().err();
        let folded_as = if matches!(cut, Some(Cut::Interrupted | Cut::Failed(_))) { "cancelled" } else { "completed" };
        for uuid in std::mem::take(&mut self.folded) {
            self.lifecycle(&uuid, folded_as);
        }
        let mut result = json!({ "type": "result", "subtype": "success", "is_error": false, "result": "" });
        let mut state = "completed";
        match cut {
            Some(Cut::Interrupted) => {
                result["subtype"] = json!("error_during_execution");
                state = "cancelled";
                let note = json!([{ "type": "text", "text": "[Request interrupted by user]" }]);
                self.write("user", json!({ "role": "user", "content": note }), json!({ "rowSource": "harness" }));
            }
            Some(Cut::Failed(status)) => {
                let text = json!([{ "type": "text", "text": "API Error" }]);
                let message = json!({ "id": "m", "role": "assistant", "model": "<synthetic>", "content": text });
                self.write("assistant", message, json!({ "isApiErrorMessage": true }));
                result["is_error"] = json!(true);
                result["api_error_status"] = json!(status);
            }
            Some(Cut::Hook) | None => {}
        }
        if self.told("completed-first") {
            self.lifecycle(command, state);
            self.say(&result);
        } else {
            self.say(&result);
            self.lifecycle(command, state);
        }
    }

    fn start(&mut self) {
        if let Some(command) = self.started.take().filter(|_| !self.told("no-started")) {
            self.lifecycle(&command, "started");
        }
    }

    fn lifecycle(&self, uuid: &str, state: &str) {
        self.say(&json!({ "type": "command_lifecycle", "command_uuid": uuid, "state": state }));
    }

    fn steps(&mut self) -> Result<(), Cut> {
        loop {
            let message = self.ask()?;
            for (order, over) in [("long-line", 0), ("too-long-line", 1)] {
                if self.told(order) {
                    let empty = json!({ "type": "padding", "x": "" }).to_string().len();
                    self.say(&json!({ "type": "padding", "x": "x".repeat(LONG - empty + over) }));
                }
            }
            if self.told("dies-in-turn") {
                eprintln!("its last words");
                std::process::exit(7);
            }
            let blocks = message["content"].as_array().cloned().unwrap_or_default();
            for block in &blocks {
                let mut one = message.clone();
                one["content"] = json!([block]);
                self.write("assistant", one.clone(), json!({}));
                self.say(&json!({ "type": "assistant", "message": one }));
            }
            self.start();
            let calls: Vec<_> = blocks.iter().filter(|it| it["type"] == "tool_use").collect();
            if calls.is_empty() {
                return Ok(());
            }
            let mut ends = false;
            for call in calls {
                ends |= self.call(call)?;
            }
            self.hook("PostToolBatch", json!({}))?;
            if ends {
                self.write("attachment", Value::Null, json!({ "attachment": { "type": "hook_stopped_continuation" } }));
                return Err(Cut::Hook);
            }
            self.fold();
        }
    }

    /// Runs a call; whether the turn ends with it.
    fn call(&mut self, call: &Value) -> Result<bool, Cut> {
        let (id, name) = (call["id"].as_str().unwrap(), call["name"].as_str().unwrap());
        let ours = name.strip_prefix("mcp__host__").filter(|name| self.tools.iter().any(|it| it["name"] == *name));
        if ours.is_none() && !self.builtins.iter().any(|it| it == name) {
            self.result(id, &format!("No such tool available: {name}"), true);
            return Ok(false);
        }
        if self.told("results-first") {
            self.say(&json!({ "type": "user", "message": { "role": "user", "content": [{
                "type": "tool_result", "tool_use_id": id, "content": "early", "is_error": false,
            }]}}));
        }
        let input = json!({ "tool_name": name, "tool_input": call["input"], "tool_use_id": id });
        let permission =
            json!({ "subtype": "can_use_tool", "tool_name": name, "tool_use_id": id, "input": call["input"] });
        let decided = if self.told("asks-all-at-once") {
            let hook = self.question(hook_callback("PreToolUse", input.clone()));
            let unknown = self.question(json!({ "subtype": "what_is_this" }));
            let decided = self.answer(&hook)?;
            self.answer(&unknown)?;
            let asked = self.question(permission);
            self.answer(&asked)?;
            decided
        } else {
            let decided = self.hook("PreToolUse", input.clone())?;
            if self.told("asks-permission") {
                let asked = self.question(permission);
                self.answer(&asked)?;
            }
            decided
        };
        let decided = &decided["hookSpecificOutput"];
        if decided["permissionDecision"] != "allow" {
            let why = decided["permissionDecisionReason"].as_str().unwrap_or_default();
            self.result(id, &format!("PreToolUse hook error: {why}"), true);
            return Ok(false);
        }
        let (text, is_error) = match ours {
            Some(tool) => {
                let meta = if self.told("no-call-id") { json!({}) } else { json!({ "claudecode/toolUseId": id }) };
                let asked = self.question(json!({ "subtype": "mcp_message", "server_name": "host", "message": {
                    "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
                        "name": tool, "arguments": call["input"], "_meta": meta,
                    },
                }}));
                let answer = self.answer(&asked)?["mcp_response"]["result"].clone();
                let text = answer["content"][0]["text"].as_str().unwrap_or_default().to_owned();
                (text, answer["isError"] == true)
            }
            None => {
                let line = call["input"]["command"].as_str().unwrap();
                let ran = std::process::Command::new("/bin/sh").args(["-c", line]).output().unwrap();
                (String::from_utf8_lossy(&ran.stdout).into_owned(), !ran.status.success())
            }
        };
        let word = self.hook(if is_error { "PostToolUseFailure" } else { "PostToolUse" }, input)?;
        self.result(id, &text, is_error);
        Ok(word["continue"] == false)
    }

    fn result(&mut self, id: &str, text: &str, is_error: bool) {
        let block = json!({ "type": "tool_result", "tool_use_id": id, "content": text, "is_error": is_error });
        let message = json!({ "role": "user", "content": [block] });
        self.write("user", message.clone(), json!({}));
        self.say(&json!({ "type": "user", "message": message }));
    }

    fn hook(&mut self, name: &str, input: Value) -> Result<Value, Cut> {
        let asked = self.question(hook_callback(name, input));
        self.answer(&asked)
    }

    fn question(&mut self, request: Value) -> String {
        self.asked += 1;
        let id = format!("q{}", self.asked);
        self.say(&json!({ "type": "control_request", "request_id": id, "request": request }));
        id
    }

    /// Waits for the answer to a question of its own.
    fn answer(&mut self, id: &str) -> Result<Value, Cut> {
        loop {
            if let Some(answer) = self.answers.remove(id) {
                return Ok(answer);
            }
            self.hear()?;
        }
    }

    /// Takes one thing in; the model's answer is given back.
    fn hear(&mut self) -> Result<Option<Option<(u16, Value)>>, Cut> {
        match self.from.recv().unwrap() {
            Heard::Model(answer) => return Ok(Some(answer)),
            Heard::End => std::process::exit(0),
            Heard::Line(line) if line["type"] == "control_response" => {
                let response = &line["response"];
                self.answers.insert(response["request_id"].as_str().unwrap().to_owned(), response["response"].clone());
            }
            Heard::Line(line) if line["request"]["subtype"] == "interrupt" => {
                if self.told("interrupt-ends") {
                    let said = json!([{ "type": "text", "text": "It was ended." }]);
                    let message = json!({ "id": "e", "role": "assistant", "stop_reason": "end_turn", "content": said });
                    self.write("assistant", message, json!({}));
                }
                return Err(Cut::Interrupted);
            }
            Heard::Line(line) if line["request"]["subtype"] == "cancel_async_message" => self.cancel(&line),
            Heard::Line(line) if self.knows(&line) => self.lifecycle(line["uuid"].as_str().unwrap(), "completed"),
            Heard::Line(mut line) => {
                if line["type"] == "user" {
                    self.lifecycle(line["uuid"].as_str().unwrap(), "queued");
                    line["queued"] = json!(true);
                }
                self.waiting.push_back(line);
            }
        }
        Ok(None)
    }

    /// A message it took is not taken twice.
    fn knows(&self, line: &Value) -> bool {
        line["type"] == "user" && self.lines.iter().any(|it| it["uuid"] == line["uuid"])
    }

    /// Folds what waits into the turn: it stands in the transcript as no message of its own, and is not known by its id later.
    fn fold(&mut self) {
        let (words, rest) = std::mem::take(&mut self.waiting).into_iter().partition(|line| line["type"] == "user");
        self.waiting = rest;
        let words: VecDeque<Value> = words;
        for line in words {
            let uuid = line["uuid"].as_str().unwrap().to_owned();
            let prompt = &line["message"]["content"];
            let attachment = json!({ "type": "queued_command", "prompt": prompt, "source_uuid": uuid });
            self.write("attachment", Value::Null, json!({ "attachment": attachment }));
            self.lifecycle(&uuid, "started");
            self.folded.push(uuid);
        }
    }

    /// Takes back a message it has not begun with.
    fn cancel(&mut self, line: &Value) {
        let wanted = &line["request"]["message_uuid"];
        let waits = self.waiting.iter().position(|it| it["uuid"] == *wanted);
        if let Some(at) = waits {
            self.waiting.remove(at);
            self.lifecycle(wanted.as_str().unwrap(), "cancelled");
        }
        self.say(&json!({ "type": "control_response", "response": {
            "subtype": "success", "request_id": line["request_id"], "response": { "cancelled": waits.is_some() },
        }}));
    }

    fn ask(&mut self) -> Result<Value, Cut> {
        let shown = |line: &&Value| {
            ["user", "assistant"].iter().any(|it| line["type"] == *it) || line["attachment"]["type"] == "queued_command"
        };
        let messages: Vec<Value> = self
            .lines
            .iter()
            .filter(shown)
            .filter(|line| line["isApiErrorMessage"] != true)
            .map(|line| match &line["attachment"]["prompt"] {
                Value::Null => json!({ "role": line["message"]["role"], "content": line["message"]["content"] }),
                words => json!({ "role": "user", "content": words }),
            })
            .collect();
        let offered = self.tools.iter().map(|tool| {
            let name = format!("mcp__host__{}", tool["name"].as_str().unwrap());
            json!({ "name": name, "input_schema": tool["inputSchema"] })
        });
        let builtins = self.builtins.iter().filter(|it| !it.is_empty()).map(|name| json!({ "name": name }));
        let tools: Vec<Value> = offered.chain(builtins).collect();
        let body = json!({ "model": "m", "messages": messages, "tools": tools }).to_string();
        let to = self.to.clone();
        std::thread::spawn(move || to.send(Heard::Model(post(&body))));
        loop {
            match self.hear()? {
                None => {}
                Some(Some((200, message))) => return Ok(message),
                Some(answer) => return Err(Cut::Failed(answer.map(|(status, _)| status))),
            }
        }
    }

    /// One line of the transcript, on disk before anything follows from it.
    fn write(&mut self, kind: &str, message: Value, more: Value) {
        let parent = self.lines.iter().rev().find_map(|it| it["uuid"].as_str()).map(str::to_owned);
        let mut line = json!({ "parentUuid": parent, "isSidechain": false, "type": kind, "message": message,
            "uuid": uuid::Uuid::new_v4(), "sessionId": self.session, "version": VERSION, "timestamp": "2026-01-01T00:00:00Z" });
        if line["message"].is_null() {
            line.as_object_mut().unwrap().remove("message");
        }
        line.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        self.file.write_all(format!("{line}\n").as_bytes()).unwrap();
        self.lines.push(line);
    }

    /// Whether the transcript shows a turn that was cut.
    fn is_cut(&self) -> bool {
        let last = self.lines.iter().rev().find(|it| it["uuid"].is_string() && it["isApiErrorMessage"] != true);
        last.is_some_and(|line| {
            let result = line["message"]["content"][0]["type"] == "tool_result";
            let calls = line["message"]["content"][0]["type"] == "tool_use";
            let folded = line["attachment"]["type"] == "queued_command";
            calls || folded || (line["type"] == "user" && (result || line["rowSource"] != "harness"))
        })
    }
}

fn hook_callback(name: &str, mut input: Value) -> Value {
    input["hook_event_name"] = json!(name);
    json!({ "subtype": "hook_callback", "callback_id": name, "input": input })
}

fn transcript(projects: &Path, session: &str) -> Option<PathBuf> {
    let folders = std::fs::read_dir(projects).ok()?;
    folders.map(|it| it.unwrap().path().join(format!("{session}.jsonl"))).find(|it| it.exists())
}

/// Asks the model, without a stream.
fn post(body: &str) -> Option<(u16, Value)> {
    let url = std::env::var("ANTHROPIC_BASE_URL").unwrap();
    let key = std::env::var("ANTHROPIC_API_KEY").unwrap();
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).ok()?;
    let length = body.len();
    write!(
        stream,
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8(answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some((status, serde_json::from_str(body).ok()?))
}
