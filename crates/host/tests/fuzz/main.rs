//! The readers of foreign bytes behind the head, under bytes of every kind: strict JSON, what the policies read of a request, and the taps that
//! read usage off an answer. (The head's harness is beside it, in `src/head`, and uses the same corpus and changes.)
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs,
    reason = "a failed test is a report"
)]

mod changed;
mod facts;
mod json;
mod taps;
mod tree;
mod written;
