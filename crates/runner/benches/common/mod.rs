//! What the benches share: the faux node they run, its records as the batches it wrote them in, a folder on the build's disk, medians.
#![allow(dead_code)] // each bench is a program of its own and uses a part of this

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use agentrun_adapter::ToolSpec;
use agentrun_kernel::{
    Batch, Body, LedgerBody, OnRepeat, Record, Replay, RunId, Seq, SessionKey, SharedAppend, SharedBatch, SharedLog,
    Store,
};
use agentrun_runner::{Node, Tool, ToolEnd, ToolInvocation, ToolRun};
use agentrun_testing::script::Script;
use async_trait::async_trait;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The model of every bench.
pub(crate) const MODEL: &str = "claude-sonnet-4-5";

/// A folder on the disk the build is on: a temporary folder may be in memory.
pub(crate) fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// What follows `--NAME` on the command line, or the default.
pub(crate) fn number(name: &str, default: usize) -> usize {
    text(name).map_or(default, |text| text.parse().unwrap())
}

/// What follows `--NAME` on the command line.
pub(crate) fn text(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument.strip_prefix("--") != Some(name)).nth(1)
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Answers at once.
pub(crate) struct Looks;

#[async_trait]
impl ToolRun for Looks {
    async fn run(&self, _: ToolInvocation) -> ToolEnd {
        ToolEnd::Ok("found".to_owned())
    }
}

/// The tool `look`, run by `run`.
pub(crate) fn look(run: Arc<dyn ToolRun>) -> Tool {
    let spec =
        ToolSpec { name: "look".to_owned(), description: "Looks.".to_owned(), input_schema: json!({"type": "object"}) };
    Tool {
        spec,
        replay: Replay::Never,
        on_repeat: OnRepeat::Refuse,
        price: None,
        timeout: Duration::from_secs(600),
        exclusive: false,
        run,
    }
}

/// A node with one tool, whose value is a number.
pub(crate) fn node(tool: Tool) -> Node {
    let mut node = Node::new("bench", "Look, then submit.", MODEL, json!({"type": "integer"}));
    node.tools = vec![tool];
    node
}

/// Looks once, then submits: for as many sessions as there are.
pub(crate) fn script() -> Script {
    let step = |results: usize, tool: &str, input: Value| json!({"when": {"results": results}, "times": "always", "tools": [{"name": tool, "input": input}]});
    let steps = json!({"steps": [step(0, "look", json!({})), step(1, "submit", json!({"value": 7}))]});
    Script::parse(&steps.to_string()).unwrap()
}

/// What a node wrote: its records in the batches it wrote them in, each with the ledger's part, and before them how the ledger began.
pub(crate) struct Written {
    cap: Option<LedgerBody>,
    batches: Vec<(Vec<Body>, Option<LedgerBody>)>,
}

impl Written {
    pub(crate) fn new(records: Vec<Record>, ledger: Vec<Record<LedgerBody>>) -> Self {
        let mut ledger: VecDeque<LedgerBody> = ledger.into_iter().map(|record| record.body).collect();
        let cap = ledger.pop_front();
        let mut paid = HashSet::new();
        let batches = batches(records).into_iter().map(|batch| {
            let has_part = batch.iter().any(|body| match body {
                Body::Intent(intent) => intent.hold.is_some() && paid.insert(intent.key.clone()),
                Body::Outcome(outcome) => paid.contains(&outcome.key),
                _ => false,
            });
            let part = has_part.then(|| ledger.pop_front().unwrap());
            (batch, part)
        });
        let batches = batches.collect();
        assert!(ledger.is_empty());
        Self { cap, batches }
    }

    /// The same to a session of its own, each batch synced before the next.
    pub(crate) async fn append_bare(self, store: &Store, key: &SessionKey) {
        let mut writer = store.open(key, None).await.unwrap();
        let log = SharedLog::Ledger(RunId::from(key));
        let mut expected = Seq::START;
        if let Some(cap) = self.cap {
            expected = store.append_at(&log, expected, SharedBatch::Ledger(vec![cap])).await.unwrap();
        }
        for (bodies, part) in self.batches {
            let also = part.map(|part| {
                let also = SharedAppend { log: log.clone(), expected, batch: SharedBatch::Ledger(vec![part]) };
                expected = expected.next();
                also
            });
            writer.append(Batch::of(bodies), also).await.unwrap();
        }
    }
}

/// The node's records in the batches it wrote them in.
fn batches(records: Vec<Record>) -> Vec<Vec<Body>> {
    let mut batches: Vec<Vec<Body>> = Vec::new();
    for record in records {
        let joins = batches.last().and_then(|batch| batch.last()).is_some_and(|last| match last {
            Body::Bound(_) | Body::Verdict(_) => true,
            // What the harness wrote is part of what rests on it, but at a turn's end, where it is mirrored by itself.
            Body::Native(_) => !matches!(record.body, Body::TurnEnd { .. }),
            _ => matches!(record.body, Body::Delivered(_)),
        });
        match batches.last_mut().filter(|_| joins) {
            Some(batch) => batch.push(record.body),
            None => batches.push(vec![record.body]),
        }
    }
    batches
}
