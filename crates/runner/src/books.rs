//! A run's ledger as everybody of one process uses it: every paid step is held before it begins and ended with its outcome, both in one batch
//! with the session's record of it. Sessions in several processes share the log; whoever comes second folds the tail and asks again.

mod alone;
mod decisions;
mod opening;
mod registry;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, PoisonError};

use agentrun_cap::{Books, Denied, Fault, LedgerFault, RaiseError, TOTALS_EVERY, check_raise};
use agentrun_kernel::{
    AppendError, Begun, Body, Drive, DriveError, EffectSpec, Epoch, HoldId, LedgerBody, LogKey, OpenEffect, Outcome,
    OutcomeEnd, Parked, Record, RunId, Seq, SessionState, SharedAppend, SharedBatch, SharedLog, Store, StoreError, Usd,
    crossing, planted, read_from,
};

pub use decisions::{Decide, PaidDecision};
pub use opening::read_books;
pub(crate) use registry::Ledgers;

/// Tries at a ledger that others keep appending to. Each lost try means another's step went through, so this bounds starvation, not work.
const TRIES: u32 = 1_000;

/// A run's ledger.
///
/// One a run and process ([`HarnessRunner::ledger`](crate::HarnessRunner::ledger)): with thousands of sessions under one cap each record is
/// folded once a process, and sessions of one process never lose a try to each other.
pub struct RunLedger {
    store: Store,
    log: SharedLog,
    books: Mutex<Books>,
    /// Held over one step's fold, answer and append.
    turn: tokio::sync::Mutex<()>,
    /// Records between two totals.
    every: u64,
}

/// Why the ledger gave no answer. Nothing was written, but for [`LedgerError::Store`], where the log decides.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
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
    /// The record would be one that no fold takes.
    #[error("not written to the run's ledger: {0}")]
    Unfit(#[from] Fault),
    /// The raise will not do.
    #[error(transparent)]
    Raise(#[from] RaiseError),
    /// A cap below zero.
    #[error("a cap of ${0} is below zero; leave it out for no cap, or name what the run may spend")]
    NegativeCap(Usd),
    /// The decision is held: somebody makes it right now, or was cut while making it.
    #[error(
        "decision `{id}` is held at ${quote} already: it is being made, or who made it is gone; wait for it, or give it up as unknown and \
         decide under another id"
    )]
    Deciding {
        /// Its id.
        id: String,
        /// What it may cost.
        quote: Usd,
    },
    /// Nobody can say what became of the decision, so its id is used up.
    #[error("decision `{id}` was cut, and nobody can say what of its ${quote} was spent; decide under another id")]
    DecisionLost {
        /// Its id.
        id: String,
        /// What counts for it.
        quote: Usd,
    },
    /// The decision of this id was made for another session.
    #[error("decision `{id}` was made for session `{session}`; use another id")]
    DecidedElsewhere {
        /// Its id.
        id: String,
        /// Whose it is.
        session: String,
    },
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

impl std::fmt::Debug for RunLedger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunLedger").field("log", &self.log).finish_non_exhaustive()
    }
}

impl RunLedger {
    /// The ledger of `run`; a new one begins with `cap`. An existing one keeps the cap it has.
    ///
    /// # Errors
    /// [`LedgerError::NegativeCap`]: nothing was written. [`LedgerError::Store`] and [`LedgerError::Fault`] when it cannot be read.
    pub async fn open(store: Store, run: &RunId, cap: Option<Usd>) -> Result<Self, LedgerError> {
        if let Some(cap) = cap.filter(|cap| cap.is_negative()) {
            return Err(LedgerError::NegativeCap(cap));
        }
        let ledger = Self::existing(store, run).await?;
        if ledger.with(Books::seq) == Seq::START {
            match ledger.write(Seq::START, vec![LedgerBody::Cap { cap }]).await {
                Ok(()) => {}
                Err(Written::Conflict) => ledger.refresh().await?,
                Err(Written::Not(error)) => return Err(error),
            }
        }
        Ok(ledger)
    }

    /// The ledger of `run` as it is. None is begun: neither a settle nor a raise decides what a new run may spend.
    ///
    /// # Errors
    /// [`LedgerError::Store`] and [`LedgerError::Fault`] when it cannot be read.
    pub async fn existing(store: Store, run: &RunId) -> Result<Self, LedgerError> {
        let books = Mutex::new(read_books(&*store, run).await?);
        Ok(Self {
            store,
            log: SharedLog::Ledger(run.clone()),
            books,
            turn: tokio::sync::Mutex::default(),
            every: TOTALS_EVERY,
        })
    }

