//! Parts for testing agentrun hosts and adapters, each behind a feature of its name.
//!
//! * [`faux`]: an adapter that plays a script with no process and no network.
//! * [`script`]: what a model answers, written down beforehand (with `faux` or `scripted`).
//! * [`scripted`]: a model server on loopback that plays a script; also the program `agentrun-scripted-model`.
//! * [`suites`]: what a store and an adapter must do, as cases to run on one of your own; with the programs `agentrun-faulty-stdio` (stands
//!   between an adapter and its program) and `agentrun-fake-claude` (speaks a harness's wire with chosen orders and faults).
//! * [`sweep`]: the crash sweep, with its program `agentrun-crash-sweep`; in a build of its own.

#[cfg(feature = "faux")]
pub mod faux;
#[cfg(any(feature = "faux", feature = "scripted"))]
pub mod script;
#[cfg(feature = "scripted")]
pub mod scripted;
#[cfg(feature = "suites")]
pub mod suites;
#[cfg(feature = "sweep")]
pub mod sweep;
