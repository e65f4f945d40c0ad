//! Whether a request that failed is asked again, and of whom. Pure; off unless a host asks for it. It is decided before a byte of an answer
//! has gone to the harness, and each try has a hold of its own, so what a failed try may have cost counts too.
//!
//! | what came of a try | again |
//! | --- | --- |
//! | nothing was sent (connect failed, or its time-out) | yes |
//! | 429, 529: not billed | yes, no sooner than `retry-after` says |
//! | 500, 502, 503, 504: may be billed, so that try counts in full as unknown | yes |
//! | any other status | no: the next try would be told the same |
//! | sent, and no answer (broke, head time-out); an answer that cannot be read | no: it may still be running |
//!
//! Tries at one provider come first, then the next provider of the list begins with tries of its own.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};

/// How often a failed request is asked again. The default is never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Tries beyond the first, at each provider.
    pub again: u32,
    /// The wait before the second try; it doubles with each further one. Half of it is left to chance, so that many that failed together do
    /// not come back together.
    pub first_wait: Duration,
    /// The longest a request waits before one try. A provider that says in `retry-after` that it wants more is not asked again.
    pub longest_wait: Duration,
}

impl Retry {
    /// No second try.
    pub const NEVER: Self =
        Self { again: 0, first_wait: Duration::from_millis(500), longest_wait: Duration::from_secs(30) };
}

impl Default for Retry {
    fn default() -> Self {
        Self::NEVER
    }
}

/// Why a try gave nothing to pass on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Surely nothing was sent.
    NotSent,
    /// The provider said no, and when to come back, where it said so.
    Status(StatusCode, After),
    /// It may have been run, or still is.
    Doubtful,
}

/// What an answer says of the next try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Unsaid,
    Wait(Duration),
    /// In words that are not read here, a date among them: not guessed.
    Unread,
}

/// What follows a failed try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask the same provider again after this wait.
    Again(Duration),
    /// Ask the next provider of the list, where there is one.
    Elsewhere,
    /// Pass the failure on.
    End,
}

/// What follows `failure`, after `tried` tries at this provider. `chance` is a random number of any size.
pub(crate) fn next(retry: &Retry, tried: u32, failure: Failure, chance: u64) -> Next {
    let after = match failure {
        Failure::NotSent => After::Unsaid,
        Failure::Status(status, after) if is_passing(status) => after,
        Failure::Status(..) | Failure::Doubtful => return Next::End,
    };
    if tried > retry.again {
        return Next::Elsewhere;
    }
    let backoff = backoff(retry, tried, chance);
    match after {
        After::Unsaid => Next::Again(backoff.min(retry.longest_wait)),
        // Never sooner than it asks, and a little later than all others who were told the same.
        After::Wait(asked) if asked <= retry.longest_wait => Next::Again(asked.max(backoff).min(retry.longest_wait)),
        After::Wait(_) | After::Unread => Next::Elsewhere,
    }
}

/// Trouble that may be over soon.
fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 500 | 502 | 503 | 504 | 529)
}

/// Between half and the whole of the doubled wait.
fn backoff(retry: &Retry, tried: u32, chance: u64) -> Duration {
    let doublings = tried.saturating_sub(1).min(16);
    let whole = retry.first_wait.saturating_mul(1 << doublings);
    let half = whole / 2;
    let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
    half.saturating_add(Duration::from_nanos(chance % nanos.saturating_add(1)))
}

/// `retry-after-ms`, else `retry-after` in whole seconds.
pub(crate) fn after(headers: &HeaderMap) -> After {
    let number =
        |name: &str| headers.get(name).map(|value| value.to_str().ok().and_then(|text| text.trim().parse().ok()));
    match (number("retry-after-ms"), number(header::RETRY_AFTER.as_str())) {
        (Some(Some(ms)), _) => After::Wait(Duration::from_millis(ms)),
        (_, Some(Some(s))) => After::Wait(Duration::from_secs(s)),
        (None, None) => After::Unsaid,
        _ => After::Unread,
    }
}

/// A number nobody can foresee; the same for all when the system gives none, which costs jitter and nothing else.
pub(crate) fn chance() -> u64 {
    let mut bytes = [0; 8];
    let _ = getrandom::fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Retry =
        Retry { again: 2, first_wait: Duration::from_millis(100), longest_wait: Duration::from_secs(5) };

    fn status(code: u16, after: After) -> Failure {
        Failure::Status(StatusCode::from_u16(code).unwrap(), after)
    }

    #[test]
    fn by_default_nothing_is_asked_again() {
        for failure in [Failure::NotSent, status(429, After::Unsaid), status(529, After::Wait(Duration::ZERO))] {
            assert_eq!(next(&Retry::default(), 1, failure, 7), Next::Elsewhere);
        }
    }

    #[test]
    fn only_what_passes_or_was_not_sent_is_asked_again() {
        for code in 400..600 {
            let again = next(&RETRY, 1, status(code, After::Unsaid), 0) != Next::End;
            assert_eq!(again, [429, 500, 502, 503, 504, 529].contains(&code), "{code}");
        }
        assert_eq!(next(&RETRY, 1, Failure::Doubtful, 0), Next::End, "it may still be running");
        assert!(matches!(next(&RETRY, 1, Failure::NotSent, 0), Next::Again(_)));
    }

    #[test]
    fn tries_are_bounded_and_waits_double_with_half_left_to_chance() {
        for (tried, whole) in [(1, 100), (2, 200)] {
            let waits =
                [0, 1, u64::MAX / 3, u64::MAX].map(|chance| match next(&RETRY, tried, Failure::NotSent, chance) {
                    Next::Again(wait) => wait,
                    other => panic!("{other:?}"),
                });
            let (least, most) = (Duration::from_millis(whole / 2), Duration::from_millis(whole));
            assert!(waits.iter().all(|wait| (least..=most).contains(wait)), "{waits:?}");
            assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
        }
        assert_eq!(next(&RETRY, 3, Failure::NotSent, 0), Next::Elsewhere);
        let long = Retry { again: u32::MAX, ..RETRY };
        assert_eq!(next(&long, 1_000_000, Failure::NotSent, u64::MAX), Next::Again(long.longest_wait));
    }

    #[test]
    fn retry_after_is_never_undercut_and_one_that_asks_too_much_is_not_waited_for() {
        let wait = |seconds| status(429, After::Wait(Duration::from_secs(seconds)));
        assert_eq!(next(&RETRY, 1, wait(3), u64::MAX), Next::Again(Duration::from_secs(3)));
        assert!(matches!(next(&RETRY, 1, wait(0), 0), Next::Again(waits) if waits >= Duration::from_millis(50)));
        assert_eq!(next(&RETRY, 1, wait(6), 0), Next::Elsewhere);
        assert_eq!(next(&RETRY, 1, status(429, After::Unread), 0), Next::Elsewhere);
    }

    #[test]
    fn retry_after_is_read_in_seconds_and_in_milliseconds_and_never_guessed() {
        let read = |pairs: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, value.parse().unwrap());
            }
            after(&headers)
        };
        assert_eq!(read(&[]), After::Unsaid);
        assert_eq!(read(&[("retry-after", "7")]), After::Wait(Duration::from_secs(7)));
        assert_eq!(read(&[("retry-after", "7"), ("retry-after-ms", "250")]), After::Wait(Duration::from_millis(250)));
        for odd in ["Wed, 21 Oct 2026 07:28:00 GMT", "soon", "-1", "1.5", ""] {
            assert_eq!(read(&[("retry-after", odd)]), After::Unread, "{odd}");
        }
    }
}
