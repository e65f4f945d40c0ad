//! Paid requests that belong to no session: those of a proxy that runs alone. The same ledger, the same totals, the same words; what is
//! lacking is the session's log, so a hold and its end are each a batch of the ledger's own.

use agentrun_cap::{Fault, Quote};
use agentrun_kernel::{Epoch, HoldId, LedgerBody, SessionKey};

use super::{LedgerError, RunLedger};

impl RunLedger {
    /// Holds `quote` in the name of `payer`, for a request that may be sent once this has returned: the hold is durable then. No owner of a
    /// session ends it, whatever becomes of its maker; without an end it counts in full. Dropping the future may leave the hold.
    ///
    /// # Errors
    /// [`LedgerError::Denied`] when the cap has no room; otherwise the ledger could not be read or written. Nothing may be sent.
    pub async fn hold_request(&self, payer: &SessionKey, quote: &Quote) -> Result<HoldId, LedgerError> {
        let hold = HoldId::fresh();
        self.append(|books| {
            books.admit(quote.amount)?;
            Ok(Some(LedgerBody::Hold {
                id: hold.clone(),
                session: payer.clone(),
                epoch: Epoch::default(),
                what: quote.model.clone(),
                quote: quote.amount,
                catalog: quote.catalog.clone(),
            }))
        })
        .await?;
        Ok(hold)
    }

    /// Ends the hold that `end` names, and answers the end as it stands in the ledger: a price that no fold takes is unknown there, so that
    /// the hold counts in full.
    ///
    /// # Errors
    /// The ledger could not be read or written: the hold stays, and counts in full.
    pub async fn end_request(&self, end: LedgerBody) -> Result<LedgerBody, LedgerError> {
        let mut written = end.clone();
        self.append(|books| {
            written = match (books.check(&end), &end) {
                (Ok(()), _) => end.clone(),
                (Err(fault @ (Fault::Negative(_) | Fault::Overflow)), LedgerBody::Booking { hold, .. }) => {
                    LedgerBody::Unknown { hold: hold.clone(), why: format!("its price cannot be booked: {fault}") }
                }
                (Err(fault), _) => return Err(fault.into()),
            };
            Ok(Some(written.clone()))
        })
        .await?;
        Ok(written)
    }
}
