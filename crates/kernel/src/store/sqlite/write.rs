//! The write side: one transaction a group, a savepoint a step. What a log is at is remembered between groups and is good for as long
//! as no other connection has committed (`PRAGMA data_version`, asked under the write lock); each head is still compared and set.

use std::collections::HashMap;

use rusqlite::{Connection, ErrorCode, FileControl, OptionalExtension as _};

use super::super::backend::{Backend, CommitError, LogState, Write, WriteError};
use super::super::disk::Identity;
use super::super::{Durability, End, Head, LogEnd, StoreError};
use super::file::Place;
use super::head::{self, RowHead, int};
use super::schema::CHUNK;
use crate::ids::{Digest, Epoch, LogKey, Nonce, Seq, SharedLog};

const INSERT: &str = "INSERT INTO record (id, s, seq, epoch, prev, frame) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// Logs remembered between groups; each costs about 1.5 KB at most.
const REMEMBERED: usize = 4096;

pub(super) struct SqliteBackend {
    conn: Connection,
    place: Place,
    wal: Option<Identity>,
    logs: HashMap<LogKey, Known>,
    /// Logs whose head row is still to be set in this group.
    dirty: Vec<LogKey>,
    /// Row of the last record of the file, while it is known.
    last_id: Option<i64>,
    durability: Durability,
    data_version: i64,
    changed_elsewhere: bool,
    /// A group has looked for other processes' commits since it was last asked about them.
    looked: bool,
}

/// A log as its rows and this group make it.
#[derive(Clone)]
struct Known {
    /// Its number; `None` until its first step is written.
    s: Option<i64>,
    /// Its row in `head`.
    at: i64,
    state: LogState,
    /// Row of its last record, 0 for none.
    last: i64,
    /// Rows of its newest records, oldest first: at least those since the last full chunk, if they were written here.
    tail: Vec<i64>,
    /// Its head row, when this group has still to set it.
    row: Option<Row>,
}

#[derive(Clone, Copy)]
struct Row {
    epoch: Epoch,
    nonce: Nonce,
    seq: Seq,
}

impl SqliteBackend {
    pub(super) fn new(conn: Connection, place: Place) -> Result<Self, StoreError> {
        let data_version = data_version(&conn).map_err(|error| place.unusable(&error.to_string()))?;
        let wal = Identity::of(&place.wal());
        Ok(Self {
            conn,
            place,
            wal,
            logs: HashMap::new(),
            dirty: Vec::new(),
            last_id: None,
            durability: Durability::Synced,
            data_version,
            changed_elsewhere: false,
            looked: false,
        })
    }

    fn forget(&mut self) {
        self.logs.clear();
        self.dirty.clear();
        self.last_id = None;
    }

    /// Forgets what it remembers if another connection has committed since.
    fn see_others(&mut self) -> rusqlite::Result<()> {
        let version = data_version(&self.conn)?;
        if version != self.data_version {
            self.data_version = version;
            self.changed_elsewhere = true;
            self.forget();
        }
        Ok(())
    }

    fn try_begin(&mut self, durability: Durability) -> rusqlite::Result<()> {
        if self.durability != durability {
            // NORMAL hands the pages to the system and leaves the sync to the next FULL commit: a buffered group survives this process.
            self.conn.execute_batch(match durability {
                Durability::Synced => "PRAGMA synchronous = FULL",
                Durability::Buffered => "PRAGMA synchronous = NORMAL",
            })?;
            self.durability = durability;
        }
        self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute(())?;
        self.see_others()?;
        self.looked = true;
        if self.logs.len() > REMEMBERED {
            self.logs.clear();
        }
        if self.last_id.is_none() {
            let mut last = self.conn.prepare_cached("SELECT coalesce(max(id), 0) FROM record")?;
            self.last_id = Some(last.query_row((), |row| row.get(0))?);
        }
        Ok(())
    }

