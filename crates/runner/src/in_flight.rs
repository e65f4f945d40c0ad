//! What runs: calls and requests that are not recorded yet, so that an end can wait until they are; and a runner's attempts, so that a stop
//! is theirs before whoever called it goes on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentrun_kernel::{StopLevel, StopRaiser, Why};
use tokio::sync::watch;

/// A count of things in flight.
#[derive(Clone)]
pub(crate) struct InFlight(Arc<watch::Sender<usize>>);

/// One of them; it has landed when this is dropped.
pub(crate) struct Entered(InFlight);

impl InFlight {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    pub(crate) fn enter(&self) -> Entered {
        self.0.send_modify(|count| *count = count.saturating_add(1));
        Entered(self.clone())
    }

    /// Waits until nothing is in flight, for at most `deadline`. Answers whether it came to that.
    pub(crate) async fn quiesce(&self, deadline: Duration) -> bool {
        let mut count = self.0.subscribe();
        tokio::time::timeout(deadline, count.wait_for(|count| *count == 0)).await.is_ok()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// The attempts a runner runs now.
#[derive(Clone, Default)]
pub(crate) struct Running(Arc<Mutex<Attempts>>);

#[derive(Default)]
struct Attempts {
    next: u64,
    stops: HashMap<u64, StopRaiser>,
}

/// One of them; it has ended when this is dropped.
pub(crate) struct Runs(Running, u64);

impl Running {
    pub(crate) fn enter(&self, stop: &StopRaiser) -> Runs {
        let mut attempts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = attempts.next;
        attempts.next = id.wrapping_add(1);
        attempts.stops.insert(id, stop.clone());
        Runs(self.clone(), id)
    }

    /// Raises the stop of each: nothing of theirs begins once this returns.
    pub(crate) fn raise(&self, level: StopLevel) {
        for stop in self.0.lock().unwrap_or_else(PoisonError::into_inner).stops.values() {
            stop.raise(level, Why::Host);
        }
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).stops.remove(&self.1);
    }
}
