//! Where the database lives: made with the rights of one person, on a disk of this machine, and still the same files at each answer.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::super::{StoreError, disk};

/// Bytes of SQLite's smallest page.
const SMALLEST: u64 = 512;

/// The database's place, as a path that SQLite does not read anything else into (`:memory:`, `file:` and the like).
#[derive(Clone, Debug)]
pub(super) struct Place {
    path: PathBuf,
    folder: PathBuf,
}

impl Place {
    /// Makes the folders and an empty file where there is none.
    pub(super) fn prepare(path: &Path) -> Result<Self, StoreError> {
        let name = path.file_name().ok_or_else(|| disk::unusable(path, "it names no file; give the path of a file"))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        disk::make_folder(parent)
            .map_err(|error| disk::unusable(path, &format!("its folder cannot be made: {error}")))?;
        let folder = parent.canonicalize().map_err(|error| disk::unusable(path, &format!("its folder: {error}")))?;
        let place = Self { path: folder.join(name), folder };
        disk::refuse_network(path, &place.folder)?;
        place.make_file()?;
        Ok(place)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn unusable(&self, why: &str) -> StoreError {
        disk::unusable(&self.path, why)
    }

    /// The write-ahead log beside the database.
    pub(super) fn wal(&self) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push("-wal");
        PathBuf::from(name)
    }

    pub(super) fn free_bytes(&self) -> Option<u64> {
        disk::free_bytes(&self.folder)
    }

    /// No file, or one without a byte.
    fn is_bare(&self) -> bool {
        match std::fs::metadata(&self.path) {
            Ok(found) => found.is_file() && found.len() == 0,
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }

    /// Only a file that is not there is created here, and so opened: opening one that SQLite has open and closing it again would drop
    /// its locks.
    fn make_file(&self) -> Result<(), StoreError> {
        // SQLite would begin anew and drop the log. Looked at twice, since another process may be making the store right now: the first
        // page is in the file before there is a log.
        if self.is_bare() && std::fs::metadata(self.wal()).is_ok_and(|log| log.len() > 0) && self.is_bare() {
            return Err(self.unusable(&format!(
                "it is gone or empty, and its write-ahead log {} is still there; put the file back, or restore both from a backup",
                self.wal().display()
            )));
        }
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path) {
            Ok(file) => {
                let synced = file.sync_all().and_then(|()| disk::sync_folder(&self.folder));
                synced.map_err(|error| self.unusable(&format!("its folder cannot be synced: {error}")))
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => match std::fs::metadata(&self.path) {
                // SQLite takes less than a page for nothing, and would begin anew over what was somebody's store.
                Ok(found) if found.is_file() && (1..SMALLEST).contains(&found.len()) => {
                    Err(self.unusable("it is cut short, no SQLite database is so small; restore it from a backup"))
                }
                Ok(found) if found.is_file() => Ok(()),
                Ok(found) if found.is_dir() => Err(self.unusable("it is a folder; give the path of a file in it")),
                Ok(_) => Err(self.unusable("it is not a plain file")),
                Err(error) => Err(self.unusable(&error.to_string())),
            },
            Err(error) => Err(self.unusable(&format!("it cannot be created: {error}"))),
        }
    }
}
