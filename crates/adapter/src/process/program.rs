//! Finding a harness's program and asking what it is: the one its variable names, else the first on `PATH`. Nothing is spent here, and
//! nothing is left running.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Refusal, RefusalKind};

/// `--version` takes 20 ms to 2 s warm and more cold on a busy machine; a program that has not answered by then is not the one.
const VERSION_DEADLINE: Duration = Duration::from_secs(30);

/// How much is shown of what a program prints in place of its version, in characters.
const SHOWN: usize = 160;

/// A version of a program.
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
    /// The version of these three numbers.
    #[must_use]
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
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

/// The program of a harness, and the versions of it that are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HarnessProgram {
    /// What people call it.
    pub product: &'static str,
    /// The variable that names it; looked at before `PATH`.
    pub variable: &'static str,
    /// Its name on `PATH`.
    pub command: &'static str,
    /// Its package on npm.
    pub package: &'static str,
    /// The version everything was measured on; CI installs it.
    pub pinned: Version,
    /// The first version that has all we rest on.
    pub oldest: Version,
    /// The first one that is not started.
    pub too_new: Version,
}

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
    #[error("{} is not installed: no `{}` on PATH and {} is not set", .0.product, .0.command, .0.variable)]
    NotInstalled(Box<HarnessProgram>),
    /// The variable names something that is no program.
    #[error("{} names {}, which is not a program that can be run", wanted.variable, path.display())]
    NotAProgram {
        /// What was looked for.
        wanted: Box<HarnessProgram>,
        /// What the variable names.
        path: PathBuf,
    },
    /// It could not be asked.
    #[error("{} could not be asked for its version: {why}", path.display())]
    Silent {
        /// What was looked for.
        wanted: Box<HarnessProgram>,
        /// The program.
        path: PathBuf,
        /// What happened.
        why: String,
    },
    /// It is a version we do not know.
    #[error(
        "{} is {} {found}; agentrun works with {} up to, but not including, {}",
        path.display(), wanted.product, wanted.oldest, wanted.too_new
    )]
    Unsupported {
        /// What was looked for.
        wanted: Box<HarnessProgram>,
        /// The program.
        path: PathBuf,
        /// What it is.
        found: Version,
    },
}

impl ProgramError {
    fn wanted(&self) -> &HarnessProgram {
        match self {
            Self::NotInstalled(wanted)
            | Self::NotAProgram { wanted, .. }
            | Self::Silent { wanted, .. }
            | Self::Unsupported { wanted, .. } => wanted,
        }
    }
}

impl From<ProgramError> for Refusal {
    fn from(error: ProgramError) -> Self {
        let wanted = error.wanted();
        let kind = match &error {
            ProgramError::Unsupported { found, .. } => RefusalKind::Version {
                found: found.to_string(),
                supported: format!(">={}, <{}", wanted.oldest, wanted.too_new),
            },
            ProgramError::NotInstalled(_) | ProgramError::NotAProgram { .. } | ProgramError::Silent { .. } => {
                RefusalKind::NotInstalled
            }
        };
        let next = format!("install {} ({}) and name it in {}", wanted.pinned, wanted.how_to_get(), wanted.variable);
        Self { kind, message: error.to_string(), next }
    }
}

impl HarnessProgram {
    /// How to get the version that everything was measured on.
    #[must_use]
    pub fn how_to_get(&self) -> String {
        format!("npm install -g {}@{}", self.package, self.pinned)
    }

    /// Finds the program and asks what it is. The answer is kept for as long as the file does not change (path, time and size).
    ///
    /// # Errors
    /// [`ProgramError`]: not there, does not answer, or outside the supported range.
    ///
    /// Cancel safe: the program asked is ended with the future.
    pub async fn find(&self) -> Result<Program, ProgramError> {
        let path = self.find_in(std::env::var_os(self.variable).as_deref(), std::env::var_os("PATH").as_deref())?;
        self.supported(path).await
    }

    /// The program at `path`, whatever the environment names, once it has said what it is.
    ///
    /// # Errors
    /// [`ProgramError`], as for [`HarnessProgram::find`].
    pub async fn at(&self, path: &Path) -> Result<Program, ProgramError> {
        if !runnable(path) {
            let why = "it is not a program that can be run".to_owned();
            return Err(ProgramError::Silent { wanted: Box::new(*self), path: path.to_owned(), why });
        }
        self.supported(path.to_owned()).await
    }

