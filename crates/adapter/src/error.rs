//! Two types for two moments: a [`Refusal`] before anything was spent, an [`AdapterError`] once a session runs.

use agentrun_kernel::Restart;

/// A plan that cannot be run here. Nothing was spent, nothing opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {next}")]
pub struct Refusal {
    /// What kind.
    pub kind: RefusalKind,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub next: String,
}

/// Why a plan cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The program was not found.
    NotInstalled,
    /// Its version is outside the range.
    Version {
        /// What was found.
        found: String,
        /// What is supported.
        supported: String,
    },
    /// The session cannot do what the plan needs.
    Lacks(Ability),
    /// The harness does not speak the API of the model endpoint.
    Api,
    /// The plan itself cannot be given to this harness.
    Plan,
}

/// What a plan can need of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// To start from another session's context.
    Fork,
    /// To record its built-in tools.
    RecordBuiltins,
}

impl Ability {
    /// As a message says it, behind "cannot".
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fork => "start from another session's context",
            Self::RecordBuiltins => "record its built-in tools",
        }
    }
}

/// A session that failed. What follows is a function of the kind.
#[derive(Debug, thiserror::Error)]
#[error("{message}{}", self.last_words())]
pub struct AdapterError {
    /// What kind.
    pub kind: AdapterErrorKind,
    /// What happened, to what, and what to do.
    pub message: String,
    /// The end of what the program wrote to stderr.
    pub stderr_tail: String,
}

impl AdapterError {
    /// An error without a program's words.
    #[must_use]
    pub fn new(kind: AdapterErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), stderr_tail: String::new() }
    }

    /// The end of what the program wrote to stderr, behind a line of its own that says so; empty when it wrote nothing. Without the control
    /// characters a terminal would obey.
    #[must_use]
    pub fn last_words(&self) -> String {
        if self.stderr_tail.is_empty() {
            return String::new();
        }
        let plain = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
        let words: String = self.stderr_tail.trim_end().chars().filter(plain).collect();
        format!("\nits last words on stderr:\n{words}")
    }
}

/// What kind of failure.
#[derive(Debug)]
pub enum AdapterErrorKind {
    /// The program could not be started.
    Spawn,
    /// It ended in the middle of a turn.
    Exited {
        /// Its exit code (128 + signal when a signal ended it).
        code: Option<i32>,
    },
    /// Nothing came from it for too long.
    Stalled,
    /// It said something that cannot be understood, or left out what must come.
    Protocol,
    /// It says that the provider failed.
    Upstream {
        /// The status, where it says one.
        status: Option<u16>,
    },
    /// The native history could not be read or written.
    History,
    /// The session is no longer ours: unwind.
    Restart(Restart),
}

impl From<Restart> for AdapterError {
    fn from(restart: Restart) -> Self {
        Self::new(AdapterErrorKind::Restart(restart.clone()), restart.to_string())
    }
}
