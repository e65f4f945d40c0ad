//! Why a store did not do what it was asked. Each says what happened, to what, and what to do next; whoever decides matches on the
//! variant, never on the words.

use super::{End, FREE_BYTES, RECORD_BYTES};
use crate::ids::{Epoch, LogKey, Seq, SessionKey, SharedLog};
use crate::record::DecodeError;

/// Why a session was not taken. Nothing changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// The log is not where the caller's decision saw it.
    #[error("session moved on while it was being decided: expected seq {expected}, found {found}")]
    HeadChanged {
        /// What the caller saw.
        expected: Seq,
        /// What is there.
        found: Seq,
    },
    /// Sealed for a move.
    #[error("session `{key}` was moved to {to}; resume it there")]
    Moved {
        /// Which.
        key: SessionKey,
        /// Where to.
        to: String,
    },
    /// Removed; its key is not used again.
    #[error("session `{key}` was removed; its key cannot be used again, choose another")]
    Removed {
        /// Which.
        key: SessionKey,
    },
    /// The store itself.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why an append was not answered with a seq.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    /// A newer owner took the session; nothing was written, and nothing ever will be by this writer.
    #[error("a newer owner has taken the session (epoch {newer}); this one writes nothing more")]
    Fenced {
        /// The newer owner's epoch.
        newer: Epoch,
    },
    /// The shared log is not at the expected seq; nothing was written.
    #[error("{log} is at seq {found}, not {expected}: fold its tail and try again")]
    Conflict {
        /// Which log.
        log: SharedLog,
        /// What the caller saw.
        expected: Seq,
        /// What is there.
        found: Seq,
    },
    /// Surely nothing was written.
    #[error("refused, nothing written: {0}")]
    Refused(Refused),
    /// Nobody can say whether it was written: the writer is dead, and the log decides.
    #[error("the append may or may not have been written; read the log to know: {0}")]
    Unknown(StoreError),
}

/// Why an append was refused before anything was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Over [`RECORD_BYTES`].
    #[error("a record of {bytes} bytes is over the bound of {RECORD_BYTES}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Less than [`FREE_BYTES`] of disk.
    #[error("only {free} bytes of disk are free at the store; free at least {FREE_BYTES} and go on")]
    DiskLow {
        /// What is free.
        free: u64,
    },
    /// The session is sealed or removed.
    #[error("the session is {}", .0.as_str())]
    Ended(End),
    /// A batch with nothing in it.
    #[error("an empty batch")]
    Empty,
    /// The store is busy with another writer, or its transaction was refused; trying again can help.
    #[error("the store did not take it: {0}")]
    Busy(String),
    /// The bodies could not be written as records.
    #[error("not writable as a record: {0}")]
    Unwritable(DecodeError),
}

/// Why a session was not removed. But for [`RemoveError::Store`], nothing changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RemoveError {
    /// The store never knew it.
    #[error("there is no session `{key}`; nothing was removed")]
    Unknown {
        /// Which.
        key: SessionKey,
    },
    /// The log is not where the caller's decision saw it.
    #[error("session moved on while its removal was being decided: expected seq {expected}, found {found}")]
    HeadChanged {
        /// What the caller saw.
        expected: Seq,
        /// What is there.
        found: Seq,
    },
    /// This kind of store keeps no tombstones, so it removes nothing.
    #[error("this store cannot remove sessions")]
    Unsupported,
    /// The store itself. Whether it was removed is known by asking again: that is answered with the same tombstone.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a session did not arrive. But for [`ImportError::Store`], nothing changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ImportError {
    /// The key was used in this store before; a key is used once.
    #[error("the key `{key}` is taken here{}; import it under another key", .end.map_or("", |end| match end {
        End::Moved => " by a session that was sealed and moved away, and none comes back under its key",
        End::Removed => " by a session that was removed",
        End::Delivered | End::Failed | End::Parked => "",
    }))]
    Taken {
        /// Which.
        key: SessionKey,
        /// How the session that has it ended, if it did.
        end: Option<End>,
    },
    /// The shared log that is part of it is not at the expected seq.
    #[error("{log} is at seq {found}, not {expected}: fold its tail and try again")]
    Conflict {
        /// Which log.
        log: SharedLog,
        /// What the caller saw.
        expected: Seq,
        /// What is there.
        found: Seq,
    },
    /// Surely nothing was written.
    #[error("refused, nothing written: {0}")]
    Refused(Refused),
    /// This kind of store takes no sessions from elsewhere.
    #[error("this store cannot import sessions")]
    Unsupported,
    /// The store itself. Whether the session is there is known by reading its key.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What is wrong with a store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Damage: reading stops here, nothing is guessed.
    #[error(
        "{log} is damaged at seq {seq}: {what}; restore the store from a backup, the records before it can still be read"
    )]
    Corrupt {
        /// Which log.
        log: LogKey,
        /// Where.
        seq: Seq,
        /// How it shows.
        what: String,
    },
    /// Written by a newer version.
    #[error("{log} at seq {seq}: {error}")]
    Version {
        /// Which log.
        log: LogKey,
        /// Where.
        seq: Seq,
        /// What is not known.
        error: DecodeError,
    },
    /// The store as a whole has a newer or unknown format.
    #[error(
        "the store has format {found}, this version knows {known}; use the version of agentrun that made it, or a newer one"
    )]
    Format {
        /// What it says.
        found: String,
        /// What is known here.
        known: String,
    },
    /// An earlier write failed in this process in a way that leaves its effect unknown; nothing is retried over it.
    #[error("the store stopped after a failed write ({0}); start the command again, the log decides what was written")]
    Poisoned(String),
    /// It cannot be used where it is.
    #[error("the store at {place} cannot be used: {why}")]
    Unusable {
        /// Where.
        place: String,
        /// Why, and what to do.
        why: String,
    },
    /// Reading or writing failed.
    #[error("the store failed: {0}")]
    Io(String),
}

impl StoreError {
    pub(crate) fn undecoded(log: &LogKey, seq: Seq, error: DecodeError) -> Self {
        match error {
            DecodeError::Damaged | DecodeError::Shape(_) => {
                Self::Corrupt { log: log.clone(), seq, what: error.to_string() }
            }
            DecodeError::Format { .. } | DecodeError::Kind { .. } => Self::Version { log: log.clone(), seq, error },
        }
    }
}
