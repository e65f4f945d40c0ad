//! The program's stdio protocol, one JSON object a line (2.1.332). What is read is lenient: unknown types and fields are passed over,
//! and a known type that no longer fits is [`Line::Odd`], never an end of the session. What is written is exact: one bad line on its
//! stdin ends the program.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::shown::{SHOWN, shown};

/// The name of the one in-process MCP server that carries the host's tools.
pub(super) const SERVER: &str = "host";
/// What stands before a host tool's name when the model calls it.
pub(super) const TOOL_PREFIX: &str = "mcp__host__";
/// The MCP revision the program speaks; its own `initialize` is answered with it.
const MCP_REVISION: &str = "2025-11-25";
/// A hook callback nobody answers blocks its call after this many seconds. A tool's own time is not in it: it runs after the hook.
const HOOK_TIMEOUT_S: u32 = 3600;

/// The hooks we register. Each name is also the callback id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// A call was announced; it runs only once this is answered.
    PreToolUse,
    /// A call succeeded.
    PostToolUse,
    /// A call failed.
    PostToolUseFailure,
    /// Every call of one response has its result; the next request waits for the answer.
    PostToolBatch,
}

impl Hook {
    const ALL: [Self; 4] = [Self::PreToolUse, Self::PostToolUse, Self::PostToolUseFailure, Self::PostToolBatch];

    const fn name(self) -> &'static str {
        match self {
            Self::PreToolUse => "PreToolUse",
            Self::PostToolUse => "PostToolUse",
            Self::PostToolUseFailure => "PostToolUseFailure",
            Self::PostToolBatch => "PostToolBatch",
        }
    }

    pub(super) fn of_callback(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hook| hook.name() == id)
    }
}

/// A line the program wrote.
#[derive(Debug)]
pub(super) enum Line {
    /// It asks us something and waits for the answer.
    Asks { request_id: String, request: Asked },
    /// It answers one of our control requests (or echoes one of our own answers: the id is then not ours).
    Answers { request_id: String, answer: Result<Value, String> },
    /// A message of ours, or a turn it began by itself after a resume, changed state.
    Lifecycle { uuid: String, state: Lifecycle },
    /// One block of the model's response.
    Assistant(Assistant),
    /// Results as the model will get them.
    Results(Vec<CallResult>),
    /// A piece of a response while it streams.
    Stream(Value),
    /// What the session is made of; repeated at every turn.
    Init(Init),
    /// A turn's end.
    Result(TurnResult),
    /// A known type that did not fit.
    Odd { kind: String, why: String },
    /// Anything else.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Lifecycle {
    Queued,
    Started,
    Completed,
    Cancelled,
    #[serde(other)]
    Unknown,
}

