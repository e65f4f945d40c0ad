//! A session leaves: it is removed, or sealed for a move. The store's own step fences whoever owns it; here is what a machine owes to that
//! step: an owner that lives is not ended unasked, nothing of the session runs on afterwards, and no private home of it stays.

use std::io;
use std::path::PathBuf;

use agentrun_adapter::process::{Epochs, Marker, SweepError, sweep};
use agentrun_kernel::{
    Epoch, LogKey, RemoveError, SealError, Sealed, Seq, SessionKey, Store, StoreError, Tombstone, seal,
};

use crate::attempt::SWEEP;
use crate::homes::short_name;
use crate::presence::Presence;

/// Where a session leaves from.
#[derive(Clone)]
pub struct LeaveFrom {
    /// Its store.
    pub store: Store,
    /// The folder of private homes: tells whether the session's owner lives on this machine, and is cleared of the session's.
    pub homes: PathBuf,
    /// End an owner that lives. Without it, one that lives on this machine keeps its session.
    pub take: bool,
}

impl std::fmt::Debug for LeaveFrom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaveFrom").field("take", &self.take).finish_non_exhaustive()
    }
}

/// Why a session did not leave, or not cleanly.
#[derive(Debug, thiserror::Error)]
pub enum LeaveError {
    /// The session's owner lives. Nothing was written.
    #[error("the owner of session `{0}` lives; stop it, or take the session from it with --take")]
    Busy(SessionKey),
    /// Whether an owner lives cannot be told. Nothing was written.
    #[error("whether the owner of session `{key}` lives cannot be told: {error}")]
    Presence {
        /// Which.
        key: SessionKey,
        /// Why.
        error: io::Error,
    },
    /// It was not removed.
    #[error(transparent)]
    Remove(#[from] RemoveError),
    /// It was not sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// It is fenced for good, and processes of it may still act. The same again looks for them again.
    #[error("session `{key}` takes no more records, but what it started was not seen to end: {error}")]
    Survivors {
        /// Which.
        key: SessionKey,
        /// Who, and what to do.
        error: SweepError,
    },
    /// It is fenced for good and nothing of it runs; a folder of it could not be removed. The same again tries again.
    #[error("session `{key}` takes no more records; its private home {} cannot be removed: {error}", .home.display())]
    Home {
        /// Which.
        key: SessionKey,
        /// Where.
        home: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Removes a session for good ([`SessionStore::remove`](agentrun_kernel::SessionStore::remove)), ends what it started on this machine,
/// and removes its private homes. Repeated after a cut or a failure, it does what is left and answers the same tombstone.
///
/// # Errors
/// [`LeaveError`].
pub async fn remove_session(from: &LeaveFrom, key: &SessionKey) -> Result<Tombstone, LeaveError> {
    if epoch(from, key).await.map_err(RemoveError::from)? == Epoch(0) {
        return Err(RemoveError::Unknown { key: key.clone() }.into());
    }
    let _alone = alone(from, key)?;
    let tombstone = from.store.remove(key, None).await?;
    clear(from, key, tombstone.epoch).await?;
    Ok(tombstone)
}

/// Seals a session for a move to `to` ([`seal`]), ends what it started on this machine, and removes its private homes: once this
/// returns, nothing here acts for the session any more, and it may go on where its export lands. Repeated after a cut or a failure, it
/// does what is left.
///
/// # Errors
/// [`LeaveError`].
pub async fn seal_session(from: &LeaveFrom, key: &SessionKey, to: &str) -> Result<Sealed, LeaveError> {
    if epoch(from, key).await.map_err(SealError::from)? == Epoch(0) {
        return Err(SealError::Unknown { key: key.clone() }.into());
    }
    let _alone = alone(from, key)?;
    let sealed = seal(&*from.store, key, to).await?;
    let epoch = epoch(from, key).await.map_err(SealError::from)?;
    clear(from, key, epoch).await?;
    Ok(sealed)
}

async fn epoch(from: &LeaveFrom, key: &SessionKey) -> Result<Epoch, StoreError> {
    Ok(from.store.read(&LogKey::from(key), Seq(1), 0).await?.head.epoch)
}

/// Says that somebody is at work on the session, so that nobody begins beside it; `None` with `take`, which waits for nobody.
fn alone(from: &LeaveFrom, key: &SessionKey) -> Result<Option<Presence>, LeaveError> {
    if from.take {
        return Ok(None);
    }
    match Presence::alone(&from.homes, from.store.id(), key) {
        Ok(Some(alone)) => Ok(Some(alone)),
        Ok(None) => Err(LeaveError::Busy(key.clone())),
        Err(error) => Err(LeaveError::Presence { key: key.clone(), error }),
    }
}

/// Ends what owners before `epoch` started, and removes their homes.
async fn clear(from: &LeaveFrom, key: &SessionKey, epoch: Epoch) -> Result<(), LeaveError> {
    let marker = Marker { store: from.store.id().to_owned(), session: key.to_string(), epoch: epoch.0 };
    sweep(&marker, Epochs::Before, SWEEP).await.map_err(|error| LeaveError::Survivors { key: key.clone(), error })?;
    let home = from.homes.join(short_name(from.store.id(), key));
    match std::fs::remove_dir_all(&home) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(LeaveError::Home { key: key.clone(), home, error }),
    }
}
