//! What the parent of a case was told, over loopback: its own count of all that happened, resting on no record.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agentrun_kernel::OutcomeEnd;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Fault;

/// One message of what a model was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) model: bool,
    pub(super) text: String,
}

/// What an op of an owner came to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Told {
    pub(super) owner: String,
    pub(super) result: Came,
}

/// What an op came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Came {
    /// `run`, `settle`, or the name of a follow-up.
    pub(super) op: String,
    /// The node's value.
    pub(super) value: Value,
    /// How a follow-up ended.
    pub(super) end: Option<OutcomeEnd>,
    /// Its text, or an error's.
    pub(super) text: String,
    /// The word of an op without a result.
    pub(super) error: Option<String>,
    /// Nothing was run for it.
    pub(super) from_records: bool,
}

/// Everything told so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counts {
    /// Effect keys of the runs of each tool.
    pub(super) tools: BTreeMap<String, Vec<String>>,
    pub(super) requests: Vec<Vec<Shown>>,
    pub(super) reviews: Vec<String>,
    pub(super) results: Vec<Told>,
    /// Crossings, in the order they were told, with how often each was crossed by then.
    pub(super) hits: Vec<(String, u32)>,
    /// A second owner of the same process has played to its end.
    pub(super) played: bool,
}

#[derive(Default)]
struct Inner {
    counts: Counts,
    waiting: Option<TcpStream>,
    second: Option<TcpStream>,
    fault: Option<String>,
    /// Connections that still may say something.
    open: usize,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    inner: Mutex<Inner>,
    changed: Condvar,
}

/// The parent's ear. Its threads end with the processes that talk to it.
pub(super) struct Tally {
    address: String,
    shared: Arc<Shared>,
}

impl Tally {
    pub(super) fn listen() -> Result<Self, Fault> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(Fault::of)?;
        let address = listener.local_addr().map_err(Fault::of)?.to_string();
        let shared = Arc::new(Shared::default());
        let heard = Arc::downgrade(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), Some(shared)) = (stream, heard.upgrade()) else { return };
                let mut inner = shared.lock();
                if inner.closed {
                    return;
                }
                inner.open = inner.open.saturating_add(1);
                drop(inner);
                std::thread::spawn(move || {
                    shared.hear(stream);
                    let mut inner = shared.lock();
                    inner.open = inner.open.saturating_sub(1);
                    shared.changed.notify_all();
                });
            }
        });
        Ok(Self { address, shared })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn counts(&self) -> Counts {
        self.shared.lock().counts.clone()
    }

    /// What was told that makes no sense.
    pub(super) fn fault(&self) -> Option<String> {
        self.shared.lock().fault.clone()
    }

    /// Waits until all that was said is heard: a process can be gone before its last words are.
    pub(super) fn silence(&self, until: Instant) -> bool {
        self.shared.wait(until, &mut || false, |inner| inner.open == 0)
    }

    /// Waits until an owner stands at its crossing; gives up at `until`, or when `gone` says that nobody will come.
    pub(super) fn stands(&self, until: Instant, gone: &mut dyn FnMut() -> bool) -> bool {
        self.shared.wait(until, gone, |inner| inner.waiting.is_some())
    }

    /// Lets the owner at its crossing go on.
    pub(super) fn release(&self) {
        if let Some(stream) = self.shared.lock().waiting.take() {
            answer(&stream);
        }
    }

    /// Lets the second owner of the same process play, and waits until it has.
    pub(super) fn play_second(&self, until: Instant, gone: &mut dyn FnMut() -> bool) -> bool {
        let ready = self.shared.wait(until, gone, |inner| inner.second.is_some());
        if let Some(stream) = self.shared.lock().second.take() {
            answer(&stream);
        }
        ready && self.shared.wait(until, gone, |inner| inner.counts.played)
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        // Wakes the listener.
        let _ = TcpStream::connect(&self.address);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, until: Instant, gone: &mut dyn FnMut() -> bool, come: impl Fn(&Inner) -> bool) -> bool {
        /// A process that ends is noticed by looking.
        const LOOK: Duration = Duration::from_millis(5);
        let mut inner = self.lock();
        while !come(&inner) {
            if Instant::now() >= until || gone() {
                return come(&inner);
            }
            inner = self.changed.wait_timeout(inner, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn hear(&self, stream: TcpStream) {
        let Ok(mut speaks) = stream.try_clone() else { return };
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        // A killed process can leave half a line: what it could not finish saying it did not say.
        while matches!(reader.read_line(&mut line), Ok(1..)) && line.ends_with('\n') {
            let (word, rest) = line.trim_end_matches('\n').split_once(' ').unwrap_or((line.trim_end(), ""));
            let answered = self.take(word, rest, &speaks);
            self.changed.notify_all();
            if answered && speaks.write_all(b"ok\n").is_err() {
                return;
            }
            line.clear();
        }
    }

    /// Counts one line; whether it is to be answered at once.
    fn take(&self, word: &str, rest: &str, stream: &TcpStream) -> bool {
        let mut inner = self.lock();
        let counts = &mut inner.counts;
        match (word, rest.split_once(' ')) {
            ("tool", Some((name, key))) => counts.tools.entry(name.to_owned()).or_default().push(key.to_owned()),
            ("review", _) => counts.reviews.push(rest.to_owned()),
            ("request", _) => match shown(rest) {
                Some(talk) => counts.requests.push(talk),
                None => inner.fault = Some(format!("a request that cannot be read: {rest}")),
            },
            ("result", Some((owner, result))) => match serde_json::from_str(result) {
                Ok(result) => counts.results.push(Told { owner: owner.to_owned(), result }),
                Err(error) => inner.fault = Some(format!("a result that cannot be read: {error}: {result}")),
            },
            ("hit", Some((point, nth))) => {
                counts.hits.push((point.to_owned(), nth.parse().unwrap_or_default()));
            }
            ("played", _) => counts.played = true,
            ("wait", _) => {
                inner.waiting = stream.try_clone().ok();
                return false;
            }
            ("second", _) => {
                inner.second = stream.try_clone().ok();
                return false;
            }
            _ => inner.fault = Some(format!("a line that cannot be read: {word} {rest}")),
        }
        true
    }
}

fn answer(mut stream: &TcpStream) {
    // Whoever died meanwhile needs no word.
    let _ = stream.write_all(b"ok\n");
}

fn shown(json: &str) -> Option<Vec<Shown>> {
    let messages: Vec<Value> = serde_json::from_str(json).ok()?;
    messages
        .iter()
        .map(|message| {
            Some(Shown { model: message.get("model")?.as_bool()?, text: message.get("text")?.as_str()?.to_owned() })
        })
        .collect()
}
