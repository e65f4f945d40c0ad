//! What a node costs around the real Claude Code, on a scripted model. Needs `AGENTRUN_CLAUDE` (`testing/run` installs the pinned one).
//!
//! `cargo bench -p agentrun-runner --bench claude [-- --rounds 15 --resumes 7 --megabytes 20]`
//!
//! * A node of one tool round, start to end, against the same turn driven by hand: the same adapter on a store in memory, straight at the
//!   model, without runner, gate and proxy. Both wait at the adapter's barrier before a call; the runner's barrier before a request is
//!   measured and taken off.
//! * A cut session with a long transcript: from the resume's call to the first request the model sees, against the same program started on
//!   the same transcript by hand.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)] // a bench is a report

mod common;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agentrun_adapter::claude::ClaudeAdapter;
use agentrun_adapter::process::Marker;
use agentrun_adapter::{
    AdapterError, AdapterProfile, AdapterSession, Admission, AgentAdapter, Answer, Capabilities, Checked, CloseReport,
    Deltas, Dirs, Journal, JournalError, ModelApi, ModelEndpoint, NativeHistory, NativeIdentity, Observed,
    RecordedFiles, Refusal, RequestBarrier, Seat, SessionPlan, Start, Tail, ToolCall, ToolHost, ToolSpec, Turn,
    TurnEnd, admit,
};
use agentrun_cap::{Catalog, Denied};
use agentrun_host::{Credential, ModelProxy, Provider, ProviderConfig, Timeouts};
use agentrun_kernel::{
    Batch, Begun, Body, Digest, Drive, EffectKey, EffectKind, EffectSpec, LogKey, MemoryStore, Message, MessageId,
    OnRepeat, Outcome, OutcomeEnd, Owned, Record, Replay, Restart, RunId, SessionKey, SessionState, SessionStore as _,
    SessionTask, Source, Spent, SqliteStore, StopRaiser, Store, Submission, SubmissionId, Survey, TurnId, Usd,
    read_all,
};
use agentrun_runner::{
    Booked, HarnessRunner, HostCheck, HostFault, ModelProvider, NodeWord, RunnerOptions, SUBMIT, Step,
};
use agentrun_testing::script::Script;
use agentrun_testing::scripted::ScriptedModel;
use async_trait::async_trait;
use serde_json::json;
use tempfile::TempDir;

/// Bytes of text in one answer of the model, in the session with the long transcript.
const ANSWER: usize = 1 << 20;

/// When a node waited, and what for.
#[derive(Default)]
struct Waits {
    /// Each wait of a request for the transcript.
    requests: Vec<Duration>,
    /// When the last answer of the model was booked.
    booked: Option<Instant>,
    /// From there to each call behind its barrier: the program's own way to the call is in it.
    calls: Vec<Duration>,
}

type Noted = Arc<Mutex<Waits>>;

#[async_trait]
impl HostCheck for NotesAnswers {
    async fn before_request(&self, _: &SessionKey, _: Option<Usd>, _: Spent) -> Result<Result<(), Denied>, HostFault> {
        Ok(Ok(()))
    }

    async fn after_request(&self, _: &SessionKey, _: Booked) {
        self.0.lock().unwrap().booked = Some(Instant::now());
    }
}

struct NotesAnswers(Noted);

/// Claude Code, with the waits at its barriers noted.
struct Timed(ClaudeAdapter, Noted);

#[async_trait]
impl AgentAdapter for Timed {
    fn profile(&self) -> &AdapterProfile {
        self.0.profile()
    }
    fn history(&self) -> &dyn NativeHistory {
        self.0.history()
    }
    async fn check(&self, plan: &SessionPlan, prior: Option<&Survey>) -> Result<Checked, Refusal> {
        self.0.check(plan, prior).await
    }
    async fn open(&self, admission: Admission, seat: Seat) -> Result<Box<dyn AdapterSession>, AdapterError> {
        let tools = Arc::new(TimedTools(seat.tools.clone(), self.1.clone()));
        let session = self.0.open(admission, Seat { tools, ..seat }).await?;
        Ok(Box::new(TimedSession(session, self.1.clone())))
    }
}

struct TimedTools(Arc<dyn ToolHost>, Noted);

#[async_trait]
impl ToolHost for TimedTools {
    fn specs(&self) -> &[ToolSpec] {
        self.0.specs()
    }
    async fn call(&self, call: ToolCall) -> Result<Answer, Restart> {
        {
            let mut waits = self.1.lock().unwrap();
            let since = waits.booked.map(|booked| booked.elapsed()).unwrap_or_default();
            waits.calls.push(since);
        }
        self.0.call(call).await
    }
    async fn observe(&self, call: ToolCall) -> Result<Observed, Restart> {
        self.0.observe(call).await
    }
}

