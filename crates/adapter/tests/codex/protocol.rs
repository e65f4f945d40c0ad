//! What we rest on of the program's protocol, held against the schemas it writes of itself. An upgrade that moves any of it shows here, by
//! name, before a session meets it; one that changes anything else of the messages we send and read shows as lines gone and lines new.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// Everything the program may ask. A new request must be looked at: unknown ones are refused, and a refusal may not be the right answer.
pub(crate) const ASKED: [&str; 10] = [
    "account/chatgptAuthTokens/refresh",
    "applyPatchApproval",
    "attestation/generate",
    "execCommandApproval",
    "item/commandExecution/requestApproval",
    "item/fileChange/requestApproval",
    "item/permissions/requestApproval",
    "item/tool/call",
    "item/tool/requestUserInput",
    "mcpServer/elicitation/request",
];

/// Members we send or read, by the schema that names them.
const MEMBERS: [(&str, &[&str]); 18] = [
    ("v1/InitializeParams", &["clientInfo", "capabilities"]),
    (
        "v2/ThreadStartParams",
        &[
            "cwd",
            "model",
            "modelProvider",
            "baseInstructions",
            "approvalPolicy",
            "sandbox",
            "dynamicTools",
            "historyMode",
        ],
    ),
    (
        "v2/ThreadResumeParams",
        &["threadId", "excludeTurns", "cwd", "model", "modelProvider", "baseInstructions", "approvalPolicy", "sandbox"],
    ),
    ("v2/ThreadStartResponse", &["thread"]),
    ("v2/ThreadResumeResponse", &["thread"]),
    ("v2/ThreadInjectItemsParams", &["threadId", "items"]),
    ("v2/TurnStartParams", &["threadId", "input", "clientUserMessageId"]),
    ("v2/TurnStartResponse", &["turn"]),
    ("v2/TurnSteerParams", &["threadId", "expectedTurnId", "input", "clientUserMessageId"]),
    ("v2/ItemCompletedNotification", &["item"]),
    ("v2/TurnCompletedNotification", &["turn"]),
    ("v2/AgentMessageDeltaNotification", &["delta"]),
    ("DynamicToolCallParams", &["callId", "tool", "arguments"]),
    ("DynamicToolCallResponse", &["contentItems", "success"]),
    ("CommandExecutionRequestApprovalParams", &["itemId"]),
    ("FileChangeRequestApprovalParams", &["itemId"]),
    ("PermissionsRequestApprovalResponse", &["permissions"]),
    ("ToolRequestUserInputResponse", &["answers"]),
];

/// Values we send or decide by, by schema and definition.
const VALUES: [(&str, &str, &[&str]); 11] = [
    ("v2/ThreadStartParams", "ThreadHistoryMode", &["legacy"]),
    ("v2/ThreadStartParams", "AskForApproval", &["untrusted", "never"]),
    ("v2/ThreadStartParams", "SandboxMode", &["danger-full-access"]),
    ("v2/ItemCompletedNotification", "ThreadItem", &["userMessage", "clientId"]),
    ("v2/TurnCompletedNotification", "TurnStatus", &["completed", "failed"]),
    ("CommandExecutionRequestApprovalResponse", "CommandExecutionApprovalDecision", &["accept", "decline"]),
    ("FileChangeRequestApprovalResponse", "FileChangeApprovalDecision", &["accept", "decline"]),
    ("McpServerElicitationRequestResponse", "McpServerElicitationAction", &["decline"]),
    ("ExecCommandApprovalResponse", "ReviewDecision", &["denied"]),
    ("ApplyPatchApprovalResponse", "ReviewDecision", &["denied"]),
    (
        "v2/TurnCompletedNotification",
        "CodexErrorInfo",
        &[
            "unauthorized",
            "modelNotFound",
            "usageLimitExceeded",
            "rateLimitExceeded",
            "badRequest",
            "contextWindowExceeded",
            "internalServerError",
            "serverOverloaded",
            "httpStatusCode",
        ],
    ),
];

fn schema(folder: &Path, name: &str) -> Value {
    let path = folder.join(format!("{name}.json"));
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("the program writes no schema {name}: {error}"));
    serde_json::from_slice(&text).unwrap()
}

/// The messages we send and read, whole.
const MESSAGES: [&str; 23] = [
    "v1/InitializeParams",
    "v2/ThreadStartParams",
    "v2/ThreadStartResponse",
    "v2/ThreadResumeParams",
    "v2/ThreadResumeResponse",
    "v2/ThreadInjectItemsParams",
    "v2/TurnStartParams",
    "v2/TurnStartResponse",
    "v2/TurnSteerParams",
    "v2/TurnStartedNotification",
    "v2/TurnCompletedNotification",
    "v2/AgentMessageDeltaNotification",
    "DynamicToolCallParams",
    "DynamicToolCallResponse",
    "CommandExecutionRequestApprovalParams",
    "CommandExecutionRequestApprovalResponse",
    "FileChangeRequestApprovalParams",
    "FileChangeRequestApprovalResponse",
    "McpServerElicitationRequestResponse",
    "PermissionsRequestApprovalResponse",
    "ToolRequestUserInputResponse",
    "ExecCommandApprovalResponse",
    "ApplyPatchApprovalResponse",
];