    /// The run's money now: what others appended is folded first.
    ///
    /// # Errors
    /// [`LedgerError::Store`] and [`LedgerError::Fault`] when the log cannot be read.
    pub async fn books(&self) -> Result<Books, LedgerError> {
        self.refresh().await?;
        Ok(self.with(Clone::clone))
    }

    /// Raises the run's cap to `cap`; the same id with the same cap again is the same raise. It fences nobody: a live session sees it at
    /// its next paid step, a parked one when it is resumed. `needed` is the quote of a step that waits, for which there must be room.
    ///
    /// # Errors
    /// [`LedgerError::Raise`] says the least that would do, or what the id stands for; nothing was written.
    pub async fn raise(&self, id: &str, cap: Usd, needed: Option<Usd>) -> Result<(), LedgerError> {
        let mut raises = false;
        self.append(|books| {
            let raise = check_raise(books, id, cap, needed)?;
            raises = raise.is_some();
            if raises {
                crossing!(Raise);
            }
            Ok(raise)
        })
        .await?;
        if raises {
            crossing!(Raised);
        }
        Ok(())
    }

    /// Appends what `next` makes of the books as they are, and makes it again where another process came first. `None`: nothing to append.
    async fn append(
        &self,
        mut next: impl FnMut(&Books) -> Result<Option<LedgerBody>, LedgerError> + Send,
    ) -> Result<(), LedgerError> {
        let _turn = self.turn.lock().await;
        for _ in 0..TRIES {
            self.refresh().await?;
            let (expected, batch) = {
                let books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(body) = next(&books)? else { return Ok(()) };
                books.check(&body)?;
                (books.seq(), self.with_totals(&books, body))
            };
            match self.write(expected, batch).await {
                Ok(()) => return Ok(()),
                Err(Written::Conflict) => {}
                Err(Written::Not(error)) => return Err(error),
            }
        }
        Err(LedgerError::Busy)
    }

