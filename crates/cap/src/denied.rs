//! The words in which money and limits say no. One closed set for every harness, in messages, records and `--json`.

use std::fmt;

use agentrun_kernel::Usd;
use serde::{Deserialize, Serialize};

/// Why a step may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// The run's cap has no room. The only one that parks: a raise lets the run go on.
    OverCap,
    /// The node's own budget has no room.
    OverBudget,
    /// The follow-up's reserve has no room.
    OverReserve,
    /// The catalog has no price for something the request may use.
    Unpriced,
    /// The request may spend without a bound that is known before it is sent.
    Unbounded,
    /// Something was spent and nobody can say how much.
    UnknownSpend,
    /// The node's turns are used up.
    TurnLimit,
    /// The turn's requests are used up.
    RequestLimit,
    /// The session is being stopped.
    Stopped,
    /// The host's own check said no.
    Host,
}

impl Word {
    /// Every word.
    pub const ALL: [Self; 10] = [
        Self::OverCap,
        Self::OverBudget,
        Self::OverReserve,
        Self::Unpriced,
        Self::Unbounded,
        Self::UnknownSpend,
        Self::TurnLimit,
        Self::RequestLimit,
        Self::Stopped,
        Self::Host,
    ];

    /// The word as records and JSON spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OverCap => "over_cap",
            Self::OverBudget => "over_budget",
            Self::OverReserve => "over_reserve",
            Self::Unpriced => "unpriced",
            Self::Unbounded => "unbounded",
            Self::UnknownSpend => "unknown_spend",
            Self::TurnLimit => "turn_limit",
            Self::RequestLimit => "request_limit",
            Self::Stopped => "stopped",
            Self::Host => "host",
        }
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the limit belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The run: all sessions under one cap.
    Run,
    /// The node, over all its attempts.
    Node,
    /// One follow-up.
    FollowUp,
    /// One turn.
    Turn,
    /// This one request or tool call.
    Request,
}

impl Scope {
    const fn noun(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Node => "node",
            Self::FollowUp => "follow-up",
            Self::Turn => "turn",
            Self::Request => "request",
        }
    }
}

/// A step was refused before anything of it was spent. Its text is one sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(deny_unknown_fields)]
pub struct Denied {
    /// Why.
    pub word: Word,
    /// The most the step can cost, where the refusal is about money.
    #[serde(default)]
    pub needed: Option<Usd>,
    /// What the limit has left; below zero when a bill came out above its quote.
    #[serde(default)]
    pub left: Option<Usd>,
    /// The limit.
    #[serde(default)]
    pub cap: Option<Usd>,
    /// What the limit belongs to.
    pub scope: Scope,
    /// What in particular: the model that has no price, the member that has no bound, the count that is used up, what of an amount was cut,
    /// the host's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
}

impl Denied {
    /// A refusal that is not about an amount.
    #[must_use]
    pub fn because(word: Word, scope: Scope, what: impl Into<String>) -> Self {
        Self { word, needed: None, left: None, cap: None, scope, what: Some(what.into()) }
    }

    /// What counts against the limit already: booked, held and unknown. `None` where the refusal is not about an amount.
    #[must_use]
    pub fn spent(&self) -> Option<Usd> {
        self.cap?.checked_sub(self.left?)
    }
}

