//! Reads usage off a response while its bytes pass untouched.

mod anthropic;
mod sse;

pub(crate) use anthropic::{AnthropicJson, AnthropicStream};

use agentrun_kernel::Usage;

/// Follows one response.
pub trait Tap: Send {
    /// The next bytes, as received.
    fn feed(&mut self, bytes: &[u8]);
    /// Whether the response has said all that `finish` will say, so that its end is a formality.
    fn is_whole(&self) -> bool;
    /// What the whole response says of itself; `None` when it was cut or does not say.
    fn finish(self: Box<Self>) -> Option<Metered>;
}

/// What a response says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metered {
    /// The model that answered.
    pub model: String,
    /// The provider's id of the response.
    pub id: Option<String>,
    /// What was used.
    pub usage: Usage,
}

/// Reads nothing: the spend stays unknown.
pub(crate) struct Untold;

impl Tap for Untold {
    fn feed(&mut self, _: &[u8]) {}

    fn is_whole(&self) -> bool {
        false
    }

    fn finish(self: Box<Self>) -> Option<Metered> {
        None
    }
}
