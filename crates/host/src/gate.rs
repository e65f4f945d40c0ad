//! The seam between the proxy and whoever pays: a gate is asked before a paid request is sent, and told once how it ended.
//!
//! ```text
//!  RequestGate::before ─► Ok(lease)    ─► sent to the provider ─► Lease::after(RequestEnd), once, whatever the harness does
//!                      └► Err(refusal) ─► answered to the harness; nothing was sent
//! ```
//! Both run in a task that no connection can cancel: a harness that hangs up loses its answer, never the booking.

use std::sync::Arc;

use agentrun_cap::{Catalog, Quote, RequestFacts, Word, price};
use agentrun_kernel::{HoldId, LedgerBody, Usage};
use async_trait::async_trait;
use bytes::Bytes;

use crate::provider::Provider;

/// One per session attempt, found by the key that a request carries.
#[async_trait]
pub trait RequestGate: Send + Sync + 'static {
    /// Asked before each paid request. May wait (barriers, stores); nothing has been sent yet.
    ///
    /// # Errors
    /// [`Refusal`]: the request is not sent and the harness is told so in its provider's shape.
    async fn before(self: Arc<Self>, request: &PaidRequest) -> Result<Box<dyn Lease>, Refusal>;
}

/// One admitted request. Consumed by its one end; dropped without it (the process is being torn down) its spend is unknown.
#[async_trait]
pub trait Lease: Send {
    /// How the request ended. The harness sees the end of its answer only after this returns.
    async fn after(self: Box<Self>, end: RequestEnd);
}

/// A request that would cost money, exactly as it will be sent.
#[derive(Clone, Debug)]
pub struct PaidRequest {
    /// Whose API it is.
    pub provider: Provider,
    /// The route's path text.
    pub route: &'static str,
    /// The model, as the request spells it.
    pub model: String,
    /// The body as it will be sent.
    pub body: Bytes,
    /// What a quote looks at, read from that body.
    pub facts: RequestFacts,
}

/// How a paid request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// Surely not one byte of it was sent: nothing can be billed.
    NotSent {
        /// Why, for a person.
        why: String,
    },
    /// The provider refused it with a status that it does not bill.
    Refused {
        /// The HTTP status.
        status: u16,
    },
    /// It was answered whole and the provider said what it used.
    Complete {
        /// The model that answered, as the provider spells it.
        model: String,
        /// What the provider reported.
        usage: Usage,
        /// The provider's id of the answer.
        response_id: Option<String>,
        /// The answer's body, whole; empty when it was larger than [`crate::RESPONSE_KEPT`].
        response: Bytes,
    },
    /// It may have been paid and nobody can say how much: no answer, a cut one, or one without usage.
    Unknown {
        /// The HTTP status, where an answer began.
        status: Option<u16>,
        /// Why, for a person.
        why: String,
        /// What came of the answer's body; empty when it was larger than [`crate::RESPONSE_KEPT`].
        response: Bytes,
    },
}

impl RequestEnd {
    /// The ledger record that ends the request's hold: its price, the proof that nothing was spent, or unknown. What was paid and has no
    /// price in the catalog is unknown too, so the hold counts in full.
    #[must_use]
    pub fn ending(&self, hold: &HoldId, quote: &Quote, catalog: &Catalog) -> LedgerBody {
        let hold = hold.clone();
        match self {
            Self::Complete { model, usage, .. } => match price(catalog, model, usage, quote.at) {
                Ok(priced) => LedgerBody::Booking {
                    hold,
                    usage: Some(usage.clone()),
                    model: Some(priced.model),
                    catalog: priced.catalog,
                    amount: priced.amount,
                },
                Err(error) => LedgerBody::Unknown { hold, why: error.to_string() },
            },
            Self::NotSent { why } => LedgerBody::Release { hold, proof: format!("not sent: {why}") },
            Self::Refused { status } => LedgerBody::Release {
                hold,
                proof: format!("the provider refused with {status}, which it does not bill"),
            },
            Self::Unknown { why, .. } => LedgerBody::Unknown { hold, why: why.clone() },
        }
    }
}

/// The gate said no: the harness gets a status it does not retry, and this text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word}: {message}")]
pub struct Refusal {
    /// Why, in the closed set of words.
    pub word: Word,
    /// What happened and what to do next. Shown to the harness, and by it to its model: no secret.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentrun_cap::{Date, quote};

    #[test]
    fn a_hold_ends_as_booked_released_or_unknown_and_never_as_less_than_was_spent() {
        let catalog = Catalog::bundled().unwrap();
        let facts =
            RequestFacts { model: "claude-sonnet-4-5".to_owned(), max_output: Some(100), ..RequestFacts::default() };
        let quote = quote(&catalog, &facts, Date::of_unix_ms(1_790_000_000_000)).unwrap();
        let hold = HoldId::fresh();
        let ending = |end: &RequestEnd| end.ending(&hold, &quote, &catalog);
        let complete = |model: &str| RequestEnd::Complete {
            model: model.to_owned(),
            usage: Usage { input: 10, output: 20, ..Usage::default() },
            response_id: None,
            response: Bytes::new(),
        };
        let LedgerBody::Booking { amount, .. } = ending(&complete("claude-sonnet-4-5")) else { panic!("not booked") };
        assert_eq!(amount.to_string(), "0.00033");
        let unpriced = ending(&complete("a-model-nobody-lists"));
        assert!(matches!(&unpriced, LedgerBody::Unknown { why, .. } if why.contains("a-model-nobody-lists")));
        let cut = RequestEnd::Unknown { status: Some(200), why: "cut".to_owned(), response: Bytes::new() };
        assert_eq!(ending(&cut), LedgerBody::Unknown { hold: hold.clone(), why: "cut".to_owned() });
        for free in [RequestEnd::NotSent { why: "no route".to_owned() }, RequestEnd::Refused { status: 429 }] {
            assert!(matches!(ending(&free), LedgerBody::Release { .. }), "{free:?}");
        }
    }
}
