//! How an adapter reaches the host's tools. The runner implements [`ToolHost`]: calls run in tasks it owns, so an adapter that dies loses
//! no outcome.

use std::sync::Arc;

use agentrun_kernel::{CallId, OpenEffect, Restart};
use async_trait::async_trait;
use serde_json::Value;

use crate::journal::Tail;

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
}

/// A call the harness makes, behind the barrier.
#[derive(Debug)]
pub struct ToolCall {
    /// The harness's own id of it.
    pub call: CallId,
    /// The tool as we name it (no harness prefix).
    pub tool: String,
    /// Its arguments.
    pub arguments: Value,
    /// How many results the native history already holds for this id.
    pub ordinal: u32,
    /// The native bytes that explain it; recorded in one batch with its intent.
    pub tail: Tail,
}

/// What the harness is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The recorded text.
    Text {
        /// Exactly as recorded.
        text: Arc<str>,
        /// Whether it is an error result.
        is_error: bool,
        /// The value was delivered: no further request is wanted in this turn.
        end_turn: bool,
    },
    /// Drained or fenced: do not answer; the program is ended.
    Withhold,
}

/// What becomes of a harness's own tool.
#[derive(Debug)]
pub enum Observed {
    /// Its intent is durable; let it run and finish the effect with the text the model gets.
    Run(OpenEffect),
    /// Do not let it run; tell the model this.
    Deny(Arc<str>),
    /// Do not answer; the program is ended.
    Withhold,
}

/// The host's tools, `submit` among them.
#[async_trait]
pub trait ToolHost: Send + Sync {
    /// Tools to offer, `submit` among them.
    fn specs(&self) -> &[ToolSpec];

    /// Runs a host tool as a recorded effect and answers its recorded text. A tool that is not among `specs` ends the node
    /// (`unknown_tool`). Dropping the future cancels nothing: the call runs on and its outcome is recorded.
    ///
    /// # Errors
    /// [`Restart`]: unwind, answer nothing.
    async fn call(&self, call: ToolCall) -> Result<Answer, Restart>;

    /// Records a built-in before it runs, or denies it.
    ///
    /// # Errors
    /// [`Restart`]: unwind, answer nothing.
    async fn observe(&self, call: ToolCall) -> Result<Observed, Restart>;
}
