//! What the rig needs of this harness, and how what it sends its model is read.

use agentrun_adapter::claude::ClaudeAdapter;
use agentrun_adapter::{AgentAdapter, Checked, Refusal, SessionPlan};
use agentrun_kernel::Survey;
use agentrun_testing::scripted::SeenRequest;
use serde_json::{Value, json};

/// A model of its provider.
pub(crate) const MODEL: &str = "claude-sonnet-4-5";
/// How its provider's call ids begin.
pub(crate) const CALL: &str = "toolu";

pub(crate) fn adapter() -> Box<dyn AgentAdapter> {
    Box::new(ClaudeAdapter::new())
}

/// What `check` says, as it is.
pub(crate) async fn check(
    adapter: &dyn AgentAdapter,
    plan: &SessionPlan,
    prior: Option<&Survey>,
) -> Result<Checked, Refusal> {
    adapter.check(plan, prior).await
}

/// How often `text` stands as a text of its own in what the model was sent.
pub(crate) fn times_sent(request: &SeenRequest, text: &str) -> usize {
    contents(request).iter().filter(|block| block["text"].as_str().is_some_and(|it| it.trim_end() == text)).count()
}

/// The result the model was sent for `call`.
pub(crate) fn result_sent(request: &SeenRequest, call: &str) -> Value {
    contents(request).into_iter().find(|block| block["tool_use_id"] == call).unwrap_or(Value::Null)
}

fn contents(request: &SeenRequest) -> Vec<Value> {
    let messages = request.body["messages"].as_array().unwrap();
    let contents = messages.iter().flat_map(|message| match &message["content"] {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        blocks => blocks.as_array().unwrap().clone(),
    });
    contents.collect()
}
