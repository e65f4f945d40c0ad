//! The cases of sessions that leave and arrive, proven as the others are: each store that breaks one of these promises is caught.

use std::sync::Arc;

use agentrun_kernel::*;
use agentrun_testing::suites::store::{Data, Options, conform_with};
use async_trait::async_trait;

/// The cases that a store without removals and imports skips.
pub(crate) const CASES: &[&str] = &[
    "f21_a_removed_session_leaves_its_tombstone_and_its_key_is_used_by_nobody",
    "f21_an_old_writer_of_a_removed_session_is_fenced",
    "f21_a_removal_decided_on_an_older_head_removes_nothing",
    "f21_a_removal_touches_no_other_log",
    "f22_a_session_that_left_takes_no_post",
    "f22_an_arrival_lands_whole_or_not_at_all_and_once",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// Says it removed and did nothing.
    Unremoved,
    /// Takes what a caller saw for what is there.
    ExpectedIgnored,
    /// Draws a new tombstone each time.
    TombstoneAnew,
    /// Removes the run's ledger too: a note in it is as good as that.
    LedgerTouched,
    /// Opens before it lands, as a check before the write would.
    Landed,
    /// Leaves the messages behind.
    InboxLost,
    /// Leaves the ledger untold.
    LedgerUntold,
    /// Takes a second landing for the first.
    LandedTwice,
    /// Posts to whomever.
    PostsLost,
}

const MUTANTS: &[(Flaw, &str)] = &[
    (Flaw::Unremoved, CASES[0]),
    (Flaw::TombstoneAnew, CASES[0]),
    (Flaw::Unremoved, CASES[1]),
    (Flaw::ExpectedIgnored, CASES[2]),
    (Flaw::LedgerTouched, CASES[3]),
    (Flaw::PostsLost, CASES[4]),
    (Flaw::Landed, CASES[5]),
    (Flaw::InboxLost, CASES[5]),
    (Flaw::LedgerUntold, CASES[5]),
    (Flaw::LandedTwice, CASES[5]),
];

struct Flawed {
    inner: MemoryStore,
    flaw: Flaw,
}

#[async_trait]
impl SessionStore for Flawed {
    async fn open(&self, key: &SessionKey, expected: Option<Seq>) -> Result<SessionWriter, OpenError> {
        self.inner.open(key, expected).await
    }

    async fn read(&self, log: &LogKey, from: Seq, limit: usize) -> Result<Page, StoreError> {
        self.inner.read(log, from, limit).await
    }

    async fn heads(&self, after: Option<&SessionKey>, limit: usize) -> Result<Vec<SessionHead>, StoreError> {
        self.inner.heads(after, limit).await
    }

    async fn watch(&self, log: &LogKey) -> Result<Watch, StoreError> {
        self.inner.watch(log).await
    }

    async fn append_at(&self, log: &SharedLog, expected: Seq, batch: SharedBatch) -> Result<Seq, AppendError> {
        match self.inner.append_at(log, expected, batch).await {
            Err(AppendError::Refused(Refused::Ended(_))) if self.flaw == Flaw::PostsLost => Ok(expected.next()),
            answer => answer,
        }
    }

    async fn remove(&self, key: &SessionKey, expected: Option<Seq>) -> Result<Tombstone, RemoveError> {
        let seen = self.inner.read(&LogKey::from(key), Seq(1), 0).await?.head;
        match self.flaw {
            Flaw::Unremoved if seen.seq > Seq::START => {
                let last = self.inner.read(&LogKey::from(key), seen.seq, 1).await?.frames.pop();
                let epoch = Epoch(seen.epoch.0 + 1);
                Ok(Tombstone { key: key.clone(), epoch, nonce: Nonce::draw(), end: LogEnd::of(last.as_ref()) })
            }
            Flaw::ExpectedIgnored => self.inner.remove(key, None).await,
            Flaw::TombstoneAnew => {
                let tombstone = self.inner.remove(key, expected).await?;
                Ok(Tombstone { nonce: Nonce::draw(), ..tombstone })
            }
            Flaw::LedgerTouched => {
                let tombstone = self.inner.remove(key, expected).await?;
                let ledger = SharedLog::Ledger(RunId::new("r").unwrap());
                let at = self.inner.read(&ledger.clone().into(), Seq(1), 0).await?.head.seq;
                let note = SharedBatch::Ledger(vec![LedgerBody::Raise { id: "gone".to_owned(), cap: Usd::default() }]);
                self.inner.append_at(&ledger, at, note).await.unwrap();
                Ok(tombstone)
            }
            _ => self.inner.remove(key, expected).await,
        }
    }

    async fn import(&self, mut arrival: Arrival) -> Result<Head, ImportError> {
        let head = Head { seq: Seq(arrival.records.len() as u64), epoch: arrival.epoch };
        match self.flaw {
            Flaw::Landed => {
                drop(self.inner.open(&arrival.key, None).await);
                return self.inner.import(arrival).await;
            }
            Flaw::InboxLost => arrival.inbox.clear(),
            Flaw::LedgerUntold => arrival.also = None,
            _ => {}
        }
        match self.inner.import(arrival).await {
            Err(ImportError::Taken { .. }) if self.flaw == Flaw::LandedTwice => Ok(head),
            answer => answer,
        }
    }

    fn id(&self) -> &str {
        self.inner.id()
    }
}

fn data(flaw: Flaw) -> Data {
    let first = MemoryStore::new().unwrap();
    Data::new(move || Ok(Arc::new(Flawed { inner: first.again()?, flaw }))).beside().leaving()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_mutant_that_leaves_wrongly_is_caught_by_the_case_that_names_its_fault() {
    let options = Options { schedules: 1, ..Options::default() };
    let sound = conform_with(options, "sound", || data(Flaw::None)).await;
    assert!(sound.passed(), "{sound}");
    for (flaw, due) in MUTANTS {
        let report = conform_with(options, &format!("{flaw:?}"), || data(*flaw)).await;
        println!("{:<23} {}", report.subject, report.failed().join(", "));
        assert!(report.failed().contains(due), "{due} did not catch {flaw:?}:\n{report}");
    }
}
