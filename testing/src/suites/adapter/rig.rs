//! One session of the adapter under test over several owners of it, each in a fresh home: records in memory, a model that plays a script
//! behind a gate, and the host's tools as recorded effects.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agentrun_adapter::process::{Epochs, Marker, sweep};
use agentrun_adapter::{
    AdapterError, AdapterProfile, AdapterSession, AgentAdapter, Checked, Deltas, Dirs, Journal, RecordedFiles, Seat,
    SessionPlan, Start, Turn, TurnEnd, admit,
};
use agentrun_kernel::{
    Batch, Body, Bound, CallId, Digest, Drive, EffectKey, LogKey, Manual, MemoryStore, Message, MessageId, Opened,
    OutcomeEnd, Owned, PlaceTicket, PlanDigests, Record, Repair, RunId, SessionKey, SessionState, SessionStore as _,
    SessionTask, Source, StopRaiser, Submission, SubmissionId, Survey, TurnEndHow, TurnId, read_all, validate,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Options;
use super::host::{Asked, Host, Work};
use super::model::Model;
use super::subject::Subject;
use crate::script::{Conversation, Script, Step, ToolUse};
use crate::suites::failure::{Failure, ensure};

/// What a resumed harness is told.
pub(super) const NOTE: &str = "The session was interrupted and goes on.";
/// How long an end may take.
pub(super) const ENDS: Duration = Duration::from_secs(60);

/// What a case runs in.
pub(super) struct Bench {
    pub(super) subject: Arc<dyn Subject>,
    pub(super) options: Options,
}

impl Bench {
    pub(super) fn rig(&self, steps: Vec<Step>) -> Result<Rig, Failure> {
        let script = Script::new(steps)?;
        let adapter = self.subject.adapter(&script);
        let http = !adapter.profile().speaks.is_empty();
        Ok(Rig {
            model: Model::new(self.subject.clone(), script, http)?,
            subject: self.subject.clone(),
            options: self.options.clone(),
            key: SessionKey::new(format!("{}-{}", adapter.profile().name, TurnId::fresh()))?,
            adapter,
            store: MemoryStore::new()?,
            workspace: tempfile::tempdir()?,
            scratch: tempfile::tempdir()?,
            builtins: Vec::new(),
            program: None,
        })
    }

    /// The id under which a step of [`Bench::calls`] makes its `at`-th call.
    pub(super) fn call_id(&self, tool: &str, at: usize) -> String {
        format!("{}_{tool}_{at}", self.subject.call_prefix())
    }

    /// A step that calls these tools in one answer.
    pub(super) fn calls(&self, tools: &[(&str, Value)]) -> Step {
        let tools = tools.iter().enumerate().map(|(at, (name, input))| ToolUse {
            name: (*name).to_owned(),
            input: input.as_object().cloned().unwrap_or_default(),
            id: Some(self.call_id(name, at)),
        });
        Step { tools: tools.collect(), ..Step::default() }
    }

    /// A step that calls `work` once.
    pub(super) fn works(&self) -> Step {
        self.calls(&[("work", json!({}))])
    }

    /// The adapter's own tool for a shell's line, as a step calls it. Cases that ask have been told that there is one.
    pub(super) fn command(&self, line: &str) -> Result<(String, Value), Failure> {
        let (name, arguments) = self.subject.command(line).ok_or_else(|| Failure("it names no command".to_owned()))?;
        Ok((name, Value::Object(arguments)))
    }
}

/// The session.
pub(super) struct Rig {
    pub(super) model: Model,
    pub(super) workspace: TempDir,
    pub(super) adapter: Arc<dyn AgentAdapter>,
    subject: Arc<dyn Subject>,
    options: Options,
    store: MemoryStore,
    key: SessionKey,
    scratch: TempDir,
    builtins: Vec<String>,
    /// Started in place of the real one.
    program: Option<PathBuf>,
}

/// An owner of the session.
pub(super) struct Owner<'a> {
    pub(super) session: Box<dyn AdapterSession>,
    pub(super) host: Arc<Host>,
    pub(super) drive: Drive,
    pub(super) stop: StopRaiser,
    pub(super) survey: Survey,
    pub(super) marker: Marker,
    /// Removed with the owner.
    _home: TempDir,
    task: SessionTask,
    rig: &'a Rig,
}

impl Rig {
    pub(super) fn profile(&self) -> &AdapterProfile {
        self.adapter.profile()
    }

    pub(super) fn with_builtin(mut self, name: &str) -> Self {
        self.builtins = vec![name.to_owned()];
        self
    }

