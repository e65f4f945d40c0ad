//! People at a session of a real harness program, from outside, through the built binary: words sent while it runs and while it rests,
//! words taken back, Ctrl-C in the middle of a tool. Each case is a test of every harness it names.
//!
//! `testing/run` installs the programs and names them in `AGENTRUN_CLAUDE`, `AGENTRUN_CODEX` and `AGENTRUN_OPENCODE`; without them these
//! tests fail.
// A test that meets one of these has failed, which is what they are for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

#[path = "../harness_cases/harness.rs"]
#[allow(dead_code, reason = "shared with the cases of the main job")]
mod harness;
mod messages;
#[path = "../harness_cases/processes.rs"]
#[allow(dead_code, reason = "shared with the cases of the main job")]
mod processes;
mod stopped;
#[path = "../harness_cases/world.rs"]
#[allow(dead_code, reason = "shared with the cases of the main job")]
mod world;
