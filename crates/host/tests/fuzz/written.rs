//! Writes a request out of a row of choices, so that a failure shrinks to few of them: mostly what its API takes, with names and texts in
//! any spelling, and something else in any place now and then.

use agentrun_host::Provider;

/// Where a member stands.
#[derive(Clone, Copy)]
enum At {
    Top,
    Message,
    Block,
    Piece,
    Tool,
    Source,
    Cache,
    Management,
    Edit,
    Url,
}

/// What fits in its place.
enum Fit {
    List(At),
    /// A text, one, or a list.
    Any(At),
    One(At),
    Text(&'static [&'static str]),
    Count,
    Flag,
    Whatever,
}

pub(crate) fn written(api: Provider, choices: &[u8]) -> String {
    let mut writer = Writer { api, choices: choices.iter(), out: String::new() };
    writer.object(At::Top, 0);
    writer.out
}

struct Writer<'c> {
    api: Provider,
    choices: std::slice::Iter<'c, u8>,
    out: String,
}

const KINDS: &[&str] = &[
    "text",
    "input_text",
    "message",
    "image",
    "document",
    "image_url",
    "input_image",
    "input_audio",
    "tool_result",
    "function_call_output",
    "item_reference",
    "computer_screenshot",
    "a_new_kind",
];
const TOOLS: &[&str] =
    &["custom", "function", "namespace", "tool_search", "bash_20250124", "web_search", "web_search_20250305", "mcp"];

