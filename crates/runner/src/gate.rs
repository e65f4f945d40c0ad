//! The gate of one attempt: every paid model request passes here before a byte is sent, in this order.
//!
//! ```text
//!  stopping? ─► an open turn? ─► refused before in this turn? ─► turn cap ─► requests of the turn ─► a follow-up's reserve ─► the host's check
//!      ─► quote ─► the node's budget ─► barrier: the harness's own history holds what the request says ─► running away? ─► hold and intent,
//!      one batch
//! ```
//! The first refusal is sticky for its turn: a harness that tries again is told the same, and nothing is asked or spent twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use agentrun_adapter::{ModelPort, PaidCall, PaidStep, PortRefused, RequestBarrier, Tail};
use agentrun_cap::{Catalog, Date, Denied, Quote, RequestFacts, Scope, Word, fits, quote};
use agentrun_host::{Lease, PaidRequest, Refusal, RequestEnd, RequestGate};
use agentrun_kernel::{
    Begun, Digest, Drive, DriveError, EffectKey, EffectKind, EffectSpec, HoldId, LedgerBody, OnRepeat, OpenEffect,
    Outcome, OutcomeEnd, Replay, StopLevel, StopRaiser, Usage, Usd, Why,
};
use async_trait::async_trait;
use serde_json::json;

use crate::books::{Hold, LedgerError, RunLedger};
use crate::follow_up::Reserve;
use crate::in_flight::{Entered, InFlight};
use crate::node::HostFault;
use crate::runaway::{REQUESTS, Runaway, WITHIN};
use crate::runner::{Booked, HostCheck};

/// Bounds of one attempt's paid requests.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) turns: Option<u32>,
    pub(crate) requests: u32,
    pub(crate) budget: Option<Usd>,
}

/// What went wrong with a turn's requests, for the attempt to name.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// The gate said no.
    Denied(Denied),
    /// The host's check failed.
    Host(HostFault),
    /// The provider failed; the status, where there was an answer.
    Upstream { status: Option<u16>, why: String },
    /// The store or the ledger failed.
    Storage(String),
    /// The harness's own history did not show what it asked about.
    Barrier(String),
}

/// The gate of one attempt.
pub(crate) struct AttemptGate {
    drive: Drive,
    ledger: Arc<RunLedger>,
    catalog: Arc<Catalog>,
    limits: Limits,
    check: Option<Arc<dyn HostCheck>>,
    stop: StopRaiser,
    barrier: RwLock<Option<Arc<dyn RequestBarrier>>>,
    trouble: Mutex<Option<Trouble>>,
    turn_open: AtomicBool,
    runaway: Mutex<Runaway>,
    open: InFlight,
    reserve: OnceLock<Reserve>,
}

impl AttemptGate {
    pub(crate) fn new(
        drive: Drive,
        ledger: Arc<RunLedger>,
        catalog: Arc<Catalog>,
        limits: Limits,
        check: Option<Arc<dyn HostCheck>>,
        stop: StopRaiser,
    ) -> Self {
        Self {
            drive,
            ledger,
            catalog,
            limits,
            check,
            stop,
            barrier: RwLock::new(None),
            trouble: Mutex::new(None),
            turn_open: AtomicBool::new(false),
            runaway: Mutex::default(),
            open: InFlight::new(),
            reserve: OnceLock::new(),
        }
    }

    /// Holds all paid steps from now on to a follow-up's reserve.
    pub(crate) fn hold_to(&self, reserve: Reserve) {
        let _ = self.reserve.set(reserve);
    }

    /// The follow-up's own word on a paid step, before the host's.
    pub(crate) fn within_reserve(&self, needed: Usd) -> Result<(), Denied> {
        self.reserve.get().map_or(Ok(()), |reserve| self.drive.with_state(|state| reserve.admits(state, needed)))
    }

    pub(crate) fn set_barrier(&self, barrier: Option<Arc<dyn RequestBarrier>>) {
        *self.barrier.write().unwrap_or_else(PoisonError::into_inner) = barrier;
    }

