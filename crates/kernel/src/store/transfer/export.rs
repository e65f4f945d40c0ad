//! Writing a session's file, and sealing the session before it leaves. Both only read what is durable; the seal alone takes the session.

use std::io::{self, Write};

use sha2::{Digest as _, Sha256};

use super::lines::{Earlier, Last, Line, Row, Top, VERSION};
use crate::ids::{Digest, LogKey, Seq, SessionKey, SharedLog};
use crate::money::Usd;
use crate::record::{Body, FORMAT, Frame, InboxBody, LedgerBody, LogBody};
use crate::session::{Illegal, validate};
use crate::store::{AppendError, Batch, LogEnd, OpenError, PAGE, SessionStore, StoreError, read_all};

/// Times a seal is tried while others keep taking the session.
const RACES: u32 = 16;

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Records of the session in it.
    pub records: u64,
    /// Records of its inbox.
    pub inbox: u64,
    /// Where it was sealed to; `None`: it may still live, so the file lands under another key only.
    pub sealed: Option<String>,
    /// Where the log ends in the file.
    pub end: LogEnd,
    /// The file's size.
    pub bytes: u64,
}

/// Why a session was not exported. What was written of the file has no end line, so nothing takes it for one.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// It has no records here.
    #[error("there is no session `{key}` with records here; nothing to export")]
    Unknown {
        /// Which.
        key: SessionKey,
    },
    /// It was removed while it was read.
    #[error("session `{key}` was removed while it was exported")]
    Removed {
        /// Which.
        key: SessionKey,
    },
    /// The store; [`StoreError::Corrupt`] names the record that does not read back. Nothing is skipped over.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file.
    #[error("the export cannot be written: {0}")]
    Io(#[from] io::Error),
}

/// Writes the session's durable records, up to the head they have now, and its inbox. It fences nobody: an owner that lives goes on, and
/// what it writes meanwhile is not in the file. `out` is flushed; syncing it is the caller's.
///
/// # Errors
/// [`ExportError`].
pub async fn export(
    store: &dyn SessionStore,
    key: &SessionKey,
    out: &mut (dyn Write + Send),
) -> Result<Exported, ExportError> {
    let (log, inbox) = (LogKey::from(key), LogKey::Shared(SharedLog::Inbox(key.clone())));
    let head = store.read(&log, Seq(1), 0).await?.head.seq;
    if head == Seq::START {
        return Err(ExportError::Unknown { key: key.clone() });
    }
    let posted = store.read(&inbox, Seq(1), 0).await?.head.seq;
    let mut file = File { out, hash: Sha256::new(), bytes: 0 };
    file.line(&Line::Export(Top {
        version: VERSION,
        format: FORMAT,
        by: env!("CARGO_PKG_VERSION").to_owned(),
        key: key.clone(),
        records: head.0,
        inbox: posted.0,
        cap: cap(store, &log).await?,
    }))?;
    let mut earlier = Vec::new();
    let opens = |body: Body| {
        if let Body::Opened(opened) = body {
            earlier = opened.earlier;
        }
    };
    let last = file.log::<Body>(store, key, &log, head, opens).await?;
    file.log::<InboxBody>(store, key, &inbox, posted, drop).await?;
    for key in earlier {
        // One that ended before its first record left no receipts, and cannot be asked for.
        if store.read(&LogKey::from(&key), Seq(1), 0).await?.head.seq > Seq::START {
            file.line(&Line::Earlier(Earlier { key }))?;
        }
    }
    let sha256 = Digest::of_hash(file.hash.clone());
    file.line(&Line::End(Last { sha256 }))?;
    file.out.flush()?;
    let sealed = match last.as_ref().map(|frame| decoded::<Body>(&log, frame)).transpose()? {
        Some(Body::Moved { to }) => Some(to),
        _ => None,
    };
    Ok(Exported { records: head.0, inbox: posted.0, sealed, end: LogEnd::of(last.as_ref()), bytes: file.bytes })
}

fn decoded<B: LogBody>(log: &LogKey, frame: &Frame) -> Result<B, StoreError> {
    frame.decode(log).map(|record| record.body).map_err(|error| StoreError::undecoded(log, frame.seq, error))
}

/// The cap of the session's run as it stands.
async fn cap(store: &dyn SessionStore, log: &LogKey) -> Result<Option<Usd>, StoreError> {
    let first = store.read(log, Seq(1), 1).await?.records::<Body>()?.into_iter().next();
    let Some(Body::Bound(bound)) = first.map(|record| record.body) else { return Ok(None) };
    let ledger = read_all::<LedgerBody>(store, &SharedLog::Ledger(bound.run).into()).await?;
    Ok(ledger
        .iter()
        .rev()
        .find_map(|record| match &record.body {
            LedgerBody::Cap { cap } | LedgerBody::Totals { cap, .. } => Some(*cap),
            LedgerBody::Raise { cap, .. } => Some(Some(*cap)),
            _ => None,
        })
        .flatten())
}

struct File<'a> {
    out: &'a mut (dyn Write + Send),
    hash: Sha256,
    bytes: u64,
}

