//! The host's own paid decisions, in the run's ledger and under its cap: held under their id before they are made, booked by what they cost.
//! An id is decided once, over all processes and crashes: asked again it answers what it cost.

use std::sync::Arc;

use agentrun_cap::{Decided, decision_hold};
use agentrun_kernel::{Epoch, LedgerBody, SessionKey, Usd};

use super::{LedgerError, RunLedger};

/// What a decision's id stands for.
#[derive(Debug)]
pub enum Decide {
    /// It was made before, at this price.
    Known(Usd),
    /// It is held now: make it, then say how it ended.
    Open(PaidDecision),
}

/// A held decision. Dropped without an end, its hold counts in full until [`RunLedger::give_up_decision`].
#[derive(Debug)]
#[must_use]
pub struct PaidDecision {
    ledger: Arc<RunLedger>,
    id: String,
    session: SessionKey,
}

impl RunLedger {
    /// Holds `quote` for the decision `id`, made for `session`. Durable before it returns; dropping the future may leave the hold. It counts
    /// against the run's cap, and not against the budget of the session's node: that is for what the node itself does.
    ///
    /// # Errors
    /// [`LedgerError::Denied`] when the cap has no room; [`LedgerError::Deciding`], [`LedgerError::DecisionLost`] and
    /// [`LedgerError::DecidedElsewhere`] say what the id stands for. Nothing was written.
    pub async fn decide(self: Arc<Self>, id: &str, session: &SessionKey, quote: Usd) -> Result<Decide, LedgerError> {
        let mut known = None;
        self.append(|books| {
            let other = books.decision_session(id).filter(|owner| *owner != session);
            if let Some(owner) = other {
                return Err(LedgerError::DecidedElsewhere { id: id.to_owned(), session: owner.to_string() });
            }
            match books.decision(id) {
                Some(Decided::Made(amount)) => {
                    known = Some(amount);
                    return Ok(None);
                }
                Some(Decided::Held(quote)) => return Err(LedgerError::Deciding { id: id.to_owned(), quote }),
                Some(Decided::Unknown(quote)) => return Err(LedgerError::DecisionLost { id: id.to_owned(), quote }),
                None => {}
            }
            books.admit(quote)?;
            Ok(Some(LedgerBody::Hold {
                id: decision_hold(id),
                session: session.clone(),
                // No writer of a session holds it, so no session's recovery ends it.
                epoch: Epoch::default(),
                what: "decision".to_owned(),
                quote,
                catalog: "host".to_owned(),
            }))
        })
        .await?;
        Ok(match known {
            Some(amount) => Decide::Known(amount),
            None => Decide::Open(PaidDecision { ledger: self, id: id.to_owned(), session: session.clone() }),
        })
    }

    /// Ends a decision whose maker is gone: its hold counts in full from now on, and its id is used up. Nothing happens where it has ended.
    /// The host must know that nobody makes it any more: what a live maker reports afterwards is refused.
    ///
    /// # Errors
    /// [`LedgerError::Store`] and [`LedgerError::Fault`].
    pub async fn give_up_decision(&self, id: &str) -> Result<(), LedgerError> {
        self.append(|books| {
            let held = matches!(books.decision(id), Some(Decided::Held(_)));
            let why = "who made the decision is gone".to_owned();
            Ok(held.then(|| LedgerBody::Unknown { hold: decision_hold(id), why }))
        })
        .await
    }
}

impl PaidDecision {
    /// It was made and cost `amount`: booked as it is, above its quote too.
    ///
    /// # Errors
    /// [`LedgerError::Unfit`] for an amount below zero, [`LedgerError::DecisionLost`] when it was given up meanwhile; the hold stays as it is.
    pub async fn made(self, amount: Usd) -> Result<(), LedgerError> {
        let Self { ledger, id, session } = self;
        ledger
            .append(|books| match books.decision(&id) {
                Some(Decided::Unknown(quote)) => Err(LedgerError::DecisionLost { id: id.clone(), quote }),
                _ => Ok(Some(LedgerBody::Decision { id: id.clone(), session: session.clone(), amount })),
            })
            .await
    }

    /// Nothing was spent, and `proof` says how that is known. The id may be decided anew.
    ///
    /// # Errors
    /// [`LedgerError::Store`] and [`LedgerError::Fault`]; the hold stays.
    pub async fn not_made(self, proof: &str) -> Result<(), LedgerError> {
        let Self { ledger, id, .. } = self;
        ledger
            .append(|books| {
                let held = matches!(books.decision(&id), Some(Decided::Held(_)));
                Ok(held.then(|| LedgerBody::Release { hold: decision_hold(&id), proof: proof.to_owned() }))
            })
            .await
    }

    /// It may have been made, and nobody can say what it cost.
    ///
    /// # Errors
    /// [`LedgerError::Store`] and [`LedgerError::Fault`]; the hold stays.
    pub async fn unknown(self) -> Result<(), LedgerError> {
        self.ledger.give_up_decision(&self.id).await
    }
}