    /// Lets requests through until the answer is dropped; forgets the last turn's refusal.
    pub(crate) fn open_turn(self: &Arc<Self>) -> TurnScope {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.turn_open.store(true, Ordering::Release);
        self.worked();
        TurnScope { gate: self.clone() }
    }

    /// Something other than a request has happened in the turn: whoever asks again has a reason.
    pub(crate) fn worked(&self) {
        self.runaway.lock().unwrap_or_else(PoisonError::into_inner).worked();
    }

    /// What went wrong first in this turn.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes trouble found elsewhere (a priced tool that was refused).
    pub(crate) fn note(&self, trouble: Trouble) {
        let mut first = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        // An upstream fault can be followed by the harness's own retry that goes through; a refusal is never taken back.
        if first.is_none() || matches!(*first, Some(Trouble::Upstream { .. })) {
            // A harness whose requests are used up is told, and does not only find out: some ask on and on, whatever they are answered.
            if matches!(&trouble, Trouble::Denied(denied) if denied.word == Word::RequestLimit) {
                self.stop.raise(StopLevel::Interrupt, Why::Limit);
            }
            *first = Some(trouble);
        }
    }

    /// Waits until every admitted request has ended and is booked, for at most `deadline`.
    pub(crate) async fn quiesce(&self, deadline: Duration) -> bool {
        self.open.quiesce(deadline).await
    }

    async fn admit(self: &Arc<Self>, facts: &RequestFacts, body: &[u8]) -> Result<GateLease, Trouble> {
        self.standing()?;
        if self.reserve.get().is_some() {
            let most = self.quote(facts)?.amount;
            self.within_reserve(most).map_err(Trouble::Denied)?;
        }
        if let Some(check) = &self.check {
            let spent = self.drive.with_state(|state| state.spent);
            check
                .before_request(self.drive.key(), self.limits.budget, spent)
                .await
                .map_err(Trouble::Host)?
                .map_err(Trouble::Denied)?;
        }
        let quote = self.quote(facts)?;
        self.within_budget(quote.amount).map_err(Trouble::Denied)?;
        let tail = self.wait_for_history(body).await?;
        // A stop or the turn's end may have come while we waited.
        self.standing()?;
        self.not_running_away().map_err(Trouble::Denied)?;
        self.hold(quote, body, tail).await
    }

    /// The node's own word on a request. What the host decides for itself is not the node's: the run's cap alone bounds it.
    fn within_budget(&self, needed: Usd) -> Result<(), Denied> {
        let Some(budget) = self.limits.budget else { return Ok(()) };
        let spent = self.drive.with_state(|state| state.spent);
        fits(Word::OverBudget, Scope::Node, budget, spent.counted(), needed).map_err(|denied| {
            // It would fit but for what was cut: who reads this must not look for a bill.
            let what = (spent.unknown > Usd::ZERO)
                .then(|| format!("${} of what counts was cut, and counts in full", spent.unknown));
            Denied { what, ..denied }
        })
    }

    fn not_running_away(&self) -> Result<(), Denied> {
        if self.runaway.lock().unwrap_or_else(PoisonError::into_inner).admits(Instant::now()) {
            return Ok(());
        }
        let what = format!(
            "{REQUESTS} in a row within {} s with no tool call between them: the harness goes round in circles",
            WITHIN.as_secs()
        );
        Err(Denied::because(Word::RequestLimit, Scope::Turn, what))
    }

    fn quote(&self, facts: &RequestFacts) -> Result<Quote, Trouble> {
        let at = Date::of_unix_ms(unix_ms());
        quote(&self.catalog, facts, at).map_err(|error| Trouble::Denied(error.into()))
    }

    /// What can be said without asking anybody.
    fn standing(&self) -> Result<(), Trouble> {
        let denied = |word, scope, what: &str| Err(Trouble::Denied(Denied::because(word, scope, what)));
        if self.stop.signal().level() >= StopLevel::Drain {
            return denied(Word::Stopped, Scope::Node, "nothing new begins");
        }
        let turn = self.drive.with_state(|state| state.open_turn.as_ref().map(|turn| (state.turns, turn.requests)));
        let Some((turns, requests)) = turn.filter(|_| self.turn_open.load(Ordering::Acquire)) else {
            return denied(Word::Stopped, Scope::Node, "no turn is open");
        };
        if let Some(trouble @ (Trouble::Denied(_) | Trouble::Host(_) | Trouble::Storage(_) | Trouble::Barrier(_))) =
            self.trouble()
        {
            return Err(trouble);
        }
        match self.limits.turns {
            Some(limit) if turns > limit => {
                return denied(Word::TurnLimit, Scope::Node, &format!("{limit} of {limit}"));
            }
            _ => {}
        }
        if requests >= self.limits.requests {
            return denied(Word::RequestLimit, Scope::Turn, &format!("{requests} of {}", self.limits.requests));
        }
        Ok(())
    }

