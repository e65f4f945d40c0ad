//! A running program with framed output: what an adapter holds. Letting it go ends the program and everything it started.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::framing::{self, Frames};
use super::stall::StallClock;
use super::stdio::{self, Output, Ring, Stdin};
use super::supervisor::{Guarded, KILL_LIMIT, Pipes};

/// How a program ended. By then everything it had started is gone too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// A signal ended it; when we ended it, SIGKILL.
    Signal(i32),
    /// Its guard was killed, so nobody saw. What carried its mark was ended; what had cleared its environment may live.
    Lost,
}

impl Exit {
    pub(super) fn from_status(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Self::Signal(libc::WTERMSIG(status))
        } else {
            Self::Code(libc::WEXITSTATUS(status))
        }
    }

    /// As a shell writes it: 128 + signal when a signal ended it. `None` when nobody saw.
    #[must_use]
    pub fn code(self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(code),
            Self::Signal(signal) => Some(128 + signal),
            Self::Lost => None,
        }
    }
}

/// Something below the guard outlived SIGKILL. The guard goes on trying; the session's home must not be used until the guard is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("something that process {program} started cannot be killed; its guard, process {guard}, still waits for it")]
pub struct Lingering {
    /// The program's pid.
    pub program: u32,
    /// The guard's pid.
    pub guard: u32,
}

/// A running program. Dropping it is the crash path: stdin is closed and the guard kills everything, and nobody waits for it.
#[derive(Debug)]
pub struct Child {
    guarded: Guarded,
    stdin: Stdin,
    stdin_closed: watch::Sender<bool>,
    frames: Option<Frames>,
    clock: StallClock,
    stderr: Ring,
    /// Ends when stderr was read to its end.
    stderr_read: Option<JoinHandle<()>>,
}

impl Child {
    pub(super) fn new(guarded: Guarded, pipes: Pipes) -> Self {
        let (stdin_closed, closed) = watch::channel(false);
        let clock = StallClock::start();
        let (sender, frames) = framing::frames();
        let heard = clock.clone();
        tokio::spawn(sender.pump(Output::new(pipes.stdout, guarded.exit()), move || heard.touch()));
        let stderr = Ring::default();
        let stderr_read = tokio::spawn(stderr.clone().pump(Output::new(pipes.stderr, guarded.exit())));
        Self {
            stdin: stdio::stdin(pipes.stdin, closed),
            guarded,
            stdin_closed,
            frames: Some(frames),
            clock,
            stderr,
            stderr_read: Some(stderr_read),
        }
    }

    /// The program's pid, not its guard's.
    #[must_use]
    pub fn program_pid(&self) -> u32 {
        self.guarded.program
    }

    /// Its stdin. Clones stay good until the child is let go or [`close_stdin`](Self::close_stdin).
    #[must_use]
    pub fn stdin(&self) -> Stdin {
        self.stdin.clone()
    }

    /// Closes its stdin, for every clone: how most programs are asked to end.
    pub fn close_stdin(&self) {
        self.stdin_closed.send_replace(true);
    }

    /// Its output, once. Frames that are not taken off make the program wait; dropping them lets it write into the void.
    pub fn take_frames(&mut self) -> Option<Frames> {
        self.frames.take()
    }

    /// Its stall clock.
    #[must_use]
    pub fn clock(&self) -> StallClock {
        self.clock.clone()
    }

    /// The end of what it wrote to stderr, at most [`STDERR_TAIL`](super::STDERR_TAIL) bytes. Complete after [`wait`](Self::wait).
    #[must_use]
    pub fn stderr_tail(&self) -> String {
        self.stderr.text()
    }

    /// Has everything killed and returns at once; [`wait`](Self::wait) tells when it is done.
    pub fn kill(&self) {
        self.guarded.cut();
    }

    /// Waits for its end and that of everything it started. Kills nothing. May be asked again. Cancel safe.
    pub async fn wait(&mut self) -> Exit {
        let exit = self.guarded.wait().await;
        if let Some(reading) = &mut self.stderr_read {
            // Bounded, for a pipe that was handed to someone who is not below the guard.
            let _ = timeout(KILL_LIMIT, reading).await;
            self.stderr_read = None;
        }
        exit
    }

    /// Ends it: closes stdin, gives it `grace` to end by itself, then kills everything. A grace of zero kills at once, with its stdin open: a
    /// program that sees its input end may write down an interruption that nobody meant. Frames that were taken must be read or dropped
    /// meanwhile, or a program with much to say cannot end by itself. Dropping the future kills.
    ///
    /// # Errors
    /// [`Lingering`] when something was not gone ten seconds after it was killed.
    pub async fn end(&mut self, grace: Duration) -> Result<Exit, Lingering> {
        self.frames = None;
        if !grace.is_zero() {
            self.close_stdin();
            if timeout(grace, self.guarded.wait()).await.is_ok() {
                return Ok(self.wait().await);
            }
        }
        self.guarded.kill().await?;
        Ok(self.wait().await)
    }
}
