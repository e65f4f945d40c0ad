//! Usage of OpenAI's two APIs. What came from the cache and what went there is counted within the input, and reasoning within the output;
//! it is said once, at the end: in the last event of a Responses stream, in the last chunk of a chat stream if the request asked for it.

use std::borrow::Cow;

use agentrun_kernel::Usage;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::sse::Events;
use super::{Metered, Tap};

/// Figures as either API has them, under the names of one of them.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    input: Option<u64>,
    cached: u64,
    written: u64,
    output: Option<u64>,
    /// Tokens of sound have a price of their own, which no catalog here holds.
    sound: u64,
}

impl Figures {
    fn usage(self, tier: Option<String>, web_searches: u64) -> Option<Usage> {
        if self.sound > 0 {
            return None;
        }
        Some(Usage {
            // Parts larger than their sum are figures of somebody who counts otherwise.
            input: self.input?.checked_sub(self.cached)?.checked_sub(self.written)?,
            cache_read: self.cached,
            // The provider's only lifetime that has a price.
            cache_write_5m: self.written,
            output: self.output?,
            tier: tier.filter(|tier| tier != "default"),
            web_searches,
            ..Usage::default()
        })
    }
}

#[derive(Deserialize)]
struct ResponsesUsage {
    input_tokens: Option<u64>,
    #[serde(default)]
    input_tokens_details: Option<InputDetails>,
    output_tokens: Option<u64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
    audio_tokens: Option<u64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    audio_tokens: Option<u64>,
}

impl InputDetails {
    fn figures(self, input: Option<u64>, output: Option<u64>, details: OutputDetails) -> Figures {
        Figures {
            input,
            cached: self.cached_tokens.unwrap_or_default(),
            written: self.cache_write_tokens.unwrap_or_default(),
            output,
            sound: self.audio_tokens.unwrap_or_default().saturating_add(details.audio_tokens.unwrap_or_default()),
        }
    }
}

impl ResponsesUsage {
    fn figures(&self) -> Figures {
        let details = self.input_tokens_details.unwrap_or_default();
        details.figures(self.input_tokens, self.output_tokens, OutputDetails::default())
    }
}

#[derive(Deserialize)]
struct Response {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    service_tier: Option<String>,
    #[serde(default)]
    usage: Option<ResponsesUsage>,
    #[serde(default)]
    output: Option<Vec<Item>>,
}

/// An item of the output, as far as it may cost something beside its tokens.
#[derive(Deserialize)]
struct Item {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    action: Option<Action>,
}

#[derive(Deserialize)]
struct Action {
    #[serde(default, rename = "type")]
    kind: Option<String>,
}

impl Item {
    /// A search is billed; what the provider then opens or looks through is not.
    fn is_search(&self) -> bool {
        let free = |action: &Action| matches!(action.kind.as_deref(), Some("open_page" | "find_in_page"));
        self.kind == "web_search_call" && !self.action.as_ref().is_some_and(free)
    }
}

impl Response {
    fn metered(self, unnamed: Option<&str>) -> Option<Metered> {
        let searches = self.output.iter().flatten().filter(|item| item.is_search()).count() as u64;
        let usage = self.usage?.figures().usage(self.service_tier, searches)?;
        let model = self.model.or_else(|| unnamed.map(str::to_owned))?;
        Some(Metered { model, id: self.id, usage })
    }
}

/// A Responses answer in one piece.
pub(crate) fn response(answer: &[u8]) -> Option<Metered> {
    serde_json::from_slice::<Response>(answer).ok()?.metered(None)
}

/// A compaction names no model: it ran on the one it was asked of.
pub(crate) fn compaction(answer: &[u8], model: &str) -> Option<Metered> {
    serde_json::from_slice::<Response>(answer).ok()?.metered(Some(model))
}

/// A streamed Responses answer.
#[derive(Default)]
pub(crate) struct ResponsesStream {
    events: Events,
    read: Ended,
}

#[derive(Default)]
struct Ended {
    last: Option<Response>,
    /// Something was no event of this API, or too long: the figures cannot be trusted.
    broken: bool,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default)]
    response: Option<Response>,
}

/// The last word of a chat stream; some servers say it after Responses too.
const DONE: &[u8] = b"[DONE]";

