//! How the program is found, asked for its version, and started: the one place for the supported range, the argument list and the
//! environment. It starts from an empty environment, because what it inherits (`CLAUDE*`) changes what it does.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::Duration;

/// Names the program; looked at before `PATH`.
pub const PROGRAM_VARIABLE: &str = "AGENTRUN_CLAUDE";
/// Its name on `PATH`.
const PROGRAM: &str = "claude";
/// Where it keeps its own files, below the private home. Transcripts are named from there in records, so it never changes.
pub(super) const CONFIG_FOLDER: &str = "claude";
/// `--version` takes 20 ms warm and about a second cold; a program that has not answered by then is not this one.
const VERSION_DEADLINE: Duration = Duration::from_secs(20);
/// What the harness may inherit from us. Everything else, credentials above all, stays out.
const INHERITED: [&str; 6] = ["PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER"];
/// Host tools may take this long before the program gives up on them (a day, in ms): its clock must be above every tool's own.
const TOOL_TIMEOUT_MS: &str = "86400000";

/// A version of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Major.
    pub major: u32,
    /// Minor.
    pub minor: u32,
    /// Patch.
    pub patch: u32,
}

impl Version {
    const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for Version {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut numbers = text.splitn(3, '.').map(|part| part.parse::<u32>().map_err(|_| ()));
        let mut next = || numbers.next().unwrap_or(Err(()));
        Ok(Self::new(next()?, next()?, next()?))
    }
}

/// The version everything here was measured on; CI installs it.
pub const PINNED: Version = Version::new(2, 1, 332);
/// The first version that has all we rest on: hooks that block on failure, parked tool manifests, the wait for `initialize`.
pub const OLDEST: Version = PINNED;
/// The first one we would not start: what a resume does has changed between minor versions before.
pub const TOO_NEW: Version = Version::new(2, 2, 0);

/// A program that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Where it is.
    pub path: PathBuf,
    /// What it says it is.
    pub version: Version,
}

/// Why it cannot be started. Nothing was spent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// Not there.
    #[error("Claude Code is not installed: no `{PROGRAM}` on PATH and {PROGRAM_VARIABLE} is not set")]
    NotInstalled,
    /// The variable names something that is no program.
    #[error("{PROGRAM_VARIABLE} names {}, which is not a program that can be run", .0.display())]
    NotAProgram(PathBuf),
    /// It could not be asked.
    #[error("{} could not be asked for its version: {why}", path.display())]
    Silent {
        /// The program.
        path: PathBuf,
        /// What happened.
        why: String,
    },
    /// It is a version we do not know.
    #[error(
        "{} is Claude Code {found}; agentrun works with {OLDEST} up to, but not including, {TOO_NEW}",
        path.display()
    )]
    Unsupported {
        /// The program.
        path: PathBuf,
        /// What it is.
        found: Version,
    },
}

/// The program to use: the one [`PROGRAM_VARIABLE`] names, else the first on `PATH`.
///
/// # Errors
/// [`ProgramError::NotInstalled`] or [`ProgramError::NotAProgram`].
pub fn find() -> Result<PathBuf, ProgramError> {
    find_in(std::env::var_os(PROGRAM_VARIABLE).as_deref(), std::env::var_os("PATH").as_deref())
}

fn find_in(named: Option<&OsStr>, path: Option<&OsStr>) -> Result<PathBuf, ProgramError> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        return if runnable(&named) { Ok(named) } else { Err(ProgramError::NotAProgram(named)) };
    }
    std::env::split_paths(path.unwrap_or_default())
        // A relative entry means another program in every folder.
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(PROGRAM))
        .find(|candidate| runnable(candidate))
        .ok_or(ProgramError::NotInstalled)
}

fn runnable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Finds the program and asks what it is. The answer is kept for as long as the file does not change (path, time and size).
///
/// # Errors
/// [`ProgramError`]: not there, does not answer, or outside the supported range.
///
/// Cancel safe: the program asked is ended with the future.
pub async fn program() -> Result<Program, ProgramError> {
    supported(find()?).await
}

