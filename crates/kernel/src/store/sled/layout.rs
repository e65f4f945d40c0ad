//! Keys and values, all in sled's default tree. Integers in keys are big-endian, so that keys sort as their numbers do.
//!
//! ```text
//!  m NAME                     about the store: format, id, logs (how many were made), group (how many were committed)
//!  n KIND NAME                a log by its name          → its number, run, end, where it moved
//!  h LOG u64                  its fence                  → epoch u64 | nonce 16
//!  r LOG u64 SEQ u64 PART u16 a record's frame, in parts → bytes
//! ```
//!
//! There is no head row: a log's last record is its last key. A part holds 4 KiB, so that no leaf (at most 17 entries) reaches the
//! 128 KiB above which sled puts values in files it does not sync.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::super::backend::LogState;
use super::super::{End, LogEnd, StoreError};
use super::folder::Files;
use super::shield::{Fault, shielded};
use crate::ids::{Digest, Epoch, LogKey, Nonce, RunId, Seq, SharedLog};

/// The format this version writes, and the only one it knows.
const FORMAT: u64 = 1;
/// Bytes of a part.
pub(super) const PART: usize = 4096;

/// A log's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Log(pub(super) u64);

/// What a log's name leads to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) log: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) moved: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    removed: Option<(Seq, Digest)>,
}

/// About the store as a whole.
pub(super) struct Meta {
    pub(super) id: String,
    pub(super) logs: u64,
    pub(super) group: u64,
}

impl Line {
    pub(super) fn new(log: Log, run: Option<RunId>, state: &LogState) -> Self {
        let LogState { end, moved, removed, .. } = state.clone();
        let removed = removed.map(|LogEnd { seq, digest }| (seq, digest));
        Self { log: log.0, run, end: end.map(|end| end.as_str().to_owned()), moved, removed }
    }

    pub(super) fn removed(&self) -> Option<LogEnd> {
        self.removed.clone().map(|(seq, digest)| LogEnd { seq, digest })
    }

