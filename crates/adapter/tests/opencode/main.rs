//! The OpenCode adapter on the real program (1.18.33), against the scripted model server: turns, calls as effects, ends, and recovery into
//! a fresh home. Needs the program in AGENTRUN_OPENCODE; without it these tests fail and say so.
// Reason: a test says what is wrong by failing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod builtins;
mod ends;
mod harness;
mod large;
mod programs;
mod recovery;
mod relay;
#[path = "../rig/mod.rs"]
mod rig;
mod turns;
mod upstream;
