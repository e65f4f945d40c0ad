//! What happens to a session whole: it is removed, or one that lived elsewhere arrives. Both are one step of a group, like an append:
//! looking and writing are one atomic step, and a crash leaves all of it or nothing.

use super::backend::{Backend, LogState, Write};
use super::rules::{Step, Touched, place, put};
use super::{
    AppendError, Arrival, End, FREE_BYTES, Head, ImportError, LogEnd, Refused, RemoveError, StoreError, Tombstone,
};
use crate::ids::{Epoch, LogKey, Nonce, Seq, SessionKey, SharedLog};

/// A removal: only if the log still ends where `end` says.
#[derive(Debug)]
pub(super) struct Removal {
    pub(super) key: SessionKey,
    /// Where the caller's decision saw the log.
    pub(super) expected: Option<Seq>,
    /// Where it was just seen to end.
    pub(super) end: LogEnd,
    pub(super) nonce: Nonce,
}

/// Fences the session's writer, lets its records and its inbox go, and leaves the tombstone.
pub(super) fn remove(
    backend: &mut impl Backend,
    touched: &mut Touched,
    removal: &Removal,
) -> Step<Tombstone, RemoveError> {
    let Removal { key, expected, end, nonce } = removal;
    let (log, inbox) = (LogKey::from(key), LogKey::Shared(SharedLog::Inbox(key.clone())));
    let (now, posted) = match (backend.state(&log), backend.state(&inbox)) {
        (Ok(now), Ok(posted)) => (now, posted),
        (Err(error), _) | (_, Err(error)) => return Ok(Err(error.into())),
    };
    if now.epoch == Epoch(0) {
        return Ok(Err(RemoveError::Unknown { key: key.clone() }));
    }
    if now.end == Some(End::Removed) {
        return Ok(tombstone(key, &now).map_err(RemoveError::from));
    }
    let mut after = now.clone();
    // As at a take: what a dead owner left unsynced is what the next look must see.
    after.durable = now.seq;
    let wanted = expected.unwrap_or(end.seq);
    let moved_on = now.seq != end.seq || now.seq != wanted;
    let mut writes = Vec::with_capacity(2);
    if moved_on {
        if after != now {
            writes.push(Write::of(&log, after.clone(), &[]));
        }
    } else {
        // The fence goes up as at an open, so a writer that lives hears that it is fenced and not only that its log is gone.
        after.epoch.0 = now.epoch.0.saturating_add(1);
        after.nonce = *nonce;
        after.end = Some(End::Removed);
        after.removed = Some(end.clone());
        (after.seq, after.durable) = (Seq::START, Seq::START);
        writes.push(Write::erase(&log, after.clone()));
        if posted.seq > Seq::START {
            writes.push(Write::erase(&inbox, LogState::EMPTY));
        }
    }
    if !writes.is_empty() {
        if let Err(error) = put(backend, &writes)? {
            return Ok(Err(StoreError::Io(error).into()));
        }
        touched.push((log, after.clone()));
    }
    if moved_on {
        return Ok(Err(RemoveError::HeadChanged { expected: wanted, found: now.seq }));
    }
    Ok(tombstone(key, &after).map_err(RemoveError::from))
}

fn tombstone(key: &SessionKey, state: &LogState) -> Result<Tombstone, StoreError> {
    let end = state.removed.clone().ok_or_else(|| StoreError::Corrupt {
        log: LogKey::from(key),
        seq: state.seq,
        what: "it was removed and what it ended with is not there".to_owned(),
    })?;
    Ok(Tombstone { key: key.clone(), epoch: state.epoch, nonce: state.nonce, end })
}

/// Puts a whole session under a key this store never knew.
pub(super) fn import(backend: &mut impl Backend, touched: &mut Touched, arrival: &Arrival) -> Step<Head, ImportError> {
    let Arrival { key, epoch, nonce, end, run, records, inbox, also } = arrival;
    let (log, posts) = (LogKey::from(key), LogKey::Shared(SharedLog::Inbox(key.clone())));
    let (now, posted) = match (backend.state(&log), backend.state(&posts)) {
        (Ok(now), Ok(posted)) => (now, posted),
        (Err(error), _) | (_, Err(error)) => return Ok(Err(error.into())),
    };
    if now != LogState::EMPTY || posted != LogState::EMPTY {
        return Ok(Err(ImportError::Taken { key: key.clone(), end: now.end }));
    }
    let ledger = match also {
        Some(also) => match place(backend, also)? {
            Ok(ledger) => Some((ledger, &also.frames)),
            Err(AppendError::Conflict { log, expected, found }) => {
                return Ok(Err(ImportError::Conflict { log, expected, found }));
            }
            Err(AppendError::Refused(refused)) => return Ok(Err(ImportError::Refused(refused))),
            Err(AppendError::Unknown(error)) => return Ok(Err(error.into())),
            Err(AppendError::Fenced { .. }) => {
                return Ok(Err(StoreError::Io("a shared log spoke of a fence".to_owned()).into()));
            }
        },
        None => None,
    };
    let bytes: usize = records.iter().chain(inbox).map(|frame| frame.bytes.len()).sum();
    // Room for the records twice (a log ahead of the file, then the file), and after that no less than what outcomes need.
    let wanted = FREE_BYTES.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX).saturating_mul(2));
    if let Some(free) = backend.free_bytes().filter(|free| *free < wanted) {
        return Ok(Err(ImportError::Refused(Refused::DiskLow { free })));
    }
    let seq = Seq::START.plus(records.len() as u64);
    let after = LogState { seq, durable: seq, epoch: *epoch, nonce: *nonce, end: *end, ..LogState::EMPTY };
    let mut writes = vec![Write { run: run.as_ref(), ..Write::of(&log, after.clone(), records) }];
    let posted = Seq::START.plus(inbox.len() as u64);
    let posted = LogState { seq: posted, durable: posted, ..LogState::EMPTY };
    if !inbox.is_empty() {
        writes.push(Write::of(&posts, posted.clone(), inbox));
    }
    if let Some(((name, state), frames)) = &ledger {
        writes.push(Write::of(name, state.clone(), frames));
    }
    if let Err(error) = put(backend, &writes)? {
        return Ok(Err(ImportError::Refused(Refused::Busy(error))));
    }
    let head = after.head();
    touched.push((log, after));
    touched.push((posts, posted));
    touched.extend(ledger.map(|(ledger, _)| ledger));
    Ok(Ok(head))
}
