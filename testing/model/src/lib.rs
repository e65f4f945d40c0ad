//! A bounded model of the protocol by which sessions stay whole: fences, batches across a session's log and its run's ledger, barriers,
//! recorded responses, placement and the cap. Two models, each explored whole, with a mutant for every rule.

mod explore;
pub mod ledger;
pub mod session;

pub use explore::{Broken, Report, explore};
