//! The Claude Code adapter on the real program (2.1.332), against the scripted model server: turns, calls as effects, ends, and recovery
//! into a fresh home. Needs the program in AGENTRUN_CLAUDE; without it these tests fail and say so.
// Reason: a test says what is wrong by failing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod ends;
mod harness;
mod recovery;
#[path = "../rig/mod.rs"]
mod rig;
mod steer;
mod steer_cut;
mod turns;
#[path = "../rig/words.rs"]
mod words;
