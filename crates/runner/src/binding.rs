//! What a session is bound to: the digests of its node, the plan its adapter is asked for, and the records that say so.

use agentrun_adapter::{Admission, ModelApi, SessionPlan};
use agentrun_kernel::{
    Batch, Body, Bound, Digest, Drive, DriveError, FORMAT, HarnessVersion, Opened, PlanDigests, SessionState,
};
use serde_json::json;

use crate::error::{NodeError, NodeWord};
use crate::node::{Node, PROMPT_BYTES, Step};
use crate::runner::HarnessRunner;

/// Whether the session may go on with this node: same format, adapter, binding and run. A refusal names both digests and the fields that moved.
pub(crate) fn check_binding(
    state: &SessionState,
    runner: &HarnessRunner,
    digests: &PlanDigests,
    step: &Step,
) -> Result<(), NodeError> {
    let Some(bound) = &state.bound else { return Ok(()) };
    let fail = |message: String| Err(NodeError::new(&step.session, NodeWord::Binding, message));
    if bound.format != u32::from(FORMAT) {
        return fail(format!(
            "the session has format {}, this version reads {FORMAT}; use the version that wrote it",
            bound.format
        ));
    }
    let name = runner.adapter.profile().name;
    if bound.adapter != name {
        return fail(format!(
            "the session was begun on `{}` and cannot go on with `{name}`; use another session key",
            bound.adapter
        ));
    }
    if bound.binding != digests.binding() {
        let moved = bound.plan.moved(digests).join(", ");
        let (was, is) = (bound.binding.as_str(), digests.binding());
        return fail(format!(
            "the session is bound to another node: {moved} changed (binding {was:.12} was recorded, this is {is:.12}); run the node as it was, or \
             use another session key"
        ));
    }
    if bound.run != step.run {
        return fail(format!("the session belongs to run `{}`, not `{}`", bound.run, step.run));
    }
    Ok(())
}

/// Digests of everything the model is given.
pub(crate) fn plan_digests(node: &Node, step: &Step) -> PlanDigests {
    let tools: Vec<_> =
        node.tools.iter().map(|tool| json!([tool.spec.name, tool.spec.description, tool.spec.input_schema])).collect();
    PlanDigests {
        prompt: Digest::of(node.prompt.as_bytes()),
        system: Digest::of_json(&json!(node.system)),
        schema: Digest::of_json(&node.schema),
        tools: Digest::of_json(&json!([tools, node.builtins])),
        model: node.model.clone(),
        label: node.label.clone(),
        attempt: step.attempt,
    }
}

/// The session as the adapter is asked for it.
pub(crate) fn plan(node: &Node, step: &Step, api: Option<ModelApi>) -> Result<SessionPlan, String> {
    let envelope = crate::envelope::Envelope::new(&node.schema).map_err(|error| error.to_string())?;
    if node.prompt.len() > PROMPT_BYTES {
        return Err(format!(
            "the prompt has {} bytes, more than {PROMPT_BYTES}; put the rest into a file of the workspace",
            node.prompt.len()
        ));
    }
    if let Some(budget) = node.budget.filter(|budget| budget.is_negative()) {
        return Err(format!("the node's budget of ${budget} is below zero; leave it out for none"));
    }
    for tool in &node.tools {
        if crate::node::RESERVED.contains(&tool.spec.name.as_str()) {
            return Err(format!("the tool name `{}` is reserved", tool.spec.name));
        }
        if let Some(price) = tool.price.filter(|price| price.is_negative()) {
            return Err(format!("the tool `{}` has a price of ${price}, which is below zero", tool.spec.name));
        }
        if tool.price.is_some() && tool.replay == agentrun_kernel::Replay::Safe {
            return Err(format!(
                "the tool `{}` costs money and is declared safe; a priced tool is `never`",
                tool.spec.name
            ));
        }
    }
    let tools = node.tools.iter().map(|tool| tool.spec.clone()).chain([envelope.spec().clone()]).collect();
    Ok(SessionPlan {
        session: step.session.clone(),
        model: node.model.clone(),
        api,
        system: node.system.clone(),
        tools,
        builtins: node.builtins.clone(),
        fork: node.fork,
    })
}

/// Records the open, and on a fresh session what it is bound to.
pub(crate) async fn record_opening(
    runner: &HarnessRunner,
    step: &Step,
    drive: &Drive,
    admission: &Admission,
    digests: PlanDigests,
    node: &Node,
    fresh: bool,
) -> Result<(), DriveError> {
    let checked = admission.checked();
    let opened = Body::Opened(Opened {
        earlier: step.earlier.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        harness: Some(HarnessVersion { name: checked.harness.name.clone(), version: checked.harness.version.clone() }),
        native_session: None,
    });
    let bound = fresh.then(|| {
        Body::Bound(Bound {
            format: u32::from(FORMAT),
            adapter: runner.adapter.profile().name.to_owned(),
            binding: digests.binding(),
            plan: digests,
            run: step.run.clone(),
            parent: None,
            builtins: checked.capabilities.builtins,
            host: node.host.clone(),
        })
    });
    drive.append(Batch::of(bound.into_iter().chain([opened])), None).await.map(drop)
}
