//! A session arrives. `read` is the whole check of a file, with nothing written; `land` is one step of the store. So a file that does
//! not fit, and an import that was cut, leave nothing behind, and can be done again.

use std::io::BufRead;

use serde_json::json;

use super::file::{FileError, FileFault, Lines};
use super::lines::{Earlier, Last, Line, Row, Top};
use crate::ids::{Epoch, LogKey, Nonce, RunId, Seq, SessionKey, SharedLog};
use crate::money::Usd;
use crate::record::{
    Body, DecodeError, EffectKind, FORMAT, Frame, InboxBody, LedgerBody, LogBody, Outcome, OutcomeEnd, Record, Verdict,
};
use crate::session::{Illegal, SessionState};
use crate::store::{
    AppendError, Arrival, End, ImportError, LogEnd, SessionStore, SharedAppend, SharedBatch, SharedFrames, StoreError,
    now_ms,
};

/// Name of the `data` record that ends every import: where the session came from.
pub const IMPORTED: &str = "agentrun.imported";
/// Tries at a ledger that others keep appending to.
const TRIES: u32 = 1_000;

/// An export file that was read whole, and fits.
#[derive(Debug)]
pub struct Import {
    top: Top,
    /// The session's records but for the seal.
    records: Vec<Frame>,
    inbox: Vec<Frame>,
    state: SessionState,
    /// Epoch of the last record, the seal included.
    epoch: Epoch,
    end: LogEnd,
    sealed: Option<String>,
    earlier: Vec<SessionKey>,
}

/// A session that landed.
#[derive(Clone, Debug, PartialEq)]
pub struct Landed {
    /// The key it has here.
    pub key: SessionKey,
    /// The key it has where it came from.
    pub from: SessionKey,
    /// Whether it moved here; otherwise it is a copy, and the other one may live on.
    pub moved: bool,
    /// Records it has here.
    pub records: u64,
    /// Records of its inbox.
    pub inbox: u64,
    /// The epoch it is at.
    pub epoch: Epoch,
    /// Effects that were open in a copy and are ended as interrupted.
    pub interrupted: usize,
    /// Its run.
    pub run: Option<RunId>,
    /// The cap its run begins with here, when it had one and this store knew nothing of the run: all of it is used.
    pub cap: Option<Usd>,
}

/// Why a session did not land. But for [`StoreError`], nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum LandError {
    /// It was not sealed, so it may live on where it came from.
    #[error(
        "session `{key}` was not sealed where it came from, so it may live on there, and two owners of one key would pay for it twice; \
         import it under another key, or seal it there and export it again"
    )]
    Unsealed {
        /// Which.
        key: SessionKey,
    },
    /// An earlier attempt of its step is not here, whose receipts it rests on.
    #[error(
        "session `{key}` goes on from the earlier attempt `{earlier}`, which is not in this store: what that one ran would be run again; \
         import `{earlier}` first"
    )]
    Earlier {
        /// Which.
        key: SessionKey,
        /// The attempt that is missing.
        earlier: SessionKey,
    },
    /// What would be added to it breaks an invariant: a fault of this program.
    #[error("session `{key}` cannot be ended as it must: {illegal}")]
    Illegal {
        /// Which.
        key: SessionKey,
        /// What.
        illegal: Illegal,
    },
    /// Its records cannot be written under this key.
    #[error("session `{key}`: {error}")]
    Unwritable {
        /// Which.
        key: SessionKey,
        /// Why.
        error: DecodeError,
    },
    /// The run's ledger moved on each time.
    #[error("the ledger of run `{run}` is too busy; try again")]
    Busy {
        /// Which.
        run: RunId,
    },
    /// The store's answer.
    #[error(transparent)]
    Refused(#[from] ImportError),
}

impl From<StoreError> for LandError {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}

