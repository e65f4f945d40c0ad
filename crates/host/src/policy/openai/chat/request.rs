//! What a quote looks at in a chat completion request. Every list here is of what is known and fails closed: a member that is not listed
//! may spend unseen, a part that is not listed may stand for text that is not in the body, a tool that is not listed may run at the
//! provider.

use agentrun_cap::{RequestFacts, ServerTool};
use serde_json::{Map, Value as Tree};

use crate::json::{Document, Raw, Unfit, Value};
use crate::policy::openai::{in_body, named};
use crate::policy::parts::{self, Part, Text, many, needed, unknown};

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
pub(super) struct Top<'b> {
    pub(super) service_tier: Option<Raw<'b>>,
    pub(super) stream: bool,
    pub(super) stream_options: Option<Raw<'b>>,
    model: Option<Text<'b>>,
    has_messages: bool,
}

/// Reads a request.
///
/// # Errors
/// [`Unfit`]: a member is missing or not what it must be.
pub(super) fn read<'b>(request: &mut Document<'b>) -> Result<(RequestFacts, Top<'b>), Unfit> {
    let mut facts = RequestFacts { choices: 1, ..RequestFacts::default() };
    let mut top: Top<'b> = parts::read(request, &mut facts)?;
    facts.model = needed(top.model.take(), "model")?.into_owned();
    needed(top.has_messages.then_some(()), "messages")?;
    Ok((facts, top))
}

/// The stream options with the usage asked for; `None` when they ask for it already.
///
/// # Errors
/// They are no object.
pub(super) fn with_usage(given: Option<&Raw<'_>>) -> Result<Option<String>, Unfit> {
    let mut options = match named(given) {
        None => Map::new(),
        Some(given) => {
            serde_json::from_str(given.text).map_err(|error| Unfit::unpriced(format!("stream_options: {error}")))?
        }
    };
    let asked = options.insert("include_usage".to_owned(), Tree::Bool(true));
    Ok((asked != Some(Tree::Bool(true))).then(|| Tree::Object(options).to_string()))
}

impl<'b> Part<'b> for Top<'b> {
    const WHAT: &'static str = "a chat completion request";

    fn member(&mut self, facts: &mut RequestFacts, name: &str, value: Value<'_, 'b>) -> Result<(), Unfit> {
        match name {
            "model" => self.model = value.text()?,
            // The old name and the new one; where both are given the provider decides which of them holds.
            "max_tokens" | "max_completion_tokens" => facts.max_output = facts.max_output.max(value.count()?),
            "messages" => {
                self.has_messages = true;
                many::<Message>(facts, value)?;
            }
            "tools" => many::<Tool<'_>>(facts, value)?,
            "n" => {
                facts.choices = value.count()?.unwrap_or(1);
                if facts.choices > 1 {
                    facts.escapes.push(name.to_owned());
                }
            }
            "stream" => self.stream = value.flag()?.unwrap_or_default(),
            "stream_options" => self.stream_options = Some(value.raw()?),
            "service_tier" => self.service_tier = Some(value.raw()?),
            "store" => {
                if value.flag()? == Some(true) {
                    facts.escapes.push(name.to_owned());
                }
            }
            harmless if HARMLESS.contains(&harmless) => {}
            _ => unknown(facts, name, value)?,
        }
        Ok(())
    }
}

#[derive(Default)]
struct Message;

impl<'b> Part<'b> for Message {
    const WHAT: &'static str = "a message";

    fn member(&mut self, facts: &mut RequestFacts, name: &str, value: Value<'_, 'b>) -> Result<(), Unfit> {
        match name {
            "content" => many::<Piece<'_>>(facts, value)?,
            inline if INLINE.contains(&inline) => {}
            // What else a message may carry is not known to be in the body alone.
            _ => facts.held_elsewhere |= value.is_given()?,
        }
        Ok(())
    }
}

/// A part of a message's content.
#[derive(Default)]
struct Piece<'b> {
    kind: Option<Text<'b>>,
    image_in_body: bool,
}

