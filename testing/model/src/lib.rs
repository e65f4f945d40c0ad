//! A bounded model of the protocol by which sessions stay whole: small models, one idea each, every one explored whole, with a variant
//! without each of its rules that must break. `verdicts` says what breaks and how soon.

pub mod calls;
mod explore;
pub mod ledger;
pub mod prompts;
pub mod session;
pub mod verdicts;

pub use explore::{Broken, Report, explore};
use verdicts::verdict;
pub use verdicts::{Variant, Verdict};

/// Explores the variants of one model that are wanted, and tells each verdict as it is found.
pub type Explore = fn(wanted: &dyn Fn(&str) -> bool, tell: &mut dyn FnMut(Verdict));

/// The models, by name.
pub const MODELS: &[(&str, Explore)] = &[
    ("session", |wanted, tell| each("session", session::variants(), wanted, tell)),
    ("ledger", |wanted, tell| each("ledger", ledger::variants(), wanted, tell)),
    ("prompts", |wanted, tell| each("prompts", prompts::variants(), wanted, tell)),
    ("calls", |wanted, tell| each("calls", calls::variants(), wanted, tell)),
];

fn each<M>(name: &'static str, variants: Vec<Variant<M>>, wanted: &dyn Fn(&str) -> bool, tell: &mut dyn FnMut(Verdict))
where
    M: stateright::Model,
    M::State: std::hash::Hash,
    M::Action: Clone + std::fmt::Debug,
{
    variants.iter().filter(|variant| wanted(variant.without)).for_each(|variant| tell(verdict(name, variant)));
}
