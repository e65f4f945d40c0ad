//! What the rig needs of this harness, and how what it sends its model is read.

use agentrun_adapter::opencode::OpenCodeAdapter;
use agentrun_adapter::{AgentAdapter, Checked, Refusal, SessionPlan};
use agentrun_kernel::{HarnessVersion, Survey};
use agentrun_testing::scripted::SeenRequest;
use serde_json::Value;

/// A model of its provider.
pub(crate) const MODEL: &str = "some-model";
/// How its provider's call ids begin.
pub(crate) const CALL: &str = "call";

pub(crate) fn adapter() -> Box<dyn AgentAdapter> {
    Box::new(OpenCodeAdapter::new())
}

/// What `check` would say of the pinned program. It is not asked for its version, which takes it longer than most of what is tested.
pub(crate) async fn check(
    adapter: &dyn AgentAdapter,
    plan: &SessionPlan,
    _prior: Option<&Survey>,
) -> Result<Checked, Refusal> {
    Ok(Checked {
        capabilities: adapter.profile().widest,
        harness: HarnessVersion { name: "opencode".to_owned(), version: "1.18.33".to_owned() },
        program: Some(crate::rig::real()),
        plan: plan.clone(),
    })
}

/// How often `text` stands as a text of its own in what the model was sent.
pub(crate) fn times_sent(request: &SeenRequest, text: &str) -> usize {
    texts(request).iter().filter(|it| it.trim_end() == text).count()
}

/// Every text of every message, the system prompt's too.
pub(crate) fn texts(request: &SeenRequest) -> Vec<String> {
    let messages = request.body["messages"].as_array().unwrap();
    let contents = messages.iter().flat_map(|message| match &message["content"] {
        Value::String(text) => vec![text.clone()],
        Value::Array(blocks) => blocks.iter().filter_map(|it| it["text"].as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    });
    contents.collect()
}

/// The result the model was sent for `call`.
pub(crate) fn result_sent(request: &SeenRequest, call: &str) -> Value {
    let messages = request.body["messages"].as_array().unwrap();
    let blocks = messages.iter().flat_map(|message| message["content"].as_array().into_iter().flatten());
    let found = messages.iter().find(|message| message["tool_call_id"] == call);
    let found = found.or_else(|| blocks.clone().find(|block| block["tool_use_id"] == call));
    found.map_or(Value::Null, |it| it["content"].clone())
}
