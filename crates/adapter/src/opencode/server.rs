//! The running program: started under its guard, known by the port it says it took and by the password of this start, ended by force. It
//! ends by nothing else: it watches no pipe, and it has nothing to save that is not committed.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::StatusCode;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::api::{Api, ApiError};
use super::callback::Callback;
use super::json::at;
use super::launch::Launch;
use crate::error::{AdapterError, AdapterErrorKind};
use crate::process::{Child, Exit, Frame, Marker, Spawn};
use crate::seat::Deltas;

/// It listens after 3 to 14 s; a machine with many at once takes longer.
const START_DEADLINE: Duration = Duration::from_secs(120);
/// A program whose output ended is given this long to exit by itself, for its exit code.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Between two tries to hear its live events.
const HEAR_AGAIN: Duration = Duration::from_millis(500);
/// How much of a live event is looked at before it is parsed, in bytes. What stands behind it is found by the next read.
const HEAD: usize = 2048;
/// How much of what it says on stdout is kept for an error, in bytes.
const SAID: usize = 2000;
/// What comes before the address it took.
const LISTENING: &str = "opencode server listening on http://";

/// A program that listens.
pub(super) struct Server {
    child: Child,
    pub(super) api: Api,
    pub(super) heard: Arc<Heard>,
    hearing: JoinHandle<()>,
    /// Closed when the program goes.
    _callback: Callback,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.hearing.abort();
    }
}

/// What its live events say: hints. Reads decide.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The turn may be over, or in need of an end.
    pub(super) hint: Notify,
    /// Pieces of words that came. They are in no log until their part is whole.
    pub(super) words: AtomicU64,
}

/// How it ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) exit: Option<Exit>,
    pub(super) stderr_tail: String,
}

impl Server {
    /// Starts the program and waits until it listens and answers to its password.
    pub(super) async fn start(
        program: &Path,
        launch: &Launch<'_>,
        workspace: &Path,
        marker: &Marker,
        callback: Callback,
        deltas: Deltas,
    ) -> Result<Self, AdapterError> {
        let spawn_error = |what: String| AdapterError::new(AdapterErrorKind::Spawn, what);
        launch.prepare().map_err(|error| spawn_error(format!("OpenCode's private folders cannot be made: {error}")))?;
        let mut spawn = Spawn::new(program, workspace, marker.clone()).args(Launch::arguments());
        spawn.env = launch.environment();
        let mut child = spawn.spawn().map_err(|error| spawn_error(error.to_string()))?;
        let mut said = String::new();
        let ready = timeout(START_DEADLINE, async {
            let address = listens(&mut child, &mut said).await?;
            let api = Api::new(address, launch.password);
            match api.version().await {
                Ok(version) => Ok((api, version)),
                Err(ApiError::Status { status: StatusCode::UNAUTHORIZED, .. }) => Err(NotReady::Foreign(address)),
                Err(error) => Err(NotReady::Odd(error.to_string())),
            }
        });
        let (kind, what) = match ready.await {
            Ok(Ok((api, version))) if is_version(&version) => {
                let heard = Arc::new(Heard::default());
                let hearing = tokio::spawn(hear(api.clone(), heard.clone(), deltas));
                return Ok(Self { child, api, heard, hearing, _callback: callback });
            }
            Ok(Ok((_, version))) => {
                (AdapterErrorKind::Protocol, format!("OpenCode's server says its version is `{version}`"))
            }
            Ok(Err(NotReady::Ended)) => {
                (AdapterErrorKind::Exited { code: None }, "OpenCode ended before it listened".to_owned())
            }
            Ok(Err(NotReady::Foreign(address))) => {
                let what =
                    format!("the server at {address} does not know OpenCode's password: another one listens there");
                (AdapterErrorKind::Protocol, what)
            }
            Ok(Err(NotReady::Odd(why))) => (AdapterErrorKind::Protocol, why),
            Err(_) => {
                let what = format!("OpenCode did not listen within {} s", START_DEADLINE.as_secs());
                (AdapterErrorKind::Stalled, what)
            }
        };
        let what = if said.is_empty() { what } else { format!("{what}; it said: {}", said.trim_end()) };
        Err(failed(child, kind, what).await)
    }

    /// Waits until it has ended by itself. Cancel safe.
    pub(super) async fn ended(&mut self) -> Exit {
        self.child.wait().await
    }

