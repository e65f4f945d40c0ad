//! The adapter for Codex, as a child process that speaks JSON lines (`codex app-server`). Measured on 0.171.0.
//!
//! `launch` says how it is started, `wire` what is said, `schema` what of a tool it can carry, `rollout` and `history` read and mend what it
//! writes, `barrier` holds effects back until it has (`index`: what it has so far), `session` and `turn` run it.

mod adapter;
mod barrier;
mod history;
mod index;
mod launch;
mod response;
mod rollout;
mod schema;
mod session;
mod steer;
mod turn;
mod wire;

pub use adapter::CodexAdapter;
pub use history::CodexHistory;
pub use launch::PROGRAM;
