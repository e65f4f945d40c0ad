//! The read side. What sled shows may be ahead of what is durable (a group is applied, then synced), so logs that a group is ahead in
//! are shown here as they were before it.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::super::backend::Reads;
use super::super::{End, Head, LogEnd, Page, SessionHead, StoreError};
use super::folder::Files;
use super::layout::{self, Line, Log, SESSION, damaged, read_failed};
use super::shield::shielded;
use crate::ids::{Epoch, LogKey, Nonce, RunId, Seq, SessionKey};
use crate::record::Frame;

/// A page holds no more bytes than this, so that large records do not fill memory by the page.
const PAGE_BYTES: usize = 32 << 20;

/// A log as readers see it.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) log: Log,
    pub(super) head: Head,
    pub(super) run: Option<RunId>,
    pub(super) end: Option<End>,
}

/// Logs that sled is ahead in, as readers see them; `None` for one that is not there yet. A reader looks here and at sled under one
/// read lock, which it holds for a look-up: no record is read and no disk is synced under it.
#[derive(Clone, Default)]
pub(super) struct Ahead(Arc<RwLock<HashMap<LogKey, Option<Shown>>>>);

impl Ahead {
    pub(super) fn look(&self) -> RwLockReadGuard<'_, HashMap<LogKey, Option<Shown>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self) -> RwLockWriteGuard<'_, HashMap<LogKey, Option<Shown>>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct SledReads {
    files: Arc<Files>,
    ahead: Ahead,
}

impl SledReads {
    pub(super) fn new(files: &Arc<Files>) -> Self {
        Self { files: Arc::clone(files), ahead: Ahead::default() }
    }

    pub(super) fn ahead(&self) -> Ahead {
        self.ahead.clone()
    }

    fn shown(&self, log: &LogKey) -> Result<Option<Shown>, StoreError> {
        let ahead = self.ahead.look();
        match ahead.get(log) {
            Some(shown) => Ok(shown.clone()),
            None => stored(&self.files, log).map(|found| found.map(|found| found.shown)),
        }
    }
}

impl Reads for SledReads {
    const BLOCKING: bool = true;

    fn read(&self, log: &LogKey, from: Seq, limit: usize) -> Result<Page, StoreError> {
        let mut shown = self.shown(log)?;
        loop {
            let Some(Shown { log: number, head, .. }) = shown else {
                return Ok(Page { log: log.clone(), frames: Vec::new(), head: Head::default() });
            };
            let first = from.0.max(1);
            let end = first.saturating_add(limit as u64).min(head.seq.0.saturating_add(1));
            match frames(&self.files, log, number, first, end) {
                Ok(frames) => return Ok(Page { log: log.clone(), frames, head }),
                Err(error) => {
                    // Its records may be going under this read.
                    shown = self.shown(log)?;
                    if shown.as_ref().is_none_or(|now| now.head.seq >= head.seq) {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn heads(&self, after: Option<&SessionKey>, limit: usize) -> Result<Vec<SessionHead>, StoreError> {
        let first = after.map_or_else(|| vec![b'n', SESSION], |key| layout::name_key(&LogKey::from(key)));
        let first = if after.is_some() { Bound::Excluded(first) } else { Bound::Included(first) };
        let mut names = self.files.tree.range((first, Bound::Excluded(vec![b'n', SESSION + 1])));
        let mut heads = Vec::new();
        while heads.len() < limit {
            let next = shielded(|| names.next().transpose());
            let next = next.map_err(|fault| StoreError::Io(format!("the list of sessions is damaged: {fault}")))?;
            let Some((name, _)) = next else { break };
            let name = name
                .get(2..)
                .and_then(|name| std::str::from_utf8(name).ok())
                .and_then(|name| SessionKey::new(name).ok());
            let key =
                name.ok_or_else(|| StoreError::Io("the list of sessions is damaged: a name is no key".to_owned()))?;
            if let Some(Shown { head, run, end, .. }) = self.shown(&LogKey::from(&key))? {
                heads.push(SessionHead { key, run, head, end });
            }
        }
        Ok(heads)
    }

    fn head(&self, log: &LogKey) -> Result<Head, StoreError> {
        Ok(self.shown(log)?.map_or_else(Head::default, |shown| shown.head))
    }
}

/// A log as sled has it.
pub(super) struct Stored {
    pub(super) shown: Shown,
    pub(super) nonce: Nonce,
    pub(super) moved: Option<String>,
    pub(super) removed: Option<LogEnd>,
}

/// `None` for a log nobody has made. All of it is taken for durable: whoever asks knows that no group is ahead in it.
pub(super) fn stored(files: &Files, log: &LogKey) -> Result<Option<Stored>, StoreError> {
    let failed = |fault| read_failed(log, Seq::START, &fault);
    let Some(line) = shielded(|| files.tree.get(layout::name_key(log))).map_err(failed)? else { return Ok(None) };
    let line = Line::decode(log, &line)?;
    let end = line.end(log)?;
    let number = Log(line.log);
    let fence = shielded(|| files.tree.get(layout::fence_key(number))).map_err(failed)?;
    let (epoch, nonce) = match fence {
        Some(fence) => layout::fence_of(log, &fence)?,
        None => (Epoch(0), Nonce([0; 16])),
    };
    let last = shielded(|| files.tree.range(layout::record_keys(number, 0..u64::MAX)).next_back().transpose());
    let seq = match last.map_err(failed)? {
        Some((key, _)) => layout::place_of(log, &key)?.0,
        None => Seq::START,
    };
    let removed = line.removed();
    let shown = Shown { log: number, head: Head { seq, epoch }, run: line.run, end };
    Ok(Some(Stored { shown, nonce, moved: line.moved, removed }))
}

/// The records from `first` up to `end`, dense, or the first place where they are not.
fn frames(files: &Files, log: &LogKey, number: Log, first: u64, end: u64) -> Result<Vec<Frame>, StoreError> {
    let mut frames = Vec::new();
    if first >= end {
        return Ok(frames);
    }
    let mut parts = files.tree.range(layout::record_keys(number, first..end));
    let mut bytes = 0;
    let mut at = Seq(first);
    let mut frame: Vec<u8> = Vec::new();
    let mut next_part = 0;
    loop {
        let part = shielded(|| parts.next().transpose()).map_err(|fault| read_failed(log, at, &fault))?;
        let place = part.as_ref().map(|(key, _)| layout::place_of(log, key)).transpose()?;
        if next_part > 0 && place.is_none_or(|(seq, _)| seq != at) {
            bytes += frame.len();
            if bytes > PAGE_BYTES && !frames.is_empty() {
                return Ok(frames);
            }
            frames.push(Frame { seq: at, bytes: Arc::from(std::mem::take(&mut frame)) });
            at = at.next();
            next_part = 0;
        }
        match (part, place) {
            (Some((_, value)), Some(place)) if place == (at, next_part) => {
                frame.extend_from_slice(&value);
                next_part += 1;
            }
            (Some(_), _) => return Err(damaged(log, at, "it, or a part of it, is not there")),
            (None, _) if at.0 < end => return Err(damaged(log, at, "it is not there")),
            (None, _) => return Ok(frames),
        }
    }
}