/// What the program asks.
#[derive(Debug)]
pub(super) enum Asked {
    Hook {
        hook: Hook,
        input: HookInput,
    },
    /// Permission for a call whose hook had no opinion.
    Permission {
        call: String,
        input: Value,
    },
    Mcp(McpMessage),
    Unknown(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct HookInput {
    pub(super) tool_name: String,
    pub(super) tool_input: Value,
    pub(super) tool_use_id: String,
}

/// A JSON-RPC message for our in-process MCP server.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct McpMessage {
    pub(super) id: Option<Value>,
    pub(super) method: String,
    pub(super) params: Value,
}

impl McpMessage {
    /// The model's own id of a `tools/call`.
    pub(super) fn tool_use_id(&self) -> Option<&str> {
        self.params.get("_meta")?.get("claudecode/toolUseId")?.as_str()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Assistant {
    pub(super) message: AssistantMessage,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AssistantMessage {
    pub(super) content: Vec<Block>,
}

impl Assistant {
    /// The calls in it: id and tool name.
    pub(super) fn calls(&self) -> impl Iterator<Item = (&str, &str, &Value)> {
        self.message.content.iter().filter_map(|block| match block {
            Block::ToolUse { id, name, input } => Some((id.as_str(), name.as_str(), input)),
            Block::Other => None,
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block {
    ToolUse {
        id: String,
        name: String,
        #[serde(default)]
        input: Value,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Init {
    pub(super) session_id: String,
    pub(super) tools: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TurnResult {
    pub(super) subtype: String,
    pub(super) is_error: bool,
    pub(super) terminal_reason: Option<String>,
    pub(super) api_error_status: Option<u16>,
    pub(super) result: Option<String>,
    pub(super) errors: Vec<String>,
}

impl TurnResult {
    /// What it says went wrong, for a person; no decision reads it.
    pub(super) fn said(&self) -> String {
        match &self.result {
            Some(text) if !text.is_empty() => text.clone(),
            _ if !self.errors.is_empty() => self.errors.join("; "),
            _ => self.terminal_reason.clone().unwrap_or_else(|| self.subtype.clone()),
        }
    }
}

/// What it said of itself in answer to `initialize`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Initialized {
    pub(super) claude_code_version: String,
    pub(super) hooks_applied: bool,
    pub(super) hook_on_failure_supported: bool,
}

/// Reads one line. `None`: not a JSON object (noise on stdout).
pub(super) fn read(line: &[u8]) -> Option<Line> {
    // One undecodable byte must not cost the line.
    read_text(&String::from_utf8_lossy(line))
}

fn read_text(line: &str) -> Option<Line> {
    #[derive(Deserialize)]
    struct Head {
        #[serde(rename = "type", default)]
        kind: String,
        #[serde(default)]
        subtype: String,
    }
    let head: Head = serde_json::from_str(line).ok()?;
    let read = match (head.kind.as_str(), head.subtype.as_str()) {
        ("control_request", _) => read_asked(line),
        ("control_response", _) => parse::<Response>(line).map(|it| {
            let answer = match it.response.error {
                Some(error) if it.response.subtype == "error" => Err(error),
                _ => Ok(it.response.response),
            };
            Line::Answers { request_id: it.response.request_id, answer }
        }),
        ("command_lifecycle", _) => {
            parse::<LifecycleLine>(line).map(|it| Line::Lifecycle { uuid: it.command_uuid, state: it.state })
        }
        ("assistant", _) => parse(line).map(Line::Assistant),
        ("user", _) => parse::<UserLine>(line).map(|it| Line::Results(it.results())),
        ("stream_event", _) => parse::<StreamLine>(line).map(|it| Line::Stream(it.event)),
        ("system", "init") => parse(line).map(Line::Init),
        ("result", _) => parse(line).map(Line::Result),
        _ => Ok(Line::Other),
    };
    Some(read.unwrap_or_else(|error| Line::Odd { kind: head.kind, why: error.to_string() }))
}

fn parse<'a, T: Deserialize<'a>>(line: &'a str) -> serde_json::Result<T> {
    serde_json::from_str(line)
}

fn read_asked(line: &str) -> serde_json::Result<Line> {
    #[derive(Deserialize)]
    struct Outer {
        request_id: String,
        request: Value,
    }
    #[derive(Deserialize)]
    struct HookRequest {
        callback_id: String,
        input: HookInput,
    }
    let Outer { request_id, request } = serde_json::from_str(line)?;
    let subtype = request.get("subtype").and_then(Value::as_str).unwrap_or_default().to_owned();
    let asked = match subtype.as_str() {
        "hook_callback" => {
            let HookRequest { callback_id, input } = HookRequest::deserialize(request)?;
            match Hook::of_callback(&callback_id) {
                Some(hook) => Asked::Hook { hook, input },
                None => Asked::Unknown(callback_id),
            }
        }
        "can_use_tool" => Asked::Permission {
            call: request.get("tool_use_id").and_then(Value::as_str).unwrap_or_default().to_owned(),
            input: request.get("input").cloned().unwrap_or(Value::Null),
        },
        "mcp_message" => Asked::Mcp(McpMessage::deserialize(request.get("message").cloned().unwrap_or(Value::Null))?),
        _ => Asked::Unknown(subtype),
    };
    Ok(Line::Asks { request_id, request: asked })
}

#[derive(Deserialize)]
struct Response {
    response: ResponseBody,
}

#[derive(Deserialize)]
struct ResponseBody {
    #[serde(default)]
    subtype: String,
    request_id: String,
    #[serde(default)]
    response: Value,
    #[serde(default)]
    error: Option<String>,
}

#[derive(Deserialize)]
struct LifecycleLine {
    command_uuid: String,
    state: Lifecycle,
}

/// One call's result as the model will get it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CallResult {
    pub(super) call: String,
    pub(super) text: String,
    pub(super) is_error: bool,
}

#[derive(Deserialize)]
struct UserLine {
    message: UserMessage,
}

#[derive(Deserialize)]
struct UserMessage {
    #[serde(default)]
    content: Value,
}

impl UserLine {
    fn results(&self) -> Vec<CallResult> {
        let blocks = self.message.content.as_array().map(Vec::as_slice).unwrap_or_default();
        let results = blocks.iter().filter(|block| block.get("type").and_then(Value::as_str) == Some("tool_result"));
        results
            .map(|block| CallResult {
                call: block.get("tool_use_id").and_then(Value::as_str).unwrap_or_default().to_owned(),
                text: plain_text(block.get("content").unwrap_or(&Value::Null)),
                is_error: block.get("is_error").and_then(Value::as_bool).unwrap_or_default(),
            })
            .collect()
    }
}

/// A result's words: a text, or text blocks; of other blocks only their kind is said.
fn plain_text(content: &Value) -> String {
    let part = |block: &Value| match block.get("text").and_then(Value::as_str) {
        Some(text) => text.to_owned(),
        None => format!("[{}]", block.get("type").and_then(Value::as_str).unwrap_or("nothing")),
    };
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().map(part).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

#[derive(Deserialize)]
struct StreamLine {
    event: Value,
}

/// One host tool, as the model sees it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) input_schema: Value,
    /// For the program, not for the model.
    #[serde(rename = "_meta")]
    meta: ToolMeta,
}

#[derive(Clone, Debug, Serialize)]
struct ToolMeta {
    #[serde(rename = "anthropic/maxResultSizeChars")]
    most_shown: u32,
    /// Offered in every request, never looked up first.
    #[serde(rename = "anthropic/alwaysLoad")]
    always_load: bool,
}

impl Tool {
    pub(super) const fn new(name: String, description: String, input_schema: Value) -> Self {
        Self { name, description, input_schema, meta: ToolMeta { most_shown: SHOWN, always_load: true } }
    }
}

/// The first line: hooks, host tools with their manifests (without them a resumed turn may ask the model before it knows the tools), and
/// the system prompt, which so stays out of the argument list that every process on the machine can read.
pub(super) fn initialize(request_id: &str, system: &[String], tools: &[Tool]) -> Value {
    let hooks: HashMap<&str, Value> = Hook::ALL
        .into_iter()
        .map(|hook| {
            let matcher = json!([{
                "matcher": "*",
                "hookCallbackIds": [hook.name()],
                "timeout": HOOK_TIMEOUT_S,
                "onFailure": "block",
            }]);
            (hook.name(), matcher)
        })
        .collect();
    control(
        request_id,
        json!({
            "subtype": "initialize",
            "hooks": hooks,
            "systemPrompt": system,
            "sdkMcpServers": [SERVER],
            "sdkMcpServerManifests": { SERVER: {
                "initializeResult": server_info(),
                "toolsListResult": { "tools": tools },
            }},
        }),
    )
}

/// A control request of ours.
pub(super) fn control(request_id: &str, request: Value) -> Value {
    json!({ "type": "control_request", "request_id": request_id, "request": request })
}

/// Takes back a message it has not begun with.
pub(super) fn cancel(message: &str) -> Value {
    control("cancel", json!({ "subtype": "cancel_async_message", "message_uuid": message }))
}

/// A user message. `uuid` is the program's idempotency key, in one process and over a resume.
pub(super) fn user(uuid: &str, text: &str) -> Value {
    json!({
        "type": "user",
        "session_id": "",
        "message": { "role": "user", "content": text },
        "parent_tool_use_id": null,
        "uuid": uuid,
    })
}

/// An answer to a question of the program's.
pub(super) fn answer(request_id: &str, response: Value) -> Value {
    json!({
        "type": "control_response",
        "response": { "subtype": "success", "request_id": request_id, "response": response },
    })
}

/// A refusal to answer.
pub(super) fn refuse(request_id: &str, why: &str) -> Value {
    json!({
        "type": "control_response",
        "response": { "subtype": "error", "request_id": request_id, "error": why },
    })
}

/// The hook lets the call run, and no permission question follows.
pub(super) fn allow_call() -> Value {
    json!({ "hookSpecificOutput": { "hookEventName": "PreToolUse", "permissionDecision": "allow" } })
}

/// The call does not run; the model is told why.
pub(super) fn deny_call(why: &str) -> Value {
    json!({ "hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": why,
    }})
}

/// The turn ends here, with its result in the history and no further request.
pub(super) fn end_turn(why: &str) -> Value {
    json!({ "continue": false, "stopReason": why })
}

/// A tool's result for a `tools/call`.
pub(super) fn tool_result(message: &McpMessage, text: &str, is_error: bool) -> Value {
    mcp_result(message, json!({ "content": [{ "type": "text", "text": shown(text) }], "isError": is_error }))
}

/// The answer to any MCP message but `tools/call`.
pub(super) fn mcp_reply(message: &McpMessage, tools: &[Tool]) -> Value {
    match message.method.as_str() {
        "initialize" => mcp_result(message, server_info()),
        "tools/list" => mcp_result(message, json!({ "tools": tools })),
        "ping" => mcp_result(message, json!({})),
        // A notification still wants its frame answered; id 0 is what the vendor's own library sends.
        _ if message.id.is_none() => mcp_result(message, json!({})),
        _ => json!({ "mcp_response": {
            "jsonrpc": "2.0",
            "id": message.id,
            "error": { "code": -32601, "message": "method not found" },
        }}),
    }
}

fn mcp_result(message: &McpMessage, result: Value) -> Value {
    let id = message.id.clone().unwrap_or_else(|| json!(0));
    json!({ "mcp_response": { "jsonrpc": "2.0", "id": id, "result": result } })
}

fn server_info() -> Value {
    json!({
        "protocolVersion": MCP_REVISION,
        "capabilities": { "tools": {} },
        "serverInfo": { "name": SERVER, "version": env!("CARGO_PKG_VERSION") },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_call_carries_the_models_own_id() {
        let line = br#"{"type":"control_request","request_id":"q","request":{"subtype":"mcp_message","server_name":"host","message":{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"work","arguments":{"a":1},"_meta":{"claudecode/toolUseId":"toolu_1","progressToken":2}}}}}"#;
        let Some(Line::Asks { request_id, request: Asked::Mcp(message) }) = read(line) else { panic!("not a call") };
        assert_eq!((request_id.as_str(), message.tool_use_id()), ("q", Some("toolu_1")));
        let reply = tool_result(&message, "done", false);
        assert_eq!(reply["mcp_response"]["id"], 2);
        assert_eq!(reply["mcp_response"]["result"]["content"][0]["text"], "done");
    }

    #[test]
    fn a_hook_callback_is_read_with_its_call() {
        let line = br#"{"type":"control_request","request_id":"q","request":{"subtype":"hook_callback","callback_id":"PreToolUse","input":{"session_id":"s","transcript_path":"/p/s.jsonl","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"ls"},"tool_use_id":"toolu_1","new_field":1}}}"#;
        let Some(Line::Asks { request: Asked::Hook { hook: Hook::PreToolUse, input }, .. }) = read(line) else {
            panic!("not the hook")
        };
        assert_eq!((input.tool_name.as_str(), input.tool_use_id.as_str()), ("Bash", "toolu_1"));
    }

    #[test]
    fn unknown_types_and_fields_are_passed_over_and_a_misfit_is_no_end() {
        assert!(matches!(read(br#"{"type":"from_the_future","x":[1]}"#), Some(Line::Other)));
        assert!(matches!(read(br#"{"type":"command_lifecycle","command_uuid":3}"#), Some(Line::Odd { .. })));
        assert!(matches!(
            read(br#"{"type":"command_lifecycle","command_uuid":"u","state":"paused"}"#),
            Some(Line::Lifecycle { state: Lifecycle::Unknown, .. })
        ));
        assert!(read(b"warning: something").is_none());
        assert!(read(b"[1,2]").is_none());
    }

    #[test]
    fn assistant_blocks_of_unknown_kinds_do_not_hide_the_calls_beside_them() {
        let line = br#"{"type":"assistant","message":{"content":[{"type":"hologram","x":1},{"type":"tool_use","id":"t","name":"mcp__host__work","input":{}}]}}"#;
        let Some(Line::Assistant(assistant)) = read(line) else { panic!("not an assistant line") };
        assert_eq!(assistant.calls().map(|(id, name, _)| (id, name)).collect::<Vec<_>>(), [("t", "mcp__host__work")]);
    }

    #[test]
    fn a_refused_control_request_is_told_from_an_answered_one() {
        let no = br#"{"type":"control_response","response":{"subtype":"error","request_id":"r","error":"no","error_code":"x"}}"#;
        assert!(matches!(read(no), Some(Line::Answers { answer: Err(_), .. })));
        let yes = br#"{"type":"control_response","response":{"subtype":"success","request_id":"r","response":{"hooks_applied":true}}}"#;
        assert!(matches!(read(yes), Some(Line::Answers { answer: Ok(_), .. })));
    }

    #[test]
    fn what_is_sent_is_always_one_line() {
        let bytes = (user("u", "a\nb\u{2028}c\u{0}").to_string() + "\n").into_bytes();
        assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(bytes.last(), Some(&b'\n'));
    }

    #[test]
    fn initialize_offers_the_tools_before_they_are_asked_for() {
        let tools = [Tool::new("work".into(), "d".into(), json!({"type": "object"}))];
        let request = initialize("r", &["be brief".into()], &tools);
        let request = &request["request"];
        assert_eq!(request["sdkMcpServerManifests"][SERVER]["toolsListResult"]["tools"][0]["name"], "work");
        assert_eq!(request["hooks"]["PreToolUse"][0]["onFailure"], "block");
        assert_eq!(request["systemPrompt"][0], "be brief");
    }

    #[test]
    fn mcp_housekeeping_is_answered_and_an_unknown_method_is_refused() {
        let ask = |method: &str, id: Option<Value>| McpMessage { id, method: method.into(), params: Value::Null };
        assert!(mcp_reply(&ask("ping", Some(json!(4))), &[])["mcp_response"]["result"].is_object());
        assert!(mcp_reply(&ask("notifications/initialized", None), &[])["mcp_response"]["result"].is_object());
        assert_eq!(mcp_reply(&ask("resources/list", Some(json!(5))), &[])["mcp_response"]["error"]["code"], -32601);
    }
}
