//! The format of a node file.

use std::path::PathBuf;

use agentrun_kernel::{OnRepeat, Replay, Usd};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Seconds a tool call may take when its node does not say.
const TIMEOUT_S: u64 = 600;

/// A node as written, or normalised: commands absolute, the model filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeSpec {
    #[serde(default = "label")]
    pub(crate) label: String,
    #[serde(default)]
    pub(crate) system: Vec<String>,
    pub(crate) prompt: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) schema: Option<Value>,
    #[serde(default)]
    pub(crate) tools: Vec<ToolSpec>,
    #[serde(default)]
    pub(crate) builtin_tools: Vec<String>,
    pub(crate) budget_usd: Option<Usd>,
    pub(crate) turn_limit: Option<u32>,
    pub(crate) request_limit: Option<u32>,
    pub(crate) review: Option<ReviewSpec>,
}

/// A command tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolSpec {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) input_schema: Value,
    pub(crate) command: Vec<String>,
    #[serde(default = "never")]
    pub(crate) replay: Replay,
    pub(crate) price_usd: Option<Usd>,
    #[serde(default = "timeout")]
    pub(crate) timeout_s: u64,
    #[serde(default)]
    pub(crate) exclusive: bool,
    #[serde(default)]
    pub(crate) on_repeat: Repeat,
    pub(crate) reconcile: Option<Vec<String>>,
}

/// What becomes of an interrupted call that the model asks for again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Repeat {
    #[default]
    Refuse,
    Allow,
}

impl From<Repeat> for OnRepeat {
    fn from(repeat: Repeat) -> Self {
        match repeat {
            Repeat::Refuse => Self::Refuse,
            Repeat::Allow => Self::Allow,
        }
    }
}

/// A review command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReviewSpec {
    pub(crate) command: Vec<String>,
}

fn label() -> String {
    "node".to_owned()
}

const fn never() -> Replay {
    Replay::Never
}

const fn timeout() -> u64 {
    TIMEOUT_S
}

/// A command as a path and its arguments. Checked ones have a first word.
pub(crate) fn split(command: &[String]) -> (PathBuf, Vec<String>) {
    match command {
        [program, arguments @ ..] => (PathBuf::from(program), arguments.to_vec()),
        [] => (PathBuf::new(), Vec::new()),
    }
}