struct TimedSession(Box<dyn AdapterSession>, Noted);

#[async_trait]
impl AdapterSession for TimedSession {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
    fn native(&self) -> Option<NativeIdentity> {
        self.0.native()
    }
    fn request_barrier(&self) -> Option<Arc<dyn RequestBarrier>> {
        let inner = self.0.request_barrier()?;
        Some(Arc::new(TimedBarrier(inner, self.1.clone())))
    }
    async fn run_turn(&mut self, turn: Turn) -> Result<TurnEnd, AdapterError> {
        self.0.run_turn(turn).await
    }
    async fn close(self: Box<Self>, deadline: Duration) -> CloseReport {
        self.0.close(deadline).await
    }
}

struct TimedBarrier(Arc<dyn RequestBarrier>, Noted);

#[async_trait]
impl RequestBarrier for TimedBarrier {
    async fn before_request(&self, body: &[u8]) -> Result<Tail, JournalError> {
        let began = Instant::now();
        let tail = self.0.before_request(body).await;
        self.1.lock().unwrap().requests.push(began.elapsed());
        tail
    }
}

/// Records calls as the runner does, and nothing more.
struct Hand {
    drive: Drive,
    specs: Vec<ToolSpec>,
}

#[async_trait]
impl ToolHost for Hand {
    fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }
    async fn call(&self, call: ToolCall) -> Result<Answer, Restart> {
        let turn = self.drive.with_state(|state| state.open_turn.as_ref().map(|turn| turn.id.clone())).unwrap();
        let digest = Digest::of_json(&call.arguments);
        let spec = EffectSpec {
            key: EffectKey::of_call(&turn, &call.call, &call.tool, &digest, call.ordinal),
            kind: EffectKind::Tool,
            replay: Replay::Never,
            on_repeat: OnRepeat::Allow,
            name: call.tool.clone(),
            turn: Some(turn),
            call: Some(call.call.clone()),
            arguments: call.arguments.clone(),
            digest,
            paid: None,
        };
        let key = spec.key.clone();
        let Begun::Open(effect) = self.drive.begin(spec, call.tail.bodies(), None).await.unwrap() else { panic!() };
        effect.finish(Outcome::new(key, OutcomeEnd::Ok, "found"), Vec::new(), None).await.unwrap();
        Ok(Answer::Text { text: Arc::from("found"), is_error: false, end_turn: call.tool == SUBMIT })
    }
    async fn observe(&self, call: ToolCall) -> Result<Observed, Restart> {
        panic!("{} is no tool of this bench", call.tool)
    }
}

struct Bench {
    folder: TempDir,
    store: Store,
    catalog: Arc<Catalog>,
}

impl Bench {
    fn new() -> Self {
        let folder = common::folder();
        let store: Store = Arc::new(SqliteStore::open(folder.path().join("bench.db")).unwrap());
        Self { folder, store, catalog: Arc::new(Catalog::bundled().unwrap()) }
    }

    async fn runner(&self, model: &ScriptedModel, noted: &Noted) -> HarnessRunner {
        let proxy = ModelProxy::start(ProviderConfig {
            api: Provider::Anthropic,
            policy: Provider::Anthropic.policy(),
            origin: model.base_url().parse().unwrap(),
            credential: Credential::from_text("made-up-key-0001".to_owned()).unwrap(),
            timeouts: Timeouts::default(),
        });
        let proxy = ModelProvider::Proxy(Arc::new(proxy.await.unwrap()));
        let homes = self.folder.path().join("homes");
        let mut options =
            RunnerOptions::new(self.store.clone(), self.catalog.clone(), proxy, homes, self.folder.path());
        options.before_request = Some(Arc::new(NotesAnswers(noted.clone())));
        HarnessRunner::new(Arc::new(Timed(ClaudeAdapter::new(), noted.clone())), options)
    }

