//! The main job on the real Claude Code program, from outside, through the built binary: delivered, killed at any point, taken over,
//! refused by its provider. Each test is a case of the table this program was built to; its rows of the contract are in its name.
//!
//! `testing/run` installs the program and names it in `AGENTRUN_CLAUDE`; without it these tests fail.
// A test that meets one of these has failed, which is what they are for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod canary;
mod delivered;
mod killed;
mod later_turns;
mod moved;
mod processes;
mod submit;
mod takeover;
mod upstream;
mod world;
