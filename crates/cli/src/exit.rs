//! How the program ends: the exit codes, and the one error type that carries a message for a person to stderr. A code is a promise to
//! scripts, so each has one meaning, wherever in the program it arises.

use std::process::ExitCode;

use agentrun_kernel::{NameError, StoreError, UrlError};
use agentrun_runner::NodeWord;

/// What an exit code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The value was delivered, or the command did what it was asked.
    Done = 0,
    /// A fault of this program.
    Internal = 1,
    /// Bad usage or input; nothing was started or written.
    Usage = 2,
    /// A final failure, or a refusal.
    Final = 3,
    /// Stopped, or something outside failed: it can be resumed.
    Again = 4,
    /// A newer owner has the session.
    Fenced = 5,
    /// Parked: waits for a raise of the cap.
    Parked = 6,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<NodeWord> for Exit {
    fn from(word: NodeWord) -> Self {
        match word {
            NodeWord::OverCap => Self::Parked,
            NodeWord::Fenced => Self::Fenced,
            NodeWord::Aborted | NodeWord::Harness | NodeWord::Upstream | NodeWord::Storage | NodeWord::HostFault => {
                Self::Again
            }
            word if word.is_final() => Self::Final,
            _ => Self::Internal,
        }
    }
}

/// A command that ends without a node's result: the code and what a person is told, with the next step in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    /// Bad usage or input.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, message: message.into() }
    }

    /// A final refusal.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self { exit: Exit::Final, message: message.into() }
    }

    /// Something outside failed.
    pub(crate) fn again(message: impl Into<String>) -> Self {
        Self { exit: Exit::Again, message: message.into() }
    }

    /// A fault of ours.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self { exit: Exit::Internal, message: message.into() }
    }

    /// A store that cannot be read while a command runs.
    pub(crate) fn store(error: &StoreError) -> Self {
        let exit = match error {
            // Another version's store, or a place that cannot hold one: input, and the message says what to use.
            StoreError::Version { .. } | StoreError::Format { .. } | StoreError::Unusable { .. } => Exit::Usage,
            StoreError::Corrupt { .. } => Exit::Final,
            StoreError::Poisoned(_) | StoreError::Io(_) => Exit::Again,
        };
        Self { exit, message: error.to_string() }
    }
}

impl From<UrlError> for Failure {
    fn from(error: UrlError) -> Self {
        match error {
            // A full disk or one that fails is no slip of the person's: the same command goes on when it is mended.
            UrlError::Store(error @ (StoreError::Io(_) | StoreError::Poisoned(_))) => Self::store(&error),
            UrlError::Store(error) => Self { exit: Exit::Usage, ..Self::store(&error) },
            other => Self::usage(other.to_string()),
        }
    }
}

impl From<NameError> for Failure {
    fn from(error: NameError) -> Self {
        Self::usage(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_the_code_of_its_table_row() {
        for word in NodeWord::RECORDED {
            assert_eq!(Exit::from(*word), Exit::Final, "{}", word.as_str());
        }
        for (word, exit) in [
            (NodeWord::OverCap, Exit::Parked),
            (NodeWord::Aborted, Exit::Again),
            (NodeWord::Fenced, Exit::Fenced),
            (NodeWord::Harness, Exit::Again),
            (NodeWord::Upstream, Exit::Again),
            (NodeWord::Storage, Exit::Again),
            (NodeWord::HostFault, Exit::Again),
            (NodeWord::Refused, Exit::Final),
            (NodeWord::Binding, Exit::Final),
        ] {
            assert_eq!(Exit::from(word), exit, "{}", word.as_str());
        }
    }
}
