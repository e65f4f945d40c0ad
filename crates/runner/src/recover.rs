//! Brings a session from whatever its records say to the start of its next turn: asks the decision table, does the one thing it says,
//! and asks again. Each step is recorded before the next is asked, so a recovery can itself be cut and repeated.

use agentrun_adapter::{AgentAdapter, HistoryError, RecordedFiles, Start};
use agentrun_kernel::{
    Batch, Body, Decision, Drive, DriveError, EffectKey, Message, MessageId, Settled, Source, Store, StoreError,
    Submission, SubmissionId, Survey, Today, TurnId, decide, turn_end,
};

use crate::books::{LedgerError, RunLedger};
use crate::bridge::{Bridge, ReviewFault};
use crate::carry::compose;
use crate::inbox::{TakeError, take};
use crate::settle::Hand;

/// Steps of one recovery. Each step changes the records, and a log has only so many open ends; more means the table and the history never agree.
pub(crate) const STEPS: u32 = 100_000;

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
    #[error(transparent)]
    Inbox(#[from] TakeError),
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
                        self.hand().lose(&key).await?;
                    }
                }
                Decision::RunAgain(key) => self.bridge.rerun(&key).await?,
                Decision::Interrupt(keys) => self.cut(keys).await?,
                Decision::RunNew { call, ordinal } => self.bridge.run_new(call, ordinal).await?,
                Decision::Review(candidate) => self.bridge.review_again(&candidate).await?,
                Decision::Repair(want) => {
                    self.hand().repair(&want).await?;
                    survey = self.adapter.history().survey(self.files)?;
                }
                Decision::EndTurn { turn, how, unsent } => {
                    self.drive.append(turn_end(turn, how, unsent), None).await?;
                }
                Decision::CarryOn { turn, unsent } => {
                    self.append(Body::Settled(Settled { turn: Some(turn), unsent })).await?
                }
                Decision::SettleFollowUp { key, turn, submissions, unsent } => {
                    self.hand().settle_follow_up(&key, turn, submissions, unsent).await?
                }
                Decision::Continue(placed) => return Ok(Next::Start(Start::Continue(Message::from(&*placed)))),
                Decision::PlaceAgain(placed) => return Ok(Next::Start(Start::Again(Message::from(&*placed)))),
                // What people sent meanwhile is in the message, or is one by itself.
                Decision::Place(_) | Decision::Idle if take(self.store, self.drive).await? > 0 => {}
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
                // A candidate is left undecided by a settle alone.
                Decision::Idle | Decision::Undecided(_) => return Ok(Next::Idle),
            }
        }
        Err(RecoveryError::Endless)
    }

    /// Ends what was cut. A submit that got no candidate is decided from its intent instead, last: nothing else may be open at delivery.
    async fn cut(&self, keys: Vec<EffectKey>) -> Result<(), RecoveryError> {
        let (submits, calls): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| self.bridge.is_cut_submit(key));
        for key in calls {
            self.bridge.interrupt(&key).await?;
        }
        for key in submits {
            if self.bridge.is_cut_submit(&key) {
                self.bridge.submit_again(&key).await?;
            } else {
                self.bridge.interrupt(&key).await?;
            }
        }
        Ok(())
    }

    fn hand(&mut self) -> Hand<'_> {
        Hand {
            history: self.adapter.history(),
            store: self.store,
            drive: self.drive,
            ledger: self.ledger,
            files: self.files,
        }
    }

    fn decision(&self, survey: &Survey, gate_open: bool) -> Decision {
        let state = self.drive.state();
        let rerunnable = |key: &EffectKey| state.effect(key).is_some_and(|effect| self.bridge.rerunnable(effect));
        let ours = |tool: &str| self.bridge.runs(tool);
        decide(&state, survey, Today { own_ids: self.own_ids, gate_open, rerunnable: &rerunnable, ours: &ours })
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
