//! The `agentrun` program.
fn main() {}
