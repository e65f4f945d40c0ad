//! The store conformance suite on every store of ours, and the suite itself against stores that each break one promise.
// A failed test is the report.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)]

mod disk;
mod leaving;
mod memory;
mod mutants;
mod sled;
mod sqlite;
mod toy;

use agentrun_testing::suites::Report;
use agentrun_testing::suites::store::{Data, Options, SCHEDULES, conform_with};

/// `AGENTRUN_FULL=1` runs all the schedules the contract names on a store that waits for a disk; else enough to see them meet.
fn schedules(few: usize) -> usize {
    if std::env::var_os("AGENTRUN_FULL").is_some_and(|value| value == "1") { SCHEDULES } else { few }
}

/// Runs the suite, prints its report, and fails unless everything held and only the cases in `skipped` did not run.
async fn conforms(subject: &str, schedules: usize, skipped: &[&str], factory: impl Fn() -> Data) -> Report {
    let report = conform_with(Options { schedules, ..Options::default() }, subject, factory).await;
    println!("{report}\n{}", report.to_json());
    assert!(report.passed(), "{report}");
    assert_eq!(report.skipped(), skipped);
    report
}
