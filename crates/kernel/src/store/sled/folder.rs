//! The folder a store lives in: made with the rights of one person, owned by one process at a time (a lock on `owner`, which holds its
//! process id), and counted: `acknowledged` says how many groups were, since sled takes a damaged log for one that ends there.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::super::StoreError;
use super::super::disk::{self, Identity};
use super::shield::{Fault, shielded};
use super::{SledStore, WeakStore};

const OWNER: &str = "owner";
const ACKNOWLEDGED: &str = "acknowledged";
/// sled's file of records.
const DB: &str = "db";
/// How long a store that this process is just closing is waited for.
const CLOSING: Duration = Duration::from_secs(10);
/// How long a lock is waited for, the store's own and sled's.
const UNLOCKING: Duration = Duration::from_secs(2);
/// What sled keeps in memory of what it read and wrote.
const CACHE: u64 = 64 << 20;

/// A folder that may hold a store.
#[derive(Clone, Debug)]
pub(super) struct Place {
    folder: PathBuf,
    identity: Identity,
}

impl Place {
    pub(super) fn prepare(path: &Path) -> Result<Self, StoreError> {
        let unusable = |why: &str| disk::unusable(path, why);
        if path.exists() && !path.is_dir() {
            return Err(unusable("it is a file; a sled store is a folder, give the path of one"));
        }
        disk::make_folder(path).map_err(|error| unusable(&format!("the folder cannot be made: {error}")))?;
        let folder = path.canonicalize().map_err(|error| unusable(&error.to_string()))?;
        disk::refuse_network(path, &folder)?;
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&folder).map_err(|error| unusable(&error.to_string()))? {
            names.push(entry.map_err(|error| unusable(&error.to_string()))?.file_name());
        }
        if !names.is_empty() && !names.iter().any(|name| name == OWNER || name == DB) {
            return Err(unusable("the folder holds other files; give one that is empty or not there"));
        }
        let identity = Identity::of(&folder).ok_or_else(|| unusable("the folder is gone"))?;
        Ok(Self { folder, identity })
    }

    pub(super) fn unusable(&self, why: &str) -> StoreError {
        disk::unusable(&self.folder, why)
    }

    fn file(&self, name: &str) -> Result<File, StoreError> {
        let mut options = OpenOptions::new();
        let opened =
            options.read(true).write(true).create(true).truncate(false).mode(0o600).open(self.folder.join(name));
        opened.map_err(|error| self.unusable(&format!("its file `{name}` cannot be opened: {error}")))
    }
}

/// The stores this process has open, is opening (`None`) or is closing (nobody holds it any more).
static CLAIMED: Mutex<Claims> = Mutex::new(BTreeMap::new());
static RELEASED: Condvar = Condvar::new();

type Claims = BTreeMap<Identity, Option<WeakStore>>;

fn claimed() -> MutexGuard<'static, Claims> {
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) enum Found {
    /// This process has it open.
    Open(SledStore),
    Free(Claim),
}

/// A folder is this process's while the claim lives.
pub(super) struct Claim(Identity);

/// Waits while this process is opening or closing the same folder.
pub(super) fn claim(place: &Place) -> Result<Found, StoreError> {
    let until = Instant::now() + CLOSING;
    let mut all = claimed();
    loop {
        match all.get(&place.identity) {
            None => break,
            Some(open) => {
                if let Some(store) = open.as_ref().and_then(WeakStore::upgrade) {
                    return Ok(Found::Open(store));
                }
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(place.unusable("this process is still closing it; try again"));
        }
        all = RELEASED.wait_timeout(all, left).map_or_else(|poisoned| poisoned.into_inner().0, |(all, _)| all);
    }
    all.insert(place.identity, None);
    Ok(Found::Free(Claim(place.identity)))
}

impl Claim {
    /// Lets further opens of this process have the same store.
    pub(super) fn publish(&self, store: WeakStore) {
        claimed().insert(self.0, Some(store));
        RELEASED.notify_all();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        claimed().remove(&self.0);
        RELEASED.notify_all();
    }
}

/// An open folder. Its fields are dropped in this order: sled first, the lock after it, the claim last.
pub(super) struct Files {
    pub(super) tree: sled::Db,
    place: Place,
    db: File,
    db_identity: Option<Identity>,
    acknowledged: File,
    _owner: File,
    claim: OnceLock<Claim>,
}

/// Locks the folder and has sled open it.
pub(super) fn open(place: Place, _claim: &Claim) -> Result<Files, StoreError> {
    let owner = own(&place)?;
    // Made here if it is not there, so that its owner alone may read it.
    let db = place.file(DB)?;
    wait_for_sled(&place)?;
    let config = sled::Config::new().path(&place.folder).flush_every_ms(None).cache_capacity(CACHE);
    let tree = shielded(|| config.open()).map_err(|fault| not_opened(&place, &fault))?;
    let db_identity = Identity::of(&place.folder.join(DB));
    let acknowledged = place.file(ACKNOWLEDGED)?;
    // What a process that died left unsynced is synced before anybody builds on it: from here on all that is there is durable.
    let synced = db.sync_data().and_then(|()| disk::sync_folder(&place.folder));
    synced.map_err(|error| place.unusable(&format!("what is in it cannot be synced: {error}")))?;
    Ok(Files { tree, place, db, db_identity, acknowledged, _owner: owner, claim: OnceLock::new() })
}

fn own(place: &Place) -> Result<File, StoreError> {
    let mut owner = place.file(OWNER)?;
    match lock(&owner) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut said = String::new();
            let who = match owner.read_to_string(&mut said).map(|_| said.trim().parse::<u32>()) {
                Ok(Ok(pid)) => format!("process {pid}"),
                _ => "another process".to_owned(),
            };
            let why = format!(
                "{who} owns it, and a sled store is for one process at a time; wait until that one has ended, or use `sqlite:PATH`, \
                 which several can share"
            );
            return Err(place.unusable(&why));
        }
        Err(TryLockError::Error(error)) => return Err(place.unusable(&format!("it cannot be locked: {error}"))),
    }
    let written = owner
        .set_len(0)
        .and_then(|()| owner.seek(SeekFrom::Start(0)))
        .and_then(|_| owner.write_all(format!("{}\n", std::process::id()).as_bytes()));
    written.map_err(|error| place.unusable(&format!("its file `{OWNER}` cannot be written: {error}")))?;
    Ok(owner)
}

