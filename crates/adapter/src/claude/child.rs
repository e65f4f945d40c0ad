//! The running program as a turn sees it: lines it says, lines it is told, and its end. Supervision is in `process`.

use std::time::Duration;

use super::launch::Launch;
use super::wire::{self, Line};
use crate::process::{self, Exit, Frame, FrameTooLong, Frames, Marker, Spawn, SpawnError, Stdin};

pub(super) struct Child {
    child: process::Child,
    frames: Frames,
    stdin: Stdin,
}

impl Child {
    pub(super) fn start(
        program: &std::path::Path,
        launch: &Launch<'_>,
        workspace: &std::path::Path,
        marker: &Marker,
    ) -> Result<Self, SpawnError> {
        let mut spawn = Spawn::new(program, workspace, marker.clone()).args(launch.arguments());
        spawn.env = launch.environment();
        let mut child = spawn.spawn()?;
        let frames = child.take_frames().ok_or_else(|| SpawnError::System {
            program: program.to_owned(),
            source: std::io::Error::other("its output was taken already"),
        })?;
        Ok(Self { stdin: child.stdin(), child, frames })
    }

    /// What it says next; noise is passed over. `None` when it says nothing more. Cancel safe.
    pub(super) async fn line(&mut self) -> Option<Result<Line, FrameTooLong>> {
        loop {
            match self.frames.recv().await? {
                Ok(Frame::Json(line)) => match wire::read(&line) {
                    Some(line) => return Some(Ok(line)),
                    None => continue,
                },
                Ok(Frame::Noise(_)) => {}
                Err(too_long) => return Some(Err(too_long)),
            }
        }
    }

    /// Tells it a line. A program that takes no more input has ended, or will: its output says so.
    pub(super) async fn tell(&self, line: &serde_json::Value) {
        let _ = self.stdin.send(wire::line(line)).await;
    }

    /// Ends it and everything it started: its input is closed, and what is not gone after `grace` is killed.
    pub(super) async fn end(mut self, grace: Duration) -> Ended {
        let ended = self.child.end(grace).await;
        let stderr_tail = self.child.stderr_tail();
        let exit = ended.ok();
        Ended { forced: !matches!(exit, Some(Exit::Code(_))), code: exit.and_then(Exit::code), stderr_tail }
    }
}

/// How it ended.
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    /// It did not end by itself.
    pub(super) forced: bool,
    pub(super) stderr_tail: String,
}