    pub(super) fn end(&self, log: &LogKey) -> Result<Option<End>, StoreError> {
        let Some(end) = &self.end else { return Ok(None) };
        let known =
            End::from_stored(end).ok_or_else(|| damaged(log, Seq::START, &format!("its end `{end}` is not one")));
        known.map(Some)
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, String> {
        serde_json::to_vec(self).map_err(|error| error.to_string())
    }

    pub(super) fn decode(log: &LogKey, bytes: &[u8]) -> Result<Self, StoreError> {
        serde_json::from_slice(bytes).map_err(|error| damaged(log, Seq::START, &format!("its line: {error}")))
    }
}

pub(super) fn meta_key(name: &str) -> Vec<u8> {
    [b"m", name.as_bytes()].concat()
}

/// The first byte after `n`: sessions are listed by themselves.
pub(super) const SESSION: u8 = b's';

pub(super) fn name_key(log: &LogKey) -> Vec<u8> {
    let (kind, name) = match log {
        LogKey::Session(key) => (SESSION, key.as_str()),
        LogKey::Shared(SharedLog::Ledger(run)) => (b'l', run.as_str()),
        LogKey::Shared(SharedLog::Inbox(key)) => (b'i', key.as_str()),
    };
    [&[b'n', kind], name.as_bytes()].concat()
}

pub(super) fn fence_key(log: Log) -> [u8; 9] {
    let mut key = [b'h'; 9];
    key[1..].copy_from_slice(&log.0.to_be_bytes());
    key
}

pub(super) fn fence(epoch: Epoch, nonce: Nonce) -> [u8; 24] {
    let mut value = [0; 24];
    value[..8].copy_from_slice(&epoch.0.to_le_bytes());
    value[8..].copy_from_slice(&nonce.0);
    value
}

pub(super) fn fence_of(log: &LogKey, bytes: &[u8]) -> Result<(Epoch, Nonce), StoreError> {
    match bytes.split_first_chunk::<8>() {
        Some((epoch, nonce)) => match nonce.try_into() {
            Ok(nonce) => Ok((Epoch(u64::from_le_bytes(*epoch)), Nonce(nonce))),
            Err(_) => Err(damaged(log, Seq::START, "its fence is cut")),
        },
        None => Err(damaged(log, Seq::START, "its fence is cut")),
    }
}

pub(super) fn record_key(log: Log, seq: u64, part: u16) -> [u8; 19] {
    let mut key = [b'r'; 19];
    key[1..9].copy_from_slice(&log.0.to_be_bytes());
    key[9..17].copy_from_slice(&seq.to_be_bytes());
    key[17..].copy_from_slice(&part.to_be_bytes());
    key
}

/// Keys of the records of `seqs`.
pub(super) fn record_keys(log: Log, seqs: Range<u64>) -> Range<[u8; 19]> {
    record_key(log, seqs.start, 0)..record_key(log, seqs.end, 0)
}

/// The seq and part a record's key names.
pub(super) fn place_of(log: &LogKey, key: &[u8]) -> Result<(Seq, u16), StoreError> {
    let place =
        key.get(9..17).and_then(|seq| seq.try_into().ok()).zip(key.get(17..).and_then(|part| part.try_into().ok()));
    match place {
        Some((seq, part)) => Ok((Seq(u64::from_be_bytes(seq)), u16::from_be_bytes(part))),
        None => Err(damaged(log, Seq::START, "one of its keys is cut")),
    }
}

pub(super) fn damaged(log: &LogKey, seq: Seq, what: &str) -> StoreError {
    StoreError::Corrupt { log: log.clone(), seq, what: what.to_owned() }
}

pub(super) fn read_failed(log: &LogKey, seq: Seq, fault: &Fault) -> StoreError {
    match fault {
        Fault::Sled(sled::Error::Corruption { .. }) | Fault::Panicked(_) => damaged(log, seq, &fault.to_string()),
        Fault::Sled(error) => StoreError::Io(error.to_string()),
    }
}

/// What the store says of itself; in an empty one it is written first.
pub(super) fn settle(files: &Files) -> Result<Meta, StoreError> {
    let failed = |fault: Fault| files.unusable(&format!("it cannot be read: {fault}"));
    let value = |name: &str| shielded(|| files.tree.get(meta_key(name))).map_err(failed);
    let Some(format) = value("format")? else {
        let others = files.tree.tree_names().len() > 1;
        if others || shielded(|| files.tree.iter().next().transpose()).map_err(failed)?.is_some() {
            return Err(files.unusable("it is another program's sled database; give another path"));
        }
        if files.acknowledged()? > 0 {
            return Err(lost(files, 0));
        }
        return make(files);
    };
    let number = |name: &str, bytes: &[u8]| match bytes.try_into() {
        Ok(bytes) => Ok(u64::from_le_bytes(bytes)),
        Err(_) => {
            Err(files.unusable(&format!("its {name} is not a number, so it is damaged; restore it from a backup")))
        }
    };
    let format = number("format", &format)?;
    if format != FORMAT {
        return Err(StoreError::Format { found: format.to_string(), known: FORMAT.to_string() });
    }
    let counted = |name: &str| match value(name)? {
        Some(bytes) => number(name, &bytes),
        None => Ok(0),
    };
    let meta = Meta {
        id: value("id")?
            .and_then(|id| String::from_utf8(id.to_vec()).ok())
            .ok_or_else(|| files.unusable("it has no id, so it is damaged; restore it from a backup"))?,
        logs: counted("logs")?,
        group: counted("group")?,
    };
    if meta.group < files.acknowledged()? {
        return Err(lost(files, meta.group));
    }
    Ok(meta)
}

fn lost(files: &Files, found: u64) -> StoreError {
    files.unusable(&format!(
        "its log is damaged: it ends after {found} groups of records, and more were acknowledged. Restore the folder from a backup; to go \
         on without the lost records, remove the file `acknowledged` in it"
    ))
}

fn make(files: &Files) -> Result<Meta, StoreError> {
    let meta = Meta { id: uuid::Uuid::new_v4().to_string(), logs: 0, group: 0 };
    let mut batch = sled::Batch::default();
    batch.insert(meta_key("format"), &FORMAT.to_le_bytes());
    batch.insert(meta_key("id"), meta.id.as_bytes());
    let made = shielded(|| files.tree.apply_batch(batch).and_then(|()| files.tree.flush()));
    made.map_err(|fault| files.unusable(&format!("it cannot be written: {fault}")))?;
    files.sync().map_err(|error| files.unusable(&error))?;
    Ok(meta)
}
