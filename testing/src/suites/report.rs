//! What a suite found: a line a case, to read or as JSON. A case that could not run is in it with what it lacked; nothing is left out.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// What a suite found on one implementation. Prints as a table, serialises for a machine.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The suite.
    pub suite: &'static str,
    /// What it ran on, as its caller named it.
    pub subject: String,
    /// What the caller said can be done to the subject; the other abilities are in the skipped cases.
    pub abilities: Vec<&'static str>,
    /// Every case of the suite, in its order.
    pub cases: Vec<CaseReport>,
}

/// One case of a report.
#[derive(Clone, Debug, Serialize)]
pub struct CaseReport {
    /// Its name: the promise as a sentence.
    pub name: &'static str,
    /// How it ended.
    pub verdict: Verdict,
    /// How long it took.
    pub took_ms: u64,
    /// Figures it counted, in words; often empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The promise held.
    Passed,
    /// It did not, and this is what was seen.
    Failed(String),
    /// Not run: the subject was given without this ability.
    Skipped(&'static str),
}

impl Report {
    /// Whether no case failed. Skipped ones are [`Report::skipped`]'s.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failed().is_empty()
    }

    /// Names of the cases that failed, in the suite's order.
    #[must_use]
    pub fn failed(&self) -> Vec<&'static str> {
        self.named(|verdict| matches!(verdict, Verdict::Failed(_)))
    }

    /// Names of the cases that did not run.
    #[must_use]
    pub fn skipped(&self) -> Vec<&'static str> {
        self.named(|verdict| matches!(verdict, Verdict::Skipped(_)))
    }

    /// As one line of JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        // A report holds texts and numbers only, so this cannot fail; an empty line would show that it did.
        serde_json::to_string(self).unwrap_or_default()
    }

    fn named(&self, wanted: impl Fn(&Verdict) -> bool) -> Vec<&'static str> {
        self.cases.iter().filter(|case| wanted(&case.verdict)).map(|case| case.name).collect()
    }
}

impl CaseReport {
    pub(super) fn new(name: &'static str, verdict: Verdict, took: Duration, note: String) -> Self {
        Self { name, verdict, took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX), note }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failed, skipped) = (self.failed().len(), self.skipped().len());
        let passed = self.cases.len() - failed - skipped;
        writeln!(f, "{} suite on {}: {passed} passed, {failed} failed, {skipped} skipped", self.suite, self.subject)?;
        let abilities = if self.abilities.is_empty() { "none".to_owned() } else { self.abilities.join(", ") };
        writeln!(f, "abilities given: {abilities}")?;
        for case in &self.cases {
            let (word, why) = match &case.verdict {
                Verdict::Passed => ("ok", String::new()),
                Verdict::Failed(why) => ("FAILED", format!("\n          {}", why.replace('\n', "\n          "))),
                Verdict::Skipped(ability) => ("skipped", format!("  needs: {ability}")),
            };
            let note = if case.note.is_empty() { String::new() } else { format!("  ({})", case.note) };
            writeln!(f, "{word:>8}  {:>6} ms  {}{note}{why}", case.took_ms, case.name)?;
        }
        Ok(())
    }
}
