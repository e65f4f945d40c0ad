//! Ends what is open in a session, running, starting and paying nothing: from its records and the harness's history as they keep it. What
//! comes next is `agentrun_kernel::settle`; here is the hand that does it. Each step is recorded before the next is asked, so a settle can be
//! cut and repeated.

use std::path::PathBuf;
use std::sync::Arc;

use agentrun_adapter::process::{Epochs, Marker, sweep};
use agentrun_adapter::{AgentAdapter, NativeHistory, RecordedFiles};
use agentrun_kernel::{
    Batch, Begun, Body, Candidate, Decision, Drive, EffectKey, Failed, LogKey, OpenError, Opened, Outcome, OutcomeEnd,
    Owned, Record, Repair, RunId, SessionKey, SessionState, SessionTask, Settled, Store, SubmissionId, Survey,
    TurnEndHow, TurnId, UNDECIDED, Verdict, Withdrawn, is_quiet, planted, read_all, settle, turn_end, validate,
};

use crate::attempt::{RACES, SWEEP};
use crate::books::RunLedger;
use crate::bridge::interrupt_open;
use crate::error::{NodeError, NodeWord};
use crate::faults::{of_drive, of_recovery, storage};
use crate::node::Step;
use crate::presence::Presence;
use crate::recover::{RecoveryError, STEPS};

/// Where a settle works.
#[derive(Clone)]
pub struct SettleIn {
    /// The store of the session.
    pub store: Store,
    /// The adapter the session is bound to. Its program is not asked and need not be installed.
    pub adapter: Arc<dyn AgentAdapter>,
    /// The folder of private homes: tells whether the session's owner lives on this machine.
    pub homes: PathBuf,
}

impl std::fmt::Debug for SettleIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SettleIn").field("adapter", &self.adapter.profile().name).finish_non_exhaustive()
    }
}

/// What a settle found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settlement {
    /// The turn it ended and how: `interrupted`, or `done` where the records show that it was over. `None`: no turn was open.
    pub turn: Option<(TurnId, TurnEndHow)>,
    /// The follow-up whose turn that was: it stays interrupted.
    pub follow_up: Option<EffectKey>,
    /// Names of the effects it ended as interrupted, in the order they were begun.
    pub interrupted: Vec<String>,
    /// Prompts that did not reach the model: the next message begins with them.
    pub unsent: Vec<SubmissionId>,
}

/// Why nothing was settled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettleError {
    /// The session's owner lives. Nothing was written.
    #[error("the owner of session `{0}` lives; stop it, or take the session from it with --take")]
    Busy(SessionKey),
    /// What a node would say of it.
    #[error(transparent)]
    Node(#[from] NodeError),
}

/// Ends the open turn of `session` as interrupted, and with it all that is open. A session that is at rest is not touched. `take` ends a
/// live owner; without it one that lives on this machine keeps its session.
///
/// Dropping the future loses nothing that was recorded; the next settle or run goes on from there.
///
/// # Errors
/// [`SettleError::Busy`], or the store's fault.
pub async fn settle_open_turn(at: &SettleIn, session: &SessionKey, take: bool) -> Result<Settlement, SettleError> {
    let step = Step::first(session.clone());
    for _ in 0..RACES {
        let here = Here::read(at, &step).await?;
        if is_quiet(&here.state, &here.survey) {
            return Ok(Settlement::default());
        }
        let presence = |error: std::io::Error| NodeError::new(session, NodeWord::Storage, format!("homes: {error}"));
        let id = at.store.id();
        let presence = if take {
            Some(Presence::join(&at.homes, id, session).await.map_err(presence)?)
        } else {
            Presence::alone(&at.homes, id, session).map_err(presence)?
        };
        let Some(_presence) = presence else { return Err(SettleError::Busy(session.clone())) };
        if let Some(settlement) = settle_read(at, &step, here, None).await? {
            return Ok(settlement);
        }
    }
    Err(NodeError::new(session, NodeWord::Fenced, "another owner keeps writing to the session; nothing was taken")
        .into())
}

/// A session as it was read, without a fence.
pub(crate) struct Here {
    pub(crate) state: SessionState,
    pub(crate) files: RecordedFiles,
    pub(crate) survey: Survey,
}

impl Here {
    pub(crate) async fn read(at: &SettleIn, step: &Step) -> Result<Self, NodeError> {
        let fail = |word, message: String| NodeError::new(&step.session, word, message);
        let log = LogKey::from(&step.session);
        let records: Vec<Record> = read_all::<Body>(&*at.store, &log).await.map_err(|error| storage(step, &error))?;
        let state = validate(&records).map_err(|illegal| fail(NodeWord::Storage, illegal.to_string()))?;
        let name = at.adapter.profile().name;
        if let Some(bound) = state.bound.as_ref().filter(|bound| bound.adapter != name) {
            let other = format!("the session was begun on `{}`, and `{name}` cannot read its history", bound.adapter);
            return Err(fail(NodeWord::Binding, other));
        }
        let files = RecordedFiles::fold(&records);
        let survey = at.adapter.history().survey(&files).map_err(|error| fail(NodeWord::Harness, error.to_string()))?;
        Ok(Self { state, files, survey })
    }
}

