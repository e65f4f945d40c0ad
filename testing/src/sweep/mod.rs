//! The crash sweep: a node over the faux adapter is cut at every crossing it passes, by SIGKILL or by a second owner, and what must hold
//! afterwards is held against counts that rest on no record.
//!
//! ```text
//!  census ─► every (crossing, nth) ─► cut there ─► a second process goes on ─► a third opens the finished session ─► verdict
//!              the parent listens on loopback: each tool call, model request, review and result is told to it as it happens
//! ```
//!
//! `scenario` is what is run, `child` the processes that run it, `tally` what the parent was told, `case` one cut, `verdict` what must
//! hold, `sweep` all of it with its census and table. Needs the kernel's feature `crossings`, so a build of its own: see `testing/run`.

mod case;
mod child;
mod run;
mod scenario;
mod tally;
mod verdict;

pub use case::{Backend, Case, Cut, Site};
pub use child::{child, tool};
pub use run::{Plan, Report, run};
pub use scenario::Scenario;

/// Why a sweep or a case could not go on, or what a case broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);

impl Fault {
    fn of(what: impl std::fmt::Display) -> Self {
        Self(what.to_string())
    }
}
