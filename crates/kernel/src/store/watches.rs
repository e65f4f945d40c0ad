//! Who follows which log. Heads only ever move on, so a late reading of an older one is dropped here.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::{Head, Watch};
use crate::ids::LogKey;

#[derive(Default)]
pub(super) struct Watches {
    // A std mutex: held for a map look-up, never over a wait.
    logs: Mutex<HashMap<LogKey, watch::Sender<Head>>>,
}

impl Watches {
    fn lock(&self) -> MutexGuard<'_, HashMap<LogKey, watch::Sender<Head>>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure changes of `log` are kept from now on. Called before the head is read, so that no commit falls between the two.
    pub(super) fn follow(&self, log: &LogKey) -> watch::Receiver<Head> {
        self.lock().entry(log.clone()).or_insert_with(|| watch::Sender::new(Head::default())).subscribe()
    }

    /// A watch that starts at `head` or at what was published since.
    pub(super) fn start(&self, log: &LogKey, mut heads: watch::Receiver<Head>, head: Head) -> Watch {
        self.publish(log, head);
        heads.mark_unchanged();
        Watch::new(heads)
    }

    pub(super) fn publish(&self, log: &LogKey, head: Head) {
        if let Some(sender) = self.lock().get(log) {
            sender.send_if_modified(|now| {
                let next = Head { seq: now.seq.max(head.seq), epoch: now.epoch.max(head.epoch) };
                let moved = next != *now;
                *now = next;
                moved
            });
        }
    }

    /// The logs somebody still follows; the others are forgotten.
    pub(super) fn followed(&self) -> Vec<LogKey> {
        let mut logs = self.lock();
        logs.retain(|_, sender| sender.receiver_count() > 0);
        logs.keys().cloned().collect()
    }

    pub(super) fn any(&self) -> bool {
        self.lock().values().any(|sender| sender.receiver_count() > 0)
    }

    /// Ends every watch: nothing more will be known here.
    pub(super) fn close(&self) {
        self.lock().clear();
    }
}