/// sled's threads can hold its own lock for a moment after their store was closed. Whoever holds it longer is another program.
fn wait_for_sled(place: &Place) -> Result<(), StoreError> {
    // Its own descriptor: closing it is what unlocks it again.
    let db = place.file(DB)?;
    match lock(&db) {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            Err(place.unusable("another program has its sled database open; end that one first"))
        }
        Err(TryLockError::Error(error)) => Err(place.unusable(&format!("it cannot be locked: {error}"))),
    }
}

/// Locks the file, waiting a moment for whoever is letting go of it: a process that its dead owner was just starting has the owner's
/// descriptors until it execs (met by the crash sweep).
fn lock(file: &File) -> Result<(), TryLockError> {
    let until = Instant::now() + UNLOCKING;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
            answer => return answer,
        }
    }
}

/// Says what a person can do. sled trusts its snapshot (which pages are where, written at each open) blindly, and does not say which
/// of its files is damaged.
fn not_opened(place: &Place, fault: &Fault) -> StoreError {
    let snapshot = newest_snapshot(&place.folder);
    let why = match (fault, snapshot) {
        (Fault::Sled(sled::Error::Corruption { .. }), Some(name)) => format!(
            "sled finds it damaged, most likely in its snapshot `{name}`. Copy the folder first; then move `{name}` out of it and open \
             it again: the records are found anew from the log. If that fails too, restore a backup"
        ),
        (Fault::Sled(sled::Error::Corruption { .. }) | Fault::Panicked(_), _) => {
            format!("its log is damaged ({fault}); restore the folder from a backup")
        }
        (Fault::Sled(sled::Error::Unsupported(what)), _) => format!("this version of sled cannot read it: {what}"),
        (Fault::Sled(error), _) => error.to_string(),
    };
    place.unusable(&why)
}

fn newest_snapshot(folder: &Path) -> Option<String> {
    let entries = std::fs::read_dir(folder).ok()?;
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("snap."))
        .max()
}

impl Files {
    /// Keeps the folder this process's until all is closed.
    pub(super) fn keep(&self, claim: Claim) {
        // Set once, by the one open that made these files.
        let _ = self.claim.set(claim);
    }

    /// A pipe cannot be synced.
    #[cfg(test)]
    pub(super) fn break_sync(&mut self) {
        let (_, pipe) = std::io::pipe().unwrap();
        self.db = File::from(std::os::fd::OwnedFd::from(pipe));
    }

    pub(super) fn unusable(&self, why: &str) -> StoreError {
        self.place.unusable(why)
    }

    pub(super) fn free_bytes(&self) -> Option<u64> {
        disk::free_bytes(&self.place.folder)
    }

    /// Puts what was flushed on the disk.
    pub(super) fn sync(&self) -> Result<(), String> {
        self.db.sync_data().map_err(|error| format!("`{DB}` could not be synced: {error}"))
    }

    /// Whether the path still leads to the file that was written.
    pub(super) fn in_place(&self) -> Result<(), String> {
        let path = self.place.folder.join(DB);
        if Identity::of(&path) == self.db_identity {
            return Ok(());
        }
        Err(format!("{} was moved, replaced or removed while it was in use", path.display()))
    }

    /// The last group that surely was acknowledged; 0 when nothing says so.
    pub(super) fn acknowledged(&self) -> Result<u64, StoreError> {
        let mut said = [0; 8];
        match self.acknowledged.read_exact_at(&mut said, 0) {
            Ok(()) => Ok(u64::from_le_bytes(said)),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
            Err(error) => Err(self.unusable(&format!("its file `{ACKNOWLEDGED}` cannot be read: {error}"))),
        }
    }

    /// Notes that `group` was synced. Not synced itself: after a power cut it may name an earlier group, never a later one.
    pub(super) fn acknowledge(&self, group: u64) -> std::io::Result<()> {
        self.acknowledged.write_all_at(&group.to_le_bytes(), 0)
    }
}