impl Import {
    /// Reads a file to its end and checks all of it: its form, the checksum of each record and of the whole, every invariant of the log.
    /// Holds the records in memory.
    ///
    /// # Errors
    /// [`FileError`] names the line and the byte.
    pub fn read(input: impl BufRead) -> Result<Self, FileError> {
        let mut lines = Lines::new(input);
        lines.next()?;
        lines.known()?;
        let Line::Export(top) = lines.parse()? else { return Err(lines.damaged("this line is out of place")) };
        if top.format != FORMAT {
            return Err(lines.fault(FileFault::Format { found: top.format }));
        }
        let (log, inbox) = (LogKey::from(&top.key), LogKey::Shared(SharedLog::Inbox(top.key.clone())));
        // Where the log ends: digests are taken once, of the last.
        let mut last: Option<Frame> = None;
        let mut import = Self {
            records: Vec::new(),
            inbox: Vec::new(),
            state: SessionState::default(),
            epoch: Epoch(0),
            end: LogEnd::of(None),
            sealed: None,
            earlier: Vec::new(),
            top,
        };
        loop {
            lines.next()?;
            match lines.parse()? {
                Line::Record(row) if import.inbox.is_empty() && import.earlier.is_empty() => {
                    let due = last.as_ref().map_or(Seq::START, |frame| frame.seq).next();
                    let (frame, record) = frame::<Body, _>(&lines, &log, &row, due)?;
                    last = Some(frame.clone());
                    import.take(frame, record).map_err(|fault| lines.fault(fault))?;
                }
                Line::Post(row) if import.earlier.is_empty() => {
                    let due = Seq::START.plus(import.inbox.len() as u64).next();
                    import.inbox.push(frame::<InboxBody, _>(&lines, &inbox, &row, due)?.0);
                }
                Line::Earlier(Earlier { key }) => import.earlier.push(key),
                Line::End(Last { sha256 }) => {
                    import.end = LogEnd::of(last.as_ref());
                    import.whole().map_err(|what| lines.damaged(what))?;
                    if sha256 != lines.digest() {
                        return Err(
                            lines.damaged("the checksum of the file does not fit: a line before this one was changed")
                        );
                    }
                    lines.over()?;
                    return Ok(import);
                }
                Line::Export(_) | Line::Record(_) | Line::Post(_) => {
                    return Err(lines.damaged("this line is out of place"));
                }
            }
        }
    }

    fn take(&mut self, frame: Frame, record: Record) -> Result<(), FileFault> {
        if self.sealed.is_some() {
            let damaged = "a record follows the seal";
            return Err(FileFault::Damaged(damaged.to_owned()));
        }
        self.state.check(&record).map_err(FileFault::Illegal)?;
        self.epoch = record.epoch;
        match record.body {
            // The state stays the one before it: that is what goes on.
            Body::Moved { to } => self.sealed = Some(to),
            body => {
                self.state.apply(&Record { body, ..record });
                self.records.push(frame);
            }
        }
        Ok(())
    }

    /// Whether all is there that the first line says.
    fn whole(&self) -> Result<(), String> {
        let found = (self.end.seq.0, self.inbox.len() as u64);
        let said = (self.top.records, self.top.inbox);
        if found != said {
            return Err(format!(
                "the first line says {} records and {} of the inbox, here are {} and {}",
                said.0, said.1, found.0, found.1
            ));
        }
        if self.records.is_empty() { Err("it has no records".to_owned()) } else { Ok(()) }
    }

    /// The key it has where it came from.
    #[must_use]
    pub const fn key(&self) -> &SessionKey {
        &self.top.key
    }

    /// Where it was sealed to, if it was: then it may land under its own key.
    #[must_use]
    pub fn sealed(&self) -> Option<&str> {
        self.sealed.as_deref()
    }

    /// Where the log ends: held against a [`Tombstone`](crate::Tombstone), whether both are of one history.
    #[must_use]
    pub const fn end(&self) -> &LogEnd {
        &self.end
    }

    /// The session as its records tell it, the seal left out.
    #[must_use]
    pub const fn state(&self) -> &SessionState {
        &self.state
    }

