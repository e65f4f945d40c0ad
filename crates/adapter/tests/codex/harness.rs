//! What the rig needs of this harness, and how what it sends its model is read.

use agentrun_adapter::codex::CodexAdapter;
use agentrun_adapter::{AgentAdapter, Checked, Refusal, SessionPlan};
use agentrun_kernel::Survey;
use agentrun_testing::scripted::SeenRequest;
use serde_json::Value;

/// A model of its provider.
pub(crate) const MODEL: &str = "gpt-5.5";
/// How its provider's call ids begin.
pub(crate) const CALL: &str = "call";

pub(crate) fn adapter() -> Box<dyn AgentAdapter> {
    Box::new(CodexAdapter::new())
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
    let parts = input(request).into_iter().flat_map(|item| item["content"].as_array().cloned().unwrap_or_default());
    parts.filter(|part| part["text"].as_str().is_some_and(|it| it.trim_end() == text)).count()
}

/// The result the model was sent for `call`.
pub(crate) fn result_sent(request: &SeenRequest, call: &str) -> Value {
    let is_result = |item: &Value| item["call_id"] == call && item.get("output").is_some();
    input(request).into_iter().find(is_result).map_or(Value::Null, |item| item["output"].clone())
}

pub(crate) fn input(request: &SeenRequest) -> Vec<Value> {
    request.body["input"].as_array().unwrap().clone()
}
