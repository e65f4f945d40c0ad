//! What command tools and reviews share: the environment a command gets (never a credential), and what is said of its end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use agentrun_adapter::process::{Marker, Spawn};

/// What a command inherits of our environment. A credential or a harness's setting never is: what is not named here is not passed.
const INHERITED: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];

/// A command as a node file gives it: an absolute program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandLine {
    program: PathBuf,
    args: Vec<OsString>,
}

impl CommandLine {
    /// The words of a checked command.
    pub(crate) fn new(words: &[String]) -> Self {
        let (program, args) = crate::node_file::split(words);
        Self { program, args: args.into_iter().map(OsString::from).collect() }
    }

    /// How it is started, in `folder`, with `extra` variables.
    pub(crate) fn spawn(&self, folder: &Path, marker: Marker, extra: &[(&str, &str)]) -> Spawn {
        let mut spawn = Spawn::new(&self.program, folder, marker).args(&self.args);
        for name in INHERITED {
            if let Some(value) = std::env::var_os(name) {
                spawn = spawn.env(name, value);
            }
        }
        extra.iter().fold(spawn, |spawn, (name, value)| spawn.env(*name, *value))
    }
}

/// The text of some output, with what was left out said.
pub(crate) fn output(stdout: &[u8], lost: u64) -> String {
    let mut text = String::from_utf8_lossy(stdout).into_owned();
    if lost > 0 {
        text.push_str(&format!("\n[{lost} more bytes of output were left out]"));
    }
    text
}

/// The end of a command's stderr, as a paragraph; nothing when it was silent.
pub(crate) fn tail(stderr: &str) -> String {
    let stderr = stderr.trim_end();
    if stderr.is_empty() { String::new() } else { format!("\nThe end of its stderr:\n{stderr}") }
}
