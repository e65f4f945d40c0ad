//! What the benches share: the faux node they run, its records as the batches it wrote them in, a folder on the build's disk, medians.
#![allow(dead_code)] // each bench is a program of its own and uses a part of this

use std::sync::Arc;
use std::time::Duration;

use agentrun_adapter::ToolSpec;
use agentrun_kernel::{Body, OnRepeat, Record, Replay};
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
    let mut arguments = std::env::args().skip_while(|argument| argument.strip_prefix("--") != Some(name)).skip(1);
    arguments.next().map_or(default, |text| text.parse().unwrap())
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

/// The node's records in the batches it wrote them in.
pub(crate) fn batches(records: Vec<Record>) -> Vec<Vec<Body>> {
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
