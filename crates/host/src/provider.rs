//! The APIs that the proxy speaks, by the names the command line gives them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::policy::{Anthropic, OpenAiChat, OpenAiResponses, ProviderPolicy};

/// Whose API a key opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Provider {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Responses.
    OpenAi,
    /// OpenAI chat completions, and the many servers that speak it.
    OpenAiChat,
}

/// A name that no provider has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no provider is called `{0}`; the proxy speaks `anthropic`, `openai` (Responses) and `openai-chat` (chat completions)"
)]
pub struct UnknownProvider(String);

impl Provider {
    /// The name, as the command line and records spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::OpenAiChat => "openai-chat",
        }
    }

    /// Where requests go when nobody says otherwise.
    #[must_use]
    pub const fn default_origin(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com",
            Self::OpenAi | Self::OpenAiChat => "https://api.openai.com",
        }
    }

    /// How it is spoken.
    #[must_use]
    pub fn policy(self) -> Arc<dyn ProviderPolicy> {
        match self {
            Self::Anthropic => Arc::new(Anthropic),
            Self::OpenAi => Arc::new(OpenAiResponses),
            Self::OpenAiChat => Arc::new(OpenAiChat),
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Provider {
    type Err = UnknownProvider;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "anthropic" => Ok(Self::Anthropic),
            "openai" => Ok(Self::OpenAi),
            "openai-chat" => Ok(Self::OpenAiChat),
            other => Err(UnknownProvider(other.to_owned())),
        }
    }
}
