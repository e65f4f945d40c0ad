//! Our adapters, as the suite is told of them.
// Each test file uses its part.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentrun_adapter::AgentAdapter;
use agentrun_adapter::claude::ClaudeAdapter;
use agentrun_adapter::codex::CodexAdapter;
use agentrun_adapter::opencode::OpenCodeAdapter;
use agentrun_testing::faux::FauxAdapter;
use agentrun_testing::script::{Conversation, Message, Script, Side};
use agentrun_testing::suites::adapter::{Options, Subject};
use serde_json::{Map, Value, json};

pub(crate) struct Faux;

impl Subject for Faux {
    fn adapter(&self, script: &Script) -> Arc<dyn AgentAdapter> {
        Arc::new(FauxAdapter::new(script.clone()))
    }

    fn model(&self) -> &str {
        "some-model"
    }

    fn command(&self, line: &str) -> Option<(String, Map<String, Value>)> {
        Some(("shell".to_owned(), object(json!({ "line": line }))))
    }

    fn conversation(&self, body: &[u8]) -> Conversation {
        let body: Value = serde_json::from_slice(body).unwrap();
        let message = |it: &Value| {
            let mut message = Message::new(if it["role"] == "user" { Side::User } else { Side::Assistant });
            message.say(it["text"].as_str().unwrap());
            message.results = it["results"].as_u64().unwrap() as usize;
            message
        };
        Conversation { messages: body["messages"].as_array().unwrap().iter().map(message).collect(), tools: Vec::new() }
    }
}

pub(crate) struct Claude;

impl Subject for Claude {
    fn adapter(&self, _: &Script) -> Arc<dyn AgentAdapter> {
        Arc::new(ClaudeAdapter::new())
    }

    fn model(&self) -> &str {
        "claude-sonnet-4-5"
    }

    fn call_prefix(&self) -> &str {
        "toolu"
    }

    fn command(&self, line: &str) -> Option<(String, Map<String, Value>)> {
        Some(("Bash".to_owned(), object(json!({ "command": line }))))
    }

    fn over(&self, program: &Path) -> Option<Arc<dyn AgentAdapter>> {
        Some(Arc::new(ClaudeAdapter::over(program)))
    }
}

pub(crate) struct Codex;

impl Subject for Codex {
    fn adapter(&self, _: &Script) -> Arc<dyn AgentAdapter> {
        Arc::new(CodexAdapter::new())
    }

    fn model(&self) -> &str {
        "gpt-5.5"
    }

    fn command(&self, line: &str) -> Option<(String, Map<String, Value>)> {
        Some(("exec_command".to_owned(), object(json!({ "cmd": line }))))
    }
}

pub(crate) struct OpenCode;

impl Subject for OpenCode {
    fn adapter(&self, _: &Script) -> Arc<dyn AgentAdapter> {
        Arc::new(OpenCodeAdapter::new())
    }

    fn model(&self) -> &str {
        "some-model"
    }
}

/// With the program that stands between.
pub(crate) fn options() -> Options {
    Options { between: Some(PathBuf::from(env!("CARGO_BIN_EXE_agentrun-faulty-stdio"))), ..Options::default() }
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}
