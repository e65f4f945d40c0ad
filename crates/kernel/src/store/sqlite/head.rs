//! A log's head: what its rows in `log` and `head` say, with a checksum of ours over all that decides. SQLite checks no page: a flipped
//! byte in a seq would hide records that were acknowledged, and one in a name would give them to another session.

use rusqlite::{Connection, OptionalExtension as _, Row};

use super::super::backend::LogState;
use super::super::{End, Head, StoreError};
use super::write::{kind, name, read_failed};
use crate::ids::{Epoch, LogKey, Seq};

/// The columns of [`RowHead::from_row`], of `log` as `l` and `head` as `h`.
pub(super) const COLUMNS: &str = "l.s, h.epoch, h.nonce, h.seq, h.durable, h.last, l.end, l.moved, h.sum, l.head";

/// The rows as they are read.
#[derive(Clone, Debug)]
pub(super) struct RowHead {
    pub(super) s: i64,
    epoch: i64,
    pub(super) nonce: [u8; 16],
    seq: i64,
    durable: i64,
    pub(super) last: i64,
    end: Option<String>,
    pub(super) moved: Option<String>,
    sum: i64,
    /// Its row in `head`.
    pub(super) at: i64,
}

impl RowHead {
    pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            s: row.get(0)?,
            epoch: row.get(1)?,
            nonce: row.get(2)?,
            seq: row.get(3)?,
            durable: row.get(4)?,
            last: row.get(5)?,
            end: row.get(6)?,
            moved: row.get(7)?,
            sum: row.get(8)?,
            at: row.get(9)?,
        })
    }

    /// The head of `log`, which its checksum fits; `None` when nobody has made the log.
    pub(super) fn find(conn: &Connection, log: &LogKey) -> Result<Option<Self>, StoreError> {
        let found = conn
            .prepare_cached(&format!(
                "SELECT {COLUMNS} FROM log l LEFT JOIN head h ON h.at = l.head WHERE l.kind = ?1 AND l.name = ?2"
            ))
            .and_then(|mut head| head.query_row((kind(log), name(log)), Self::from_row).optional())
            .map_err(|error| read_failed(log, Seq::START, &error))?;
        found.map(|row| row.sound(log)).transpose()
    }

    /// Itself, if its checksum fits.
    pub(super) fn sound(self, log: &LogKey) -> Result<Self, StoreError> {
        let found = Numbers {
            epoch: self.epoch,
            nonce: &self.nonce,
            seq: self.seq,
            durable: self.durable,
            last: self.last,
            end: self.end.as_deref(),
            moved: self.moved.as_deref(),
        };
        if found.sum(log) == self.sum {
            return Ok(self);
        }
        Err(self.damaged(log, "the checksum of its head does not fit"))
    }

    pub(super) fn seq(&self) -> Seq {
        Seq(unsigned(self.seq))
    }

    pub(super) fn head(&self) -> Head {
        Head { seq: Seq(unsigned(self.durable)), epoch: Epoch(unsigned(self.epoch)) }
    }

    pub(super) fn end(&self, log: &LogKey) -> Result<Option<End>, StoreError> {
        let Some(end) = &self.end else { return Ok(None) };
        let known = End::from_stored(end);
        known.map(Some).ok_or_else(|| self.damaged(log, &format!("its end `{end}` is not one")))
    }

    /// Holds it against the record it points to: rows of another time fit their own checksum.
    pub(super) fn check(&self, conn: &Connection, log: &LogKey) -> Result<(), StoreError> {
        if self.seq == 0 && self.last == 0 {
            return Ok(());
        }
        let last: Option<(i64, i64, i64)> = conn
            .prepare_cached("SELECT s, seq, epoch FROM record WHERE id = ?1")
            .and_then(|mut record| record.query_row([self.last], |row| row.try_into()).optional())
            .map_err(|error| read_failed(log, self.seq(), &error))?;
        match last {
            Some((s, seq, epoch)) if s == self.s && seq == self.seq && epoch <= self.epoch => Ok(()),
            Some(_) => Err(self.damaged(log, "its head points to another record")),
            None => Err(self.damaged(log, "its head points to no record")),
        }
    }

    fn damaged(&self, log: &LogKey, what: &str) -> StoreError {
        StoreError::Corrupt { log: log.clone(), seq: self.seq(), what: what.to_owned() }
    }
}

/// What the checksum covers, besides the log's own name.
struct Numbers<'a> {
    epoch: i64,
    nonce: &'a [u8; 16],
    seq: i64,
    durable: i64,
    last: i64,
    end: Option<&'a str>,
    moved: Option<&'a str>,
}

impl Numbers<'_> {
    fn sum(&self, log: &LogKey) -> i64 {
        let mut sum = crc32c::crc32c(log.to_string().as_bytes());
        for number in [self.epoch, self.seq, self.durable, self.last] {
            sum = crc32c::crc32c_append(sum, &number.to_le_bytes());
        }
        sum = crc32c::crc32c_append(sum, self.nonce);
        for text in [self.end, self.moved] {
            // A text that is not there is none that can be.
            sum = crc32c::crc32c_append(sum, text.map_or(&[0xFF][..], str::as_bytes));
            sum = crc32c::crc32c_append(sum, &[0]);
        }
        i64::from(sum)
    }
}

/// The checksum of a head at `state` whose last record is in row `last`.
pub(super) fn sum(log: &LogKey, state: &LogState, last: i64) -> i64 {
    let numbers = Numbers {
        epoch: int(state.epoch.0),
        nonce: &state.nonce.0,
        seq: int(state.seq.0),
        durable: int(state.durable.0),
        last,
        end: state.end.map(End::as_str),
        moved: state.moved.as_deref(),
    };
    numbers.sum(log)
}

/// SQLite's integers are signed; no seq or epoch of ours comes near their end.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
