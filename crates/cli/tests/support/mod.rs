//! What tests of the built program share: a stage of files, the program on it, and a look at the processes it leaves.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its own part")]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Far above what a loaded machine needs: only a failing test waits it out.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `holds` answers something, looking again and again.
pub fn wait_for<T>(what: &str, within: Duration, mut holds: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + within;
    loop {
        if let Some(found) = holds() {
            return found;
        }
        assert!(Instant::now() < until, "waited {} s for {what}", within.as_secs());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A folder with a node, its tools, a workspace and a store to be.
pub struct Stage {
    folder: tempfile::TempDir,
    pub session: String,
    /// Named by `AGENTRUN_CLAUDE` to the program; an empty one is not passed.
    pub claude: PathBuf,
}

impl Stage {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("agentrun-test-").tempdir().unwrap();
        fs::create_dir(folder.path().join("work")).unwrap();
        let claude = std::env::var_os("AGENTRUN_CLAUDE").map(PathBuf::from).unwrap_or_default();
        Self { folder, session: format!("s-{}", uuid::Uuid::new_v4().simple()), claude }
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file in the workspace.
    pub fn work(&self, name: &str) -> PathBuf {
        self.at("work").join(name)
    }

    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.at(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// A program of the shell.
    pub fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.write(name, &format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    pub fn node(&self, node: &Value) {
        self.write("node.json", &node.to_string());
    }

    pub fn url(&self) -> String {
        format!("sqlite:{}", self.at("store/agentrun.db").display())
    }

    /// Whether the store was made.
    pub fn stored(&self) -> bool {
        self.at("store").exists()
    }

    /// The program with these arguments, this stage's store, and no key.
    pub fn agentrun(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agentrun"));
        command.args(args).args(["--store", &self.url()]).current_dir(self.root());
        for name in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "AGENTRUN_CLAUDE"] {
            command.env_remove(name);
        }
        if !self.claude.as_os_str().is_empty() {
            command.env("AGENTRUN_CLAUDE", &self.claude);
        }
        command
    }

    /// The command `run` of the stage's node and session on Claude Code, with a made-up key.
    pub fn run(&self, base_url: &str) -> Command {
        let mut command = self.agentrun(&[
            "run",
            "node.json",
            "--session",
            &self.session,
            "--workspace",
            "work",
            "--base-url",
            base_url,
            "--json",
        ]);
        command.env("ANTHROPIC_API_KEY", "made-up-key-0123456789");
        command
    }

    /// The command `resume` of the stage's session, with a made-up key.
    pub fn resume(&self) -> Command {
        let mut command = self.agentrun(&["resume", &self.session, "--json"]);
        command.env("ANTHROPIC_API_KEY", "made-up-key-0123456789");
        command
    }

    /// Starts a command with its outputs in files.
    pub fn start(&self, mut command: Command) -> Running {
        let name = uuid::Uuid::new_v4().simple().to_string();
        let (out, err) = (self.at(&format!("{name}.stdout")), self.at(&format!("{name}.stderr")));
        let child = command
            .stdin(Stdio::null())
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .spawn()
            .unwrap();
        Running { child, out, err }
    }

    /// Runs a command to its end.
    pub fn ends(&self, command: Command) -> Ran {
        self.start(command).end(PATIENCE)
    }

    /// The session's records.
    pub fn records(&self) -> Vec<Value> {
        let ran = self.ends(self.agentrun(&["show", &self.session, "--json"]));
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Holds that the session's records break no invariant.
    pub fn check(&self) {
        let ran = self.ends(self.agentrun(&["show", &self.session, "--check"]));
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }

    /// How often the stage's tool ran: it writes a line each time.
    pub fn runs(&self) -> Vec<String> {
        fs::read_to_string(self.work("ran")).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

/// A command that runs.
pub struct Running {
    pub child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether its stderr holds a text by now.
    pub fn said(&self, text: &str) -> bool {
        fs::read_to_string(&self.err).unwrap().contains(text)
    }

    /// Whether its stdout holds a text by now.
    pub fn wrote(&self, text: &str) -> bool {
        fs::read_to_string(&self.out).unwrap().contains(text)
    }

    /// The whole lines of its stdout so far.
    pub fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.out).unwrap();
        text.split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Its end, which must come in time.
    pub fn end(mut self, within: Duration) -> Ran {
        let until = Instant::now() + within;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() >= until {
                self.child.kill().unwrap();
                self.child.wait().unwrap();
                let said = fs::read_to_string(&self.err).unwrap_or_default();
                panic!("did not end within {} s; it said:\n{said}", within.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let text = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        Ran { code: status.code(), stdout: text(&self.out), stderr: text(&self.err) }
    }

    /// SIGKILL, and its end.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    /// As Ctrl-C does.
    pub fn interrupt(&self) {
        self.signal(rustix::process::Signal::INT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that fails in the middle leaves nothing behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that ended.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// The last line of `--json`.
    pub fn last(&self) -> Value {
        let line = self.stdout.lines().last().unwrap_or_else(|| panic!("nothing on stdout: {self:?}"));
        serde_json::from_str(line).unwrap()
    }

    /// Holds that the node delivered, and answers the value.
    pub fn delivered(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        let last = self.last();
        assert_eq!(last["type"], "delivered", "{self:?}");
        last["value"].clone()
    }
}

/// A process that carries a session's mark.
#[derive(Clone, Debug)]
pub struct Marked {
    pub pid: u32,
    pub exe: PathBuf,
    pub environ: Vec<u8>,
    pub cmdline: Vec<u8>,
}

/// The processes of a session that live now.
pub fn marked(session: &str) -> Vec<Marked> {
    let part = format!(":{session}:");
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
            let mark = environ.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"AGENTRUN_MARK="))?;
            std::str::from_utf8(mark).ok()?.contains(&part).then_some(())?;
            let exe = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
            let cmdline = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            Some(Marked { pid, exe, environ, cmdline })
        })
        .collect()
}

/// Whether `bytes` hold `text`.
pub fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// A node with one command tool `search` that counts its runs and waits for the file `go`.
pub fn searching(stage: &Stage, replay: &str) -> Value {
    stage.program(
        "search.sh",
        "args=$(cat)\necho \"$args\" >> ran\n: > started\nwhile [ ! -e go ]; do sleep 0.02; done\necho \"found by search: $args\"",
    );
    json!({
        "label": "triage",
        "system": ["You triage tickets."],
        "prompt": PROMPT,
        "model": "claude-sonnet-4-5",
        "schema": {
            "type": "object",
            "properties": {"severity": {"enum": ["low", "high"]}},
            "required": ["severity"],
            "additionalProperties": false
        },
        "tools": [{
            "name": "search",
            "description": "Searches the runbooks.",
            "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
            "command": ["./search.sh"],
            "replay": replay
        }],
        "turn_limit": 4
    })
}

/// The prompt of [`searching`]: words that nothing else holds, so that they can be counted.
pub const PROMPT: &str = "Ticket 4711: the disk of db-3 is full.";

/// A script step that calls `search`.
pub fn calls_search() -> Value {
    json!({"when": {"results": 0}, "text": "I search.", "tools": [{"name": "search", "input": {"q": "disk full"}}]})
}

/// A script step that submits `severity`, once there is a result.
pub fn submits(severity: &str) -> Value {
    json!({"when": {"results": 1}, "tools": [{"name": "submit", "input": {"value": {"severity": severity}}}]})
}

/// A script step for whatever else a harness asks.
pub fn says_done() -> Value {
    json!({"text": "Done.", "times": "always"})
}

/// Records of a kind.
pub fn of_kind(records: &[Value], kind: &str) -> Vec<Value> {
    records.iter().filter(|record| record["kind"] == kind).cloned().collect()
}
