//! How a node ends without a value: a word from a closed set, whether it is final, and the park if the cap refused.

use agentrun_cap::Denied;
use agentrun_kernel::{SessionKey, Usd};
use serde::Serialize;

/// Why a node did not deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeWord {
    /// The node's turns are used up.
    TurnLimit,
    /// Sends without a turn limit are used up.
    MaxSends,
    /// A turn's requests are used up.
    RequestLimit,
    /// Turns in a row with neither paid request nor delivery.
    NoProgress,
    /// The same calls over and over.
    DoomLoop,
    /// A tool that is not the node's.
    UnknownTool,
    /// The adapter cannot fork.
    ForkRefused,
    /// The host's check refused a request.
    HostRefused,
    /// The node's budget has no room.
    OverBudget,
    /// A follow-up's reserve has no room.
    OverReserve,
    /// The catalog cannot price a request.
    Unpriced,
    /// A request without a bound on what it costs.
    Unbounded,
    /// The run's cap has no room: parked.
    OverCap,
    /// Stopped by the host.
    Aborted,
    /// A newer owner has the session.
    Fenced,
    /// The harness died, stalled or spoke nonsense.
    Harness,
    /// The provider failed.
    Upstream,
    /// The store failed.
    Storage,
    /// The plan cannot be run on this harness.
    Refused,
    /// The host's own review or check failed.
    HostFault,
    /// The session is bound to another node.
    Binding,
    /// The delivered value fits the node's schema and not the host's type.
    Mistyped,
}

impl NodeWord {
    /// As printed and recorded.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TurnLimit => "turn_limit",
            Self::MaxSends => "max_sends",
            Self::RequestLimit => "request_limit",
            Self::NoProgress => "no_progress",
            Self::DoomLoop => "doom_loop",
            Self::UnknownTool => "unknown_tool",
            Self::ForkRefused => "fork_refused",
            Self::HostRefused => "host_refused",
            Self::OverBudget => "over_budget",
            Self::OverReserve => "over_reserve",
            Self::Unpriced => "unpriced",
            Self::Unbounded => "unbounded",
            Self::OverCap => "over_cap",
            Self::Aborted => "aborted",
            Self::Fenced => "fenced",
            Self::Harness => "harness",
            Self::Upstream => "upstream",
            Self::Storage => "storage",
            Self::Refused => "refused",
            Self::HostFault => "host_fault",
            Self::Binding => "binding",
            Self::Mistyped => "mistyped",
        }
    }

    /// Reads [`NodeWord::as_str`] back; for recorded failures.
    #[must_use]
    pub fn from_recorded(text: &str) -> Option<Self> {
        Self::RECORDED.iter().chain(Self::SPENDING).copied().find(|word| word.as_str() == text)
    }

    /// The runner's own bounds: recorded as `failed`, and final.
    pub const RECORDED: &[Self] = &[
        Self::TurnLimit,
        Self::MaxSends,
        Self::RequestLimit,
        Self::NoProgress,
        Self::DoomLoop,
        Self::UnknownTool,
        Self::ForkRefused,
        Self::HostRefused,
        Self::OverBudget,
        Self::OverReserve,
        Self::Unpriced,
        Self::Unbounded,
    ];

    /// Faults of the session itself. The recovery driver records one when it gives an attempt up for the next; it is not final.
    pub(crate) const SPENDING: &[Self] = &[Self::Harness];

    /// Whether another attempt would end the same way. `over_cap` is final for an attempt driver; a raise lets the session go on.
    #[must_use]
    pub fn is_final(self) -> bool {
        Self::RECORDED.contains(&self) || matches!(self, Self::OverCap | Self::Refused | Self::Binding | Self::Mistyped)
    }
}

/// A node without a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", word.as_str())]
pub struct NodeError {
    /// The session, where one was opened or read.
    pub session: SessionKey,
    /// Why.
    pub word: NodeWord,
    /// What happened and what to do.
    pub message: String,
    /// Amounts of the park, when the cap refused.
    pub park: Option<ParkedAt>,
}

/// What a raise must reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ParkedAt {
    /// The cap that lets the step through.
    pub needed: Usd,
    /// The cap as it is.
    pub cap: Usd,
    /// What stands against it.
    pub spent: Usd,
}

impl NodeError {
    /// An error of `session`.
    #[must_use]
    pub fn new(session: &SessionKey, word: NodeWord, message: impl Into<String>) -> Self {
        Self { session: session.clone(), word, message: message.into(), park: None }
    }

    /// Whether another attempt would end the same way.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.word.is_final()
    }
}

/// The node's word for a gate's.
#[must_use]
pub(crate) const fn word_of(denied: &Denied) -> NodeWord {
    use agentrun_cap::Word;
    match denied.word {
        Word::OverCap | Word::UnknownSpend => NodeWord::OverCap,
        Word::OverBudget => NodeWord::OverBudget,
        Word::OverReserve => NodeWord::OverReserve,
        Word::Unpriced => NodeWord::Unpriced,
        Word::Unbounded => NodeWord::Unbounded,
        Word::TurnLimit => NodeWord::TurnLimit,
        Word::RequestLimit => NodeWord::RequestLimit,
        Word::Stopped => NodeWord::Aborted,
        Word::Host => NodeWord::HostRefused,
    }
}
