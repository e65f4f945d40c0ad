//! What a quote looks at in a Messages request. Every list here is of what is known
//! and fails closed: a member that is not listed may spend unseen, a block that is not listed may stand for text that is not in the body,
//! a tool that is not listed may run at the provider.

use agentrun_cap::{CacheWrite, ContextEdits, RequestFacts, ServerTool};

use crate::json::{Document, Kind, Unfit, Value};
use crate::policy::parts::{self, Part, Text, many, needed};

/// Members whose spend the response shows, or that cost nothing, beside those that are read.
const HARMLESS: &[&str] = &[
    "tool_choice",
    "metadata",
    "stop_sequences",
    "stream",
    "temperature",
    "top_k",
    "top_p",
    "thinking",
    "output_config",
    "output_format",
];

/// Blocks whose text is all in the body. `image` and `document` depend on their source.
const INLINE: &[&str] = &[
    "text",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "tool_result",
    "tool_reference",
    "search_result",
    "server_tool_use",
    "compaction",
];

/// Tools that are defined by the provider and run by the harness.
const RUN_BY_HARNESS: &[&str] = &[
    "custom",
    "bash_20241022",
    "bash_20250124",
    "computer_20241022",
    "computer_20250124",
    "computer_20251124",
    "memory_20250818",
    "text_editor_20241022",
    "text_editor_20250124",
    "text_editor_20250429",
    "text_editor_20250728",
];

/// Reads a request.
///
/// # Errors
/// [`Unfit`]: a member is missing or not what it must be.
pub(super) fn read(request: &mut Document<'_>) -> Result<RequestFacts, Unfit> {
    let body_bytes = request.body().len() as u64;
    let mut facts = RequestFacts { body_bytes, choices: 1, ..RequestFacts::default() };
    let top: Top<'_> = parts::read(request, &mut facts)?;
    facts.model = needed(top.model, "model")?.into_owned();
    needed(facts.max_output, "max_tokens")?;
    needed(top.has_messages.then_some(()), "messages")?;
    Ok(facts)
}

/// The top of a request.
#[derive(Default)]
struct Top<'b> {
    model: Option<Text<'b>>,
    has_messages: bool,
}

impl<'b> Part<'b> for Top<'b> {
    const WHAT: &'static str = "a Messages request";

    fn member(&mut self, facts: &mut RequestFacts, name: &str, value: Value<'_, 'b>) -> Result<(), Unfit> {
        match name {
            "model" => self.model = value.text()?,
            "max_tokens" => facts.max_output = value.count()?,
            "messages" => {
                self.has_messages = true;
                many::<Message>(facts, value)?;
            }
            "system" => many::<Block<'_>>(facts, value)?,
            "tools" => many::<Tool<'_>>(facts, value)?,
            "cache_control" => cache(facts, value)?,
            "context_management" => facts.context_edits = edits(value)?,
            "service_tier" => facts.service_tier = value.text()?.map(Text::into_owned),
            "speed" => facts.speed = value.text()?.map(Text::into_owned),
            "inference_geo" => facts.geo = value.text()?.map(Text::into_owned),
            harmless if HARMLESS.contains(&harmless) => {}
            _ => facts.escapes.push(name.to_owned()),
        }
        Ok(())
    }
}

/// How long is cached. A lifetime that is not known counts as the dearest.
fn cache(facts: &mut RequestFacts, control: Value<'_, '_>) -> Result<(), Unfit> {
    if control.kind() == Kind::Null {
        return Ok(());
    }
    let mut asked = CacheWrite::FiveMinutes;
    control.members(|name, value| {
        if name == "ttl" && value.text()?.is_some_and(|ttl| ttl != "5m") {
            asked = CacheWrite::OneHour;
        }
        Ok(())
    })?;
    facts.cache_write = facts.cache_write.max(asked);
    Ok(())
}

fn edits(management: Value<'_, '_>) -> Result<ContextEdits, Unfit> {
    let mut edits = ContextEdits::None;
    if management.kind() == Kind::Null {
        return Ok(edits);
    }
    management.members(|name, value| {
        if name != "edits" || value.kind() == Kind::Null {
            return Ok(());
        }
        value.items(|edit| {
            let kind = parts::kind(edit, "an edit of the context")?;
            edits = match edits {
                ContextEdits::Compacts => edits,
                _ if kind.starts_with("compact") => ContextEdits::Compacts,
                ContextEdits::Other => edits,
                _ if kind.starts_with("clear_") => ContextEdits::Clears,
                _ => ContextEdits::Other,
            };
            Ok(())
        })
    })?;
    Ok(edits)
}

#[derive(Default)]
struct Message;

impl<'b> Part<'b> for Message {
    const WHAT: &'static str = "a message";