    /// A file beside the workspace.
    pub(super) fn scratch(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Starts this shell script in place of the program; `HARNESS` in it is the real one, `SCRATCH` the folder beside the workspace.
    pub(super) async fn with_program(mut self, script: &str) -> Result<Self, Failure> {
        let checked = self.adapter.check(&self.plan(), None).await?;
        let real = checked.program.ok_or_else(|| Failure("it starts no program".to_owned()))?;
        let script = script
            .replace("HARNESS", &real.to_string_lossy())
            .replace("SCRATCH", &self.scratch.path().to_string_lossy());
        self.program = Some(write_program(&self.scratch("program"), &script)?);
        Ok(self)
    }

    /// Starts the program with this fault between it and the adapter.
    pub(super) async fn with_fault(self, fault: &str) -> Result<Self, Failure> {
        let between = self.options.between.clone().ok_or_else(|| Failure("nothing stands between".to_owned()))?;
        self.with_program(&format!("exec '{}' {fault} HARNESS \"$@\"", between.display())).await
    }

    pub(super) fn with_the_real_program(mut self) -> Self {
        self.program = None;
        self
    }

    pub(super) fn plan(&self) -> SessionPlan {
        let host = Host::specs_of();
        SessionPlan {
            session: self.key.clone(),
            model: self.subject.model().to_owned(),
            api: self.profile().speaks.first().copied(),
            system: vec!["You are a test.".to_owned()],
            tools: host,
            builtins: self.builtins.clone(),
            fork: false,
        }
    }

    pub(super) async fn records(&self) -> Result<Vec<Record>, Failure> {
        Ok(read_all(&self.store, &LogKey::from(&self.key)).await?)
    }

    pub(super) async fn files(&self) -> Result<RecordedFiles, Failure> {
        Ok(RecordedFiles::fold(&self.records().await?))
    }

    pub(super) async fn state(&self) -> Result<SessionState, Failure> {
        Ok(SessionState::fold(&self.records().await?))
    }

    pub(super) async fn own(&self, work: Work) -> Result<Owner<'_>, Failure> {
        self.own_with(work, &[]).await
    }

