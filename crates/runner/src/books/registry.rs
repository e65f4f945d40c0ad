//! The ledgers one runner has open, one a run: its sessions share the books, however many they are.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use agentrun_kernel::{RunId, Store, Usd};
use tokio::sync::Mutex;

use super::{LedgerError, RunLedger};

/// Ledgers by run; a run that nobody uses is forgotten.
#[derive(Clone, Default)]
pub(crate) struct Ledgers(Arc<Mutex<HashMap<RunId, Weak<RunLedger>>>>);

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
        let mut ledgers = self.0.lock().await;
        if let Some(ledger) = ledgers.get(run).and_then(Weak::upgrade) {
            return Ok(ledger);
        }
        let ledger = Arc::new(RunLedger::open(store.clone(), run, cap).await?);
        // Now and then, so that a host of many runs neither keeps all their names nor looks at all of them each time.
        if ledgers.len().is_power_of_two() {
            ledgers.retain(|_, ledger| ledger.strong_count() > 0);
        }
        ledgers.insert(run.clone(), Arc::downgrade(&ledger));
        Ok(ledger)
    }
}
