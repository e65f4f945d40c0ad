//! Records, logs, fenced writers, fold and decisions: what makes an agent session durable.

mod money;
mod usage;

pub use money::{PICO, Usd, UsdParseError};
pub use usage::{Iteration, Usage};