impl Writer<'_> {
    /// One of so many; the first when the choices are used up.
    fn one_of(&mut self, count: usize) -> usize {
        self.choices.next().map_or(0, |choice| usize::from(*choice) % count)
    }

    fn blank(&mut self) {
        let blank = ["", "", "", "", " ", "\n", "\t \r"][self.one_of(7)];
        self.out.push_str(blank);
    }

    /// A text, now and then with its first letter as an escape.
    fn text(&mut self, text: &str) {
        self.out.push('"');
        let mut rest = text.chars();
        if self.one_of(5) == 4
            && let Some(first) = rest.next()
        {
            self.out.push_str(&format!("\\u{:04x}", u32::from(first)));
        }
        self.out.push_str(rest.as_str());
        self.out.push('"');
    }

    fn members(&self, at: At) -> &'static [&'static str] {
        let (messages, responses) = (self.api == Provider::Anthropic, self.api == Provider::OpenAi);
        match at {
            At::Top if messages => &[
                "system",
                "tools",
                "cache_control",
                "context_management",
                "service_tier",
                "speed",
                "inference_geo",
                "stream",
                "metadata",
                "container",
            ],
            At::Top if responses => &[
                "instructions",
                "tools",
                "max_output_tokens",
                "max_tool_calls",
                "service_tier",
                "store",
                "background",
                "truncation",
                "context_management",
                "prompt_cache_retention",
                "prompt",
                "stream",
                "text",
                "n",
            ],
            At::Top => &[
                "tools",
                "max_tokens",
                "max_completion_tokens",
                "n",
                "stream",
                "stream_options",
                "service_tier",
                "store",
                "seed",
                "audio",
            ],
            At::Message if responses => &["type", "role", "content", "output", "summary", "tools", "id", "source"],
            At::Message => &["role", "content", "name", "audio", "refusal", "tool_calls", "type"],
            At::Block => &["type", "text", "source", "content", "cache_control", "input"],
            At::Piece => &["type", "text", "image_url", "file_id"],
            At::Tool => &["type", "name", "max_uses", "execution", "cache_control", "tools", "parameters"],
            At::Source => &["type", "data", "url"],
            At::Cache => &["type", "ttl"],
            At::Management => &["edits", "keep"],
            At::Edit => &["type", "keep"],
            At::Url => &["url", "detail"],
        }
    }

    fn fit(&self, at: At, name: &str) -> Fit {
        let (messages, responses) = (self.api == Provider::Anthropic, self.api == Provider::OpenAi);
        match (at, name) {
            (At::Top, "model") => Fit::Text(&["m", "claude-x", "gpt-x"]),
            (At::Top, "messages") => Fit::List(At::Message),
            (At::Top, "input" | "instructions") => Fit::Any(At::Message),
            (At::Top, "system") => Fit::Any(At::Block),
            (At::Top, "tools") => Fit::List(At::Tool),
            (At::Message | At::Tool, "tools") => Fit::List(At::Tool),
            (At::Message, "content") | (At::Block, "content") if messages => Fit::Any(At::Block),
            (At::Message, "content" | "output" | "summary") => Fit::Any(At::Piece),
            (_, "cache_control") => Fit::One(At::Cache),
            (At::Top, "context_management") if messages => Fit::One(At::Management),
            (At::Top, "context_management") => Fit::List(At::Edit),
            (At::Management, "edits") => Fit::List(At::Edit),
            (At::Edit, "type") => Fit::Text(&["clear_thinking", "compact_1", "compaction", "new"]),
            (At::Block, "source") => Fit::Any(At::Source),
            (At::Source, "type") => Fit::Text(&["base64", "text", "url", "file"]),
            (At::Cache, "ttl") => Fit::Text(&["5m", "1h", "24h"]),
            (At::Piece, "image_url") => Fit::Any(At::Url),
            (At::Url, "url") => Fit::Text(&["data:image/png;base64,AA", "https://h", "da"]),
            (At::Tool, "type") => Fit::Text(TOOLS),
            (At::Tool, "execution") => Fit::Text(&["client", "server"]),
            (At::Tool, "max_uses") => Fit::Count,
            (_, "type" | "role") => Fit::Text(KINDS),
            (At::Top, "service_tier") => Fit::Text(&["default", "auto", "flex"]),
            (At::Top, "speed" | "inference_geo") => Fit::Text(&["fast", "us", "standard"]),
            (At::Top, "truncation" | "prompt_cache_retention") => Fit::Text(&["disabled", "auto", "in_memory", "24h"]),
            (At::Top, "stream" | "store" | "background") => Fit::Flag,
            (At::Top, "max_tokens" | "max_completion_tokens" | "max_output_tokens" | "max_tool_calls" | "n") => {
                Fit::Count
            }
            (At::Top, "stream_options") => Fit::One(At::Url),
            _ if responses && name == "text" => Fit::Whatever,
            _ => Fit::Whatever,
        }
    }

    fn object(&mut self, at: At, depth: usize) {
        self.out.push('{');
        let mut names: Vec<&'static str> = Vec::new();
        if matches!(at, At::Top) {
            // Without these nothing else is looked at.
            let needed: &[&str] = match self.api {
                Provider::Anthropic => &["model", "max_tokens", "messages"],
                Provider::OpenAi => &["model", "input"],
                Provider::OpenAiChat => &["model", "messages"],
            };
            names.extend(needed.iter().filter(|_| self.one_of(40) != 39));
        }
        let members = self.members(at);
        for _ in 0..self.one_of(6) {
            let name = match self.one_of(members.len() + 1) {
                new if new == members.len() => "something_new",
                listed => members[listed],
            };
            // Twice in one object is for now and then.
            if !names.contains(&name) || self.one_of(60) == 59 {
                names.push(name);
            }
        }
        if self.one_of(2) == 1 {
            names.reverse();
        }
        for (place, name) in names.into_iter().enumerate() {
            if place > 0 {
                self.out.push(',');
            }
            self.blank();
            self.text(name);
            self.blank();
            self.out.push(':');
            self.blank();
            self.value(self.fit(at, name), depth + 1);
            self.blank();
        }
        self.out.push('}');
    }

    fn value(&mut self, fit: Fit, depth: usize) {
        let fit = if self.one_of(60) == 59 { Fit::Whatever } else { fit };
        match fit {
            _ if depth > 12 => self.out.push_str("null"),
            Fit::List(at) => self.list(at, depth),
            Fit::Any(at) => match self.one_of(6) {
                0 => self.text("t"),
                1 => self.object(at, depth),
                2 => self.out.push_str("null"),
                _ => self.list(at, depth),
            },
            Fit::One(at) => self.object(at, depth),
            Fit::Text(texts) => match self.one_of(texts.len() + 1) {
                none if none == texts.len() => self.out.push_str("null"),
                text => self.text(texts[text]),
            },
            Fit::Count => {
                let count = [
                    "5",
                    "1",
                    "2",
                    "null",
                    "0",
                    "64000",
                    "18446744073709551615",
                    "1e3",
                    "1.0",
                    "-0",
                    "99999999999999999999",
                ];
                // The last of them are none.
                let good = if self.one_of(30) == 29 { count.len() } else { 7 };
                let count = count[self.one_of(good)];
                self.out.push_str(count);
            }
            Fit::Flag => {
                let flag = ["true", "false", "null"][self.one_of(3)];
                self.out.push_str(flag);
            }
            Fit::Whatever => {
                let value = [
                    "\"t\"",
                    "null",
                    "true",
                    "7",
                    "-1.5e-3",
                    "[]",
                    "{}",
                    "[1,\"a\",null]",
                    "{\"type\":\"image\"}",
                    "[{\"type\":\"text\"}]",
                    "{\"url\":\"data:\",\"include_usage\":true}",
                    "\"\\ud83d\\ude00\"",
                ];
                let value = value[self.one_of(value.len())];
                self.out.push_str(value);
            }
        }
    }

    fn list(&mut self, at: At, depth: usize) {
        self.out.push('[');
        for place in 0..self.one_of(4) {
            if place > 0 {
                self.out.push(',');
            }
            self.blank();
            self.value(Fit::One(at), depth + 1);
            self.blank();
        }
        self.out.push(']');
    }
}
