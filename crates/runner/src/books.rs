//! A run's ledger as one session uses it: every paid step is held before it begins and ended with its outcome, both in one batch with the
//! session's record of it. Sessions in several processes share the log; whoever comes second folds the tail and asks again.

use std::sync::{Mutex, PoisonError};

use agentrun_cap::{Books, Denied, LedgerFault};
use agentrun_kernel::{
    AppendError, Begun, Body, Drive, DriveError, EffectSpec, HoldId, LedgerBody, LogKey, OpenEffect, Outcome,
    OutcomeEnd, Parked, RunId, SharedAppend, SharedBatch, SharedLog, Store, StoreError, Usd, read_from,
};

/// Tries at a ledger that others keep appending to. Each lost try means another's step went through, so this bounds starvation, not work.
const TRIES: u32 = 1_000;

/// A run's ledger.
pub(crate) struct RunLedger {
    store: Store,
    log: SharedLog,
    books: Mutex<Books>,
}

/// Why the ledger gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerError {
    /// The gate's word.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The session's drive.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A ledger whose records do not fit.
    #[error(transparent)]
    Fault(#[from] LedgerFault),
    /// The step was cut by a stop or a bound; the attempt's own trouble says which.
    #[error("the step was cut before it had an outcome")]
    Cut,
    /// Others were first too often.
    #[error("the run's ledger is too busy: {TRIES} tries lost; resume the session")]
    Busy,
}

/// A hold that goes with an effect.
pub(crate) struct Hold {
    pub(crate) id: HoldId,
    pub(crate) what: String,
    pub(crate) quote: Usd,
    pub(crate) catalog: String,
}

impl RunLedger {
    /// The ledger of `run`; a new one begins with `cap`. An existing one keeps the cap it has.
    pub(crate) async fn open(store: Store, run: &RunId, cap: Option<Usd>) -> Result<Self, LedgerError> {
        let ledger = Self::existing(store, run).await?;
        let empty = ledger.with(|books| books.seq()) == agentrun_kernel::Seq::START;
        if empty {
            let first = SharedBatch::Ledger(vec![LedgerBody::Cap { cap }]);
            match ledger.store.append_at(&ledger.log, agentrun_kernel::Seq::START, first).await {
                Ok(_) | Err(AppendError::Conflict { .. }) => ledger.refresh().await?,
                Err(AppendError::Unknown(error)) => return Err(LedgerError::Store(error)),
                Err(AppendError::Refused(refused)) => return Err(LedgerError::Drive(DriveError::Refused(refused))),
                Err(error @ AppendError::Fenced { .. }) => {
                    return Err(LedgerError::Store(StoreError::Io(error.to_string())));
                }
            }
        }
        Ok(ledger)
    }

    /// The ledger of `run` as it is. None is begun: a settle must not decide what a new run may spend.
    pub(crate) async fn existing(store: Store, run: &RunId) -> Result<Self, LedgerError> {
        let ledger = Self { store, log: SharedLog::Ledger(run.clone()), books: Mutex::new(Books::new()) };
        ledger.refresh().await?;
        Ok(ledger)
    }

    /// Reads one thing from the books as last folded.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&Books) -> T) -> T {
        read(&self.books.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the step a session is parked at still finds no room, by the books as last folded.
    pub(crate) fn refuses(&self, parked: &Parked) -> bool {
        self.with(|books| books.cap().is_some_and(|cap| cap < parked.needed))
    }

    /// Folds what others appended.
    pub(crate) async fn refresh(&self) -> Result<(), LedgerError> {
        let from = self.with(|books| books.seq().next());
        let records = read_from::<LedgerBody>(&*self.store, &LogKey::Shared(self.log.clone()), from).await?;
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody else of this process may have folded some of these while we read.
        let known = books.seq();
        books.fold(records.iter().filter(|record| record.seq > known))?;
        Ok(())
    }

    /// Holds and begins in one batch, or says why not. Nothing is written on a refusal.
    pub(crate) async fn begin(
        &self,
        drive: &Drive,
        spec: EffectSpec,
        before: Vec<Body>,
        hold: &Hold,
    ) -> Result<Begun, LedgerError> {
        for _ in 0..TRIES {
            self.refresh().await?;
            let expected = self.with(|books| books.admit(hold.quote).map(|()| books.seq()))?;
            let record = LedgerBody::Hold {
                id: hold.id.clone(),
                session: drive.key().clone(),
                epoch: drive.epoch(),
                what: hold.what.clone(),
                quote: hold.quote,
                catalog: hold.catalog.clone(),
            };
            let also = SharedAppend { log: self.log.clone(), expected, batch: SharedBatch::Ledger(vec![record]) };
            match drive.begin(spec.clone(), before.clone(), Some(also)).await {
                Err(DriveError::Conflict { .. }) => {}
                begun => return Ok(begun?),
            }
        }
        Err(LedgerError::Busy)
    }

    /// Ends an effect that was cut and is not run again. What it was held for may have been spent, so its hold counts in full.
    pub(crate) async fn interrupt(
        &self,
        effect: OpenEffect,
        hold: Option<HoldId>,
        text: impl Into<std::sync::Arc<str>>,
        why: &str,
    ) -> Result<(), LedgerError> {
        let outcome = Outcome::new(effect.key().clone(), OutcomeEnd::Interrupted, text);
        match hold {
            Some(hold) => {
                let end = LedgerBody::Unknown { hold: hold.clone(), why: why.to_owned() };
                self.finish(effect, outcome, &hold, end).await?;
            }
            None => {
                effect.finish(outcome, Vec::new(), None).await.map_err(|unfinished| unfinished.error)?;
            }
        }
        Ok(())
    }

    /// Ends an effect and its hold in one batch. A hold that has ended already (a batch that landed unseen) is not ended twice.
    pub(crate) async fn finish(
        &self,
        mut effect: OpenEffect,
        outcome: Outcome,
        hold: &HoldId,
        end: LedgerBody,
    ) -> Result<std::sync::Arc<Outcome>, LedgerError> {
        for _ in 0..TRIES {
            self.refresh().await?;
            let (open, expected) = self.with(|books| (books.open(hold).is_some(), books.seq()));
            let also = open.then(|| SharedAppend {
                log: self.log.clone(),
                expected,
                batch: SharedBatch::Ledger(vec![end.clone()]),
            });
            match effect.finish(outcome.clone(), Vec::new(), also).await {
                Ok(outcome) => return Ok(outcome),
                Err(unfinished) => match unfinished.error {
                    DriveError::Conflict { .. } => effect = unfinished.effect,
                    error => return Err(LedgerError::Drive(error)),
                },
            }
        }
        Err(LedgerError::Busy)
    }
}
