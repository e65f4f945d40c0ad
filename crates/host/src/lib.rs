//! The loopback model proxy: it admits each paid request through a gate, adds the credential no harness sees, and reads what was used.
//!
//! Start at [`ModelProxy`]; [`RequestGate`] is whom it asks, [`ProviderPolicy`] what differs between providers.

mod bodies;
mod credential;
mod edge;
mod exchange;
mod gate;
mod head;
mod json;
mod key;
mod policy;
mod provider;
mod proxy;
mod reply;
mod scrub;
mod tap;
mod tries;
mod upstream;
mod way;

pub use credential::{Credential, CredentialError};
pub use gate::{Lease, PaidRequest, Refusal, RequestEnd, RequestGate};
pub use json::{BODY_BYTES, DEPTH, Document, Raw, Unfit, Value, strict};
pub use key::{KeyGuard, SessionSecret};
pub use policy::{
    Anthropic, OpenAiChat, OpenAiResponses, ProviderPolicy, Route, RouteKind, RouteMethod, Shaped, shape,
};
pub use provider::{Provider, UnknownProvider};
pub use proxy::{Fallback, ModelProxy, ProviderConfig, ProxyError, Steadfast};
pub use tap::{Metered, Tap};
pub use tries::Retry;
pub use upstream::{Origin, OriginError, Timeouts};

/// Most bytes of a response that are kept for the record. A longer one passes all the same, and is priced; it cannot be restored.
pub const RESPONSE_KEPT: usize = 8 << 20;
