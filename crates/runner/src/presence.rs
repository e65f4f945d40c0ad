//! Whether a session's owner lives, for commands that must not end it unasked. Each owner holds a shared lock on a file beside its homes,
//! which the system lets go of when the process dies. A hint on this machine: the store's fence is what keeps a second owner out.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentrun_kernel::SessionKey;

use crate::homes::{private, short_name};

/// Tries at a file that a leaving owner removes under us, or that a command looks at right now.
const TRIES: u32 = 100;
/// Tries of whoever must be alone: a command that looks holds the lock for a moment, and is no owner.
const LOOKS: u32 = 3;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(2);

/// An owner's presence, until it is dropped.
#[derive(Debug)]
pub(crate) struct Presence {
    file: File,
    path: PathBuf,
}

impl Presence {
    /// Says that an owner lives here, beside others that may still leave. Cancel safe.
    pub(crate) async fn join(homes: &Path, store: &str, key: &SessionKey) -> io::Result<Self> {
        let path = place(homes, store, key)?;
        for _ in 0..TRIES {
            // Held exclusively for a moment by whoever looks whether somebody lives.
            if let Some(file) = locked(&path, File::try_lock_shared)? {
                sign(&file);
                return Ok(Self { file, path });
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(io::Error::other(format!("{} stays locked", path.display())))
    }

    /// The same, if no other owner lives. Of two that ask at once at most one is told so.
    pub(crate) fn alone(homes: &Path, store: &str, key: &SessionKey) -> io::Result<Option<Self>> {
        let path = place(homes, store, key)?;
        let mut file = locked(&path, File::try_lock)?;
        for _ in 0..LOOKS {
            if file.is_some() {
                break;
            }
            std::thread::sleep(PAUSE);
            file = locked(&path, File::try_lock)?;
        }
        let Some(file) = file else { return Ok(None) };
        let alone = Self { file, path };
        // Shared from here on, so that an owner that takes the session over can say that it lives too.
        alone.file.unlock()?;
        match alone.file.try_lock_shared() {
            Ok(()) => {
                sign(&alone.file);
                Ok(Some(alone))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Somebody who owns a session on this machine right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveOwner {
    /// Its process, where it said.
    pub pid: Option<u32>,
}

/// The owner of `session` that lives on this machine, the newest if there are several. A hint for a person: it may be gone by the time this
/// is read.
#[must_use]
pub fn live_owner(homes: &Path, store: &str, session: &SessionKey) -> Option<LiveOwner> {
    let mut file = File::options().read(true).write(true).open(of(homes, store, session)).ok()?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let mut said = String::new();
            let read = file.read_to_string(&mut said);
            Some(LiveOwner { pid: read.ok().and_then(|_| said.trim().parse().ok()) })
        }
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

/// Says which process holds the lock. One that cannot is as present as another.
fn sign(mut file: &File) {
    let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
}

impl Drop for Presence {
    fn drop(&mut self) {
        // The last one removes the file; whoever opened it before that sees that it is another one now, and opens again.
        if self.file.unlock().is_ok() && self.file.try_lock().is_ok() && is_at(&self.file, &self.path).unwrap_or(false)
        {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn place(homes: &Path, store: &str, key: &SessionKey) -> io::Result<PathBuf> {
    private(homes)?;
    Ok(of(homes, store, key))
}

fn of(homes: &Path, store: &str, key: &SessionKey) -> PathBuf {
    homes.join(format!("{}.owner", short_name(store, key)))
}

/// The file at `path` under the lock; `None`: somebody else's lock is in the way.
fn locked(path: &Path, lock: fn(&File) -> Result<(), TryLockError>) -> io::Result<Option<File>> {
    for _ in 0..TRIES {
        let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match lock(&file) {
            Ok(()) if is_at(&file, path)? => return Ok(Some(file)),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::other(format!("{} is removed again and again", path.display())))
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    match std::fs::metadata(path) {
        Ok(there) => file.metadata().map(|here| (here.dev(), here.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SessionKey {
        SessionKey::new("s").unwrap()
    }

    #[tokio::test]
    async fn an_owner_is_seen_until_the_last_one_is_gone_and_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let homes = folder.path().join("homes");
        let alone = || Presence::alone(&homes, "store", &key()).unwrap();
        let first = Presence::join(&homes, "store", &key()).await.unwrap();
        let second = Presence::join(&homes, "store", &key()).await.unwrap();
        assert!(alone().is_none());
        drop(first);
        assert!(alone().is_none(), "the second one lives");
        assert!(Presence::alone(&homes, "other", &key()).unwrap().is_some(), "another store's session is another one");
        let this = LiveOwner { pid: Some(std::process::id()) };
        assert_eq!(live_owner(&homes, "store", &key()), Some(this));
        assert_eq!(live_owner(&homes, "other", &key()), None, "and looking makes no file");
        drop(second);
        assert_eq!(live_owner(&homes, "store", &key()), None);
        let only = alone();
        assert!(only.is_some() && alone().is_none(), "of two that ask one is alone");
        let beside = Presence::join(&homes, "store", &key()).await.unwrap();
        drop((only, beside));
        assert_eq!(std::fs::read_dir(&homes).unwrap().count(), 0);
    }
}
