//! What a rollout that grows holds, by id. Each line is read once, however often it is asked: a barrier over a long history costs what was
//! written since the last one.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::Value;

use super::rollout::{Call, Raw, What, raw, text, what};

/// Where in the rollout the lines stand that name an id.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Index {
    /// Whole lines up to here were read.
    read: usize,
    calls: HashMap<String, Range<usize>>,
    outputs: HashMap<String, Vec<Range<usize>>>,
    messages: HashMap<String, Range<usize>>,
    /// Where the newest response stands that came whole.
    response: Option<usize>,
    /// Where the newest item of the model's stands, or response.
    model: Option<usize>,
    /// The program's id of the turn that was over last.
    over: Option<String>,
}

impl Index {
    /// Reads on in the rollout. One that became shorter is read anew. A line that is still being written is not there yet: it is not
    /// mirrored either.
    pub(super) fn follow(&mut self, bytes: &[u8]) {
        if bytes.len() < self.read {
            *self = Self::default();
        }
        let new = bytes.get(self.read..).unwrap_or_default();
        for line in new.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            let at = self.read..self.read.saturating_add(line.len());
            self.read = at.end;
            let Some(Raw { kind, payload, .. }) = raw(line) else { continue };
            match what(&kind, &payload) {
                What::ModelItem { call, .. } => {
                    self.model = Some(at.start);
                    if let Some(call) = call {
                        self.calls.insert(call.id, at);
                    }
                }
                What::Output { call } => self.outputs.entry(call).or_default().push(at),
                What::Taken { message: Some(message) } => {
                    self.messages.insert(message, at);
                }
                What::Response { .. } => {
                    self.response = Some(at.start);
                    self.model = self.response;
                }
                What::TurnOver { .. } => {
                    self.over = payload.get("turn_id").and_then(Value::as_str).map(str::to_owned);
                }
                _ => {}
            }
        }
    }

    /// Whether it holds the call as the model made it.
    pub(super) fn holds_call(&self, id: &str) -> bool {
        self.calls.contains_key(id)
    }

    /// The newest call of this id.
    pub(super) fn call(&self, bytes: &[u8], id: &str) -> Option<Call> {
        let Raw { kind, payload, .. } = raw(bytes.get(self.calls.get(id)?.clone())?)?;
        match what(&kind, &payload) {
            What::ModelItem { call, .. } => call,
            _ => None,
        }
    }

    /// How many results it holds for this id.
    pub(super) fn results(&self, id: &str) -> u32 {
        self.outputs.get(id).map_or(0, |outputs| u32::try_from(outputs.len()).unwrap_or(u32::MAX))
    }

    /// The text of the result behind the first `ordinal` ones of this id.
    pub(super) fn output(&self, bytes: &[u8], id: &str, ordinal: u32) -> Option<String> {
        let line = self.outputs.get(id)?.get(usize::try_from(ordinal).ok()?)?;
        Some(match raw(bytes.get(line.clone())?)?.payload.remove("output")? {
            Value::String(text) => text,
            Value::Array(parts) => parts.iter().filter_map(|part| text(part, "text")).collect::<Vec<_>>().join("\n"),
            other => other.to_string(),
        })
    }

    /// Whether it holds our message of this id.
    pub(super) fn holds_message(&self, id: &str) -> bool {
        self.messages.contains_key(id)
    }

    /// How many messages it took that say exactly this.
    pub(super) fn taken_with(&self, bytes: &[u8], words: &str) -> usize {
        let says = |line: &&Range<usize>| {
            let taken = bytes.get((*line).clone()).and_then(raw);
            taken.is_some_and(|taken| taken.payload.get("message").is_some_and(|said| said == words))
        };
        self.messages.values().filter(says).count()
    }

    /// Whether it holds our message of this id and nothing of the model's behind it.
    pub(super) fn unheard(&self, id: &str) -> bool {
        self.messages.get(id).is_some_and(|message| self.model.is_none_or(|model| model < message.start))
    }

    /// Whether it holds the end of this turn of the program's, and no other behind it.
    pub(super) fn holds_end_of(&self, turn: &str) -> bool {
        self.over.as_deref() == Some(turn)
    }

    /// Whether the response that made the newest call of this id came whole.
    pub(super) fn holds_response_of(&self, id: &str) -> bool {
        self.calls.get(id).is_some_and(|call| self.response.is_some_and(|response| response > call.start))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(kind: &str, payload: Value) -> Vec<u8> {
        (json!({"type": kind, "payload": payload}).to_string() + "\n").into_bytes()
    }

    fn call(id: &str, arguments: &str) -> Vec<u8> {
        let made = json!({"type": "function_call", "id": "f", "call_id": id, "name": "work", "arguments": arguments});
        line("response_item", made)
    }

    fn output(id: &str, text: Value) -> Vec<u8> {
        line("response_item", json!({"type": "function_call_output", "call_id": id, "output": text}))
    }

    fn rollout() -> Vec<u8> {
        [
            line("event_msg", json!({"type": "user_message", "client_id": "m"})),
            b"no line of its own\n".to_vec(),
            call("c", "{\"a\":1}"),
            line("token_usage_record", json!({"response_id": "r"})),
            output("c", json!("one")),
            call("c", "{\"a\":2}"),
            output("c", json!([{"text": "two"}, {"text": "parts"}])),
        ]
        .concat()
    }

    #[test]
    fn a_rollout_that_is_followed_at_any_cut_holds_what_one_read_whole_holds() {
        let bytes = rollout();
        let mut whole = Index::default();
        whole.follow(&bytes);
        let mut grown = Index::default();
        for length in 0..=bytes.len() {
            grown.follow(&bytes[..length]);
            let mut read = Index::default();
            read.follow(&bytes[..length]);
            assert_eq!(grown, read, "at {length}");
        }
        assert_eq!(grown, whole);
    }

    #[test]
    fn f06_an_id_that_is_used_again_has_its_newest_call_and_each_of_its_results() {
        let bytes = rollout();
        let mut index = Index::default();
        index.follow(&bytes);
        assert!(index.holds_message("m") && index.holds_call("c"));
        assert_eq!(index.call(&bytes, "c").unwrap().arguments, json!({"a": 2}));
        assert_eq!(index.results("c"), 2);
        assert_eq!(index.output(&bytes, "c", 0).as_deref(), Some("one"));
        assert_eq!(index.output(&bytes, "c", 1).as_deref(), Some("two\nparts"));
        assert_eq!(index.output(&bytes, "c", 2), None);
        assert!(!index.holds_response_of("c"), "the response that stands there made the call before");
        assert!(!index.holds_call("d") && !index.holds_message("c") && index.results("d") == 0);
    }

    #[test]
    fn a_response_counts_for_the_calls_before_it() {
        let mut bytes = call("c", "{}");
        let mut index = Index::default();
        index.follow(&bytes);
        assert!(!index.holds_response_of("c"));
        bytes.extend(line("token_usage_record", json!({"response_id": "r"})));
        index.follow(&bytes);
        assert!(index.holds_response_of("c") && !index.holds_response_of("d"));
    }

    #[test]
    fn m33_a_message_behind_the_models_newest_words_is_unheard_until_it_says_more() {
        let taken =
            |id: &str| line("event_msg", json!({"type": "user_message", "client_id": id, "message": "as said"}));
        let mut bytes = [taken("m"), call("c", "{}"), output("c", json!("one")), taken("s")].concat();
        let mut index = Index::default();
        index.follow(&bytes);
        assert_eq!((index.unheard("m"), index.unheard("s"), index.unheard("t")), (false, true, false));
        assert_eq!((index.taken_with(&bytes, "as said"), index.taken_with(&bytes, "as")), (2, 0));
        bytes.extend(line("token_usage_record", json!({"response_id": "r"})));
        index.follow(&bytes);
        assert!(!index.unheard("s"));
    }

    #[test]
    fn the_turn_that_was_over_last_is_known_by_its_id() {
        let over = |turn: &str| line("event_msg", json!({"type": "task_complete", "turn_id": turn}));
        let mut bytes = over("one");
        let mut index = Index::default();
        index.follow(&bytes);
        assert!(index.holds_end_of("one") && !index.holds_end_of("two"));
        bytes.extend(over("two"));
        index.follow(&bytes);
        assert!(index.holds_end_of("two"));
    }

    #[test]
    fn what_was_cut_off_is_not_held_any_more() {
        let bytes = rollout();
        let mut index = Index::default();
        index.follow(&bytes);
        index.follow(&bytes[..bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1]);
        assert!(index.holds_message("m") && !index.holds_call("c"));
    }
}