/// Takes the session where it was read and settles it; with `failed`, ends it for good behind that. `None`: it has moved on since.
pub(crate) async fn settle_read(
    at: &SettleIn,
    step: &Step,
    here: Here,
    failed: Option<Failed>,
) -> Result<Option<Settlement>, NodeError> {
    let fail = |word, message: String| NodeError::new(&step.session, word, message);
    let Here { state, mut files, .. } = here;
    let writer = match at.store.open(&step.session, Some(state.head)).await {
        Ok(writer) => writer,
        Err(OpenError::HeadChanged { .. }) => return Ok(None),
        Err(OpenError::Store(error)) => return Err(storage(step, &error)),
        Err(error) => return Err(fail(NodeWord::Binding, error.to_string())),
    };
    let watch = at.store.watch(&LogKey::from(&step.session)).await.map_err(|error| storage(step, &error))?;
    let run = state.bound.as_ref().map_or_else(|| RunId::from(&step.session), |bound| bound.run.clone());
    let before = state.clone();
    let task = SessionTask::spawn(Owned { writer, state, watch, earlier: Vec::new(), events: None });
    let drive = task.drive();
    let settled = async {
        // What older epochs started may still act, so it is ended before anything is called cut.
        let marker =
            Marker { store: at.store.id().to_owned(), session: step.session.to_string(), epoch: drive.epoch().0 };
        sweep(&marker, Epochs::Before, SWEEP).await.map_err(|error| fail(NodeWord::Harness, error.to_string()))?;
        let opened = Opened {
            earlier: Vec::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            harness: None,
            native_session: None,
        };
        drive.append(Batch::of([Body::Opened(opened)]), None).await.map_err(|error| of_drive(step, &error))?;
        let ledger =
            RunLedger::existing(at.store.clone(), &run).await.map_err(|error| of_recovery(step, error.into()))?;
        ledger.reconcile(&drive).await.map_err(|error| of_recovery(step, error.into()))?;
        let history = at.adapter.history();
        let mut hand = Hand { history, store: &at.store, drive: &drive, ledger: &ledger, files: &mut files };
        match hand.settle().await {
            // Nothing goes on from the history of a session that is given up, so one that cannot be read keeps nobody from that.
            Err(RecoveryError::History(_)) if failed.is_some() => {}
            settled => settled.map_err(|error| of_recovery(step, error))?,
        }
        if let Some(failed) = failed {
            let ended = drive.append(Batch::of([Body::Failed(failed)]), None).await;
            ended.map_err(|error| of_drive(step, &error))?;
        }
        Ok(settlement(&before, &drive.state()))
    };
    let settled: Result<Settlement, NodeError> = settled.await;
    drop(drive);
    task.join().await;
    settled.map(Some)
}

fn settlement(before: &SessionState, after: &SessionState) -> Settlement {
    let turn = before.open_turn.as_ref();
    let how = after.last_turn.as_ref().map_or(TurnEndHow::Interrupted, |last| last.how);
    let cut = |key: &EffectKey| after.effect(key).is_some_and(agentrun_kernel::Effect::interrupted);
    Settlement {
        turn: turn.map(|turn| (turn.id.clone(), how)),
        follow_up: turn.and_then(|turn| turn.follow_up.clone()),
        interrupted: before
            .open_effects()
            .filter(|effect| cut(&effect.intent.key))
            .map(|effect| effect.intent.name.clone())
            .collect(),
        unsent: after
            .submissions()
            .filter(|accepted| accepted.unsent && !accepted.withdrawn)
            .map(|accepted| accepted.submission.id.clone())
            .collect(),
    }
}

/// What a settle and a recovery do alike.
pub(crate) struct Hand<'a> {
    pub(crate) history: &'a dyn NativeHistory,
    pub(crate) store: &'a Store,
    pub(crate) drive: &'a Drive,
    pub(crate) ledger: &'a RunLedger,
    pub(crate) files: &'a mut RecordedFiles,
}

