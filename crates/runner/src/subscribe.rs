//! A session's records and events in one ordered stream: those that are there, then those that come, by this process or by another. It is
//! read from the store, whose watch only says when to look, so a slow reader misses nothing and holds up nobody.

use std::collections::VecDeque;

use agentrun_kernel::{Body, LogKey, PAGE, Record, Seq, SessionKey, SessionState, Store, StoreError, Watch};

use crate::events::{Event, Publisher};

/// Follows a session's events. Made by [`subscribe`].
#[derive(Debug)]
pub struct Subscription {
    records: Following,
    publisher: Publisher,
    /// The last seq whose event is known already.
    after: Seq,
    ready: VecDeque<Event>,
}

/// The events of `session` behind the seq `after` (`Seq(0)`: all of them): an event's seq is its record's, so one that was seen is where to
/// go on from. Not each record is an event, and none is left out before one that is told.
///
/// # Errors
/// [`StoreError`] when the store cannot be read.
pub async fn subscribe(store: &Store, session: &SessionKey, after: Seq) -> Result<Subscription, StoreError> {
    // An outcome names its effect by key, so what came before is folded too, and not told.
    let records = Following::open(store, session, Seq(0)).await?;
    let publisher = Publisher::new(session.clone(), SessionState::default());
    Ok(Subscription { records, publisher, after, ready: VecDeque::new() })
}

impl Subscription {
    /// The next event; waits for it. `None`: the session was removed or moved away, or the store was closed, and none will come.
    /// Cancel safe.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read; the same again tries again.
    pub async fn next(&mut self) -> Result<Option<Event>, StoreError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let Some(records) = self.records.next().await? else { return Ok(None) };
            let events = records.iter().filter_map(|record| self.publisher.publish(record));
            self.ready.extend(events.filter(|event| event.seq > self.after));
        }
    }
}

/// Follows a session's records.
pub struct Following {
    store: Store,
    log: LogKey,
    watch: Watch,
    next: Seq,
    /// The newest head that was seen: a log that is shorter than that was removed.
    seen: Seq,
    /// The last record says that the session lives elsewhere.
    moved: bool,
}

impl std::fmt::Debug for Following {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Following").field("log", &self.log).field("next", &self.next).finish_non_exhaustive()
    }
}

impl Following {
    /// The records of `session` behind the seq `after`. One that is not there (or was removed before) is waited for.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read.
    pub async fn open(store: &Store, session: &SessionKey, after: Seq) -> Result<Self, StoreError> {
        let log = LogKey::from(session);
        // The watch comes first, so that what is written after the first read is told of.
        let watch = store.watch(&log).await?;
        let seen = watch.head().seq;
        Ok(Self { store: store.clone(), log, watch, next: after.next(), seen, moved: false })
    }

    /// The next records, at least one; waits for them. `None`: no more can come. Cancel safe.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Corrupt`] names the record that cannot be read. Nothing is skipped.
    pub async fn next(&mut self) -> Result<Option<Vec<Record>>, StoreError> {
        if self.moved {
            return Ok(None);
        }
        loop {
            let page = self.store.read(&self.log, self.next, PAGE).await?;
            if page.head.seq < self.seen {
                return Ok(None);
            }
            self.seen = page.head.seq;
            let records = page.records::<Body>()?;
            let due = |(at, record): (usize, &Record)| record.seq == self.next.plus(at as u64);
            if !records.iter().enumerate().all(due) || (records.is_empty() && page.head.seq >= self.next) {
                let what = format!("the store answered a page without seq {} in its place", self.next);
                return Err(StoreError::Corrupt { log: self.log.clone(), seq: self.next, what });
            }
            if let Some(last) = records.last() {
                self.next = last.seq.next();
                self.moved = matches!(last.body, Body::Moved { .. });
                return Ok(Some(records));
            }
            if self.watch.changed().await.is_none() {
                return Ok(None);
            }
        }
    }
}
