//! The crash sweep catches what it is for: with a fault planted in every process, cases of it fail and say what broke.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a failed test is a report"
)]

use agentrun_testing::sweep::{Backend, Plan, Report, Scenario, run};

/// Sweeps the crossings that begin so, with `planted` in every process, until one case fails.
fn swept(scenario: Scenario, planted: &str, only: &str) -> Report {
    let plan = Plan {
        program: env!("CARGO_BIN_EXE_agentrun-crash-sweep").into(),
        folder: std::env::temp_dir(),
        backends: vec![Backend::Sqlite],
        scenarios: vec![scenario],
        twice: false,
        only: Some(only.to_owned()),
        jobs: 2,
        shard: (1, 1),
        planted: planted.to_owned(),
        stop_at_first: true,
    };
    run(&plan).unwrap()
}

fn caught(planted: &str, only: &str, says: &str) {
    caught_in(Scenario::Tools, planted, only, says);
}

fn caught_in(scenario: Scenario, planted: &str, only: &str, says: &str) {
    let report = swept(scenario, planted, only);
    assert!(
        report.failed.iter().flat_map(|(_, broken)| broken).any(|broken| broken.contains(says)),
        "`{planted}` was not caught by {} cases at {only}:\n{report}",
        report.cases()
    );
}

#[test]
fn nothing_planted_breaks_nothing() {
    let report = swept(Scenario::Tools, "", "tool_return");
    assert!(report.cases() >= 10 && report.failed.is_empty(), "{report}");
}

#[test]
fn b53_a_never_call_that_recovery_runs_again_is_caught() {
    caught("rerun_never", "tool_return", "ran 2 times");
}

#[test]
fn an_intent_that_is_answered_before_it_is_written_is_caught() {
    caught("answer_intent_early", "tool_return", "ran 2 times");
}

#[test]
fn b14_f08_a_paid_response_that_is_asked_for_again_is_caught() {
    caught("forget_response", "book.after", "paid for again");
}

#[test]
fn a_hold_without_an_end_is_caught() {
    caught("leak_hold", "request", "holds without an end");
}

#[test]
fn b80_a_total_below_what_the_provider_counted_is_caught_in_a_run_that_parks() {
    caught_in(Scenario::Parked, "release_cut", "response", "lower than the");
}

#[test]
fn b55_an_owner_that_goes_on_behind_the_fence_is_caught() {
    caught("no_fence", "tool_intent", "taken over came to");
}
