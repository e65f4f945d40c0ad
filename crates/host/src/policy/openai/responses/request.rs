//! What a quote looks at in a Responses request. Every list here is of what is known and fails closed: a member that is not listed may
//! spend unseen, an item that is not listed may stand for text that is not in the body, a tool that is not listed may run at the provider.

use agentrun_cap::{ContextEdits, RequestFacts, ServerTool};

use crate::json::{Document, Kind, Raw, Unfit, Value};
use crate::policy::openai::in_body;
use crate::policy::parts::{self, Part, Text, many, needed, unknown};

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
pub(super) struct Top<'b> {
    pub(super) service_tier: Option<Raw<'b>>,
    pub(super) store: Option<Raw<'b>>,
    model: Option<Text<'b>>,
    has_input: bool,
    /// The limit on all calls of the provider's own tools.
    tool_calls: Option<u64>,
}

/// Reads a request.
///
/// # Errors
/// [`Unfit`]: a member is missing or not what it must be.
pub(super) fn read<'b>(request: &mut Document<'b>) -> Result<(RequestFacts, Top<'b>), Unfit> {
    let mut facts = RequestFacts { choices: 1, ..RequestFacts::default() };
    let mut top: Top<'b> = parts::read(request, &mut facts)?;
    facts.model = needed(top.model.take(), "model")?.into_owned();
    needed(top.has_input.then_some(()), "input")?;
    for tool in &mut facts.server_tools {
        tool.max_uses = top.tool_calls;
    }
    Ok((facts, top))
}

impl<'b> Part<'b> for Top<'b> {
    const WHAT: &'static str = "a Responses request";

    fn member(&mut self, facts: &mut RequestFacts, name: &str, value: Value<'_, 'b>) -> Result<(), Unfit> {
        match name {
            "model" => self.model = value.text()?,
            "max_output_tokens" => facts.max_output = value.count()?,
            "max_tool_calls" => self.tool_calls = value.count()?,
            "input" => {
                self.has_input = true;
                many::<Item<'_>>(facts, value)?;
            }
            "instructions" => many::<Item<'_>>(facts, value)?,
            "tools" => many::<Tool<'_>>(facts, value)?,
            "service_tier" => self.service_tier = Some(value.raw()?),
            "store" => {
                let store = value.raw()?;
                if !matches!(store.text, "false" | "null") {
                    facts.escapes.push(name.to_owned());
                }
                self.store = Some(store);
            }
            "background" => {
                if value.flag()? == Some(true) {
                    facts.escapes.push(name.to_owned());
                }
            }
            "truncation" => facts.held_elsewhere |= value.text()?.is_some_and(|how| how != "disabled"),
            "context_management" => facts.context_edits = edits(value)?,
            // One that lasts longer has a price of its own.
            "prompt_cache_retention" => {
                if value.text()?.is_some_and(|how| !matches!(how.as_ref(), "in_memory" | "in-memory")) {
                    facts.escapes.push(name.to_owned());
                }
            }
            harmless if HARMLESS.contains(&harmless) => {}
            // Among them what the provider holds and a request only names (`previous_response_id`, `conversation`, `prompt`): its size, and with
            // `prompt` even its tools, are not known here.
            _ => unknown(facts, name, value)?,
        }
        Ok(())
    }
}

fn edits(value: Value<'_, '_>) -> Result<ContextEdits, Unfit> {
    let mut edits = ContextEdits::None;
    if value.kind() == Kind::Null {
        return Ok(edits);
    }
    value.items(|edit| {
        let kind = parts::kind(edit, "an edit of the context")?;
        edits = match edits {
            ContextEdits::Compacts => edits,
            _ if kind.starts_with("compact") => ContextEdits::Compacts,
            _ => ContextEdits::Other,
        };
        Ok(())
    })?;
    Ok(edits)
}

/// An item of the input.
#[derive(Default)]
struct Item<'b> {
    kind: Option<Text<'b>>,
    has_role: bool,
}

