//! Reading a run's ledger from its end: the last totals and what came after them, however long the ledger is.

use agentrun_cap::Books;
use agentrun_kernel::{LedgerBody, LogKey, PAGE, Record, RunId, Seq, SessionStore, SharedLog, StoreError, read_from};

use super::LedgerError;

/// Records read first: the totals of a ledger without thousands of open holds or used ids are among them.
const TAIL: u64 = 520;

/// A run's money, as its ledger says now; empty books for a run without one. Takes nothing and writes nothing.
///
/// # Errors
/// [`LedgerError::Store`] and [`LedgerError::Fault`] when the log cannot be read.
pub async fn read_books(store: &dyn SessionStore, run: &RunId) -> Result<Books, LedgerError> {
    let log = LogKey::Shared(SharedLog::Ledger(run.clone()));
    let head = store.read(&log, Seq(1), 1).await?.head.seq;
    if head == Seq::START {
        return Ok(Books::new());
    }
    let mut length = TAIL;
    let mut start = Seq(head.0.saturating_sub(length).saturating_add(1).max(1));
    let mut records = read_from::<LedgerBody>(store, &log, start).await?;
    loop {
        let totals = records.iter().rposition(|record| matches!(record.body, LedgerBody::Totals { .. }));
        if let Some(rest) = totals.and_then(|at| records.get(at..)).filter(|_| start > Seq(1))
            && let Some((totals, rest)) = rest.split_first()
        {
            let mut books = Books::from_totals(totals)?;
            books.fold(rest)?;
            return Ok(books);
        }
        if start <= Seq(1) {
            let mut books = Books::new();
            books.fold(&records)?;
            return Ok(books);
        }
        length = length.saturating_mul(2);
        let before = Seq(start.0.saturating_sub(length).max(1));
        let mut earlier = between(store, &log, before, start).await?;
        earlier.append(&mut records);
        (records, start) = (earlier, before);
    }
}

/// The records from `from` up to the one before `end`, which are all there.
async fn between(
    store: &dyn SessionStore,
    log: &LogKey,
    from: Seq,
    end: Seq,
) -> Result<Vec<Record<LedgerBody>>, StoreError> {
    let mut records: Vec<Record<LedgerBody>> = Vec::new();
    let mut next = from;
    while next < end {
        let left = usize::try_from(end.0.saturating_sub(next.0)).unwrap_or(PAGE);
        let page = store.read(log, next, left.min(PAGE)).await?;
        let found = page.records::<LedgerBody>()?;
        if found.first().is_none_or(|record| record.seq != next) {
            let what = "the store holds no record there, and later ones".to_owned();
            return Err(StoreError::Corrupt { log: log.clone(), seq: next, what });
        }
        next = Seq(next.0.saturating_add(found.len() as u64));
        records.extend(found);
    }
    Ok(records)
}
