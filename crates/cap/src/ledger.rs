//! A run's ledger, folded. Pure: who appends, and at which seq, is the gate's business. What holds here: a hold ends at most once,
//! whatever may have been spent counts until a record says otherwise, and no clock frees money.
//!
//! ```text
//!                ┌── booking (its price, above the quote too) ──▶ booked
//! hold (quote) ──┼── unknown ───────────────────────────────────▶ unknown, counts in full for ever
//!                ├── release (proof that nothing was spent) ────▶ gone
//!                └── decision (a host's, held under its id) ────▶ booked, its id known for ever
//! ```

mod totals;

use std::collections::{BTreeMap, HashMap};

use agentrun_kernel::{Epoch, HoldId, LedgerBody, Record, Seq, SessionKey, Usd};

use crate::denied::{Denied, Scope, Word, fits};
pub use totals::TOTALS_EVERY;

/// A hold that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The most its step can cost.
    pub quote: Usd,
    /// Who pays.
    pub session: SessionKey,
    /// Under which epoch.
    pub epoch: Epoch,
    /// What it pays for.
    pub what: String,
}

/// What became of a host's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// Held and not ended: it is being made, or who made it was cut.
    Held(Usd),
    /// Made, at this price.
    Made(Usd),
    /// Nobody can say; it counts in full, and its id is used up.
    Unknown(Usd),
}

/// The hold of a host's decision of this id.
#[must_use]
pub fn decision_hold(id: &str) -> HoldId {
    HoldId(format!("{DECISION}{id}"))
}

const DECISION: &str = "decision:";

/// A decision that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ended {
    session: SessionKey,
    amount: Usd,
    unknown: bool,
}

/// The state of a run's money after some prefix of its ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    seq: Seq,
    /// Where the last totals stand; 0 without any.
    totals_at: Seq,
    cap: Option<Usd>,
    booked: Usd,
    unknown: Usd,
    unknown_count: u64,
    held: Usd,
    above_quote: Usd,
    /// Hashed, so that an admit costs the same beside ten thousand of them.
    open: HashMap<HoldId, Held>,
    raises: BTreeMap<String, Usd>,
    decisions: BTreeMap<String, Ended>,
}

/// A record that no ledger of ours can hold at this place: the log is damaged or written by something else. Nothing of it was applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ledger record {seq}: {fault}; the run's money cannot be told from this ledger")]
pub struct LedgerFault {
    /// Where.
    pub seq: Seq,
    /// What.
    pub fault: Fault,
}

/// What is wrong with a ledger record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not the record after the last one folded.
    #[error("it does not follow record {0}")]
    Gap(Seq),
    /// The first record is not the cap, or a cap comes later.
    #[error("the cap is the first record and only that")]
    Cap,
    /// A hold with the id of one that is open.
    #[error("hold `{0}` is open already")]
    HeldTwice(HoldId),
    /// A hold ended that is not open: it never was, or it ended before.
    #[error("hold `{0}` is not open, so it cannot end here")]
    NotOpen(HoldId),
    /// An amount below zero.
    #[error("an amount below zero: {0}")]
    Negative(Usd),
    /// A sum outside the range of money.
    #[error("the sums leave the range of money")]
    Overflow,
    /// A raise or decision id with another amount than before.
    #[error("id `{0}` stands for another amount already")]
    Conflict(String),
    /// A raise that does not raise.
    #[error("a raise from {was:?} to {to}")]
    NotARaise {
        /// The cap before.
        was: Option<Usd>,
        /// The cap asked for.
        to: Usd,
    },
    /// A decision that ends a hold taken for another session.
    #[error("decision `{0}` was held for another session")]
    NotItsHold(String),
    /// A totals record that differs from the fold.
    #[error("totals that differ from the records before them")]
    Totals,
}

