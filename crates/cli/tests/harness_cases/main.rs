//! The main job on the real harness programs, from outside, through the built binary: delivered, killed at any point, taken over,
//! refused by its provider. Each test is a case of the table this program was built to; its rows of the contract are in its name.
//!
//! Each case is written once and is a test of every harness it names. `testing/run` installs the programs and names them in
//! `AGENTRUN_CLAUDE`, `AGENTRUN_CODEX` and `AGENTRUN_OPENCODE`; without them these tests fail.
// A test that meets one of these has failed, which is what they are for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod canary;
mod capped;
mod delivered;
mod harness;
mod killed;
mod later_turns;
mod moments;
mod moved;
mod processes;
mod programs;
mod runaway;
mod steered;
mod submit;
mod takeover;
mod upstream;
mod world;
