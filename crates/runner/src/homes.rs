//! Private homes: one folder an epoch for the harness's home and temporary files. Made new, never started on leftovers; those of older
//! epochs go first, so a crash leaves nothing for long.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use agentrun_adapter::Dirs;
use agentrun_kernel::{Digest, Epoch, SessionKey};

/// The folders of one epoch, removed when dropped.
#[derive(Debug)]
pub(crate) struct Home {
    root: PathBuf,
    dirs: Dirs,
}

impl Home {
    /// Makes the folders of `epoch` under `homes`, readable by this user alone, and removes what older epochs left.
    pub(crate) fn make(
        homes: &Path,
        store: &str,
        key: &SessionKey,
        epoch: Epoch,
        workspace: &Path,
    ) -> io::Result<Self> {
        let session = homes.join(short_name(store, key));
        let root = session.join(epoch.to_string());
        if session.exists() {
            for entry in std::fs::read_dir(&session)? {
                let entry = entry?;
                let older = entry
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse::<u64>().ok())
                    .is_none_or(|left| left <= epoch.0);
                if older {
                    std::fs::remove_dir_all(entry.path())?;
                }
            }
        }
        let dirs = Dirs { home: root.join("home"), tmp: root.join("tmp"), workspace: workspace.to_owned() };
        private(homes)?;
        // From the top: asked for the lowest alone, each folder above it is first tried in vain.
        for dir in [&session, &root, &dirs.home, &dirs.tmp] {
            made(dir)?;
        }
        Ok(Self { root, dirs })
    }

    pub(crate) const fn dirs(&self) -> &Dirs {
        &self.dirs
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // What cannot be removed now is removed at the session's next open.
        let _ = std::fs::remove_dir_all(&self.root);
        if let Some(session) = self.root.parent() {
            let _ = std::fs::remove_dir(session);
        }
    }
}

/// A session's name among the homes. Short: programs put sockets there, and a socket's path has 108 bytes at most.
pub(crate) fn short_name(store: &str, key: &SessionKey) -> String {
    Digest::of(format!("{store}\n{key}").as_bytes()).as_str().chars().take(12).collect()
}

/// Makes `dir` in a folder that is there, for this user alone.
fn made(dir: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        made => made,
    }
}

pub(crate) fn private(dir: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}
