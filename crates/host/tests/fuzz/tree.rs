//! What a request says, read off a tree with lookups by name: the plain way, and none of the code that the proxy reads it with. A number that
//! is not written as a plain count is one for a tree neither, since it keeps those as floats.

use agentrun_cap::{CacheWrite, ContextEdits, RequestFacts, ServerTool};
use agentrun_host::Provider;
use serde_json::{Map, Value, json};

type Members = Map<String, Value>;

/// A request: its facts but for its length, and what goes to the provider.
pub(crate) struct Tree {
    pub(crate) facts: RequestFacts,
    pub(crate) sent: Members,
}

/// `None`: no request of this API.
pub(crate) fn read(api: Provider, path: &str, top: Members) -> Option<Tree> {
    let mut facts = RequestFacts { choices: 1, ..RequestFacts::default() };
    let facts = &mut facts;
    facts.model = text(&top, "model")??;
    let sent = match api {
        Provider::Anthropic => messages(facts, top)?,
        Provider::OpenAi => responses(facts, path, top)?,
        Provider::OpenAiChat => chat(facts, top)?,
    };
    Some(Tree { facts: facts.clone(), sent })
}

// What a member says: outside `None` it is of the wrong kind, inside it says nothing.

fn text(members: &Members, name: &str) -> Option<Option<String>> {
    match members.get(name) {
        None | Some(Value::Null) => Some(None),
        Some(Value::String(text)) => Some(Some(text.clone())),
        Some(_) => None,
    }
}

fn count(members: &Members, name: &str) -> Option<Option<u64>> {
    match members.get(name) {
        None | Some(Value::Null) => Some(None),
        Some(value) => value.as_u64().map(Some),
    }
}

fn flag(members: &Members, name: &str) -> Option<Option<bool>> {
    match members.get(name) {
        None | Some(Value::Null) => Some(None),
        Some(value) => value.as_bool().map(Some),
    }
}

fn is_given(members: &Members, name: &str) -> bool {
    members.get(name).is_some_and(|value| !value.is_null())
}

/// The objects of a list.
fn list<'t>(members: &'t Members, name: &str) -> Option<Vec<&'t Members>> {
    match members.get(name) {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(items)) => items.iter().map(Value::as_object).collect(),
        Some(_) => None,
    }
}

/// The same where a text or one object may stand too.
fn any<'t>(members: &'t Members, name: &str) -> Option<Vec<&'t Members>> {
    match members.get(name) {
        Some(Value::String(_)) => Some(Vec::new()),
        Some(Value::Object(one)) => Some(vec![one]),
        _ => list(members, name),
    }
}

fn beside(members: &Members, known: &[&str]) -> Vec<String> {
    members.keys().filter(|name| !known.contains(&name.as_str())).cloned().collect()
}

/// Of a row of edits a compaction counts most, then what is not known to remove things.
fn edits(edits: &[&Members], may_clear: bool) -> Option<ContextEdits> {
    let mut found = ContextEdits::None;
    let rank = |edits| match edits {
        ContextEdits::None => 0,
        ContextEdits::Clears => 1,
        ContextEdits::Other => 2,
        ContextEdits::Compacts => 3,
    };
    for edit in edits {
        let kind = text(edit, "type")??;
        let here = match kind.as_str() {
            kind if kind.starts_with("compact") => ContextEdits::Compacts,
            kind if may_clear && kind.starts_with("clear_") => ContextEdits::Clears,
            _ => ContextEdits::Other,
        };
        if rank(here) > rank(found) {
            found = here;
        }
    }
    Some(found)
}