async fn supported(path: PathBuf) -> Result<Program, ProgramError> {
    let version = version_of(&path).await?;
    if version < OLDEST || version >= TOO_NEW {
        return Err(ProgramError::Unsupported { path, found: version });
    }
    Ok(Program { path, version })
}

type Stamp = (PathBuf, i64, i64, u64);

/// What `path` says it is.
///
/// # Errors
/// [`ProgramError::Silent`]
pub async fn version_of(path: &Path) -> Result<Version, ProgramError> {
    static KNOWN: Mutex<Option<HashMap<Stamp, Version>>> = Mutex::new(None);
    let silent = |why: String| ProgramError::Silent { path: path.to_owned(), why };
    let meta = tokio::fs::metadata(path).await.map_err(|error| silent(error.to_string()))?;
    let stamp = (path.to_owned(), meta.mtime(), meta.mtime_nsec(), meta.size());
    if let Ok(known) = KNOWN.lock()
        && let Some(version) = known.as_ref().and_then(|known| known.get(&stamp))
    {
        return Ok(*version);
    }
    let mut command = tokio::process::Command::new(path);
    command.arg("--version").env_clear().stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let answer = tokio::time::timeout(VERSION_DEADLINE, command.output())
        .await
        .map_err(|_| silent(format!("no answer to --version within {} s", VERSION_DEADLINE.as_secs())))?
        .map_err(|error| silent(error.to_string()))?;
    let text = String::from_utf8_lossy(&answer.stdout);
    // `2.1.332 (Claude Code)`
    let version = text.split_whitespace().next().and_then(|word| word.parse().ok()).ok_or_else(|| {
        silent(format!("--version printed {:?} ({})", text.chars().take(80).collect::<String>(), answer.status))
    })?;
    if let Ok(mut known) = KNOWN.lock() {
        known.get_or_insert_default().insert(stamp, version);
    }
    Ok(version)
}

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
    fn a_version_is_read_from_its_three_numbers() {
        assert_eq!("2.1.332".parse(), Ok(PINNED));
        assert!("2.1".parse::<Version>().is_err());
        assert!("2.1.332-beta".parse::<Version>().is_err());
        assert!(Version::new(2, 1, 1000) < TOO_NEW);
    }

    #[tokio::test]
    async fn b25_only_a_version_in_the_range_is_started_and_both_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut found = Vec::new();
        for (at, says) in
            ["2.1.331 (Claude Code)", "2.1.332 (Claude Code)", "2.2.0 (Claude Code)", "hello"].iter().enumerate()
        {
            let path = folder.path().join(format!("claude-{at}"));
            std::fs::write(&path, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            found.push(supported(path).await);
        }
        let [Err(old), Ok(pinned), Err(new), Err(silent)] = &found[..] else { panic!("{found:?}") };
        assert_eq!(pinned.version, PINNED);
        for (refused, version) in [(old, "2.1.331"), (new, "2.2.0")] {
            assert!(matches!(refused, ProgramError::Unsupported { .. }));
            let text = refused.to_string();
            assert!(text.contains(version) && text.contains("2.1.332"), "{text}");
        }
        assert!(matches!(silent, ProgramError::Silent { .. }));
    }

    #[tokio::test]
    async fn a_program_that_was_replaced_is_asked_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("claude");
        for says in ["2.1.332", "2.1.3330"] {
            std::fs::write(&path, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            assert_eq!(version_of(&path).await.unwrap().to_string(), says);
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

    #[test]
    fn a_named_program_that_cannot_run_is_said_and_never_replaced_by_another() {
        let missing = find_in(Some(OsStr::new("/nowhere/claude")), Some(OsStr::new("/usr/bin")));
        assert!(matches!(missing, Err(ProgramError::NotAProgram(_))));
        assert!(matches!(find_in(None, None), Err(ProgramError::NotInstalled)));
        assert!(matches!(find_in(Some(OsStr::new("")), Some(OsStr::new("relative"))), Err(ProgramError::NotInstalled)));
    }
}
