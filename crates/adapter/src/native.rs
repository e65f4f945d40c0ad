//! The harness's own history as the session keeps it: streams of bytes, mirrored into records, restored into any home. Survey and repair
//! are pure over it, so no program is needed to know what a harness had taken.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use agentrun_kernel::{Body, NativeWrite, Record, Repair, Survey};

/// How one kind of harness's history is read and made to agree with the records.
pub trait NativeHistory: Send + Sync {
    /// What the history says: what was taken, which calls are open, whether it can be gone on from. Pure.
    ///
    /// # Errors
    /// [`HistoryError`] names the stream; nothing is guessed.
    fn survey(&self, files: &dyn NativeFiles) -> Result<Survey, HistoryError>;

    /// The writes that make the history say what `want` asks. Pure and idempotent: asked again on the repaired files it answers none.
    /// `response` gives the recorded bytes of a paid response by its provider id.
    ///
    /// # Errors
    /// [`HistoryError`] when the history cannot be brought there.
    fn repair(
        &self,
        files: &dyn NativeFiles,
        want: &[Repair],
        response: &dyn Fn(&str) -> Option<Arc<[u8]>>,
    ) -> Result<Vec<NativeWrite>, HistoryError>;

    /// The words with which the model ended the newest turn, for a reader. `None`: it ended without, or the history does not keep them.
    /// Pure.
    ///
    /// # Errors
    /// [`HistoryError`] names the stream.
    fn last_words(&self, _files: &dyn NativeFiles) -> Result<Option<String>, HistoryError> {
        Ok(None)
    }
}

/// Streams of native bytes, by name.
pub trait NativeFiles: Send + Sync {
    /// Names, sorted.
    fn streams(&self) -> Vec<String>;
    /// A stream's bytes; `None` for an unknown one.
    fn bytes(&self, stream: &str) -> Option<Arc<[u8]>>;
}

/// Why a history cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// A stream that is not what this harness writes.
    #[error("the native history's stream `{stream}` cannot be read: {what}")]
    Unreadable {
        /// Which.
        stream: String,
        /// What is wrong with it.
        what: String,
    },
    /// A repair it has no place for.
    #[error("the native history cannot be repaired: {0}")]
    Unrepairable(String),
    /// A file of the home.
    #[error("{path}: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// What happened.
        error: io::Error,
    },
    /// A stream name that would leave the home.
    #[error("the native stream name `{0}` is not a plain relative path; refusing to write it")]
    BadName(String),
}

/// The history as the session's records hold it.
#[derive(Clone, Debug, Default)]
pub struct RecordedFiles {
    streams: BTreeMap<String, Arc<Vec<u8>>>,
}

impl RecordedFiles {
    /// The history after `records`.
    #[must_use]
    pub fn fold<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut files = Self::default();
        for record in records {
            if let Body::Native(write) = &record.body {
                files.apply(write);
            }
        }
        files
    }

    /// One more write: the stream is cut at its offset, then its bytes follow.
    pub fn apply(&mut self, write: &NativeWrite) {
        let bytes = Arc::make_mut(self.streams.entry(write.stream.clone()).or_default());
        bytes.truncate(usize::try_from(write.offset).unwrap_or(usize::MAX));
        bytes.extend_from_slice(&write.bytes);
    }

    /// Writes every stream under `home`, whose leftovers are not read: a home is made new for each epoch.
    ///
    /// # Errors
    /// [`HistoryError::Io`] with the path, or [`HistoryError::BadName`] for a name that would leave the home.
    pub fn restore(&self, home: &Path) -> Result<(), HistoryError> {
        for (stream, bytes) in &self.streams {
            let path = home.join(plain(stream)?);
            let io = |error| HistoryError::Io { path: path.clone(), error };
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).map_err(io)?;
            }
            std::fs::write(&path, bytes.as_slice()).map_err(io)?;
        }
        Ok(())
    }
}

impl NativeFiles for RecordedFiles {
    fn streams(&self) -> Vec<String> {
        self.streams.keys().cloned().collect()
    }

    fn bytes(&self, stream: &str) -> Option<Arc<[u8]>> {
        self.streams.get(stream).map(|bytes| Arc::from(bytes.as_slice()))
    }
}

/// The name as a path below a home: no root, no `..`. Records can come from an imported file.
pub(crate) fn plain(stream: &str) -> Result<&Path, HistoryError> {
    let path = Path::new(stream);
    let fits = !stream.is_empty() && path.components().all(|part| matches!(part, Component::Normal(_)));
    if fits { Ok(path) } else { Err(HistoryError::BadName(stream.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(stream: &str, offset: u64, bytes: &[u8]) -> NativeWrite {
        NativeWrite { stream: stream.to_owned(), offset, bytes: Arc::from(bytes) }
    }

    #[test]
    fn b66_a_write_cuts_at_its_offset_so_append_trim_and_replace_are_one_record() {
        let mut files = RecordedFiles::default();
        files.apply(&write("a", 0, b"one\n"));
        files.apply(&write("a", 4, b"two\n"));
        files.apply(&write("a", 4, b"TWO"));
        assert_eq!(files.bytes("a").as_deref(), Some(&b"one\nTWO"[..]));
        files.apply(&write("a", 3, b""));
        assert_eq!(files.bytes("a").as_deref(), Some(&b"one"[..]));
    }

    #[test]
    fn a_stream_whose_name_would_leave_the_home_is_not_restored() {
        let home = tempfile::tempdir().unwrap();
        for name in ["../x", "/etc/x", "a/../../x", ""] {
            let mut files = RecordedFiles::default();
            files.apply(&write(name, 0, b"x"));
            assert!(matches!(files.restore(home.path()), Err(HistoryError::BadName(_))), "{name}");
        }
    }
}
