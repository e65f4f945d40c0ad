//! The stores beyond the public conformance suite: tombstones and moves, each backend's own files, and real processes.
// A failed test is the report.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)]

mod backends;
mod damage;
mod process;
mod sled;
mod sqlite;
mod suite;
mod tombstone;
mod transfer;
mod transfer_file;