    fn known(&mut self, log: &LogKey) -> Result<&Known, StoreError> {
        if !self.logs.contains_key(log) {
            let known = load(&self.conn, log)?;
            self.logs.insert(log.clone(), known);
        }
        self.logs.get(log).ok_or_else(|| StoreError::Io(format!("{log} was not kept")))
    }

    /// A step that is one record and nothing else, which is most of them: its one statement is undone by SQLite alone when it fails, so
    /// it needs no savepoint. `None` for every other step.
    fn insert_alone(&mut self, write: &Write<'_>) -> Option<Result<(), WriteError>> {
        let [frame] = write.frames else { return None };
        let id = self.last_id? + 1;
        let known = self.logs.get_mut(write.log)?;
        let s = known.s?;
        let (before, after) = (&known.state, &write.after);
        let same = before.end == after.end && before.moved == after.moved && before.removed == after.removed;
        if !same || write.erase || write.run.is_some() || frame.seq.0.is_multiple_of(CHUNK) {
            return None;
        }
        let row = Row { epoch: before.epoch, nonce: before.nonce, seq: before.seq };
        let written = self.conn.prepare_cached(INSERT).and_then(|mut insert| {
            insert.execute((id, s, int(frame.seq.0), int(after.epoch.0), known.last, &frame.bytes[..]))
        });
        if let Err(error) = written {
            let why = error.to_string();
            // Some errors (a full disk, memory) roll the whole transaction back by themselves.
            return Some(Err(if self.conn.is_autocommit() { WriteError::Group(why) } else { WriteError::Step(why) }));
        }
        known.last = id;
        known.tail.push(id);
        known.state = after.clone();
        known.row.get_or_insert(row);
        self.last_id = Some(id);
        self.dirty.push(write.log.clone());
        Some(Ok(()))
    }

    /// The steps of `write`, inside its savepoint. Answers what the logs are then.
    fn insert(&mut self, writes: &[Write<'_>]) -> Result<(Vec<(LogKey, Known)>, i64), Fault> {
        let mut id = self.last_id.unwrap_or_default();
        let mut done = Vec::with_capacity(writes.len());
        for write in writes {
            let mut known = self.known(write.log).map_err(Fault::Store)?.clone();
            let before = Row { epoch: known.state.epoch, nonce: known.state.nonce, seq: known.state.seq };
            let s = match known.s {
                Some(s) => {
                    if write.after.epoch != known.state.epoch {
                        known.at = to_the_end(&self.conn, s, known.at)?;
                    }
                    s
                }
                None => {
                    let (s, at) = create(&self.conn, write.log)?;
                    known.at = at;
                    s
                }
            };
            known.s = Some(s);
            if write.erase {
                erase(&self.conn, write.log, s, &mut known)?;
            }
            for frame in write.frames {
                id += 1;
                self.conn.prepare_cached(INSERT)?.execute((
                    id,
                    s,
                    int(frame.seq.0),
                    int(write.after.epoch.0),
                    known.last,
                    &frame.bytes[..],
                ))?;
                known.last = id;
                known.tail.push(id);
                if frame.seq.0.is_multiple_of(CHUNK) {
                    close_chunk(&self.conn, write.log, s, frame.seq, &mut known)?;
                }
            }
            if write.after.end != known.state.end || write.after.moved != known.state.moved {
                let end = write.after.end.map(End::as_str);
                self.conn.prepare_cached("UPDATE log SET end = ?2, moved = ?3 WHERE s = ?1")?.execute((
                    s,
                    end,
                    &write.after.moved,
                ))?;
            }
            if let Some(end) = write.after.removed.as_ref().filter(|_| known.state.removed.is_none()) {
                self.conn.prepare_cached("INSERT INTO tombstone (s, seq, digest) VALUES (?1, ?2, ?3)")?.execute((
                    s,
                    int(end.seq.0),
                    end.digest.as_str(),
                ))?;
            }
            if let Some(run) = write.run {
                self.conn.prepare_cached("UPDATE log SET run = ?2 WHERE s = ?1")?.execute((s, run.as_str()))?;
            }
            known.state = write.after.clone();
            known.row.get_or_insert(before);
            done.push((write.log.clone(), known));
        }
        Ok((done, id))
    }

    /// Sets the heads this group moved, each only if its row is what the group built on.
    fn set_heads(&mut self) -> rusqlite::Result<()> {
        let mut set = self.conn.prepare_cached(
            "UPDATE head SET epoch = ?5, nonce = ?6, seq = ?7, durable = ?8, last = ?9, sum = ?10
             WHERE at = ?1 AND epoch = ?2 AND nonce = ?3 AND seq = ?4",
        )?;
        for log in self.dirty.drain(..) {
            let Some(known) = self.logs.get_mut(&log) else { continue };
            let Some(row) = known.row.take() else { continue };
            let state = &known.state;
            let changed = set.execute((
                known.at,
                int(row.epoch.0),
                row.nonce.0,
                int(row.seq.0),
                int(state.epoch.0),
                state.nonce.0,
                int(state.seq.0),
                int(state.durable.0),
                known.last,
                head::sum(&log, state, known.last),
            ))?;
            if changed != 1 {
                return Err(rusqlite::Error::StatementChangedRows(changed));
            }
        }
        Ok(())
    }

    /// Whether the path still leads to the files this connection has open.
    fn in_place(&self) -> Result<(), String> {
        let mut moved = 0;
        let asked = self.conn.file_control(None::<&str>, FileControl::HasMoved(&mut moved));
        if asked.is_err() || moved != 0 || Identity::of(&self.place.wal()) != self.wal {
            let path = self.place.path().display();
            return Err(format!("{path} or its -wal was moved, replaced or removed while it was in use"));
        }
        Ok(())
    }
}

impl Backend for SqliteBackend {
    fn begin(&mut self, durability: Durability) -> Result<(), String> {
        self.try_begin(durability).map_err(|error| {
            self.rollback();
            match error.sqlite_error_code() {
                Some(ErrorCode::DatabaseBusy) => "another process held the store's write lock for over 10 s".to_owned(),
                _ => error.to_string(),
            }
        })
    }

