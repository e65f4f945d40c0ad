//! Parts for testing agentrun hosts and adapters, each behind a feature of its name.
//!
//! * [`script`]: what a model answers, written down beforehand (with `faux` or `scripted`).
//! * [`scripted`]: a model server on loopback that plays a script; also the program `agentrun-scripted-model`.

#[cfg(any(feature = "faux", feature = "scripted"))]
pub mod script;
#[cfg(feature = "scripted")]
pub mod scripted;
