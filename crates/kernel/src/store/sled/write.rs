//! The write side: a group is one sled batch, flushed and then synced by us. The directory has one owner, so what a log is at is
//! remembered here and nowhere compared.

use std::collections::HashMap;
use std::sync::Arc;

use sled::IVec;

use super::super::backend::{Backend, CommitError, LogState, Write, WriteError};
use super::super::{Durability, Head, StoreError};
use super::folder::Files;
use super::layout::{self, Line, Log, Meta, PART};
use super::read::{Ahead, Shown, Stored, stored};
use super::shield::shielded;
use crate::ids::{LogKey, RunId};

/// Logs remembered between groups; each costs about 1 KB at most.
const REMEMBERED: usize = 4096;

pub(super) struct SledBackend {
    files: Arc<Files>,
    ahead: Ahead,
    logs: HashMap<LogKey, Known>,
    group: Option<Group>,
    /// Logs made, and groups committed, since the store was.
    made: u64,
    committed: u64,
}

/// A log as it is after the last group.
#[derive(Clone)]
struct Known {
    /// `None` until its first step is written.
    log: Option<Log>,
    state: LogState,
    run: Option<RunId>,
    /// This group removes its records.
    erased: bool,
}

/// What the open group has written.
struct Group {
    durability: Durability,
    /// In order; of two for one key the later holds. `None` removes it.
    entries: Vec<(IVec, Option<IVec>)>,
    logs: HashMap<LogKey, Known>,
    made: u64,
}

impl SledBackend {
    /// Readers must see `ahead` too.
    pub(super) fn new(files: &Arc<Files>, meta: &Meta, ahead: Ahead) -> Self {
        let files = Arc::clone(files);
        Self { files, ahead, logs: HashMap::new(), group: None, made: meta.logs, committed: meta.group }
    }

    fn known(&mut self, log: &LogKey) -> Result<&Known, StoreError> {
        if let Some(known) = self.group.as_ref().and_then(|group| group.logs.get(log)) {
            return Ok(known);
        }
        if !self.logs.contains_key(log) {
            let known = load(&self.files, log)?;
            self.logs.insert(log.clone(), known);
        }
        self.logs.get(log).ok_or_else(|| StoreError::Io(format!("{log} was not kept")))
    }
}

impl SledBackend {
    /// Keeps readers at what is durable of `logs` while sled is ahead in them. Of one whose records go they see the end of it at once:
    /// half of them may be gone before the sync.
    fn hide(&self, logs: &HashMap<LogKey, Known>) {
        let mut ahead = self.ahead.change();
        for (log, known) in logs {
            if known.erased {
                ahead.insert(log.clone(), known.shown());
            } else if !ahead.contains_key(log) {
                ahead.insert(log.clone(), self.logs.get(log).and_then(Known::shown));
            }
        }
    }
}

/// A log that is not remembered is not ahead either: those stay in memory.
fn load(files: &Files, log: &LogKey) -> Result<Known, StoreError> {
    let Some(found) = stored(files, log)? else {
        return Ok(Known { log: None, state: LogState::EMPTY, run: None, erased: false });
    };
    let Shown { log: number, head: Head { seq, epoch }, run, end } = found.shown;
    let Stored { nonce, moved, removed, .. } = found;
    let state = LogState { seq, durable: seq, epoch, nonce, end, moved, removed };
    Ok(Known { log: Some(number), state, run, erased: false })
}

impl Known {
    fn shown(&self) -> Option<Shown> {
        let head = self.state.head();
        self.log.map(|log| Shown { log, head, run: self.run.clone(), end: self.state.end })
    }

    /// Whether what its name leads to is the same.
    fn same_line(&self, other: &Self) -> bool {
        let (one, two) = (&self.state, &other.state);
        self.log == other.log
            && self.run == other.run
            && one.end == two.end
            && one.moved == two.moved
            && one.removed == two.removed
    }

    fn is_ahead(&self) -> bool {
        self.state.durable != self.state.seq
    }
}

impl Group {
    fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.entries.push((key.as_ref().into(), Some(value.as_ref().into())));
    }

    /// Removes the records of `log`, those of this group too. What damage hides stays behind, and is no record of anything.
    fn erase(&mut self, files: &Files, log: Log) {
        let records = layout::record_keys(log, 0..u64::MAX);
        let within = |key: &[u8]| key >= &records.start[..] && key < &records.end[..];
        self.entries.retain(|(key, _)| !within(key));
        let mut there = files.tree.range(records.clone()).keys();
        while let Ok(Some(key)) = shielded(|| there.next().transpose()) {
            self.entries.push((key, None));
        }
    }

    fn add(&mut self, files: &Files, write: &Write<'_>, before: &Known) -> Result<(), String> {
        let log = before.log.unwrap_or_else(|| {
            self.made += 1;
            Log(self.made)
        });
        let run = write.run.or(before.run.as_ref()).cloned();
        let erased = write.erase || before.erased;
        let after = Known { log: Some(log), state: write.after.clone(), run, erased };
        if write.erase {
            self.erase(files, log);
        }
        for frame in write.frames {
            for (part, bytes) in frame.bytes.chunks(PART).enumerate() {
                let part = u16::try_from(part).map_err(|_| "a record of too many parts".to_owned())?;
                self.put(layout::record_key(log, frame.seq.0, part), bytes);
            }
        }
        if !before.same_line(&after) {
            self.put(layout::name_key(write.log), Line::new(log, after.run.clone(), &after.state).encode()?);
        }
        if (before.state.epoch, before.state.nonce) != (after.state.epoch, after.state.nonce) {
            self.put(layout::fence_key(log), layout::fence(after.state.epoch, after.state.nonce));
        }
        self.logs.insert(write.log.clone(), after);
        Ok(())
    }
}