    fn state(&mut self, log: &LogKey) -> Result<LogState, StoreError> {
        self.known(log).map(|known| known.state.clone())
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<(), WriteError> {
        if let [write] = writes
            && let Some(done) = self.insert_alone(write)
        {
            return done;
        }
        let begun = self.conn.prepare_cached("SAVEPOINT step").and_then(|mut begin| begin.execute(()));
        begun.map_err(|error| WriteError::Group(error.to_string()))?;
        let inserted = self.insert(writes).and_then(|done| {
            self.conn.prepare_cached("RELEASE step")?.execute(())?;
            Ok(done)
        });
        match inserted {
            Ok((done, last_id)) => {
                self.last_id = Some(last_id);
                for (log, known) in done {
                    self.dirty.push(log.clone());
                    self.logs.insert(log, known);
                }
                Ok(())
            }
            Err(fault) => {
                // Some errors (a full disk, memory) roll the whole transaction back by themselves.
                let undone =
                    !self.conn.is_autocommit() && self.conn.execute_batch("ROLLBACK TO step; RELEASE step").is_ok();
                let why = fault.to_string();
                Err(if undone { WriteError::Step(why) } else { WriteError::Group(why) })
            }
        }
    }

    fn commit(&mut self) -> Result<(), CommitError> {
        if let Err(error) = self.set_heads() {
            self.rollback();
            return Err(CommitError::Refused(format!("a head could not be set: {error}")));
        }
        let committed = self.conn.prepare_cached("COMMIT").and_then(|mut commit| commit.execute(()));
        if let Err(error) = committed {
            self.rollback();
            return Err(match error.sqlite_error_code() {
                Some(ErrorCode::DatabaseBusy | ErrorCode::ConstraintViolation) => {
                    CommitError::Refused(error.to_string())
                }
                _ => CommitError::Unknown(error.to_string()),
            });
        }
        self.in_place().map_err(CommitError::Unknown)
    }

    fn rollback(&mut self) {
        if !self.conn.is_autocommit() {
            // If even this fails, the next BEGIN fails too and says so.
            let _ = self.conn.execute_batch("ROLLBACK");
        }
        self.forget();
    }

    fn free_bytes(&self) -> Option<u64> {
        self.place.free_bytes()
    }

    fn changed_elsewhere(&mut self) -> bool {
        // It is asked after each group too, and each group has looked: another look is another read of the file.
        if !std::mem::take(&mut self.looked) {
            // Not readable: the watcher's own read will say so.
            let _ = self.see_others();
        }
        std::mem::take(&mut self.changed_elsewhere)
    }
}

/// What went wrong inside a step.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Store(StoreError),
}

pub(super) const fn kind(log: &LogKey) -> &'static str {
    match log {
        LogKey::Session(_) => "session",
        LogKey::Shared(SharedLog::Ledger(_)) => "ledger",
        LogKey::Shared(SharedLog::Inbox(_)) => "inbox",
    }
}

