//! SIGINT and SIGTERM: the first one drains, the second one kills. Either way the session can be resumed.

use std::io;
use std::time::Duration;

use agentrun_runner::HarnessRunner;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

use crate::output;

/// Watches for signals until aborted.
///
/// # Errors
/// The handlers cannot be set.
pub(crate) fn watch(runner: HarnessRunner, drain: Duration) -> io::Result<JoinHandle<()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(tokio::spawn(async move {
        let mut times = 0_u32;
        loop {
            let more = tokio::select! {
                more = interrupt.recv() => more,
                more = terminate.recv() => more,
            };
            if more.is_none() {
                return;
            }
            times += 1;
            if times == 1 {
                output::note(&format!(
                    "\nstopping: nothing new begins, calls in flight have {} s; once more to kill",
                    drain.as_secs()
                ));
                runner.stop(drain);
            } else {
                runner.kill();
            }
        }
    }))
}