impl Books {
    /// Books of a log with no record yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Folds records in order. `fold(a ++ b)` is `fold(a)` then `fold(b)`.
    ///
    /// # Errors
    /// The first record that does not fit. The books stay as they were before that record.
    pub fn fold<'r>(&mut self, records: impl IntoIterator<Item = &'r Record<LedgerBody>>) -> Result<(), LedgerFault> {
        for record in records {
            self.apply(record).map_err(|fault| LedgerFault { seq: record.seq, fault })?;
        }
        Ok(())
    }

    fn apply(&mut self, record: &Record<LedgerBody>) -> Result<(), Fault> {
        if record.seq != self.seq.next() {
            return Err(Fault::Gap(self.seq));
        }
        self.check(&record.body)?;
        self.change(&record.body);
        self.seq = record.seq;
        if matches!(record.body, LedgerBody::Totals { .. }) {
            self.totals_at = record.seq;
        }
        Ok(())
    }

    /// Whether `body` may be the next record. A writer asks before it appends: a record that no fold takes would end the run's ledger.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, body: &LedgerBody) -> Result<(), Fault> {
        if (self.seq == Seq::START) != matches!(body, LedgerBody::Cap { .. }) {
            return Err(Fault::Cap);
        }
        match body {
            LedgerBody::Cap { cap } => cap.map_or(Ok(()), not_negative),
            LedgerBody::Hold { id, quote, .. } => {
                if self.open.contains_key(id) {
                    return Err(Fault::HeldTwice(id.clone()));
                }
                added(self.held, *quote).map(drop)
            }
            LedgerBody::Booking { hold, amount, .. } => {
                self.open_quote(hold)?;
                added(self.booked, *amount).map(drop)
            }
            LedgerBody::Release { hold, .. } => self.open_quote(hold).map(drop),
            LedgerBody::Unknown { hold, .. } => added(self.unknown, self.open_quote(hold)?).map(drop),
            LedgerBody::Decision { id, session, amount } => match (self.decisions.get(id), self.decision_held(id)) {
                (Some(known), _) if known.session == *session && known.amount == *amount && !known.unknown => Ok(()),
                (Some(_), _) => Err(Fault::Conflict(id.clone())),
                (None, Some(held)) if held.session != *session => Err(Fault::NotItsHold(id.clone())),
                (None, _) => added(self.booked, *amount).map(drop),
            },
            LedgerBody::Raise { id, cap } => match self.raises.get(id) {
                Some(known) if known == cap => Ok(()),
                Some(_) => Err(Fault::Conflict(id.clone())),
                None if self.cap.is_none_or(|was| *cap <= was) => Err(Fault::NotARaise { was: self.cap, to: *cap }),
                None => Ok(()),
            },
            totals @ LedgerBody::Totals { .. } => {
                if *totals == self.totals() {
                    Ok(())
                } else {
                    Err(Fault::Totals)
                }
            }
        }
    }

    /// What a record that was checked changes.
    fn change(&mut self, body: &LedgerBody) {
        match body {
            LedgerBody::Cap { cap } => self.cap = *cap,
            LedgerBody::Hold { id, session, epoch, what, quote, .. } => {
                let held = Held { quote: *quote, session: session.clone(), epoch: *epoch, what: what.clone() };
                self.hold(id.clone(), held);
            }
            LedgerBody::Booking { hold, amount, .. } => {
                let quote = self.end(hold).map_or(Usd::ZERO, |held| held.quote);
                self.book(*amount, quote);
            }
            LedgerBody::Release { hold, .. } => {
                self.end(hold);
            }
            LedgerBody::Unknown { hold, .. } => {
                let Some(held) = self.end(hold) else { return };
                self.unknown = self.unknown.saturating_add(held.quote);
                self.unknown_count = self.unknown_count.saturating_add(1);
                if let Some(id) = hold.as_str().strip_prefix(DECISION) {
                    let ended = Ended { session: held.session, amount: held.quote, unknown: true };
                    self.decisions.insert(id.to_owned(), ended);
                }
            }
            LedgerBody::Decision { id, session, amount } => {
                if self.decisions.contains_key(id) {
                    return;
                }
                // Without a hold nothing was quoted, so nothing is above it.
                let quote = self.end(&decision_hold(id)).map_or(*amount, |held| held.quote);
                self.book(*amount, quote);
                let ended = Ended { session: session.clone(), amount: *amount, unknown: false };
                self.decisions.insert(id.clone(), ended);
            }
            LedgerBody::Raise { id, cap } => {
                if self.raises.insert(id.clone(), *cap).is_none() {
                    self.cap = Some(*cap);
                }
            }
            LedgerBody::Totals { .. } => {}
        }
    }

    fn hold(&mut self, id: HoldId, held: Held) {
        self.held = self.held.saturating_add(held.quote);
        self.open.insert(id, held);
    }

    fn end(&mut self, id: &HoldId) -> Option<Held> {
        let held = self.open.remove(id)?;
        self.held = self.held.checked_sub(held.quote).unwrap_or_default();
        Some(held)
    }

    /// A bill above its quote is booked as it is: the truth counts, and the excess is on record.
    fn book(&mut self, amount: Usd, quote: Usd) {
        self.booked = self.booked.saturating_add(amount);
        let excess = amount.checked_sub(quote).unwrap_or(Usd::ZERO).max(Usd::ZERO);
        self.above_quote = self.above_quote.saturating_add(excess);
    }

    fn open_quote(&self, id: &HoldId) -> Result<Usd, Fault> {
        self.open.get(id).map(|held| held.quote).ok_or_else(|| Fault::NotOpen(id.clone()))
    }

    fn decision_held(&self, id: &str) -> Option<&Held> {
        self.open.get(&decision_hold(id))
    }

    /// Whether a step of this quote may begin: `booked + held + unknown + quote ≤ cap`. The hold must then land at the seq after
    /// [`Books::seq`], or the answer is void: fold the tail and ask again.
    ///
    /// # Errors
    /// [`Word::OverCap`] with the amounts. A quote below zero, or one with which the sums leave the range of money, is refused with or
    /// without a cap: its record would be one that no fold takes.
    pub fn admit(&self, quote: Usd) -> Result<(), Denied> {
        if quote.is_negative() {
            return Err(Denied::because(Word::Unpriced, Scope::Request, format!("a quote below zero: ${quote}")));
        }
        match self.cap {
            None if self.counted().checked_add(quote).is_none() => {
                let what = format!("with its quote of ${quote} the run's sums leave the range of money");
                Err(Denied::because(Word::Unbounded, Scope::Run, what))
            }
            None => Ok(()),
            Some(cap) => fits(Word::OverCap, Scope::Run, cap, self.counted(), quote),
        }
    }

    /// The last record folded: a hold that rests on these books is appended expecting this seq.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// The cap; `None` is no cap.
    #[must_use]
    pub fn cap(&self) -> Option<Usd> {
        self.cap
    }

    /// Bookings and decisions.
    #[must_use]
    pub fn booked(&self) -> Usd {
        self.booked
    }

    /// Open holds, at their quotes.
    #[must_use]
    pub fn held(&self) -> Usd {
        self.held
    }

    /// Holds of which nobody can say what was spent, at their quotes.
    #[must_use]
    pub fn unknown(&self) -> Usd {
        self.unknown
    }

    /// How many of those.
    #[must_use]
    pub fn unknown_count(&self) -> u64 {
        self.unknown_count
    }

    /// By how much bills came out above their quotes in all. Above zero is a bug in a quote or a catalog, to be shown.
    #[must_use]
    pub fn above_quote(&self) -> Usd {
        self.above_quote
    }

    /// All that counts against the cap.
    #[must_use]
    pub fn counted(&self) -> Usd {
        self.booked.saturating_add(self.held).saturating_add(self.unknown)
    }

    /// What the cap has left, below zero after a bill above its quote; `None` without a cap.
    #[must_use]
    pub fn left(&self) -> Option<Usd> {
        self.cap.map(|cap| cap.checked_sub(self.counted()).unwrap_or(Usd::from_pico(i64::MIN)))
    }

    /// The hold of this id, while it is open.
    #[must_use]
    pub fn open(&self, id: &HoldId) -> Option<&Held> {
        self.open.get(id)
    }

    /// Every open hold, in no order.
    pub fn open_holds(&self) -> impl Iterator<Item = (&HoldId, &Held)> {
        self.open.iter()
    }

    /// Open holds of a session under an epoch before `epoch`: their owner is gone, and only a newer one may say how they ended. Epoch 0 is no
    /// owner's: what a proxy or a host holds in a session's name is not that session's to end.
    pub fn abandoned<'b>(
        &'b self,
        session: &'b SessionKey,
        epoch: Epoch,
    ) -> impl Iterator<Item = (&'b HoldId, &'b Held)> {
        self.open
            .iter()
            .filter(move |(_, held)| held.session == *session && held.epoch > Epoch(0) && held.epoch < epoch)
    }

    /// The cap that an earlier raise of this id set.
    #[must_use]
    pub fn raise(&self, id: &str) -> Option<Usd> {
        self.raises.get(id).copied()
    }

    /// What became of the decision of this id; `None`: nobody began it, or it was released.
    #[must_use]
    pub fn decision(&self, id: &str) -> Option<Decided> {
        match self.decisions.get(id) {
            Some(ended) if ended.unknown => Some(Decided::Unknown(ended.amount)),
            Some(ended) => Some(Decided::Made(ended.amount)),
            None => self.decision_held(id).map(|held| Decided::Held(held.quote)),
        }
    }

    /// The session that the decision of this id is or was made for.
    #[must_use]
    pub fn decision_session(&self, id: &str) -> Option<&SessionKey> {
        let ended = self.decisions.get(id).map(|ended| &ended.session);
        ended.or_else(|| self.decision_held(id).map(|held| &held.session))
    }
}

fn not_negative(amount: Usd) -> Result<(), Fault> {
    if amount.is_negative() { Err(Fault::Negative(amount)) } else { Ok(()) }
}

fn added(sum: Usd, amount: Usd) -> Result<Usd, Fault> {
    not_negative(amount)?;
    sum.checked_add(amount).ok_or(Fault::Overflow)
}