pub(super) fn name(log: &LogKey) -> &str {
    match log {
        LogKey::Session(key) | LogKey::Shared(SharedLog::Inbox(key)) => key.as_str(),
        LogKey::Shared(SharedLog::Ledger(run)) => run.as_str(),
    }
}

fn data_version(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached("PRAGMA data_version")?.query_row((), |row| row.get(0))
}

/// Its number and the row of its head.
fn create(conn: &Connection, log: &LogKey) -> rusqlite::Result<(i64, i64)> {
    conn.prepare_cached("INSERT INTO head (epoch, nonce, seq, durable, last, sum) VALUES (0, ?1, 0, 0, 0, ?2)")?
        .execute(([0_u8; 16], head::sum(log, &LogState::EMPTY, 0)))?;
    let at = conn.last_insert_rowid();
    conn.prepare_cached("INSERT INTO log (kind, name, head) VALUES (?1, ?2, ?3)")?.execute((
        kind(log),
        name(log),
        at,
    ))?;
    Ok((conn.last_insert_rowid(), at))
}

/// Moves the head of a log that was taken behind all others, where those of the other sessions that live now are. Answers its row.
fn to_the_end(conn: &Connection, s: i64, at: i64) -> rusqlite::Result<i64> {
    let last: i64 = conn.prepare_cached("SELECT coalesce(max(at), 0) FROM head")?.query_row((), |row| row.get(0))?;
    if last == at {
        return Ok(at);
    }
    let moved = conn.prepare_cached("UPDATE head SET at = ?2 WHERE at = ?1")?.execute((at, last + 1))?;
    if moved != 1 {
        return Err(rusqlite::Error::StatementChangedRows(moved));
    }
    conn.prepare_cached("UPDATE log SET head = ?2 WHERE s = ?1")?.execute((s, last + 1))?;
    Ok(last + 1)
}

/// A log from its rows.
fn load(conn: &Connection, log: &LogKey) -> Result<Known, StoreError> {
    let Some(row) = RowHead::find(conn, log)? else {
        return Ok(Known { s: None, at: 0, state: LogState::EMPTY, last: 0, tail: Vec::new(), row: None });
    };
    row.check(conn, log)?;
    let end = row.end(log)?;
    let removed = if end == Some(End::Removed) {
        tombstone(conn, row.s).map_err(|error| read_failed(log, row.seq(), &error))?
    } else {
        None
    };
    let Head { seq: durable, epoch } = row.head();
    let state = LogState { seq: row.seq(), durable, epoch, nonce: Nonce(row.nonce), end, moved: row.moved, removed };
    Ok(Known { s: Some(row.s), at: row.at, state, last: row.last, tail: Vec::new(), row: None })
}