impl Hand<'_> {
    async fn settle(&mut self) -> Result<(), RecoveryError> {
        let mut survey = self.history.survey(self.files)?;
        for _ in 0..STEPS {
            match settle(&self.drive.state(), &survey) {
                Decision::SettleFollowUp { key, turn, submissions, unsent } => {
                    self.settle_follow_up(&key, turn, submissions, unsent).await?
                }
                Decision::LoseRequests(keys) => {
                    for key in keys {
                        self.lose(&key).await?;
                    }
                }
                Decision::Undecided(candidate) => self.undecided(&candidate).await?,
                Decision::Interrupt(keys) => {
                    for key in keys {
                        self.interrupt(&key).await?;
                    }
                }
                Decision::Repair(want) => {
                    self.repair(&want).await?;
                    survey = self.history.survey(self.files)?;
                }
                Decision::EndTurn { turn, how, unsent } => {
                    self.drive.append(turn_end(turn, how, unsent), None).await?;
                }
                Decision::CarryOn { turn, unsent } => {
                    self.append(Body::Settled(Settled { turn: Some(turn), unsent })).await?
                }
                _ => return Ok(()),
            }
        }
        Err(RecoveryError::Endless)
    }

    /// A request or decision that was cut: it may have been spent, so its hold counts in full.
    pub(crate) async fn lose(&self, key: &EffectKey) -> Result<(), RecoveryError> {
        let Begun::Open(effect) = self.drive.reopen(key).await? else { return Ok(()) };
        let hold = self.drive.with_state(|state| state.effect(key).and_then(|effect| effect.intent.hold.clone()));
        let hold = hold.filter(|_| !planted!(LeakHold));
        let why = "the session was cut while the request was in flight";
        Ok(self.ledger.interrupt(effect, hold, "cut in flight", why).await?)
    }

    /// A call that was cut. Not even its tool is asked what became of it: a settle runs nothing.
    async fn interrupt(&self, key: &EffectKey) -> Result<(), RecoveryError> {
        let Begun::Open(effect) = self.drive.reopen(key).await? else { return Ok(()) };
        Ok(interrupt_open(self.drive, self.ledger, effect).await?)
    }

    async fn undecided(&self, candidate: &Candidate) -> Result<(), RecoveryError> {
        let verdict =
            Body::Verdict(Verdict { number: candidate.number, accepted: false, message: UNDECIDED.to_owned() });
        match self.drive.reopen(&candidate.key).await? {
            Begun::Open(effect) => {
                let outcome = Outcome::new(candidate.key.clone(), OutcomeEnd::Interrupted, UNDECIDED);
                effect.finish_after(vec![verdict], outcome, Vec::new()).await.map_err(|unfinished| unfinished.error)?;
                Ok(())
            }
            Begun::Known(_) | Begun::Running(_) => self.append(verdict).await,
        }
    }

    pub(crate) async fn repair(&mut self, want: &[Repair]) -> Result<(), RecoveryError> {
        let records: Vec<Record> = read_all::<Body>(&**self.store, &LogKey::from(self.drive.key())).await?;
        let response = |id: &str| -> Option<Arc<[u8]>> {
            records.iter().find_map(|record| match &record.body {
                Body::Outcome(outcome) if outcome.response_id.as_deref() == Some(id) => Some(outcome.response.clone()),
                _ => None,
            })
        };
        let writes = self.history.repair(self.files, want, &response)?;
        for write in writes {
            self.files.apply(&write);
            self.append(Body::Native(write)).await?;
        }
        Ok(())
    }

    /// Ends a follow-up that was cut, in one batch: cut inside it, the turn would look like one to go on with.
    pub(crate) async fn settle_follow_up(
        &self,
        key: &EffectKey,
        turn: Option<TurnId>,
        submissions: Vec<SubmissionId>,
        unsent: Vec<SubmissionId>,
    ) -> Result<(), RecoveryError> {
        let open = self.drive.with_state(|state| state.effect(key).is_some_and(|effect| effect.outcome.is_none()));
        let outcome = open.then(|| Outcome::new(key.clone(), OutcomeEnd::Interrupted, CUT_FOLLOW_UP));
        self.drive.append(Batch::of(cut_follow_up(outcome, turn, submissions, unsent)), None).await?;
        Ok(())
    }

    async fn append(&self, body: Body) -> Result<(), RecoveryError> {
        self.drive.append(Batch::of([body]), None).await?;
        Ok(())
    }
}

/// The outcome of a follow-up that a crash cut.
pub(crate) const CUT_FOLLOW_UP: &str = "The session was cut while the follow-up ran. The model may have got its prompt and answered it; it is not asked again.";

/// The batch that ends a follow-up's turn for good. Only its own prompts are withdrawn.
pub(crate) fn cut_follow_up(
    outcome: Option<Outcome>,
    turn: Option<TurnId>,
    submissions: Vec<SubmissionId>,
    unsent: Vec<SubmissionId>,
) -> Vec<Body> {
    let withdrawn = Withdrawn { ids: submissions, why: "its follow-up was cut".to_owned() };
    let settled = Settled { turn, unsent };
    outcome.map(Body::Outcome).into_iter().chain([Body::Withdrawn(withdrawn), Body::Settled(settled)]).collect()
}
