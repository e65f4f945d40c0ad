//! A command run to its end, under its own guard: for command tools and for short questions to a program (`--version`).

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout as limited;

use super::child::{Exit, Lingering};
use super::stdio::{Output, Ring};
use super::supervisor::{Spawn, SpawnError};

/// How much of a command's stdout is kept, in bytes: the beginning. The rest is read and counted.
pub const STDOUT_LIMIT: usize = 4 * 1024 * 1024;

/// A command that ended. Everything it had started is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// How it ended.
    pub exit: Exit,
    /// Its stdout, at most [`STDOUT_LIMIT`] bytes.
    pub stdout: Vec<u8>,
    /// Bytes of stdout beyond that.
    pub stdout_lost: u64,
    /// The end of its stderr.
    pub stderr_tail: String,
    /// It did not end in time and was ended by us.
    pub timed_out: bool,
}

/// A command without an end to report.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It was not started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// It ran out of time and could not be ended.
    #[error(transparent)]
    Lingering(#[from] Lingering),
}

/// Runs a command: writes `input` to its stdin, closes it, and waits for its end, at most `timeout`. A command that does not read its
/// input is no error. Background processes it leaves are ended with it.
///
/// Dropping the future ends the command and everything it started.
///
/// # Errors
/// [`RunError::Spawn`]: nothing ran. [`RunError::Lingering`]: what it started cannot be killed.
pub async fn run_to_end(spawn: &Spawn, input: &[u8], timeout: Duration) -> Result<Finished, RunError> {
    let (guarded, mut pipes) = spawn.start()?;
    let mut stdout = Output::new(pipes.stdout, guarded.exit());
    let (mut kept, mut lost) = (Vec::new(), 0);
    let stderr = Ring::default();
    let write = async move {
        // A closed pipe only says that the command wanted no more.
        let _ = pipes.stdin.write_all(input).await;
        drop(pipes.stdin);
    };
    let read = async {
        while let Some(bytes) = stdout.next().await {
            let (keep, over) = bytes.split_at(bytes.len().min(STDOUT_LIMIT - kept.len()));
            kept.extend_from_slice(keep);
            lost += over.len() as u64;
        }
    };
    let end = async {
        match limited(timeout, guarded.wait()).await {
            Ok(exit) => Ok::<_, Lingering>((exit, false)),
            Err(_) => guarded.kill().await.map(|exit| (exit, true)),
        }
    };
    let outputs = async {
        tokio::join!(read, stderr.clone().pump(Output::new(pipes.stderr, guarded.exit())));
        Ok(())
    };
    // The write is left behind at the end: nobody would read the rest.
    let finish = async {
        tokio::pin!(end);
        tokio::pin!(write);
        tokio::select! {
            ended = &mut end => ended,
            () = &mut write => end.await,
        }
    };
    // What lingers may hold the pipes for ever, so its error does not wait for them.
    let ((exit, timed_out), ()) = tokio::try_join!(finish, outputs)?;
    Ok(Finished { exit, stdout: kept, stdout_lost: lost, stderr_tail: stderr.text(), timed_out })
}
