//! Where the database lives: made with the rights of one person, on a disk of this machine, and still the same files at each answer.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::super::StoreError;

/// The database's place, as a path that SQLite does not read anything else into (`:memory:`, `file:` and the like).
#[derive(Clone, Debug)]
pub(super) struct Place {
    path: PathBuf,
    folder: PathBuf,
}

/// Which file a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Place {
    /// Makes the folders and an empty file where there is none.
    pub(super) fn prepare(path: &Path) -> Result<Self, StoreError> {
        let name = path.file_name().ok_or_else(|| unusable(path, "it names no file; give the path of a file"))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        make_folder(parent).map_err(|error| unusable(path, &format!("its folder cannot be made: {error}")))?;
        let folder = parent.canonicalize().map_err(|error| unusable(path, &format!("its folder: {error}")))?;
        let place = Self { path: folder.join(name), folder };
        place.refuse_network()?;
        place.make_file()?;
        Ok(place)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn unusable(&self, why: &str) -> StoreError {
        unusable(&self.path, why)
    }

    /// The write-ahead log beside the database.
    pub(super) fn wal(&self) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push("-wal");
        PathBuf::from(name)
    }

    pub(super) fn free_bytes(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(&self.folder).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Only a file that is not there is created here, and so opened: opening one that SQLite has open and closing it again would drop
    /// its locks.
    fn make_file(&self) -> Result<(), StoreError> {
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path) {
            Ok(file) => {
                let synced = file.sync_all().and_then(|()| sync_folder(&self.folder));
                synced.map_err(|error| self.unusable(&format!("its folder cannot be synced: {error}")))
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => match std::fs::metadata(&self.path) {
                Ok(found) if found.is_file() => Ok(()),
                Ok(found) if found.is_dir() => Err(self.unusable("it is a folder; give the path of a file in it")),
                Ok(_) => Err(self.unusable("it is not a plain file")),
                Err(error) => Err(self.unusable(&error.to_string())),
            },
            Err(error) => Err(self.unusable(&format!("it cannot be created: {error}"))),
        }
    }

    #[cfg(target_os = "linux")]
    fn refuse_network(&self) -> Result<(), StoreError> {
        let disk = rustix::fs::statfs(&self.folder).map_err(|error| self.unusable(&error.to_string()))?;
        match network_name(disk.f_type as u64 & 0xFFFF_FFFF) {
            Some(name) => {
                let why = format!(
                    "it is on a network file system ({name}), whose locks and shared memory cannot keep two writers apart; put the \
                     store on a local disk"
                );
                Err(self.unusable(&why))
            }
            None => Ok(()),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn refuse_network(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Identity {
    /// `None` when nothing is there. Looks, never opens.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        Some(Self { device: found.dev(), inode: found.ino() })
    }
}

/// File systems by the magic numbers of `statfs(2)`.
#[cfg(target_os = "linux")]
const fn network_name(magic: u64) -> Option<&'static str> {
    match magic {
        0x6969 => Some("NFS"),
        0x517B | 0xFF53_4D42 | 0xFE53_4D42 => Some("SMB"),
        0x0102_1997 => Some("9P"),
        0x00C3_6400 => Some("Ceph"),
        0x5346_414F | 0x6B41_4653 => Some("AFS"),
        0x7375_7245 => Some("Coda"),
        0x564C => Some("NCP"),
        0x0BD0_0BD0 => Some("Lustre"),
        _ => None,
    }
}

fn unusable(path: &Path, why: &str) -> StoreError {
    StoreError::Unusable { place: path.display().to_string(), why: why.to_owned() }
}

/// Each new folder's name is synced in its parent: a power cut must not take the folder from under a synced store.
fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        make_folder(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => sync_folder(parent.unwrap_or_else(|| Path::new("."))),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn f16_network_file_systems_are_known_by_their_magic() {
        assert_eq!(network_name(0x6969), Some("NFS"));
        assert_eq!(network_name(0xFF53_4D42), Some("SMB"));
        assert_eq!(network_name(0xEF53), None, "ext4");
        assert_eq!(network_name(0x0102_1994), None, "tmpfs");
    }
}
