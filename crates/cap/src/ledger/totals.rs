//! Totals: one record that stands for all before it, so that a long ledger opens at its end. Equal to the fold wherever they are folded,
//! and complete: books that begin at one know every open hold with its payer and every used id.

use agentrun_kernel::{LedgerBody, Record, Seq, TotalsDecision, TotalsKnown, TotalsPayer};

use super::{Books, Ended, Fault, Held, LedgerFault, added};

/// Records between two totals: what an open folds at most, beside the totals themselves.
pub const TOTALS_EVERY: u64 = 512;
/// Most entries of a totals record, so that it stays far below the bound of a record. A ledger with more is folded from further back.
const ENTRIES: usize = 50_000;

impl Books {
    /// Books that begin at a totals record instead of the first one. The same as folding all records up to it.
    ///
    /// # Errors
    /// [`Fault::Totals`] when the record is not a totals record or does not say who pays for each hold, [`Fault::HeldTwice`],
    /// [`Fault::Overflow`] and [`Fault::Negative`] when its sums cannot be.
    pub fn from_totals(record: &Record<LedgerBody>) -> Result<Self, LedgerFault> {
        Self::begin_at(record).map_err(|fault| LedgerFault { seq: record.seq, fault })
    }

    fn begin_at(record: &Record<LedgerBody>) -> Result<Self, Fault> {
        let LedgerBody::Totals { cap, booked, unknown, unknown_count, open, known } = &record.body else {
            return Err(Fault::Totals);
        };
        if open.len() != known.payers.len() {
            return Err(Fault::Totals);
        }
        for amount in [booked, unknown, &known.above_quote].into_iter().chain(cap) {
            super::not_negative(*amount)?;
        }
        let mut books = Self {
            seq: record.seq,
            totals_at: record.seq,
            cap: *cap,
            booked: *booked,
            unknown: *unknown,
            unknown_count: *unknown_count,
            above_quote: known.above_quote,
            raises: known.raises.iter().cloned().collect(),
            ..Self::default()
        };
        for made in &known.decisions {
            let TotalsDecision { id, session, amount, unknown } = made.clone();
            books.decisions.insert(id, Ended { session, amount, unknown });
        }
        for ((id, quote), payer) in open.iter().zip(&known.payers) {
            if books.open.contains_key(id) {
                return Err(Fault::HeldTwice(id.clone()));
            }
            added(books.held, *quote)?;
            let TotalsPayer { session, epoch, what } = payer.clone();
            books.hold(id.clone(), Held { quote: *quote, session, epoch, what });
        }
        Ok(books)
    }

    /// The totals record that stands for these books.
    #[must_use]
    pub fn totals(&self) -> LedgerBody {
        let payer =
            |held: &Held| TotalsPayer { session: held.session.clone(), epoch: held.epoch, what: held.what.clone() };
        let made = |(id, ended): (&String, &Ended)| TotalsDecision {
            id: id.clone(),
            session: ended.session.clone(),
            amount: ended.amount,
            unknown: ended.unknown,
        };
        // One order, so that the same books make the same record.
        let mut open: Vec<_> = self.open.iter().collect();
        open.sort_unstable_by_key(|(id, _)| *id);
        LedgerBody::Totals {
            cap: self.cap,
            booked: self.booked,
            unknown: self.unknown,
            unknown_count: self.unknown_count,
            open: open.iter().map(|(id, held)| ((*id).clone(), held.quote)).collect(),
            known: TotalsKnown {
                above_quote: self.above_quote,
                payers: open.iter().map(|(_, held)| payer(held)).collect(),
                raises: self.raises.iter().map(|(id, cap)| (id.clone(), *cap)).collect(),
                decisions: self.decisions.iter().map(made).collect(),
            },
        }
    }

    /// Whether whoever appends next should put totals before its record: `every` records ([`TOTALS_EVERY`]) have come since the last ones, and
    /// at least as many as the totals have entries, so that they cost each record no more than a constant.
    #[must_use]
    pub fn totals_due(&self, every: u64) -> bool {
        let entries = self.open.len().saturating_add(self.raises.len()).saturating_add(self.decisions.len());
        let since = self.seq.0.saturating_sub(self.totals_at.0);
        self.seq > Seq::START && entries <= ENTRIES && since >= every.max(entries as u64)
    }
}
