//! What a store says yes to, the same on every backend. Each rule looks at the log inside the group's transaction, so that looking and
//! writing are one atomic step (a check before the transaction let 265 of 970 records land after a fence, measured).

use crate::ids::{LogKey, Nonce, Seq, SessionKey, SharedLog};
use crate::record::Frame;

use super::backend::{Backend, LogState, Write, WriteError};
use super::{AppendError, Durability, End, FREE_BYTES, FencedAppend, OpenError, Refused, SharedFrames, StoreError};

/// What a step answered, and the logs it changed with their state since.
pub(super) type Step<T, E> = Result<Result<T, E>, GroupFailed>;

/// The group was rolled back under this step; nothing of it is on disk.
#[derive(Debug)]
pub(super) struct GroupFailed(pub(super) String);

/// Logs that a group changed.
pub(super) type Touched = Vec<(LogKey, LogState)>;

/// The state a take leaves: the fence it raised and where the log stands.
pub(super) fn take(
    backend: &mut impl Backend,
    touched: &mut Touched,
    key: &SessionKey,
    expected: Option<Seq>,
    nonce: Nonce,
) -> Step<LogState, OpenError> {
    let log = LogKey::from(key);
    let now = match backend.state(&log) {
        Ok(now) => now,
        Err(error) => return Ok(Err(error.into())),
    };
    match now.end {
        Some(End::Moved) => {
            let to = now.moved.unwrap_or_else(|| "another store".to_owned());
            return Ok(Err(OpenError::Moved { key: key.clone(), to }));
        }
        Some(End::Removed) => return Ok(Err(OpenError::Removed { key: key.clone() })),
        Some(End::Delivered | End::Failed | End::Parked) | None => {}
    }
    let mut after = now.clone();
    // A dead owner's buffered records become readable here: the new owner's decision must see them, and reads stop at the durable seq.
    after.durable = now.seq;
    let moved_on = expected.filter(|expected| *expected != now.seq);
    if moved_on.is_none() {
        after.epoch.0 = now.epoch.0.saturating_add(1);
        after.nonce = nonce;
    }
    if after != now {
        let write = Write::of(&log, after.clone(), &[]);
        if let Err(error) = put(backend, &[write])? {
            return Ok(Err(StoreError::Io(error).into()));
        }
        touched.push((log, after.clone()));
    }
    match moved_on {
        Some(expected) => Ok(Err(OpenError::HeadChanged { expected, found: after.seq })),
        None => Ok(Ok(after)),
    }
}

/// A session's batch and what it carries for a shared log. `group` is how durable the group around it will be.
pub(super) fn append(
    backend: &mut impl Backend,
    touched: &mut Touched,
    group: Durability,
    append: &FencedAppend,
) -> Step<Seq, AppendError> {
    let log = LogKey::from(&append.key);
    let now = match backend.state(&log) {
        Ok(now) => now,
        Err(error) => return Ok(Err(AppendError::Unknown(error))),
    };
    if (now.epoch, now.nonce) != (append.epoch, append.nonce) && !crate::planted!(NoFence) {
        return Ok(Err(AppendError::Fenced { newer: now.epoch }));
    }
    if let Some(end @ (End::Moved | End::Removed)) = now.end {
        return Ok(Err(AppendError::Refused(Refused::Ended(end))));
    }
    if now.seq != append.last {
        // Only a dropped append leaves a writer behind its log, or ahead of it: it must not guess where it stands.
        let lost = format!("{log} is at seq {}, its writer thought {}", now.seq, append.last);
        return Ok(Err(AppendError::Unknown(StoreError::Io(lost))));
    }
    let shared = match &append.also {
        Some(also) => match place(backend, also)? {
            Ok(shared) => Some(shared),
            Err(error) => return Ok(Err(error)),
        },
        None => None,
    };
    if append.begins
        && let Some(free) = backend.free_bytes().filter(|free| *free < FREE_BYTES)
    {
        return Ok(Err(AppendError::Refused(Refused::DiskLow { free })));
    }
    let mut after = grown(&now, &append.frames, group);
    after.end = end_after(now.end, append.end);
    if let Some(to) = &append.moved {
        after.moved = Some(to.clone());
    }
    let seq = after.seq;
    let session = Write { run: append.run.as_ref(), ..Write::of(&log, after.clone(), &append.frames) };
    let done = match (&shared, &append.also) {
        (Some((name, state)), Some(also)) => {
            let other = Write::of(name, state.clone(), &also.frames);
            put(backend, &[session, other])?
        }
        _ => put(backend, &[session])?,
    };
    match done {
        Ok(()) => {
            touched.push((log, after));
            touched.extend(shared);
            Ok(Ok(seq))
        }
        Err(error) => Ok(Err(AppendError::Refused(Refused::Busy(error)))),
    }
}

