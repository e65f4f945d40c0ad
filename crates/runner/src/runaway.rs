//! The runaway guard: a harness that asks the model again and again while nothing happens in between. OpenCode does so on an answer whose
//! finish it does not know: 39 requests in 5 seconds, with no bound of its own. Pure: the caller says what the time is.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Requests in a row, with no tool call and no new prompt between them, that a turn may make within [`WITHIN`]. A model that is asked to
/// go on (its output was cut) is asked a few times, and takes seconds for each.
pub(crate) const REQUESTS: usize = 10;
/// The time that [`REQUESTS`] of them must take at least, by the monotonic clock.
pub(crate) const WITHIN: Duration = Duration::from_secs(10);

/// The newest answers of a turn that nothing has come between.
#[derive(Debug, Default)]
pub(crate) struct Runaway {
    /// When they ended, oldest first; at most [`REQUESTS`]. Answers and not requests: many that are asked at once are no circle.
    barren: VecDeque<Instant>,
}

impl Runaway {
    /// Something came between: a tool call, or a message of ours. What was asked before it counts no more.
    pub(crate) fn worked(&mut self) {
        self.barren.clear();
    }

    /// A request that was let through has ended, however it did.
    pub(crate) fn ended(&mut self, now: Instant) {
        if self.barren.len() >= REQUESTS {
            self.barren.pop_front();
        }
        self.barren.push_back(now);
    }

    /// Whether one more request may be let through.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        let oldest = self.barren.front().filter(|_| self.barren.len() >= REQUESTS);
        oldest.is_none_or(|oldest| now.saturating_duration_since(*oldest) >= WITHIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `requests`, so far apart and each answered at once, are let through before one is not.
    fn let_through(requests: usize, apart: Duration) -> usize {
        let (mut guard, mut now) = (Runaway::default(), Instant::now());
        (0..requests)
            .take_while(|_| {
                now += apart;
                let admits = guard.admits(now);
                guard.ended(now);
                admits
            })
            .count()
    }

    #[test]
    fn b92_opencodes_loop_of_39_requests_in_5_seconds_is_cut_behind_the_tenth() {
        assert_eq!(let_through(39, Duration::from_millis(128)), REQUESTS);
    }

    #[test]
    fn requests_as_slow_as_a_model_answers_are_never_too_many() {
        assert_eq!(let_through(1_000, Duration::from_millis(1_001)), 1_000);
        assert_eq!(let_through(1_000, WITHIN / 10), 1_000, "exactly the time is enough");
        assert_eq!(let_through(1_000, Duration::from_millis(999)), REQUESTS);
    }

    #[test]
    fn a_tool_call_or_a_prompt_between_begins_the_count_anew() {
        let (mut guard, now) = (Runaway::default(), Instant::now());
        for _ in 0..100 {
            for _ in 0..REQUESTS {
                assert!(guard.admits(now));
                guard.ended(now);
            }
            assert!(!guard.admits(now));
            guard.worked();
        }
    }

    #[test]
    fn requests_that_are_asked_at_once_are_no_circle() {
        let (mut guard, now) = (Runaway::default(), Instant::now());
        assert!((0..1_000).all(|_| guard.admits(now)));
        (0..1_000).for_each(|_| guard.ended(now));
        assert!(!guard.admits(now), "but what follows their answers is");
    }
}