    async fn wait_for_history(&self, body: &[u8]) -> Result<Tail, Trouble> {
        let barrier = self.barrier.read().unwrap_or_else(PoisonError::into_inner).clone();
        match barrier {
            Some(barrier) => barrier.before_request(body).await.map_err(|error| Trouble::Barrier(error.to_string())),
            None => Ok(Tail::none()),
        }
    }

    async fn hold(self: &Arc<Self>, quote: Quote, body: &[u8], tail: Tail) -> Result<GateLease, Trouble> {
        let hold = Hold {
            id: HoldId::fresh(),
            what: quote.model.clone(),
            quote: quote.amount,
            catalog: quote.catalog.clone(),
        };
        let spec = EffectSpec {
            key: EffectKey::fresh(),
            kind: EffectKind::Request,
            replay: Replay::Never,
            on_repeat: OnRepeat::Allow,
            name: quote.model.clone(),
            turn: self.drive.with_state(|state| state.open_turn.as_ref().map(|turn| turn.id.clone())),
            call: None,
            arguments: json!({ "bytes": body.len(), "input_bound": quote.input, "output_bound": quote.output }),
            digest: Digest::of(body),
            paid: Some((hold.id.clone(), quote.amount)),
        };
        let open = self.open.enter();
        let begun = self.ledger.begin(&self.drive, spec, tail.bodies(), &hold).await;
        drop(tail);
        match begun {
            Ok(Begun::Open(effect)) => Ok(GateLease { gate: self.clone(), effect, hold: hold.id, quote, _open: open }),
            Ok(Begun::Known(_) | Begun::Running(_)) => {
                Err(Trouble::Storage("a fresh effect key was known already".to_owned()))
            }
            Err(error) => Err(trouble_of(error)),
        }
    }
}

/// The gate's word for what the ledger said.
pub(crate) fn trouble_of(error: LedgerError) -> Trouble {
    match error {
        LedgerError::Denied(denied) => Trouble::Denied(denied),
        LedgerError::Drive(DriveError::Restart(restart)) => Trouble::Storage(restart.to_string()),
        other => Trouble::Storage(other.to_string()),
    }
}

/// While it lives, the turn's requests are let through.
pub(crate) struct TurnScope {
    gate: Arc<AttemptGate>,
}

impl Drop for TurnScope {
    fn drop(&mut self) {
        self.gate.turn_open.store(false, Ordering::Release);
    }
}

/// One admitted request. Its outcome and its booking are one batch; dropped, its hold is decided at the next open.
struct GateLease {
    gate: Arc<AttemptGate>,
    effect: OpenEffect,
    hold: HoldId,
    quote: Quote,
    _open: Entered,
}

