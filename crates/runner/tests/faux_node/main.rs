//! Nodes run whole on the faux adapter: no model, no network, no process (B48). A file a promise.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a failed test is a report"
)]

mod attempts;
mod bounds;
mod circles;
mod deliver;
mod logs;
mod prefixes;
mod resume;
mod runaway;
mod stub;
mod submit;
mod typed;
mod world;
