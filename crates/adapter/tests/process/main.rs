//! What the process layer promises, on real processes: everything ends, output stays aligned, strays are found.
// A failed test is a report: tests may unwrap, index and panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod cgroup;
mod commands;
mod lifetime;
mod output;
mod support;
mod sweep;
