//! The verdicts: each model under all its rules, and once without each of them. A variant says what it must break and in how many steps;
//! whatever else breaks, or does not, or takes another number of steps, is unexpected.

use std::fmt::{self, Debug, Display};
use std::hash::Hash;

use stateright::Model;

use crate::explore::{Report, explore};

/// A model under some of its rules, and what its exploration must find.
#[derive(Debug)]
pub struct Variant<M> {
    /// What it goes without; [`WHOLE`] for the design.
    pub without: &'static str,
    /// The model.
    pub model: M,
    /// What breaks, each with the steps of a shortest way there; nothing else does before the last of them. Empty: all of it holds, in the
    /// whole space.
    pub breaks: &'static [(&'static str, usize)],
    /// What is no longer reached. Only a variant that breaks nothing is explored whole, and so can tell.
    pub loses: &'static [&'static str],
}

/// The name of the variant that leaves nothing out.
pub const WHOLE: &str = "nothing: all rules";

/// What one variant's exploration found, beside what it should have.
#[derive(Debug)]
pub struct Verdict {
    /// The model's name.
    pub model: &'static str,
    /// What the variant goes without.
    pub without: &'static str,
    /// What was found.
    pub report: Report,
    /// What was found and should not have been, and the other way round.
    pub unexpected: Vec<String>,
}

/// Explores one variant.
pub fn verdict<M>(model: &'static str, variant: &Variant<M>) -> Verdict
where
    M: Model,
    M::State: Hash,
    M::Action: Clone + Debug,
{
    let sought: Vec<_> = variant.breaks.iter().map(|(property, _)| *property).collect();
    let report = explore(&variant.model, &sought);
    let mut unexpected = Vec::new();
    let steps =
        |name: &str| report.broken.iter().find(|broken| broken.property == name).map(|broken| broken.trace.len());
    for (property, expected) in variant.breaks {
        match steps(property) {
            Some(found) if found == *expected => {}
            Some(found) => unexpected.push(format!("`{property}` breaks in {found} steps, not in {expected}")),
            None => unexpected.push(format!("nothing breaks `{property}`")),
        }
    }
    for broken in &report.broken {
        if !variant.breaks.iter().any(|(property, _)| *property == broken.property) {
            unexpected.push(format!("`{}` breaks in {} steps", broken.property, broken.trace.len()));
        }
    }
    let whole = sought.is_empty();
    let lost = variant.loses.iter().filter(|name| whole && !report.unreached.contains(name));
    unexpected.extend(lost.map(|name| format!("`{name}` is reached")));
    let unreached = report.unreached.iter().filter(|name| whole && !variant.loses.contains(name));
    unexpected.extend(unreached.map(|name| format!("`{name}` is never reached")));
    Verdict { model, without: variant.without, report, unexpected }
}

/// The head of the table whose rows a [`Verdict`] displays.
pub const HEAD: &str = "| model | without | states | what breaks | steps |\n| --- | --- | --- | --- | --- |";

impl Display for Verdict {
    /// One row for each thing that breaks or is lost.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<(String, String)> = Vec::new();
        for broken in &self.report.broken {
            rows.push((broken.property.to_owned(), broken.trace.len().to_string()));
        }
        rows.sort_by_key(|(_, steps)| steps.parse::<usize>().unwrap_or_default());
        // The design's own bounds say what each of them leaves out; a variant's loss is its finding.
        let tells = self.report.broken.is_empty() && !self.without.starts_with("nothing");
        for name in self.report.unreached.iter().filter(|_| tells) {
            rows.push((format!("never reached: {name}"), String::new()));
        }
        if rows.is_empty() {
            rows.push(("nothing".to_owned(), String::new()));
        }
        let mut first = format!("| {} | {} | {} ", self.model, self.without, thousands(self.report.states));
        for (at, (what, steps)) in rows.iter().enumerate() {
            let end = if at + 1 < rows.len() { "\n" } else { "" };
            write!(f, "{first}| {what} | {steps} |{end}")?;
            "| | | ".clone_into(&mut first);
        }
        Ok(())
    }
}

/// A number with a comma before every three digits.
#[must_use]
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
