//! The ledgers one runner has open, one a run: its sessions share the books, however many they are.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};

use agentrun_kernel::{RunId, Store, Usd};
use tokio::sync::Mutex;

use super::{LedgerError, RunLedger};

/// A run's ledger, if somebody uses it; locked while it is opened, which others of the run wait for, and nobody of another run.
type Slot = Arc<Mutex<Weak<RunLedger>>>;

/// Ledgers by run; a run that nobody uses is forgotten.
#[derive(Clone, Default)]
pub(crate) struct Ledgers(Arc<std::sync::Mutex<HashMap<RunId, Slot>>>);

impl Ledgers {
    /// As [`RunLedger::open`], once for all who ask at the same time.
    pub(crate) async fn open(
        &self,
        store: &Store,
        run: &RunId,
        cap: Option<Usd>,
    ) -> Result<Arc<RunLedger>, LedgerError> {
        if let Some(cap) = cap.filter(|cap| cap.is_negative()) {
            return Err(LedgerError::NegativeCap(cap));
        }
        let slot = self.slot(run);
        let mut known = slot.lock().await;
        if let Some(ledger) = known.upgrade() {
            return Ok(ledger);
        }
        let ledger = Arc::new(RunLedger::open(store.clone(), run, cap).await?);
        *known = Arc::downgrade(&ledger);
        Ok(ledger)
    }

    fn slot(&self, run: &RunId) -> Slot {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(run) {
            return slot.clone();
        }
        // Now and then, so that a host of many runs neither keeps all their names nor looks at all of them each time. A slot that somebody
        // holds is one that is used, or is about to be.
        if slots.len().is_power_of_two() {
            slots.retain(|_, slot| {
                Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|ledger| ledger.strong_count() > 0)
            });
        }
        slots.entry(run.clone()).or_default().clone()
    }
}