impl File<'_> {
    fn line(&mut self, line: &Line<'_>) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.hash.update(&bytes);
        self.bytes += bytes.len() as u64;
        self.out.write_all(&bytes)
    }

    /// The records of `log` up to `head`, a page at a time, each as it reads back. Answers the last.
    async fn log<B: LogBody>(
        &mut self,
        store: &dyn SessionStore,
        key: &SessionKey,
        log: &LogKey,
        head: Seq,
        mut each: impl FnMut(B) + Send,
    ) -> Result<Option<Frame>, ExportError> {
        let mut last = None;
        let mut next = Seq(1);
        while next <= head {
            let page = store.read(log, next, PAGE).await?;
            if page.head.seq < head {
                return Err(ExportError::Removed { key: key.clone() });
            }
            if page.frames.is_empty() {
                let what = format!("the store holds no record, its head is {}", page.head.seq);
                return Err(StoreError::Corrupt { log: log.clone(), seq: next, what }.into());
            }
            for frame in page.frames.into_iter().take_while(|frame| frame.seq <= head) {
                if frame.seq != next {
                    let what = format!("the store answered seq {} where {next} was due", frame.seq);
                    return Err(StoreError::Corrupt { log: log.clone(), seq: next, what }.into());
                }
                each(decoded::<B>(log, &frame)?);
                let row = Row::of(&frame).map_err(|error| StoreError::undecoded(log, frame.seq, error))?;
                self.line(&if matches!(log, LogKey::Session(_)) { Line::Record(row) } else { Line::Post(row) })?;
                next = next.next();
                last = Some(frame);
            }
        }
        Ok(last)
    }
}

/// A session that lives here no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Where to, as the seal's record says: the first seal's word counts.
    pub to: String,
    /// Whether it was sealed now, not before.
    pub now: bool,
}

/// Why a session was not sealed. But for [`SealError::Store`], it was not.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// It has no records here.
    #[error("there is no session `{key}` with records here; nothing was sealed")]
    Unknown {
        /// Which.
        key: SessionKey,
    },
    /// It was removed.
    #[error("session `{key}` was removed; it cannot be moved")]
    Removed {
        /// Which.
        key: SessionKey,
    },
    /// Its records break an invariant, so no store would take them.
    #[error("session `{key}` is broken and was not sealed: {illegal}")]
    Broken {
        /// Which.
        key: SessionKey,
        /// What is broken.
        illegal: Illegal,
    },
    /// Others took it each time, or the store was busy.
    #[error("session `{key}` was not sealed: {why}; try again")]
    Busy {
        /// Which.
        key: SessionKey,
        /// What was in the way.
        why: String,
    },
    /// The store. Whether it is sealed is known by asking again.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Seals a session for a move to `to`, in words for a person: takes it as [`SessionStore::open`] does, so an owner that lives is fenced
/// and not waited for, and writes `moved` as its last record. From then on nothing can be written to it or its inbox here, and its
/// export may land elsewhere under its own key. There is no way back.
///
/// A seal that was cut between the two steps has fenced the owner and sealed nothing; asked again, it goes on. Again for a sealed session:
/// answered from the records.
///
/// # Errors
/// [`SealError`].
pub async fn seal(store: &dyn SessionStore, key: &SessionKey, to: &str) -> Result<Sealed, SealError> {
    let busy = |why: String| SealError::Busy { key: key.clone(), why };
    let log = LogKey::from(key);
    if store.read(&log, Seq(1), 0).await?.head.seq == Seq::START {
        // An open would make a session that nobody knows. This one takes nothing: no log is there.
        return Err(match store.open(key, Some(Seq(u64::MAX))).await {
            Err(OpenError::Removed { .. }) => SealError::Removed { key: key.clone() },
            Err(OpenError::Store(error)) => error.into(),
            _ => SealError::Unknown { key: key.clone() },
        });
    }
    // There is no way back, so what could land nowhere is not sealed.
    validate(&read_all::<Body>(store, &log).await?)
        .map_err(|illegal| SealError::Broken { key: key.clone(), illegal })?;
    for _ in 0..RACES {
        let mut writer = match store.open(key, None).await {
            Ok(writer) => writer,
            Err(OpenError::Moved { to, .. }) => return Ok(Sealed { to, now: false }),
            Err(OpenError::Removed { .. }) => return Err(SealError::Removed { key: key.clone() }),
            Err(error @ OpenError::HeadChanged { .. }) => return Err(busy(error.to_string())),
            Err(OpenError::Store(error)) => return Err(error.into()),
        };
        match writer.append(Batch::of([Body::Moved { to: to.to_owned() }]), None).await {
            Ok(_) => return Ok(Sealed { to: to.to_owned(), now: true }),
            // Somebody took it in between, and may have sealed or removed it.
            Err(AppendError::Fenced { .. }) => {}
            Err(AppendError::Refused(refused)) => return Err(busy(refused.to_string())),
            Err(AppendError::Unknown(error)) => return Err(error.into()),
            Err(error @ AppendError::Conflict { .. }) => return Err(busy(error.to_string())),
        }
    }
    Err(busy("others kept taking it".to_owned()))
}
