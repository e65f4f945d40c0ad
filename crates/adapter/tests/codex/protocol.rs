//! What we rest on of the program's protocol, held against the schemas it writes of itself. An upgrade that moves any of it shows here, by
//! name, before a session meets it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

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
const MEMBERS: [(&str, &[&str]); 13] = [
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
    ("v2/TurnCompletedNotification", &["turn"]),
    ("v2/AgentMessageDeltaNotification", &["delta"]),
    ("DynamicToolCallParams", &["callId", "tool", "arguments"]),
    ("DynamicToolCallResponse", &["contentItems", "success"]),
    ("CommandExecutionRequestApprovalParams", &["itemId"]),
];

/// Values we send or decide by, by schema and definition.
const VALUES: [(&str, &str, &[&str]); 5] = [
    ("v2/ThreadStartParams", "ThreadHistoryMode", &["legacy"]),
    ("v2/ThreadStartParams", "AskForApproval", &["untrusted", "never"]),
    ("v2/ThreadStartParams", "SandboxMode", &["danger-full-access"]),
    ("v2/TurnCompletedNotification", "TurnStatus", &["completed", "failed"]),
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

#[test]
fn b72_the_protocol_of_the_pinned_version_is_the_one_that_is_spoken() {
    let program = std::env::var_os("AGENTRUN_CODEX").expect("AGENTRUN_CODEX is not set");
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let mut command = Command::new(program);
    command.args(["app-server", "generate-json-schema", "--experimental", "--out"]).arg(folder.path());
    let done = command.env_clear().env("CODEX_HOME", &home).env("HOME", &home).env("TMPDIR", &home).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));

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
