//! The taps under any bytes in any pieces: the pieces never matter, line ends and comments never matter, a figure that is said again replaces
//! the one before, and a stream that is cut says nothing or all. What they read is held against a reader of its own that knows no pieces.

use agentrun_host::{Metered, Provider, RouteKind};
use agentrun_kernel::Usage;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use crate::changed::{changed, changes, corpus, fuzz, split};

const APIS: [(Provider, &str); 3] =
    [(Provider::Anthropic, "anthropic"), (Provider::OpenAi, "responses"), (Provider::OpenAiChat, "chat")];

const WORDS: &[&[u8]] = &[
    b"\n\n",
    b"\r\n\r\n",
    b"\r",
    b"\n",
    b": a comment\n",
    b": ping\n\n",
    b"data: ",
    b"data:",
    b"data\n",
    b"event: x\n",
    b"id: 1\nretry: 5\n",
    b"\xef\xbb\xbf",
    b"data: [DONE]\n\n",
    b"data: {}\n\n",
    b"data: {\"type\":\"ping\"}\n\n",
    b"event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":7}}\n\n",
    b"data: {\"type\":\"error\",\"error\":{}}\n\n",
    b"\"usage\":null",
    b"\"output_tokens\":",
    b"18446744073709551616",
    b"-1",
    b"\xff",
];

fn metered<'b>(provider: Provider, content_type: &str, parts: impl IntoIterator<Item = &'b [u8]>) -> Option<Metered> {
    let policy = provider.policy();
    let route = policy.routes().iter().find(|route| route.kind == RouteKind::Paid).unwrap();
    let mut tap = policy.tap(route, "asked", content_type);
    for part in parts {
        tap.feed(part);
    }
    tap.finish()
}

fn streamed<'b>(provider: Provider, parts: impl IntoIterator<Item = &'b [u8]>) -> Option<Metered> {
    metered(provider, "text/event-stream", parts)
}

/// The data of every whole event, by the rules of the format, of a text that is all there. A lone carriage return is no line end here: no
/// provider sends one.
fn events(bytes: &[u8]) -> Vec<Vec<u8>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let (mut all, mut data): (_, Option<Vec<u8>>) = (Vec::new(), None);
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    // Behind the last line feed there is no line yet.
    lines.pop();
    for line in lines {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            all.extend(data.take());
        } else if let Some(value) = line.strip_prefix(b"data:") {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match &mut data {
                Some(data) if !data.is_empty() => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                data => *data = Some(value.to_vec()),
            }
        }
    }
    all.retain(|data| !data.is_empty());
    all
}

fn holds(provider: Provider, bytes: &[u8], cuts: &[Index]) -> Result<bool, TestCaseError> {
    let whole = streamed(provider, [bytes]);
    prop_assert_eq!(&streamed(provider, split(bytes, cuts)), &whole, "in pieces");
    prop_assert_eq!(&streamed(provider, bytes.chunks(1)), &whole, "byte by byte");
    // The same events written anew, with comments between: what is read hangs on their data alone.
    let again: Vec<u8> = events(bytes)
        .iter()
        .flat_map(|data| {
            let lines: Vec<_> =
                data.split(|byte| *byte == b'\n').map(|line| [b"data: ", line, b"\r\n"].concat()).collect();
            [b": comment\r\n\r\nevent: any\r\n", &lines.concat()[..], b"\r\n"].concat()
        })
        .collect();
    prop_assert_eq!(&streamed(provider, [&again[..]]), &whole, "written anew");
    // An answer in one piece is any bytes too.
    metered(provider, "application/json", split(bytes, cuts));
    Ok(whole.is_some())
}

fn harness(at: usize) {
    let (provider, folder) = APIS[at];
    let all = corpus(folder);
    for (name, bytes) in &all {
        let is_read = holds(provider, bytes, &[]).unwrap_or_else(|failed| panic!("{name}: {failed}"));
        assert_eq!(is_read, !name.starts_with("no-"), "{name}");
    }
    let inputs = (changes(), prop::collection::vec(any::<Index>(), 0..5));
    fuzz(folder, &inputs, |((which, changes), cuts)| {
        let bytes = changed(&all, WORDS, &which, &changes);
        // A lone carriage return before a line end is part of the data to one reader and of the line end to another.
        prop_assume!(!bytes.windows(2).any(|two| two == b"\r\r"));
        holds(provider, &bytes, &cuts)
    });
}

