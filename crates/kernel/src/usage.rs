//! What one model request used, as the provider reported it. Input counts are disjoint: `input` is uncached input only, whatever
//! shape the provider's own figures have, so a price is a plain sum.

use serde::{Deserialize, Serialize};

/// Tokens and priced extras of one model request. Absent counts are zero; unknown usage is not a `Usage` at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Usage {
    /// Uncached input tokens.
    pub input: u64,
    /// Input tokens read from the provider's cache.
    pub cache_read: u64,
    /// Tokens written to the cache for 5 minutes, including any remainder the provider did not split by lifetime.
    pub cache_write_5m: u64,
    /// Tokens written to the cache for one hour.
    pub cache_write_1h: u64,
    /// Output tokens, reasoning included.
    pub output: u64,
    /// Service tier that was served, in the provider's word; `None` is the standard tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Mode of serving beside the tier, in the provider's word (Anthropic's `fast`); `None` is the standard one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<String>,
    /// Where the provider says it computed, if that has a price of its own (Anthropic's `us`); `None` is anywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub geo: Option<String>,
    /// Priced web searches the provider ran.
    pub web_searches: u64,
    /// Parts the provider bills beside the totals above (a compaction inside a request, an advisor model).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub iterations: Vec<Iteration>,
}

/// A billed part of a request that the request's own totals do not contain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Iteration {
    /// The model of that part where the provider names another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What it used. Its own `iterations` are empty.
    pub usage: Usage,
}

impl Usage {
    /// All input tokens, cached or not: what a price tier by prompt size looks at.
    #[must_use]
    pub const fn prompt(&self) -> u64 {
        self.input
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write_5m)
            .saturating_add(self.cache_write_1h)
    }
}