impl<'b> Part<'b> for Item<'b> {
    const WHAT: &'static str = "an item of the input";
    const OR_TEXT: bool = true;

    fn member(&mut self, facts: &mut RequestFacts, name: &str, value: Value<'_, 'b>) -> Result<(), Unfit> {
        match name {
            "type" => self.kind = value.text()?,
            "role" => self.has_role = value.is_given()?,
            "content" | "output" | "summary" => many::<Piece<'_>>(facts, value)?,
            "tools" => many::<Tool<'_>>(facts, value)?,
            _ => {}
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
struct Piece<'b> {
    kind: Option<Text<'b>>,
    image_in_body: bool,
}

impl<'b> Part<'b> for Piece<'b> {
    const WHAT: &'static str = "a part of an item's content";
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
struct Tool<'b> {
    kind: Option<Text<'b>>,
    execution: Option<Text<'b>>,
}

impl<'b> Part<'b> for Tool<'b> {
    const WHAT: &'static str = "a tool";

    fn member(&mut self, facts: &mut RequestFacts, name: &str, value: Value<'_, 'b>) -> Result<(), Unfit> {
        match name {
            "type" => self.kind = value.text()?,
            "execution" => self.execution = value.text()?,
            "tools" => many::<Tool<'_>>(facts, value)?,
            _ => {}
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
        facts(&format!(r#"{{"model":"m","input":"hi",{members}}}"#))
    }

    fn with_item(item: &str) -> RequestFacts {
        facts(&format!(r#"{{"model":"m","input":[{item}]}}"#))
    }

    /// The request of Codex 0.171.0, as it was seen, with every kind of item it keeps in its history.
    const CODEX: &str = r#"{"model":"gpt-5.5","instructions":null,"input":[
        {"type":"message","role":"developer","id":"m0","content":[{"type":"input_text","text":"p"}]},
        {"type":"message","role":"user","content":[{"type":"input_text","text":"hi"},{"type":"input_image","image_url":"data:image/png;base64,AA"}]},
        {"type":"additional_tools","tools":[{"type":"custom","name":"exec"},{"type":"function","name":"wait"}]},
        {"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"s"}],"content":null,"encrypted_content":"x"},
        {"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"a","annotations":[]}]},
        {"type":"function_call","id":"fc","call_id":"c1","name":"t","namespace":"n","arguments":"{\"type\":\"item_reference\"}"},
        {"type":"function_call_output","id":"fo","call_id":"c1","output":"r"},
        {"type":"custom_tool_call","call_id":"c2","name":"apply_patch","input":"*** Begin Patch"},
        {"type":"custom_tool_call_output","call_id":"c2","output":[{"type":"input_text","text":"r"}]},
        {"type":"tool_search_call","call_id":"c3","execution":"client","arguments":{"query":"q"}},
        {"type":"tool_search_output","call_id":"c3","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"t"}]}]},
        {"role":"user","content":"without a type"}],
      "tools":[{"type":"function","name":"exec_command","strict":false,"parameters":{"type":"object","tools":[{"type":"web_search"}]}},
        {"type":"custom","name":"apply_patch","format":{"type":"grammar"}},{"type":"tool_search","execution":"client"},
        {"type":"namespace","name":"mcp__lab","tools":[{"type":"function","name":"submit"}]}],
      "tool_choice":"auto","parallel_tool_calls":true,"reasoning":{"effort":"medium"},"store":false,"stream":true,
      "include":["reasoning.encrypted_content"],"prompt_cache_key":"k","text":{"verbosity":"low"},"client_metadata":{"thread_id":"t"}}"#;

    #[test]
    fn what_codex_sends_is_bounded_by_its_bytes() {
        let facts = facts(CODEX);
        assert_eq!((facts.model.as_str(), facts.max_output, facts.images), ("gpt-5.5", None, 1));
        assert!(facts.escapes.is_empty() && facts.server_tools.is_empty() && !facts.held_elsewhere, "{facts:?}");
    }

    #[test]
    fn b87_members_that_can_spend_unseen_or_stand_for_what_the_provider_holds_are_named() {
        let facts = with(
            r#""background":true,"store":true,"previous_response_id":"r","conversation":{"id":"c"},"prompt":{"id":"p"},
            "prompt_cache_retention":"24h","n":2,"something_new":[1]"#,
        );
        let named = [
            "background",
            "store",
            "previous_response_id",
            "conversation",
            "prompt",
            "prompt_cache_retention",
            "n",
            "something_new",
        ];
        assert_eq!(facts.escapes, named);
        for item in [r#"{"type":"item_reference","id":"i"}"#, r#"{"id":"i"}"#, r#"{"type":null,"id":"i"}"#] {
            assert_eq!(with_item(item).escapes, ["item_reference"], "{item}");
        }
        let sound = r#"{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}"#;
        assert_eq!(with_item(sound).escapes, ["input_audio"]);
        let off = with(
            r#""background":false,"store":null,"previous_response_id":null,"conversation":null,"prompt":null,"truncation":null,
            "prompt_cache_retention":"in_memory","something_new":null"#,
        );
        assert!(off.escapes.is_empty() && !off.held_elsewhere, "{off:?}");
    }

    #[test]
    fn b86_a_priced_member_that_is_not_what_it_must_be_is_refused() {
        for wrong in [
            r#""max_output_tokens":1e3"#,
            r#""max_output_tokens":1.0"#,
            r#""max_output_tokens":-1"#,
            r#""max_output_tokens":"5""#,
            r#""max_output_tokens":99999999999999999999"#,
            r#""max_tool_calls":1.5"#,
            r#""background":"yes""#,
            r#""truncation":{}"#,
            r#""tools":{}"#,
            r#""tools":"web_search""#,
            r#""tools":[{"type":7}]"#,
            r#""instructions":7"#,
            r#""context_management":[{}]"#,
        ] {
            assert!(read(&format!(r#"{{"model":"m","input":"hi",{wrong}}}"#)).is_err(), "{wrong}");
        }
        for missing in [r#"{"input":"hi"}"#, r#"{"model":"m"}"#, r#"{"model":null,"input":"hi"}"#] {
            assert!(read(missing).is_err(), "{missing}");
        }
    }

    #[test]
    fn what_is_not_in_the_body_is_bounded_by_the_window() {
        let message = |piece: &str| format!(r#"{{"role":"user","content":[{piece}]}}"#);
        let output = |piece: &str| format!(r#"{{"type":"function_call_output","call_id":"c","output":[{piece}]}}"#);
        for piece in [
            r#"{"type":"input_image","image_url":"https://h/i.png"}"#,
            r#"{"type":"input_image","file_id":"f"}"#,
            r#"{"type":"input_file","file_data":"data:application/pdf;base64,AA"}"#,
            r#"{"type":"input_file","file_url":"https://h"}"#,
            r#"{"type":"a_new_part"}"#,
            r#"{"text":"no type"}"#,
        ] {
            assert!(with_item(&message(piece)).held_elsewhere, "{piece}");
            assert!(with_item(&output(piece)).held_elsewhere, "{piece}");
        }
        for item in [
            r#"{"type":"compaction","encrypted_content":"x"}"#,
            r#"{"type":"web_search_call","id":"w"}"#,
            r#"{"type":"a_new_item"}"#,
            r#"{"type":"computer_call_output","output":{"type":"computer_screenshot","file_id":"f"}}"#,
        ] {
            assert!(with_item(item).held_elsewhere, "{item}");
        }
        assert!(with(r#""truncation":"auto""#).held_elsewhere);
        let screen = with_item(
            r#"{"type":"computer_call_output","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,AA"}}"#,
        );
        assert_eq!((screen.images, screen.held_elsewhere), (1, false));
    }

    #[test]
    fn tools_that_the_provider_runs_are_told_from_the_harnesss_own_wherever_they_stand() {
        let facts = facts(
            r#"{"model":"m","max_tool_calls":3,"input":[{"type":"additional_tools","tools":[{"type":"code_interpreter"}]}],
            "tools":[{"type":"web_search"},{"type":"function"},{"type":"namespace","tools":[{"type":"mcp"}]},{"type":"tool_search"},{"type":"shell"},{}]}"#,
        );
        let kinds: Vec<&str> = facts.server_tools.iter().map(|tool| tool.kind.as_str()).collect();
        assert_eq!(kinds, ["code_interpreter", "web_search", "mcp", "tool_search", "shell", ""]);
        assert!(facts.server_tools.iter().all(|tool| tool.max_uses == Some(3)));
    }

    #[test]
    fn context_edits_are_bounded_by_the_window_and_a_compaction_by_twice_that() {
        for (edits, reading) in [
            ("null", ContextEdits::None),
            ("[]", ContextEdits::None),
            (r#"[{"type":"new"}]"#, ContextEdits::Other),
            (r#"[{"type":"compaction","compact_threshold":9},{"type":"new"}]"#, ContextEdits::Compacts),
        ] {
            assert_eq!(with(&format!(r#""context_management":{edits}"#)).context_edits, reading, "{edits}");
        }
    }
}
