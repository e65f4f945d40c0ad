//! Where the transcript is, and the barriers over it: an effect begins, and a paid request leaves, only once the transcript holds what
//! explains it. The program writes it on a timer of about 100 ms, ordered against nothing it does.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use agentrun_kernel::{Batch, Body, Drive, Durability, NativeWrite};
use async_trait::async_trait;

use super::history::session_of;
use super::launch::CONFIG_FOLDER;
use super::transcript::{Transcript, holds_call, holds_message, holds_results, results_of, results_sent};
use crate::calls::CallBarrier;
use crate::journal::{Journal, JournalError, Tail};
use crate::seat::RequestBarrier;

/// Its own timer takes 100 ms, a busy machine some seconds. Past this, the call is denied and the request refused.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often the folders are looked at for a transcript that does not exist yet.
const LOOK: Duration = Duration::from_millis(5);

/// The transcript of one session.
pub(super) struct TranscriptBarrier {
    journal: Journal,
    session: String,
    /// Known once the file exists: the program derives its folder's name from the workspace's.
    stream: OnceLock<String>,
    /// The message of the turn that runs.
    message: Mutex<Option<String>>,
}

impl TranscriptBarrier {
    /// The transcript in the journal's home, if the session has one there; else the one that `fresh` will get.
    ///
    /// The second part of the answer says whether it was there.
    pub(super) async fn find_or(journal: Journal, fresh: impl FnOnce() -> String) -> (Arc<Self>, bool) {
        let there = streams(journal.home()).await.into_iter().next();
        let found = there.is_some();
        let session = there.as_deref().and_then(session_of).map_or_else(fresh, str::to_owned);
        let stream = there.map_or_else(OnceLock::new, OnceLock::from);
        (Arc::new(Self { journal, session, stream, message: Mutex::new(None) }), found)
    }

    /// The program's id of the session.
    pub(super) fn session(&self) -> &str {
        &self.session
    }

    /// The turn that runs is about this message now: no request is paid until the transcript holds it. What came before it stands there.
    pub(super) fn expect_message(&self, id: &str) {
        *self.message.lock().unwrap_or_else(PoisonError::into_inner) = Some(id.to_owned());
    }

    /// Waits until the records show that the program took this message: what they hold of the transcript grows with each call and request.
    /// Cancel safe.
    pub(super) async fn took(&self, drive: &Drive, id: &str) {
        let mut recorded = 0;
        loop {
            if let Some(stream) = self.stream().await {
                let length = drive.with_state(|state| state.native_length(stream));
                if length > recorded {
                    recorded = length;
                    let bytes = tokio::fs::read(self.journal.home().join(stream)).await.unwrap_or_default();
                    let length = usize::try_from(length).unwrap_or(usize::MAX);
                    if holds_message(bytes.get(..length).unwrap_or(&bytes), id) {
                        return;
                    }
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Mirrors what is there.
    pub(super) async fn mirror(&self, durability: Durability) -> Result<(), JournalError> {
        match self.stream().await {
            Some(stream) => self.journal.mirror(&[stream], durability).await,
            None => Ok(()),
        }
    }

    /// Cuts an end from which the program takes up nothing off the transcript, in the records first: then the turn can be taken up.
    pub(super) async fn cut_what_is_not_taken_up(&self, drive: &Drive) -> Result<(), JournalError> {
        let Some(stream) = self.stream().await else { return Ok(()) };
        let path = self.journal.home().join(stream);
        let io = |error| JournalError::Io { path: path.clone(), error };
        let bytes = tokio::fs::read(&path).await.map_err(io)?;
        let Some(offset) = Transcript::read(&bytes).not_taken_up() else { return Ok(()) };
        let cut = NativeWrite { stream: stream.to_owned(), offset, bytes: Arc::from([]) };
        drive.append(Batch::of([Body::Native(cut)]), None).await?;
        let file = tokio::fs::OpenOptions::new().write(true).open(&path).await.map_err(io)?;
        file.set_len(offset).await.map_err(io)
    }

    /// Whether there is a transcript.
    pub(super) async fn exists(&self) -> bool {
        self.stream().await.is_some()
    }

    async fn wait(&self, seen: impl Fn(&[u8]) -> bool + Send) -> Result<Tail, JournalError> {
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                if let Some(stream) = self.stream().await {
                    return stream;
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        let stream = found.await.map_err(|_| JournalError::TimedOut(PATIENCE))?;
        // What is not a whole line yet is not mirrored, so it explains nothing.
        self.journal.barrier(stream, PATIENCE, |bytes| seen(whole_lines(bytes))).await
    }

    async fn stream(&self) -> Option<&str> {
        if self.stream.get().is_none() {
            let ours = |stream: &String| session_of(stream) == Some(&self.session);
            let found = streams(self.journal.home()).await.into_iter().find(ours)?;
            // Lost a race against another barrier that found the same file.
            let _ = self.stream.set(found);
        }
        self.stream.get().map(String::as_str)
    }
}

#[async_trait]
impl CallBarrier for TranscriptBarrier {
    async fn before_call(&self, call: &str) -> Result<(Tail, u32), JournalError> {
        let ordinal = Mutex::new(0);
        let seen = |bytes: &[u8]| {
            let holds = holds_call(bytes, call);
            if holds {
                *ordinal.lock().unwrap_or_else(PoisonError::into_inner) = results_of(bytes, call);
            }
            holds
        };
        let tail = self.wait(seen).await?;
        let ordinal = *ordinal.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((tail, ordinal))
    }
}

#[async_trait]
impl RequestBarrier for TranscriptBarrier {
    async fn before_request(&self, body: &[u8]) -> Result<Tail, JournalError> {
        let message = self.message.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let results = results_sent(body);
        self.wait(move |bytes| {
            message.as_deref().is_none_or(|id| holds_message(bytes, id)) && holds_results(bytes, &results)
        })
        .await
    }
}

fn whole_lines(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place.saturating_add(1));
    bytes.get(..end).unwrap_or_default()
}

/// Every transcript below the home, as stream names, sorted.
async fn streams(home: &Path) -> Vec<String> {
    let projects = Path::new(CONFIG_FOLDER).join("projects");
    let mut streams = Vec::new();
    for folder in names(&home.join(&projects)).await {
        for file in names(&home.join(&projects).join(&folder)).await {
            let stream = format!("{CONFIG_FOLDER}/projects/{folder}/{file}");
            if session_of(&stream).is_some() {
                streams.push(stream);
            }
        }
    }
    streams.sort();
    streams
}

async fn names(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let Ok(mut entries) = tokio::fs::read_dir(folder).await else { return names };
    while let Ok(Some(entry)) = entries.next_entry().await {
        names.extend(entry.file_name().into_string());
    }
    names
}
