//! Usage of Anthropic Messages. The input side comes with `message_start`; `message_delta` is cumulative and may come more than once, so
//! its figures replace and are never added. With server tools its totals exceed the start's and carry no split by cache lifetime: the
//! remainder counts as written for five minutes. `iterations` hold passes the totals leave out.

use std::borrow::Cow;

use agentrun_kernel::{Iteration, Usage};
use serde::Deserialize;

use super::sse::Events;
use super::{Metered, Tap};

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
            // A pass without figures was billed all the same: then the whole is not known.
            iterations: self
                .iterations
                .unwrap_or_default()
                .into_iter()
                .filter(|pass| pass.kind != IN_TOTALS)
                .map(Pass::iteration)
                .collect::<Option<_>>()?,
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

/// One shape for every event: those that carry no usage then cost one pass over their bytes and no tree.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default)]
    message: Option<Answer>,
    #[serde(default)]
    usage: Option<Counts>,
}

/// A streamed answer.
#[derive(Default)]
pub(crate) struct AnthropicStream {
    events: Events,
    read: Read,
}

#[derive(Default)]
struct Read {
    model: Option<String>,
    id: Option<String>,
    counts: Counts,
    /// A `message_delta` said how much was written. What `message_start` says of it is a beginning.
    output_is_final: bool,
    /// `message_stop` came: until then another cumulative delta may.
    stopped: bool,
    /// Something was no event of this API, or too long: the figures cannot be trusted.
    broken: bool,
}

impl Read {
    fn event(&mut self, data: &[u8]) {
        let Ok(event) = serde_json::from_slice::<Event<'_>>(data) else {
            self.broken = true;
            return;
        };
        match (event.kind.as_ref(), event.message, event.usage) {
            ("message_start", Some(message), _) => {
                // A second start would be another answer's figures over the first one's.
                self.broken |= self.model.replace(message.model).is_some();
                self.id = message.id;
                self.counts.replace(message.usage);
            }
            ("message_start", None, _) => self.broken = true,
            ("message_delta", _, Some(usage)) => {
                // Cumulative: one delta that says less than another leaves nothing to trust.
                self.broken |= self.output_is_final
                    && usage.output_tokens.is_some_and(|now| Some(now) < self.counts.output_tokens);
                self.output_is_final |= usage.output_tokens.is_some();
                self.counts.replace(usage);
            }
            ("message_stop", ..) => self.stopped = true,
            // Not an end of its own: what was billed until it is not known.
            ("error", ..) => self.broken = true,
            _ => {}
        }
    }
}

impl Tap for AnthropicStream {
    fn feed(&mut self, bytes: &[u8]) {
        let Self { events, read } = self;
        let within = events.feed(bytes, |data| read.event(data));
        read.broken |= !within;
    }

    fn is_whole(&self) -> bool {
        self.read.stopped
    }

    fn finish(self: Box<Self>) -> Option<Metered> {
        let Read { model, id, counts, output_is_final, stopped, broken } = self.read;
        if broken || !stopped || !output_is_final {
            return None;
        }
        Some(Metered { model: model?, id, usage: counts.usage()? })
    }
}

/// An answer in one piece.
pub(crate) fn message(answer: &[u8]) -> Option<Metered> {
    let Answer { id, model, usage } = serde_json::from_slice(answer).ok()?;
    Some(Metered { model, id, usage: usage.usage()? })
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
    fn b90_a_stream_cut_anywhere_before_its_stop_says_nothing() {
        let stop = STREAM.len() - 1;
        for cut in 0..=stop {
            assert_eq!(metered(&[&STREAM.as_bytes()[..cut]]), None, "cut at {cut}");
        }
    }

    #[test]
    fn b90_byte_by_byte_and_with_other_line_ends_it_says_the_same() {
        let whole = metered(&[STREAM.as_bytes()]);
        assert!(whole.is_some());
        let bytes: Vec<&[u8]> = STREAM.as_bytes().chunks(1).collect();
        assert_eq!(metered(&bytes), whole);
        let with_crlf = STREAM.replace('\n', "\r\n").replace("event: ping", ": a comment\r\nevent: ping");
        let bytes: Vec<&[u8]> = with_crlf.as_bytes().chunks(1).collect();
        assert_eq!(metered(&bytes), whole);
    }

    #[test]
    fn b90_what_cannot_be_trusted_is_not_counted() {
        let start = STREAM.find("event: message_delta").unwrap();
        let (head, tail) = STREAM.split_at(start);
        let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n";
        let half = "event: content_block_delta\ndata: {\"type\":\"content_bl\n\n";
        let second = head;
        for between in [error, half, second] {
            assert_eq!(metered(&[head.as_bytes(), between.as_bytes(), tail.as_bytes()]), None, "{between}");
        }
        for (from, to) in [
            // No delta says how much was written: the start's figure is only a beginning.
            ("\"usage\":{\"output_tokens\":7}", "\"usage\":{}"),
            ("\"input_tokens\":10", "\"input_tokens\":-10"),
            ("\"input_tokens\":10", "\"input_tokens\":1e1"),
            ("\"input_tokens\":10,", ""),
        ] {
            let changed = STREAM.replace(from, to).replace(
                "\"usage\":{\"output_tokens\":20}",
                if to.contains("{}") { "\"usage\":{}" } else { "\"usage\":{\"output_tokens\":20}" },
            );
            assert_ne!(changed, STREAM);
            assert_eq!(metered(&[changed.as_bytes()]), None, "{to}");
        }
    }

    #[test]
    fn b90_a_cumulative_delta_that_shrinks_is_no_figure() {
        assert!(metered(&[STREAM.as_bytes()]).is_some());
        let shrinks = STREAM.replace("{\"output_tokens\":7}", "{\"output_tokens\":21}");
        assert_eq!(metered(&[shrinks.as_bytes()]), None);
    }

    #[test]
    fn b90_the_same_usage_streamed_or_not_is_read_the_same() {
        let usage = "{\"input_tokens\":10,\"cache_creation_input_tokens\":30,\"cache_read_input_tokens\":5,\"cache_creation\":{\"ephemeral_5m_input_tokens\":10,\"ephemeral_1h_input_tokens\":15},\"output_tokens\":20,\"service_tier\":\"standard\"}";
        let answer = format!("{{\"id\":\"msg_1\",\"type\":\"message\",\"model\":\"claude-x\",\"usage\":{usage}}}");
        assert_eq!(message(answer.as_bytes()), metered(&[STREAM.as_bytes()]));
    }

    #[test]
    fn b90_a_billed_pass_without_figures_leaves_the_whole_unknown() {
        let body =
            br#"{"model":"m","usage":{"input_tokens":1,"output_tokens":1,"iterations":[{"type":"compaction"}]}}"#;
        assert_eq!(message(body), None);
    }

    #[test]
    fn a_compaction_is_billed_beside_the_totals() {
        let body = br#"{"id":"m","model":"claude-x","usage":{"input_tokens":23000,"output_tokens":1000,"iterations":[
            {"type":"compaction","input_tokens":180000,"output_tokens":3500},{"type":"message","input_tokens":23000,"output_tokens":1000}]}}"#;
        let usage = message(body).unwrap().usage;
        assert_eq!(usage.iterations.len(), 1);
        assert_eq!(usage.iterations[0].usage.input, 180_000);
    }
}
