//! The seam between the proxy and whoever pays: a gate is asked before a paid request is sent, and told once how it ended.
//!
//! ```text
//!  RequestGate::before ─► Ok(lease)    ─► sent to the provider ─► Lease::after(RequestEnd), once, whatever the harness does
//!                      └► Err(refusal) ─► answered to the harness; nothing was sent
//! ```
//! Both run in a task that no connection can cancel: a harness that hangs up loses its answer, never the booking.

use std::sync::Arc;

use agentrun_cap::{RequestFacts, Word};
use agentrun_kernel::Usage;
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

/// The gate said no: the harness gets a status it does not retry, and this text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word}: {message}")]
pub struct Refusal {
    /// Why, in the closed set of words.
    pub word: Word,
    /// What happened and what to do next. Shown to the harness, and by it to its model: no secret.
    pub message: String,
}
