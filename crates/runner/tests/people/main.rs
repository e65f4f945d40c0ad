//! What people do to a session that runs or rests, and what is told of it: messages, events, live text. On the faux adapter.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a failed test is a report"
)]

mod events;
mod messages;
mod steer;
mod stop;
#[path = "../faux_node/world.rs"]
#[allow(dead_code, reason = "shared with the tests of whole nodes")]
mod world;
