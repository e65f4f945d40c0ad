//! What the runner adds to the disk: a faux node on SQLite, start to end, against the bare synced appends it needs, in turn in one run.
//!
//! `cargo bench -p agentrun-runner --bench faux_node` prints the two medians and their ratio. The bare side replays the node's own records
//! in the same batches through the same store, so what is left is fold, checks, tasks, files and folders.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)] // a bench is a report: it may stop, and it prints

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentrun_cap::Catalog;
use agentrun_kernel::{Batch, Body, LogKey, OnRepeat, Record, Replay, SessionKey, SqliteStore, Store, read_all};
use agentrun_runner::{
    HarnessRunner, ModelProvider, Node, REQUEST_LIMIT, RunnerOptions, Step, Tool, ToolEnd, ToolInvocation, ToolRun,
};
use agentrun_testing::faux::FauxAdapter;
use agentrun_testing::script::Script;
use async_trait::async_trait;
use serde_json::json;

const ROUNDS: usize = 60;

struct Looks;

#[async_trait]
impl ToolRun for Looks {
    async fn run(&self, _: ToolInvocation) -> ToolEnd {
        ToolEnd::Ok("found".to_owned())
    }
}

fn node() -> Node {
    let spec = agentrun_adapter::ToolSpec {
        name: "look".to_owned(),
        description: "Looks.".to_owned(),
        input_schema: json!({"type": "object"}),
    };
    Node {
        label: "bench".to_owned(),
        system: Vec::new(),
        prompt: "Look, then submit.".to_owned(),
        model: "claude-sonnet-4-5".to_owned(),
        schema: json!({"type": "integer"}),
        tools: vec![Tool {
            spec,
            replay: Replay::Never,
            on_repeat: OnRepeat::Refuse,
            price: None,
            timeout: Duration::from_secs(5),
            exclusive: false,
            run: Arc::new(Looks),
        }],
        builtins: Vec::new(),
        budget: None,
        turn_limit: None,
        request_limit: REQUEST_LIMIT,
        review: None,
        fork: false,
        host: json!(null),
    }
}

fn script() -> Script {
    let steps = json!({"steps": [
        {"tools": [{"name": "look", "input": {}}]},
        {"tools": [{"name": "submit", "input": {"value": 7}}]}
    ]});
    Script::parse(&steps.to_string()).unwrap()
}

/// The node's records in the batches it wrote them in.
fn batches(records: Vec<Record>) -> Vec<Vec<Body>> {
    let mut batches: Vec<Vec<Body>> = Vec::new();
    for record in records {
        let joins = batches.last().and_then(|batch| batch.last()).is_some_and(|last| {
            matches!(last, Body::Bound(_) | Body::Native(_) | Body::Verdict(_))
                || matches!(record.body, Body::Delivered(_))
        });
        match batches.last_mut().filter(|_| joins) {
            Some(batch) => batch.push(record.body),
            None => batches.push(vec![record.body]),
        }
    }
    batches
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[tokio::main]
async fn main() {
    let folder = tempfile::tempdir().unwrap();
    let store: Store = Arc::new(SqliteStore::open(folder.path().join("bench.db")).unwrap());
    let catalog = Arc::new(Catalog::bundled().unwrap());
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let key = SessionKey::new(format!("node-{round}")).unwrap();
        let options = RunnerOptions {
            store: store.clone(),
            catalog: catalog.clone(),
            provider: ModelProvider::Direct,
            cap: None,
            homes: folder.path().join("homes"),
            workspace: folder.path().to_owned(),
            on_event: None,
            before_request: None,
        };
        let runner = HarnessRunner::new(Arc::new(FauxAdapter::new(script())), options);
        let began = Instant::now();
        runner.run_node(node(), Step::first(key.clone())).await.unwrap();
        ours.push(began.elapsed());

        let written = batches(read_all::<Body>(&*store, &LogKey::Session(key)).await.unwrap());
        let copy = SessionKey::new(format!("bare-{round}")).unwrap();
        let began = Instant::now();
        let mut writer = store.open(&copy, None).await.unwrap();
        for bodies in written {
            writer.append(Batch::of(bodies), None).await.unwrap();
        }
        bare.push(began.elapsed());
    }
    let (ours, bare) = (median(ours), median(bare));
    println!("faux node on SQLite  p50 {ours:?}");
    println!("its bare appends     p50 {bare:?}");
    println!("ratio                {:.2}", ours.as_secs_f64() / bare.as_secs_f64());
}
