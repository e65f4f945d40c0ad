//! The read side: its own connections, one short snapshot a page, so that no reader holds the write-ahead log back for long.

use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension as _};

use super::super::backend::Reads;
use super::super::core::READERS;
use super::super::{Head, Page, SessionHead, StoreError};
use super::file::Place;
use super::head::{COLUMNS, RowHead, int};
use super::schema::{self, CHUNK};
use super::write::{previous, read_failed};
use crate::ids::{LogKey, RunId, Seq, SessionKey};
use crate::record::Frame;

/// A page holds no more bytes than this, so that large records do not fill memory by the page.
const PAGE_BYTES: usize = 32 << 20;

pub(super) struct SqliteReads {
    place: Place,
    idle: Mutex<Vec<Connection>>,
}

impl SqliteReads {
    pub(super) fn new(place: Place) -> Self {
        Self { place, idle: Mutex::default() }
    }

    /// Runs `read` in one snapshot.
    fn snapshot<T>(&self, read: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let conn = idle.map_or_else(|| schema::open_reader(&self.place), Ok)?;
        let failed = |error: rusqlite::Error| StoreError::Io(error.to_string());
        let answer = {
            let snapshot = conn.unchecked_transaction().map_err(failed)?;
            let answer = read(&snapshot)?;
            snapshot.finish().map_err(failed)?;
            answer
        };
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < READERS {
            idle.push(conn);
        }
        Ok(answer)
    }
}

impl Reads for SqliteReads {
    const BLOCKING: bool = true;

    fn read(&self, log: &LogKey, from: Seq, limit: usize) -> Result<Page, StoreError> {
        self.snapshot(|conn| {
            let Some(row) = RowHead::find(conn, log)? else {
                return Ok(Page { log: log.clone(), frames: Vec::new(), head: Head::default() });
            };
            row.check(conn, log)?;
            let head = row.head();
            let first = from.0.max(1);
            let end = first.saturating_add(limit as u64).min(head.seq.0.saturating_add(1));
            let frames = frames(conn, log, &row, first..end)?;
            Ok(Page { log: log.clone(), frames, head })
        })
    }

    fn heads(&self, after: Option<&SessionKey>, limit: usize) -> Result<Vec<SessionHead>, StoreError> {
        self.snapshot(|conn| {
            let failed = |error: rusqlite::Error| StoreError::Io(error.to_string());
            let mut list = conn
                .prepare_cached(&format!(
                    "SELECT {COLUMNS}, l.name, l.run FROM log l LEFT JOIN head h ON h.at = l.head
                     WHERE l.kind = 'session' AND l.name > ?1 ORDER BY l.name LIMIT ?2"
                ))
                .map_err(failed)?;
            let after = after.map_or("", SessionKey::as_str);
            let rows = list
                .query_map((after, int(limit as u64)), |row| Ok((RowHead::from_row(row)?, row.get(10)?, row.get(11)?)))
                .map_err(failed)?;
            rows.map(|row| listed(row.map_err(failed)?)).collect()
        })
    }

    fn head(&self, log: &LogKey) -> Result<Head, StoreError> {
        self.snapshot(|conn| Ok(RowHead::find(conn, log)?.map_or_else(Head::default, |row| row.head())))
    }
}

fn listed((row, name, run): (RowHead, String, Option<String>)) -> Result<SessionHead, StoreError> {
    let unreadable = |what: String| StoreError::Io(format!("the list of sessions is damaged: {what}"));
    let key = SessionKey::new(name).map_err(|error| unreadable(error.to_string()))?;
    let run = run.map(RunId::new).transpose().map_err(|error| unreadable(error.to_string()))?;
    let log = LogKey::from(&key);
    let row = row.sound(&log)?;
    Ok(SessionHead { key, run, head: row.head(), end: row.end(&log)? })
}

/// The records of `range`, each checked to be this log's at its place.
fn frames(
    conn: &Connection,
    log: &LogKey,
    row: &RowHead,
    range: std::ops::Range<u64>,
) -> Result<Vec<Frame>, StoreError> {
    let mut frames = Vec::new();
    let mut bytes = 0;
    let mut at = range.start;
    while at < range.end {
        let number = (at - 1) / CHUNK;
        let ids = ids_from(conn, log, row, number, at)?;
        for id in ids {
            if at >= range.end {
                break;
            }
            let frame = frame(conn, log, row.s, Seq(at), id)?;
            bytes += frame.bytes.len();
            if bytes > PAGE_BYTES && !frames.is_empty() {
                return Ok(frames);
            }
            frames.push(frame);
            at += 1;
        }
    }
    Ok(frames)
}

/// Rows of the records of chunk `number` from `first` on; never none.
fn ids_from(conn: &Connection, log: &LogKey, row: &RowHead, number: u64, first: u64) -> Result<Vec<i64>, StoreError> {
    let start = number * CHUNK + 1;
    let seq = row.seq().0;
    if seq < start + CHUNK - 1 {
        // Not full yet: from the head back, at most one chunk.
        let mut id = row.last;
        let mut ids = Vec::new();
        for at in (first..=seq).rev() {
            ids.push(id);
            id = previous(conn, log, row.s, Seq(at), id)?;
        }
        ids.reverse();
        return Ok(ids);
    }
    let damaged = |what: &str| StoreError::Corrupt { log: log.clone(), seq: Seq(first), what: what.to_owned() };
    let ids: Option<Vec<u8>> = conn
        .prepare_cached("SELECT ids FROM chunk WHERE s = ?1 AND number = ?2")
        .and_then(|mut chunk| chunk.query_row((row.s, int(number)), |row| row.get(0)).optional())
        .map_err(|error| read_failed(log, Seq(first), &error))?;
    let ids = ids.ok_or_else(|| damaged("the row ids of its chunk are not there"))?;
    let (ids, rest) = ids.as_chunks::<8>();
    if ids.len() as u64 != CHUNK || !rest.is_empty() {
        return Err(damaged("the row ids of its chunk are cut"));
    }
    let skipped = usize::try_from(first - start).unwrap_or(usize::MAX);
    Ok(ids.iter().skip(skipped).map(|id| i64::from_le_bytes(*id)).collect())
}

fn frame(conn: &Connection, log: &LogKey, s: i64, seq: Seq, id: i64) -> Result<Frame, StoreError> {
    let damaged = |what: &str| StoreError::Corrupt { log: log.clone(), seq, what: what.to_owned() };
    let found = conn
        .prepare_cached("SELECT s, seq, frame FROM record WHERE id = ?1")
        .and_then(|mut record| {
            record
                .query_row([id], |row| {
                    let bytes = row.get_ref(2)?.as_blob()?;
                    Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, std::sync::Arc::<[u8]>::from(bytes)))
                })
                .optional()
        })
        .map_err(|error| read_failed(log, seq, &error))?;
    match found {
        Some((owner, at, bytes)) if owner == s && at == int(seq.0) => Ok(Frame { seq, bytes }),
        Some(_) => Err(damaged("another record is in its place")),
        None => Err(damaged("it is not there")),
    }
}