    /// The turn by hand, on a copy of `prior`; answers the times to the first request's arrival at the model and to the end.
    async fn by_hand(&self, model: &ScriptedModel, prior: &[Record]) -> (Duration, Duration) {
        let adapter = ClaudeAdapter::new();
        let store = MemoryStore::new().unwrap();
        let key = SessionKey::new("by-hand").unwrap();
        let files = RecordedFiles::fold(prior);
        let mut writer = store.open(&key, None).await.unwrap();
        for record in prior {
            writer.append(Batch::of([record.body.clone()]), None).await.unwrap();
        }
        let home = TempDir::new_in(self.folder.path()).unwrap();
        let tmp = home.path().join("tmp");
        std::fs::create_dir_all(&tmp).unwrap();
        files.restore(home.path()).unwrap();
        let asked = model.requests().len();

        let began = Instant::now();
        let records =
            if prior.is_empty() { vec![] } else { read_all::<Body>(&store, &LogKey::from(&key)).await.unwrap() };
        let watch = store.watch(&LogKey::from(&key)).await.unwrap();
        let epoch = writer.epoch();
        let state = SessionState::fold(&records);
        let task = SessionTask::spawn(Owned { writer, state, watch, earlier: Vec::new(), events: None });
        let drive = task.drive();
        let specs = vec![
            common::look(Arc::new(common::Looks)).spec,
            ToolSpec {
                name: SUBMIT.to_owned(),
                description: "Delivers.".to_owned(),
                input_schema: json!({"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]}),
            },
        ];
        let seat = Seat {
            drive: drive.clone(),
            journal: Journal::new(drive.clone(), home.path()),
            tools: Arc::new(Hand { drive: drive.clone(), specs: specs.clone() }),
            model: ModelEndpoint::Http {
                base_url: model.base_url(),
                key: Arc::from("made-up-key-0001"),
                api: ModelApi::Messages,
            },
            dirs: Dirs { home: home.path().to_owned(), tmp, workspace: self.folder.path().to_owned() },
            deltas: Deltas::nowhere(),
            marker: Marker { store: store.id().to_owned(), session: key.to_string(), epoch: epoch.0 },
        };
        let plan = SessionPlan {
            session: key.clone(),
            model: common::MODEL.to_owned(),
            api: Some(ModelApi::Messages),
            system: Vec::new(),
            tools: specs,
            builtins: Vec::new(),
            fork: false,
        };
        let start = if prior.is_empty() {
            drive.append(Batch::of([bound(&key)]), None).await.unwrap();
            let id = SubmissionId::fresh();
            let text = "Look, then submit.";
            let submission = Submission::new(id.clone(), Source::Node, text);
            drive.append(Batch::of([Body::Submission(submission)]), None).await.unwrap();
            Start::Place(drive.ticket(Message {
                id: MessageId::fresh(),
                turn: TurnId::fresh(),
                carries: vec![id],
                replaces: Vec::new(),
                text: Arc::from(text),
            }))
        } else {
            Start::Continue(drive.with_state(|state| {
                let open = state.open_turn.as_ref().expect("a turn that was cut");
                Message::from(&*state.message(&open.message).unwrap().placed)
            }))
        };
        let admission = admit(&adapter, &plan, None).await.unwrap();
        let mut session = adapter.open(admission, seat).await.unwrap();
        let stop = StopRaiser::new();
        let note = if prior.is_empty() { String::new() } else { "The session goes on.".to_owned() };
        let turn = Turn { start, stop: stop.signal(), recovery_note: note, words: None };
        let first = async {
            model.wait_for_requests(asked + 1).await.unwrap();
            began.elapsed()
        };
        let (end, first) = tokio::join!(session.run_turn(turn), first);
        end.unwrap();
        session.close(Duration::from_secs(5)).await;
        let whole = began.elapsed();
        drop(drive);
        task.join().await;
        (first, whole)
    }
}

fn bound(key: &SessionKey) -> Body {
    let digest = || Digest::of(b"bench");
    let plan = agentrun_kernel::PlanDigests {
        prompt: digest(),
        system: digest(),
        schema: digest(),
        tools: digest(),
        model: common::MODEL.to_owned(),
        label: "bench".to_owned(),
        attempt: 1,
    };
    Body::Bound(agentrun_kernel::Bound {
        format: u32::from(agentrun_kernel::FORMAT),
        adapter: "claude".to_owned(),
        binding: plan.binding(),
        plan,
        run: RunId::from(key),
        parent: None,
        builtins: agentrun_kernel::Built::Gated,
        host: json!(null),
    })
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn p50(of: &[f64]) -> f64 {
    common::median(of.to_vec())
}

fn node() -> agentrun_runner::Node {
    common::node(common::look(Arc::new(common::Looks)))
}

/// A node of one tool round against the same by hand, in turn.
async fn overhead(rounds: usize) {
    let bench = Bench::new();
    let model = ScriptedModel::start(common::script()).unwrap();
    let (mut ours, mut theirs, mut beyond) = (Vec::new(), Vec::new(), Vec::new());
    let (mut rounds_waited, mut prompts_waited) = (Vec::new(), Vec::new());
    let noted = Noted::default();
    let runner = bench.runner(&model, &noted).await;
    for round in 0..=rounds {
        let (_, by_hand) = bench.by_hand(&model, &[]).await;
        *noted.lock().unwrap() = Waits::default();
        let began = Instant::now();
        let step = Step::first(SessionKey::new(format!("node-{round}")).unwrap());
        runner.run_node(node(), step).await.unwrap();
        let whole = began.elapsed();
        // The first of each finds nothing in the system's caches.
        if round == 0 {
            continue;
        }
        let waits = std::mem::take(&mut *noted.lock().unwrap());
        assert_eq!((waits.requests.len(), waits.calls.len()), (2, 2));
        let at_requests: Duration = waits.requests.iter().sum();
        ours.push(ms(whole));
        theirs.push(ms(by_hand));
        beyond.push(ms(whole) - ms(by_hand) - ms(at_requests));
        prompts_waited.push(ms(waits.requests[0]));
        rounds_waited.push(ms(waits.calls[0]) + ms(waits.requests[1]));
    }
    println!("a node of one tool round        p50 {:.0} ms", p50(&ours));
    println!("the same turn by hand           p50 {:.0} ms", p50(&theirs));
    println!("beyond it, outside barriers     p50 {:.0} ms  {beyond:.0?}", p50(&beyond));
    println!("barrier of the prompt           p50 {:.0} ms", p50(&prompts_waited));
    println!(
        "barriers of the tool round      p50 {:.0} ms at most: the program's way to the call is in it  {rounds_waited:.0?}",
        p50(&rounds_waited)
    );
}

/// A session that was cut behind a transcript of this many bytes.
async fn cut(bench: &Bench, megabytes: usize) -> Vec<Record> {
    let says = "lorem ipsum dolor ".repeat(ANSWER / 18);
    // Arguments of their own, so that the calls are no circle.
    let looks =
        |n: usize| json!({"when": {"results": n}, "text": says, "tools": [{"name": "look", "input": {"n": n}}]});
    let steps: Vec<_> = (0..megabytes).map(looks).chain([json!({"status": 400, "times": "always"})]).collect();
    let model = ScriptedModel::start(Script::parse(&json!({ "steps": steps }).to_string()).unwrap()).unwrap();
    let runner = bench.runner(&model, &Noted::default()).await;
    let step = Step::first(SessionKey::new("long").unwrap());
    let error = runner.run_node(node(), step.clone()).await.unwrap_err();
    assert_eq!(error.word, NodeWord::Upstream, "{error}");
    read_all::<Body>(&*bench.store, &LogKey::from(&step.session)).await.unwrap()
}

async fn resumes(rounds: usize, megabytes: usize) {
    let bench = Bench::new();
    let records = cut(&bench, megabytes).await;
    let transcript: usize = SessionState::fold(&records).native().map(|(_, bytes)| bytes as usize).sum();
    let submits = json!({"steps": [{"times": "always", "tools": [{"name": "submit", "input": {"value": 7}}]}]});
    let model = ScriptedModel::start(Script::parse(&submits.to_string()).unwrap()).unwrap();
    let (mut ours, mut theirs, mut beyond) = (Vec::new(), Vec::new(), Vec::new());
    let noted = Noted::default();
    let runner = bench.runner(&model, &noted).await;
    for round in 0..=rounds {
        let (by_hand, _) = bench.by_hand(&model, &records).await;
        let key = SessionKey::new(format!("long-{round}")).unwrap();
        let mut writer = bench.store.open(&key, None).await.unwrap();
        for record in &records {
            writer.append(Batch::of([record.body.clone()]), None).await.unwrap();
        }
        drop(writer);
        *noted.lock().unwrap() = Waits::default();
        let asked = model.requests().len();
        let step = Step { run: RunId::new("long").unwrap(), ..Step::first(key) };
        let began = Instant::now();
        let first = async {
            model.wait_for_requests(asked + 1).await.unwrap();
            began.elapsed()
        };
        let (delivered, first) = tokio::join!(runner.run_node(node(), step), first);
        delivered.unwrap();
        if round == 0 {
            continue;
        }
        let waited = ms(noted.lock().unwrap().requests[0]);
        ours.push(ms(first));
        theirs.push(ms(by_hand));
        beyond.push(ms(first) - ms(by_hand));
        println!(
            "  resume {:.0} ms, by hand {:.0} ms, of it waited at the request's barrier {waited:.0} ms",
            ms(first),
            ms(by_hand)
        );
    }
    println!("a transcript of {:.1} MB, resumed to its first request", transcript as f64 / f64::from(1 << 20));
    println!("through the runner              p50 {:.0} ms", p50(&ours));
    println!("the program by hand             p50 {:.0} ms", p50(&theirs));
    println!("beyond the program's own start  p50 {:.0} ms  {beyond:.0?}", p50(&beyond));
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    overhead(common::number("rounds", 15)).await;
    resumes(common::number("resumes", 7), common::number("megabytes", 20)).await;
}
