//! Counts what runs and is not recorded yet, so that an end can wait until it is.

use std::sync::Arc;
use std::time::Duration;

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
