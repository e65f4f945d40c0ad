//! A model server on loopback that plays a [`Script`]: real HTTP and server-sent events, every request kept, faults on demand.
//!
//! Speaks three APIs on one port, and one script serves them all:
//!
//! | API | asks the script | answered without it |
//! | --- | --- | --- |
//! | Anthropic Messages | `POST /v1/messages` | `POST /v1/messages/count_tokens`, `HEAD /` |
//! | OpenAI Responses | `POST /v1/responses`, `POST /v1/responses/compact` | `POST /v1/responses/input_tokens`; an upgrade to a WebSocket gets 426 |
//! | OpenAI chat completions | `POST /v1/chat/completions` | – |
//!
//! and `GET /v1/models`. A request that no step fits is a 500 for Messages and a 400 for the others, whose harnesses try a 500 again for a
//! minute. It takes any credential and keeps it in plain sight of the test: give it made-up keys only.
//!
//! Events of a streamed answer, for scripts that count them:
//!
//! * Messages: `message_start`; for each block `content_block_start`, one or more `content_block_delta`, `content_block_stop`; then
//!   `message_delta`, `message_stop`. One `ping` follows the first `content_block_start` (or `message_start` where the answer is empty).
//! * Responses: `response.created`, `response.in_progress`; for each item `response.output_item.added`, its parts,
//!   `response.output_item.done`; then `response.completed` (or `.incomplete`, `.failed`). A text's parts are
//!   `response.content_part.added`, one or more `response.output_text.delta`, `response.output_text.done`, `response.content_part.done`;
//!   a call's are one or more `response.function_call_arguments.delta` and its `.done`. A tool that is offered as `custom` is called with
//!   a text.
//! * Chat completions: the role; a chunk for each piece of text; for each call its name, then a chunk for each piece of its arguments; the
//!   finish reason; the usage if the request asks for it; `[DONE]`.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use agentrun_testing::script::{Script, Step};
//! use agentrun_testing::scripted::ScriptedModel;
//!
//! let model = ScriptedModel::start(Script::new(vec![Step::says("hello")])?)?;
//! println!("ANTHROPIC_BASE_URL={}", model.base_url());
//! assert!(model.requests().is_empty());
//! # Ok(()) }
//! ```

mod answer;
mod chat;
mod messages;
mod responses;
mod seen;
mod server;
mod wire;

pub use seen::{Before, SeenRequest};

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::script::Script;
use seen::Book;

/// How long [`ScriptedModel::wait_for_requests`] waits: far above what a loaded machine needs, since only a failing test waits it out.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running scripted model server. Dropping it closes the port and every connection before the drop returns.
///
/// It runs on a thread of its own: a test that blocks (waiting for a child process) does not block the model.
#[derive(Debug)]
pub struct ScriptedModel {
    address: SocketAddr,
    book: Arc<Book>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Where a server listens and what it writes.
#[derive(Debug, Default)]
pub struct Options {
    /// Port on 127.0.0.1; 0 takes a free one.
    pub port: u16,
    /// Gets one JSON line for each request ([`SeenRequest`]), written before the request is answered. Open it for appending.
    pub log: Option<File>,
}

/// Fewer requests than a test waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("waited {} s for {wanted} model requests and saw {seen}", PATIENCE.as_secs())]
pub struct TooFew {
    /// Waited for.
    pub wanted: usize,
    /// Seen.
    pub seen: usize,
}

impl ScriptedModel {
    /// Starts a server on a free port of 127.0.0.1; it accepts when this returns.
    ///
    /// # Errors
    /// No port or no thread to be had.
    pub fn start(script: Script) -> io::Result<Self> {
        Self::start_with(script, Options::default())
    }

    /// Starts a server with options; it accepts when this returns.
    ///
    /// # Errors
    /// The port is taken, or there is no thread to be had.
    pub fn start_with(script: Script, options: Options) -> io::Result<Self> {
        Self::serve(script, options, None)
    }

    /// Starts a server on a free port that asks `before` ahead of each request that asks the model.
    ///
    /// # Errors
    /// No port or no thread to be had.
    pub fn start_behind(script: Script, before: Arc<dyn Before>) -> io::Result<Self> {
        Self::serve(script, Options::default(), Some(before))
    }

    fn serve(script: Script, options: Options, before: Option<Arc<dyn Before>>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let listener = {
            let _in_runtime = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let book = Arc::new(Book::new(script, options.log, before));
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&book);
        let thread = std::thread::Builder::new().name("scripted-model".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = server::accept(listener, served) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { address, book, stop: Some(stop), thread: Some(thread) })
    }

    /// `http://127.0.0.1:PORT`, without a path.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests that asked the model (each of them one a provider would bill), in the order they came. One is here before it is answered.
    #[must_use]
    pub fn requests(&self) -> Vec<SeenRequest> {
        self.book.seen().into_iter().filter(|r| r.asks_model).collect()
    }

    /// Every request, also those no provider bills (`HEAD /`, token counts) and those to unknown paths.
    #[must_use]
    pub fn all_requests(&self) -> Vec<SeenRequest> {
        self.book.seen()
    }

    /// Waits until `wanted` requests have asked the model, and gives all that have. Needs a tokio runtime with time; dropping the future loses nothing.
    ///
    /// # Errors
    /// [`TooFew`] after a minute.
    pub async fn wait_for_requests(&self, wanted: usize) -> Result<Vec<SeenRequest>, TooFew> {
        let mut count = self.book.count();
        let reached = tokio::time::timeout(PATIENCE, count.wait_for(|seen| *seen >= wanted)).await.is_ok();
        let requests = self.requests();
        if reached { Ok(requests) } else { Err(TooFew { wanted, seen: requests.len() }) }
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has failed its request already; a second one here would hide the test's own message.
            let _ = thread.join();
        }
    }
}