impl Backend for SledBackend {
    fn begin(&mut self, durability: Durability) -> Result<(), String> {
        if self.logs.len() > REMEMBERED {
            self.logs.retain(|_, known| known.is_ahead());
        }
        self.group = Some(Group { durability, entries: Vec::new(), logs: HashMap::new(), made: self.made });
        Ok(())
    }

    fn state(&mut self, log: &LogKey) -> Result<LogState, StoreError> {
        self.known(log).map(|known| known.state.clone())
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<(), WriteError> {
        let mut before = Vec::with_capacity(writes.len());
        for write in writes {
            before.push(self.known(write.log).map_err(|error| WriteError::Step(error.to_string()))?.clone());
        }
        let group = self.group.as_mut().ok_or_else(|| WriteError::Group("no group was begun".to_owned()))?;
        for (write, before) in writes.iter().zip(&before) {
            // Nothing is undone here: a step that is half in the batch takes the group with it.
            group.add(&self.files, write, before).map_err(WriteError::Group)?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), CommitError> {
        let Some(mut group) = self.group.take().filter(|group| !group.logs.is_empty()) else { return Ok(()) };
        let committed = self.committed + 1;
        group.put(layout::meta_key("group"), committed.to_le_bytes());
        if group.made != self.made {
            let made = group.made.to_le_bytes();
            group.put(layout::meta_key("logs"), made);
        }
        let Group { durability, entries, logs, made } = group;
        let mut batch = sled::Batch::default();
        for (key, value) in entries {
            match value {
                Some(value) => batch.insert(key, value),
                None => batch.remove(key),
            }
        }
        self.hide(&logs);
        let tree = &self.files.tree;
        let written = shielded(|| tree.apply_batch(batch).and_then(|()| tree.flush()));
        written.map_err(|fault| CommitError::Unknown(fault.to_string()))?;
        if durability == Durability::Synced {
            // sled's flush leaves the drive's cache as it is (it calls sync_file_range), and other processes' fsync errors to itself.
            self.files.sync().map_err(CommitError::Unknown)?;
        }
        self.files.in_place().map_err(CommitError::Unknown)?;
        if durability == Durability::Synced {
            let noted = self.files.acknowledge(committed);
            noted
                .map_err(|error| CommitError::Unknown(format!("what was acknowledged could not be noted: {error}")))?;
        }
        (self.committed, self.made) = (committed, made);
        let mut ahead = self.ahead.change();
        for (log, mut known) in logs {
            known.erased = false;
            if known.is_ahead() {
                ahead.insert(log.clone(), known.shown());
            } else {
                ahead.remove(&log);
            }
            self.logs.insert(log, known);
        }
        Ok(())
    }

    fn rollback(&mut self) {
        self.group = None;
    }

    fn free_bytes(&self) -> Option<u64> {
        self.files.free_bytes()
    }

    fn changed_elsewhere(&mut self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::folder::{self, Found, Place};
    use super::*;
    use crate::ids::{Epoch, Nonce, SessionKey};

    #[test]
    fn f17_a_sync_that_fails_leaves_the_group_unknown() {
        let folder = tempfile::TempDir::new().unwrap();
        let place = Place::prepare(folder.path()).unwrap();
        let Ok(Found::Free(claim)) = folder::claim(&place) else { panic!("somebody has it") };
        let mut files = folder::open(place, &claim).unwrap();
        let meta = layout::settle(&files).unwrap();
        files.break_sync();
        let files = Arc::new(files);
        let mut backend = SledBackend::new(&files, &meta, Ahead::default());
        let log = LogKey::from(&SessionKey::new("a").unwrap());
        let after = LogState { epoch: Epoch(1), nonce: Nonce::draw(), ..LogState::EMPTY };
        for (durability, known) in [(Durability::Buffered, true), (Durability::Synced, false)] {
            backend.begin(durability).unwrap();
            backend.write(&[Write::of(&log, after.clone(), &[])]).unwrap();
            match backend.commit() {
                Ok(()) => assert!(known, "acknowledged without its sync"),
                Err(CommitError::Unknown(_)) => assert!(!known, "synced, though nobody asked"),
                Err(other) => panic!("{other:?}"),
            }
        }
        assert_eq!(files.acknowledged().unwrap(), 0);
    }
}
