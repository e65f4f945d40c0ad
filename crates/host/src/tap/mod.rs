//! Reads usage off a response while its bytes pass untouched.

mod anthropic;
mod openai;
mod sse;
mod whole;

pub(crate) use anthropic::{AnthropicStream, message};
pub(crate) use openai::{ChatStream, ResponsesStream, compaction, completion, response};
pub(crate) use whole::Whole;

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
