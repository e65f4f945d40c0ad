//! What a quote looks at in a chat completion request. Every list here is of what is known and fails closed: a member that is not listed
//! may spend unseen, a part that is not listed may stand for text that is not in the body, a tool that is not listed may run at the
//! provider.

use agentrun_cap::{RequestFacts, ServerTool};
use serde::de::{IgnoredAny, MapAccess};
use serde_json::{Map, Value};

use crate::policy::openai::additions::{Given, given};
use crate::policy::openai::{InBody, is_absent};
use crate::policy::parts::{self, Part, Text, is_given, many, text, unknown, unreadable};

/// Members that cost nothing but the tokens the response shows, beside those that are read.
const HARMLESS: &[&str] = &[
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "metadata",
    "parallel_tool_calls",
    "presence_penalty",
    "prompt_cache_key",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "stop",
    "temperature",
    "tool_choice",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
];

/// Members of a message whose text is in the body. `content` is read.
const INLINE: &[&str] = &[
    "annotations",
    "function_call",
    "name",
    "reasoning",
    "reasoning_content",
    "refusal",
    "role",
    "tool_call_id",
    "tool_calls",
];

/// Tools that the harness runs.
const RUN_BY_HARNESS: &[&str] = &["custom", "function"];

/// What a shape looks at beside the facts.
#[derive(Default)]
pub(super) struct Top<'de> {
    pub(super) service_tier: Given<'de>,
    pub(super) stream: bool,
    pub(super) stream_options: Given<'de>,
    has_model: bool,
    has_messages: bool,
}

/// Reads a body that passed the strict check.
///
/// # Errors
/// One sentence on the member that is missing or cannot be read.
pub(super) fn read(body: &[u8]) -> Result<(RequestFacts, Top<'_>), String> {
    let mut facts = RequestFacts { choices: 1, ..RequestFacts::default() };
    let top: Top<'_> = parts::read(body, &mut facts)?;
    for (given, name) in [(top.has_model, "model"), (top.has_messages, "messages")] {
        if !given {
            return Err(unreadable(&format!("missing field `{name}`")));
        }
    }
    Ok((facts, top))
}

/// The stream options with the usage asked for; `None` when they ask for it already.
pub(super) fn with_usage(given: Given<'_>) -> Result<Option<String>, String> {
    let mut options = match given.filter(|_| !is_absent(given)) {
        None => Map::new(),
        Some(given) => serde_json::from_str(given.get()).map_err(|error| format!("stream_options: {error}"))?,
    };
    let asked = options.insert("include_usage".to_owned(), Value::Bool(true));
    Ok((asked != Some(Value::Bool(true))).then(|| Value::Object(options).to_string()))
}

impl<'de> Part<'de> for Top<'de> {
    const WHAT: &'static str = "a chat completion request";

    fn member<A: MapAccess<'de>>(
        &mut self,
        facts: &mut RequestFacts,
        name: Text<'de>,
        members: &mut A,
    ) -> Result<(), A::Error> {
        match name.as_ref() {
            "model" => {
                facts.model = members.next_value()?;
                self.has_model = true;
            }
            // The old name and the new one; where both are given the provider decides which of them holds.
            "max_tokens" | "max_completion_tokens" => {
                facts.max_output = facts.max_output.max(members.next_value::<Option<u64>>()?);
            }
            "messages" => {
                self.has_messages = true;
                many::<Message, A>(facts, members)?;
            }
            "tools" => many::<Tool<'_>, A>(facts, members)?,
            "n" => {
                facts.choices = members.next_value::<Option<u64>>()?.unwrap_or(1);
                if facts.choices > 1 {
                    facts.escapes.push(name.into_owned());
                }
            }
            "stream" => self.stream = members.next_value::<Option<bool>>()?.unwrap_or_default(),
            "stream_options" => self.stream_options = given(members)?,
            "service_tier" => self.service_tier = given(members)?,
            "store" => {
                if members.next_value::<Option<bool>>()? == Some(true) {
                    facts.escapes.push(name.into_owned());
                }
            }
            harmless if HARMLESS.contains(&harmless) => drop(members.next_value::<IgnoredAny>()?),
            _ => unknown(facts, name, members)?,
        }
        Ok(())
    }
}

#[derive(Default)]
struct Message;

impl<'de> Part<'de> for Message {
    const WHAT: &'static str = "a message";

    fn member<A: MapAccess<'de>>(
        &mut self,
        facts: &mut RequestFacts,
        name: Text<'de>,
        members: &mut A,
    ) -> Result<(), A::Error> {
        match name.as_ref() {
            "content" => many::<Piece<'_>, A>(facts, members)?,
            inline if INLINE.contains(&inline) => drop(members.next_value::<IgnoredAny>()?),
            // What else a message may carry is not known to be in the body alone.
            _ => facts.held_elsewhere |= is_given(members)?,
        }
        Ok(())
    }
}

/// A part of a message's content.
#[derive(Default)]
struct Piece<'de> {
    kind: Option<Text<'de>>,
    image_in_body: bool,
}

impl<'de> Part<'de> for Piece<'de> {
    const WHAT: &'static str = "a part of a message's content";
    const OR_TEXT: bool = true;

    fn member<A: MapAccess<'de>>(
        &mut self,
        _: &mut RequestFacts,
        name: Text<'de>,
        members: &mut A,
    ) -> Result<(), A::Error> {
        match name.as_ref() {
            "type" => self.kind = text(members)?,
            "image_url" => self.image_in_body = members.next_value_seed(InBody)?,
            _ => drop(members.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }

    fn end(self, facts: &mut RequestFacts) {
        match self.kind.as_deref().unwrap_or_default() {
            "text" | "refusal" => {}
            "image_url" => {
                facts.images = facts.images.saturating_add(1);
                facts.held_elsewhere |= !self.image_in_body;
            }
            // Its tokens have another price.
            "input_audio" => facts.escapes.push("input_audio".to_owned()),
            _ => facts.held_elsewhere = true,
        }
    }
}

#[derive(Default)]
struct Tool<'de> {
    kind: Option<Text<'de>>,
}

impl<'de> Part<'de> for Tool<'de> {
    const WHAT: &'static str = "a tool";

    fn member<A: MapAccess<'de>>(
        &mut self,
        _: &mut RequestFacts,
        name: Text<'de>,
        members: &mut A,
    ) -> Result<(), A::Error> {
        match name.as_ref() {
            "type" => self.kind = text(members)?,
            _ => drop(members.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }

    fn end(self, facts: &mut RequestFacts) {
        let kind = self.kind.unwrap_or_default();
        if !RUN_BY_HARNESS.contains(&kind.as_ref()) {
            facts.server_tools.push(ServerTool { kind: kind.into_owned(), max_uses: None });
        }
    }
}