/// What of their definitions our wire types name.
const DEFINITIONS: [&str; 16] = [
    "AskForApproval",
    "ClientInfo",
    "CodexErrorInfo",
    "CommandExecutionApprovalDecision",
    "DynamicToolCallOutputContentItem",
    "DynamicToolSpec",
    "FileChangeApprovalDecision",
    "InitializeCapabilities",
    "McpServerElicitationAction",
    "ReviewDecision",
    "SandboxMode",
    "ThreadHistoryMode",
    "Turn",
    "TurnError",
    "TurnStatus",
    "UserInput",
];

/// The program writes its schemas there.
fn schemas() -> TempDir {
    let program = std::env::var_os("AGENTRUN_CODEX").expect("AGENTRUN_CODEX is not set");
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let mut command = Command::new(program);
    command.args(["app-server", "generate-json-schema", "--experimental", "--out"]).arg(folder.path());
    let done = command.env_clear().env("CODEX_HOME", &home).env("HOME", &home).env("TMPDIR", &home).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    folder
}

/// A type as one reads it: `[text]`, `"a" | "b"`, `{member, member} | null`.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        return name.rsplit('/').next().unwrap().to_owned();
    }
    let several = |of: &Value| of.as_array().map(|each| each.iter().map(kind).collect::<Vec<_>>().join(" | "));
    if let Some(kinds) = ["anyOf", "oneOf", "allOf"].iter().find_map(|name| several(&schema[*name])) {
        return kinds;
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
    }
    let named = |name: &str| match name {
        "array" if schema["items"].is_object() => format!("[{}]", kind(&schema["items"])),
        "object" => match schema["properties"].as_object() {
            Some(members) => {
                let members = members.iter().map(|(name, member)| format!("{name}: {}", kind(member)));
                format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
            }
            None => name.to_owned(),
        },
        other => other.to_owned(),
    };
    match &schema["type"] {
        Value::String(name) => named(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).map(named).collect::<Vec<_>>().join(" | "),
        _ => "anything".to_owned(),
    }
}

/// A line for each member, or one for what has none.
fn shape(name: &str, schema: &Value) -> Vec<String> {
    let Some(members) = schema["properties"].as_object() else { return vec![format!("{name}: {}", kind(schema))] };
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let line = |(member, of): (&String, &Value)| {
        let optional = if required.iter().any(|it| it == member.as_str()) { "" } else { "?" };
        format!("{name}.{member}{optional}: {}", kind(of))
    };
    members.iter().map(line).collect()
}

#[test]
fn an_upgrade_shows_line_by_line_what_it_changes_of_the_messages_that_are_spoken() {
    let folder = schemas();
    let mut now = BTreeSet::new();
    let mut found = BTreeSet::new();
    for message in MESSAGES {
        let schema = schema(folder.path(), message);
        now.extend(shape(message.rsplit('/').next().unwrap(), &schema));
        for name in DEFINITIONS {
            let definition = &schema["definitions"][name];
            if definition.is_object() {
                now.extend(shape(name, definition));
                found.insert(name);
            }
        }
    }
    assert_eq!(found, BTreeSet::from(DEFINITIONS), "definitions that are gone, or have another name");
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/codex/protocol.txt");
    let then: BTreeSet<_> = std::fs::read_to_string(recorded).unwrap().lines().map(str::to_owned).collect();
    let (gone, new): (Vec<_>, Vec<_>) = (then.difference(&now).collect(), now.difference(&then).collect());
    if gone.is_empty() && new.is_empty() {
        return;
    }
    // To be put in the place of the recorded one, once each line was looked at.
    let written = Path::new(env!("CARGO_TARGET_TMPDIR")).join("codex_protocol.txt");
    std::fs::write(&written, now.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    panic!("gone: {gone:#?}\nnew: {new:#?}\nas it is now: {}", written.display());
}

#[test]
fn b72_the_protocol_of_the_pinned_version_is_the_one_that_is_spoken() {
    let folder = schemas();
    let requests = schema(folder.path(), "ServerRequest");
    let asked = requests["oneOf"].as_array().unwrap().iter();
    let asked: BTreeSet<_> = asked.map(|one| one["properties"]["method"]["enum"][0].as_str().unwrap()).collect();
    assert_eq!(asked, BTreeSet::from(ASKED), "what the program may ask has changed");

    for (name, members) in MEMBERS {
        let schema = schema(folder.path(), name);
        for member in members {
            assert!(schema["properties"].get(member).is_some(), "{name} has no `{member}` any more");
        }
    }
    for (name, definition, values) in VALUES {
        let definition = schema(folder.path(), name)["definitions"][definition].to_string();
        for value in values {
            assert!(definition.contains(&format!("\"{value}\"")), "{name} knows no `{value}` any more: {definition}");
        }
    }
}
