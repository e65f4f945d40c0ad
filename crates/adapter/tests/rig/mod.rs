//! A session of a real program on a store in memory and a scripted model, with a tool host that records calls as the runner does. One rig
//! for all harnesses: what differs stands in the `harness` module of each one's tests.
// Each harness's tests use their part of it.
#![allow(dead_code)]

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentrun_adapter::process::{Epochs, Marker, sweep};
use agentrun_adapter::{
    AdapterError, AdapterProfile, AdapterSession, Admission, AgentAdapter, Answer, Checked, Deltas, Dirs, Journal,
    ModelApi, ModelEndpoint, NativeFiles as _, NativeHistory, Observed, RecordedFiles, Refusal, Seat, SessionPlan,
    Start, ToolCall, ToolHost, ToolSpec, Turn, admit,
};
use agentrun_kernel::{
    Batch, Begun, Body, Bound, Built, CallId, Digest, Drive, EffectKey, EffectKind, EffectSpec, LogKey, MemoryStore,
    Message, MessageId, OnRepeat, Opened, Outcome, OutcomeEnd, Owned, PlaceTicket, PlanDigests, Record, Repair, Replay,
    Restart, RunId, SessionKey, SessionState, SessionStore as _, SessionTask, Source, StopRaiser, Submission,
    SubmissionId, Survey, TurnId, read_all, validate,
};
use agentrun_testing::script::{Script, Step, ToolUse};
use agentrun_testing::scripted::ScriptedModel;
use async_trait::async_trait;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::harness::{self, CALL, MODEL};

pub(crate) const NOTE: &str = "The session was interrupted and goes on.";
const KEY: &str = "made-up-key-0001";

/// What the host does with a call of `work`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Answers,
    /// Answers, after this long.
    Takes(Duration),
    /// Begins and never ends.
    Hangs,
    /// Begins, and answers once it is let go.
    Waits,
    /// As the runner does when it drains.
    Withheld,
}

/// Calls the host was asked for: id, tool, ordinal.
pub(crate) type Seen = (String, String, u32);

pub(crate) struct Host {
    drive: Drive,
    work: Work,
    specs: Vec<ToolSpec>,
    pub(crate) seen: Mutex<Vec<Seen>>,
    /// A call of `work` has its intent.
    pub(crate) begun: Notify,
    /// One that waits may end.
    pub(crate) let_go: Notify,
}

impl Host {
    fn spec(&self, call: &ToolCall, kind: EffectKind) -> EffectSpec {
        let turn = self.drive.with_state(|state| state.open_turn.as_ref().map(|turn| turn.id.clone())).unwrap();
        let digest = Digest::of_json(&call.arguments);
        EffectSpec {
            key: EffectKey::of_call(&turn, &call.call, &call.tool, &digest, call.ordinal),
            kind,
            replay: Replay::Never,
            on_repeat: OnRepeat::Refuse,
            name: call.tool.clone(),
            turn: Some(turn),
            call: Some(call.call.clone()),
            arguments: call.arguments.clone(),
            digest,
            paid: None,
        }
    }
}

#[async_trait]
impl ToolHost for Host {
    fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }

    async fn call(&self, call: ToolCall) -> Result<Answer, Restart> {
        self.seen.lock().unwrap().push((call.call.to_string(), call.tool.clone(), call.ordinal));
        if call.tool == "work" && self.work == Work::Withheld {
            return Ok(Answer::Withhold);
        }
        if !self.specs.iter().any(|spec| spec.name == call.tool) {
            return Ok(Answer::Withhold);
        }
        let spec = self.spec(&call, EffectKind::Tool);
        let (key, tool) = (spec.key.clone(), call.tool.clone());
        let long = call.arguments["characters"].as_u64().map(|count| "x".repeat(count as usize));
        let effect = match self.drive.begin(spec, call.tail.bodies(), None).await {
            Ok(Begun::Open(effect)) => effect,
            other => panic!("{other:?}"),
        };
        drop(call);
        if tool == "work" {
            self.begun.notify_one();
            if let Work::Takes(long) = self.work {
                tokio::time::sleep(long).await;
            }
            if self.work == Work::Waits {
                self.let_go.notified().await;
            }
            if self.work == Work::Hangs {
                std::future::pending::<()>().await;
            }
        }
        let text = long.unwrap_or_else(|| format!("{tool} done"));
        effect.finish(Outcome::new(key, OutcomeEnd::Ok, text.as_str()), Vec::new(), None).await.unwrap();
        Ok(Answer::Text { text: Arc::from(text), is_error: false, end_turn: tool == "submit" })
    }

    async fn observe(&self, call: ToolCall) -> Result<Observed, Restart> {
        assert_ne!(harness::adapter().profile().widest.builtins, Built::Neither, "its own tools are denied");
        self.seen.lock().unwrap().push((call.call.to_string(), call.tool.clone(), call.ordinal));
        if call.arguments.to_string().contains("forbidden") {
            return Ok(Observed::Deny(Arc::from("not here")));
        }
        match self.drive.begin(self.spec(&call, EffectKind::Builtin), call.tail.bodies(), None).await {
            Ok(Begun::Open(effect)) => Ok(Observed::Run(effect)),
            other => panic!("{other:?}"),
        }
    }
}