pub(super) fn read_failed(log: &LogKey, seq: Seq, error: &rusqlite::Error) -> StoreError {
    let damage = matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase));
    let shape = matches!(
        error,
        rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
    );
    if damage || shape {
        return StoreError::Corrupt { log: log.clone(), seq, what: error.to_string() };
    }
    StoreError::Io(error.to_string())
}

/// What a removed session's log ended with. A digest that is none reads as none, which the caller tells as damage.
fn tombstone(conn: &Connection, s: i64) -> rusqlite::Result<Option<LogEnd>> {
    let found: Option<(i64, String)> = conn
        .prepare_cached("SELECT seq, digest FROM tombstone WHERE s = ?1")?
        .query_row([s], |row| row.try_into())
        .optional()?;
    Ok(found.and_then(|(seq, digest)| {
        Some(LogEnd { seq: Seq(u64::try_from(seq).ok()?), digest: Digest::from_stored(&digest)? })
    }))
}

/// Lets all records of a log go. Rows are found by the full chunks and then from the head back; where damage breaks that off, what is
/// behind it stays as waste that no log points to.
fn erase(conn: &Connection, log: &LogKey, s: i64, known: &mut Known) -> Result<(), Fault> {
    let mut delete = conn.prepare_cached("DELETE FROM record WHERE id = ?1 AND s = ?2")?;
    let mut chunks = conn.prepare_cached("SELECT ids FROM chunk WHERE s = ?1")?;
    let mut rows = chunks.query([s])?;
    while let Some(row) = rows.next()? {
        for id in row.get_ref(0)?.as_blob().unwrap_or_default().as_chunks::<8>().0 {
            delete.execute((i64::from_le_bytes(*id), s))?;
        }
    }
    drop(rows);
    conn.prepare_cached("DELETE FROM chunk WHERE s = ?1")?.execute([s])?;
    let (mut seq, mut id) = (known.state.seq, known.last);
    while let Ok(before) = previous(conn, log, s, seq, id) {
        delete.execute((id, s))?;
        (seq, id) = (Seq(seq.0.saturating_sub(1)), before);
    }
    known.last = 0;
    known.tail.clear();
    Ok(())
}

/// Writes the row ids of the chunk that `seq` completes.
fn close_chunk(conn: &Connection, log: &LogKey, s: i64, seq: Seq, known: &mut Known) -> Result<(), Fault> {
    let wanted = CHUNK as usize;
    if known.tail.len() < wanted {
        // Some of them were written by another process or before this log was forgotten.
        let (mut ids, mut id) = (Vec::with_capacity(wanted), known.last);
        for back in 0..CHUNK {
            ids.push(id);
            id = previous(conn, log, s, Seq(seq.0 - back), id).map_err(Fault::Store)?;
        }
        ids.reverse();
        known.tail = ids;
    }
    let ids: Vec<u8> = known.tail.iter().skip(known.tail.len() - wanted).flat_map(|id| id.to_le_bytes()).collect();
    known.tail.clear();
    conn.prepare_cached("INSERT INTO chunk (s, number, ids) VALUES (?1, ?2, ?3)")?.execute((
        s,
        int(seq.0 / CHUNK - 1),
        ids,
    ))?;
    Ok(())
}

/// Row of the record before `seq`, whose row is `id`.
pub(super) fn previous(conn: &Connection, log: &LogKey, s: i64, seq: Seq, id: i64) -> Result<i64, StoreError> {
    let found: Option<(i64, i64, i64)> = conn
        .prepare_cached("SELECT s, seq, prev FROM record WHERE id = ?1")
        .and_then(|mut record| record.query_row([id], |row| row.try_into()).optional())
        .map_err(|error| read_failed(log, seq, &error))?;
    match found {
        Some((owner, at, prev)) if owner == s && at == int(seq.0) => Ok(prev),
        Some(_) => {
            Err(StoreError::Corrupt { log: log.clone(), seq, what: "another record is in its place".to_owned() })
        }
        None => Err(StoreError::Corrupt { log: log.clone(), seq, what: "it is not there".to_owned() }),
    }
}
