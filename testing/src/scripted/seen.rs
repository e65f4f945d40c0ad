//! The server's book: the script, every request seen, and the log. Choosing a step, keeping the request and logging it are one step
//! under one lock, so the log, the list and the order of serving agree, and all three are there before the answer starts.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use hyper::header::HeaderMap;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

use crate::script::{Conversation, NoStep, Script, Served};

/// Stands before the model, as a host's proxy does: asked of each request that asks the model, before it is served.
#[async_trait]
pub trait Before: Send + Sync {
    /// Lets it through, or answers why not: the request then gets a status 403 and no step of the script.
    async fn admit(&self, body: &[u8]) -> Result<(), String>;
}

/// A request as it arrived. Its JSON is a line of the log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SeenRequest {
    /// When it had arrived whole, in milliseconds since 1970.
    pub time_ms: u64,
    /// `POST`, `HEAD` …
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers by lower-case name; several of one name are joined with `, `. The credential is among them.
    pub headers: BTreeMap<String, String>,
    /// The body. One that is not JSON is kept as a string, none is `null`.
    pub body: Value,
    /// Whether it asked the model, so that a provider would bill it.
    pub asks_model: bool,
    /// The step it was served; none when no step fitted or the model was not asked.
    pub step: Option<usize>,
}

impl SeenRequest {
    pub(super) fn new(method: String, path: String, headers: &HeaderMap, body: &Bytes) -> Self {
        let mut named = BTreeMap::<String, String>::new();
        for (name, value) in headers {
            let value = String::from_utf8_lossy(value.as_bytes());
            named
                .entry(name.as_str().to_owned())
                .and_modify(|all| {
                    all.push_str(", ");
                    all.push_str(&value);
                })
                .or_insert_with(|| value.clone().into_owned());
        }
        let body = if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(body).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(body).into_owned()))
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        Self { time_ms, method, path, headers: named, body, asks_model: false, step: None }
    }

    /// The credential it came with, from whichever header carries one.
    pub(super) fn credential(&self) -> Option<String> {
        let found: Vec<&str> = ["x-api-key", "authorization"]
            .iter()
            .filter_map(|name| self.headers.get(*name))
            .map(String::as_str)
            .collect();
        (!found.is_empty()).then(|| found.join(", "))
    }
}

pub(super) struct Book {
    pages: Mutex<Pages>,
    before: Option<Arc<dyn Before>>,
    /// Requests that asked the model.
    count: watch::Sender<usize>,
}

#[derive(Debug)]
struct Pages {
    script: Script,
    seen: Vec<SeenRequest>,
    log: Option<File>,
}

impl Book {
    pub(super) fn new(script: Script, log: Option<File>, before: Option<Arc<dyn Before>>) -> Self {
        Self { pages: Mutex::new(Pages { script, seen: Vec::new(), log }), before, count: watch::Sender::new(0) }
    }

    /// Asks who stands before the model.
    pub(super) async fn admit(&self, body: &Value) -> Result<(), String> {
        match &self.before {
            Some(before) => before.admit(body.to_string().as_bytes()).await,
            None => Ok(()),
        }
    }

    /// Serves a request its step and keeps it.
    ///
    /// An error means the log could not be written: the request is kept, its step is spent, and it must not be answered as if all were well.
    pub(super) fn serve(&self, mut request: SeenRequest, talk: &Conversation) -> io::Result<Result<Served, NoStep>> {
        let mut pages = self.pages();
        let served = pages.script.next(talk);
        request.asks_model = true;
        request.step = served.as_ref().ok().map(|s| s.index);
        let logged = pages.keep(request);
        drop(pages);
        self.count.send_modify(|count| *count += 1);
        logged.map(|()| served)
    }

    /// Keeps a request that does not ask the model.
    pub(super) fn note(&self, request: SeenRequest) -> io::Result<()> {
        self.pages().keep(request)
    }

    pub(super) fn seen(&self) -> Vec<SeenRequest> {
        self.pages().seen.clone()
    }

    pub(super) fn count(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// A panic elsewhere leaves the pages whole: nothing here is half done between two calls.
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Book {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Book").field("pages", &self.pages).finish_non_exhaustive()
    }
}

impl Pages {
    fn keep(&mut self, request: SeenRequest) -> io::Result<()> {
        let line = self.log.as_ref().map(|_| serde_json::to_vec(&request));
        self.seen.push(request);
        if let (Some(file), Some(line)) = (&mut self.log, line) {
            // One write a line: a reader, or a kill, meets whole lines only.
            let mut line = line?;
            line.push(b'\n');
            file.write_all(&line)?;
            file.flush()?;
        }
        Ok(())
    }
}