impl<'b> Part<'b> for Piece<'b> {
    const WHAT: &'static str = "a part of a message's content";
    const OR_TEXT: bool = true;

    fn member(&mut self, _: &mut RequestFacts, name: &str, value: Value<'_, 'b>) -> Result<(), Unfit> {
        match name {
            "type" => self.kind = value.text()?,
            "image_url" => self.image_in_body = in_body(value)?,
            _ => {}
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
struct Tool<'b> {
    kind: Option<Text<'b>>,
}

impl<'b> Part<'b> for Tool<'b> {
    const WHAT: &'static str = "a tool";

    fn member(&mut self, _: &mut RequestFacts, name: &str, value: Value<'_, 'b>) -> Result<(), Unfit> {
        if name == "type" {
            self.kind = value.text()?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn read(body: &str) -> Result<RequestFacts, Unfit> {
        super::read(&mut Document::new(&Bytes::copy_from_slice(body.as_bytes()))).map(|(facts, _)| facts)
    }

    fn facts(body: &str) -> RequestFacts {
        read(body).unwrap()
    }

    fn with(members: &str) -> RequestFacts {
        facts(&format!(r#"{{"model":"m","messages":[],{members}}}"#))
    }

    fn with_message(members: &str) -> RequestFacts {
        facts(&format!(r#"{{"model":"m","messages":[{{"role":"user",{members}}}]}}"#))
    }

    #[test]
    fn what_opencode_sends_is_bounded_by_its_bytes() {
        let facts = facts(
            r#"{"model":"m1","max_tokens":8000,"stream":true,"stream_options":{"include_usage":true},"tool_choice":"auto",
            "messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"go"},
                {"type":"image_url","image_url":{"url":"data:image/png;base64,AA","detail":"high"}}]},
              {"role":"assistant","content":"","reasoning_content":"r","tool_calls":[{"id":"c","type":"function","function":{"name":"t","arguments":"{}"}}]},
              {"role":"tool","tool_call_id":"c","content":"r"},{"role":"assistant","content":null,"refusal":null,"audio":null}],
            "tools":[{"type":"function","function":{"name":"t","parameters":{"type":"object","properties":{"type":{"type":"audio"}}}}}]}"#,
        );
        assert_eq!((facts.model.as_str(), facts.max_output, facts.images), ("m1", Some(8_000), 1));
        assert!(facts.escapes.is_empty() && facts.server_tools.is_empty() && !facts.held_elsewhere, "{facts:?}");
    }

    #[test]
    fn b87_members_that_can_spend_unseen_are_named() {
        let facts = with(
            r#""n":2,"store":true,"prediction":{"type":"content"},"modalities":["audio"],"audio":{},"web_search_options":{},"something_new":1"#,
        );
        let named = ["n", "store", "prediction", "modalities", "audio", "web_search_options", "something_new"];
        assert_eq!((facts.escapes.as_slice(), facts.choices), (named.map(str::to_owned).as_slice(), 2));
        let sound = with_message(r#""content":[{"type":"input_audio","input_audio":{}}]"#);
        assert_eq!(sound.escapes, ["input_audio"]);
        let off = with(r#""n":1,"store":false,"prediction":null,"web_search_options":null"#);
        assert!(off.escapes.is_empty(), "{off:?}");
    }

    #[test]
    fn the_larger_of_two_limits_is_the_one_that_is_held_for() {
        for (members, limit) in [
            (r#""max_tokens":5"#, Some(5)),
            (r#""max_completion_tokens":6"#, Some(6)),
            (r#""max_tokens":5,"max_completion_tokens":6"#, Some(6)),
            (r#""max_tokens":6,"max_completion_tokens":5"#, Some(6)),
            (r#""max_tokens":5,"max_completion_tokens":null"#, Some(5)),
            (r#""max_tokens":null"#, None),
        ] {
            assert_eq!(with(members).max_output, limit, "{members}");
        }
    }

    #[test]
    fn b86_a_priced_member_that_is_not_what_it_must_be_is_refused() {
        for wrong in [
            r#""max_tokens":1e3"#,
            r#""max_completion_tokens":-1"#,
            r#""max_tokens":"5""#,
            r#""n":1.0"#,
            r#""n":-1"#,
            r#""stream":"true""#,
            r#""store":1"#,
            r#""tools":{}"#,
            r#""tools":[{"type":7}]"#,
        ] {
            assert!(read(&format!(r#"{{"model":"m","messages":[],{wrong}}}"#)).is_err(), "{wrong}");
        }
        for missing in [
            r#"{"messages":[]}"#,
            r#"{"model":"m"}"#,
            r#"{"model":7,"messages":[]}"#,
            r#"{"model":"m","messages":"hi"}"#,
        ] {
            assert!(read(missing).is_err(), "{missing}");
        }
    }

    #[test]
    fn what_is_not_in_the_body_is_bounded_by_the_window() {
        for members in [
            r#""content":[{"type":"image_url","image_url":{"url":"https://h/i.png"}}]"#,
            r#""content":[{"type":"image_url"}]"#,
            r#""content":[{"type":"file","file":{"file_id":"f"}}]"#,
            r#""content":[{"type":"a_new_part"}]"#,
            r#""content":[{"text":"no type"}]"#,
            r#""content":"c","audio":{"id":"a"}"#,
            r#""content":"c","something_new":1"#,
        ] {
            assert!(with_message(members).held_elsewhere, "{members}");
        }
    }

    #[test]
    fn tools_that_the_provider_runs_are_told_from_the_harnesss_own() {
        let facts = with(r#""tools":[{"type":"function"},{"type":"custom"},{"type":"web_search"},{}]"#);
        let kinds: Vec<&str> = facts.server_tools.iter().map(|tool| tool.kind.as_str()).collect();
        assert_eq!(kinds, ["web_search", ""]);
    }
}
