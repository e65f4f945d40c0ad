//! The members of a script: what a step waits for, what it answers, and how the answer goes wrong.

use agentrun_kernel::Usage;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

/// One step: a condition, an answer, and faults in how the answer is given.
///
/// Without `status` it answers a message of `text` and `tools` (text first). All members are optional in JSON, but a step must answer
/// something. In Rust: `Step { text: Some("hi".into()), ..Step::default() }`, or [`Step::says`] and its neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Step {
    /// What must hold of the request for this step to be served; nothing given holds always.
    #[serde(skip_serializing_if = "When::is_empty")]
    pub when: When,
    /// How often this step may be served: a number (1 if not given) or `"always"`.
    #[serde(skip_serializing_if = "Times::is_once")]
    pub times: Times,
    /// What the model says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The tools the model calls, in this order, all in one answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolUse>,
    /// Why the model stopped. If not given: `tool_use` with tools, else `end_turn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// What the request is said to have used. If not given: [`Tokens::UNSAID`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Tokens>,

    /// Answers this HTTP status (400 to 599) with an error body in the provider's shape instead of a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Seconds in a `retry-after` header; only with `status`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// After its text and tools, ends the stream with the API's own event for a failure, and with this word as its code, such as
    /// `server_error` or `context_length_exceeded`; no usage is told. An answer that is not streamed is a status 500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Milliseconds of silence before the head of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_ms: Option<u64>,
    /// Sends the head and this many events, then nothing more and keeps the connection until the client hangs up.
    /// An answer that is not streamed stops after half its body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_after_events: Option<usize>,
    /// Sends the head and this many events, then closes the connection without the proper end.
    /// An answer that is not streamed is cut after half its body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_after_events: Option<usize>,
    /// Milliseconds between two events. An answer that is not streamed has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_delay_ms: Option<u64>,
    /// Breaks the JSON of the first event that carries content (the whole body if not streamed). The usage sent before it is sound.
    #[serde(skip_serializing_if = "is_false")]
    pub corrupt: bool,
    /// Gives the credential that came with the request back, whole: in the header `x-echo-authorization` and in the body, as a text
    /// block of its own in one event, or in the message of an error. For tests that look for a credential where it must not be.
    #[serde(skip_serializing_if = "is_false")]
    pub echo_authorization: bool,
}

/// What must hold of a request. Every member given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct When {
    /// Occurs in what the model has not answered yet: all user messages and tool results after its last answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    /// Does not occur there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
    /// The number of tool results in the whole conversation so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<usize>,
    /// Occurs anywhere in the messages, the model's own and the arguments of its calls (as JSON text) included; the system prompt is no message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anywhere: Option<String>,
}

impl When {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How often a step may be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// At most this often; never 0.
    AtMost(u64),
    /// Without end.
    Always,
}

impl Times {
    fn is_once(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Times {
    fn default() -> Self {
        Self::AtMost(1)
    }
}

impl Serialize for Times {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::AtMost(n) => serializer.serialize_u64(*n),
            Self::Always => serializer.serialize_str("always"),
        }
    }
}

impl<'de> Deserialize<'de> for Times {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Times;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number, at least 1, or \"always\"")
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Times, E> {
                if n == 0 { Err(E::invalid_value(de::Unexpected::Unsigned(n), &self)) } else { Ok(Times::AtMost(n)) }
            }
            fn visit_str<E: de::Error>(self, word: &str) -> Result<Times, E> {
                if word == "always" {
                    Ok(Times::Always)
                } else {
                    Err(E::invalid_value(de::Unexpected::Str(word), &self))
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// A call the model makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolUse {
    /// The tool, by the host's name for it or by the name the harness offers.
    pub name: String,
    /// The arguments. A tool that takes a text and no arguments is given the text of their one member `input`.
    #[serde(default)]
    pub input: Map<String, Value>,
    /// The call's id. If not given, a new one for every time the step is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Why a model stopped, in the words of the Messages API; other APIs are served their own word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It had no more to say.
    EndTurn,
    /// It waits for the results of its calls.
    ToolUse,
    /// The answer reached the length the request allowed.
    MaxTokens,
    /// It met one of the request's stop sequences.
    StopSequence,
    /// It will not answer.
    Refusal,
    /// The provider paused a long turn.
    PauseTurn,
    /// The context is full.
    ModelContextWindowExceeded,
}

/// Tokens a request is said to have used. Counts are disjoint; one not given is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tokens {
    /// Uncached input.
    pub input: u64,
    /// Input read from the cache.
    pub cache_read: u64,
    /// Written to the cache for 5 minutes.
    pub cache_write_5m: u64,
    /// Written to the cache for an hour.
    pub cache_write_1h: u64,
    /// Output.
    pub output: u64,
    /// How much of the output was reasoning, for the APIs that say so.
    pub reasoning: u64,
}

impl Tokens {
    /// What a step uses that does not say: enough that a bill is never zero by accident.
    pub const UNSAID: Self =
        Self { input: 100, cache_read: 0, cache_write_5m: 0, cache_write_1h: 0, output: 20, reasoning: 0 };
}

impl From<Tokens> for Usage {
    fn from(tokens: Tokens) -> Self {
        let Tokens { input, cache_read, cache_write_5m, cache_write_1h, output, reasoning: _ } = tokens;
        Self { input, cache_read, cache_write_5m, cache_write_1h, output, ..Self::default() }
    }
}

impl Step {
    /// A step that says `text`.
    #[must_use]
    pub fn says(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// A step that calls one tool.
    #[must_use]
    pub fn calls(name: impl Into<String>, input: Map<String, Value>) -> Self {
        Self { tools: vec![ToolUse { name: name.into(), input, id: None }], ..Self::default() }
    }

    /// A step that answers an HTTP error.
    #[must_use]
    pub fn fails(status: u16) -> Self {
        Self { status: Some(status), ..Self::default() }
    }

    /// Which member contradicts another one (as a path from the step, empty for the step itself), and how.
    pub(super) fn check(&self) -> Result<(), (String, &'static str)> {
        let refuse = |member: &str, message| Err((member.to_owned(), message));
        if let Some(nameless) = self.tools.iter().position(|t| t.name.is_empty()) {
            return refuse(&format!(".tools[{nameless}].name"), "the name is empty");
        }
        if self.times == Times::AtMost(0) {
            return refuse(".times", "expected a number, at least 1, or \"always\"");
        }
        if self.cut_after_events.is_some() && self.stall_after_events.is_some() {
            return refuse(".cut_after_events", "an answer is cut or stalls, never both");
        }
        let shapes_a_message = self.text.is_some()
            || !self.tools.is_empty()
            || self.stop_reason.is_some()
            || self.usage.is_some()
            || self.failure.is_some()
            || self.stall_after_events.is_some()
            || self.cut_after_events.is_some()
            || self.event_delay_ms.is_some()
            || self.corrupt;
        match self.status {
            Some(status) if !(400..=599).contains(&status) => refuse(".status", "a status is an error, 400 to 599"),
            Some(_) if shapes_a_message => refuse(
                ".status",
                "a step with a status answers no message: split it in two or leave out what shapes a message",
            ),
            Some(_) => Ok(()),
            None if self.retry_after.is_some() => refuse(".retry_after", "goes with a status only"),
            None if self.text.is_none()
                && self.tools.is_empty()
                && self.failure.is_none()
                && self.cut_after_events.is_none()
                && self.stall_after_events.is_none() =>
            {
                refuse("", "answers nothing: give text, tools, status, failure, cut_after_events or stall_after_events")
            }
            None => Ok(()),
        }
    }
}

fn is_false(value: &bool) -> bool {
    !*value
}
