//! What a node's end looks like on stdout and stderr. stdout is the result, or with `--json` one event a line with the result last; it
//! is the only thing a script has to read.

use std::io::{self, Write};

use agentrun_kernel::{SessionKey, Usd};
use agentrun_runner::{Delivered, NodeError, ParkedAt};
use serde::Serialize;
use serde_json::Value;

/// The last line of `--json`.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Last<'a> {
    Delivered { session: &'a SessionKey, value: &'a Value, usd: Usd, unknown_usd: Usd, turns: u32 },
    Failed { session: &'a SessionKey, word: &'a str, message: &'a str, r#final: bool, park: Option<ParkedAt> },
}

impl<'a> From<&'a Delivered> for Last<'a> {
    fn from(delivered: &'a Delivered) -> Self {
        let spent = delivered.spent;
        Self::Delivered {
            session: &delivered.session,
            value: &delivered.value,
            usd: spent.booked,
            // What is still held has no bill either.
            unknown_usd: spent.unknown.saturating_add(spent.held),
            turns: delivered.turns,
        }
    }
}

impl<'a> From<&'a NodeError> for Last<'a> {
    fn from(error: &'a NodeError) -> Self {
        Self::Failed {
            session: &error.session,
            word: error.word.as_str(),
            message: &error.message,
            // A raise lets the same command go on.
            r#final: error.is_final() && error.park.is_none(),
            park: error.park,
        }
    }
}

/// One line of JSON on stdout, whole or not at all, so that a reader and a kill meet whole lines only.
pub(crate) fn json_line(value: &impl Serialize) {
    if let Ok(mut line) = serde_json::to_vec(value) {
        line.push(b'\n');
        let mut out = io::stdout().lock();
        // Nobody reading is no reason to stop a node that is being paid for; the records have it all.
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
}

/// The result on stdout: it must get there, so a reader that is gone or a full disk is said.
///
/// # Errors
/// What became of the write.
pub(crate) fn result(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush())
}

/// Text on stdout.
pub(crate) fn text(text: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// A number with its noun: `1 turn`, `2 turns`.
pub(crate) fn counted(number: impl Into<u64>, one: &str) -> String {
    match number.into() {
        1 => format!("1 {one}"),
        many => format!("{many} {one}s"),
    }
}

/// A line on stderr.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentrun_kernel::Spent;
    use agentrun_runner::NodeWord;
    use serde_json::json;

    #[test]
    fn the_last_line_is_exactly_what_the_design_promises() {
        let session = SessionKey::new("t1").unwrap();
        let spent = Spent { booked: "0.01".parse().unwrap(), unknown: "0.5".parse().unwrap(), ..Spent::default() };
        let delivered =
            Delivered { session: session.clone(), value: json!({"a": 1}), spent, turns: 2, from_records: false };
        assert_eq!(
            serde_json::to_string(&Last::from(&delivered)).unwrap(),
            r#"{"type":"delivered","session":"t1","value":{"a":1},"usd":"0.01","unknown_usd":"0.5","turns":2}"#
        );
        let mut error = NodeError::new(&session, NodeWord::OverCap, "no room");
        assert_eq!(
            serde_json::to_string(&Last::from(&error)).unwrap(),
            r#"{"type":"failed","session":"t1","word":"over_cap","message":"no room","final":true,"park":null}"#
        );
        let usd = |text: &str| text.parse().unwrap();
        error.park = Some(ParkedAt { needed: usd("2"), cap: usd("1"), spent: usd("0.75") });
        let line = serde_json::to_value(Last::from(&error)).unwrap();
        assert_eq!(line["park"], json!({"needed": "2", "cap": "1", "spent": "0.75"}));
        assert_eq!(line["final"], false, "a raise lets it go on");
    }
}
