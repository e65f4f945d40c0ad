//! The records of a run's ledger: a shared log, so sessions in several processes hold and book under one cap without fencing each other.

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, HoldId, SessionKey};
use crate::money::Usd;
use crate::usage::Usage;

/// One record of a run's ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum LedgerBody {
    /// The run's cap; `None` is no cap. Once, first.
    Cap {
        /// The cap.
        cap: Option<Usd>,
    },
    /// Money set aside; in one batch with the session's intent.
    Hold {
        /// Its id.
        id: HoldId,
        /// The session that pays.
        session: SessionKey,
        /// The epoch of its owner.
        epoch: Epoch,
        /// What it pays for, for eyes: a model's or a tool's name.
        what: String,
        /// The most the step can cost.
        quote: Usd,
        /// The catalog (id and date) it was quoted with.
        catalog: String,
    },
    /// The step ended and this is its price; in one batch with the session's outcome.
    Booking {
        /// The hold it ends.
        hold: HoldId,
        /// What the provider says was used; `None` for a tool's fixed price.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// The model that answered, where one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// The catalog (id and date) it was priced with.
        catalog: String,
        /// What it cost.
        amount: Usd,
    },
    /// Nothing was spent, and this is how that is known.
    Release {
        /// The hold it ends.
        hold: HoldId,
        /// How it is known that nothing was spent.
        proof: String,
    },
    /// Nobody can say what was spent: the hold counts in full.
    Unknown {
        /// The hold.
        hold: HoldId,
        /// Why.
        why: String,
    },
    /// A paid decision of the host's and its price. Ends the hold taken for it, or is booked at once where none was.
    Decision {
        /// Its id; the same id again is the same decision.
        id: String,
        /// The session it was made for.
        session: SessionKey,
        /// What it cost.
        amount: Usd,
    },
    /// A new cap.
    Raise {
        /// Its id; the same id with the same cap is the same raise.
        id: String,
        /// The cap from here on.
        cap: Usd,
    },
    /// Sums up to here, so that a long ledger opens fast. Equal to the fold, or the ledger is corrupt.
    Totals {
        /// The cap.
        cap: Option<Usd>,
        /// The sum of bookings and decisions.
        booked: Usd,
        /// The sum of holds that are unknown.
        unknown: Usd,
        /// How many holds are unknown.
        unknown_count: u64,
        /// Holds still open, with their quotes.
        open: Vec<(HoldId, Usd)>,
        /// What else must be known to go on from here without the records before.
        #[serde(default)]
        known: TotalsKnown,
    },
}

/// What a totals record carries beside its sums, so that a ledger that opens at it can end every open hold and knows every used id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TotalsKnown {
    /// By how much bills came out above their quotes.
    pub above_quote: Usd,
    /// Who pays for each open hold, in the order of `open`.
    pub payers: Vec<TotalsPayer>,
    /// Ids of raises and the caps they set.
    pub raises: Vec<(String, Usd)>,
    /// Decisions that were made, or of which nobody can say what they cost.
    pub decisions: Vec<TotalsDecision>,
}

/// Who pays for a hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TotalsPayer {
    /// The session.
    pub session: SessionKey,
    /// The epoch of its owner.
    pub epoch: Epoch,
    /// What for.
    pub what: String,
}

/// A decision that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TotalsDecision {
    /// Its id.
    pub id: String,
    /// The session it was made for.
    pub session: SessionKey,
    /// What it cost; the whole quote where nobody can say.
    pub amount: Usd,
    /// Whether nobody can say.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
}

impl LedgerBody {
    /// Every kind this version writes and reads.
    pub const KINDS: &[&str] = &["cap", "hold", "booking", "release", "unknown", "decision", "raise", "totals"];
}
