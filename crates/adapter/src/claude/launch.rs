//! Which program it is and how it is started: the one place for the supported range, the argument list and the environment. It starts from
//! an empty environment, because what it inherits (`CLAUDE*`) changes what it does.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::process::{HarnessProgram, Version};

/// Where it keeps its own files, below the private home. Transcripts are named from there in records, so it never changes.
pub(super) const CONFIG_FOLDER: &str = "claude";
/// What the harness may inherit from us. Everything else, credentials above all, stays out.
const INHERITED: [&str; 6] = ["PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER"];
/// Host tools may take this long before the program gives up on them (a day, in ms): its clock must be above every tool's own.
const TOOL_TIMEOUT_MS: &str = "86400000";

/// The program and the versions of it that are started.
pub const PROGRAM: HarnessProgram = HarnessProgram {
    product: "Claude Code",
    variable: "AGENTRUN_CLAUDE",
    command: "claude",
    package: "@anthropic-ai/claude-code",
    pinned: Version::new(2, 1, 332),
    // The first that has all we rest on: hooks that block on failure, parked tool manifests, the wait for `initialize`.
    oldest: Version::new(2, 1, 332),
    // What a resume does has changed between minor versions before.
    too_new: Version::new(2, 2, 0),
};

/// Whether the session begins or is taken up again: an id with a transcript can only be resumed, one without can only begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    /// No transcript yet.
    Begin,
    /// There is one, and its last turn is over (or is to be left as it is).
    Resume,
    /// There is one, and its last turn was cut: the program takes it up by itself, with this note.
    TakeUp { note: &'a str },
}

/// Everything a start depends on.
pub(super) struct Launch<'a> {
    pub(super) entry: Entry<'a>,
    pub(super) session: &'a str,
    pub(super) model: &'a str,
    pub(super) builtins: &'a [String],
    pub(super) home: &'a Path,
    pub(super) tmp: &'a Path,
    pub(super) base_url: &'a str,
    pub(super) key: &'a str,
}

impl Launch<'_> {
    /// The arguments. Prompts are not among them: every process on the machine can read these.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let session = match self.entry {
            Entry::Begin => ["--session-id", self.session],
            Entry::Resume | Entry::TakeUp { .. } => ["--resume", self.session],
        };
        let builtins = self.builtins.join(",");
        let fixed = ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
            .into_iter()
            // Without the wait a resumed turn runs before our hooks and tools are there.
            .chain(["--await-initialize", "--replay-user-messages", "--include-partial-messages"])
            .chain(session)
            .chain(["--model", self.model, "--tools", &builtins])
            // Nothing of the person's own set-up, nothing of the project's: what the model gets is what the node says.
            .chain(["--strict-mcp-config", "--setting-sources=", "--disable-slash-commands"])
            .chain(["--system-prompt-snapshot", "off"])
            .chain(["--permission-mode", "default", "--permission-prompt-tool", "stdio"]);
        fixed.map(OsString::from).collect()
    }

    /// The whole environment.
    pub(super) fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut environment: Vec<(OsString, OsString)> =
            INHERITED.into_iter().filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?))).collect();
        let config = self.home.join(CONFIG_FOLDER);
        let places: [(&str, &OsStr); 5] = [
            ("HOME", self.home.as_os_str()),
            ("TMPDIR", self.tmp.as_os_str()),
            ("CLAUDE_CONFIG_DIR", config.as_os_str()),
            ("ANTHROPIC_BASE_URL", OsStr::new(self.base_url)),
            ("ANTHROPIC_API_KEY", OsStr::new(self.key)),
        ];
        environment.extend(places.map(|(name, value)| (OsString::from(name), value.to_owned())));
        let switches = [
            // Only the model endpoint is asked anything.
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("DISABLE_TELEMETRY", "1"),
            ("DISABLE_ERROR_REPORTING", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
            // The user's message is in the transcript before its request leaves.
            ("CLAUDE_CODE_EAGER_FLUSH", "1"),
            // A background command would begin a paid turn of its own when it ends.
            ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
            // A retry is another paid request: those are decided, and recorded, outside.
            ("CLAUDE_CODE_MAX_RETRIES", "0"),
            ("CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK", "1"),
            // A line of billing text in the system prompt that would differ from run to run.
            ("CLAUDE_CODE_ATTRIBUTION_HEADER", "0"),
            ("MCP_TOOL_TIMEOUT", TOOL_TIMEOUT_MS),
            // The model gets the recorded text, not a part of it; texts are bounded when they are recorded.
            ("MAX_MCP_OUTPUT_TOKENS", "1000000"),
            // Every tool is offered in every request.
            ("ENABLE_TOOL_SEARCH", "false"),
        ];
        environment.extend(switches.map(|(name, value)| (OsString::from(name), OsString::from(value))));
        if let Entry::TakeUp { note } = self.entry {
            let resume = [
                ("CLAUDE_CODE_RESUME_INTERRUPTED_TURN", "1"),
                // Without it the cut call and its answer vanish from what the model sees.
                ("CLAUDE_CODE_RESUME_SHOWS_CUT_OFF_CALLS", "1"),
                ("CLAUDE_CODE_RESUME_PROMPT", note),
            ];
            environment.extend(resume.map(|(name, value)| (OsString::from(name), OsString::from(value))));
        }
        environment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(entry: Entry<'_>) -> Launch<'_> {
        Launch {
            entry,
            session: "s",
            model: "m",
            builtins: &[],
            home: Path::new("/h"),
            tmp: Path::new("/t"),
            base_url: "http://127.0.0.1:1",
            key: "made-up",
        }
    }

    #[test]
    fn a_transcript_decides_between_beginning_and_resuming() {
        let has = |entry, flag: &str| launch(entry).arguments().contains(&OsString::from(flag));
        assert!(has(Entry::Begin, "--session-id") && !has(Entry::Begin, "--resume"));
        assert!(has(Entry::Resume, "--resume") && !has(Entry::Resume, "--session-id"));
    }

    #[test]
    fn only_a_cut_turn_is_taken_up_by_itself() {
        let takes_up =
            |entry| launch(entry).environment().iter().any(|(name, _)| name == "CLAUDE_CODE_RESUME_INTERRUPTED_TURN");
        assert!(takes_up(Entry::TakeUp { note: "n" }));
        assert!(!takes_up(Entry::Resume) && !takes_up(Entry::Begin));
    }

    #[test]
    fn the_environment_holds_nothing_that_was_not_listed() {
        let ours = launch(Entry::Begin).environment();
        for (name, _) in std::env::vars_os().filter(|(name, _)| !INHERITED.iter().any(|allowed| name == *allowed)) {
            let set_by_us = name == "HOME" || name == "TMPDIR";
            assert!(set_by_us || !ours.iter().any(|(it, _)| *it == name), "{name:?} was inherited");
        }
    }
}
