//! Follows the session's event log while the program writes it, and is the barrier behind which effects begin: an effect begins, and a
//! paid request leaves, only once the log holds what explains it and that part of the log is on its way into the records.
//!
//! The log is read over the program's API into a file of the private home; from there the journal takes it. The program commits an event
//! and its rows at once and asks its model only with what is committed, so a barrier is nearly always one read.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentrun_kernel::Durability;
use serde_json::Value;
use tokio::sync::MutexGuard;

use super::api::{Api, ApiError};
use super::json::{at, set};
use super::timeline::{Line, STREAM, Timeline};
use crate::journal::{Journal, JournalError, Tail};
use crate::native::HistoryError;

/// A read takes 20 ms, on a busy machine a second. Past this, the call is denied and the request refused.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often the log is read while something in it is waited for.
const LOOK: Duration = Duration::from_millis(15);
/// Most events of one replay request, and most bytes of it unless one event alone has more: the program reads a request whole.
const REPLAYED_AT_ONCE: usize = 200;
const REPLAYED_BYTES: usize = 4 * 1024 * 1024;

/// The log of one session.
pub(super) struct Mirror {
    journal: Journal,
    file: PathBuf,
    /// Held over a read and what is made of it: two reads at once would write the same events twice.
    timeline: tokio::sync::Mutex<Timeline>,
    server: Mutex<Option<Api>>,
    /// The program's id of the message of the turn that runs.
    message: Mutex<Option<String>>,
}

/// A call as the log has it.
#[derive(Debug)]
pub(super) struct SeenCall {
    /// The program's id of the message it stands in.
    pub(super) message: String,
    pub(super) tool: String,
    pub(super) arguments: Value,
    /// How many results its id already has.
    pub(super) ordinal: u32,
    pub(super) tail: Tail,
}

