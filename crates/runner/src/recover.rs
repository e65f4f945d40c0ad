//! Brings a session from whatever its records say to the start of its next turn: asks the decision table, does the one thing it says,
//! and asks again. Each step is recorded before the next is asked, so a recovery can itself be cut and repeated.

use std::sync::Arc;

use agentrun_adapter::{AgentAdapter, HistoryError, RecordedFiles, Start};
use agentrun_kernel::{
    Batch, Body, Decision, Drive, DriveError, EffectKey, LogKey, Message, MessageId, Outcome, OutcomeEnd, Record,
    Settled, Source, Store, StoreError, Submission, SubmissionId, Survey, Today, TurnId, decide, planted, read_all,
};

use crate::books::{LedgerError, RunLedger};
use crate::bridge::{Bridge, ReviewFault};
use crate::carry::compose;

/// Steps of one recovery. Each step changes the records, and a log has only so many open ends; more means the table and the history never agree.
const STEPS: u32 = 100_000;

/// What recovery works with.
pub(crate) struct Recovery<'a> {
    pub(crate) adapter: &'a dyn AgentAdapter,
    pub(crate) store: &'a Store,
    pub(crate) drive: &'a Drive,
    pub(crate) ledger: &'a RunLedger,
    pub(crate) bridge: &'a Bridge,
    pub(crate) files: &'a mut RecordedFiles,
    pub(crate) own_ids: bool,
}

/// Where recovery led.
#[derive(Debug)]
pub(crate) enum Next {
    /// The session has answered.
    Answered,
    /// The cap still has no room.
    Parked(agentrun_kernel::Parked),
    /// Start a turn with this.
    Start(Start),
    /// Nothing waits to be sent.
    Idle,
}

/// Why recovery stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecoveryError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Review(#[from] ReviewFault),
    #[error(
        "recovery did not come to an end: the records and the harness's history do not agree; run `agentrun show --check` on the session"
    )]
    Endless,
}

impl From<DriveError> for RecoveryError {
    fn from(error: DriveError) -> Self {
        Self::Ledger(LedgerError::Drive(error))
    }
}

impl Recovery<'_> {
    /// What comes next.
    pub(crate) async fn next(&mut self) -> Result<Next, RecoveryError> {
        let mut gate_open = false;
        let mut survey = self.adapter.history().survey(self.files)?;
        for _ in 0..STEPS {
            let decision = self.decision(&survey, gate_open);
            match decision {
                Decision::Delivered(_) | Decision::Failed(_) => return Ok(Next::Answered),
                Decision::AskGate(parked) => {
                    self.ledger.refresh().await?;
                    if self.ledger.refuses(&parked) {
                        return Ok(Next::Parked(parked));
                    }
                    gate_open = true;
                }
                Decision::LoseRequests(keys) => {
                    for key in keys {
                        self.lose(&key).await?;
                    }
                }
                Decision::RunAgain(key) => self.bridge.rerun(&key).await?,
                Decision::Interrupt(keys) => {
                    for key in keys {
                        self.bridge.interrupt(&key).await?;
                    }
                }
                Decision::RunNew { call, ordinal } => self.bridge.run_new(call, ordinal).await?,
                Decision::Review(candidate) => self.bridge.review_again(&candidate).await?,
                Decision::Repair(want) => {
                    self.repair(&want).await?;
                    survey = self.adapter.history().survey(self.files)?;
                }
                Decision::EndTurn { turn, how } => self.append(Body::TurnEnd { turn, how }).await?,
                Decision::CarryOn { turn, unsent } => {
                    self.append(Body::Settled(Settled { turn: Some(turn), unsent })).await?
                }
                Decision::SettleFollowUp { key, turn, submissions } => {
                    self.settle_follow_up(&key, turn, submissions).await?
                }
                Decision::Continue(placed) => return Ok(Next::Start(Start::Continue(Message::from(&*placed)))),
                Decision::PlaceAgain(placed) => return Ok(Next::Start(Start::Again(Message::from(&*placed)))),
                Decision::Place(carry) => {
                    let (text, carries) = self.drive.with_state(|state| compose(state, &carry));
                    let message = Message {
                        id: MessageId::fresh(),
                        turn: TurnId::fresh(),
                        carries,
                        replaces: carry.replaces,
                        text,
                    };
                    return Ok(Next::Start(Start::Place(self.drive.ticket(message))));
                }
                Decision::Idle => return Ok(Next::Idle),
            }
        }
        Err(RecoveryError::Endless)
    }

    fn decision(&self, survey: &Survey, gate_open: bool) -> Decision {
        let state = self.drive.state();
        let rerunnable = |key: &EffectKey| state.effect(key).is_some_and(|effect| self.bridge.rerunnable(effect));
        let ours = |tool: &str| self.bridge.runs(tool);
        decide(&state, survey, Today { own_ids: self.own_ids, gate_open, rerunnable: &rerunnable, ours: &ours })
    }

    /// A request or decision that was cut: it may have been spent, so its hold counts in full.
    async fn lose(&self, key: &EffectKey) -> Result<(), RecoveryError> {
        let agentrun_kernel::Begun::Open(effect) = self.drive.reopen(key).await? else { return Ok(()) };
        let hold = self.drive.with_state(|state| state.effect(key).and_then(|effect| effect.intent.hold.clone()));
        let hold = hold.filter(|_| !planted!(LeakHold));
        let why = "the session was cut while the request was in flight";
        Ok(self.ledger.interrupt(effect, hold, "cut in flight", why).await?)
    }

    async fn repair(&mut self, want: &[agentrun_kernel::Repair]) -> Result<(), RecoveryError> {
        let records: Vec<Record> = read_all::<Body>(&**self.store, &LogKey::from(self.drive.key())).await?;
        let response = |id: &str| -> Option<Arc<[u8]>> {
            records.iter().find_map(|record| match &record.body {
                Body::Outcome(outcome) if outcome.response_id.as_deref() == Some(id) => Some(outcome.response.clone()),
                _ => None,
            })
        };
        let writes = self.adapter.history().repair(self.files, want, &response)?;
        for write in writes {
            self.files.apply(&write);
            self.append(Body::Native(write)).await?;
        }
        Ok(())
    }

    async fn settle_follow_up(
        &self,
        key: &EffectKey,
        turn: TurnId,
        submissions: Vec<SubmissionId>,
    ) -> Result<(), RecoveryError> {
        let mut bodies = Vec::new();
        if self.drive.with_state(|state| state.effect(key).is_some_and(|effect| effect.outcome.is_none())) {
            bodies.push(Body::Outcome(Outcome::new(key.clone(), OutcomeEnd::Interrupted, "the follow-up was cut")));
        }
        bodies.push(Body::Withdrawn(agentrun_kernel::Withdrawn {
            ids: submissions,
            why: "its follow-up was cut".to_owned(),
        }));
        bodies.push(Body::Settled(Settled { turn: Some(turn), unsent: Vec::new() }));
        self.drive.append(Batch::of(bodies), None).await?;
        Ok(())
    }

    async fn append(&self, body: Body) -> Result<(), RecoveryError> {
        self.drive.append(Batch::of([body]), None).await?;
        Ok(())
    }
}

/// Accepts a submission, unless one of that id was accepted already.
pub(crate) async fn submit_once(drive: &Drive, id: &str, source: Source, text: &str) -> Result<(), DriveError> {
    let id = SubmissionId(id.to_owned());
    if drive.with_state(|state| state.submission(&id).is_some()) {
        return Ok(());
    }
    drive.append(Batch::of([Body::Submission(Submission::new(id, source, text))]), None).await.map(drop)
}