/// One session over several owners of it, each with a fresh home.
pub(crate) struct Rig {
    pub(crate) model: ScriptedModel,
    pub(crate) workspace: TempDir,
    store: MemoryStore,
    key: SessionKey,
    builtins: Vec<String>,
    api: ModelApi,
    /// Asked in place of the scripted model.
    elsewhere: Option<String>,
    /// Started in place of the real one.
    program: Option<PathBuf>,
    adapter: fn() -> Box<dyn AgentAdapter>,
    scratch: TempDir,
}

/// The adapter with another program.
struct Instead {
    adapter: Box<dyn AgentAdapter>,
    program: Option<PathBuf>,
}

#[async_trait]
impl AgentAdapter for Instead {
    fn profile(&self) -> &AdapterProfile {
        self.adapter.profile()
    }

    fn history(&self) -> &dyn NativeHistory {
        self.adapter.history()
    }

    async fn check(&self, plan: &SessionPlan, prior: Option<&Survey>) -> Result<Checked, Refusal> {
        let checked = harness::check(&*self.adapter, plan, prior).await?;
        Ok(Checked { program: self.program.clone().or(checked.program.clone()), ..checked })
    }

    async fn open(&self, admission: Admission, seat: Seat) -> Result<Box<dyn AdapterSession>, AdapterError> {
        self.adapter.open(admission, seat).await
    }
}

/// An owner of the session.
pub(crate) struct Owner {
    pub(crate) session: Box<dyn AdapterSession>,
    pub(crate) host: Arc<Host>,
    pub(crate) drive: Drive,
    pub(crate) stop: StopRaiser,
    pub(crate) survey: Survey,
    pub(crate) marker: Marker,
    /// Removed with the owner.
    home: TempDir,
    task: SessionTask,
}

impl Rig {
    pub(crate) fn new(steps: Vec<Step>) -> Self {
        Self {
            model: ScriptedModel::start(Script::new(steps).unwrap()).unwrap(),
            workspace: tempfile::tempdir().unwrap(),
            store: MemoryStore::new().unwrap(),
            key: SessionKey::new(format!("{}-{}", harness::adapter().profile().name, TurnId::fresh())).unwrap(),
            builtins: Vec::new(),
            api: harness::adapter().profile().speaks[0],
            elsewhere: None,
            program: None,
            adapter: harness::adapter,
            scratch: tempfile::tempdir().unwrap(),
        }
    }

    /// A file beside the workspace.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Starts this shell script in place of the program; `HARNESS` in it is the real one.
    pub(crate) fn with_program(mut self, script: &str) -> Self {
        let path = self.scratch("program");
        let script = script.replace("HARNESS", real().to_str().unwrap());
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        self.program = Some(path);
        self
    }

    /// The adapter as this makes it.
    pub(crate) fn with_adapter(self, adapter: fn() -> Box<dyn AgentAdapter>) -> Self {
        Self { adapter, ..self }
    }

