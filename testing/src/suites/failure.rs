//! How a case of a suite says that a promise did not hold.

use std::fmt;

/// What a case saw that must not be, in words.
#[derive(Debug)]
pub(super) struct Failure(pub(super) String);

/// What a case answers: figures for its line of the report.
pub(super) type Answer = Result<String, Failure>;

// `Failure` is no `Error` itself, so that every error of the store's becomes one with `?`.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(format!("unexpected error: {error}"))
    }
}

/// Fails the case with what was seen, unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($seen:tt)+) => {
        if !$condition {
            return Err($crate::suites::failure::Failure(format!($($seen)+)));
        }
    };
}

pub(super) use ensure;

pub(super) fn same<T: PartialEq + fmt::Debug>(seen: T, due: T, what: &str) -> Result<(), Failure> {
    if seen == due { Ok(()) } else { Err(Failure(format!("{what}: seen {seen:?}, due {due:?}"))) }
}
