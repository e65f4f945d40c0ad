//! The ledger under many hands: sessions of two processes, crashes, take-overs, and what each log must then say of the other.

mod interleavings;
mod parallel;
mod rules;
mod unwritable;

use std::sync::Arc;

use agentrun_kernel::{
    Batch, Begun, Body, Bound, Built, Digest, Drive, EffectKey, EffectKind, EffectSpec, FORMAT, HoldId, LedgerBody,
    LogKey, MemoryStore, MessageId, OnRepeat, OpenEffect, OpenError, Opened, Outcome, OutcomeEnd, Owned, Placed,
    PlanDigests, Record, Replay, RunId, SessionKey, SessionState, SessionTask, SharedLog, Source, Store, Submission,
    SubmissionId, TurnId, Usd, read_all,
};
use serde_json::Value;

use super::{Hold, LedgerError, RunLedger};

pub(super) fn usd(text: &str) -> Usd {
    text.parse().unwrap()
}

pub(super) fn run() -> RunId {
    RunId::new("run").unwrap()
}

pub(super) fn key(name: &str) -> SessionKey {
    SessionKey::new(name).unwrap()
}

pub(super) fn memory() -> (Store, Store) {
    let store = MemoryStore::new().unwrap();
    let other = store.again().unwrap();
    (Arc::new(store), Arc::new(other))
}

/// A session that this process owns, with a turn open.
pub(super) struct Session {
    pub(super) drive: Drive,
    _task: SessionTask,
}

pub(super) async fn session(store: &Store, name: &SessionKey, run: &RunId) -> Session {
    let (writer, state) = loop {
        let records = read_all::<Body>(&**store, &LogKey::from(name)).await.unwrap();
        let state = SessionState::fold(&records);
        match store.open(name, Some(state.head)).await {
            Ok(writer) => break (writer, state),
            // What the last owner had on its way landed meanwhile.
            Err(OpenError::HeadChanged { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    };
    let fresh = state.bound.is_none();
    let watch = store.watch(&LogKey::from(name)).await.unwrap();
    let task = SessionTask::spawn(Owned { writer, state, watch, earlier: Vec::new(), events: None });
    let drive = task.drive();
    let opened = Opened { earlier: Vec::new(), version: "0".into(), harness: None, native_session: None };
    let mut bodies = Vec::new();
    if fresh {
        bodies.push(bound(run));
    }
    bodies.push(Body::Opened(opened));
    if fresh {
        let id = SubmissionId("node".into());
        bodies.push(Body::Submission(Submission::new(id.clone(), Source::Node, "do it")));
        bodies.push(Body::Placed(Placed {
            message: MessageId("m".into()),
            turn: TurnId("t".into()),
            carries: vec![id],
            replaces: Vec::new(),
            text: Arc::from("do it"),
        }));
    }
    drive.append(Batch::of(bodies), None).await.unwrap();
    Session { drive, _task: task }
}

fn bound(run: &RunId) -> Body {
    let plan = PlanDigests {
        prompt: Digest::of(b"p"),
        system: Digest::of(b"s"),
        schema: Digest::of(b"v"),
        tools: Digest::of(b"t"),
        model: "m".into(),
        label: "l".into(),
        attempt: 1,
    };
    Body::Bound(Bound {
        format: u32::from(FORMAT),
        adapter: "faux".into(),
        binding: plan.binding(),
        plan,
        run: run.clone(),
        parent: None,
        builtins: Built::Gated,
        host: Value::Null,
    })
}

pub(super) async fn ledger(store: &Store) -> Arc<RunLedger> {
    Arc::new(RunLedger::open(store.clone(), &run(), Some(usd("1"))).await.unwrap())
}

pub(super) async fn records(store: &Store, run: &RunId) -> Vec<Record<LedgerBody>> {
    read_all::<LedgerBody>(&**store, &LogKey::Shared(SharedLog::Ledger(run.clone()))).await.unwrap()
}

pub(super) fn hold(quote: Usd) -> Hold {
    Hold { id: HoldId::fresh(), what: "model".into(), quote, catalog: "test 1".into() }
}

pub(super) fn spec(hold: &Hold) -> EffectSpec {
    EffectSpec {
        key: EffectKey::fresh(),
        kind: EffectKind::Request,
        replay: Replay::Never,
        on_repeat: OnRepeat::Allow,
        name: "model".into(),
        turn: None,
        call: None,
        arguments: Value::Null,
        digest: Digest::of(b"body"),
        paid: Some((hold.id.clone(), hold.quote)),
    }
}

/// One paid step begun; its effect is to be ended under the hold's id.
pub(super) async fn begin(ledger: &RunLedger, drive: &Drive, quote: Usd) -> Result<(OpenEffect, HoldId), LedgerError> {
    let hold = hold(quote);
    match ledger.begin(drive, spec(&hold), Vec::new(), &hold).await? {
        Begun::Open(effect) => Ok((effect, hold.id)),
        other => panic!("a fresh effect was {other:?}"),
    }
}

pub(super) fn outcome(effect: &OpenEffect, cost: Option<Usd>) -> Outcome {
    let end = if cost.is_some() { OutcomeEnd::Ok } else { OutcomeEnd::Interrupted };
    Outcome { cost, ..Outcome::new(effect.key().clone(), end, "") }
}

pub(super) fn booking(hold: &HoldId, amount: Usd) -> LedgerBody {
    LedgerBody::Booking { hold: hold.clone(), usage: None, model: None, catalog: "test 1".into(), amount }
}