#[test]
fn b90_fuzz_anthropic_streams_in_any_pieces() {
    harness(0);
}

#[test]
fn b90_fuzz_responses_streams_in_any_pieces() {
    harness(1);
}

#[test]
fn b90_fuzz_chat_streams_in_any_pieces() {
    harness(2);
}

/// What a provider says it used, in its own words, at the end and on the way there.
#[derive(Clone, Debug)]
struct Said {
    input: u32,
    read: u32,
    written: u32,
    output: u32,
    /// Cumulative figures before the last ones, none above the next.
    before: Vec<u32>,
}

fn said() -> impl Strategy<Value = Said> {
    (any::<[u32; 4]>(), prop::collection::vec(any::<u32>(), 0..4)).prop_map(
        |([input, read, written, output], mut before)| {
            before.push(output);
            before.sort_unstable();
            let output = before.pop().unwrap_or(output);
            Said { input, read, written, output, before }
        },
    )
}

impl Said {
    fn usage(&self) -> Usage {
        Usage {
            input: self.input.into(),
            cache_read: self.read.into(),
            cache_write_5m: self.written.into(),
            output: self.output.into(),
            ..Usage::default()
        }
    }

    /// The answer as events, and in one piece.
    fn answers(&self, provider: Provider) -> (Vec<Value>, Value) {
        let (input, read, written, output) = (self.input, self.read, self.written, self.output);
        let all = u64::from(input) + u64::from(read) + u64::from(written);
        match provider {
            Provider::Anthropic => {
                let usage = |output: u32| {
                    json!({"input_tokens": input, "cache_read_input_tokens": read,
                    "cache_creation_input_tokens": written, "output_tokens": output})
                };
                let message =
                    |output: u32| json!({"id": "m", "model": "claude-x", "content": [], "usage": usage(output)});
                let mut events = vec![json!({"type": "message_start", "message": message(1)})];
                events.push(json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x\n\u{2028}"}}));
                events.extend(
                    self.before
                        .iter()
                        .map(|output| json!({"type": "message_delta", "usage": {"output_tokens": output}})),
                );
                events.push(json!({"type": "message_delta", "delta": {}, "usage": usage(output)}));
                events.push(json!({"type": "message_stop"}));
                (events, message(output))
            }
            Provider::OpenAi => {
                let response = json!({"id": "m", "model": "claude-x", "service_tier": "default", "output": [], "usage": {
                    "input_tokens": all, "output_tokens": output,
                    "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": written}}});
                let started =
                    json!({"type": "response.created", "response": {"id": "m", "model": "claude-x", "usage": null}});
                let delta = json!({"type": "response.output_text.delta", "delta": "x"});
                (vec![started, delta, json!({"type": "response.completed", "response": response})], response)
            }
            Provider::OpenAiChat => {
                let usage = |output: u32| {
                    json!({"prompt_tokens": all, "completion_tokens": output,
                    "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written}})
                };
                let chunk = |usage: Value| json!({"id": "m", "model": "claude-x", "choices": [], "usage": usage});
                let mut events = vec![chunk(Value::Null)];
                events.extend(self.before.iter().map(|output| chunk(usage(*output))));
                events.push(chunk(usage(output)));
                (events, chunk(usage(output)))
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn b90_the_same_usage_streamed_or_not_is_read_the_same_and_the_last_word_counts(
        said in said(),
        crlf: bool,
        cuts in prop::collection::vec(any::<Index>(), 0..6),
        cut: Index,
    ) {
        for (provider, _) in APIS {
            let (events, whole) = said.answers(provider);
            let mut text: String = events.iter().map(|event| format!(": a comment\ndata: {event}\n\n")).collect();
            if provider == Provider::OpenAiChat {
                text.push_str("data: [DONE]\n\n");
            }
            let text = if crlf { text.replace('\n', "\r\n") } else { text };
            let read = streamed(provider, split(text.as_bytes(), &cuts));
            prop_assert_eq!(read.as_ref().map(|read| &read.usage), Some(&said.usage()), "{}", provider);
            prop_assert_eq!(&metered(provider, "application/json", [whole.to_string().as_bytes()]), &read, "{}", provider);
            // All is said once the last event has its blank line, of which CR alone is none.
            let most = text.len() - 1;
            let cut = &text.as_bytes()[..cut.index(most + 1).min(most)];
            prop_assert_eq!(streamed(provider, [cut]), None, "{}", provider);
        }
    }
}
