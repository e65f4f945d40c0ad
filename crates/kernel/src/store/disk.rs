//! What every store on a disk asks of its place: folders and files of one person's rights, a disk of this machine, and names that
//! survive a power cut.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use super::StoreError;

/// Which file a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// `None` when nothing is there. Looks, never opens.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        Some(Self { device: found.dev(), inode: found.ino() })
    }
}

pub(super) fn unusable(place: &Path, why: &str) -> StoreError {
    StoreError::Unusable { place: place.display().to_string(), why: why.to_owned() }
}

/// Bytes free for us on the disk `folder` is on.
pub(super) fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Makes `folder` and those above it. Each new one's name is synced in its parent: a power cut must not take the folder from under a
/// synced store.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
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

pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Refuses a store at `place` whose `folder` other machines, or a program of ours in between, may serve.
#[cfg(target_os = "linux")]
pub(super) fn refuse_network(place: &Path, folder: &Path) -> Result<(), StoreError> {
    let disk = rustix::fs::statfs(folder).map_err(|error| unusable(place, &error.to_string()))?;
    match network_name(disk.f_type as u64 & 0xFFFF_FFFF) {
        Some(name) => {
            let why = format!(
                "it is on a network file system ({name}), whose locks and shared memory cannot keep two writers apart; put the store on \
                 a local disk"
            );
            Err(unusable(place, &why))
        }
        None => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn refuse_network(_place: &Path, _folder: &Path) -> Result<(), StoreError> {
    Ok(())
}

/// File systems by the magic numbers of `statfs(2)`. FUSE is among them: what serves it (sshfs, an object store, a sync client) promises
/// neither locks between machines nor that a sync reaches a disk, and nothing tells one server from another.
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
        0x6573_5546 => Some("FUSE"),
        0x0116_1970 => Some("GFS2"),
        0x7461_636F => Some("OCFS2"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    #[test]
    fn f16_network_file_systems_are_known_by_their_magic() {
        use super::network_name;
        assert_eq!(network_name(0x6969), Some("NFS"));
        assert_eq!(network_name(0xFF53_4D42), Some("SMB"));
        assert_eq!(network_name(0x6573_5546), Some("FUSE"));
        assert_eq!(network_name(0xEF53), None, "ext4");
        assert_eq!(network_name(0x0102_1994), None, "tmpfs");
    }
}
