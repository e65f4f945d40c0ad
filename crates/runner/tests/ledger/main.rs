//! A run's money over whole nodes: parked, raised and cut anywhere; shared by sessions, processes and what is left of them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a failed test is a report"
)]

mod budget;
mod parks;
mod shared;
mod tools;
mod two_processes;
#[path = "../faux_node/world.rs"]
#[allow(dead_code, reason = "each suite uses its own part")]
mod world;