    /// Takes the session, repairs its history by `want`, and opens it in a fresh home.
    pub(super) async fn own_with(&self, work: Work, want: &[Repair]) -> Result<Owner<'_>, Failure> {
        Ok(self.take(work, want, false).await?.0)
    }

    /// The same with every append waiting to be let go on.
    pub(super) async fn own_step_by_step(&self, work: Work) -> Result<(Owner<'_>, Manual), Failure> {
        let (owner, manual) = self.take(work, &[], true).await?;
        manual.map(|manual| (owner, manual)).ok_or_else(|| Failure("no manual mode".to_owned()))
    }

    async fn take(&self, work: Work, want: &[Repair], manual: bool) -> Result<(Owner<'_>, Option<Manual>), Failure> {
        let records = self.records().await?;
        let mut files = RecordedFiles::fold(&records);
        let writer = self.store.open(&self.key, None).await?;
        let epoch = writer.epoch();
        let watch = self.store.watch(&LogKey::from(&self.key)).await?;
        let state = SessionState::fold(&records);
        let owned = Owned { writer, state, watch, earlier: Vec::new(), events: None };
        let (task, mut manual) = if manual {
            let (task, manual) = SessionTask::spawn_manual(owned);
            (task, Some(manual))
        } else {
            (SessionTask::spawn(owned), None)
        };
        let drive = task.drive();
        let begun = records.is_empty().then(|| Body::Bound(self.bound())).into_iter().chain([Body::Opened(Opened {
            earlier: Vec::new(),
            version: "test".to_owned(),
            harness: None,
            native_session: None,
        })]);
        append(&drive, &mut manual, begun.collect()).await?;
        for write in self.adapter.history().repair(&files, want, &|_| None)? {
            files.apply(&write);
            append(&drive, &mut manual, vec![Body::Native(write)]).await?;
        }
        let home = tempfile::tempdir()?;
        files.restore(home.path())?;
        let tmp = home.path().join("tmp");
        std::fs::create_dir_all(&tmp)?;
        let host = Arc::new(Host::new(drive.clone(), work));
        let marker = Marker { store: self.store.id().to_owned(), session: self.key.to_string(), epoch: epoch.0 };
        let seat = Seat {
            drive: drive.clone(),
            journal: Journal::new(drive.clone(), home.path()),
            tools: host.clone(),
            model: self.model.endpoint(self.profile().speaks.first().copied()),
            dirs: Dirs { home: home.path().to_owned(), tmp, workspace: self.workspace.path().to_owned() },
            deltas: Deltas::nowhere(),
            marker: marker.clone(),
        };
        let survey = self.adapter.history().survey(&files)?;
        let instead = Instead { adapter: self.adapter.clone(), program: self.program.clone() };
        let admission = admit(&instead, &self.plan(), Some(&survey)).await?;
        let session = self.adapter.open(admission, seat).await?;
        let stop = StopRaiser::new();
        self.model.seat(drive.clone(), session.request_barrier(), stop.signal());
        Ok((Owner { session, host, drive, stop, survey, marker, _home: home, task, rig: self }, manual))
    }

    /// What the records say of the open turn's calls, as the next owner repairs by them: a recorded outcome, else that it was not finished.
    pub(super) async fn answers(&self) -> Result<Vec<Repair>, Failure> {
        let records = self.records().await?;
        let survey = self.adapter.history().survey(&RecordedFiles::fold(&records))?;
        let mut calls: HashMap<EffectKey, CallId> = HashMap::new();
        let mut outcomes: HashMap<CallId, Arc<str>> = HashMap::new();
        for record in &records {
            match &record.body {
                Body::Intent(intent) => {
                    calls.extend(intent.call.clone().map(|call| (intent.key.clone(), call)));
                }
                Body::Outcome(outcome) => {
                    let call = calls.get(&outcome.key).cloned();
                    outcomes.extend(call.map(|call| (call, outcome.text.clone())));
                }
                _ => {}
            }
        }
        let answer = |call: CallId| match outcomes.get(&call) {
            Some(text) => Repair::Answer { call, text: text.clone(), is_error: false },
            None => Repair::Answer { call, text: Arc::from("This call was interrupted."), is_error: true },
        };
        Ok(survey.open_calls.into_iter().map(|open| answer(open.call)).collect())
    }

    fn bound(&self) -> Bound {
        let digest = Digest::of(b"test");
        let plan = PlanDigests {
            prompt: digest.clone(),
            system: digest.clone(),
            schema: digest.clone(),
            tools: digest,
            model: self.subject.model().to_owned(),
            label: "test".to_owned(),
            attempt: 1,
        };
        Bound {
            format: u32::from(agentrun_kernel::FORMAT),
            adapter: self.profile().name.to_owned(),
            binding: plan.binding(),
            plan,
            run: RunId::from(&self.key),
            parent: None,
            builtins: self.profile().widest.builtins,
            host: Value::Null,
        }
    }

    /// Whether the records keep every invariant.
    pub(super) async fn assert_valid(&self) -> Result<(), Failure> {
        validate(&self.records().await?)
            .map(drop)
            .map_err(|broken| Failure(format!("the records are not sound: {broken:?}")))
    }

    /// Every outcome, by tool.
    pub(super) async fn outcomes(&self) -> Result<Vec<(String, OutcomeEnd, String)>, Failure> {
        let mut names = HashMap::new();
        let mut outcomes = Vec::new();
        for record in self.records().await? {
            match record.body {
                Body::Intent(intent) => {
                    names.insert(intent.key.clone(), intent.name.clone());
                }
                Body::Outcome(outcome) => {
                    let name = names.get(&outcome.key).cloned().unwrap_or_default();
                    outcomes.push((name, outcome.end, outcome.text.to_string()));
                }
                _ => {}
            }
        }
        Ok(outcomes)
    }

    /// Nothing that carries this session's mark runs, up to this owner.
    pub(super) async fn assert_gone(&self, marker: &Marker) -> Result<(), Failure> {
        let left = sweep(marker, Epochs::UpTo, ENDS).await?;
        ensure!(left.is_empty(), "left running: {left:?}");
        Ok(())
    }
}

/// The adapter with another program than the one its check found.
struct Instead {
    adapter: Arc<dyn AgentAdapter>,
    program: Option<PathBuf>,
}

#[async_trait::async_trait]
impl AgentAdapter for Instead {
    fn profile(&self) -> &AdapterProfile {
        self.adapter.profile()
    }

    fn history(&self) -> &dyn agentrun_adapter::NativeHistory {
        self.adapter.history()
    }

    async fn check(&self, plan: &SessionPlan, prior: Option<&Survey>) -> Result<Checked, agentrun_adapter::Refusal> {
        let checked = self.adapter.check(plan, prior).await?;
        Ok(Checked { program: self.program.clone().or(checked.program.clone()), ..checked })
    }

    async fn open(
        &self,
        admission: agentrun_adapter::Admission,
        seat: Seat,
    ) -> Result<Box<dyn AdapterSession>, AdapterError> {
        self.adapter.open(admission, seat).await
    }
}

