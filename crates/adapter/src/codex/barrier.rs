//! The barriers over a rollout: an effect begins, and a paid request leaves, only once the rollout holds what explains it. The program
//! acknowledges a message before it writes it down, and writes a call down before it asks for it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentrun_kernel::{Batch, Body, Drive, Durability, Message, NativeWrite};
use async_trait::async_trait;
use serde_json::Value;

use super::history::is_rollout;
use super::index::Index;
use super::launch::{HOME_FOLDER, WRITE_STDIN};
use super::rollout::{Mend, Rollout, Sent};
use crate::calls::{self, CallBarrier};
use crate::journal::{Journal, JournalError, Tail};
use crate::seat::{RequestBarrier, Seat};
use crate::tools::ToolHost;

/// The program writes within milliseconds, a busy machine within seconds. Past this, the call is denied and the request refused.
const PATIENCE: Duration = Duration::from_secs(20);
/// A built-in may run for as long as its turn; nobody waits for it longer.
const A_DAY: Duration = Duration::from_secs(86_400);

/// The rollout of one session.
pub(super) struct RolloutBarrier {
    journal: Journal,
    drive: Drive,
    host: Arc<dyn ToolHost>,
    builtins: Vec<String>,
    now: Mutex<Now>,
}

/// What became of a message by the end of the turn it was given in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Became {
    /// The rollout lacks it.
    Lost,
    /// The rollout holds it, and the model was not asked since.
    Unheard,
    /// The model was asked on it.
    Heard,
}

/// What the barrier waits for, now.
#[derive(Default)]
struct Now {
    /// Known once the program named it; the file may come later.
    stream: Option<String>,
    /// The message of the turn that runs.
    message: Option<String>,
    /// The history that was restored shows a turn that goes on.
    in_the_middle: bool,
    /// Words that were steered into it last: their id and what they say.
    words: Option<(String, Arc<str>)>,
    /// What the rollout held when it was last looked at.
    index: Index,
}

