//! Runs host tools as recorded effects, and the submit tool above all. Each call runs in a task the runner owns: a harness that dies, hangs
//! up or is stopped loses no outcome.
//!
//! ```text
//!  call ─► stopping? withhold ─► known tool, fitting arguments? ─► permit ─► [native tail, hold, intent] ─► run ─► [outcome, booking] ─► answer
//! ```

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agentrun_adapter::{Answer, Observed, Tail, ToolCall, ToolHost, ToolSpec};
use agentrun_cap::{Scope, Word, fits};
use agentrun_kernel::{
    Batch, Begun, Body, Candidate, Delivered, Digest, Drive, DriveError, Effect, EffectKey, EffectKind, EffectSpec,
    HoldId, LedgerBody, LoopVerdict, NativeCall, OnRepeat, OpenEffect, Outcome, OutcomeEnd, Replay, Restart, StopLevel,
    StopRaiser, StopSignal, Unfinished, Usd, Verdict, Why, crossing, planted,
};
use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, oneshot};

use crate::books::{Hold, LedgerError, RunLedger};
use crate::circles::{self, Circles};
use crate::envelope::{Envelope, SchemaError, compile, problems};
use crate::error::NodeWord;
use crate::gate::{AttemptGate, Trouble, trouble_of};
use crate::in_flight::InFlight;
use crate::node::{Node, ReviewVerdict, SUBMIT, Tool, ToolEnd, ToolInvocation};

/// Most bytes of an outcome's text; what is longer keeps its head and its tail.
const TEXT_BYTES: usize = 1 << 20;

const ACCEPTED: &str = "Accepted. The task is done; do nothing more.";
const ALREADY: &str = "Already delivered: the task is done. Do nothing more.";
/// The same in a turn that was opened after the delivery: it goes on without another submission.
/// What a built-in that the delivery cut is recorded as; the harness has ended with it.
const CUT_BY_DELIVERY: &str =
    "Interrupted: the value was delivered while this ran. It may have partly run, and it was not run again.";
const CLOSED: &str = "Already delivered: the value stands and cannot be changed. Answer in words.";

/// What every call of a session shares.
pub(crate) struct Bridge {
    specs: Vec<ToolSpec>,
    shared: Arc<Shared>,
}

struct Shared {
    drive: Drive,
    ledger: Arc<RunLedger>,
    gate: Arc<AttemptGate>,
    node: Node,
    envelope: Envelope,
    validators: HashMap<String, Arc<jsonschema::Validator>>,
    stop: StopSignal,
    raiser: StopRaiser,
    store_id: String,
    workspace: std::path::PathBuf,
    /// Shared by calls, owned by an exclusive one; fair, so an exclusive call is not starved.
    permits: Arc<RwLock<()>>,
    running: InFlight,
    circles: Circles,
    failed: OnceLock<(NodeWord, String)>,
}

