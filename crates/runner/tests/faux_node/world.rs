//! What every test of this file stands on: a store in memory, tools that count their runs and can be held, and runners that are each as a
//! process of its own: own adapter, own place in the script, own handle of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentrun_adapter::{AgentAdapter, ToolSpec};
use agentrun_cap::{Books, Catalog};
use agentrun_kernel::{
    Body, EffectKind, Intent, LedgerBody, LogKey, MemoryStore, OnRepeat, Outcome, Record, Replay, RunId, SessionKey,
    SessionState, SharedLog, Usd, read_all, validate,
};
use agentrun_runner::{
    HarnessRunner, ModelProvider, Node, REQUEST_LIMIT, RunnerOptions, Step, Tool, ToolEnd, ToolInvocation, ToolRun,
};
use agentrun_testing::faux::FauxAdapter;
use agentrun_testing::script::Script;
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// Longest wait for what must happen: a bound, not an expectation.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) store: MemoryStore,
    folder: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { store: MemoryStore::new().unwrap(), folder: tempfile::tempdir().unwrap() }
    }

    /// Another process on the same data.
    pub(crate) fn again(&self) -> Self {
        Self { store: self.store.again().unwrap(), folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn options(&self) -> RunnerOptions {
        RunnerOptions {
            store: Arc::new(self.store.clone()),
            catalog: Arc::new(Catalog::bundled().unwrap()),
            provider: ModelProvider::Direct,
            cap: None,
            homes: self.folder.path().join("homes"),
            workspace: self.folder.path().to_owned(),
            on_event: None,
            before_request: None,
        }
    }

    /// A runner that plays `steps`, none of them served yet.
    pub(crate) fn runner(&self, steps: Value) -> HarnessRunner {
        self.runner_with(steps, |_| {})
    }

    pub(crate) fn runner_with(&self, steps: Value, set: impl FnOnce(&mut RunnerOptions)) -> HarnessRunner {
        let mut options = self.options();
        set(&mut options);
        HarnessRunner::new(adapter(steps), options)
    }

    /// The session's records, which are a valid log.
    pub(crate) async fn records(&self) -> Vec<Record> {
        let records = read_all::<Body>(&self.store, &LogKey::from(&key())).await.unwrap();
        validate(&records).unwrap();
        records
    }

    pub(crate) async fn state(&self) -> SessionState {
        SessionState::fold(&self.records().await)
    }

    pub(crate) async fn ledger(&self) -> Vec<Record<LedgerBody>> {
        read_all::<LedgerBody>(&self.store, &LogKey::Shared(ledger())).await.unwrap()
    }

    pub(crate) async fn books(&self) -> Books {
        let mut books = Books::new();
        books.fold(&self.ledger().await).unwrap();
        books
    }

    /// Private homes that are still there.
    pub(crate) fn homes(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("homes")).map_or(0, Iterator::count)
    }
}

pub(crate) fn adapter(steps: Value) -> Arc<dyn AgentAdapter> {
    Arc::new(FauxAdapter::new(Script::parse(&json!({ "steps": steps }).to_string()).unwrap()))
}

pub(crate) fn key() -> SessionKey {
    SessionKey::new("s").unwrap()
}

pub(crate) fn ledger() -> SharedLog {
    SharedLog::Ledger(RunId::from(&key()))
}

pub(crate) fn step() -> Step {
    Step::first(key())
}

/// A node that wants `{"n": integer}`.
pub(crate) fn node(tools: Vec<Tool>) -> Node {
    Node {
        label: "test".to_owned(),
        system: vec!["Be brief.".to_owned()],
        prompt: "Find n.".to_owned(),
        model: "claude-haiku-4-5".to_owned(),
        schema: json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
        tools,
        builtins: Vec::new(),
        budget: None,
        turn_limit: None,
        request_limit: REQUEST_LIMIT,
        review: None,
        fork: false,
        host: Value::Null,
    }
}

/// A model step that calls `tool`.
pub(crate) fn calls(tool: &str, input: Value) -> Value {
    json!({"tools": [{"name": tool, "input": input}]})
}

/// A model step that submits `{"n": n}`.
pub(crate) fn submits(n: i64) -> Value {
    calls("submit", json!({"value": {"n": n}}))
}

pub(crate) fn says(text: &str) -> Value {
    json!({ "text": text })
}

/// The same step under a condition, as often as it is asked for.
pub(crate) fn when(condition: Value, mut step: Value) -> Value {
    step["when"] = condition;
    step["times"] = json!("always");
    step
}

/// A tool that counts how often it runs. A held one waits in each run until it is let go.
pub(crate) struct Probe {
    runs: AtomicUsize,
    started: Semaphore,
    held: Option<Semaphore>,
}

impl Probe {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { runs: AtomicUsize::new(0), started: Semaphore::new(0), held: None })
    }

    pub(crate) fn held() -> Arc<Self> {
        Arc::new(Self { runs: AtomicUsize::new(0), started: Semaphore::new(0), held: Some(Semaphore::new(0)) })
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// Waits until one more run has begun.
    pub(crate) async fn began(&self) {
        within(self.started.acquire()).await.unwrap().forget();
    }

    pub(crate) fn let_go(&self) {
        self.held.as_ref().unwrap().add_permits(1);
    }

    /// The tool `search`, of this replay class, run by this probe.
    pub(crate) fn tool(self: &Arc<Self>, replay: Replay) -> Tool {
        Tool {
            spec: ToolSpec {
                name: "search".to_owned(),
                description: "Searches.".to_owned(),
                input_schema: json!({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}),
            },
            replay,
            on_repeat: OnRepeat::Refuse,
            price: None,
            timeout: Duration::from_secs(600),
            exclusive: false,
            run: self.clone(),
        }
    }
}

#[async_trait]
impl ToolRun for Probe {
    async fn run(&self, call: ToolInvocation) -> ToolEnd {
        self.runs.fetch_add(1, Ordering::SeqCst);
        self.started.add_permits(1);
        if let Some(held) = &self.held {
            held.acquire().await.unwrap().forget();
        }
        ToolEnd::Ok(format!("found {}", call.arguments["q"]))
    }
}

/// What must come comes; a test that waits in vain says so instead of hanging.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it did not come within the bound")
}

pub(crate) fn intents(records: &[Record], kind: EffectKind) -> Vec<&Intent> {
    let of = |record: &'_ Record| matches!(&record.body, Body::Intent(intent) if intent.effect == kind);
    records
        .iter()
        .filter(|record| of(record))
        .map(|record| if let Body::Intent(intent) = &record.body { intent } else { unreachable!() })
        .collect()
}

/// Outcomes of the effects of this kind, in order.
pub(crate) fn outcomes(records: &[Record], kind: EffectKind) -> Vec<&Outcome> {
    let keys: Vec<_> = intents(records, kind).iter().map(|intent| &intent.key).collect();
    records
        .iter()
        .filter_map(|record| if let Body::Outcome(outcome) = &record.body { Some(outcome) } else { None })
        .filter(|outcome| keys.contains(&&outcome.key))
        .collect()
}

pub(crate) fn count(records: &[Record], kind: &str) -> usize {
    records.iter().filter(|record| record.body.kind() == kind).count()
}

/// Nothing is held and nothing unknown: every paid step of the run is booked, and the session's sums say the same.
pub(crate) async fn books_are_quiet(world: &World) {
    let (books, spent) = (world.books().await, world.state().await.spent);
    assert_eq!((books.held(), books.unknown()), (Usd::ZERO, Usd::ZERO));
    assert_eq!(books.booked(), spent.booked);
    assert!(spent.booked > Usd::ZERO);
}