/// A batch for a shared log alone.
pub(super) fn append_at(
    backend: &mut impl Backend,
    touched: &mut Touched,
    append: &SharedFrames,
) -> Step<Seq, AppendError> {
    let (name, after) = match place(backend, append)? {
        Ok(shared) => shared,
        Err(error) => return Ok(Err(error)),
    };
    let seq = after.seq;
    let write = Write::of(&name, after.clone(), &append.frames);
    match put(backend, &[write])? {
        Ok(()) => {
            touched.push((name, after));
            Ok(Ok(seq))
        }
        Err(error) => Ok(Err(AppendError::Refused(Refused::Busy(error)))),
    }
}

/// The shared log's state after `append`, if it is where the caller's decision saw it.
pub(super) fn place(backend: &mut impl Backend, append: &SharedFrames) -> Step<(LogKey, LogState), AppendError> {
    let SharedFrames { log, expected, frames } = append;
    if let SharedLog::Inbox(key) = log {
        // What is posted to a session that left, after its export was written, would reach nobody.
        match backend.state(&LogKey::from(key)) {
            Ok(LogState { end: Some(end @ (End::Moved | End::Removed)), .. }) => {
                return Ok(Err(AppendError::Refused(Refused::Ended(end))));
            }
            Ok(_) => {}
            Err(error) => return Ok(Err(AppendError::Unknown(error))),
        }
    }
    let name = LogKey::Shared(log.clone());
    let now = match backend.state(&name) {
        Ok(now) => now,
        Err(error) => return Ok(Err(AppendError::Unknown(error))),
    };
    if now.seq != *expected {
        return Ok(Err(conflict(log, *expected, now.seq)));
    }
    let after = grown(&now, frames, Durability::Synced);
    Ok(Ok((name, after)))
}

fn conflict(log: &SharedLog, expected: Seq, found: Seq) -> AppendError {
    AppendError::Conflict { log: log.clone(), expected, found }
}

fn grown(now: &LogState, frames: &[Frame], group: Durability) -> LogState {
    let mut after = now.clone();
    after.seq = now.seq.plus(frames.len() as u64);
    if group == Durability::Synced {
        after.durable = after.seq;
    }
    after
}

pub(super) fn put(backend: &mut impl Backend, writes: &[Write<'_>]) -> Step<(), String> {
    match backend.write(writes) {
        Ok(()) => Ok(Ok(())),
        Err(WriteError::Step(error)) => Ok(Err(error)),
        Err(WriteError::Group(error)) => Err(GroupFailed(error)),
    }
}

/// The end a list shows after a batch. An answer stays one, whatever a follow-up does behind it; a park is taken back by any batch that
/// goes on.
fn end_after(now: Option<End>, change: Option<Option<End>>) -> Option<End> {
    match (now, change) {
        (now, None) => now,
        (_, Some(Some(end @ (End::Moved | End::Removed)))) => Some(end),
        (None | Some(End::Parked), Some(change)) => change,
        (now, Some(_)) => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_kept_and_a_park_is_not() {
        assert_eq!(end_after(None, None), None);
        assert_eq!(end_after(None, Some(Some(End::Parked))), Some(End::Parked));
        assert_eq!(end_after(Some(End::Parked), Some(None)), None);
        assert_eq!(end_after(Some(End::Parked), None), Some(End::Parked));
        assert_eq!(end_after(Some(End::Parked), Some(Some(End::Delivered))), Some(End::Delivered));
        assert_eq!(end_after(Some(End::Delivered), Some(None)), Some(End::Delivered));
        assert_eq!(end_after(Some(End::Delivered), Some(Some(End::Parked))), Some(End::Delivered));
        assert_eq!(end_after(Some(End::Delivered), Some(Some(End::Moved))), Some(End::Moved));
    }
}