impl RolloutBarrier {
    pub(super) fn new(seat: &Seat, builtins: &[String]) -> Self {
        Self {
            journal: seat.journal.clone(),
            drive: seat.drive.clone(),
            host: seat.tools.clone(),
            builtins: builtins.to_vec(),
            now: Mutex::default(),
        }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stream(&self) -> Option<String> {
        self.now().stream.clone()
    }

    /// The thread to take up: the one in the home in which somebody spoke, mended of what must not count. One in which nobody spoke is
    /// taken away, in the records first.
    pub(super) async fn restored(&self) -> Result<Option<String>, JournalError> {
        let mut thread = None;
        self.now().stream = None;
        for stream in streams(self.journal.home()).await {
            // What is written into it next has to follow what the records hold.
            self.journal.mirror(&[&stream], Durability::Synced).await?;
            let rollout = Rollout::read(&self.read(&stream).await?);
            if !rollout.spoken() {
                self.write(NativeWrite { stream: stream.clone(), offset: 0, bytes: Arc::from([]) }).await?;
                let path = self.journal.home().join(&stream);
                tokio::fs::remove_file(&path).await.map_err(|error| JournalError::Io { path, error })?;
                continue;
            }
            if let Some(offset) = rollout.excess_from() {
                self.write(NativeWrite { stream: stream.clone(), offset, bytes: Arc::from([]) }).await?;
            }
            thread = rollout.thread().map(str::to_owned);
            let mut now = self.now();
            now.in_the_middle = !rollout.ended();
            now.stream = Some(stream);
        }
        Ok(thread)
    }

    /// Whether the thread was taken up in the middle of a turn.
    pub(super) fn in_the_middle(&self) -> bool {
        self.now().in_the_middle
    }

    /// The program writes its thread's history there. `false`: that is no place in its own home, or not where it was.
    pub(super) fn written_to(&self, path: &Path) -> bool {
        let home = self.journal.home();
        let resolved = home.canonicalize();
        let below = path.strip_prefix(home).ok().or_else(|| path.strip_prefix(resolved.as_deref().ok()?).ok());
        let Some(stream) = below.and_then(Path::to_str).filter(|stream| is_rollout(stream)) else { return false };
        self.now().stream.get_or_insert_with(|| stream.to_owned()) == stream
    }

    fn offers(&self, tool: &str) -> bool {
        let listed = |name: &str| self.builtins.iter().any(|builtin| builtin == name);
        let with_the_shell = tool == WRITE_STDIN && listed("exec_command");
        with_the_shell || listed(tool) || self.host.specs().iter().any(|spec| spec.name == tool)
    }

    /// The turn that begins is about this message: no request is paid until the rollout holds it.
    pub(super) fn expect_message(&self, id: &str) {
        let mut now = self.now();
        now.message = Some(id.to_owned());
        now.words = None;
    }

    /// Words are steered into the turn that runs: no request that shows them is paid until the rollout holds them.
    pub(super) fn expect_words(&self, message: &Message) {
        self.now().words = Some((message.id.as_str().to_owned(), message.text.clone()));
    }

    /// Waits until the rollout holds our message of this id.
    pub(super) async fn took(&self, message: &str) -> Result<(), JournalError> {
        self.wait(|index, _| index.holds_message(message)).await.map(drop)
    }

    /// What became of a message that the program was given in this turn of its own, which is over.
    pub(super) async fn became(&self, message: &str, turn: &str) -> Result<Became, JournalError> {
        // Its lines come in order: behind the end of the turn comes no message of it.
        drop(self.wait(|index, _| index.holds_end_of(turn)).await?);
        let now = self.now();
        Ok(match now.index.holds_message(message) {
            false => Became::Lost,
            true if now.index.unheard(message) => Became::Unheard,
            true => Became::Heard,
        })
    }

    /// The call as the model made it, and how many results its id has.
    pub(super) async fn call_of(&self, call: &str) -> Result<Option<(String, Value, u32)>, JournalError> {
        let stream = self.stream().ok_or(JournalError::TimedOut(Duration::ZERO))?;
        let found = Mutex::new(None);
        let tail = self.journal.barrier(&stream, PATIENCE, |bytes| {
            let index = &mut self.now().index;
            index.follow(bytes);
            let made = index.call(bytes, call).map(|made| (made.name, made.arguments, index.results(call)));
            let seen = made.is_some();
            *found.lock().unwrap_or_else(PoisonError::into_inner) = made;
            seen
        });
        drop(tail.await?);
        Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until the rollout holds a result of the call behind the `ordinal` it had; answers its text.
    pub(super) async fn output_of(&self, call: &str, ordinal: u32) -> Result<String, JournalError> {
        let stream = self.stream().ok_or(JournalError::TimedOut(Duration::ZERO))?;
        let found = Mutex::new(None);
        let tail = self.journal.barrier(&stream, A_DAY, |bytes| {
            let index = &mut self.now().index;
            index.follow(bytes);
            let output = index.output(bytes, call, ordinal);
            let seen = output.is_some();
            *found.lock().unwrap_or_else(PoisonError::into_inner) = output;
            seen
        });
        drop(tail.await?);
        Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap_or_default())
    }

    /// Waits until the response that made the call came whole, or for the patience of a barrier: then it was cut.
    pub(super) async fn response_of(&self, call: &str) {
        // What comes of the wait is the same: the turn ends, and what is there is mirrored.
        drop(self.wait(|index, _| index.holds_response_of(call)).await);
    }

    /// Mirrors what is there.
    pub(super) async fn mirror(&self, durability: Durability) -> Result<(), JournalError> {
        match self.stream() {
            Some(stream) => self.journal.mirror(&[&stream], durability).await,
            None => Ok(()),
        }
    }

    /// Mirrors what a program left that ended in the middle, up to the first result it made up: somebody ended it, it wrote down that its
    /// calls were cancelled, and those calls may have run.
    pub(super) async fn mirror_without(&self, unanswered: &HashSet<String>) -> Result<(), JournalError> {
        self.mirror(Durability::Synced).await?;
        let Some(stream) = self.stream() else { return Ok(()) };
        match Rollout::read(&self.read(&stream).await?).made_up(unanswered) {
            Some(offset) => self.write(NativeWrite { stream, offset, bytes: Arc::from([]) }).await,
            None => Ok(()),
        }
    }

    /// Ends the turn in the rollout of a program that was killed: its calls get what was recorded for them, and the turn is over. So the
    /// next message follows a clean end, and not the program's own words on an interruption that nobody meant.
    pub(super) async fn end_turn(&self, answers: &[(String, Arc<str>)]) -> Result<(), JournalError> {
        self.mirror(Durability::Synced).await?;
        let Some(stream) = self.stream() else { return Ok(()) };
        let mut mend = Mend::new(Rollout::read(&self.read(&stream).await?));
        for (call, text) in answers {
            mend.answer(call, text);
        }
        mend.end_turn(agentrun_kernel::NOT_RUN, None);
        match mend.into_write() {
            Some((offset, bytes)) => self.write(NativeWrite { stream, offset, bytes: Arc::from(bytes) }).await,
            None => Ok(()),
        }
    }

    /// Writes into the records, then into the file.
    async fn write(&self, write: NativeWrite) -> Result<(), JournalError> {
        let path = self.journal.home().join(&write.stream);
        let (offset, bytes) = (write.offset, write.bytes.clone());
        self.drive.append(Batch::of([Body::Native(write)]), None).await?;
        let put = tokio::task::spawn_blocking({
            let path = path.clone();
            move || -> std::io::Result<()> {
                use std::io::{Seek as _, SeekFrom, Write as _};
                let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
                file.set_len(offset)?;
                file.seek(SeekFrom::Start(offset))?;
                file.write_all(&bytes)
            }
        });
        let put = put.await.unwrap_or_else(|lost| Err(std::io::Error::other(lost)));
        // Behind the cut other lines may stand now.
        self.now().index = Index::default();
        put.map_err(|error| JournalError::Io { path, error })
    }

    async fn read(&self, stream: &str) -> Result<Vec<u8>, JournalError> {
        let path = self.journal.home().join(stream);
        tokio::fs::read(&path).await.map_err(|error| JournalError::Io { path, error })
    }

    async fn wait(&self, seen: impl Fn(&Index, &[u8]) -> bool + Send) -> Result<Tail, JournalError> {
        let stream = self.stream().ok_or(JournalError::TimedOut(Duration::ZERO))?;
        let seen = |bytes: &[u8]| {
            let index = &mut self.now().index;
            index.follow(bytes);
            seen(index, bytes)
        };
        self.journal.barrier(&stream, PATIENCE, seen).await
    }
}

#[async_trait]
impl CallBarrier for RolloutBarrier {
    async fn before_call(&self, call: &str) -> Result<(Tail, u32), JournalError> {
        let ordinal = Mutex::new(0);
        let tail = self.wait(|index, _| {
            *ordinal.lock().unwrap_or_else(PoisonError::into_inner) = index.results(call);
            index.holds_call(call)
        });
        let tail = tail.await?;
        let ordinal = *ordinal.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((tail, ordinal))
    }
}

#[async_trait]
impl RequestBarrier for RolloutBarrier {
    async fn before_request(&self, body: &[u8]) -> Result<Tail, JournalError> {
        let (message, words) = {
            let now = self.now();
            (now.message.clone(), now.words.clone())
        };
        let Sent { results, calls, said } = Sent::read(body);
        // A request that was on its way before them does not show them.
        let shown = |text: &str| said.iter().filter(|said| *said == text).count();
        let words = words.map(|(id, text)| (id, shown(&text), text));
        let tail = self
            .wait(move |index, bytes| {
                let answered = results.iter().all(|id| index.results(id) > 0);
                let taken = message.as_deref().is_none_or(|id| index.holds_message(id));
                let steered = words
                    .as_ref()
                    .is_none_or(|(id, shown, text)| index.holds_message(id) || *shown <= index.taken_with(bytes, text));
                answered && taken && steered
            })
            .await?;
        // A call of a tool nobody offered reaches no one: the program answers it by itself. It shows here, before more is paid for it.
        if let Some((call, tool, arguments)) = calls.into_iter().find(|(_, tool, _)| !self.offers(tool)) {
            calls::unknown(&*self.host, &call, &tool, arguments)
                .await
                .map_err(|restart| JournalError::Drive(restart.into()))?;
            return Err(JournalError::Ended);
        }
        Ok(tail)
    }
}

/// Every rollout below the home, as stream names, sorted.
async fn streams(home: &Path) -> Vec<String> {
    let home = home.to_owned();
    let found = tokio::task::spawn_blocking(move || {
        let mut found = Vec::new();
        let mut folders = vec![home.join(HOME_FOLDER).join("sessions")];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for path in entries.flatten().map(|entry| entry.path()) {
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.extend(stream_of(&home, &path));
                }
            }
        }
        found.sort();
        found
    });
    found.await.unwrap_or_default()
}

fn stream_of(home: &Path, path: &Path) -> Option<String> {
    let stream = path.strip_prefix(home).ok()?.to_str()?;
    is_rollout(stream).then(|| stream.to_owned())
}
