//! SIGINT and SIGTERM: the first one drains, the second one kills. Either way the session can be resumed.

use std::io;
use std::time::Duration;

use agentrun_runner::HarnessRunner;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

use crate::output;

/// SIGINT and SIGTERM as they come, from [`Signals::new`] on.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// # Errors
    /// The handlers cannot be set.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The next one; `None` when no more can come. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<()> {
        tokio::select! {
            more = self.interrupt.recv() => more,
            more = self.terminate.recv() => more,
        }
    }
}

/// Watches for signals until aborted.
///
/// # Errors
/// The handlers cannot be set.
pub(crate) fn watch(runner: HarnessRunner, drain: Duration) -> io::Result<JoinHandle<()>> {
    let mut signals = Signals::new()?;
    Ok(tokio::spawn(async move {
        let mut times = 0_u32;
        while signals.next().await.is_some() {
            times += 1;
            if times == 1 {
                runner.stop(drain);
                output::note(&format!(
                    "\nstopping: nothing new begins, calls in flight have {} s; once more to kill",
                    drain.as_secs()
                ));
            } else {
                runner.kill();
            }
        }
    }))
}
