//! Reading a log to its end: several pages are read ahead of the one that is decoded, since a long session's records lie scattered over
//! the disk, and one read after the other waits for each.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Page, SessionStore, StoreError};
use crate::ids::{LogKey, Seq};
use crate::record::{LogBody, Record};

/// Records of one page.
pub const PAGE: usize = 512;
/// Pages that are read at once: as many as a store keeps connections for.
const AHEAD: usize = 4;

/// Every durable record of `log`, decoded.
///
/// # Errors
/// As [`read_from`].
pub async fn read_all<B: LogBody>(store: &dyn SessionStore, log: &LogKey) -> Result<Vec<Record<B>>, StoreError> {
    read_from(store, log, Seq(1)).await
}

/// The durable records of `log` from `from` on, decoded. It ends at the head that its last page showed: records that came during the
/// read may or may not be in it, none is left out before one that is.
///
/// # Errors
/// [`StoreError`] from the store; [`StoreError::Corrupt`] and [`StoreError::Version`] name the record that cannot be read.
pub async fn read_from<B: LogBody>(
    store: &dyn SessionStore,
    log: &LogKey,
    from: Seq,
) -> Result<Vec<Record<B>>, StoreError> {
    let mut records: Vec<Record<B>> = Vec::new();
    let mut next = from.max(Seq(1));
    let mut ahead = Ahead { store, log, pages: VecDeque::new(), asked: next, head: Seq::START };
    loop {
        let page = ahead.page(next).await?;
        for record in page.records::<B>()? {
            if record.seq != next {
                let what = format!("the store answered seq {} where {next} was due", record.seq);
                return Err(StoreError::Corrupt { log: log.clone(), seq: next, what });
            }
            next = next.next();
            records.push(record);
        }
        if page.frames.is_empty() && page.head.seq >= next {
            let what = format!("the store holds no record, its head is {}", page.head.seq);
            return Err(StoreError::Corrupt { log: log.clone(), seq: next, what });
        }
        if page.head.seq < next {
            return Ok(records);
        }
    }
}

type Reading<'a> = Pin<Box<dyn Future<Output = Result<Page, StoreError>> + Send + 'a>>;

/// A page that was asked for.
enum Asked<'a> {
    Reading(Reading<'a>),
    Read(Result<Page, StoreError>),
}

/// The pages of a log, a few of them asked for before they are due. Never past the newest head that was seen: what is not known to be
/// there is asked for when it is due.
struct Ahead<'a> {
    store: &'a dyn SessionStore,
    log: &'a LogKey,
    /// With the seq each begins at, without gaps from the one that is due.
    pages: VecDeque<(Seq, Asked<'a>)>,
    /// Where the next page to ask for begins.
    asked: Seq,
    head: Seq,
}

