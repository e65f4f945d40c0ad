//! The Codex adapter on the real program (0.171.0), against the scripted model server: turns, calls as effects, ends, and recovery into a
//! fresh home. Needs the program in AGENTRUN_CODEX; without it these tests fail and say so.
// Reason: a test says what is wrong by failing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod alone;
mod asked;
mod builtins;
mod ends;
mod harness;
mod pausing;
mod programs;
mod protocol;
mod recovery;
#[path = "../rig/mod.rs"]
mod rig;
mod steer;
mod steer_cut;
mod turns;
mod upstream;
#[path = "../rig/words.rs"]
mod words;