impl Owner<'_> {
    /// Accepts `text` and makes the ticket that places it.
    pub(super) async fn ticket(&mut self, text: &str) -> Result<PlaceTicket, Failure> {
        let id = SubmissionId::fresh();
        let submission = Submission::new(id.clone(), Source::Node, text);
        self.drive.append(Batch::of([Body::Submission(submission)]), None).await?;
        Ok(self.drive.ticket(Message {
            id: MessageId::fresh(),
            turn: TurnId::fresh(),
            carries: vec![id],
            replaces: Vec::new(),
            text: Arc::from(text),
        }))
    }

    /// A turn that places `text`.
    pub(super) async fn place(&mut self, text: &str) -> Result<Turn, Failure> {
        let ticket = self.ticket(text).await?;
        Ok(self.turn(Start::Place(ticket)))
    }

    /// The open turn's message, placed by an earlier owner.
    pub(super) fn placed(&self) -> Result<Message, Failure> {
        let placed = self.drive.with_state(|state| {
            let open = state.open_turn.as_ref()?;
            Some(Message::from(&*state.message(&open.message)?.placed))
        });
        placed.ok_or_else(|| Failure("no message is placed in an open turn".to_owned()))
    }

    pub(super) fn turn(&self, start: Start) -> Turn {
        let recovery_note = if matches!(start, Start::Continue(_)) { NOTE.to_owned() } else { String::new() };
        Turn { start, stop: self.stop.signal(), recovery_note, words: None }
    }

    /// Runs a turn of `text` that must end idle, and ends it in the records.
    pub(super) async fn runs(&mut self, text: &str) -> Result<(), Failure> {
        let turn = self.place(text).await?;
        self.idle(turn).await
    }

    /// Goes on with the open turn by what the survey says of its message, until it is idle.
    pub(super) async fn goes_on(&mut self) -> Result<(), Failure> {
        let message = self.placed()?;
        let taken = self.survey.taken.contains(&message.id);
        let turn = self.turn(if taken { Start::Continue(message) } else { Start::Again(message) });
        self.idle(turn).await
    }

    /// Runs a turn that must end idle, and ends it in the records.
    pub(super) async fn idle(&mut self, turn: Turn) -> Result<(), Failure> {
        let end = self.session.run_turn(turn).await?;
        ensure!(end == TurnEnd::Idle, "the turn ended {end:?}; the gate refused {:?}", self.rig.model.refused());
        self.end_turn().await
    }

    /// Writes the turn's end, as the runner does once the harness is idle.
    pub(super) async fn end_turn(&mut self) -> Result<(), Failure> {
        let open = self.drive.with_state(|state| state.open_turn.as_ref().map(|turn| turn.id.clone()));
        let turn = open.ok_or_else(|| Failure("no turn is open".to_owned()))?;
        self.drive.append(Batch::of([Body::TurnEnd { turn, how: TurnEndHow::Done }]), None).await?;
        Ok(())
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.host.asked()
    }

    /// Ends the program and lets the session go; nothing of it runs afterwards.
    pub(super) async fn close(self) -> Result<(), Failure> {
        let Self { session, host, drive, task, marker, rig, .. } = self;
        let report = session.close(ENDS).await;
        ensure!(!report.forced, "it did not end by itself: {report:?}");
        rig.model.leave();
        drop((host, drive));
        let joined = tokio::time::timeout(ENDS, task.join()).await;
        ensure!(matches!(joined, Ok(Some(_))), "somebody still holds the session's records after its close");
        rig.assert_gone(&marker).await
    }

    /// The crash path: everything is dropped, nothing is said; a next owner sweeps before it starts anything.
    pub(super) async fn crash(self) -> Result<(), Failure> {
        let Self { session, host, drive, task, marker, rig, .. } = self;
        drop(session);
        sweep(&marker, Epochs::UpTo, ENDS).await?;
        rig.model.leave();
        drop((host, drive, task));
        Ok(())
    }
}

async fn append(drive: &Drive, manual: &mut Option<Manual>, bodies: Vec<Body>) -> Result<(), Failure> {
    let append = drive.append(Batch::of(bodies), None);
    match manual {
        None => drop(append.await?),
        Some(manual) => {
            let going = async {
                match manual.paused().await {
                    Some(paused) => paused.go(),
                    None => std::future::pending().await,
                }
            };
            let (appended, ()) = tokio::join!(append, going);
            appended?;
        }
    }
    Ok(())
}

/// How often `text` stands on a line of its own in what the model is shown.
pub(super) fn times_shown(request: &Conversation, text: &str) -> usize {
    request.messages.iter().flat_map(|message| message.text.lines()).filter(|line| line.trim() == text).count()
}

pub(super) fn write_program(path: &Path, script: &str) -> Result<PathBuf, Failure> {
    std::fs::write(path, format!("#!/bin/sh\n{script}\n"))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path.to_owned())
}