/// Whether `needed` fits under `cap` beside what already counts against it.
///
/// # Errors
/// `Denied` under `word`, with the amounts.
pub fn fits(word: Word, scope: Scope, cap: Usd, counted: Usd, needed: Usd) -> Result<(), Denied> {
    // A sum outside the range of money fits under no cap: both sides saturate towards a refusal.
    if counted.checked_add(needed).is_some_and(|total| total <= cap) {
        return Ok(());
    }
    let left = cap.checked_sub(counted).unwrap_or(Usd::from_pico(i64::MIN));
    Err(Denied { word, needed: Some(needed), left: Some(left), cap: Some(cap), scope, what: None })
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = self.scope.noun();
        let what = self.what.as_deref().unwrap_or("no more is known");
        match (self.word, self.needed, self.left, self.cap) {
            (Word::OverCap | Word::OverBudget | Word::OverReserve, Some(needed), Some(left), Some(cap)) => {
                let cut = self.what.as_deref().map_or_else(String::new, |what| format!(" ({what})"));
                let (limit, then) = match self.word {
                    Word::OverBudget => ("budget", "run the node with a larger budget under another session"),
                    Word::OverReserve => ("reserve", "ask under another name, with a larger reserve"),
                    _ => ("cap", "raise the cap and resume"),
                };
                write!(
                    f,
                    "the step may cost up to ${needed} but the {noun} has ${left} left of its {limit} of ${cap}{cut}; {then}"
                )
            }
            (Word::OverCap, ..) => write!(f, "the {noun}'s cap has no room ({what}); raise the cap and resume"),
            (Word::OverBudget, ..) => write!(f, "the {noun}'s budget has no room ({what})"),
            (Word::OverReserve, ..) => write!(f, "the {noun}'s reserve has no room ({what})"),
            (Word::Unpriced, ..) => write!(f, "the price catalog cannot price this request: {what}"),
            (Word::Unbounded, ..) => write!(f, "nothing bounds what this request may cost: {what}"),
            (Word::UnknownSpend, ..) => {
                write!(f, "an earlier step of the {noun} spent an amount that nobody can tell: {what}")
            }
            (Word::TurnLimit, ..) => write!(f, "the {noun} has used up its turns ({what})"),
            (Word::RequestLimit, ..) => write!(f, "the {noun} has used up its requests ({what})"),
            (Word::Stopped, ..) => write!(f, "the session is being stopped ({what}); resume it to go on"),
            (Word::Host, ..) => write!(f, "the host refused the {noun}: {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usd(text: &str) -> Usd {
        text.parse().unwrap()
    }

    #[test]
    fn b74_the_words_are_a_closed_set_spelt_one_way_everywhere() {
        let spelt: Vec<_> = Word::ALL.iter().map(|w| w.as_str()).collect();
        assert_eq!(
            spelt.join(", "),
            "over_cap, over_budget, over_reserve, unpriced, unbounded, unknown_spend, turn_limit, request_limit, stopped, host"
        );
        for word in Word::ALL {
            assert_eq!(serde_json::to_value(word).unwrap(), word.as_str());
            assert_eq!(serde_json::from_value::<Word>(word.as_str().into()).unwrap(), word);
        }
    }

    #[test]
    fn b74_a_denial_about_money_says_needed_left_cap_and_what_to_do_in_one_sentence() {
        let denied = fits(Word::OverCap, Scope::Run, usd("1"), usd("0.75"), usd("0.3")).unwrap_err();
        assert_eq!(
            denied.to_string(),
            "the step may cost up to $0.3 but the run has $0.25 left of its cap of $1; raise the cap and resume"
        );
        assert_eq!(denied.spent(), Some(usd("0.75")));
        assert_eq!(
            serde_json::to_value(&denied).unwrap(),
            serde_json::json!({"word": "over_cap", "needed": "0.3", "left": "0.25", "cap": "1", "scope": "run"})
        );
    }

    #[test]
    fn every_word_has_a_sentence_that_names_what() {
        for word in Word::ALL {
            let text = Denied::because(word, Scope::Node, "the thing itself").to_string();
            assert!(text.contains("the thing itself"), "{text}");
            assert!(!text.ends_with('.') && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn b77_exactly_the_cap_fits_and_a_pico_more_does_not() {
        let (cap, counted) = (usd("1"), usd("0.4"));
        assert_eq!(fits(Word::OverCap, Scope::Run, cap, counted, usd("0.6")), Ok(()));
        assert!(fits(Word::OverCap, Scope::Run, cap, counted, usd("0.600000000001")).is_err());
        assert!(fits(Word::OverCap, Scope::Run, Usd::MAX, Usd::MAX, usd("0.000000000001")).is_err());
    }

    #[test]
    fn a_bill_above_its_quote_leaves_less_than_nothing() {
        let denied = fits(Word::OverCap, Scope::Run, usd("1"), usd("1.5"), usd("0")).unwrap_err();
        assert_eq!(denied.left, Some(usd("-0.5")));
        assert_eq!(denied.spent(), Some(usd("1.5")));
    }
}
