//! What follows a refusal: whether the run parks, what raise would let it go on, whether a follow-up may spend. Pure decisions; the
//! records they lead to are written by the caller.

use agentrun_kernel::{LedgerBody, Usd};
use serde::{Deserialize, Serialize};

use crate::denied::{Denied, Scope, Word, fits};
use crate::ledger::Books;

/// A run waits for a raise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Park {
    /// The quote of the step that did not fit.
    pub needed: Usd,
    /// The cap it did not fit under.
    pub cap: Usd,
    /// What counted against the cap: booked, held and unknown.
    pub spent: Usd,
}

impl Park {
    /// The smallest cap under which the step would have fitted.
    #[must_use]
    pub fn minimum(&self) -> Usd {
        self.spent.saturating_add(self.needed)
    }
}

/// Whether a refusal parks its session. Only the run's cap does: every other limit belongs to the node, and a raise cannot move it.
#[must_use]
pub fn park_of(denied: &Denied) -> Option<Park> {
    match (denied.word, denied.needed, denied.cap, denied.spent()) {
        (Word::OverCap, Some(needed), Some(cap), Some(spent)) => Some(Park { needed, cap, spent }),
        _ => None,
    }
}

/// Why a raise is refused. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RaiseError {
    /// The run has no cap.
    #[error("the run has no cap, so there is nothing to raise")]
    NoCap,
    /// Not above the cap, or not enough for the step that waits.
    #[error("a cap of ${asked} would not do; ask for ${minimum} or more")]
    BelowMinimum {
        /// The cap asked for.
        asked: Usd,
        /// The least that is taken: above the cap, and where a step waits with room to ask for it again.
        minimum: Usd,
    },
    /// The id was used for another cap.
    #[error("raise `{id}` set the cap to ${recorded} already; use another id to set it to ${asked}")]
    Conflict {
        /// The id.
        id: String,
        /// The cap on record.
        recorded: Usd,
        /// The cap asked for.
        asked: Usd,
    },
}

/// Checks a raise of the run's cap to `cap`. `needed` is the quote of the step that waits, when the run is parked: room for it beside
/// all that counts is part of the minimum. Answers the record to append at the seq after [`Books::seq`] (conflict: fold the tail and check
/// again), or `None` when the same raise is on record already.
///
/// # Errors
/// [`RaiseError`] says the least that would do, or what the id stands for.
pub fn check_raise(books: &Books, id: &str, cap: Usd, needed: Option<Usd>) -> Result<Option<LedgerBody>, RaiseError> {
    match books.raise(id) {
        Some(recorded) if recorded == cap => return Ok(None),
        Some(recorded) => return Err(RaiseError::Conflict { id: id.to_owned(), recorded, asked: cap }),
        None => {}
    }
    let current = books.cap().ok_or(RaiseError::NoCap)?;
    let above = current.saturating_add(Usd::from_pico(1));
    let minimum = needed.map_or(above, |needed| above.max(books.counted().saturating_add(needed)));
    if cap < minimum {
        return Err(RaiseError::BelowMinimum { asked: cap, minimum });
    }
    Ok(Some(LedgerBody::Raise { id: id.to_owned(), cap }))
}

/// Whether a paid request of a follow-up may begin: nothing of the session may be unknown (B64), and what the follow-up spent since its
/// first request, with this quote, stays within its reserve (B63). The run's cap is asked beside this, never instead.
///
/// # Errors
/// [`Word::UnknownSpend`] or [`Word::OverReserve`].
pub fn follow_up_of(unknown_count: u64, reserve: Option<Usd>, spent: Usd, quote: Usd) -> Result<(), Denied> {
    if unknown_count > 0 {
        let what = format!("{unknown_count} of its requests ended without a bill");
        return Err(Denied::because(Word::UnknownSpend, Scope::FollowUp, what));
    }
    reserve.map_or(Ok(()), |reserve| fits(Word::OverReserve, Scope::FollowUp, reserve, spent, quote))
}
