//! A program that is spoken with in JSON lines over its own pipes: lines it says, lines it is told, and its end.

use std::time::Duration;

use serde_json::Value;

use super::child::{Child, Exit};
use super::framing::{Frame, FrameTooLong, Frames};
use super::stdio::Stdin;
use super::supervisor::{Spawn, SpawnError};

/// A running program. Dropping it is the crash path: everything it started ends.
#[derive(Debug)]
pub(crate) struct Dialogue {
    child: Child,
    frames: Frames,
    stdin: Stdin,
}

impl Dialogue {
    /// Starts it.
    pub(crate) fn start(spawn: &Spawn) -> Result<Self, SpawnError> {
        let mut child = spawn.spawn()?;
        let frames = child.take_frames().ok_or_else(|| SpawnError::System {
            program: spawn.program.clone(),
            source: std::io::Error::other("its output was taken already"),
        })?;
        Ok(Self { stdin: child.stdin(), child, frames })
    }

    /// What it says next, as `read` understands it; noise and what is not understood is passed over. `None` when it says nothing more.
    /// Cancel safe.
    pub(crate) async fn line<L>(&mut self, read: impl Fn(&[u8]) -> Option<L>) -> Option<Result<L, FrameTooLong>> {
        loop {
            match self.frames.recv().await? {
                Ok(Frame::Json(line)) => match read(&line) {
                    Some(line) => return Some(Ok(line)),
                    None => continue,
                },
                Ok(Frame::Noise(_)) => {}
                Err(too_long) => return Some(Err(too_long)),
            }
        }
    }

    /// Tells it a line. A program that takes no more input has ended, or will: its output says so.
    pub(crate) async fn tell(&self, line: &Value) {
        // `to_string` of a `Value` escapes every control character, so that the text is one line.
        let mut bytes = line.to_string().into_bytes();
        bytes.push(b'\n');
        let _ = self.stdin.send(bytes).await;
    }

    /// Ends it and everything it started: its input is closed, and what is not gone after `grace` is killed.
    pub(crate) async fn end(mut self, grace: Duration) -> Ended {
        let ended = self.child.end(grace).await;
        let stderr_tail = self.child.stderr_tail();
        let exit = ended.ok();
        Ended { forced: !matches!(exit, Some(Exit::Code(_))), code: exit.and_then(Exit::code), stderr_tail }
    }
}

/// How it ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    /// It did not end by itself.
    pub(crate) forced: bool,
    pub(crate) stderr_tail: String,
}