    pub(crate) fn with_builtins(mut self, names: &[&str]) -> Self {
        self.builtins = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    pub(crate) fn speaking(mut self, api: ModelApi) -> Self {
        self.api = api;
        self
    }

    pub(crate) fn asking(mut self, base_url: String) -> Self {
        self.elsewhere = Some(base_url);
        self
    }

    pub(crate) fn with_the_real_program(self) -> Self {
        Self { program: None, ..self }
    }

    /// The harness's history as the records hold it now.
    pub(crate) async fn native(&self) -> String {
        let files = RecordedFiles::fold(&self.records().await);
        files.streams().iter().map(|it| String::from_utf8_lossy(&files.bytes(it).unwrap()).into_owned()).collect()
    }

    pub(crate) async fn records(&self) -> Vec<Record> {
        read_all(&self.store, &LogKey::from(&self.key)).await.unwrap()
    }

    /// Takes the session, repairs its history by `want`, and opens it in a fresh home.
    pub(crate) async fn own(&self, work: Work, want: &[Repair]) -> Owner {
        self.own_with(work, want, &|_| None).await
    }

    /// The same, with the recorded responses.
    pub(crate) async fn own_with(
        &self,
        work: Work,
        want: &[Repair],
        response: &(dyn Fn(&str) -> Option<Arc<[u8]>> + Sync),
    ) -> Owner {
        let adapter = Instead { adapter: (self.adapter)(), program: self.program.clone() };
        real();
        let records = self.records().await;
        let mut files = RecordedFiles::fold(&records);
        let state = SessionState::fold(&records);
        let fresh = records.is_empty();
        let writer = self.store.open(&self.key, None).await.unwrap();
        let epoch = writer.epoch();
        let watch = self.store.watch(&LogKey::from(&self.key)).await.unwrap();
        let task = SessionTask::spawn(Owned { writer, state, watch, earlier: Vec::new(), events: None });
        let drive = task.drive();
        let bodies = fresh.then(|| Body::Bound(bound(&self.key))).into_iter().chain([Body::Opened(Opened {
            earlier: Vec::new(),
            version: "test".to_owned(),
            harness: None,
            native_session: None,
        })]);
        drive.append(Batch::of(bodies), None).await.unwrap();
        for write in adapter.history().repair(&files, want, response).unwrap() {
            files.apply(&write);
            drive.append(Batch::of([Body::Native(write)]), None).await.unwrap();
        }
        let home = tempfile::tempdir().unwrap();
        files.restore(home.path()).unwrap();
        let tmp = home.path().join("tmp");
        std::fs::create_dir_all(&tmp).unwrap();
        let tool = |name: &str| ToolSpec {
            name: name.to_owned(),
            description: format!("does {name}"),
            input_schema: json!({"type": "object"}),
        };
        let specs = vec![tool("work"), tool("submit")];
        let host = Arc::new(Host {
            drive: drive.clone(),
            work,
            specs: specs.clone(),
            seen: Mutex::default(),
            begun: Notify::new(),
            let_go: Notify::new(),
        });
        let marker = Marker { store: self.store_id(), session: self.key.to_string(), epoch: epoch.0 };
        let seat = Seat {
            drive: drive.clone(),
            journal: Journal::new(drive.clone(), home.path()),
            tools: host.clone(),
            model: ModelEndpoint::Http {
                base_url: self.elsewhere.clone().unwrap_or_else(|| self.model.base_url()),
                key: Arc::from(KEY),
                api: self.api,
            },
            dirs: Dirs { home: home.path().to_owned(), tmp, workspace: self.workspace.path().to_owned() },
            deltas: Deltas::nowhere(),
            marker: marker.clone(),
        };
        let plan = SessionPlan {
            session: self.key.clone(),
            model: MODEL.to_owned(),
            api: Some(self.api),
            system: vec!["You are a test.".to_owned()],
            tools: specs,
            builtins: self.builtins.clone(),
            fork: false,
        };
        let survey = adapter.history().survey(&files).unwrap();
        let admission = admit(&adapter, &plan, Some(&survey)).await.unwrap();
        let session = adapter.open(admission, seat).await.unwrap();
        Owner { session, host, drive, stop: StopRaiser::new(), survey, marker, home, task }
    }

    fn store_id(&self) -> String {
        self.store.id().to_owned()
    }

    /// The records hold every invariant.
    pub(crate) async fn assert_valid(&self) {
        validate(&self.records().await).unwrap();
    }

    /// Every outcome's text, by tool name.
    pub(crate) async fn outcomes(&self) -> Vec<(String, OutcomeEnd, String)> {
        let mut names = HashMap::new();
        let mut outcomes = Vec::new();
        for record in self.records().await {
            match record.body {
                Body::Intent(intent) => {
                    names.insert(intent.key.clone(), intent.name.clone());
                }
                Body::Outcome(outcome) => {
                    outcomes.push((names[&outcome.key].clone(), outcome.end, outcome.text.to_string()));
                }
                _ => {}
            }
        }
        outcomes
    }
}

impl Owner {
    pub(crate) fn home(&self) -> PathBuf {
        self.home.path().to_owned()
    }