impl Ended {
    fn event(&mut self, data: &[u8]) {
        if self.last.is_some() && data == DONE {
            return;
        }
        let Ok(event) = serde_json::from_slice::<Event<'_>>(data) else {
            self.broken = true;
            return;
        };
        match (event.kind.as_ref(), event.response) {
            ("response.completed" | "response.incomplete" | "response.failed", Some(response)) => {
                // A second end would be another answer's figures over the first one's.
                self.broken |= self.last.replace(response).is_some();
            }
            ("response.completed" | "response.incomplete" | "response.failed" | "error", _) => self.broken = true,
            _ => {}
        }
    }
}

impl Tap for ResponsesStream {
    fn feed(&mut self, bytes: &[u8]) {
        let Self { events, read } = self;
        let within = events.feed(bytes, |data| read.event(data));
        read.broken |= !within;
    }

    fn is_whole(&self) -> bool {
        self.read.last.is_some()
    }

    fn finish(self: Box<Self>) -> Option<Metered> {
        let Ended { last, broken } = self.read;
        if broken { None } else { last?.metered(None) }
    }
}

#[derive(Clone, Copy, Deserialize)]
struct ChatUsage {
    prompt_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<InputDetails>,
    completion_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens_details: Option<OutputDetails>,
}

impl ChatUsage {
    fn figures(self) -> Figures {
        let (input, output) = (self.prompt_tokens_details, self.completion_tokens_details);
        input.unwrap_or_default().figures(self.prompt_tokens, self.completion_tokens, output.unwrap_or_default())
    }

    /// Whether it says less than was said before: what was used cannot become unused.
    fn shrinks(self, before: Self) -> bool {
        self.prompt_tokens < before.prompt_tokens || self.completion_tokens < before.completion_tokens
    }
}

/// A chunk of a stream, or a whole completion: the members that matter are the same.
#[derive(Deserialize)]
struct Completion {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    service_tier: Option<String>,
    #[serde(default)]
    usage: Option<ChatUsage>,
    #[serde(default)]
    error: Option<IgnoredAny>,
}

/// A chat completion in one piece.
pub(crate) fn completion(answer: &[u8]) -> Option<Metered> {
    let Completion { id, model, service_tier, usage, .. } = serde_json::from_slice(answer).ok()?;
    Some(Metered { model: model?, id, usage: usage?.figures().usage(service_tier, 0)? })
}

/// A streamed chat completion.
#[derive(Default)]
pub(crate) struct ChatStream {
    events: Events,
    read: Chunks,
}

#[derive(Default)]
struct Chunks {
    id: Option<String>,
    model: Option<String>,
    tier: Option<String>,
    /// Some servers say it with every chunk: it is cumulative, so the last counts, and one that is less than another is no figure.
    usage: Option<ChatUsage>,
    done: bool,
    /// Something was no chunk of this API, or too long: the figures cannot be trusted.
    broken: bool,
}

impl Chunks {
    fn event(&mut self, data: &[u8]) {
        if data == DONE {
            self.done = true;
            return;
        }
        let Ok(chunk) = serde_json::from_slice::<Completion>(data) else {
            self.broken = true;
            return;
        };
        // Nothing follows the last word, and an error is not an end of its own: what was billed until it is not known.
        self.broken |= self.done || chunk.error.is_some();
        // Azure's first chunk names nothing.
        if let Some(model) = chunk.model.filter(|model| !model.is_empty()) {
            self.broken |= self.model.as_ref().is_some_and(|so_far| *so_far != model);
            self.model = Some(model);
        }
        self.id = self.id.take().or(chunk.id.filter(|id| !id.is_empty()));
        self.tier = chunk.service_tier.or(self.tier.take());
        self.broken |= self.usage.zip(chunk.usage).is_some_and(|(before, now)| now.shrinks(before));
        self.usage = chunk.usage.or(self.usage);
    }
}

impl Tap for ChatStream {
    fn feed(&mut self, bytes: &[u8]) {
        let Self { events, read } = self;
        let within = events.feed(bytes, |data| read.event(data));
        read.broken |= !within;
    }

    fn is_whole(&self) -> bool {
        self.read.done
    }

    fn finish(self: Box<Self>) -> Option<Metered> {
        let Chunks { id, model, tier, usage, done, broken } = self.read;
        if broken || !done {
            return None;
        }
        Some(Metered { model: model?, id, usage: usage?.figures().usage(tier, 0)? })
    }
}

#[cfg(test)]
mod tests;
