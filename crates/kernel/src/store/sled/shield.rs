//! How sled is called: it panics on some damage ("tried to serialize Uninitialized", seen at an open), and a panic of the committer's
//! thread would leave its callers with less than a reason.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What went wrong inside sled.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Sled(#[from] sled::Error),
    #[error("sled broke off: {0}")]
    Panicked(String),
}

/// Runs `call`; a panic inside becomes a fault. Nothing of ours is left half-changed by it: what `call` touches is sled's own, and a
/// store whose write failed so is poisoned.
pub(super) fn shielded<T>(call: impl FnOnce() -> sled::Result<T>) -> Result<T, Fault> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(answer) => Ok(answer?),
        Err(panic) => {
            let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(Fault::Panicked(said.unwrap_or_else(|| "without a word".to_owned())))
        }
    }
}
