//! What a quote looks at in a Responses request. Every list here is of what is known and fails closed: a member that is not listed may
//! spend unseen, an item that is not listed may stand for text that is not in the body, a tool that is not listed may run at the provider.

use agentrun_cap::{ContextEdits, RequestFacts, ServerTool};
use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess};

use crate::policy::openai::InBody;
use crate::policy::openai::additions::{Given, given};
use crate::policy::parts::{self, Part, Text, is_given, many, text, unknown, unreadable};

/// Members that cost nothing but the tokens the response shows, beside those that are read.
const HARMLESS: &[&str] = &[
    "client_metadata",
    "include",
    "metadata",
    "parallel_tool_calls",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "top_logprobs",
    "top_p",
    "user",
];

/// What the provider holds and a request only names. Its size, and with `prompt` even its tools, are not known here.
const HELD_BY_PROVIDER: &[&str] = &["previous_response_id", "conversation", "prompt"];

/// Items that are whole in the body, but for the parts of their content.
const INLINE: &[&str] = &[
    "additional_tools",
    "apply_patch_call",
    "apply_patch_call_output",
    "computer_call",
    "computer_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "function_call",
    "function_call_output",
    "local_shell_call",
    "local_shell_call_output",
    "message",
    "reasoning",
    "tool_search_call",
    "tool_search_output",
];

/// Parts of content that are text.
const TEXTS: &[&str] = &["input_text", "output_text", "reasoning_text", "refusal", "summary_text", "text"];

/// Tools that the harness runs. `namespace` holds tools, which are read one by one.
const RUN_BY_HARNESS: &[&str] =
    &["apply_patch", "computer", "computer_use_preview", "custom", "function", "local_shell", "namespace"];

/// What a shape looks at beside the facts.
#[derive(Default)]
pub(super) struct Top<'de> {
    pub(super) service_tier: Given<'de>,
    pub(super) store: Given<'de>,
    has_model: bool,
    has_input: bool,
    /// The limit on all calls of the provider's own tools.
    tool_calls: Option<u64>,
}

/// Reads a body that passed the strict check.
///
/// # Errors
/// One sentence on the member that is missing or cannot be read.
pub(super) fn read(body: &[u8]) -> Result<(RequestFacts, Top<'_>), String> {
    let mut facts = RequestFacts { choices: 1, ..RequestFacts::default() };
    let top: Top<'_> = parts::read(body, &mut facts)?;
    for (given, name) in [(top.has_model, "model"), (top.has_input, "input")] {
        if !given {
            return Err(unreadable(&format!("missing field `{name}`")));
        }
    }
    for tool in &mut facts.server_tools {
        tool.max_uses = top.tool_calls;
    }
    Ok((facts, top))
}

impl<'de> Part<'de> for Top<'de> {
    const WHAT: &'static str = "a Responses request";

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
            "max_output_tokens" => facts.max_output = members.next_value()?,
            "max_tool_calls" => self.tool_calls = members.next_value()?,
            "input" => {
                self.has_input = true;
                many::<Item<'_>, A>(facts, members)?;
            }
            "instructions" => many::<Item<'_>, A>(facts, members)?,
            "tools" => many::<Tool<'_>, A>(facts, members)?,
            "service_tier" => self.service_tier = given(members)?,
            "store" => {
                let store = given(members)?;
                if store.is_some_and(|store| !matches!(store.get(), "false" | "null")) {
                    facts.escapes.push(name.into_owned());
                }
                self.store = store;
            }
            "background" => {
                if members.next_value::<Option<bool>>()? == Some(true) {
                    facts.escapes.push(name.into_owned());
                }
            }
            "truncation" => facts.held_elsewhere |= text(members)?.is_some_and(|how| how != "disabled"),
            "context_management" => facts.context_edits = edits(members.next_value()?),
            // One that lasts longer has a price of its own.
            "prompt_cache_retention" => {
                if text(members)?.is_some_and(|how| !matches!(how.as_ref(), "in_memory" | "in-memory")) {
                    facts.escapes.push(name.into_owned());
                }
            }
            held if HELD_BY_PROVIDER.contains(&held) => unknown(facts, name, members)?,
            harmless if HARMLESS.contains(&harmless) => drop(members.next_value::<IgnoredAny>()?),
            _ => unknown(facts, name, members)?,
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Edit<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
}

fn edits(edits: Option<Vec<Edit<'_>>>) -> ContextEdits {
    edits.unwrap_or_default().iter().fold(ContextEdits::None, |so_far, edit| match (so_far, edit.kind.as_ref()) {
        (ContextEdits::Compacts, _) => ContextEdits::Compacts,
        (_, kind) if kind.starts_with("compact") => ContextEdits::Compacts,
        _ => ContextEdits::Other,
    })
}

/// An item of the input.
#[derive(Default)]
struct Item<'de> {
    kind: Option<Text<'de>>,
    has_role: bool,
}

impl<'de> Part<'de> for Item<'de> {
    const WHAT: &'static str = "an item of the input";
    const OR_TEXT: bool = true;

    fn member<A: MapAccess<'de>>(
        &mut self,
        facts: &mut RequestFacts,
        name: Text<'de>,
        members: &mut A,
    ) -> Result<(), A::Error> {
        match name.as_ref() {
            "type" => self.kind = text(members)?,
            "role" => self.has_role = is_given(members)?,
            "content" | "output" | "summary" => many::<Piece<'_>, A>(facts, members)?,
            "tools" => many::<Tool<'_>, A>(facts, members)?,
            _ => drop(members.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }

    fn end(self, facts: &mut RequestFacts) {
        match self.kind.as_deref() {
            // Without a type a role makes it a message, and an id alone names one that the provider holds.
            None if self.has_role => {}
            None | Some("item_reference") => facts.escapes.push("item_reference".to_owned()),
            Some(kind) => facts.held_elsewhere |= !INLINE.contains(&kind),
        }
    }
}

/// A part of an item's content.
#[derive(Default)]
struct Piece<'de> {
    kind: Option<Text<'de>>,
    image_in_body: bool,
}

impl<'de> Part<'de> for Piece<'de> {
    const WHAT: &'static str = "a part of an item's content";
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
            "input_image" | "computer_screenshot" => {
                facts.images = facts.images.saturating_add(1);
                facts.held_elsewhere |= !self.image_in_body;
            }
            // Its tokens have another price.
            "input_audio" => facts.escapes.push("input_audio".to_owned()),
            kind => facts.held_elsewhere |= !TEXTS.contains(&kind),
        }
    }
}

#[derive(Default)]
struct Tool<'de> {
    kind: Option<Text<'de>>,
    execution: Option<Text<'de>>,
}

impl<'de> Part<'de> for Tool<'de> {
    const WHAT: &'static str = "a tool";

    fn member<A: MapAccess<'de>>(
        &mut self,
        facts: &mut RequestFacts,
        name: Text<'de>,
        members: &mut A,
    ) -> Result<(), A::Error> {
        match name.as_ref() {
            "type" => self.kind = text(members)?,
            "execution" => self.execution = text(members)?,
            "tools" => many::<Tool<'_>, A>(facts, members)?,
            _ => drop(members.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }

    fn end(self, facts: &mut RequestFacts) {
        let kind = self.kind.unwrap_or_default();
        let searched_by_harness = kind == "tool_search" && self.execution.as_deref() == Some("client");
        if !searched_by_harness && !RUN_BY_HARNESS.contains(&kind.as_ref()) {
            facts.server_tools.push(ServerTool { kind: kind.into_owned(), max_uses: None });
        }
    }
}
