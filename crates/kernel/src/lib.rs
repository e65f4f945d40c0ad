//! Records, logs, fenced writers, fold and decisions: what makes an agent session durable.

#[cfg(feature = "crossings")]
pub mod crossings;
#[cfg(not(feature = "crossings"))]
mod no_crossings;

mod ids;
mod money;
mod record;
mod session;
mod store;
mod usage;

pub use ids::*;
pub use money::{PICO, Usd, UsdParseError};
pub use record::*;
pub use session::*;
pub use store::*;
pub use usage::{Iteration, Usage};