impl Mirror {
    /// The log as it was restored into the journal's home.
    pub(super) fn open(journal: Journal) -> Result<Arc<Self>, HistoryError> {
        let file = journal.home().join(STREAM);
        let bytes = match std::fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(HistoryError::Io { path: file, error }),
        };
        let timeline = tokio::sync::Mutex::new(Timeline::read(&bytes)?);
        Ok(Arc::new(Self { journal, file, timeline, server: Mutex::default(), message: Mutex::default() }))
    }

    /// The program's id of the session, once it has one.
    pub(super) async fn session(&self) -> Option<String> {
        self.timeline.lock().await.session.clone()
    }

    /// Puts the log into a program that was just started, and follows it there.
    pub(super) async fn attach(&self, server: &Api, directory: &str) -> Result<(), ApiError> {
        let project = server.project().await?;
        let bytes = std::fs::read(&self.file).unwrap_or_default();
        let (mut events, mut size) = (Vec::new(), 0_usize);
        for line in bytes.split(|byte| *byte == b'\n') {
            let Ok(Line::Event(mut event)) = serde_json::from_slice(line) else { continue };
            // Where it is now, not where it was: on another machine, or with another history of the work tree, it is another project.
            if let Some(info) = event.data.get_mut("info").filter(|info| info.get("projectID").is_some()) {
                set(info, "projectID", project.as_str().into());
                set(info, "directory", directory.into());
            }
            let full = events.len() >= REPLAYED_AT_ONCE || size.saturating_add(line.len()) > REPLAYED_BYTES;
            if full && !events.is_empty() {
                server.replay(directory, &std::mem::take(&mut events)).await?;
                size = 0;
            }
            size = size.saturating_add(line.len());
            events.push(event);
        }
        if !events.is_empty() {
            server.replay(directory, &events).await?;
        }
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server.clone());
        Ok(())
    }

    /// A session of this id was made: its log is followed from its beginning.
    pub(super) async fn follow(&self, session: String) {
        self.timeline.lock().await.session = Some(session);
    }

    /// The program is gone: there is nothing more to read.
    pub(super) fn detach(&self) {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// The turn that begins is about this message: no request is paid until the log holds it.
    pub(super) fn expect_message(&self, id: &str) {
        *self.message.lock().unwrap_or_else(PoisonError::into_inner) = Some(id.to_owned());
    }

    /// What was read of the log so far.
    pub(super) async fn known<T>(&self, look: impl FnOnce(&Timeline) -> T) -> T {
        look(&*self.timeline.lock().await)
    }

    /// What the log says now.
    pub(super) async fn now<T>(&self, look: impl FnOnce(&Timeline) -> T) -> Result<T, JournalError> {
        self.read().await.map(|timeline| look(&timeline))
    }

    /// Waits until the log holds the call; answers what explains it.
    pub(super) async fn before_call(&self, message: &str, call: &str) -> Result<SeenCall, JournalError> {
        self.before(call, |row, _| row == message).await
    }

    /// The same for a built-in's call, of which the program does not say in which message it stands: the newest that is not taken.
    pub(super) async fn before_builtin(
        &self,
        call: &str,
        taken: impl Fn(&(String, String)) -> bool,
    ) -> Result<SeenCall, JournalError> {
        self.before(call, |row, call| !taken(&(row.to_owned(), call.to_owned()))).await
    }

    async fn before(&self, id: &str, is: impl Fn(&str, &str) -> bool) -> Result<SeenCall, JournalError> {
        let seen = |timeline: &Timeline| {
            let running =
                timeline.calls().filter(|(row, it)| it.id == id && it.status() == "running" && is(&row.id, id));
            let (row, call) = running.last()?;
            Some((row.id.clone(), call.tool.to_owned(), call.arguments().clone(), timeline.results(id)))
        };
        let ((message, tool, arguments, ordinal), tail) = self.wait(seen).await?;
        Ok(SeenCall { message, tool, arguments, ordinal, tail })
    }

    /// Waits until the log holds the turn's message and every result the request has; answers what is not mirrored of it.
    pub(super) async fn before_request(&self, body: &[u8]) -> Result<Tail, JournalError> {
        let message = self.expected();
        let sent = results_sent(body);
        let held = |timeline: &Timeline| {
            let taken = message.as_deref().is_none_or(|id| timeline.row(id).is_some_and(|row| row.ours().is_some()));
            // A call without a result is sent as one that was interrupted, so it is enough that the log has as many.
            let calls = |id: &str| timeline.calls().filter(|(_, call)| call.id == id).count();
            (taken && sent.iter().all(|(id, count)| calls(id) >= *count)).then_some(())
        };
        self.wait(held).await.map(|((), tail)| tail)
    }

    /// The program's id of the message of the turn that runs.
    pub(super) fn expected(&self) -> Option<String> {
        self.message.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Mirrors what is there.
    pub(super) async fn mirror(&self, durability: Durability) -> Result<(), JournalError> {
        let read = self.read().await.map(drop);
        // What was read before is mirrored though the program may answer no more.
        self.keep(durability).await?;
        read
    }

    /// Mirrors what was read.
    pub(super) async fn keep(&self, durability: Durability) -> Result<(), JournalError> {
        self.journal.mirror(&[STREAM], durability).await
    }

    /// Adds a line of our own.
    pub(super) async fn note(&self, line: Line) -> Result<(), JournalError> {
        let mut timeline = self.timeline.lock().await;
        self.add(&mut timeline, vec![line])
    }

    async fn wait<T>(&self, seen: impl Fn(&Timeline) -> Option<T>) -> Result<(T, Tail), JournalError> {
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                if let Some(seen) = seen(&*self.read().await?) {
                    return Ok::<T, JournalError>(seen);
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        let seen = waited.await.map_err(|_| JournalError::TimedOut(PATIENCE))??;
        Ok((seen, self.journal.tail(&[STREAM]).await?))
    }

    /// Reads what is new.
    async fn read(&self) -> Result<MutexGuard<'_, Timeline>, JournalError> {
        let mut timeline = self.timeline.lock().await;
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (Some(server), Some(session)) = (server, timeline.session.clone()) else { return Ok(timeline) };
        let events = server.events(&session, timeline.next).await.map_err(|error| self.io(io::Error::other(error)))?;
        self.add(&mut timeline, events.into_iter().map(Line::Event).collect())?;
        Ok(timeline)
    }

    /// Writes lines behind the others. Nothing is awaited in here, so a dropped caller leaves file and timeline agreed.
    fn add(&self, timeline: &mut Timeline, lines: Vec<Line>) -> Result<(), JournalError> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        for line in &lines {
            serde_json::to_writer(&mut bytes, line).map_err(|error| self.io(error.into()))?;
            bytes.push(b'\n');
        }
        if let Some(folder) = self.file.parent() {
            std::fs::create_dir_all(folder).map_err(|error| self.io(error))?;
        }
        let file = std::fs::OpenOptions::new().append(true).create(true).open(&self.file);
        file.and_then(|mut file| file.write_all(&bytes)).map_err(|error| self.io(error))?;
        for line in lines {
            timeline.take(line).map_err(|what| self.io(io::Error::other(what)))?;
        }
        timeline.end = timeline.end.saturating_add(bytes.len() as u64);
        Ok(())
    }

    fn io(&self, error: io::Error) -> JournalError {
        JournalError::Io { path: self.file.clone(), error }
    }
}

/// How many results a request holds for each call, in either API's form.
fn results_sent(body: &[u8]) -> BTreeMap<String, usize> {
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut sent = BTreeMap::new();
    for message in at(&request, "/messages").as_array().into_iter().flatten() {
        let blocks = at(message, "/content")
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|block| at(block, "/tool_use_id").as_str());
        for id in at(message, "/tool_call_id").as_str().into_iter().chain(blocks) {
            *sent.entry(id.to_owned()).or_insert(0) += 1;
        }
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f09_results_are_counted_in_both_forms_of_a_request() {
        let chat = br#"{"messages":[{"role":"tool","tool_call_id":"a","content":"x"},{"role":"user","content":"u"}]}"#;
        assert_eq!(results_sent(chat), BTreeMap::from([("a".to_owned(), 1)]));
        let blocks = br#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"},
            {"type":"tool_result","tool_use_id":"a"},{"type":"text","text":"t"}]}]}"#;
        assert_eq!(results_sent(blocks), BTreeMap::from([("a".to_owned(), 2)]));
        assert!(results_sent(b"no json").is_empty());
    }
}