    /// Accepts `text` and makes the ticket that places it.
    pub(crate) async fn ticket(&self, text: &str) -> PlaceTicket {
        let id = SubmissionId::fresh();
        let submission = Submission::new(id.clone(), Source::Node, text);
        self.drive.append(Batch::of([Body::Submission(submission)]), None).await.unwrap();
        self.drive.ticket(Message {
            id: MessageId::fresh(),
            turn: TurnId::fresh(),
            carries: vec![id],
            replaces: Vec::new(),
            text: Arc::from(text),
        })
    }

    pub(crate) async fn place(&self, text: &str) -> Turn {
        self.turn(Start::Place(self.ticket(text).await))
    }

    /// The open turn's message, placed by an earlier owner.
    pub(crate) fn placed(&self) -> Message {
        self.drive.with_state(|state| {
            let open = state.open_turn.as_ref().unwrap();
            Message::from(&*state.message(&open.message).unwrap().placed)
        })
    }

    pub(crate) fn turn(&self, start: Start) -> Turn {
        Turn { start, stop: self.stop.signal(), recovery_note: NOTE.to_owned(), words: None }
    }

    pub(crate) async fn end_turn(&self) {
        let turn = self.drive.with_state(|state| state.open_turn.as_ref().unwrap().id.clone());
        let end = Body::TurnEnd { turn, how: agentrun_kernel::TurnEndHow::Done };
        self.drive.append(Batch::of([end]), None).await.unwrap();
    }

    pub(crate) fn calls(&self) -> Vec<Seen> {
        self.host.seen.lock().unwrap().clone()
    }

    /// Ends the program and lets the session go.
    pub(crate) async fn close(self) {
        let report = self.session.close(Duration::from_secs(20)).await;
        assert!(!report.forced, "something of it is left: {report:?}");
        drop((self.host, self.drive));
        let joined = tokio::time::timeout(Duration::from_secs(20), self.task.join()).await;
        assert!(joined.expect("somebody still holds the session's records").is_some());
    }

    /// The crash path: everything is dropped, nothing is said.
    pub(crate) async fn crash(self) {
        let Self { session, host, drive, marker, task, .. } = self;
        drop(session);
        // What a next owner does before it starts anything.
        sweep(&marker, Epochs::UpTo, Duration::from_secs(20)).await.unwrap();
        drop((host, drive));
        drop(task);
    }
}

/// The real program. Without it these tests fail.
pub(crate) fn real() -> PathBuf {
    let program = *harness::adapter().profile().program.unwrap();
    let named = std::env::var_os(program.variable).map(PathBuf::from);
    named.unwrap_or_else(|| {
        let agentrun_adapter::process::HarnessProgram { variable, product, pinned, .. } = program;
        panic!("{variable} is not set: these tests need {product} {pinned} (testing/run installs it)")
    })
}

fn bound(key: &SessionKey) -> Bound {
    let adapter = harness::adapter();
    let profile = adapter.profile();
    let digest = Digest::of(b"test");
    let plan = PlanDigests {
        prompt: digest.clone(),
        system: digest.clone(),
        schema: digest.clone(),
        tools: digest,
        model: MODEL.to_owned(),
        label: "test".to_owned(),
        attempt: 1,
    };
    Bound {
        format: u32::from(agentrun_kernel::FORMAT),
        adapter: profile.name.to_owned(),
        binding: plan.binding(),
        plan,
        run: RunId::from(key),
        parent: None,
        builtins: profile.widest.builtins,
        host: Value::Null,
    }
}

/// A step that calls these tools in one answer, under ids `t0`, `t1` …
pub(crate) fn calls(tools: &[(&str, Value)]) -> Step {
    let tools = tools.iter().enumerate().map(|(at, (name, input))| ToolUse {
        name: (*name).to_owned(),
        input: input.as_object().cloned().unwrap_or_default(),
        id: Some(format!("{CALL}_{name}_{at}")),
    });
    Step { tools: tools.collect(), ..Step::default() }
}

pub(crate) fn answer(call: &str, text: &str) -> Repair {
    Repair::Answer { call: CallId(call.to_owned()), text: Arc::from(text), is_error: false }
}
