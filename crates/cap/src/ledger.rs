//! A run's ledger, folded. Pure: who appends, and at which seq, is the gate's business. What holds here: a hold ends at most once,
//! whatever may have been spent counts until a record says otherwise, and no clock frees money.
//!
//! ```text
//!                ┌── booking (its price, above the quote too) ──▶ booked
//! hold (quote) ──┼── unknown ───────────────────────────────────▶ unknown, counts in full for ever
//!                └── release (proof that nothing was spent) ────▶ gone
//! ```

use std::collections::BTreeMap;

use agentrun_kernel::{Epoch, HoldId, LedgerBody, Record, Seq, SessionKey, Usd};

use crate::denied::{Denied, Scope, Word, fits};

/// A hold that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The most its step can cost.
    pub quote: Usd,
    /// Who pays, and under which epoch. `None` when only a totals record names the hold.
    pub owner: Option<(SessionKey, Epoch)>,
    /// What it pays for. `None` as above.
    pub what: Option<String>,
}

/// The state of a run's money after some prefix of its ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    seq: Seq,
    cap: Option<Usd>,
    booked: Usd,
    unknown: Usd,
    unknown_count: u64,
    held: Usd,
    above_quote: Usd,
    open: BTreeMap<HoldId, Held>,
    raises: BTreeMap<String, Usd>,
    decisions: BTreeMap<String, (SessionKey, Usd)>,
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

    /// Books that begin at a totals record instead of the first one, so that a long ledger opens fast. They know the sums and the open
    /// holds, not who owns these, nor the ids of earlier raises and decisions: to raise or decide, fold from the start.
    ///
    /// # Errors
    /// [`Fault::Totals`] when the record is not a totals record, [`Fault::Overflow`] and [`Fault::Negative`] when its sums cannot be.
    pub fn from_totals(record: &Record<LedgerBody>) -> Result<Self, LedgerFault> {
        let fault = |fault| LedgerFault { seq: record.seq, fault };
        let LedgerBody::Totals { cap, booked, unknown, unknown_count, open } = &record.body else {
            return Err(fault(Fault::Totals));
        };
        let mut books = Self {
            seq: record.seq,
            cap: *cap,
            booked: not_negative(*booked).map_err(fault)?,
            unknown: not_negative(*unknown).map_err(fault)?,
            unknown_count: *unknown_count,
            ..Self::default()
        };
        for (id, quote) in open {
            books.hold(id, Held { quote: *quote, owner: None, what: None }).map_err(fault)?;
        }
        Ok(books)
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

    /// One record: every check comes before the first change.
    fn apply(&mut self, record: &Record<LedgerBody>) -> Result<(), Fault> {
        if record.seq != self.seq.next() {
            return Err(Fault::Gap(self.seq));
        }
        if (record.seq == Seq::START.next()) != matches!(record.body, LedgerBody::Cap { .. }) {
            return Err(Fault::Cap);
        }
        match &record.body {
            LedgerBody::Cap { cap } => self.cap = cap.map(not_negative).transpose()?,
            LedgerBody::Hold { id, session, epoch, what, quote, .. } => {
                self.hold(
                    id,
                    Held { quote: *quote, owner: Some((session.clone(), *epoch)), what: Some(what.clone()) },
                )?;
            }
            LedgerBody::Booking { hold, amount, .. } => {
                let quote = self.open_quote(hold)?;
                let amount = not_negative(*amount)?;
                let booked = self.booked.checked_add(amount).ok_or(Fault::Overflow)?;
                // A bill above its quote is booked as it is: the truth counts, and the excess is on record.
                let excess = amount.checked_sub(quote).unwrap_or(Usd::ZERO).max(Usd::ZERO);
                self.end(hold)?;
                self.booked = booked;
                self.above_quote = self.above_quote.saturating_add(excess);
            }
            LedgerBody::Release { hold, .. } => {
                self.end(hold)?;
            }
            LedgerBody::Unknown { hold, .. } => {
                let unknown = self.unknown.checked_add(self.open_quote(hold)?).ok_or(Fault::Overflow)?;
                self.end(hold)?;
                self.unknown = unknown;
                self.unknown_count = self.unknown_count.saturating_add(1);
            }
            LedgerBody::Decision { id, session, amount } => {
                let entry = (session.clone(), not_negative(*amount)?);
                match self.decisions.get(id) {
                    Some(known) if *known == entry => {}
                    Some(_) => return Err(Fault::Conflict(id.clone())),
                    None => {
                        self.booked = self.booked.checked_add(entry.1).ok_or(Fault::Overflow)?;
                        self.decisions.insert(id.clone(), entry);
                    }
                }
            }
            LedgerBody::Raise { id, cap } => match self.raises.get(id) {
                Some(known) if known == cap => {}
                Some(_) => return Err(Fault::Conflict(id.clone())),
                None if self.cap.is_none_or(|was| *cap <= was) => {
                    return Err(Fault::NotARaise { was: self.cap, to: *cap });
                }
                None => {
                    self.cap = Some(*cap);
                    self.raises.insert(id.clone(), *cap);
                }
            },
            totals @ LedgerBody::Totals { .. } => {
                if *totals != self.totals() {
                    return Err(Fault::Totals);
                }
            }
        }
        self.seq = record.seq;
        Ok(())
    }

    fn hold(&mut self, id: &HoldId, held: Held) -> Result<(), Fault> {
        if self.open.contains_key(id) {
            return Err(Fault::HeldTwice(id.clone()));
        }
        self.held = self.held.checked_add(not_negative(held.quote)?).ok_or(Fault::Overflow)?;
        self.open.insert(id.clone(), held);
        Ok(())
    }

    fn open_quote(&self, id: &HoldId) -> Result<Usd, Fault> {
        self.open.get(id).map(|held| held.quote).ok_or_else(|| Fault::NotOpen(id.clone()))
    }

    fn end(&mut self, id: &HoldId) -> Result<(), Fault> {
        let quote = self.open_quote(id)?;
        self.held = self.held.checked_sub(quote).ok_or(Fault::Overflow)?;
        self.open.remove(id);
        Ok(())
    }

    /// Whether a step of this quote may begin: `booked + held + unknown + quote ≤ cap`. The hold must then land at the seq after
    /// [`Books::seq`], or the answer is void: fold the tail and ask again.
    ///
    /// # Errors
    /// [`Word::OverCap`] with the amounts.
    pub fn admit(&self, quote: Usd) -> Result<(), Denied> {
        match self.cap {
            None => Ok(()),
            Some(cap) => fits(Word::OverCap, Scope::Run, cap, self.counted(), quote),
        }
    }

    /// The totals record that stands for these books.
    #[must_use]
    pub fn totals(&self) -> LedgerBody {
        LedgerBody::Totals {
            cap: self.cap,
            booked: self.booked,
            unknown: self.unknown,
            unknown_count: self.unknown_count,
            open: self.open.iter().map(|(id, held)| (id.clone(), held.quote)).collect(),
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

    /// Every open hold.
    pub fn open_holds(&self) -> impl Iterator<Item = (&HoldId, &Held)> {
        self.open.iter()
    }

    /// Open holds of a session under an epoch before `epoch`: their owner is gone, so whoever opened the session anew records each as
    /// unknown.
    pub fn abandoned<'b>(&'b self, session: &'b SessionKey, epoch: Epoch) -> impl Iterator<Item = &'b HoldId> {
        self.open
            .iter()
            .filter(move |(_, held)| {
                held.owner.as_ref().is_some_and(|(owner, held_at)| owner == session && *held_at < epoch)
            })
            .map(|(id, _)| id)
    }

    /// The cap that an earlier raise of this id set.
    #[must_use]
    pub fn raise(&self, id: &str) -> Option<Usd> {
        self.raises.get(id).copied()
    }

    /// The amount of an earlier decision of this id.
    #[must_use]
    pub fn decision(&self, id: &str) -> Option<Usd> {
        self.decisions.get(id).map(|(_, amount)| *amount)
    }
}

fn not_negative(amount: Usd) -> Result<Usd, Fault> {
    if amount.is_negative() { Err(Fault::Negative(amount)) } else { Ok(amount) }
}
