//! People's words for a turn that runs: what waits in the inbox is taken as it comes and handed to a harness that can be steered, one
//! message at a time. What the turn ends without is told by the harness's recorded history, and begins the next message.
//!
//! ```text
//!  inbox [post] ─► inbox [taken] + session [submission], one batch ─► ticket ─► [placed], into the open turn ─► harness ─► its history
//!                                                                                  └ not in its history at the end ─► [turn_end, settled(unsent)]
//! ```

use std::fmt;

use agentrun_adapter::{AgentAdapter, RecordedFiles, Words};
use agentrun_kernel::{
    Carry, Drive, DriveError, Message, MessageId, PlaceTicket, Record, Restart, SessionState, Source, StopLevel,
    StopSignal, Store, StoreError, SubmissionId, Watch, read_all, steered_in_vain,
};
use async_trait::async_trait;

use crate::carry::compose;
use crate::inbox::{TakeError, take, watch};
use crate::recover::RecoveryError;

/// Words for the turns of one attempt.
pub(crate) struct Steering {
    store: Store,
    drive: Drive,
    stop: StopSignal,
    inbox: Watch,
}

impl fmt::Debug for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steering").field("session", self.drive.key()).finish_non_exhaustive()
    }
}

impl Steering {
    /// # Errors
    /// [`StoreError`] when the inbox cannot be read.
    pub(crate) async fn new(store: &Store, drive: &Drive, stop: StopSignal) -> Result<Self, StoreError> {
        let inbox = watch(store, drive.key()).await?;
        Ok(Self { store: store.clone(), drive: drive.clone(), stop, inbox })
    }

    /// A ticket for all the words that wait, once a turn of the node's is open.
    fn ticket(&self) -> Option<PlaceTicket> {
        let message = self.drive.with_state(|state| {
            let turn = state.open_turn.as_ref().filter(|_| state.delivered.is_none())?;
            let fresh = waiting(state);
            if fresh.is_empty() {
                return None;
            }
            let (text, carries) = compose(state, &Carry { unsent: Vec::new(), fresh, replaces: Vec::new() });
            Some(Message { id: MessageId::fresh(), turn: turn.id.clone(), carries, replaces: Vec::new(), text })
        })?;
        Some(self.drive.ticket(message))
    }
}

/// People's words that no message carries yet.
fn waiting(state: &SessionState) -> Vec<SubmissionId> {
    let waits = state
        .submissions()
        .filter(|accepted| accepted.waits() && !accepted.unsent && accepted.submission.source == Source::Person);
    waits.map(|accepted| accepted.submission.id.clone()).collect()
}

#[async_trait]
impl Words for Steering {
    async fn next(&mut self) -> Result<PlaceTicket, Restart> {
        let mut stop = self.stop.clone();
        loop {
            if stop.level() >= StopLevel::Drain {
                std::future::pending::<()>().await;
            }
            match take(&self.store, &self.drive).await {
                Ok(_) => {}
                Err(TakeError::Drive(DriveError::Restart(restart))) => return Err(restart),
                // What cannot be taken now waits for the turn's end, where the same fault is told.
                Err(_) => std::future::pending().await,
            }
            if let Some(ticket) = self.ticket() {
                return Ok(ticket);
            }
            tokio::select! {
                told = self.inbox.changed() => if told.is_none() { std::future::pending().await },
                _ = stop.reached(StopLevel::Drain) => {}
            }
        }
    }
}

/// What was steered into the open turn and is not in the harness's recorded history, now that the turn ends.
pub(crate) async fn in_vain(
    adapter: &dyn AgentAdapter,
    store: &Store,
    drive: &Drive,
) -> Result<Vec<SubmissionId>, RecoveryError> {
    let steered = |state: &SessionState| {
        state.open_turn.as_ref().is_some_and(|turn| state.messages_of(&turn.id).nth(1).is_some())
    };
    if !drive.with_state(steered) {
        return Ok(Vec::new());
    }
    let records: Vec<Record> = read_all(&**store, &drive.key().into()).await?;
    let survey = adapter.history().survey(&RecordedFiles::fold(&records))?;
    Ok(drive.with_state(|state| steered_in_vain(state, &survey)))
}
