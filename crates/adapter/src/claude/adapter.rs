//! The adapter itself: what Claude Code can do, and whether a plan can be run on the one that is installed.

use std::path::PathBuf;

use agentrun_kernel::{Built, HarnessVersion, Survey};
use async_trait::async_trait;

use super::history::ClaudeHistory;
use super::launch::PROGRAM;
use super::session::ClaudeSession;
use super::wire::TOOL_PREFIX;
use crate::adapter::{AdapterProfile, Admission, AgentAdapter, Capabilities, Checked, SessionPlan};
use crate::error::{AdapterError, Refusal, RefusalKind};
use crate::native::NativeHistory;
use crate::seat::{ModelApi, Seat};
use crate::session::AdapterSession;

/// The provider takes tool names of at most this many characters, our prefix among them.
const TOOL_NAME_CHARACTERS: usize = 64;

/// Claude Code as a child process. It holds nothing: every session has its own program and its own folders.
#[derive(Debug)]
pub struct ClaudeAdapter {
    profile: AdapterProfile,
    history: ClaudeHistory,
    /// Started whatever the environment names.
    program: Option<PathBuf>,
}

impl ClaudeAdapter {
    /// The adapter. No program is looked for yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            profile: AdapterProfile {
                name: "claude",
                widest: ABILITIES,
                speaks: &[ModelApi::Messages],
                program: Some(&PROGRAM),
            },
            history: ClaudeHistory,
            program: None,
        }
    }

    /// The adapter on the program at this absolute path, whatever the environment names; `check` asks it for its version all the same.
    #[must_use]
    pub fn over(program: impl Into<PathBuf>) -> Self {
        Self { program: Some(program.into()), ..Self::new() }
    }
}

impl Default for ClaudeAdapter {
    fn default() -> Self {
        Self::new()
    }
}

/// What every supported version can do.
const ABILITIES: Capabilities = Capabilities {
    own_ids: true,
    drain: true,
    // It can copy a history, but records cannot yet say whose.
    fork: false,
    steer: true,
    restores_responses: true,
    builtins: Built::Gated,
};

#[async_trait]
impl AgentAdapter for ClaudeAdapter {
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
        let program = match &self.program {
            Some(path) => PROGRAM.at(path).await?,
            None => PROGRAM.find().await?,
        };
        Ok(Checked {
            capabilities: ABILITIES,
            harness: HarnessVersion { name: "claude".to_owned(), version: program.version.to_string() },
            program: Some(program.path),
            plan: plan.clone(),
        })
    }

    async fn open(&self, admission: Admission, seat: Seat) -> Result<Box<dyn AdapterSession>, AdapterError> {
        Ok(Box::new(ClaudeSession::new(admission, seat).await?))
    }
}

/// A name the program would change is a tool the model calls and nobody knows.
fn check_tool_name(name: &str) -> Result<(), Refusal> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.chars().all(plain) && name.len() + TOOL_PREFIX.len() <= TOOL_NAME_CHARACTERS {
        return Ok(());
    }
    Err(Refusal {
        kind: RefusalKind::Plan,
        message: format!("the tool name `{name}` cannot be given to Claude Code as it is"),
        next: format!(
            "use letters, digits, `_` and `-`, at most {} of them",
            TOOL_NAME_CHARACTERS.saturating_sub(TOOL_PREFIX.len())
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b25_a_tool_name_the_program_would_change_is_refused() {
        for good in ["submit", "read_file-2"] {
            assert!(check_tool_name(good).is_ok(), "{good}");
        }
        for bad in ["", "two words", "näh", "a.b", &"x".repeat(54)] {
            assert!(check_tool_name(bad).is_err(), "{bad}");
        }
    }
}