    /// Puts the session into `store`, under its own key or another, as one step: it is there whole, or not at all. Asked again after it
    /// landed it is [`ImportError::Taken`].
    ///
    /// Under its own key (`None`, or that key) only a sealed one lands: it goes on where it was, one epoch up, with what is open still open
    /// for its next owner to decide. Under another key it is a copy: what is open in it belongs to the other one, so each open effect is
    /// ended as interrupted and a value that waits for its review is sent back.
    ///
    /// # Errors
    /// [`LandError`].
    pub async fn land(&self, store: &dyn SessionStore, under: Option<&SessionKey>) -> Result<Landed, LandError> {
        let key = under.unwrap_or(&self.top.key);
        let moved = *key == self.top.key;
        if moved && self.sealed.is_none() {
            return Err(LandError::Unsealed { key: key.clone() });
        }
        for earlier in &self.earlier {
            if store.read(&LogKey::from(earlier), Seq(1), 0).await?.head.seq == Seq::START {
                return Err(LandError::Earlier { key: key.clone(), earlier: earlier.clone() });
            }
        }
        let unwritable = |error| LandError::Unwritable { key: key.clone(), error };
        let epoch = Epoch(self.epoch.0.saturating_add(1));
        let (added, interrupted) = self.endings(key, moved, epoch)?;
        let log = LogKey::from(key);
        let mut records = self.under::<Body>(&self.records, &LogKey::from(&self.top.key), &log).map_err(unwritable)?;
        for record in &added {
            let frame = Frame::encode(&log, record.seq, record.epoch, record.at, &record.body).map_err(unwritable)?;
            records.push(frame);
        }
        let inbox_of = |key: &SessionKey| LogKey::Shared(SharedLog::Inbox(key.clone()));
        let inbox =
            self.under::<InboxBody>(&self.inbox, &inbox_of(&self.top.key), &inbox_of(key)).map_err(unwritable)?;
        let run = self.state.bound.as_ref().map(|bound| bound.run.clone());
        let mut arrival = Arrival {
            key: key.clone(),
            epoch,
            nonce: Nonce::draw(),
            end: self.ended(),
            run: run.clone(),
            records,
            inbox,
            also: None,
        };
        for _ in 0..TRIES {
            let (also, cap) = match &run {
                Some(run) => self.share(store, run, key, epoch, moved).await?,
                None => (None, None),
            };
            arrival.also = also;
            let (records, inbox) = (arrival.records.len() as u64, arrival.inbox.len() as u64);
            match store.import(arrival.clone()).await {
                Ok(_) => {
                    let (key, from) = (key.clone(), self.top.key.clone());
                    return Ok(Landed { key, from, moved, records, inbox, epoch, interrupted, run, cap });
                }
                Err(ImportError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(match run {
            Some(run) => LandError::Busy { run },
            None => StoreError::Io("the store spoke of a ledger where there is none".to_owned()).into(),
        })
    }

    fn ended(&self) -> Option<End> {
        let state = &self.state;
        if state.delivered.is_some() {
            Some(End::Delivered)
        } else if state.failed.is_some() {
            Some(End::Failed)
        } else {
            state.parked.as_ref().map(|_| End::Parked)
        }
    }

    /// What is added to the log: in a copy the ends of what is open, and always where it came from.
    fn endings(&self, key: &SessionKey, moved: bool, epoch: Epoch) -> Result<(Vec<Record>, usize), LandError> {
        let mut bodies = Vec::new();
        let mut interrupted = 0;
        if !moved {
            if let Some(candidate) = self.state.undecided() {
                let message = "The session was copied before this value was reviewed. Submit it again.".to_owned();
                bodies.push(Body::Verdict(Verdict { number: candidate.number, accepted: false, message }));
            }
            for effect in self.state.open_effects() {
                interrupted += 1;
                bodies.push(Body::Outcome(Outcome::new(
                    effect.intent.key.clone(),
                    OutcomeEnd::Interrupted,
                    copied(effect.intent.effect),
                )));
            }
        }
        let value = json!({
            "key": self.top.key, "by": self.top.by, "sealed": self.sealed, "moved": moved,
            "seq": self.end.seq, "epoch": self.epoch, "digest": self.end.digest,
        });
        bodies.push(Body::Data { name: IMPORTED.to_owned(), value });
        let (mut state, at) = (self.state.clone(), now_ms());
        let mut records = Vec::with_capacity(bodies.len());
        for body in bodies {
            let record = Record { seq: state.head.next(), epoch, at, body };
            state.check(&record).map_err(|illegal| LandError::Illegal { key: key.clone(), illegal })?;
            state.apply(&record);
            records.push(record);
        }
        Ok((records, interrupted))
    }

    /// The frames as records of `to`: the checksum of each covers its log's name.
    fn under<B: LogBody>(&self, frames: &[Frame], from: &LogKey, to: &LogKey) -> Result<Vec<Frame>, DecodeError> {
        if from == to {
            return Ok(frames.to_vec());
        }
        frames
            .iter()
            .map(|frame| {
                let record = frame.decode::<B>(from)?;
                Frame::encode(to, record.seq, record.epoch, record.at, &record.body)
            })
            .collect()
    }

    /// What the run's ledger here is told, at the place it is at now, and the cap it begins with.
    async fn share(
        &self,
        store: &dyn SessionStore,
        run: &RunId,
        key: &SessionKey,
        epoch: Epoch,
        moved: bool,
    ) -> Result<(Option<SharedFrames>, Option<Usd>), LandError> {
        let log = SharedLog::Ledger(run.clone());
        let expected = store.read(&LogKey::Shared(log.clone()), Seq(1), 0).await?.head.seq;
        let counted = self.state.spent.counted();
        let new = expected == Seq::START;
        let cap = self.top.cap.filter(|_| new).map(|_| counted);
        let mut bodies = Vec::with_capacity(2);
        if new {
            bodies.push(LedgerBody::Cap { cap });
        }
        // Beside a ledger that is here already a copy brings nothing: it is the original that spent it, and that is counted where it was.
        if counted > Usd::ZERO && (moved || new) {
            let id = format!("import:{key}:{epoch}");
            bodies.push(LedgerBody::Decision { id, session: key.clone(), amount: counted });
        }
        if bodies.is_empty() {
            return Ok((None, None));
        }
        let append = SharedAppend { log, expected, batch: SharedBatch::Ledger(bodies) };
        let frames = SharedFrames::encode(append, now_ms()).map_err(|error| match error {
            AppendError::Refused(refused) => ImportError::Refused(refused),
            other => StoreError::Io(other.to_string()).into(),
        })?;
        Ok((Some(frames), cap))
    }
}

/// What the model is told of an effect that was open when its session was copied.
const fn copied(kind: EffectKind) -> &'static str {
    match kind {
        EffectKind::Tool | EffectKind::Builtin => {
            "This call was interrupted: the session was copied while it ran. It may have partly run, and is not run again."
        }
        EffectKind::Submit => "This value was not decided: the session was copied meanwhile. Submit it again.",
        EffectKind::Request | EffectKind::Decision | EffectKind::FollowUp => "the session was copied while it was open",
    }
}

/// The frame of a line and its record, at the place that is due.
fn frame<B: LogBody, R: BufRead>(
    lines: &Lines<R>,
    log: &LogKey,
    row: &Row<'_>,
    due: Seq,
) -> Result<(Frame, Record<B>), FileError> {
    let frame = row.frame().ok_or_else(|| lines.damaged("a field of the record is not of its form"))?;
    let failed = |seq, error| lines.fault(FileFault::Record { seq, error });
    let frame = frame.map_err(|error| failed(due, error))?;
    if frame.seq != due {
        return Err(lines.damaged(format!("record {due} is due here, not {}", frame.seq)));
    }
    let record = frame.decode::<B>(log).map_err(|error| failed(frame.seq, error))?;
    Ok((frame, record))
}
