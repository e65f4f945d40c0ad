//! The host's tools of a case: `work`, which does as the case says, and `submit`, which ends the turn. Each call is an effect with its intent
//! and one outcome, as the runner makes them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentrun_adapter::{Answer, Observed, ToolCall, ToolHost, ToolSpec};
use agentrun_kernel::{
    Begun, Digest, Drive, DriveError, EffectKey, EffectKind, EffectSpec, OnRepeat, Outcome, OutcomeEnd, Replay, Restart,
};
use async_trait::async_trait;
use serde_json::json;
use tokio::sync::watch;

use crate::suites::failure::Failure;

/// How long a call that must come is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// A built-in whose arguments hold this word is denied.
pub(super) const FORBIDDEN: &str = "forbidden";
/// What the model is told of it.
pub(super) const NOT_HERE: &str = "Such commands are not run here.";

/// What becomes of a call of `work`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Answers,
    /// Begins, and ends when the case lets it: [`Host::let_go`].
    Waits,
    /// As the runner does when it drains.
    Withheld,
}

/// A call as the host was asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) call: String,
    pub(super) tool: String,
    pub(super) ordinal: u32,
}

pub(super) struct Host {
    drive: Drive,
    work: Work,
    specs: Vec<ToolSpec>,
    asked: Mutex<Vec<Asked>>,
    /// Calls of `work` whose intent is durable.
    begun: watch::Sender<usize>,
    /// Raised when those that wait may end.
    gone: watch::Sender<bool>,
}

impl Host {
    pub(super) fn new(drive: Drive, work: Work) -> Self {
        let specs = Self::specs_of();
        let (begun, gone) = (watch::Sender::new(0), watch::Sender::new(false));
        Self { drive, work, specs, asked: Mutex::default(), begun, gone }
    }

    /// The tools every case offers.
    pub(super) fn specs_of() -> Vec<ToolSpec> {
        vec![tool("work"), tool("submit")]
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until a call of `work` has its intent.
    pub(super) async fn begun(&self) -> Result<(), Failure> {
        let mut begun = self.begun.subscribe();
        let reached = tokio::time::timeout(PATIENCE, begun.wait_for(|count| *count > 0)).await;
        if reached.is_ok() { Ok(()) } else { Err(Failure("`work` was never called".to_owned())) }
    }

    /// Lets calls that wait end.
    pub(super) fn let_go(&self) {
        self.gone.send_replace(true);
    }

    fn note(&self, call: &ToolCall) {
        let asked = Asked { call: call.call.to_string(), tool: call.tool.clone(), ordinal: call.ordinal };
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
    }

    async fn begin(&self, call: &ToolCall, kind: EffectKind) -> Result<Option<Begun>, Restart> {
        let Some(turn) = self.drive.with_state(|state| state.open_turn.as_ref().map(|turn| turn.id.clone())) else {
            return Ok(None);
        };
        let digest = Digest::of_json(&call.arguments);
        let spec = EffectSpec {
            key: EffectKey::of_call(&turn, &call.call, &call.tool, &digest, call.ordinal),
            kind,
            replay: Replay::Never,
            on_repeat: OnRepeat::Refuse,
            name: call.tool.clone(),
            turn: Some(turn),
            call: Some(call.call.clone()),
            arguments: call.arguments.clone(),
            digest,
            paid: None,
        };
        match self.drive.begin(spec, call.tail.bodies(), None).await {
            Ok(begun) => Ok(Some(begun)),
            Err(DriveError::Restart(restart)) => Err(restart),
            Err(_) => Ok(None),
        }
    }
}

/// A tool whose schema is nested, since some harnesses flatten one.
fn tool(name: &str) -> ToolSpec {
    let list =
        json!({ "type": "array", "items": { "type": "object", "properties": { "innermost": { "type": "string" } } } });
    let input_schema = json!({ "type": "object", "properties": { "outer": {
        "type": "object", "properties": { "list": list },
    }}});
    ToolSpec { name: name.to_owned(), description: format!("does {name}"), input_schema }
}

/// What `tool` answers.
pub(super) fn answer_of(tool: &str, call: &str) -> String {
    format!("{tool} did {call}")
}

#[async_trait]
impl ToolHost for Host {
    fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }

    async fn call(&self, call: ToolCall) -> Result<Answer, Restart> {
        self.note(&call);
        let (id, tool) = (call.call.to_string(), call.tool.clone());
        let offered = self.specs.iter().any(|spec| spec.name == tool);
        if !offered || (tool == "work" && self.work == Work::Withheld) {
            return Ok(Answer::Withhold);
        }
        let begun = self.begin(&call, EffectKind::Tool).await?;
        // The tail holds up every other one while it lives.
        drop(call);
        let Some(Begun::Open(effect)) = begun else { return Ok(Answer::Withhold) };
        if tool == "work" {
            self.begun.send_modify(|count| *count = count.saturating_add(1));
            if self.work == Work::Waits {
                let _ = self.gone.subscribe().wait_for(|gone| *gone).await;
            }
        }
        let text: Arc<str> = Arc::from(answer_of(&tool, &id));
        let outcome = Outcome::new(effect.key().clone(), OutcomeEnd::Ok, text.clone());
        match effect.finish(outcome, Vec::new(), None).await {
            Ok(_) => Ok(Answer::Text { text, is_error: false, end_turn: tool == "submit" }),
            Err(unfinished) => match unfinished.error {
                DriveError::Restart(restart) => Err(restart),
                _ => Ok(Answer::Withhold),
            },
        }
    }

    async fn observe(&self, call: ToolCall) -> Result<Observed, Restart> {
        self.note(&call);
        if call.arguments.to_string().contains(FORBIDDEN) {
            return Ok(Observed::Deny(Arc::from(NOT_HERE)));
        }
        match self.begin(&call, EffectKind::Builtin).await? {
            Some(Begun::Open(effect)) => Ok(Observed::Run(effect)),
            _ => Ok(Observed::Withhold),
        }
    }
}
