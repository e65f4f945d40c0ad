//! The adapters by the names the command line gives them.

use std::path::Path;
use std::sync::Arc;

use agentrun_adapter::AgentAdapter;
use agentrun_adapter::claude::ClaudeAdapter;
use agentrun_adapter::codex::CodexAdapter;
use agentrun_adapter::opencode::OpenCodeAdapter;
use agentrun_testing::faux::FauxAdapter;
use agentrun_testing::script::Script;
use clap::ValueEnum as _;

use crate::args::Harness;
use crate::exit::Failure;

/// The adapter of a harness. `script` is what the faux one plays.
///
/// # Errors
/// A script that is missing or refused.
pub(crate) fn adapter(harness: Harness, script: Option<&Path>) -> Result<Arc<dyn AgentAdapter>, Failure> {
    match (harness, script) {
        (Harness::Claude, _) => Ok(Arc::new(ClaudeAdapter::new())),
        (Harness::Codex, _) => Ok(Arc::new(CodexAdapter::new())),
        (Harness::OpenCode, _) => Ok(Arc::new(OpenCodeAdapter::new())),
        (Harness::Faux, Some(file)) => Ok(Arc::new(FauxAdapter::new(self::script(file)?))),
        (Harness::Faux, None) => Err(Failure::usage("the faux harness plays a script: name it with --script FILE")),
    }
}

/// The adapter of a harness that will not be asked to do anything.
pub(crate) fn idle(harness: Harness) -> Result<Arc<dyn AgentAdapter>, Failure> {
    let nothing = || Script::new(Vec::new()).map_err(|error| Failure::internal(error.to_string()));
    Ok(match harness {
        Harness::Codex => Arc::new(CodexAdapter::new()),
        Harness::Claude => Arc::new(ClaudeAdapter::new()),
        Harness::OpenCode => Arc::new(OpenCodeAdapter::new()),
        Harness::Faux => Arc::new(FauxAdapter::new(nothing()?)),
    })
}

/// A script from a file.
pub(crate) fn script(file: &Path) -> Result<Script, Failure> {
    let told = |why: String| Failure::usage(format!("--script {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| told(error.to_string()))?;
    Script::parse(&text).map_err(|error| told(error.to_string()))
}

/// Every adapter there is, in the order of the command line's help.
pub(crate) fn all() -> Result<Vec<Arc<dyn AgentAdapter>>, Failure> {
    Harness::value_variants().iter().map(|harness| idle(*harness)).collect()
}
