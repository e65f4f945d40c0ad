//! Follow-ups on the faux adapter: one more turn in a session that has answered, at most once a name. A file a promise.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a failed test is a report"
)]

mod carry;
mod cut;
#[path = "../faux_node/logs.rs"]
#[allow(dead_code, reason = "each test binary uses its own part")]
mod logs;
mod once;
mod reserve;
mod stage;
#[path = "../faux_node/world.rs"]
#[allow(dead_code, reason = "each test binary uses its own part")]
mod world;
