//! The adapter for Claude Code, as a child process that speaks JSON lines. Measured on 2.1.332.
//!
//! `launch` finds and starts it, `wire` is what is said, `transcript` and `history` read and mend what it writes, `session` runs turns.

mod history;
mod launch;
mod response;
mod transcript;
mod wire;

pub use history::ClaudeHistory;
pub use launch::{
    OLDEST, PINNED, PROGRAM_VARIABLE, Program, ProgramError, TOO_NEW, Version, find, program, version_of,
};