/// A call's permit, held until its outcome is recorded.
enum Permit {
    Shared(#[allow(dead_code, reason = "held, not read")] OwnedRwLockReadGuard<()>),
    Exclusive(#[allow(dead_code, reason = "held, not read")] OwnedRwLockWriteGuard<()>),
}

/// What the bridge is made from, beside the node.
pub(crate) struct BridgeParts {
    pub(crate) drive: Drive,
    pub(crate) ledger: Arc<RunLedger>,
    pub(crate) gate: Arc<AttemptGate>,
    pub(crate) raiser: StopRaiser,
    pub(crate) store_id: String,
    pub(crate) workspace: std::path::PathBuf,
}

/// Why a tool call gave no outcome.
enum Cut {
    Restart(Restart),
    /// The node has ended; the harness is not answered.
    Ended,
}

impl Bridge {
    pub(crate) fn new(node: Node, parts: BridgeParts) -> Result<Self, (String, SchemaError)> {
        let envelope = Envelope::new(&node.schema).map_err(|error| ("schema".to_owned(), error))?;
        let mut validators = HashMap::new();
        let mut specs = Vec::with_capacity(node.tools.len().saturating_add(1));
        for tool in &node.tools {
            let name = tool.spec.name.clone();
            let validator = compile(&tool.spec.input_schema).map_err(|error| (format!("tool `{name}`"), error))?;
            validators.insert(name, validator);
            specs.push(tool.spec.clone());
        }
        specs.push(envelope.spec().clone());
        let BridgeParts { drive, ledger, gate, raiser, store_id, workspace } = parts;
        let circles = Circles::of(&drive);
        let shared = Shared {
            drive,
            ledger,
            gate,
            node,
            envelope,
            validators,
            stop: raiser.signal(),
            raiser,
            store_id,
            workspace,
            permits: Arc::new(RwLock::new(())),
            running: InFlight::new(),
            circles,
            failed: OnceLock::new(),
        };
        Ok(Self { specs, shared: Arc::new(shared) })
    }

    /// One of the runner's bounds that a call ran into.
    pub(crate) fn failed(&self) -> Option<(NodeWord, String)> {
        self.shared.failed.get().cloned()
    }

    /// Waits until every call has its outcome, for at most `deadline`.
    pub(crate) async fn quiesce(&self, deadline: Duration) -> bool {
        self.shared.running.quiesce(deadline).await
    }

    /// Whether an open effect may run again: safe today too, and its arguments still fit.
    pub(crate) fn rerunnable(&self, effect: &Effect) -> bool {
        let intent = &effect.intent;
        let safe = self.shared.tool(&intent.name).is_some_and(|tool| tool.replay == Replay::Safe);
        (safe || planted!(RerunNever)) && self.shared.misfit(&intent.name, &intent.arguments).is_none()
    }

    /// Whether a tool is run here, and not by the harness.
    pub(crate) fn runs(&self, tool: &str) -> bool {
        tool == SUBMIT || self.shared.tool(tool).is_some()
    }

    /// Runs a call that the history holds and that never began: its native bytes are in the records already.
    pub(crate) async fn run_new(&self, call: NativeCall, ordinal: u32) -> Result<(), LedgerError> {
        let NativeCall { call, tool, arguments } = call;
        let call = ToolCall { call, tool, arguments, ordinal, tail: Tail::none() };
        match self.call(call).await {
            Ok(Answer::Text { .. }) => Ok(()),
            Ok(Answer::Withhold) => Err(LedgerError::Cut),
            Err(restart) => Err(LedgerError::Drive(DriveError::Restart(restart))),
        }
    }

    /// Runs an open effect of an earlier epoch again, under its first intent.
    pub(crate) async fn rerun(&self, key: &EffectKey) -> Result<(), LedgerError> {
        let Begun::Open(effect) = self.shared.drive.reopen(key).await? else { return Ok(()) };
        let Some(intent) = self.shared.drive.with_state(|state| state.effect(key).map(|effect| effect.intent.clone()))
        else {
            return Ok(());
        };
        let Some(tool) = self.shared.tool(&intent.name).cloned() else { return self.interrupt_open(effect).await };
        let _running = self.shared.running.enter();
        let invocation = self.shared.invocation(key, &tool, intent.arguments.clone());
        let end = Shared::run(&tool, invocation).await;
        self.shared.finish(effect, &tool, intent.hold.clone(), end).await.map(drop)
    }

    /// Ends an open effect that is not run again: what its tool can tell of it, or interrupted. Its hold is then unknown.
    pub(crate) async fn interrupt(&self, key: &EffectKey) -> Result<(), LedgerError> {
        let Some(intent) = self.shared.drive.with_state(|state| state.effect(key).map(|effect| effect.intent.clone()))
        else {
            return Ok(());
        };
        if let Some(tool) = self.shared.tool(&intent.name).cloned().filter(|_| intent.effect == EffectKind::Tool) {
            match tool.run.reconcile(self.shared.invocation(key, &tool, intent.arguments.clone())).await {
                crate::node::Reconciled::Happened(text) => {
                    let Begun::Open(effect) = self.shared.drive.reopen(key).await? else { return Ok(()) };
                    return self.shared.finish(effect, &tool, intent.hold.clone(), ToolEnd::Ok(text)).await.map(drop);
                }
                crate::node::Reconciled::DidNot => return self.rerun(key).await,
                crate::node::Reconciled::Unknown => {}
            }
        }
        let Begun::Open(effect) = self.shared.drive.reopen(key).await? else { return Ok(()) };
        self.interrupt_open(effect).await
    }

    /// Whether an open effect is a submit of the open turn that was cut before its candidate was recorded, in a session that can still
    /// deliver: its intent holds all that was submitted.
    pub(crate) fn is_cut_submit(&self, key: &EffectKey) -> bool {
        self.shared.drive.with_state(|state| {
            let wanted = state.delivered.is_none() && state.undecided().is_none();
            let turn = state.open_turn.as_ref().map(|turn| &turn.id);
            let submit = |effect: &Effect| {
                effect.intent.effect == EffectKind::Submit
                    && effect.outcome.is_none()
                    && effect.intent.turn.as_ref() == turn
            };
            wanted && turn.is_some() && state.effect(key).is_some_and(submit)
        })
    }

    /// Decides such a submit from its intent, so that the model is not asked, and paid, for the same value again (f20).
    pub(crate) async fn submit_again(&self, key: &EffectKey) -> Result<(), ReviewFault> {
        let shared = &self.shared;
        let Some(intent) = shared.drive.with_state(|state| state.effect(key).map(|effect| effect.intent.clone()))
        else {
            return Ok(());
        };
        let effect = match shared.drive.reopen(key).await? {
            Begun::Open(effect) => effect,
            Begun::Known(_) | Begun::Running(_) => return Ok(()),
        };
        let number = shared.candidate(&effect, &intent.arguments).await?;
        shared.decide(effect, number, intent.arguments.clone()).await.map(drop)
    }

    async fn interrupt_open(&self, effect: OpenEffect) -> Result<(), LedgerError> {
        interrupt_open(&self.shared.drive, &self.shared.ledger, effect).await
    }

    /// Asks the review again about a candidate that a crash left undecided.
    pub(crate) async fn review_again(&self, candidate: &Candidate) -> Result<(), ReviewFault> {
        let effect = match self.shared.drive.reopen(&candidate.key).await? {
            Begun::Open(effect) => effect,
            Begun::Known(_) | Begun::Running(_) => return Ok(()),
        };
        self.shared.decide(effect, candidate.number, candidate.submitted.clone()).await.map(drop)
    }
}

/// Ends an open call as interrupted, with the text the model reads; its hold counts in full.
pub(crate) async fn interrupt_open(drive: &Drive, ledger: &RunLedger, effect: OpenEffect) -> Result<(), LedgerError> {
    let key = effect.key().clone();
    let intent = drive.with_state(|state| state.effect(&key).map(|effect| effect.intent.clone()));
    let (name, hold) =
        intent.map_or_else(|| (String::new(), None), |intent| (intent.name.clone(), intent.hold.clone()));
    let text = format!(
        "Interrupted: the session was cut while `{name}` ran. It may have partly run, and it was not run again. Find out by other means what \
         happened before you rely on it."
    );
    ledger.interrupt(effect, hold, text, "the session was cut while it ran").await
}

/// Why a candidate stays undecided.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReviewFault {
    #[error(transparent)]
    Drive(#[from] DriveError),
    #[error("the review failed: {0}")]
    Host(#[from] crate::node::HostFault),
}

impl Shared {
    fn tool(&self, name: &str) -> Option<&Tool> {
        self.node.tools.iter().find(|tool| tool.spec.name == name)
    }

    fn misfit(&self, tool: &str, arguments: &Value) -> Option<String> {
        let problems = problems(self.validators.get(tool)?, arguments);
        (!problems.is_empty())
            .then(|| format!("Not run: the arguments do not fit the tool's schema.\n{}", problems.join("\n")))
    }

    fn invocation(&self, key: &EffectKey, tool: &Tool, arguments: Value) -> ToolInvocation {
        ToolInvocation {
            key: key.clone(),
            session: self.drive.key().clone(),
            epoch: self.drive.epoch().0,
            store: self.store_id.clone(),
            workspace: self.workspace.clone(),
            arguments,
            timeout: tool.timeout,
        }
    }

    /// Ends the node by one of the runner's own bounds; the attempt records it.
    fn fail(&self, word: NodeWord, message: String) {
        let _ = self.failed.set((word, message));
        self.raiser.raise(StopLevel::Kill, Why::Limit);
    }

    async fn run(tool: &Tool, invocation: ToolInvocation) -> ToolEnd {
        let timeout = invocation.timeout;
        crossing!(ToolRun);
        let end = tokio::time::timeout(timeout, tool.run.run(invocation)).await;
        crossing!(ToolReturn);
        match end {
            Ok(end) => end,
            Err(_) => ToolEnd::Interrupted(format!("it did not end within {} s and was cut", timeout.as_secs())),
        }
    }

    async fn finish(
        &self,
        effect: OpenEffect,
        tool: &Tool,
        hold: Option<HoldId>,
        end: ToolEnd,
    ) -> Result<Arc<Outcome>, LedgerError> {
        let (how, text) = match end {
            ToolEnd::Ok(text) => (OutcomeEnd::Ok, text),
            ToolEnd::Error(text) => (OutcomeEnd::Error, text),
            ToolEnd::Refused(text) => (OutcomeEnd::Refused, text),
            // Safe to run again, so an error the model can act on; a never effect that was cut may have done it.
            ToolEnd::Interrupted(what) if tool.replay == Replay::Safe => {
                (OutcomeEnd::Error, format!("`{}` failed: {what}", tool.spec.name))
            }
            ToolEnd::Interrupted(what) => (
                OutcomeEnd::Interrupted,
                format!("`{}` was interrupted: {what}. It may have partly run, and is not run again.", tool.spec.name),
            ),
        };
        let mut outcome = Outcome::new(effect.key().clone(), how, bounded(text));
        let Some(hold) = hold else {
            return effect
                .finish(outcome, Vec::new(), None)
                .await
                .map_err(|unfinished| LedgerError::Drive(unfinished.error));
        };
        // A call of an earlier day may have been made at the price it was held at, whatever the node says now.
        let held = self.drive.with_state(|state| state.effect(&outcome.key).and_then(|effect| effect.intent.quote));
        let price = tool.price.max(held).unwrap_or_default();
        let booking = match how {
            OutcomeEnd::Interrupted => {
                LedgerBody::Unknown { hold: hold.clone(), why: "the tool was interrupted".to_owned() }
            }
            OutcomeEnd::Refused => {
                outcome.cost = Some(Usd::ZERO);
                LedgerBody::Release { hold: hold.clone(), proof: "the tool never began".to_owned() }
            }
            OutcomeEnd::Ok | OutcomeEnd::Error => {
                outcome.cost = Some(price);
                LedgerBody::Booking {
                    hold: hold.clone(),
                    usage: None,
                    model: None,
                    catalog: "node".to_owned(),
                    amount: price,
                }
            }
        };
        self.ledger.finish(effect, outcome, &hold, booking).await
    }

    async fn permit(&self, exclusive: bool) -> Permit {
        if exclusive {
            Permit::Exclusive(self.permits.clone().write_owned().await)
        } else {
            Permit::Shared(self.permits.clone().read_owned().await)
        }
    }

    /// Begins a call's effect behind its native tail; a priced one with its hold.
    async fn begin(&self, tool: &Tool, spec: EffectSpec, tail: &Tail) -> Result<Begun, LedgerError> {
        let Some(price) = tool.price else { return Ok(self.drive.begin(spec, tail.bodies(), None).await?) };
        self.gate.within_reserve(price)?;
        if let Some(budget) = self.node.budget {
            let counted = self.drive.with_state(|state| state.spent.counted());
            fits(Word::OverBudget, Scope::Node, budget, counted, price)?;
        }
        let hold = Hold { id: HoldId::fresh(), what: tool.spec.name.clone(), quote: price, catalog: "node".to_owned() };
        let spec = EffectSpec { paid: Some((hold.id.clone(), price)), ..spec };
        self.ledger.begin(&self.drive, spec, tail.bodies(), &hold).await
    }

    fn spec(&self, call: &ToolCall, kind: EffectKind, replay: Replay, on_repeat: OnRepeat) -> EffectSpec {
        let turn = self.drive.with_state(|state| state.open_turn.as_ref().map(|turn| turn.id.clone()));
        let digest = Digest::of_json(&call.arguments);
        let in_turn = turn.clone().unwrap_or(agentrun_kernel::TurnId(String::new()));
        EffectSpec {
            key: EffectKey::of_call(&in_turn, &call.call, &call.tool, &digest, call.ordinal),
            kind,
            replay,
            on_repeat,
            name: call.tool.clone(),
            turn,
            call: Some(call.call.clone()),
            arguments: call.arguments.clone(),
            digest,
            paid: None,
        }
    }

    /// One host tool call, from its permit to its recorded outcome.
    async fn tool_call(self: &Arc<Self>, tool: Tool, call: ToolCall) -> Result<Arc<Outcome>, Cut> {
        // The intent comes after the permit: a queued call that a stop cuts never began, and must not look as if it had.
        let _permit = self.permit(tool.exclusive).await;
        if self.stop.level() >= StopLevel::Drain {
            return Err(Cut::Ended);
        }
        let spec = self.spec(&call, EffectKind::Tool, tool.replay, tool.on_repeat);
        let told = self.circle(&spec)?.or_else(|| self.misfit(&call.tool, &call.arguments));
        let ToolCall { arguments, tail, .. } = call;
        let begun = match &told {
            // Never begins anything paid: it is refused right behind its intent.
            Some(_) => self.drive.begin(spec, tail.bodies(), None).await.map_err(LedgerError::from),
            None => self.begin(&tool, spec, &tail).await,
        };
        drop(tail);
        let effect = match self.taken(begun)? {
            Begun::Known(outcome) => return Ok(outcome),
            Begun::Running(outcomes) => return outcomes.outcome().await.ok_or(Cut::Ended),
            Begun::Open(effect) => effect,
        };
        let key = effect.key().clone();
        let (end, hold) = match told {
            Some(told) => (ToolEnd::Refused(told), None),
            None => {
                let hold =
                    self.drive.with_state(|state| state.effect(&key).and_then(|effect| effect.intent.hold.clone()));
                (Self::run(&tool, self.invocation(&key, &tool, arguments)).await, hold)
            }
        };
        let finished = self.finish(effect, &tool, hold, end).await;
        self.taken(finished)
    }

    /// Ends a call that is not run, behind its intent.
    async fn refuse(&self, effect: OpenEffect, told: String) -> Result<Arc<Outcome>, Cut> {
        let outcome = Outcome::new(effect.key().clone(), OutcomeEnd::Refused, told);
        let finished = effect.finish(outcome, Vec::new(), None).await;
        self.taken(finished.map_err(|unfinished| LedgerError::Drive(unfinished.error)))
    }

    /// What an answer of drive or ledger means for the call.
    fn taken<T>(&self, answer: Result<T, LedgerError>) -> Result<T, Cut> {
        match answer {
            Ok(answer) => Ok(answer),
            Err(LedgerError::Drive(DriveError::Restart(restart))) => Err(Cut::Restart(restart)),
            Err(error) => {
                self.gate.note(trouble_of(error));
                self.raiser.raise(StopLevel::Kill, Why::Refused);
                Err(Cut::Ended)
            }
        }
    }

    /// One submit call: exclusive, so that nothing is open at delivery.
    async fn submit(self: &Arc<Self>, call: ToolCall) -> Result<(Arc<Outcome>, bool), Cut> {
        let _permit = self.permit(true).await;
        let (delivered, over) = self.drive.with_state(|state| (state.delivered.is_some(), state.is_over()));
        if delivered {
            let told = if over { ALREADY } else { CLOSED };
            return Ok((Arc::new(Outcome::new(EffectKey(String::new()), OutcomeEnd::Refused, told)), over));
        }
        if self.stop.level() >= StopLevel::Drain {
            return Err(Cut::Ended);
        }
        let spec = self.spec(&call, EffectKind::Submit, Replay::Safe, OnRepeat::Allow);
        let told = self.circle(&spec)?;
        let ToolCall { arguments, tail, .. } = call;
        let begun = self.drive.begin(spec, tail.bodies(), None).await.map_err(LedgerError::from);
        drop(tail);
        let effect = match self.taken(begun)? {
            Begun::Known(outcome) => {
                let delivered = self.drive.with_state(|state| state.delivered.is_some());
                return Ok((outcome, delivered));
            }
            Begun::Running(outcomes) => return Ok((outcomes.outcome().await.ok_or(Cut::Ended)?, false)),
            Begun::Open(effect) => effect,
        };
        if let Some(told) = told {
            return self.refuse(effect, told).await.map(|outcome| (outcome, false));
        }
        let number = self.candidate(&effect, &arguments).await.map_err(LedgerError::from);
        let number = self.taken(number)?;
        match self.decide(effect, number, arguments).await {
            Ok(decided) => Ok(decided),
            Err(ReviewFault::Drive(error)) => self.taken(Err(LedgerError::Drive(error))),
            Err(ReviewFault::Host(fault)) => {
                self.gate.note(Trouble::Host(fault));
                self.raiser.raise(StopLevel::Kill, Why::Host);
                Err(Cut::Ended)
            }
        }
    }

    /// Records what a submit call brought, as the next candidate.
    async fn candidate(&self, effect: &OpenEffect, arguments: &Value) -> Result<u32, DriveError> {
        let last = self.drive.with_state(|state| state.candidate.as_ref().map_or(0, |candidate| candidate.number));
        let number = last.saturating_add(1);
        let candidate = Candidate {
            number,
            key: effect.key().clone(),
            digest: Digest::of_json(arguments.get("value").unwrap_or(&Value::Null)),
            submitted: arguments.clone(),
        };
        self.drive.append(Batch::of([Body::Candidate(candidate)]), None).await?;
        Ok(number)
    }

    /// Validation and review of a candidate; verdict, outcome and delivery are one batch, and with them the interruption of what the
    /// harness itself still runs: nothing is open at delivery.
    async fn decide(
        &self,
        effect: OpenEffect,
        number: u32,
        arguments: Value,
    ) -> Result<(Arc<Outcome>, bool), ReviewFault> {
        let verdict = match self.envelope.open(&arguments) {
            Err(told) => Err(told),
            Ok(value) => match &self.node.review {
                None => Ok(value),
                Some(review) => {
                    let key = format!("{}/{number}", self.drive.key());
                    crossing!(Review);
                    let verdict = review.review(&key, &value).await?;
                    crossing!(Reviewed);
                    match verdict {
                        ReviewVerdict::Accept => Ok(value),
                        ReviewVerdict::Reject(told) => Err(told),
                    }
                }
            },
        };
        let (accepted, told) = match &verdict {
            Ok(_) => (true, ACCEPTED.to_owned()),
            Err(told) => (false, bounded(told.clone())),
        };
        let end = if accepted { OutcomeEnd::Ok } else { OutcomeEnd::Error };
        let outcome = Outcome::new(effect.key().clone(), end, told.as_str());
        let decided = Body::Verdict(Verdict { number, accepted, message: told });
        let value = verdict.ok();
        let (mut effect, mut tried) = (effect, None);
        loop {
            let builtins = if accepted { self.open_builtins() } else { Vec::new() };
            let cut = builtins
                .iter()
                .map(|key| Body::Outcome(Outcome::new(key.clone(), OutcomeEnd::Interrupted, CUT_BY_DELIVERY)));
            let with = cut.chain(value.clone().map(|value| Body::Delivered(Delivered { value }))).collect();
            match effect.finish_after(vec![decided.clone()], outcome.clone(), with).await {
                Ok(outcome) => return Ok((outcome, accepted)),
                // A built-in began or ended since we looked: as many times as there are built-ins, at most.
                Err(Unfinished { effect: open, error: DriveError::Illegal(_) })
                    if tried.as_ref() != Some(&builtins) =>
                {
                    (effect, tried) = (open, Some(builtins));
                }
                Err(unfinished) => return Err(unfinished.error.into()),
            }
        }
    }

    /// What the harness itself runs right now.
    fn open_builtins(&self) -> Vec<EffectKey> {
        self.drive.with_state(|state| {
            let builtins = state.open_effects().filter(|effect| effect.intent.effect == EffectKind::Builtin);
            builtins.map(|effect| effect.intent.key.clone()).collect()
        })
    }

    /// What the loop guard says of a call that is about to begin: `Some` is why it is refused.
    fn circle(&self, spec: &EffectSpec) -> Result<Option<String>, Cut> {
        match self.circles.before(&self.drive, &spec.key, &spec.name, &spec.digest) {
            LoopVerdict::Go => Ok(None),
            LoopVerdict::Note(circle) => Ok(Some(circles::note(&spec.name, circle))),
            LoopVerdict::End(circle) => {
                self.fail(NodeWord::DoomLoop, circles::ended(&spec.name, circle));
                Err(Cut::Ended)
            }
        }
    }

    fn answer(outcome: &Outcome, end_turn: bool) -> Answer {
        Answer::Text { text: outcome.text.clone(), is_error: outcome.end != OutcomeEnd::Ok, end_turn }
    }
}

#[async_trait]
impl ToolHost for Bridge {
    fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }

    async fn call(&self, call: ToolCall) -> Result<Answer, Restart> {
        let shared = self.shared.clone();
        if shared.drive.with_state(agentrun_kernel::SessionState::is_over) {
            return Ok(Answer::Text { text: Arc::from(ALREADY), is_error: true, end_turn: true });
        }
        if shared.stop.level() >= StopLevel::Drain {
            return Ok(Answer::Withhold);
        }
        shared.gate.worked();
        let tool = shared.tool(&call.tool).cloned();
        if tool.is_none() && call.tool != SUBMIT {
            shared.fail(
                NodeWord::UnknownTool,
                format!("the model called `{}`, which is not a tool of this node", call.tool),
            );
            return Ok(Answer::Withhold);
        }
        let (to, answered) = oneshot::channel();
        let running = shared.running.enter();
        tokio::spawn(async move {
            let answer = match tool {
                Some(tool) => shared.tool_call(tool, call).await.map(|outcome| (outcome, false)),
                None => shared.submit(call).await,
            };
            drop(running);
            // The harness may be gone; the outcome is recorded all the same.
            let _ = to.send(answer);
        });
        match answered.await {
            Ok(Ok((outcome, end_turn))) => {
                crossing!(ToolAnswer);
                // Drained: it is recorded, and what the model would do with it is for the resume.
                if self.shared.stop.level() >= StopLevel::Drain && !end_turn {
                    return Ok(Answer::Withhold);
                }
                Ok(Shared::answer(&outcome, end_turn))
            }
            Ok(Err(Cut::Restart(restart))) => Err(restart),
            Ok(Err(Cut::Ended)) | Err(_) => Ok(Answer::Withhold),
        }
    }

    async fn observe(&self, call: ToolCall) -> Result<Observed, Restart> {
        let shared = &self.shared;
        if shared.stop.level() >= StopLevel::Drain {
            return Ok(Observed::Withhold);
        }
        if shared.drive.with_state(agentrun_kernel::SessionState::is_over) {
            return Ok(Observed::Deny(Arc::from(ALREADY)));
        }
        shared.gate.worked();
        if !shared.node.builtins.contains(&call.tool) {
            shared.fail(
                NodeWord::UnknownTool,
                format!("the model called the built-in `{}`, which this node does not allow", call.tool),
            );
            return Ok(Observed::Withhold);
        }
        let spec = shared.spec(&call, EffectKind::Builtin, Replay::Never, OnRepeat::Allow);
        let Ok(told) = shared.circle(&spec) else { return Ok(Observed::Withhold) };
        let begun = shared.drive.begin(spec, call.tail.bodies(), None).await.map_err(LedgerError::from);
        let begun = match (shared.taken(begun), told) {
            (Ok(Begun::Open(effect)), Some(told)) => shared.refuse(effect, told).await.map(Begun::Known),
            (begun, _) => begun,
        };
        match begun {
            Ok(Begun::Open(effect)) => Ok(Observed::Run(effect)),
            Ok(Begun::Known(outcome)) => Ok(Observed::Deny(outcome.text.clone())),
            Ok(Begun::Running(_)) => Ok(Observed::Deny(Arc::from("This call runs already."))),
            Err(Cut::Restart(restart)) => Err(restart),
            Err(Cut::Ended) => Ok(Observed::Withhold),
        }
    }
}

/// Cut to [`TEXT_BYTES`], head and tail kept.
pub(crate) fn bounded(text: String) -> String {
    if text.len() <= TEXT_BYTES {
        return text;
    }
    let half = TEXT_BYTES / 2 - 64;
    let head_end = (0..=half).rev().find(|place| text.is_char_boundary(*place)).unwrap_or(0);
    let tail_start =
        (text.len().saturating_sub(half)..text.len()).find(|place| text.is_char_boundary(*place)).unwrap_or(text.len());
    let left_out = tail_start.saturating_sub(head_end);
    let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default();
    format!("{}\n… {left_out} bytes left out …\n{}", part(0..head_end), part(tail_start..text.len()))
}