impl Ahead<'_> {
    /// The page that begins at `from`.
    async fn page(&mut self, from: Seq) -> Result<Page, StoreError> {
        // The page before was shorter than asked (large records), so what was read ahead begins elsewhere.
        if self.pages.front().is_some_and(|(begins, _)| *begins != from) {
            self.pages.clear();
        }
        if self.pages.is_empty() {
            self.asked = from;
            self.ask();
        }
        self.ask_ahead();
        let page = poll_fn(|context| self.poll_front(context)).await?;
        self.head = self.head.max(page.head.seq);
        self.ask_ahead();
        // Begun now, so that they are read while this page is decoded.
        poll_fn(|context| {
            self.poll_all(context);
            Poll::Ready(())
        })
        .await;
        Ok(page)
    }

    fn ask(&mut self) {
        self.pages.push_back((self.asked, Asked::Reading(self.store.read(self.log, self.asked, PAGE))));
        self.asked = self.asked.plus(PAGE as u64);
    }

    fn ask_ahead(&mut self) {
        while self.pages.len() < AHEAD && self.asked <= self.head {
            self.ask();
        }
    }

    fn poll_front(&mut self, context: &mut Context<'_>) -> Poll<Result<Page, StoreError>> {
        self.poll_all(context);
        match self.pages.pop_front() {
            Some((_, Asked::Read(page))) => Poll::Ready(page),
            Some(reading) => {
                self.pages.push_front(reading);
                Poll::Pending
            }
            None => Poll::Ready(Err(StoreError::Io("no page was asked for".to_owned()))),
        }
    }

    fn poll_all(&mut self, context: &mut Context<'_>) {
        for (_, asked) in &mut self.pages {
            if let Asked::Reading(reading) = asked
                && let Poll::Ready(page) = reading.as_mut().poll(context)
            {
                *asked = Asked::Read(page);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;

    use super::super::{
        AppendError, Arrival, Batch, Head, ImportError, MemoryStore, OpenError, RemoveError, SessionHead,
        SessionWriter, SharedBatch, Tombstone, Watch,
    };
    use super::*;
    use crate::ids::{SessionKey, SharedLog};
    use crate::record::Body;

    /// Answers no page with more than `most` records, the pages in another order than asked, and counts those asked for at once.
    struct Short {
        of: MemoryStore,
        most: usize,
        reading: AtomicUsize,
        at_once: AtomicUsize,
        reads: AtomicUsize,
    }

    #[async_trait]
    impl SessionStore for Short {
        async fn open(&self, key: &SessionKey, expected: Option<Seq>) -> Result<SessionWriter, OpenError> {
            self.of.open(key, expected).await
        }

        async fn read(&self, log: &LogKey, from: Seq, limit: usize) -> Result<Page, StoreError> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            let reading = self.reading.fetch_add(1, Ordering::Relaxed) + 1;
            self.at_once.fetch_max(reading, Ordering::Relaxed);
            // The first of several waits longest.
            for _ in reading..=AHEAD {
                tokio::task::yield_now().await;
            }
            let page = self.of.read(log, from, limit.min(self.most)).await;
            self.reading.fetch_sub(1, Ordering::Relaxed);
            page
        }

        async fn heads(&self, after: Option<&SessionKey>, limit: usize) -> Result<Vec<SessionHead>, StoreError> {
            self.of.heads(after, limit).await
        }

        async fn watch(&self, log: &LogKey) -> Result<Watch, StoreError> {
            self.of.watch(log).await
        }

        async fn append_at(&self, log: &SharedLog, expected: Seq, batch: SharedBatch) -> Result<Seq, AppendError> {
            self.of.append_at(log, expected, batch).await
        }

        async fn remove(&self, key: &SessionKey, expected: Option<Seq>) -> Result<Tombstone, RemoveError> {
            self.of.remove(key, expected).await
        }

        async fn import(&self, arrival: Arrival) -> Result<Head, ImportError> {
            self.of.import(arrival).await
        }

        fn id(&self) -> &str {
            self.of.id()
        }
    }

    async fn read(records: u64, most: usize) -> (Vec<Seq>, Arc<Short>) {
        let of = MemoryStore::new().unwrap();
        let key = SessionKey::new("long").unwrap();
        let mut writer = of.open(&key, None).await.unwrap();
        let body = |n: u64| Body::Data { name: "n".to_owned(), value: n.into() };
        if records > 0 {
            writer.append(Batch::of((0..records).map(body)), None).await.unwrap();
        }
        let zero = AtomicUsize::default;
        let store = Arc::new(Short { of, most, reading: zero(), at_once: zero(), reads: zero() });
        let read = read_all::<Body>(&*store, &LogKey::from(&key)).await.unwrap();
        (read.iter().map(|record| record.seq).collect(), store)
    }

    #[tokio::test]
    async fn a_long_log_is_read_in_order_with_a_few_pages_at_once() {
        let records = PAGE as u64 * 9 + 7;
        let (seqs, store) = read(records, PAGE).await;
        assert_eq!(seqs, (1..=records).map(Seq).collect::<Vec<_>>());
        assert_eq!(store.at_once.load(Ordering::Relaxed), AHEAD);
        assert_eq!(store.reads.load(Ordering::Relaxed), 10, "each page is read once");
    }

    #[tokio::test]
    async fn pages_shorter_than_asked_leave_nothing_out() {
        let records = PAGE as u64 * 2 + 7;
        let (seqs, _) = read(records, 100).await;
        assert_eq!(seqs, (1..=records).map(Seq).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_log_of_one_page_costs_one_read() {
        for records in [0, 1, PAGE as u64] {
            let (seqs, store) = read(records, PAGE).await;
            assert_eq!(seqs.len() as u64, records);
            assert_eq!(store.reads.load(Ordering::Relaxed), 1);
        }
    }
}
