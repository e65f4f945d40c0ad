//! A run's two logs, and fresh stores that hold them up to a record: where a session was cut.

use std::collections::HashMap;

use agentrun_kernel::{
    Batch, Body, HoldId, LedgerBody, Record, SessionKey, SessionState, SessionStore as _, SharedAppend, SharedBatch,
};

use crate::world::{World, key, ledger};

/// Both logs of a session, as batches that landed together.
pub(crate) struct Logs {
    pub(crate) records: Vec<Record>,
    ledger: Vec<LedgerBody>,
}

impl Logs {
    pub(crate) async fn of(world: &World) -> Self {
        let ledger = world.ledger().await.into_iter().map(|record| record.body).collect();
        Self { records: world.records().await, ledger }
    }

    /// A fresh store that holds the first `length` records and, with each, the ledger record that is one batch with it.
    pub(crate) async fn cut(&self, length: usize) -> World {
        self.lay(&[(key(), &self.records[..length])]).await
    }

    /// A fresh store that holds these sessions, one after the other, which share the run's ledger.
    pub(crate) async fn lay(&self, sessions: &[(SessionKey, &[Record])]) -> World {
        let world = World::new();
        let mut ends: HashMap<&HoldId, &LedgerBody> = HashMap::new();
        let mut holds: HashMap<&HoldId, &LedgerBody> = HashMap::new();
        for body in &self.ledger {
            match body {
                LedgerBody::Hold { id, .. } => {
                    holds.insert(id, body);
                }
                LedgerBody::Booking { hold, .. }
                | LedgerBody::Release { hold, .. }
                | LedgerBody::Unknown { hold, .. } => {
                    ends.insert(hold, body);
                }
                _ => {}
            }
        }
        let log = ledger();
        let cap = SharedBatch::Ledger(vec![LedgerBody::Cap { cap: None }]);
        let mut head = world.store.append_at(&log, agentrun_kernel::Seq::START, cap).await.unwrap();
        for (key, records) in sessions {
            let mut writer = world.store.open(key, None).await.unwrap();
            let mut state = SessionState::default();
            for record in *records {
                // The records of later epochs are written under theirs.
                while writer.epoch() < record.epoch {
                    writer = world.store.open(key, None).await.unwrap();
                }
                let hold = match &record.body {
                    Body::Intent(intent) => intent.hold.as_ref().map(|hold| holds[hold]),
                    Body::Outcome(outcome) => {
                        state.effect(&outcome.key).and_then(|effect| effect.intent.hold.as_ref()).map(|hold| ends[hold])
                    }
                    _ => None,
                };
                let also = hold.map(|body| SharedAppend {
                    log: log.clone(),
                    expected: head,
                    batch: SharedBatch::Ledger(vec![body.clone()]),
                });
                if also.is_some() {
                    head = head.next();
                }
                writer.append(Batch::of([record.body.clone()]), also).await.unwrap();
                state.apply(record);
            }
        }
        world
    }
}

/// Whether a log cut here ends inside a batch: verdict, outcome and delivery land together or not at all.
pub(crate) fn inside_a_batch(records: &[Record], length: usize) -> bool {
    let last = length.checked_sub(1).and_then(|last| records.get(last));
    matches!(last, Some(Record { body: Body::Verdict(_), .. }))
        || matches!(records.get(length), Some(Record { body: Body::Delivered(_), .. }))
}
