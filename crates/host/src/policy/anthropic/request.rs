//! What a quote looks at in a Messages request, read borrowed and in one pass behind the strict one. Every list here is of what is known
//! and fails closed: a member that is not listed may spend unseen, a block that is not listed may stand for text that is not in the body,
//! a tool that is not listed may run at the provider.

use std::borrow::Cow;
use std::fmt;

use agentrun_cap::{CacheWrite, ContextEdits, RequestFacts, ServerTool};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

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

/// Reads a body that passed the strict check.
///
/// # Errors
/// One sentence on the member that is missing or cannot be read.
pub(super) fn read(body: &[u8]) -> Result<RequestFacts, String> {
    let mut facts = RequestFacts { body_bytes: body.len() as u64, choices: 1, ..RequestFacts::default() };
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    Request(&mut facts)
        .deserialize(&mut deserializer)
        .map_err(|error| format!("the request cannot be priced: {error}"))?;
    Ok(facts)
}

type Text<'de> = Cow<'de, str>;

/// A borrowed text where there is one; `Cow`'s own `Deserialize` always copies.
#[derive(Deserialize)]
struct Borrowed<'a>(#[serde(borrow)] Text<'a>);

/// The top of a request.
struct Request<'f>(&'f mut RequestFacts);

impl<'de> DeserializeSeed<'de> for Request<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Request<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Messages request")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let facts = self.0;
        let (mut model, mut messages) = (None, false);
        while let Some(Borrowed(name)) = members.next_key()? {
            match name.as_ref() {
                "model" => model = Some(members.next_value::<Text<'_>>()?.into_owned()),
                "max_tokens" => facts.max_output = Some(members.next_value()?),
                "messages" => {
                    messages = true;
                    members.next_value_seed(Messages(facts))?;
                }
                "system" => members.next_value_seed(Content(facts))?,
                "tools" => members.next_value_seed(Tools(facts))?,
                "cache_control" => cache(facts, members.next_value()?),
                "context_management" => facts.context_edits = edits(members.next_value()?),
                "service_tier" => facts.service_tier = members.next_value()?,
                "speed" => facts.speed = members.next_value()?,
                "inference_geo" => facts.geo = members.next_value()?,
                harmless if HARMLESS.contains(&harmless) => drop(members.next_value::<IgnoredAny>()?),
                _ => {
                    facts.escapes.push(name.into_owned());
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        facts.model = model.ok_or_else(|| A::Error::missing_field("model"))?;
        if facts.max_output.is_none() {
            return Err(A::Error::missing_field("max_tokens"));
        }
        if messages { Ok(()) } else { Err(A::Error::missing_field("messages")) }
    }
}

#[derive(Deserialize)]
struct CacheControl<'a> {
    #[serde(borrow, default)]
    ttl: Option<Text<'a>>,
}

/// A lifetime that is not known counts as the dearest.
fn cache(facts: &mut RequestFacts, control: Option<CacheControl<'_>>) {
    let asked = match control {
        None => CacheWrite::None,
        Some(CacheControl { ttl }) if ttl.as_deref().is_none_or(|ttl| ttl == "5m") => CacheWrite::FiveMinutes,
        Some(_) => CacheWrite::OneHour,
    };
    facts.cache_write = facts.cache_write.max(asked);
}

#[derive(Deserialize)]
struct Management<'a> {
    #[serde(borrow, default)]
    edits: Option<Vec<Edit<'a>>>,
}

#[derive(Deserialize)]
struct Edit<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
}

fn edits(management: Option<Management<'_>>) -> ContextEdits {
    let edits = management.and_then(|management| management.edits).unwrap_or_default();
    edits.iter().fold(ContextEdits::None, |so_far, edit| match (so_far, edit.kind.as_ref()) {
        (ContextEdits::Compacts, _) => ContextEdits::Compacts,
        (_, kind) if kind.starts_with("compact") => ContextEdits::Compacts,
        (ContextEdits::Other, _) => ContextEdits::Other,
        (_, kind) if kind.starts_with("clear_") => ContextEdits::Clears,
        _ => ContextEdits::Other,
    })
}

/// A seed that reads a list item by item, and takes `null` for none.
macro_rules! list {
    ($list:ident of $item:ident, $what:literal) => {
        struct $list<'f>(&'f mut RequestFacts);

        impl<'de> DeserializeSeed<'de> for $list<'_> {
            type Value = ();
            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.deserialize_any(self)
            }
        }

        impl<'de> Visitor<'de> for $list<'_> {
            type Value = ();
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($what)
            }
            fn visit_unit<E>(self) -> Result<(), E> {
                Ok(())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
                while items.next_element_seed($item(&mut *self.0))?.is_some() {}
                Ok(())
            }
        }

        struct $item<'f>(&'f mut RequestFacts);

        impl<'de> DeserializeSeed<'de> for $item<'_> {
            type Value = ();
            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.deserialize_map(self)
            }
        }
    };
}

