//! Our adapters, as the suite is told of them.
// Each test file uses its part.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agentrun_adapter::claude::ClaudeAdapter;
use agentrun_adapter::codex::CodexAdapter;
use agentrun_adapter::opencode::OpenCodeAdapter;
use agentrun_adapter::{
    AdapterError, AdapterProfile, AdapterSession, Admission, AgentAdapter, Checked, NativeHistory, Refusal,
    RefusalKind, Seat, SessionPlan,
};
use agentrun_kernel::{HarnessVersion, Survey};
use agentrun_testing::faux::FauxAdapter;
use agentrun_testing::script::{Conversation, Message, Script, Side};
use agentrun_testing::suites::adapter::{Options, Subject};
use serde_json::{Map, Value, json};

pub(crate) struct Faux;

impl Subject for Faux {
    fn adapter(&self, script: &Script) -> Arc<dyn AgentAdapter> {
        Arc::new(FauxAdapter::new(script.clone()).steered())
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

/// A version outside the range is tried when it is asked for: what else would say whether it works?
struct AnyVersion(Box<dyn AgentAdapter>);

#[async_trait::async_trait]
impl AgentAdapter for AnyVersion {
    fn profile(&self) -> &AdapterProfile {
        self.0.profile()
    }

    fn history(&self) -> &dyn NativeHistory {
        self.0.history()
    }

    async fn check(&self, plan: &SessionPlan, prior: Option<&Survey>) -> Result<Checked, Refusal> {
        let wanted = std::env::var_os("AGENTRUN_ANY_VERSION").is_some();
        let profile = self.profile();
        let named = std::env::var_os(profile.program.unwrap().variable).map(PathBuf::from);
        // OpenCode takes as long to say its version as most of what is tested; only the cases of the check itself ask.
        let of_the_check = std::env::args().any(|it| it.contains("::b25_"));
        if profile.name == "opencode" && !of_the_check && named.is_some() && !wanted {
            let version = profile.program.unwrap().pinned.to_string();
            return Ok(Checked {
                capabilities: profile.widest,
                harness: HarnessVersion { name: profile.name.to_owned(), version },
                program: named,
                plan: plan.clone(),
            });
        }
        match self.0.check(plan, prior).await {
            Err(Refusal { kind: RefusalKind::Version { found, .. }, .. }) if wanted => Ok(Checked {
                capabilities: profile.widest,
                harness: HarnessVersion { name: profile.name.to_owned(), version: found },
                program: named,
                plan: plan.clone(),
            }),
            checked => checked,
        }
    }

    async fn open(&self, admission: Admission, seat: Seat) -> Result<Box<dyn AdapterSession>, AdapterError> {
        self.0.open(admission, seat).await
    }
}

pub(crate) struct Claude;

impl Subject for Claude {
    fn adapter(&self, _: &Script) -> Arc<dyn AgentAdapter> {
        Arc::new(AnyVersion(Box::new(ClaudeAdapter::new())))
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
        Arc::new(AnyVersion(Box::new(CodexAdapter::new())))
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
        Arc::new(AnyVersion(Box::new(OpenCodeAdapter::new())))
    }

    fn model(&self) -> &str {
        "some-model"
    }
}

/// With the program that stands between.
pub(crate) fn options() -> Options {
    let between = Some(PathBuf::from(env!("CARGO_BIN_EXE_agentrun-faulty-stdio")));
    // Just below what the test runner gives these tests.
    Options { between, patience: Duration::from_secs(590) }
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}
