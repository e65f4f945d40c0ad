//! One client of a schedule: makes its calls and writes down when each was made, when it was answered, and what it said.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agentrun_kernel::{
    AppendError, Batch, Body, LedgerBody, LogKey, OpenError, RunId, Seq, SessionKey, SessionWriter, SharedAppend,
    SharedLog, Store, read_all,
};

use super::SESSIONS;
use super::plan::{Step, What};
use super::spec::{Answer, Call, Event};
use crate::suites::store::words::{Failure, abandon, data, raise};

pub(super) struct Client {
    store: Store,
    number: usize,
    clock: Arc<AtomicU64>,
    keys: Vec<SessionKey>,
    shared: SharedLog,
    /// The newest writer, its session and the place of its open in `events`.
    writer: Option<(SessionWriter, usize, usize)>,
    /// Last seqs as this client saw them.
    seen: [u64; SESSIONS],
    seen_shared: u64,
    next_value: u32,
    /// With an append's open by its place in here.
    pub(super) events: Vec<(Event, Option<usize>)>,
}

impl Client {
    pub(super) fn new(store: Store, schedule: usize, number: usize, clock: Arc<AtomicU64>) -> Result<Self, Failure> {
        let keys = (0..SESSIONS).map(|session| SessionKey::new(format!("race-{schedule}-{session}")));
        Ok(Self {
            store,
            number,
            clock,
            keys: keys.collect::<Result<_, _>>()?,
            shared: SharedLog::Ledger(RunId::new(format!("race-{schedule}"))?),
            writer: None,
            seen: [0; SESSIONS],
            seen_shared: 0,
            next_value: u32::try_from(number).unwrap_or_default() * 1_000,
            events: Vec::new(),
        })
    }

    pub(super) async fn take(&mut self, step: Step) -> Result<(), Failure> {
        for _ in 0..step.yields {
            tokio::task::yield_now().await;
        }
        match step.what {
            What::Open { session, seen } => self.open(session, seen, step.leaves).await,
            What::Append { records, shared } => self.append(records, shared, step.leaves).await,
            What::AppendAt => self.append_at(step.leaves).await,
            What::ReadSession { session } => self.read_session(session).await,
            What::ReadShared => self.read_shared().await,
        }
    }

    /// Reads every log, which ends a history.
    pub(super) async fn look_at_all(&mut self) -> Result<(), Failure> {
        for session in 0..SESSIONS {
            self.read_session(session).await?;
        }
        self.read_shared().await
    }

    async fn open(&mut self, session: usize, seen: bool, leaves: bool) -> Result<(), Failure> {
        let expected = if seen { self.seen.get(session).copied() } else { None };
        let call = Call::Open { session, expected };
        let key = self.key(session)?;
        let store = Arc::clone(&self.store);
        let called = self.now();
        let answer = heard(store.open(&key, expected.map(Seq)), leaves).await;
        let said = match answer {
            None => Answer::Unheard,
            Some(Ok(writer)) => {
                let said = Answer::Opened { epoch: writer.epoch().0, last: writer.last().0 };
                self.saw(session, writer.last().0);
                self.writer = Some((writer, session, self.events.len()));
                said
            }
            Some(Err(OpenError::HeadChanged { found, .. })) => {
                self.saw(session, found.0);
                Answer::HeadChanged { found: found.0 }
            }
            Some(Err(other)) => return Err(other.into()),
        };
        self.note(call, said, called, None);
        Ok(())
    }

