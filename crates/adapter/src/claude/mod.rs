//! The adapter for Claude Code, as a child process that speaks JSON lines. Measured on 2.1.332.
//!
//! `launch` finds and starts it, `wire` is what is said, `transcript` and `history` read and mend what it writes, `barrier` holds effects back until it has, `session` and `turn` run it,
//! `steer` brings people's words into a turn that runs.

mod adapter;
mod barrier;
mod history;
mod launch;
mod session;
mod shown;
mod steer;
mod transcript;
mod turn;
mod wire;

pub use adapter::ClaudeAdapter;
pub use history::ClaudeHistory;
pub use launch::PROGRAM;
