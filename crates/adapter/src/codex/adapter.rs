//! The adapter itself: what Codex can do, and whether a plan can be run on the one that is installed.

use std::time::Duration;

use agentrun_kernel::{Built, HarnessVersion, Survey};
use async_trait::async_trait;

use super::history::CodexHistory;
use super::launch::{PROGRAM, WRITE_STDIN};
use super::session::CodexSession;
use crate::adapter::{AdapterProfile, Admission, AgentAdapter, Capabilities, Checked, SessionPlan};
use crate::calls::STALL;
use crate::error::{AdapterError, Refusal, RefusalKind};
use crate::native::NativeHistory;
use crate::seat::{ModelApi, Seat};
use crate::session::AdapterSession;

/// The provider takes tool names of at most this many characters.
const TOOL_NAME_CHARACTERS: usize = 64;
/// Built-ins that are asked for before they run. It has others; they cannot be held back, so they are never offered.
const BUILTINS: [&str; 2] = ["exec_command", "apply_patch"];
/// All the names it may offer of its own. `write_stdin` comes with `exec_command`: it reads on in what a command says, and can end it; into
/// its input it can say nothing, for that is closed.
const OWN: [&str; 3] = ["exec_command", WRITE_STDIN, "apply_patch"];

/// Codex as a child process. It holds nothing: every session has its own program and its own folders.
#[derive(Debug)]
pub struct CodexAdapter {
    profile: AdapterProfile,
    history: CodexHistory,
    silence: Duration,
}

impl CodexAdapter {
    /// The adapter. No program is looked for yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            profile: AdapterProfile {
                name: "codex",
                widest: ABILITIES,
                speaks: &[ModelApi::Responses],
                program: Some(&PROGRAM),
            },
            history: CodexHistory,
            silence: STALL,
        }
    }

    /// The adapter, for sessions that fail as stalled once their program said nothing for `silence` (ten minutes, if not given) while no
    /// call of the host's runs. The program waits for the head of an answer without end, and shows neither the head nor a thought that
    /// goes on: an endpoint that accepts a request and says nothing is silence, and so is a model that thinks for as long.
    #[must_use]
    pub const fn with_silence(silence: Duration) -> Self {
        Self { silence, ..Self::new() }
    }
}

impl Default for CodexAdapter {
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
impl AgentAdapter for CodexAdapter {
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
        for builtin in &plan.builtins {
            check_builtin(builtin)?;
        }
        let program = PROGRAM.find().await?;
        Ok(Checked {
            capabilities: ABILITIES,
            harness: HarnessVersion { name: "codex".to_owned(), version: program.version.to_string() },
            program: Some(program.path),
            plan: plan.clone(),
        })
    }

    async fn open(&self, admission: Admission, seat: Seat) -> Result<Box<dyn AdapterSession>, AdapterError> {
        Ok(Box::new(CodexSession::new(admission, seat, self.silence)))
    }
}

/// A name the program would change is a tool the model calls and nobody knows; one of its own would be two tools.
fn check_tool_name(name: &str) -> Result<(), Refusal> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.len() <= TOOL_NAME_CHARACTERS && name.chars().all(plain) && !OWN.contains(&name) {
        return Ok(());
    }
    Err(Refusal {
        kind: RefusalKind::Plan,
        message: format!("the tool name `{name}` cannot be given to Codex as it is"),
        next: format!(
            "use letters, digits, `_` and `-`, at most {TOOL_NAME_CHARACTERS} of them, and no name of its own ({})",
            OWN.join(", ")
        ),
    })
}

fn check_builtin(name: &str) -> Result<(), Refusal> {
    if BUILTINS.contains(&name) {
        return Ok(());
    }
    Err(Refusal {
        kind: RefusalKind::Plan,
        message: format!("Codex has no built-in tool `{name}` that can be recorded before it runs"),
        next: format!("allow only {}", BUILTINS.join(", ")),
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
        for bad in ["", "two words", "näh", "a.b", "exec_command", &"x".repeat(65)] {
            assert!(check_tool_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn b25_a_built_in_that_cannot_be_held_back_is_refused() {
        assert!(check_builtin("exec_command").is_ok());
        for bad in ["Bash", "web_search", "view_image", "write_stdin"] {
            assert!(check_builtin(bad).is_err(), "{bad}");
        }
    }
}