    async fn write(&self, expected: Seq, batch: Vec<LedgerBody>) -> Result<(), Written> {
        let landed = batch.clone();
        match self.store.append_at(&self.log, expected, SharedBatch::Ledger(batch)).await {
            Ok(_) => self.landed(expected, landed).map_err(Written::Not),
            Err(AppendError::Conflict { .. }) => Err(Written::Conflict),
            Err(AppendError::Unknown(error)) => Err(Written::Not(error.into())),
            Err(AppendError::Refused(refused)) => Err(Written::Not(DriveError::Refused(refused).into())),
            Err(error @ AppendError::Fenced { .. }) => Err(Written::Not(StoreError::Io(error.to_string()).into())),
        }
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

    /// Folds what was appended here behind `before`, where nobody has folded it yet.
    fn landed(&self, before: Seq, batch: Vec<LedgerBody>) -> Result<(), LedgerError> {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seq = before;
        for body in batch {
            seq = seq.next();
            // The fold goes by seqs and bodies alone; whoever reads the log finds its writer's epoch and clock.
            let record = Record { seq, epoch: Epoch::default(), at: 0, body };
            if seq > books.seq() {
                books.fold([&record])?;
            }
        }
        Ok(())
    }

    /// What `ask` says of the books: first as they were last folded, so that a step costs no read, and where that is a fault, as the log
    /// says. An answer on books that were behind is void by itself: the append expects their seq.
    async fn asked<T>(&self, ask: impl Fn(&Books) -> Result<T, LedgerError>) -> Result<T, LedgerError> {
        if let Ok(answer) = self.with(&ask) {
            return Ok(answer);
        }
        self.refresh().await?;
        self.with(ask)
    }

    /// Holds and begins in one batch, or says why not. Nothing is written on a refusal.
    pub(crate) async fn begin(
        &self,
        drive: &Drive,
        spec: EffectSpec,
        before: Vec<Body>,
        hold: &Hold,
    ) -> Result<Begun, LedgerError> {
        let _turn = self.turn.lock().await;
        let record = LedgerBody::Hold {
            id: hold.id.clone(),
            session: drive.key().clone(),
            epoch: drive.epoch(),
            what: hold.what.clone(),
            quote: hold.quote,
            catalog: hold.catalog.clone(),
        };
        for _ in 0..TRIES {
            let (expected, part) = self
                .asked(|books| {
                    books.admit(hold.quote)?;
                    books.check(&record)?;
                    Ok((books.seq(), self.with_totals(books, record.clone())))
                })
                .await?;
            match drive.begin(spec.clone(), before.clone(), Some(self.also(expected, part.clone()))).await {
                Err(DriveError::Conflict { .. }) => self.refresh().await?,
                // Only of this is it sure that the hold went with it: what was known is answered without one.
                Ok(begun @ Begun::Open(_)) => {
                    self.landed(expected, part)?;
                    return Ok(begun);
                }
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
        let mut outcome = Outcome::new(effect.key().clone(), OutcomeEnd::Interrupted, text);
        match hold {
            Some(hold) if planted!(ReleaseCut) => {
                outcome.cost = Some(Usd::ZERO);
                let end = LedgerBody::Release { hold: hold.clone(), proof: why.to_owned() };
                self.finish(effect, outcome, &hold, end).await?;
            }
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
        mut outcome: Outcome,
        hold: &HoldId,
        end: LedgerBody,
    ) -> Result<std::sync::Arc<Outcome>, LedgerError> {
        let _turn = self.turn.lock().await;
        for _ in 0..TRIES {
            let checked = self.asked(|books| {
                books.check(&end)?;
                Ok((books.seq(), Some(self.with_totals(books, end.clone()))))
            });
            let (expected, part) = match checked.await {
                Ok(part) => part,
                Err(LedgerError::Unfit(Fault::NotOpen(_))) => (Seq::START, None),
                // A price that no fold takes would end the run's ledger; the hold counts in full instead.
                Err(LedgerError::Unfit(fault)) => {
                    outcome.cost = None;
                    let why = format!("its price cannot be booked: {fault}");
                    let unknown = LedgerBody::Unknown { hold: hold.clone(), why };
                    self.with(|books| (books.seq(), Some(self.with_totals(books, unknown))))
                }
                Err(error) => return Err(error),
            };
            let also = part.clone().map(|part| self.also(expected, part));
            match effect.finish(outcome.clone(), Vec::new(), also).await {
                Ok(outcome) => {
                    if let Some(part) = part {
                        self.landed(expected, part)?;
                    }
                    return Ok(outcome);
                }
                Err(unfinished) => match unfinished.error {
                    DriveError::Conflict { .. } => {
                        effect = unfinished.effect;
                        self.refresh().await?;
                    }
                    error => return Err(LedgerError::Drive(error)),
                },
            }
        }
        Err(LedgerError::Busy)
    }

    /// The ledger's part of a session's batch.
    fn also(&self, expected: Seq, part: Vec<LedgerBody>) -> SharedAppend {
        SharedAppend { log: self.log.clone(), expected, batch: SharedBatch::Ledger(part) }
    }

    /// The batch of one record, behind totals where they are due: they stand for the books as they are, so the record rests on both alike.
    fn with_totals(&self, books: &Books, body: LedgerBody) -> Vec<LedgerBody> {
        let totals = books.totals_due(self.every).then(|| books.totals());
        totals.into_iter().chain([body]).collect()
    }

    /// Ends the holds that earlier owners of the drive's session left open and that no decision of the session will end: by its outcome
    /// where the session has one, as nothing spent where it has no intent. To be called by an owner whose epoch is durable: only then can
    /// no older one still write the missing intent.
    pub(crate) async fn reconcile(&self, drive: &Drive) -> Result<(), LedgerError> {
        loop {
            let mut more = false;
            self.append(|books| {
                let mut ends = books
                    .abandoned(drive.key(), drive.epoch())
                    .filter_map(|(hold, _)| drive.with_state(|state| missing_end(state, hold)));
                let end = ends.next();
                more = end.is_some();
                Ok(end)
            })
            .await?;
            if !more {
                return Ok(());
            }
        }
    }
}

/// Why a batch was not written.
enum Written {
    /// Somebody came first.
    Conflict,
    Not(LedgerError),
}

/// How a hold of the session must end by what the session's log says; `None` while its effect is open, for the decision table ends it.
fn missing_end(state: &SessionState, hold: &HoldId) -> Option<LedgerBody> {
    let hold = hold.clone();
    let Some(effect) = state.effects().find(|effect| effect.intent.hold.as_ref() == Some(&hold)) else {
        let proof = "its session began nothing for it, and who held it has lost the session".to_owned();
        return Some(LedgerBody::Release { hold, proof });
    };
    let outcome = effect.outcome.as_ref()?;
    Some(match outcome.cost {
        Some(amount) => LedgerBody::Booking {
            hold,
            usage: outcome.usage.clone(),
            model: (effect.intent.effect == agentrun_kernel::EffectKind::Request).then(|| effect.intent.name.clone()),
            catalog: "as recorded in the session".to_owned(),
            amount,
        },
        None => LedgerBody::Unknown { hold, why: "its session recorded no price".to_owned() },
    })
}
