//! Mirrors what the harness writes into the session's records, and is the barrier behind which effects begin: first the harness's own
//! history holds the call (or the prompt), then `[native tail, intent]` is one synced batch, then it runs.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agentrun_kernel::{Batch, Body, Drive, DriveError, Durability, NativeWrite};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::native::{HistoryError, plain};

/// How often a file is looked at while a barrier waits. The harness writes on a timer of its own of about 100 ms.
const LOOK: Duration = Duration::from_millis(5);
/// Most bytes that are read without a step off the runtime.
const AT_ONCE: u64 = 64 * 1024;
/// Most bytes of one write: a record has a bound, and what a harness writes between two looks has none.
const WRITE: usize = 4 * 1024 * 1024;

/// Follows the harness's files under its private home.
#[derive(Clone, Debug)]
pub struct Journal {
    drive: Drive,
    home: Arc<Path>,
    /// Held from reading a tail until the batch that holds it is appended: two tails read at once would cut each other's bytes.
    order: Arc<Mutex<()>>,
}

/// What the harness wrote since the last mirrored byte, to go into one batch with the effect it explains. While it lives no other tail is
/// read, so it is handed on, not kept.
#[derive(Debug)]
#[must_use]
pub struct Tail {
    writes: Vec<NativeWrite>,
    _order: Option<OwnedMutexGuard<()>>,
}

impl Tail {
    /// Nothing to mirror: for harnesses without files.
    pub const fn none() -> Self {
        Self { writes: Vec::new(), _order: None }
    }

    /// The records to put before the effect's intent.
    #[must_use]
    pub fn bodies(&self) -> Vec<Body> {
        self.writes.iter().cloned().map(Body::Native).collect()
    }
}

/// Why a barrier or a mirror failed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The harness's history did not show it in time: the call is denied, the request refused.
    #[error("the harness's history did not show it within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The session ends: nothing more is asked in it.
    #[error("the session ends before this request")]
    Ended,
    /// A file could not be read.
    #[error("{path}: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// What happened.
        error: io::Error,
    },
    /// A stream name that would leave the home.
    #[error(transparent)]
    Name(#[from] HistoryError),
    /// The append failed.
    #[error(transparent)]
    Drive(#[from] DriveError),
}

impl Journal {
    /// A journal of the files under `home`.
    #[must_use]
    pub fn new(drive: Drive, home: &Path) -> Self {
        Self { drive, home: Arc::from(home), order: Arc::new(Mutex::new(())) }
    }

    /// The private home.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Waits until `seen` says yes to the whole of `stream`, then answers what is not mirrored of it yet. Cancel safe.
    ///
    /// # Errors
    /// [`JournalError::TimedOut`] after `deadline`: nothing was recorded, nothing may run.
    pub async fn barrier(
        &self,
        stream: &str,
        deadline: Duration,
        seen: impl Fn(&[u8]) -> bool,
    ) -> Result<Tail, JournalError> {
        let path = self.home.join(plain(stream)?);
        let waited = tokio::time::timeout(deadline, async {
            let mut length = None;
            loop {
                // Read again only when it grew: a transcript can have tens of megabytes.
                let now = file_length(&path).await?;
                if now != length {
                    length = now;
                    if seen(&read_from(&path, 0).await?) {
                        return Ok::<(), JournalError>(());
                    }
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        waited.await.map_err(|_| JournalError::TimedOut(deadline))??;
        self.tail(&[stream]).await
    }

    /// What is not mirrored yet of these streams, up to the last whole line: a half-written line is the harness's to finish.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub async fn tail(&self, streams: &[&str]) -> Result<Tail, JournalError> {
        let order = self.order.clone().lock_owned().await;
        let mut writes = Vec::new();
        for stream in streams {
            let path = self.home.join(plain(stream)?);
            let offset = self.drive.with_state(|state| state.native_length(stream));
            let mut bytes = read_from(&path, offset).await?;
            let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place.saturating_add(1));
            bytes.truncate(whole);
            let mut at = offset;
            for piece in bytes.chunks(WRITE) {
                writes.push(NativeWrite { stream: (*stream).to_owned(), offset: at, bytes: Arc::from(piece) });
                at = at.saturating_add(piece.len() as u64);
            }
        }
        Ok(Tail { writes, _order: Some(order) })
    }

    /// Mirrors what is there, buffered: it survives this process, and is durable with the next synced batch.
    ///
    /// # Errors
    /// [`JournalError`].
    pub async fn mirror(&self, streams: &[&str], durability: Durability) -> Result<(), JournalError> {
        let tail = self.tail(streams).await?;
        let bodies = tail.bodies();
        if !bodies.is_empty() {
            self.drive.append(Batch { bodies, durability }, None).await?;
        }
        Ok(())
    }
}

async fn file_length(path: &Path) -> Result<Option<u64>, JournalError> {
    match tokio::fs::metadata(path).await {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(JournalError::Io { path: path.to_owned(), error }),
    }
}

async fn read_from(path: &Path, offset: u64) -> Result<Vec<u8>, JournalError> {
    let read = move |mut file: File| -> io::Result<Vec<u8>> {
        file.seek(io::SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let read = match opened {
        // What a harness wrote a moment ago is in the system's memory: a step off the runtime would take longer than reading it.
        Ok((length, file)) if length.saturating_sub(offset) <= AT_ONCE => read(file),
        Ok((_, file)) => {
            tokio::task::spawn_blocking(move || read(file)).await.unwrap_or_else(|lost| Err(io::Error::other(lost)))
        }
        Err(error) => Err(error),
    };
    match read {
        Ok(bytes) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(JournalError::Io { path: path.to_owned(), error }),
    }
}
