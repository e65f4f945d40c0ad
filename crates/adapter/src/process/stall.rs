//! The stall clock: how long a program has said nothing. Any frame sets it back, noise too: a program that talks is not stuck.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// When a program was last heard. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct StallClock {
    heard: watch::Sender<Instant>,
}

impl StallClock {
    pub(super) fn start() -> Self {
        Self { heard: watch::Sender::new(Instant::now()) }
    }

    /// Sets the clock back, as a frame does. For a silence that is ours: while a tool of ours runs, the program has to wait.
    pub fn touch(&self) {
        self.heard.send_replace(Instant::now());
    }

    /// The time since the program was last heard.
    #[must_use]
    pub fn silent_for(&self) -> Duration {
        self.heard.borrow().elapsed()
    }

    /// Returns once nothing was heard for `limit` without a break. Cancel safe.
    pub async fn stalled(&self, limit: Duration) {
        loop {
            let due = *self.heard.borrow() + limit;
            if Instant::now() >= due {
                return;
            }
            sleep_until(due).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn stalled_counts_from_the_last_frame() {
        let clock = StallClock::start();
        let begun = Instant::now();
        let waiting = tokio::spawn({
            let clock = clock.clone();
            async move { clock.stalled(Duration::from_secs(10)).await }
        });
        sleep_until(begun + Duration::from_secs(9)).await;
        clock.touch();
        waiting.await.unwrap();
        assert_eq!(begun.elapsed(), Duration::from_secs(19));
        assert_eq!(clock.silent_for(), Duration::from_secs(10));
    }
}
