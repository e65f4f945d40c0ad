//! Usage of Anthropic Messages. The input side comes with `message_start`; `message_delta` is cumulative and may come more than once, so
//! its figures replace and are never added. With server tools its totals exceed the start's and carry no split by cache lifetime: the
//! remainder counts as written for five minutes. `iterations` hold passes the totals leave out.

use agentrun_kernel::{Iteration, Usage};
use serde::Deserialize;

use super::sse::Events;
use super::{Metered, Tap};

/// Largest answer in one piece that is read.
const ANSWER_BYTES: usize = 32 << 20;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Counts {
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation: Option<Split>,
    output_tokens: Option<u64>,
    server_tool_use: Option<ServerTools>,
    service_tier: Option<String>,
    speed: Option<String>,
    inference_geo: Option<String>,
    iterations: Option<Vec<Pass>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Split {
    ephemeral_5m_input_tokens: u64,
    ephemeral_1h_input_tokens: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ServerTools {
    web_search_requests: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct Pass {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    model: Option<String>,
    #[serde(flatten)]
    counts: Box<Counts>,
}

/// A pass of this type is what the totals are made of; every other one is billed beside them.
const IN_TOTALS: &str = "message";

impl Counts {
    /// Takes what `later` says over what this says.
    fn replace(&mut self, later: Self) {
        macro_rules! take { ($($field:ident)*) => { $( if later.$field.is_some() { self.$field = later.$field; } )* } }
        take!(input_tokens cache_creation_input_tokens cache_read_input_tokens cache_creation output_tokens server_tool_use);
        take!(service_tier speed inference_geo iterations);
    }

    fn usage(self) -> Option<Usage> {
        let split = self.cache_creation.unwrap_or_default();
        let parts = split.ephemeral_5m_input_tokens.saturating_add(split.ephemeral_1h_input_tokens);
        let written = self.cache_creation_input_tokens.unwrap_or_default().max(parts);
        let standard = |text: &String| !matches!(text.as_str(), "standard" | "not_available" | "global" | "");
        Some(Usage {
            input: self.input_tokens?,
            cache_read: self.cache_read_input_tokens.unwrap_or_default(),
            cache_write_5m: written.saturating_sub(split.ephemeral_1h_input_tokens),
            cache_write_1h: split.ephemeral_1h_input_tokens,
            output: self.output_tokens?,
            tier: self.service_tier.filter(standard),
            speed: self.speed.filter(standard),
            geo: self.inference_geo.filter(standard),
            web_searches: self.server_tool_use.unwrap_or_default().web_search_requests,
            iterations: self
                .iterations
                .unwrap_or_default()
                .into_iter()
                .filter(|pass| pass.kind != IN_TOTALS)
                .filter_map(Pass::iteration)
                .collect(),
        })
    }
}

impl Pass {
    fn iteration(self) -> Option<Iteration> {
        Some(Iteration { model: self.model, usage: self.counts.usage()? })
    }
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    id: Option<String>,
    model: String,
    #[serde(default)]
    usage: Counts,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    MessageStart {
        message: Answer,
    },
    MessageDelta {
        #[serde(default)]
        delta: Delta,
        #[serde(default)]
        usage: Counts,
    },
    MessageStop,
    #[serde(other)]
    Other,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta {
    stop_reason: Option<String>,
}

/// A streamed answer.
#[derive(Default)]
pub(crate) struct AnthropicStream {
    events: Events,
    model: Option<String>,
    id: Option<String>,
    counts: Counts,
    whole: bool,
    broken: bool,
}

impl Tap for AnthropicStream {
    fn feed(&mut self, bytes: &[u8]) {
        let Self { events, model, id, counts, whole, broken } = self;
        let within = events.feed(bytes, |data| match serde_json::from_slice::<Event>(data) {
            Ok(Event::MessageStart { message }) => {
                *model = Some(message.model);
                *id = message.id;
                counts.replace(message.usage);
            }
            Ok(Event::MessageDelta { delta, usage }) => {
                counts.replace(usage);
                *whole |= delta.stop_reason.is_some();
            }
            Ok(Event::MessageStop) => *whole = true,
            Ok(Event::Other) => {}
            Err(_) => *broken = true,
        });
        *broken |= !within;
    }

    fn finish(self: Box<Self>) -> Option<Metered> {
        if !self.whole || self.broken {
            return None;
        }
        Some(Metered { model: self.model?, id: self.id, usage: self.counts.usage()? })
    }
}

/// An answer in one piece.
#[derive(Default)]
pub(crate) struct AnthropicJson {
    body: Vec<u8>,
    over: bool,
}

impl Tap for AnthropicJson {
    fn feed(&mut self, bytes: &[u8]) {
        self.over |= self.body.len().saturating_add(bytes.len()) > ANSWER_BYTES;
        if !self.over {
            self.body.extend_from_slice(bytes);
        }
    }

    fn finish(self: Box<Self>) -> Option<Metered> {
        if self.over {
            return None;
        }
        let answer: Answer = serde_json::from_slice(&self.body).ok()?;
        Some(Metered { model: answer.model, id: answer.id, usage: answer.usage.usage()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"claude-x\",\"usage\":{\"input_tokens\":10,",
        "\"cache_creation_input_tokens\":30,\"cache_read_input_tokens\":5,\"cache_creation\":{\"ephemeral_5m_input_tokens\":10,",
        "\"ephemeral_1h_input_tokens\":15},\"output_tokens\":1,\"service_tier\":\"standard\"}}}\n\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":7}}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":20}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    );

    fn metered(bytes: &[&[u8]]) -> Option<Metered> {
        let mut tap = Box::new(AnthropicStream::default());
        for part in bytes {
            tap.feed(part);
        }
        tap.finish()
    }

    #[test]
    fn b90_cumulative_deltas_replace_and_the_unsplit_remainder_counts_as_five_minutes() {
        let usage =
            Usage { input: 10, cache_read: 5, cache_write_5m: 15, cache_write_1h: 15, output: 20, ..Usage::default() };
        let whole = Some(Metered { model: "claude-x".to_owned(), id: Some("msg_1".to_owned()), usage });
        for split in 0..=STREAM.len() {
            let (head, tail) = STREAM.as_bytes().split_at(split);
            assert_eq!(metered(&[head, tail]), whole, "split at {split}");
        }
    }

    #[test]
    fn a_stream_cut_before_its_stop_reason_says_nothing() {
        let end = STREAM.find("event: message_delta").unwrap();
        let last = STREAM.rfind("event: message_delta").unwrap();
        for cut in [0, end, last, last + 40] {
            assert_eq!(metered(&[&STREAM.as_bytes()[..cut]]), None, "cut at {cut}");
        }
    }

    #[test]
    fn a_compaction_is_billed_beside_the_totals() {
        let body = br#"{"id":"m","model":"claude-x","usage":{"input_tokens":23000,"output_tokens":1000,"iterations":[
            {"type":"compaction","input_tokens":180000,"output_tokens":3500},{"type":"message","input_tokens":23000,"output_tokens":1000}]}}"#;
        let mut tap = Box::new(AnthropicJson::default());
        tap.feed(body);
        let usage = tap.finish().unwrap().usage;
        assert_eq!(usage.iterations.len(), 1);
        assert_eq!(usage.iterations[0].usage.input, 180_000);
    }
}
