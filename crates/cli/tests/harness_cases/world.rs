//! A world for one case: a folder with a workspace, a store and tools that note their runs, a scripted model, and the built program in a
//! clean environment. Waits are for conditions; their bound is what a failing test waits, never what a passing one needs.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use agentrun_testing::script::Script;
use agentrun_testing::scripted::{Options, ScriptedModel, SeenRequest};
use serde_json::{Value, json};

use crate::harness::{Harness, seen};
use crate::processes::{Process, below, marked};

/// Longest wait for what must happen.
const PATIENCE: Duration = Duration::from_secs(180);
/// What the node asks. Occurs nowhere else.
pub(crate) const PROMPT: &str = "Count the herons at the northern weir, then submit their number.";
/// A key that is none.
pub(crate) const KEY: &str = "sk-made-up-for-tests";

/// Waits until `found` gives something.
pub(crate) fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    within(what, PATIENCE, Instant::now(), &mut found)
}

/// Waits until `found` gives something, at most `bound` after `from`.
pub(crate) fn within<T>(what: &str, bound: Duration, from: Instant, mut found: impl FnMut() -> Option<T>) -> T {
    loop {
        let looked = from.elapsed();
        if let Some(it) = found() {
            return it;
        }
        assert!(looked < bound, "waited {looked:?} until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) struct World {
    folder: tempfile::TempDir,
    /// The session; no other test on this machine has it.
    pub(crate) session: String,
    /// What the node runs on.
    pub(crate) on: Harness,
    /// The harness program the binary is pointed to.
    pub(crate) harness: PathBuf,
    /// The one that is installed.
    program: PathBuf,
    /// The provider's key; `None` sets none.
    pub(crate) key: Option<String>,
    /// Members of the node file over the usual ones.
    pub(crate) node: Value,
    tools: Mutex<Vec<Value>>,
}

impl World {
    /// A world in which a program that takes long to say its version is not asked for it: a run asks each time, and OpenCode's takes as long
    /// as half a start.
    pub(crate) fn new(on: Harness) -> Self {
        let mut world = Self::plain(on);
        if on.name == "opencode" {
            let (version, real) = (agentrun_adapter::opencode::PROGRAM.pinned, world.program.display());
            let script = format!("#!/bin/sh\n[ \"$1\" = --version ] && exec echo {version}\nexec '{real}' \"$@\"\n");
            world.harness = world.program("bin/quick", &script);
        }
        world
    }

    /// A world with the program as it is installed.
    pub(crate) fn plain(on: Harness) -> Self {
        let program = std::env::var_os(on.variable).map(PathBuf::from).unwrap_or_else(|| {
            panic!("{} is not set: run testing/run, which installs the program and sets it", on.variable)
        });
        let folder = tempfile::Builder::new().prefix("agentrun-case-").tempdir().unwrap();
        for name in ["workspace", "home", "tmp", "tools", "store"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self {
            folder,
            session: format!("s{}", uuid::Uuid::new_v4().simple()),
            on,
            harness: program.clone(),
            program,
            key: Some(KEY.to_owned()),
            node: json!({}),
            tools: Mutex::default(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Adds a tool to the node: it notes its arguments and its pid, waits for as long as [`World::hold`] says, and answers.
    pub(crate) fn tool(&self, name: &str, replay: &str, price: Option<&str>) -> Tool {
        let tool = Tool { folder: self.path("tools"), name: name.to_owned() };
        let (pids, runs, hold) = (tool.file("pids"), tool.file("runs"), tool.file("hold"));
        // The second process cleared its environment and has a session of its own: only the guard can end it.
        let script = format!(
            "#!/bin/sh\n\
             arguments=$(cat)\n\
             if [ -e '{hold}' ]; then\n\
               env -i setsid sleep 3600 >/dev/null 2>&1 </dev/null &\n\
               echo $! >>'{pids}'\n\
             fi\n\
             echo $$ >>'{pids}'\n\
             # Killed before it gave them: a run all the same.\n\
             [ -n \"$arguments\" ] || arguments=null\n\
             printf '%s\\n' \"$arguments\" >>'{runs}'\n\
             while [ -e '{hold}' ]; do sleep 0.05; done\n\
             echo \"{name} counted 17 herons\"\n",
            hold = hold.display(),
            pids = pids.display(),
            runs = runs.display(),
        );
        self.program(&format!("tools/{name}.sh"), &script);
        let mut spec = json!({"name": name, "description": "Counts.", "input_schema": {"type": "object"},
            "command": [format!("../tools/{name}.sh")], "replay": replay, "timeout_s": 300});
        if let Some(price) = price {
            spec["price_usd"] = price.into();
        }
        self.tools.lock().unwrap().push(spec);
        tool
    }

    /// Writes a program into the world.
    pub(crate) fn program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A program named as the harness that only notes that it was started; and where it notes it.
    pub(crate) fn noting_program(&self) -> (PathBuf, PathBuf) {
        let noted = self.path("started");
        (
            self.program(
                &format!("bin/{}", self.on.name),
                &format!("#!/bin/sh\necho \"$0 $*\" >>'{}'\nexit 1\n", noted.display()),
            ),
            noted,
        )
    }

    pub(crate) fn store(&self) -> String {
        format!("sqlite:{}", self.path("store/agentrun.db").display())
    }

    /// The program in a clean environment.
    pub(crate) fn agentrun(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agentrun"));
        command.env_clear().current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8");
        command.env("HOME", self.path("home")).env("TMPDIR", self.path("tmp")).env(self.on.variable, &self.harness);
        if let Some(key) = &self.key {
            command.env(self.on.key, key);
        }
        command
    }

    /// The command of every case: the node on its harness, with this model as its provider.
    pub(crate) fn run(&self, base_url: &str) -> Command {
        let mut node = json!({"label": "herons", "system": ["You count birds."], "prompt": PROMPT, "model": self.on.model,
            "schema": {"type": "object", "properties": {"herons": {"type": "integer"}}, "required": ["herons"],
                "additionalProperties": false},
            "tools": *self.tools.lock().unwrap(), "budget_usd": "5", "turn_limit": 8});
        for (name, value) in self.node.as_object().unwrap() {
            node[name] = value.clone();
        }
        let file = self.path("node/node.json");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, node.to_string()).unwrap();
        let mut command = self.agentrun();
        command.arg("run").arg(&file).args(["--harness", self.on.name, "--provider", self.on.provider, "--json"]);
        command.args(["--session", &self.session, "--base-url", base_url, "--store", &self.store()]);
        command.arg("--workspace").arg(self.path("workspace"));
        command
    }

    /// The harness that a running program started.
    pub(crate) fn harness_below(&self, program: &Running) -> Process {
        let found = below(program.process().pid).into_iter().find(|it| self.is_harness(it));
        found.expect("the harness runs")
    }

    /// Whether this process runs the harness program.
    pub(crate) fn is_harness(&self, process: &Process) -> bool {
        process.executable() == fs::canonicalize(&self.program).ok()
    }

    /// The session's records, as `show --json` prints them; none when there is no session yet.
    pub(crate) fn records(&self) -> Vec<Value> {
        let shown = self.agentrun().args(["show", &self.session, "--json", "--store", &self.store()]).output().unwrap();
        lines(&String::from_utf8(shown.stdout).unwrap())
    }

    /// What `show` tells a person.
    pub(crate) fn shown(&self) -> String {
        let shown = self.agentrun().args(["show", &self.session, "--store", &self.store()]).output().unwrap();
        assert!(shown.status.success());
        String::from_utf8(shown.stdout).unwrap()
    }

    /// What must hold when a case is over: every invariant of the records, and no process left.
    pub(crate) fn check(&self) {
        let check =
            self.agentrun().args(["show", &self.session, "--check", "--store", &self.store()]).output().unwrap();
        let told = String::from_utf8_lossy(&check.stderr).into_owned();
        assert_eq!(check.status.code(), Some(0), "show --check: {told}\n{}", self.shown());
        assert_eq!(marked(&self.session), [], "processes of the session are left");
    }
}

/// A tool's notes.
pub(crate) struct Tool {
    folder: PathBuf,
    name: String,
}

impl Tool {
    fn file(&self, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", self.name))
    }

    /// Makes every run wait from now on, until [`Tool::release`].
    pub(crate) fn hold(&self) {
        fs::write(self.file("hold"), "").unwrap();
    }

    pub(crate) fn release(&self) {
        fs::remove_file(self.file("hold")).unwrap();
    }

    /// The arguments of each run, in order.
    pub(crate) fn runs(&self) -> Vec<Value> {
        lines(&fs::read_to_string(self.file("runs")).unwrap_or_default())
    }

    /// Waits until a held run has begun, and gives its processes.
    pub(crate) fn held(&self) -> Vec<Process> {
        until("the tool runs", || (!self.runs().is_empty()).then_some(()));
        let pids = fs::read_to_string(self.file("pids")).unwrap();
        pids.lines().map(|pid| Process::of(pid.parse().unwrap()).expect("a process of the held tool")).collect()
    }
}

/// One JSON value a line.
fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// A program that runs, its output read as it comes. Dropping it kills it.
pub(crate) struct Running {
    child: Child,
    stdout: Arc<Mutex<String>>,
    readers: Option<(JoinHandle<()>, JoinHandle<String>)>,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// `None`: by a signal.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = Arc::new(Mutex::new(String::new()));
        let (out, mut err) = (BufReader::new(child.stdout.take().unwrap()), child.stderr.take().unwrap());
        let kept = stdout.clone();
        let out = std::thread::spawn(move || {
            for line in out.lines() {
                *kept.lock().unwrap() += &(line.unwrap() + "\n");
            }
        });
        let err = std::thread::spawn(move || {
            let mut text = String::new();
            err.read_to_string(&mut text).unwrap();
            text
        });
        Self { child, stdout, readers: Some((out, err)) }
    }

    /// Starts it and waits for its end.
    pub(crate) fn to_end(command: Command) -> Ended {
        Self::start(command).wait()
    }

    pub(crate) fn process(&self) -> Process {
        Process::of(self.child.id()).expect("the program runs")
    }

    /// The same, unless it has ended.
    pub(crate) fn process_now(&self) -> Option<Process> {
        Process::of(self.child.id())
    }

    /// The events it has printed so far.
    pub(crate) fn events(&self) -> Vec<Value> {
        lines(&self.stdout.lock().unwrap())
    }

    /// SIGKILL; gives the moment just before it was sent.
    pub(crate) fn kill_9(mut self) -> (Instant, Ended) {
        let at = Instant::now();
        self.child.kill().unwrap();
        (at, self.wait())
    }

    pub(crate) fn wait(self) -> Ended {
        let from = Instant::now();
        self.wait_within(PATIENCE, from)
    }

    /// Waits for its end, at most `bound` after `from`.
    pub(crate) fn wait_within(mut self, bound: Duration, from: Instant) -> Ended {
        let child = &mut self.child;
        let stdout = &self.stdout;
        let status = within("the program ends", bound, from, || child.try_wait().unwrap());
        let (out, err) = self.readers.take().unwrap();
        out.join().unwrap();
        let stderr = err.join().unwrap();
        Ended { code: status.code(), stdout: stdout.lock().unwrap().clone(), stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Already ended in a test that passed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// The result: the last line of `--json`.
    pub(crate) fn result(&self) -> Value {
        let line = self.stdout.lines().next_back().unwrap_or_else(|| panic!("no result: {self:?}"));
        serde_json::from_str(line).unwrap()
    }

    /// The result of a node that must have delivered `herons`.
    pub(crate) fn delivered(&self, herons: i64) -> Value {
        let result = self.result();
        assert_eq!(self.code, Some(0), "{self:?}");
        assert_eq!((&result["type"], &result["value"]), (&json!("delivered"), &json!({"herons": herons})), "{self:?}");
        result
    }
}

/// A model that plays these steps.
pub(crate) fn model(steps: Value) -> ScriptedModel {
    model_on(0, steps)
}

/// The same on a port.
pub(crate) fn model_on(port: u16, steps: Value) -> ScriptedModel {
    let script = Script::parse(&json!({"steps": steps}).to_string()).unwrap();
    ScriptedModel::start_with(script, Options { port, log: None }).unwrap()
}

/// The step that ends a case: once `results` results are in what the model sees, it submits 17.
pub(crate) fn submits_after(results: usize) -> Value {
    json!({"when": {"results": results}, "tools": [{"name": "submit", "input": {"value": {"herons": 17}}}], "times": 3})
}

/// Waits until the model was asked this often.
pub(crate) fn asked(model: &ScriptedModel, times: usize) {
    until(&format!("the model is asked {times} times"), || (model.requests().len() >= times).then_some(()));
}

/// The prompt stands once in what the model saw, in each of these requests.
pub(crate) fn prompt_stands_once(requests: &[SeenRequest]) {
    for (number, request) in requests.iter().enumerate() {
        let seen = seen(request);
        assert_eq!(seen.matches(PROMPT).count(), 1, "request {number}:\n{seen}");
    }
}

/// Records of a kind.
pub(crate) fn of_kind<'a>(records: &'a [Value], kind: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["kind"] == kind).collect()
}

/// The outcome of each call of a tool, in order.
pub(crate) fn outcomes_of<'a>(records: &'a [Value], tool: &str) -> Vec<&'a Value> {
    let intents = of_kind(records, "intent").into_iter().filter(|it| it["name"] == tool).map(|it| it["key"].clone());
    let keys: Vec<Value> = intents.collect();
    of_kind(records, "outcome").into_iter().filter(|it| keys.contains(&it["key"])).collect()
}

/// Copies the files of a folder, not those below it.
pub(crate) fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap).filter(|it| it.file_type().unwrap().is_file()) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
