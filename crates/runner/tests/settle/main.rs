//! Settles on the faux adapter's history: what is open is ended and nothing is run, from records alone. A file a promise.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a failed test is a report"
)]

mod carry;
#[path = "../faux_node/logs.rs"]
#[allow(dead_code, reason = "each test binary uses its own part")]
mod logs;
mod prefixes;
mod settle;
#[path = "../faux_node/world.rs"]
#[allow(dead_code, reason = "each test binary uses its own part")]
mod world;

use std::sync::Arc;

use agentrun_adapter::AgentAdapter;
use agentrun_runner::{HarnessRunner, Node, NodeError, SettleError, SettleIn, Settlement, settle_open_turn};
use agentrun_testing::faux::FauxAdapter;
use agentrun_testing::script::Script;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use world::{World, key, step, within};

/// A settle in `world`, with an adapter whose model must not be asked.
fn place(world: &World) -> SettleIn {
    let options = world.options();
    SettleIn { store: options.store, adapter: world::adapter(json!([])), homes: options.homes }
}

async fn settle(world: &World) -> Result<Settlement, SettleError> {
    within(settle_open_turn(&place(world), &key(), false)).await
}

async fn take(world: &World) -> Result<Settlement, SettleError> {
    within(settle_open_turn(&place(world), &key(), true)).await
}

type Running = JoinHandle<Result<agentrun_runner::Delivered, NodeError>>;

fn start(runner: &HarnessRunner, node: Node) -> Running {
    let runner = runner.clone();
    tokio::spawn(async move { runner.run_node(node, step()).await })
}

/// Drops the node's future where it is, as the death of its process would.
async fn cut(running: Running) {
    running.abort();
    assert!(within(running).await.unwrap_err().is_cancelled());
}

/// The faux harness as one that makes up its own ids.
fn blind(steps: &Value) -> Arc<dyn AgentAdapter> {
    let script = Script::parse(&json!({ "steps": steps }).to_string()).unwrap();
    Arc::new(FauxAdapter::new(script).without_own_ids())
}