    fn member(&mut self, facts: &mut RequestFacts, name: &str, value: Value<'_, 'b>) -> Result<(), Unfit> {
        match name {
            "content" => many::<Block<'_>>(facts, value)?,
            "role" => {}
            // What else a message may carry is not known to be in the body alone.
            _ => facts.held_elsewhere = true,
        }
        Ok(())
    }
}

#[derive(Default)]
struct Tool<'b> {
    kind: Option<Text<'b>>,
    max_uses: Option<u64>,
}

impl<'b> Part<'b> for Tool<'b> {
    const WHAT: &'static str = "a tool";

    fn member(&mut self, facts: &mut RequestFacts, name: &str, value: Value<'_, 'b>) -> Result<(), Unfit> {
        match name {
            "type" => self.kind = value.text()?,
            "max_uses" => self.max_uses = value.count()?,
            "cache_control" => cache(facts, value)?,
            _ => {}
        }
        Ok(())
    }

    fn end(self, facts: &mut RequestFacts) {
        if let Some(kind) = self.kind.filter(|kind| !RUN_BY_HARNESS.contains(&kind.as_ref())) {
            facts.server_tools.push(ServerTool { kind: kind.into_owned(), max_uses: self.max_uses });
        }
    }
}

/// A block of the content of a message, a system prompt or a tool's result. A server tool's result is one alone, and none that is inline.
#[derive(Default)]
struct Block<'b> {
    kind: Option<Text<'b>>,
    source: Option<Text<'b>>,
}

impl<'b> Part<'b> for Block<'b> {
    const WHAT: &'static str = "a content block";
    const OR_TEXT: bool = true;

    fn member(&mut self, facts: &mut RequestFacts, name: &str, value: Value<'_, 'b>) -> Result<(), Unfit> {
        match name {
            "type" => self.kind = value.text()?,
            "source" => self.source = source(value)?,
            "content" => many::<Block<'_>>(facts, value)?,
            "cache_control" => cache(facts, value)?,
            _ => {}
        }
        Ok(())
    }

    fn end(self, facts: &mut RequestFacts) {
        let inline = match (self.kind.as_deref().unwrap_or_default(), self.source.as_deref()) {
            ("image", source) => {
                facts.images = facts.images.saturating_add(1);
                source == Some("base64")
            }
            // A document of another kind is compressed, or is not here at all.
            ("document", source) => source == Some("text"),
            (kind, _) => INLINE.contains(&kind),
        };
        facts.held_elsewhere |= !inline;
    }
}

