//! A workflow host in one file: two nodes, the second made from the first one's value, a review, a budget, a cap that a park asks to raise,
//! and a loop that brings each step to its value. Kill it anywhere and run it again: it goes on from the records in its folder.
//!
//! ```text
//! cargo run -p agentrun-runner --example embed -- /tmp/embed-run
//! ```
//! It runs offline, on the faux harness and a script. For a real one: `ClaudeAdapter::new()` for the adapter, and for the provider
//! `ModelProvider::Proxy` with a `ModelProxy` that has your key.
#![allow(clippy::print_stdout, missing_docs, reason = "an example talks to whoever reads it")]

use std::{error::Error, path::Path, sync::Arc, time::Duration};

use agentrun_cap::Catalog;
use agentrun_kernel::{RunId, SessionKey, SqliteStore, Usd};
use agentrun_runner::{
    Delivered, HarnessRunner, HostFault, ModelProvider, Node, Review, ReviewVerdict, RunnerOptions, recovery,
};
use agentrun_testing::{faux::FauxAdapter, script::Script};
use async_trait::async_trait;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// What the model answers. Its first answer is a provider in trouble, its first reply one that the review sends back.
const SCRIPT: &str = r#"{"steps": [
  {"when": {"contains": "Ticket:"}, "status": 529},
  {"when": {"contains": "Ticket:"}, "usage": {"input": 20000, "output": 3000},
   "tools": [{"name": "submit", "input": {"value": {"severity": "high", "component": "login"}}}]},
  {"when": {"contains": "Write to them"}, "tools": [{"name": "submit", "input": {"value": {"text": "We are on it."}}}]},
  {"when": {"contains": "which part"}, "tools": [{"name": "submit", "input": {"value": {"text": "The login is down. We are on it."}}}]}
]}"#;

#[derive(Debug, Deserialize, PartialEq)]
pub(crate) struct Triage {
    pub(crate) severity: String,
    pub(crate) component: String,
}

#[derive(Debug, Deserialize, PartialEq)]
pub(crate) struct Reply {
    pub(crate) text: String,
}

/// The host's own word on a reply: it must say what is broken.
struct SaysWhat(String);

#[async_trait]
impl Review for SaysWhat {
    async fn review(&self, _: &str, value: &Value) -> Result<ReviewVerdict, HostFault> {
        let said = value["text"].as_str().is_some_and(|text| text.contains(&self.0));
        Ok(if said { ReviewVerdict::Accept } else { ReviewVerdict::Reject("Say which part is broken.".to_owned()) })
    }
}

struct Host {
    runner: HarnessRunner,
    run: RunId,
}

impl Host {
    fn open(folder: &Path) -> Result<Self, Box<dyn Error>> {
        std::fs::create_dir_all(folder)?;
        let store = Arc::new(SqliteStore::open(folder.join("run.db"))?);
        let (catalog, homes) = (Arc::new(Catalog::bundled()?), folder.join("homes"));
        let mut options = RunnerOptions::new(store, catalog, ModelProvider::Direct, homes, folder);
        options.cap = Some("0.05".parse()?); // of the whole run, however many processes share it
        let adapter = FauxAdapter::new(Script::parse(SCRIPT)?);
        Ok(Self { runner: HarnessRunner::new(Arc::new(adapter), options), run: RunId::new("ticket-17")? })
    }

    /// One step of the run, whatever it takes. An answered one is answered from the records.
    async fn step<T: DeserializeOwned>(&self, name: &str, node: Node) -> Result<Delivered<T>, Box<dyn Error>> {
        let session = SessionKey::new(format!("{}/{name}", self.run))?;
        let mut wait = Duration::from_secs(1);
        loop {
            let error = match recovery::run(&self.runner, &node, &session, &self.run).await {
                Ok(delivered) => return Ok(delivered.typed()?),
                Err(error) => error,
            };
            if let Some(park) = error.park {
                println!("{name}: parked at a cap of ${}, raised to ${}", park.cap, park.needed); // or ask a person
                let id = format!("{name} to {}", park.needed);
                self.runner.ledger(&self.run).await?.raise(&id, park.needed, None).await?;
            } else if error.is_final() || wait > Duration::from_secs(60) {
                return Err(error.into());
            } else {
                println!("{name}: {error}; again in {wait:?}");
                tokio::time::sleep(wait).await;
                wait *= 2;
            }
        }
    }
}

/// The workflow: an ordinary program over values.
pub(crate) async fn workflow(folder: &Path) -> Result<(Delivered<Triage>, Delivered<Reply>), Box<dyn Error>> {
    let host = Host::open(folder)?;
    let text = json!({"type": "string"});
    let schema = json!({"type": "object", "properties": {"severity": {"enum": ["low", "high"]}, "component": text},
        "required": ["severity", "component"]});
    let ticket = "Ticket: since this morning nobody in our office can log in.";
    let mut node = Node::new("triage", ticket, "claude-haiku-4-5", schema);
    node.turn_limit = Some(4);
    let triage: Delivered<Triage> = host.step("triage", node).await?;

    let prompt = format!("{ticket}\nThis is {}. Write to them.", triage.value.severity).replace("Ticket:", "They say:");
    let schema = json!({"type": "object", "properties": {"text": text}, "required": ["text"]});
    let mut node = Node::new("reply", prompt, "claude-haiku-4-5", schema);
    node.budget = Some("0.10".parse::<Usd>()?); // of this node alone
    node.review = Some(Arc::new(SaysWhat(triage.value.component.clone())));
    let reply = host.step("reply", node).await?;
    Ok((triage, reply))
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "embed-run".to_owned());
    let (triage, reply) = workflow(Path::new(&folder)).await?;
    println!("{:?} for ${}{}", triage.value, triage.spent.counted(), from(triage.from_records));
    println!("{:?} for ${}{}", reply.value, reply.spent.counted(), from(reply.from_records));
    Ok(())
}

const fn from(records: bool) -> &'static str {
    if records { ", from the records" } else { "" }
}