    /// The program `named` by the variable, else the first on `path`.
    fn find_in(&self, named: Option<&OsStr>, path: Option<&OsStr>) -> Result<PathBuf, ProgramError> {
        if let Some(named) = named.filter(|named| !named.is_empty()) {
            let path = PathBuf::from(named);
            return if runnable(&path) {
                Ok(path)
            } else {
                Err(ProgramError::NotAProgram { wanted: Box::new(*self), path })
            };
        }
        std::env::split_paths(path.unwrap_or_default())
            // A relative entry means another program in every folder.
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join(self.command))
            .find(|candidate| runnable(candidate))
            .ok_or_else(|| ProgramError::NotInstalled(Box::new(*self)))
    }

    async fn supported(&self, path: PathBuf) -> Result<Program, ProgramError> {
        let version = self.version_of(&path).await?;
        if version < self.oldest || version >= self.too_new {
            return Err(ProgramError::Unsupported { wanted: Box::new(*self), path, found: version });
        }
        Ok(Program { path, version })
    }

    async fn version_of(&self, path: &Path) -> Result<Version, ProgramError> {
        static KNOWN: Mutex<Option<HashMap<Stamp, Version>>> = Mutex::new(None);
        let silent = |why: String| ProgramError::Silent { wanted: Box::new(*self), path: path.to_owned(), why };
        let meta = tokio::fs::metadata(path).await.map_err(|error| silent(error.to_string()))?;
        let stamp = (path.to_owned(), meta.mtime(), meta.mtime_nsec(), meta.size());
        let known = |stamp: &Stamp| {
            let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
            known.as_ref().and_then(|known| known.get(stamp).copied())
        };
        if let Some(version) = known(&stamp) {
            return Ok(version);
        }
        let scratch = Scratch::new().map_err(|error| silent(error.to_string()))?;
        let mut command = tokio::process::Command::new(path);
        command.arg("--version").env_clear().env("HOME", &scratch.0).env("TMPDIR", &scratch.0);
        command.stdin(Stdio::null()).kill_on_drop(true);
        let answer = tokio::time::timeout(VERSION_DEADLINE, command.output())
            .await
            .map_err(|_| silent(format!("no answer to --version within {} s", VERSION_DEADLINE.as_secs())))?
            .map_err(|error| silent(error.to_string()))?;
        let text = String::from_utf8_lossy(&answer.stdout);
        // `1.18.33`, `2.1.332 (Claude Code)`, `codex-cli 0.171.0`
        let version = text.split_whitespace().find_map(|word| word.parse().ok()).ok_or_else(|| {
            let short = |bytes: &[u8]| String::from_utf8_lossy(bytes).chars().take(SHOWN).collect::<String>();
            let (said, told) = (short(&answer.stdout), short(&answer.stderr));
            silent(format!("--version printed {said:?}, on stderr {told:?} ({})", answer.status))
        })?;
        KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(stamp, version);
        Ok(version)
    }
}

type Stamp = (PathBuf, i64, i64, u64);

fn runnable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// A folder of the question's own: OpenCode leaves a library of 5.6 MB in its temporary folder at every start, also at this one.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("agentrun-version-{}", uuid::Uuid::now_v7().simple()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left behind at worst: it holds nothing of ours.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    const WANTED: HarnessProgram = HarnessProgram {
        product: "Some Program",
        variable: "AGENTRUN_NOBODY_SETS_THIS",
        command: "some-program",
        package: "some-package",
        pinned: Version::new(2, 1, 332),
        oldest: Version::new(2, 1, 332),
        too_new: Version::new(2, 2, 0),
    };

    fn says(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\necho '{text}'\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_version_is_read_from_its_three_numbers() {
        assert_eq!("2.1.332".parse(), Ok(Version::new(2, 1, 332)));
        assert!("2.1".parse::<Version>().is_err() && "2.1.332-beta".parse::<Version>().is_err());
        assert!(Version::new(2, 1, 1000) < Version::new(2, 2, 0));
    }

    #[tokio::test]
    async fn b25_only_a_version_in_the_range_is_started_and_both_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut found = Vec::new();
        for (at, text) in ["2.1.331", "some-cli 2.1.332 (Some)", "2.2.0", "hello"].iter().enumerate() {
            found.push(WANTED.supported(says(folder.path(), &at.to_string(), text)).await);
        }
        let [Err(old), Ok(pinned), Err(new), Err(silent)] = &found[..] else { panic!("{found:?}") };
        assert_eq!(pinned.version, WANTED.oldest);
        for (refused, version) in [(old, "2.1.331"), (new, "2.2.0")] {
            assert!(matches!(refused, ProgramError::Unsupported { .. }));
            let text = refused.to_string();
            assert!(text.contains(version) && text.contains("2.1.332") && text.contains("Some Program"), "{text}");
        }
        assert!(matches!(silent, ProgramError::Silent { .. }));
    }

    #[tokio::test]
    async fn a_program_that_was_replaced_is_asked_again() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["2.1.332", "2.1.3330"] {
            let path = says(folder.path(), "some-program", text);
            assert_eq!(WANTED.version_of(&path).await.unwrap().to_string(), text);
        }
    }

    #[test]
    fn b25_the_variable_goes_before_the_path_and_a_relative_entry_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let named = says(folder.path(), "named", "");
        let on_path = says(folder.path(), "some-program", "");
        let path = OsString::from(format!("relative:{}", folder.path().display()));
        assert_eq!(WANTED.find_in(Some(named.as_os_str()), Some(&path)).unwrap(), named);
        assert_eq!(WANTED.find_in(Some(OsStr::new("")), Some(&path)).unwrap(), on_path);
        assert!(matches!(
            WANTED.find_in(Some(OsStr::new("/nowhere")), Some(&path)),
            Err(ProgramError::NotAProgram { .. })
        ));
        assert!(matches!(WANTED.find_in(None, Some(OsStr::new("relative"))), Err(ProgramError::NotInstalled(_))));
    }

    #[tokio::test]
    async fn what_a_program_leaves_in_its_folders_while_it_is_asked_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, told) = (folder.path().join("some-program"), folder.path().join("told"));
        let told_to = told.display();
        let text = format!("#!/bin/sh\ntouch \"$TMPDIR/left\"\necho \"$HOME $TMPDIR\" >'{told_to}'\necho 2.1.332\n");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        WANTED.version_of(&path).await.unwrap();
        let told = std::fs::read_to_string(told).unwrap();
        let folders: Vec<_> = told.split_whitespace().collect();
        assert_eq!(folders.len(), 2, "{told}");
        assert!(folders.iter().all(|it| !Path::new(it).exists()), "{told}");
    }
}
