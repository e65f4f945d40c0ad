//! Conformance suites: what an implementation of one of agentrun's traits must do, as cases anybody can run on theirs. Each suite is
//! itself proven by mutants that it must catch.

pub mod adapter;
mod failure;
mod report;
pub mod store;

pub use report::{CaseReport, Report, Verdict};