list!(Messages of Message, "a list of messages");

impl<'de> Visitor<'de> for Message<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(Borrowed(name)) = members.next_key()? {
            match name.as_ref() {
                "content" => members.next_value_seed(Content(&mut *self.0))?,
                "role" => drop(members.next_value::<IgnoredAny>()?),
                // What else a message may carry is not known to be in the body alone.
                _ => {
                    self.0.held_elsewhere = true;
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

list!(Tools of Tool, "a list of tools");

impl<'de> Visitor<'de> for Tool<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tool")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let (mut kind, mut max_uses) = (None::<Text<'de>>, None);
        while let Some(Borrowed(name)) = members.next_key()? {
            match name.as_ref() {
                "type" => kind = members.next_value::<Option<Borrowed<'de>>>()?.map(|text| text.0),
                "max_uses" => max_uses = members.next_value()?,
                "cache_control" => cache(self.0, members.next_value()?),
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        if let Some(kind) = kind.filter(|kind| !RUN_BY_HARNESS.contains(&kind.as_ref())) {
            self.0.server_tools.push(ServerTool { kind: kind.into_owned(), max_uses });
        }
        Ok(())
    }
}

/// The content of a message, a system prompt or a tool's result: a text, or a list of blocks.
struct Content<'f>(&'f mut RequestFacts);

impl<'de> DeserializeSeed<'de> for Content<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Content<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of blocks")
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut blocks: A) -> Result<(), A::Error> {
        while blocks.next_element_seed(Block(&mut *self.0))?.is_some() {}
        Ok(())
    }
    /// A server tool's result is an object: what it stands for may be more than it holds.
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        self.0.held_elsewhere = true;
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

struct Block<'f>(&'f mut RequestFacts);

impl<'de> DeserializeSeed<'de> for Block<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Block<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a content block")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let facts = self.0;
        let (mut kind, mut source) = (None::<Text<'de>>, None::<Text<'de>>);
        while let Some(Borrowed(name)) = members.next_key()? {
            match name.as_ref() {
                "type" => kind = Some(members.next_value::<Borrowed<'de>>()?.0),
                "source" => source = members.next_value_seed(Source)?,
                "content" => members.next_value_seed(Content(&mut *facts))?,
                "cache_control" => cache(facts, members.next_value()?),
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        let inline = match (kind.as_deref().unwrap_or_default(), source.as_deref()) {
            ("image", source) => {
                facts.images = facts.images.saturating_add(1);
                source == Some("base64")
            }
            // A document of another kind is compressed, or is not here at all.
            ("document", source) => source == Some("text"),
            (kind, _) => INLINE.contains(&kind),
        };
        facts.held_elsewhere |= !inline;
        Ok(())
    }
}

/// Where a block's data is: the `type` of its source, if that is an object.
struct Source;

impl<'de> DeserializeSeed<'de> for Source {
    type Value = Option<Text<'de>>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Source {
    type Value = Option<Text<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the source of a block")
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut kind = None;
        while let Some(Borrowed(name)) = members.next_key()? {
            match name.as_ref() {
                "type" => kind = members.next_value::<Option<Borrowed<'de>>>()?.map(|text| text.0),
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(members: &str) -> RequestFacts {
        read(format!(r#"{{"model":"m","max_tokens":5,"messages":[],{members}}}"#).as_bytes()).unwrap()
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
            assert!(
                read(format!(r#"{{"model":"m","max_tokens":{limit},"messages":[]}}"#).as_bytes()).is_err(),
                "{limit}"
            );
        }
        for missing in
            [r#"{"max_tokens":1,"messages":[]}"#, r#"{"model":"m","messages":[]}"#, r#"{"model":"m","max_tokens":1}"#]
        {
            assert!(read(missing.as_bytes()).is_err(), "{missing}");
        }
        for wrong in [
            r#""speed":1"#,
            r#""service_tier":{}"#,
            r#""tools":{}"#,
            r#""tools":[{"type":"w","max_uses":1.5}]"#,
            r#""system":7"#,
        ] {
            let body = format!(r#"{{"model":"m","max_tokens":5,"messages":[],{wrong}}}"#);
            assert!(read(body.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_claude_code_sends_is_bounded_by_its_bytes() {
        let facts = read(
            br#"{"model":"claude-sonnet-4-5","max_tokens":32000,"stream":true,"metadata":{"user_id":"{}"},"thinking":{"type":"disabled"},
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
