//! The adapter conformance suite on the faux adapter, and the suite itself against adapters that each break one promise.
// A failed test is the report.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)]

#[path = "adapter/mutants.rs"]
mod mutants;
#[path = "adapter/subjects.rs"]
mod subjects;

mod faux {
    use std::sync::Arc;

    use agentrun_testing::suites::adapter::Options;

    use crate::subjects::Faux;

    agentrun_testing::adapter_conformance!(Arc::new(Faux), Options::default());
}