fn messages(facts: &mut RequestFacts, top: Members) -> Option<Members> {
    let known = [
        "model",
        "max_tokens",
        "messages",
        "system",
        "tools",
        "cache_control",
        "context_management",
        "service_tier",
        "speed",
        "inference_geo",
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
    facts.escapes = beside(&top, &known);
    facts.max_output = Some(count(&top, "max_tokens")??);
    top.get("messages")?;
    cached(facts, &top)?;
    (facts.service_tier, facts.speed) = (text(&top, "service_tier")?, text(&top, "speed")?);
    facts.geo = text(&top, "inference_geo")?;
    if is_given(&top, "context_management") {
        facts.context_edits = edits(&list(top["context_management"].as_object()?, "edits")?, true)?;
    }
    for tool in list(&top, "tools")? {
        let (kind, max_uses) = (text(tool, "type")?, count(tool, "max_uses")?);
        cached(facts, tool)?;
        let own = [
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
        if let Some(kind) = kind.filter(|kind| !own.contains(&kind.as_str())) {
            facts.server_tools.push(ServerTool { kind, max_uses });
        }
    }
    any(&top, "system")?.into_iter().try_for_each(|one| block(facts, one))?;
    for message in list(&top, "messages")? {
        facts.held_elsewhere |= !beside(message, &["role", "content"]).is_empty();
        any(message, "content")?.into_iter().try_for_each(|one| block(facts, one))?;
    }
    Some(top)
}

fn block(facts: &mut RequestFacts, of: &Members) -> Option<()> {
    cached(facts, of)?;
    any(of, "content")?.into_iter().try_for_each(|inner| block(facts, inner))?;
    let source = match of.get("source") {
        None | Some(Value::Null | Value::String(_)) => None,
        Some(Value::Object(source)) => text(source, "type")?,
        Some(_) => return None,
    };
    let kind = text(of, "type")?.unwrap_or_default();
    facts.images += u64::from(kind == "image");
    facts.held_elsewhere |= !match kind.as_str() {
        "image" => source.as_deref() == Some("base64"),
        "document" => source.as_deref() == Some("text"),
        "text" | "thinking" | "redacted_thinking" | "tool_use" | "tool_result" | "tool_reference" | "search_result"
        | "server_tool_use" | "compaction" => true,
        _ => false,
    };
    Some(())
}

fn cached(facts: &mut RequestFacts, of: &Members) -> Option<()> {
    if is_given(of, "cache_control") {
        let long = text(of["cache_control"].as_object()?, "ttl")?.is_some_and(|ttl| ttl != "5m");
        facts.cache_write = facts.cache_write.max(if long { CacheWrite::OneHour } else { CacheWrite::FiveMinutes });
    }
    Some(())
}

/// Sets what a request leaves open.
fn pinned(facts: &mut RequestFacts, sent: &mut Members) -> Option<()> {
    if !is_given(sent, "service_tier") {
        sent.insert("service_tier".to_owned(), json!("default"));
    }
    facts.service_tier = text(sent, "service_tier")?;
    Some(())
}

fn responses(facts: &mut RequestFacts, path: &str, top: Members) -> Option<Members> {
    let known = [
        "model",
        "max_output_tokens",
        "max_tool_calls",
        "input",
        "instructions",
        "tools",
        "service_tier",
        "store",
        "background",
        "truncation",
        "context_management",
        "prompt_cache_retention",
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
    facts.escapes = beside(&top, &known);
    facts.escapes.retain(|name| is_given(&top, name));
    facts.max_output = count(&top, "max_output_tokens")?;
    let calls = count(&top, "max_tool_calls")?;
    top.get("input")?;
    let store = top.get("store").is_some_and(|store| !matches!(store, Value::Null | Value::Bool(false)));
    let background = flag(&top, "background")? == Some(true);
    let retention = text(&top, "prompt_cache_retention")?.is_some_and(|how| how != "in_memory" && how != "in-memory");
    for (escapes, name) in [(store, "store"), (background, "background"), (retention, "prompt_cache_retention")] {
        facts.escapes.extend(escapes.then(|| name.to_owned()));
    }
    facts.held_elsewhere |= text(&top, "truncation")?.is_some_and(|how| how != "disabled");
    facts.context_edits = edits(&list(&top, "context_management")?, false)?;
    tools(facts, &top)?;
    for item in [any(&top, "input")?, any(&top, "instructions")?].into_iter().flatten() {
        let kind = text(item, "type")?;
        tools(facts, item)?;
        for name in ["content", "output", "summary"] {
            any(item, name)?
                .into_iter()
                .try_for_each(|of| piece(facts, of, &["input_image", "computer_screenshot"]))?;
        }
        match kind.as_deref() {
            None if is_given(item, "role") => {}
            None | Some("item_reference") => facts.escapes.push("item_reference".to_owned()),
            Some(
                "additional_tools"
                | "apply_patch_call"
                | "apply_patch_call_output"
                | "computer_call"
                | "computer_call_output"
                | "custom_tool_call"
                | "custom_tool_call_output"
                | "function_call"
                | "function_call_output"
                | "local_shell_call"
                | "local_shell_call_output"
                | "message"
                | "reasoning"
                | "tool_search_call"
                | "tool_search_output",
            ) => {}
            Some(_) => facts.held_elsewhere = true,
        }
    }
    for tool in &mut facts.server_tools {
        tool.max_uses = calls;
    }
    let mut sent = top;
    if path == "/v1/responses" {
        pinned(facts, &mut sent)?;
        if !is_given(&sent, "store") {
            sent.insert("store".to_owned(), json!(false));
        }
    }
    Some(sent)
}

/// Tools of the Responses API, in whatever they stand.
fn tools(facts: &mut RequestFacts, of: &Members) -> Option<()> {
    for tool in list(of, "tools")? {
        tools(facts, tool)?;
        let (kind, execution) = (text(tool, "type")?.unwrap_or_default(), text(tool, "execution")?);
        let own = match kind.as_str() {
            "apply_patch"
            | "computer"
            | "computer_use_preview"
            | "custom"
            | "function"
            | "local_shell"
            | "namespace" => true,
            "tool_search" => execution.as_deref() == Some("client"),
            _ => false,
        };
        if !own {
            facts.server_tools.push(ServerTool { kind, max_uses: None });
        }
    }
    Some(())
}

/// A part of content in either of OpenAI's APIs.
fn piece(facts: &mut RequestFacts, of: &Members, images: &[&str]) -> Option<()> {
    let url = match of.get("image_url") {
        Some(Value::Object(image)) => text(image, "url")?,
        _ => text(of, "image_url")?,
    };
    let kind = text(of, "type")?.unwrap_or_default();
    if images.contains(&kind.as_str()) {
        facts.images += 1;
        facts.held_elsewhere |= !url.is_some_and(|url| url.starts_with("data:"));
        return Some(());
    }
    let chat = images == ["image_url"];
    match kind.as_str() {
        "text" | "refusal" => {}
        "input_text" | "output_text" | "reasoning_text" | "summary_text" if !chat => {}
        "input_audio" => facts.escapes.push(kind),
        _ => facts.held_elsewhere = true,
    }
    Some(())
}

fn chat(facts: &mut RequestFacts, top: Members) -> Option<Members> {
    let known = [
        "model",
        "max_tokens",
        "max_completion_tokens",
        "messages",
        "tools",
        "n",
        "stream",
        "stream_options",
        "service_tier",
        "store",
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
    facts.escapes = beside(&top, &known);
    facts.escapes.retain(|name| is_given(&top, name));
    facts.max_output = count(&top, "max_tokens")?.max(count(&top, "max_completion_tokens")?);
    facts.choices = count(&top, "n")?.unwrap_or(1);
    let (many, store) = (facts.choices > 1, flag(&top, "store")? == Some(true));
    facts.escapes.extend(many.then(|| "n".to_owned()).into_iter().chain(store.then(|| "store".to_owned())));
    let stream = flag(&top, "stream")? == Some(true);
    top.get("messages")?;
    for message in list(&top, "messages")? {
        let known = [
            "annotations",
            "content",
            "function_call",
            "name",
            "reasoning",
            "reasoning_content",
            "refusal",
            "role",
            "tool_call_id",
            "tool_calls",
        ];
        facts.held_elsewhere |= beside(message, &known).iter().any(|name| is_given(message, name));
        any(message, "content")?.into_iter().try_for_each(|of| piece(facts, of, &["image_url"]))?;
    }
    for tool in list(&top, "tools")? {
        let kind = text(tool, "type")?.unwrap_or_default();
        if kind != "custom" && kind != "function" {
            facts.server_tools.push(ServerTool { kind, max_uses: None });
        }
    }
    let mut sent = top;
    pinned(facts, &mut sent)?;
    if stream {
        let mut options = match sent.get("stream_options") {
            None | Some(Value::Null) => Members::new(),
            Some(options) => options.as_object()?.clone(),
        };
        options.insert("include_usage".to_owned(), json!(true));
        sent.insert("stream_options".to_owned(), options.into());
    }
    Some(sent)
}