    /// Ends it and everything it started.
    pub(super) async fn end(mut self) -> Ended {
        let exit = self.child.end(Duration::ZERO).await.ok();
        Ended { exit, stderr_tail: self.child.stderr_tail() }
    }

    /// The end of a program that ended in a turn.
    pub(super) async fn exited(mut self, message: &str) -> AdapterError {
        let exit = self.child.wait().await;
        AdapterError {
            kind: AdapterErrorKind::Exited { code: exit.code() },
            message: message.to_owned(),
            stderr_tail: self.child.stderr_tail(),
        }
    }
}

fn is_version(text: &str) -> bool {
    text.parse::<crate::process::Version>().is_ok()
}

/// Why it is not ready.
enum NotReady {
    Ended,
    Foreign(SocketAddr),
    Odd(String),
}

/// Hears it until it says where it listens. What else it says is kept, and never taken for that.
async fn listens(child: &mut Child, said: &mut String) -> Result<SocketAddr, NotReady> {
    let mut frames = child.take_frames().ok_or(NotReady::Ended)?;
    while let Some(frame) = frames.recv().await {
        let (Ok(Frame::Noise(line)) | Ok(Frame::Json(line))) = frame else { continue };
        let line = String::from_utf8_lossy(&line);
        if let Some(address) = line.trim().strip_prefix(LISTENING) {
            let odd = || NotReady::Odd(format!("OpenCode says that it listens on `{address}`"));
            let address: SocketAddr = address.trim_end_matches('/').parse().map_err(|_| odd())?;
            return if address.ip().is_loopback() { Ok(address) } else { Err(odd()) };
        }
        said.extend(line.chars().take(SAID.saturating_sub(said.len())));
        said.push('\n');
        said.truncate(said.floor_char_boundary(SAID));
    }
    Err(NotReady::Ended)
}

/// The error of a program that is ended for it, with its exit code where it had ended by itself.
async fn failed(mut child: Child, kind: AdapterErrorKind, message: String) -> AdapterError {
    let by_itself = matches!(kind, AdapterErrorKind::Exited { .. });
    let exit = child.end(if by_itself { LAST_WORDS } else { Duration::ZERO }).await.ok();
    let kind = if by_itself { AdapterErrorKind::Exited { code: exit.and_then(Exit::code) } } else { kind };
    AdapterError { kind, message, stderr_tail: child.stderr_tail() }
}

/// Hears its live events: some say when to look, and words are shown as they come.
async fn hear(api: Api, heard: Arc<Heard>, deltas: Deltas) {
    loop {
        if let Ok(mut live) = api.live().await {
            let mut line = Vec::new();
            while let Some(Ok(frame)) = live.frame().await {
                for byte in frame.into_data().unwrap_or_default() {
                    match byte {
                        b'\n' => event(&std::mem::take(&mut line), &heard, &deltas),
                        // A line that long is nothing to show.
                        _ if line.len() < 1024 * 1024 => line.push(byte),
                        _ => {}
                    }
                }
            }
        }
        heard.hint.notify_one();
        tokio::time::sleep(HEAR_AGAIN).await;
    }
}

fn event(line: &[u8], heard: &Heard, deltas: &Deltas) {
    let Some(data) = line.strip_prefix(b"data:") else { return };
    // Looked at before they are parsed: a part can be megabytes.
    let head = data.get(..HEAD).unwrap_or(data);
    let says = |text: &str| head.windows(text.len()).any(|at| at == text.as_bytes());
    if says("\"message.part.updated\"") {
        // A call that ended: after the one that delivered nothing more is waited for.
        if says("\"status\":\"completed\"") || says("\"status\":\"error\"") {
            heard.hint.notify_one();
        }
        return;
    }
    let event: Value = serde_json::from_slice(data).unwrap_or_default();
    match at(&event, "/type").as_str().unwrap_or_default() {
        "message.part.delta" => {
            heard.words.fetch_add(1, Ordering::Relaxed);
            if *at(&event, "/properties/field") == "text" {
                deltas.show(at(&event, "/properties/delta").as_str().unwrap_or_default());
            }
        }
        // A new connection tells nothing of what was missed.
        "session.status" if *at(&event, "/properties/status/type") == "busy" => {}
        "session.status" | "session.error" | "server.connected" => heard.hint.notify_one(),
        "message.updated" if *at(&event, "/properties/info/finish") == "unknown" => heard.hint.notify_one(),
        _ => {}
    }
}