    async fn append(&mut self, records: usize, shared: bool, leaves: bool) -> Result<(), Failure> {
        let Some((mut writer, session, opened)) = self.writer.take() else { return Ok(()) };
        let values: Vec<_> = (0..records).map(|_| self.value()).collect();
        let also = shared.then(|| (self.seen_shared, self.value()));
        let batch = Batch::of(values.iter().map(|value| data(u64::from(*value))));
        let append = also.map(|(expected, value)| SharedAppend {
            log: self.shared.clone(),
            expected: Seq(expected),
            batch: raise(&value.to_string()),
        });
        let call = Call::Append { session, open: 0, values, also };
        let called = self.now();
        let answer = heard(writer.append(batch, append), leaves).await;
        // Fenced or not waited for: the writer is done.
        let mut done = false;
        let said = match answer {
            None => {
                done = true;
                Answer::Unheard
            }
            Some(Ok(seq)) => {
                self.saw(session, seq.0);
                self.seen_shared += u64::from(also.is_some());
                Answer::Landed { seq: seq.0 }
            }
            Some(Err(AppendError::Fenced { newer })) => {
                done = true;
                Answer::Fenced { newer: newer.0 }
            }
            Some(Err(AppendError::Conflict { found, .. })) => {
                self.seen_shared = found.0;
                Answer::Conflict { found: found.0 }
            }
            Some(Err(other)) => return Err(other.into()),
        };
        self.note(call, said, called, Some(opened));
        if !done {
            self.writer = Some((writer, session, opened));
        }
        Ok(())
    }

    async fn append_at(&mut self, leaves: bool) -> Result<(), Failure> {
        let (expected, value) = (self.seen_shared, self.value());
        let store = Arc::clone(&self.store);
        let called = self.now();
        let answer = heard(store.append_at(&self.shared, Seq(expected), raise(&value.to_string())), leaves).await;
        let said = match answer {
            None => Answer::Unheard,
            Some(Ok(seq)) => {
                self.seen_shared = seq.0;
                Answer::Landed { seq: seq.0 }
            }
            Some(Err(AppendError::Conflict { found, .. })) => {
                self.seen_shared = found.0;
                Answer::Conflict { found: found.0 }
            }
            Some(Err(other)) => return Err(other.into()),
        };
        self.note(Call::AppendAt { expected, value }, said, called, None);
        Ok(())
    }

    async fn read_session(&mut self, session: usize) -> Result<(), Failure> {
        let key = self.key(session)?;
        let called = self.now();
        let page = self.store.read(&LogKey::from(&key), Seq(1), 1_000).await?;
        let returned = self.now();
        let records = page.records::<Body>()?;
        let value = |body: &Body| match body {
            Body::Data { value, .. } => value.as_u64().and_then(|value| u32::try_from(value).ok()),
            _ => None,
        };
        let records: Vec<_> =
            records.iter().map(|record| (record.epoch.0, value(&record.body).unwrap_or(u32::MAX))).collect();
        self.saw(session, page.head.seq.0);
        let said = Answer::Session { epoch: page.head.epoch.0, seq: page.head.seq.0, records };
        self.note_at(Call::ReadSession { session }, said, (called, returned), None);
        Ok(())
    }

    async fn read_shared(&mut self) -> Result<(), Failure> {
        let called = self.now();
        let records = read_all::<LedgerBody>(self.store.as_ref(), &self.shared.clone().into()).await?;
        let returned = self.now();
        let value = |body: &LedgerBody| match body {
            LedgerBody::Raise { id, .. } => id.parse().ok(),
            _ => None,
        };
        let records: Vec<_> = records.iter().map(|record| value(&record.body).unwrap_or(u32::MAX)).collect();
        self.seen_shared = records.len() as u64;
        self.note_at(Call::ReadShared, Answer::Shared { seq: self.seen_shared, records }, (called, returned), None);
        Ok(())
    }

    fn note(&mut self, call: Call, answer: Answer, called: u64, opened: Option<usize>) {
        let returned = if answer == Answer::Unheard { u64::MAX } else { self.now() };
        self.note_at(call, answer, (called, returned), opened);
    }

    fn note_at(&mut self, call: Call, answer: Answer, (called, returned): (u64, u64), opened: Option<usize>) {
        self.events.push((Event { client: self.number, call, answer, called, returned }, opened));
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn value(&mut self) -> u32 {
        self.next_value += 1;
        self.next_value
    }

    fn saw(&mut self, session: usize, seq: u64) {
        if let Some(seen) = self.seen.get_mut(session) {
            *seen = seq;
        }
    }

    fn key(&self, session: usize) -> Result<SessionKey, Failure> {
        self.keys.get(session).cloned().ok_or_else(|| Failure(format!("a schedule has no session {session}")))
    }
}

/// The answer, unless this client leaves before it comes.
async fn heard<T>(call: impl Future<Output = T>, leaves: bool) -> Option<T> {
    if leaves { abandon(call).await } else { Some(call.await) }
}