impl GateLease {
    async fn end(self, end: RequestEnd) -> Result<(), LedgerError> {
        let Self { gate, effect, hold, quote, _open } = self;
        let key = effect.key().clone();
        let ending = end.ending(&hold, &quote, &gate.catalog);
        let mut outcome = Outcome::new(key, OutcomeEnd::Ok, "");
        outcome.cost = match &ending {
            LedgerBody::Booking { amount, .. } => Some(*amount),
            LedgerBody::Release { .. } => Some(Usd::ZERO),
            _ => None,
        };
        match end {
            RequestEnd::Complete { usage, response_id, response, .. } => {
                outcome.usage = Some(usage);
                outcome.response_id = response_id;
                outcome.response = Arc::from(response.as_ref());
                // It was paid, and what it cost cannot be told: the hold counts in full.
                if let LedgerBody::Unknown { why, .. } = &ending {
                    outcome.text = Arc::from(why.as_str());
                }
            }
            RequestEnd::NotSent { why } => {
                outcome.end = OutcomeEnd::Error;
                outcome.text = Arc::from(format!("not sent: {why}"));
                gate.note(Trouble::Upstream { status: None, why });
            }
            RequestEnd::Refused { status } => {
                gate.note(Trouble::Upstream { status: Some(status), why: format!("the provider answered {status}") });
                outcome.end = OutcomeEnd::Error;
                outcome.text = Arc::from(format!("the provider answered {status}"));
            }
            RequestEnd::Unknown { status, why, response } => {
                outcome.end = OutcomeEnd::Interrupted;
                outcome.text = Arc::from(why.as_str());
                outcome.response = Arc::from(response.as_ref());
                gate.note(Trouble::Upstream { status, why });
            }
        }
        let (usage, cost) = (outcome.usage.clone(), outcome.cost);
        let done = gate.ledger.finish(effect, outcome, &hold, ending).await;
        gate.runaway.lock().unwrap_or_else(PoisonError::into_inner).ended(Instant::now());
        match &done {
            Err(error) => gate.note(Trouble::Storage(error.to_string())),
            Ok(_) => {
                if let Some(check) = &gate.check {
                    let spent = gate.drive.with_state(|state| state.spent);
                    check.after_request(gate.drive.key(), Booked { model: quote.model, usage, cost, spent }).await;
                }
            }
        }
        done.map(drop)
    }
}

fn refusal(trouble: &Trouble) -> Refusal {
    match trouble {
        Trouble::Denied(denied) => Refusal { word: denied.word, message: denied.to_string() },
        Trouble::Host(fault) => Refusal { word: Word::Host, message: fault.to_string() },
        Trouble::Upstream { why, .. } | Trouble::Storage(why) | Trouble::Barrier(why) => {
            Refusal { word: Word::Stopped, message: why.clone() }
        }
    }
}

#[async_trait]
impl RequestGate for AttemptGate {
    async fn before(self: Arc<Self>, request: &PaidRequest) -> Result<Box<dyn Lease>, Refusal> {
        match self.admit(&request.facts, &request.body).await {
            Ok(lease) => Ok(Box::new(lease)),
            Err(trouble) => {
                let refusal = refusal(&trouble);
                self.note(trouble);
                Err(refusal)
            }
        }
    }
}

#[async_trait]
impl Lease for GateLease {
    async fn after(self: Box<Self>, end: RequestEnd) {
        // A failed booking is noted as the turn's trouble; the hold stays and counts.
        let _ = self.end(end).await;
    }
}

/// The same gate for loops that need no socket.
pub(crate) struct GatePort(pub(crate) Arc<AttemptGate>);

#[async_trait]
impl ModelPort for GatePort {
    async fn begin(&self, call: PaidCall) -> Result<Box<dyn PaidStep>, PortRefused> {
        let facts = RequestFacts {
            model: call.model.clone(),
            body_bytes: call.body.len() as u64,
            max_output: Some(call.max_output),
            ..RequestFacts::default()
        };
        match self.0.admit(&facts, &call.body).await {
            Ok(lease) => Ok(Box::new(Step { lease, model: call.model })),
            Err(trouble) => {
                let Refusal { word, message } = refusal(&trouble);
                self.0.note(trouble);
                Err(PortRefused { word: word.as_str().to_owned(), message })
            }
        }
    }
}

struct Step {
    lease: GateLease,
    model: String,
}

#[async_trait]
impl PaidStep for Step {
    async fn finish(
        self: Box<Self>,
        usage: Usage,
        response_id: String,
        response: Arc<[u8]>,
    ) -> Result<(), PortRefused> {
        let end = RequestEnd::Complete {
            model: self.model,
            usage,
            response_id: Some(response_id),
            response: response.to_vec().into(),
        };
        self.lease
            .end(end)
            .await
            .map_err(|error| PortRefused { word: Word::Stopped.as_str().to_owned(), message: error.to_string() })
    }
}

fn unix_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .ok()
        .and_then(|since| u64::try_from(since.as_millis()).ok())
        .unwrap_or_default()
}
