//! What two synced appends cost by themselves: a hold and its booking, in turn, on a store of their own.

use std::time::Instant;

use agentrun_kernel::{Epoch, HoldId, LedgerBody, RunId, Seq, SessionKey, SharedBatch, SharedLog, Store, Usage, Usd};

/// A store to append to, and where its log ends.
pub(crate) struct Disk {
    store: Store,
    log: SharedLog,
    tail: Seq,
}

impl Disk {
    pub(crate) async fn open(url: &str) -> Self {
        let store = agentrun_kernel::open_url(url).unwrap();
        let mut disk = Self { store, log: SharedLog::Ledger(RunId::new("bench").unwrap()), tail: Seq::START };
        disk.append(LedgerBody::Cap { cap: None }).await;
        disk
    }

    async fn append(&mut self, body: LedgerBody) {
        self.store.append_at(&self.log, self.tail, SharedBatch::Ledger(vec![body])).await.unwrap();
        self.tail = self.tail.next();
    }

    /// Nanoseconds of each pair of appends.
    pub(crate) async fn pairs(&mut self, until: Instant) -> Vec<u64> {
        let mut took = Vec::new();
        while Instant::now() < until {
            let hold = HoldId::fresh();
            let held = LedgerBody::Hold {
                id: hold.clone(),
                session: SessionKey::new("bench").unwrap(),
                epoch: Epoch::default(),
                what: crate::bodies::MODEL.to_owned(),
                quote: Usd::from_pico(1_000_000_000),
                catalog: "a-catalog-of-some-day".to_owned(),
            };
            let usage = Usage { input: 1500, output: 200, ..Usage::default() };
            let booked = LedgerBody::Booking {
                hold,
                usage: Some(usage),
                model: Some(crate::bodies::MODEL.to_owned()),
                catalog: "a-catalog-of-some-day".to_owned(),
                amount: Usd::from_pico(900_000_000),
            };
            let start = Instant::now();
            self.append(held).await;
            self.append(booked).await;
            took.push(start.elapsed().as_nanos() as u64);
        }
        took
    }
}
