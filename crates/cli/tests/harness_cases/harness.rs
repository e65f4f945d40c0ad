//! The harness programs a case runs on, as data: all that differs from one to the next, so that a case is written once.

use serde_json::Value;

use agentrun_testing::scripted::SeenRequest;

/// A harness with the provider it speaks to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Harness {
    /// As `--harness` names it.
    pub(crate) name: &'static str,
    /// As `--provider` names it.
    pub(crate) provider: &'static str,
    /// The variable that names its program.
    pub(crate) variable: &'static str,
    /// The variable that holds the provider's key.
    pub(crate) key: &'static str,
    /// The header the key goes upstream in.
    pub(crate) credential: &'static str,
    /// A model of the provider.
    pub(crate) model: &'static str,
    /// Its built-in shell, where a node may list it: its name, and the member of its input that holds the command.
    pub(crate) shell: Option<(&'static str, &'static str)>,
}

pub(crate) const CLAUDE: Harness = Harness {
    name: "claude",
    provider: "anthropic",
    variable: "AGENTRUN_CLAUDE",
    key: "ANTHROPIC_API_KEY",
    credential: "x-api-key",
    model: "claude-sonnet-4-5",
    shell: Some(("Bash", "command")),
};

pub(crate) const CODEX: Harness = Harness {
    name: "codex",
    provider: "openai",
    variable: "AGENTRUN_CODEX",
    key: "OPENAI_API_KEY",
    credential: "authorization",
    model: "gpt-5",
    shell: Some(("exec_command", "cmd")),
};

pub(crate) const OPENCODE: Harness = Harness {
    name: "opencode",
    provider: "openai-chat",
    variable: "AGENTRUN_OPENCODE",
    key: "OPENAI_API_KEY",
    credential: "authorization",
    model: "gpt-5",
    shell: Some(("bash", "command")),
};

/// OpenCode on its other API.
pub(crate) const OPENCODE_MESSAGES: Harness =
    Harness { provider: "anthropic", key: CLAUDE.key, credential: CLAUDE.credential, model: CLAUDE.model, ..OPENCODE };

/// Makes a case a test of each harness named.
macro_rules! cases {
    ($($harness:ident: $($case:ident),+ $(,)?;)+) => {$(
        mod $harness {
            $(#[test]
            fn $case() {
                super::$case(crate::harness::by_name(stringify!($harness)));
            })+
        }
    )+};
}
pub(crate) use cases;

/// A harness by the name of its module of tests.
pub(crate) fn by_name(name: &str) -> Harness {
    match name {
        "opencode_messages" => OPENCODE_MESSAGES,
        _ => [CLAUDE, CODEX, OPENCODE].into_iter().find(|it| it.name == name).unwrap(),
    }
}

/// The harness's own id of the session, where its requests tell it.
pub(crate) fn own_session(on: Harness, request: &SeenRequest) -> Option<String> {
    match on.name {
        "claude" => Some(request.headers["x-claude-code-session-id"].clone()),
        "codex" => Some(request.body["prompt_cache_key"].as_str().unwrap().to_owned()),
        _ => None,
    }
}

/// All that a request shows the model, but for the tools it offers: each text on lines of its own.
pub(crate) fn seen(request: &SeenRequest) -> String {
    fn texts(value: &Value, into: &mut String) {
        match value {
            Value::String(text) => *into += &format!("{text}\n"),
            Value::Array(all) => all.iter().for_each(|it| texts(it, into)),
            Value::Object(all) => all.values().for_each(|it| texts(it, into)),
            _ => {}
        }
    }
    let mut text = String::new();
    for member in ["system", "instructions", "messages", "input"] {
        texts(&request.body[member], &mut text);
    }
    text
}

/// What a request shows the model as results of its calls, whichever of the three APIs it speaks.
pub(crate) fn results(request: &SeenRequest) -> String {
    fn texts(value: &Value) -> Vec<String> {
        match value {
            Value::String(text) => vec![text.clone()],
            Value::Array(parts) => parts.iter().filter_map(|it| it["text"].as_str()).map(str::to_owned).collect(),
            other => panic!("a result without text: {other}"),
        }
    }
    let body = &request.body;
    let items = ["messages", "input"].into_iter().filter_map(|it| body[it].as_array()).flatten();
    let results = items.flat_map(|item| {
        if item["type"].as_str().is_some_and(|kind| kind.ends_with("_call_output")) {
            return texts(&item["output"]);
        }
        if item["role"] == "tool" {
            return texts(&item["content"]);
        }
        let blocks = item["content"].as_array().into_iter().flatten();
        blocks.filter(|it| it["type"] == "tool_result").flat_map(|it| texts(&it["content"])).collect()
    });
    results.collect::<Vec<_>>().join("\n")
}
