//! The adapter itself: what OpenCode can do, and whether a plan can be run on the one that is installed.

use agentrun_kernel::{Built, HarnessVersion, Survey};
use async_trait::async_trait;

use super::builtins;
use super::history::OpenCodeHistory;
use super::launch::PROGRAM;
use super::session::OpenCodeSession;
use crate::adapter::{AdapterProfile, Admission, AgentAdapter, Capabilities, Checked, SessionPlan};
use crate::error::{AdapterError, Refusal, RefusalKind};
use crate::native::NativeHistory;
use crate::seat::{ModelApi, Seat};
use crate::session::AdapterSession;

/// Providers take tool names of at most this many characters.
const TOOL_NAME_CHARACTERS: usize = 64;
/// Names the program has a meaning of its own for: a tool of its own, or a rule.
const TAKEN: [&str; 22] = [
    "apply_patch",
    "bash",
    "doom_loop",
    "edit",
    "execute",
    "external_directory",
    "glob",
    "grep",
    "invalid",
    "list",
    "lsp",
    "multiedit",
    "patch",
    "plan_exit",
    "question",
    "read",
    "skill",
    "task",
    "todowrite",
    "webfetch",
    "websearch",
    "write",
];

/// OpenCode as a child process. It holds nothing: every session has its own program and its own folders.
#[derive(Debug)]
pub struct OpenCodeAdapter {
    profile: AdapterProfile,
    history: OpenCodeHistory,
}

impl OpenCodeAdapter {
    /// The adapter. No program is looked for yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            profile: AdapterProfile {
                name: "opencode",
                widest: ABILITIES,
                speaks: &[ModelApi::ChatCompletions, ModelApi::Messages],
                program: Some(&PROGRAM),
            },
            history: OpenCodeHistory,
        }
    }
}

impl Default for OpenCodeAdapter {
    fn default() -> Self {
        Self::new()
    }
}

/// What every supported version can do.
const ABILITIES: Capabilities = Capabilities {
    own_ids: true,
    drain: true,
    // It can copy a session, but records cannot yet say whose.
    fork: false,
    // A message for a running turn waits for its end.
    steer: false,
    restores_responses: true,
    builtins: Built::Gated,
};

#[async_trait]
impl AgentAdapter for OpenCodeAdapter {
    fn profile(&self) -> &AdapterProfile {
        &self.profile
    }

    fn history(&self) -> &dyn NativeHistory {
        &self.history
    }

    async fn check(&self, plan: &SessionPlan, _prior: Option<&Survey>) -> Result<Checked, Refusal> {
        for tool in &plan.tools {
            check_tool_name(&tool.name)?;
        }
        builtins::check(&plan.builtins)?;
        let program = PROGRAM.find().await?;
        Ok(Checked {
            capabilities: ABILITIES,
            harness: HarnessVersion { name: "opencode".to_owned(), version: program.version.to_string() },
            program: Some(program.path),
            plan: plan.clone(),
        })
    }

    async fn open(&self, admission: Admission, seat: Seat) -> Result<Box<dyn AdapterSession>, AdapterError> {
        Ok(Box::new(OpenCodeSession::new(admission, seat)?))
    }
}

/// A name the program would change, or takes for something else, is a tool the model calls and nobody knows.
fn check_tool_name(name: &str) -> Result<(), Refusal> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.chars().all(plain) && name.len() <= TOOL_NAME_CHARACTERS && !TAKEN.contains(&name) {
        return Ok(());
    }
    Err(Refusal {
        kind: RefusalKind::Plan,
        message: format!("the tool name `{name}` cannot be given to OpenCode as it is"),
        next: format!(
            "use letters, digits, `_` and `-`, at most {TOOL_NAME_CHARACTERS} of them, and no name of a tool of its own"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b25_a_tool_name_the_program_would_change_or_has_itself_is_refused() {
        for good in ["submit", "read_file-2"] {
            assert!(check_tool_name(good).is_ok(), "{good}");
        }
        for bad in ["", "two words", "näh", "a.b", "bash", "task", "doom_loop", &"x".repeat(65)] {
            assert!(check_tool_name(bad).is_err(), "{bad}");
        }
    }
}
