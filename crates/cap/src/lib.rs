//! What a step may cost, what it did cost, and whether a run's cap has room for it.
//!
//! * [`Catalog`]: exact prices by exact model id, vendored or from a file.
//! * [`price`]: what the provider says was used, times the catalog. What the catalog lacks is an error, never a guess.
//! * [`quote`]: before a request is sent, the most it can cost; a request without such a bound is refused by name.
//! * [`Books`]: a run's ledger folded: what is booked, held and unknown; [`Books::admit`] is the cap's one rule.
//! * [`Denied`]: the words of refusal, the same for every harness; [`park_of`], [`check_raise`], [`follow_up_of`]: what follows.
//!
//! All of it is pure: no clock, no store, no socket.

mod catalog;
mod date;
mod denied;
mod ledger;
mod price;
mod quote;
mod raise;

pub use catalog::{Catalog, CatalogError, Mode, Model, Multiplier, Provider, Rates, RatesFrom, Tier};
pub use date::{Date, DateError};
pub use denied::{Denied, Scope, Word, fits};
pub use ledger::{Books, Decided, Fault, Held, LedgerFault, TOTALS_EVERY, decision_hold};
pub use price::{PriceError, Priced, price};
pub use quote::{
    CacheWrite, ContextEdits, IMAGE_TOKENS, OVERHEAD_TOKENS, Quote, QuoteError, RequestFacts, ServerTool, quote,
};
pub use raise::{Park, RaiseError, check_raise, follow_up_of, park_of};
