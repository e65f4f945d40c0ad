//! What a run is, normalised: the node and the flags that shape it. A session's first record keeps it (without any credential), and
//! `resume` reads it back from there, so that a key and a store are all it takes to go on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agentrun_kernel::{SessionKey, Usd};
use agentrun_runner::{Node, REQUEST_LIMIT, Review, Tool};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::args::{Harness, Provider};
use crate::command_tool::CommandTool;
use crate::exit::Failure;
use crate::node_file::{self, NodeSpec};
use crate::review::CommandReview;
use crate::run;

/// The layout of this record; another one is another version's.
const LAYOUT: u32 = 1;

/// A node and its flags.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    layout: u32,
    pub(crate) node: NodeSpec,
    pub(crate) flags: Flags,
}

/// The flags that shape a run. Paths are absolute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Flags {
    pub(crate) harness: Harness,
    pub(crate) workspace: PathBuf,
    pub(crate) provider: Option<Provider>,
    pub(crate) base_url: Option<String>,
    pub(crate) cap: Option<Usd>,
    pub(crate) catalog: Option<PathBuf>,
    pub(crate) script: Option<PathBuf>,
}

impl Flags {
    /// Asks an API that has moved since the session was begun. Its address is no part of what the session is bound to.
    ///
    /// # Errors
    /// No address, or a harness that asks none.
    pub(crate) fn moved_to(&mut self, base_url: Option<&str>) -> Result<(), Failure> {
        let Some(base_url) = base_url else { return Ok(()) };
        if self.harness.provider().is_none() {
            return Err(Failure::usage(format!(
                "--base-url: the session runs on `{}`, which asks no API",
                self.harness.name()
            )));
        }
        self.base_url = Some(base_url.to_owned());
        run::origin(self).map(drop)
    }
}

impl Plan {
    /// A plan of a checked node.
    pub(crate) const fn new(node: NodeSpec, flags: Flags) -> Self {
        Self { layout: LAYOUT, node, flags }
    }

    /// Reads the plan back from a session's first record. One that has answered runs nothing any more, so its commands need not be there.
    ///
    /// # Errors
    /// The session was begun by something else than this program, or its commands are gone.
    pub(crate) fn of_record(key: &SessionKey, host: &Value, answered: bool) -> Result<Self, Failure> {
        let layout = host.get("layout").and_then(Value::as_u64);
        if layout != Some(u64::from(LAYOUT)) {
            return Err(Failure::refused(format!(
                "session `{key}` was not begun by this version of the program (layout {layout:?}, not {LAYOUT}); resume it with what began it"
            )));
        }
        let mut plan: Self = serde_path_to_error::deserialize(host).map_err(|error| {
            Failure::refused(format!("session `{key}`: its recorded plan, at `{}`: {}", error.path(), error.inner()))
        })?;
        if answered {
            return Ok(plan);
        }
        let node = host.get("node").unwrap_or(&Value::Null);
        plan.node = node_file::again(node)
            .map_err(|fault| Failure::usage(format!("session `{key}`: the recorded node, {fault}")))?;
        Ok(plan)
    }

    /// The node as the runner takes it.
    pub(crate) fn node(&self, session: &SessionKey, store_id: &str) -> Result<Node, Failure> {
        let spec = &self.node;
        let missing = |member: &str| Failure::usage(format!("at `{member}`: is missing"));
        let host = serde_json::to_value(self).map_err(|error| Failure::internal(error.to_string()))?;
        let tools = spec.tools.iter().map(|tool| Tool {
            spec: agentrun_adapter::ToolSpec {
                name: tool.name.clone(),
                description: tool.description.clone(),
                input_schema: tool.input_schema.clone(),
            },
            replay: tool.replay,
            on_repeat: tool.on_repeat.into(),
            price: tool.price_usd,
            timeout: Duration::from_secs(tool.timeout_s),
            exclusive: tool.exclusive,
            run: Arc::new(CommandTool::new(&tool.command, tool.reconcile.as_deref())),
        });
        let review = spec.review.as_ref().map(|review| -> Arc<dyn Review> {
            Arc::new(CommandReview::new(&review.command, store_id, session.as_str(), self.flags.workspace.clone()))
        });
        Ok(Node {
            label: spec.label.clone(),
            system: spec.system.clone(),
            prompt: spec.prompt.clone().ok_or_else(|| missing("prompt"))?,
            model: spec.model.clone().ok_or_else(|| missing("model"))?,
            schema: spec.schema.clone().ok_or_else(|| missing("schema"))?,
            tools: tools.collect(),
            builtins: spec.builtin_tools.clone(),
            budget: spec.budget_usd,
            turn_limit: spec.turn_limit,
            request_limit: spec.request_limit.unwrap_or(REQUEST_LIMIT),
            review,
            fork: false,
            host,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plan() -> Plan {
        let node = json!({"prompt": "p", "model": "m", "schema": {}, "tools": [
            {"name": "t", "description": "d", "input_schema": {"type": "object"}, "command": ["sh"], "price_usd": "0.1"}]});
        let flags = Flags {
            harness: Harness::Claude,
            workspace: PathBuf::from("/"),
            provider: Some(Provider::Anthropic),
            base_url: None,
            cap: "0.5".parse().ok(),
            catalog: None,
            script: None,
        };
        Plan::new(node_file::again(&node).unwrap(), flags)
    }

    #[test]
    fn a_plan_reads_back_from_the_record_it_was_kept_in() {
        let key = SessionKey::new("s").unwrap();
        let host = plan().node(&key, "store").unwrap().host;
        assert_eq!(Plan::of_record(&key, &host, false).unwrap(), plan());
    }

    #[test]
    fn a_session_of_another_host_is_refused() {
        let key = SessionKey::new("s").unwrap();
        for host in [json!(null), json!({"layout": 2}), json!({"my": "own"})] {
            assert_eq!(Plan::of_record(&key, &host, false).unwrap_err().exit, crate::exit::Exit::Final);
        }
    }
}