/// Where a block's data is: the `type` of its source, if that is an object. A search result names its source in plain text.
fn source<'b>(value: Value<'_, 'b>) -> Result<Option<Text<'b>>, Unfit> {
    let mut kind = None;
    if !matches!(value.kind(), Kind::Null | Kind::Text) {
        value.members(|name, value| {
            if name == "type" {
                kind = value.text()?;
            }
            Ok(())
        })?;
    }
    Ok(kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn read(body: &str) -> Result<RequestFacts, Unfit> {
        super::read(&mut Document::new(&Bytes::copy_from_slice(body.as_bytes())))
    }

    fn with(members: &str) -> RequestFacts {
        read(&format!(r#"{{"model":"m","max_tokens":5,"messages":[],{members}}}"#)).unwrap()
    }

    fn with_block(block: &str) -> RequestFacts {
        with(&format!(r#""metadata":{{}},"system":[{block}]"#))
    }

    #[test]
    fn b87_members_that_can_spend_unseen_are_named() {
        let facts = with(r#""mcp_servers":[],"container":"c","fallbacks":[],"something_new":{"a":[1]}"#);
        assert_eq!(facts.escapes, ["mcp_servers", "container", "fallbacks", "something_new"]);
    }

    #[test]
    fn b86_a_priced_member_that_is_not_what_it_must_be_is_refused() {
        for limit in ["1e3", "1.0", "-1", "-0", "\"5\"", "null", "99999999999999999999", "[]"] {
            assert!(read(&format!(r#"{{"model":"m","max_tokens":{limit},"messages":[]}}"#)).is_err(), "{limit}");
        }
        for missing in
            [r#"{"max_tokens":1,"messages":[]}"#, r#"{"model":"m","messages":[]}"#, r#"{"model":"m","max_tokens":1}"#]
        {
            assert!(read(missing).is_err(), "{missing}");
        }
        for wrong in [
            r#""speed":1"#,
            r#""service_tier":{}"#,
            r#""tools":{}"#,
            r#""tools":[{"type":"w","max_uses":1.5}]"#,
            r#""system":7"#,
        ] {
            let body = format!(r#"{{"model":"m","max_tokens":5,"messages":[],{wrong}}}"#);
            assert!(read(&body).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_claude_code_sends_is_bounded_by_its_bytes() {
        let facts = read(
            r#"{"model":"claude-sonnet-4-5","max_tokens":32000,"stream":true,"metadata":{"user_id":"{}"},"thinking":{"type":"disabled"},
            "system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral","ttl":"1h"}}],"output_config":{"effort":"high"},
            "tools":[{"name":"t","input_schema":{"type":"object","properties":{"cache_control":{"type":"document"}}}},{"type":"bash_20250124","name":"bash"}],
            "context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},
            "messages":[{"role":"user","content":"hi"},
              {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"x"},
                {"type":"tool_use","id":"1","name":"t","input":{"type":"url","source":{"type":"file"},"content":{"type":"image"}}}]},
              {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"r \u00e9"},
                {"type":"image","source":{"type":"base64","media_type":"image/png","data":""}}]}]}]}"#,
        )
        .unwrap();
        assert_eq!((facts.model.as_str(), facts.max_output, facts.images), ("claude-sonnet-4-5", Some(32_000), 1));
        assert_eq!((facts.cache_write, facts.context_edits), (CacheWrite::OneHour, ContextEdits::Clears));
        assert!(facts.escapes.is_empty() && facts.server_tools.is_empty() && !facts.held_elsewhere, "{facts:?}");
    }

    #[test]
    fn what_is_not_in_the_body_is_bounded_by_the_window() {
        for block in [
            r#"{"type":"image","source":{"type":"url","url":"https://h"}}"#,
            r#"{"type":"image","source":{"type":"file","file_id":"f"}}"#,
            r#"{"type":"document","source":{"type":"base64","data":""}}"#,
            r#"{"type":"container_upload","file_id":"f"}"#,
            r#"{"type":"web_search_tool_result","content":[{"type":"web_search_result","encrypted_content":"x"}]}"#,
            r#"{"type":"a_new_block"}"#,
            r#"{"text":"no type"}"#,
            r#"{"type":"tool_result","content":[{"type":"document","source":{"type":"url"}}]}"#,
            r#"{"type":"text","text":"t","content":{"type":"x"}}"#,
        ] {
            assert!(with_block(block).held_elsewhere, "{block}");
        }
        for block in [
            r#"{"type":"document","source":{"type":"text","data":"d"}}"#,
            r#"{"type":"search_result","source":"s","content":[]}"#,
        ] {
            assert!(!with_block(block).held_elsewhere, "{block}");
        }
    }

    #[test]
    fn cache_lifetimes_count_wherever_they_stand_and_the_longest_wins() {
        let ephemeral = r#"{"type":"ephemeral"}"#;
        for (members, asked) in [
            (r#""metadata":null"#.to_owned(), CacheWrite::None),
            (r#""cache_control":null"#.to_owned(), CacheWrite::None),
            (format!(r#""cache_control":{ephemeral}"#), CacheWrite::FiveMinutes),
            (format!(r#""tools":[{{"name":"t","cache_control":{ephemeral}}}]"#), CacheWrite::FiveMinutes),
            (r#""system":[{"type":"text","cache_control":{"ttl":"5m"}},{"type":"text","cache_control":{"ttl":"1h"}}]"#.to_owned(), CacheWrite::OneHour),
            (r#""system":[{"type":"text","cache_control":{"ttl":"1h"}},{"type":"text","cache_control":{"ttl":"5m"}}]"#.to_owned(), CacheWrite::OneHour),
            (r#""system":[{"type":"text","cache_control":{"ttl":"24h"}}]"#.to_owned(), CacheWrite::OneHour),
        ] {
            assert_eq!(with(&members).cache_write, asked, "{members}");
        }
    }

    #[test]
    fn tools_that_the_provider_runs_are_told_from_the_harnesss_own() {
        let facts = with(
            r#""tools":[{"type":"web_search_20250305","max_uses":3},{"type":null,"name":"t"},{"type":"custom"},{"type":"bash_20990101"}]"#,
        );
        let server = |kind: &str, max_uses| ServerTool { kind: kind.to_owned(), max_uses };
        assert_eq!(facts.server_tools, [server("web_search_20250305", Some(3)), server("bash_20990101", None)]);
    }

    #[test]
    fn context_edits_that_are_not_known_to_shrink_are_bounded_by_the_window() {
        for (edits, reading) in [
            ("null", ContextEdits::None),
            ("{}", ContextEdits::None),
            (r#"{"edits":[]}"#, ContextEdits::None),
            (r#"{"edits":[{"type":"clear_a"}]}"#, ContextEdits::Clears),
            (r#"{"edits":[{"type":"new"},{"type":"clear_a"}]}"#, ContextEdits::Other),
            (r#"{"edits":[{"type":"compact_20260112"},{"type":"new"},{"type":"clear_a"}]}"#, ContextEdits::Compacts),
        ] {
            assert_eq!(with(&format!(r#""context_management":{edits}"#)).context_edits, reading, "{edits}");
        }
    }
}
