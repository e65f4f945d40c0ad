//! What a host asks for: one unit of work, its tools, its bounds, and its place in a run.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use agentrun_kernel::{EffectKey, OnRepeat, Replay, RunId, SessionKey, Usd};
use async_trait::async_trait;
use serde_json::Value;

use agentrun_adapter::ToolSpec;

/// Most bytes of a prompt: a submission is refused at its acceptance, not when it is placed.
pub const PROMPT_BYTES: usize = 1 << 20;
/// Sends of a node without a turn limit.
pub const MAX_SENDS: u32 = 100;
/// Paid requests of one turn, when the node does not say.
pub const REQUEST_LIMIT: u32 = 100;
/// Turns in a row without paid request and without delivery that end a node.
pub const EMPTY_TURNS: u32 = 3;
/// Names a node's tools may not have.
pub const RESERVED: &[&str] = &[SUBMIT];
/// The injected tool through which the value is delivered.
pub const SUBMIT: &str = "submit";

/// One unit of work.
#[derive(Clone)]
pub struct Node {
    /// Its name in lists and records.
    pub label: String,
    /// The system prompt's parts.
    pub system: Vec<String>,
    /// What the model is asked.
    pub prompt: String,
    /// The model's exact name.
    pub model: String,
    /// JSON Schema of the value.
    pub schema: Value,
    /// Host tools.
    pub tools: Vec<Tool>,
    /// The harness's own tools it may use; all others are denied.
    pub builtins: Vec<String>,
    /// Most the node may spend, over what its session has spent already.
    pub budget: Option<Usd>,
    /// Most messages placed with the harness; `None` bounds only the sends ([`MAX_SENDS`]).
    pub turn_limit: Option<u32>,
    /// Most paid requests of one turn.
    pub request_limit: u32,
    /// Decides a submitted value that fits the schema; `None` accepts each.
    pub review: Option<Arc<dyn Review>>,
    /// Whether it starts from another session's context.
    pub fork: bool,
    /// The host's own description, kept in the session's first record. Holds no credential.
    pub host: Value,
}

impl Node {
    /// A node without tools, budget, turn limit and review, with [`REQUEST_LIMIT`] requests a turn: set what it needs.
    #[must_use]
    pub fn new(label: impl Into<String>, prompt: impl Into<String>, model: impl Into<String>, schema: Value) -> Self {
        Self {
            label: label.into(),
            system: Vec::new(),
            prompt: prompt.into(),
            model: model.into(),
            schema,
            tools: Vec::new(),
            builtins: Vec::new(),
            budget: None,
            turn_limit: None,
            request_limit: REQUEST_LIMIT,
            review: None,
            fork: false,
            host: Value::Null,
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("label", &self.label).field("model", &self.model).finish_non_exhaustive()
    }
}

/// Where a node stands.
#[derive(Clone, Debug)]
pub struct Step {
    /// The session of this attempt.
    pub session: SessionKey,
    /// The run whose cap and ledger it shares.
    pub run: RunId,
    /// The attempt, from 1.
    pub attempt: u32,
    /// Sessions of earlier attempts: their completed never calls are answered from their receipts.
    pub earlier: Vec<SessionKey>,
}

impl Step {
    /// The first attempt under `session`, a run of its own.
    #[must_use]
    pub fn first(session: SessionKey) -> Self {
        Self { run: RunId::from(&session), session, attempt: 1, earlier: Vec::new() }
    }
}

/// A host tool.
#[derive(Clone)]
pub struct Tool {
    /// As the model sees it.
    pub spec: ToolSpec,
    /// Whether a call may run twice. A priced one never may.
    pub replay: Replay,
    /// What becomes of an interrupted call that the model asks for again.
    pub on_repeat: OnRepeat,
    /// What a call costs.
    pub price: Option<Usd>,
    /// How long a call may take; then it is interrupted.
    pub timeout: Duration,
    /// Whether a call runs alone.
    pub exclusive: bool,
    /// What runs it.
    pub run: Arc<dyn ToolRun>,
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("name", &self.spec.name).field("replay", &self.replay).finish_non_exhaustive()
    }
}

/// One call of a host tool.
#[derive(Clone, Debug)]
pub struct ToolInvocation {
    /// The effect's key: the same after a restart, so a tool can ask its own service what became of it.
    pub key: EffectKey,
    /// The session.
    pub session: SessionKey,
    /// The epoch of the owner.
    pub epoch: u64,
    /// The store's id, for the marker of processes.
    pub store: String,
    /// The folder to work in.
    pub workspace: std::path::PathBuf,
    /// The arguments; they fit the tool's schema.
    pub arguments: Value,
    /// How long it may take.
    pub timeout: Duration,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolEnd {
    /// It did it; the text for the model.
    Ok(String),
    /// It ran and failed; the text for the model.
    Error(String),
    /// It was cut: nobody can say how far it got. The text says what is known.
    Interrupted(String),
    /// It never began; the text says why.
    Refused(String),
}

/// Runs a host tool.
#[async_trait]
pub trait ToolRun: Send + Sync {
    /// Runs one call to its end. It is run in a task the runner owns and is never dropped by a harness's death.
    async fn run(&self, call: ToolInvocation) -> ToolEnd;

    /// Asks what became of an interrupted call, without doing it: `Some` when it can tell.
    async fn reconcile(&self, _call: ToolInvocation) -> Reconciled {
        Reconciled::Unknown
    }
}

/// What became of an interrupted call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reconciled {
    /// It happened; this is its result.
    Happened(String),
    /// It did not: it may be run anew.
    DidNot,
    /// Nobody can tell: it stays interrupted.
    Unknown,
}

/// Decides submitted values.
#[async_trait]
pub trait Review: Send + Sync {
    /// Decides one. It may be asked again for the same candidate after a crash, under the same key (`session/candidate`).
    ///
    /// # Errors
    /// [`HostFault`] when the review itself failed: the node ends, not finally, and the candidate stays undecided.
    async fn review(&self, key: &str, value: &Value) -> Result<ReviewVerdict, HostFault>;
}

/// What a review says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReviewVerdict {
    /// Deliver it.
    Accept,
    /// Tell the model this; it can submit again in the same session.
    Reject(String),
}

/// The host's own code failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HostFault(pub String);
