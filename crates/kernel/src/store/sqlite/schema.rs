//! What the file is made of, and how a connection is set up.
//!
//! Records of all sessions lie in one table in the order they were written, each naming the one before it in its own log. No index and
//! no clustering by session: either scatters the writes of a group over the whole file (8 to 15 KB written a record of 600 B, and a
//! fifth of the speed, measured on a store of a million records). `chunk` holds the row ids of each full 128 records of a log, so that
//! reading a long log is not a chase from record to record.
//!
//! Heads lie in the order in which their sessions were last taken, and `log` says where: a group sets the heads of sessions that live
//! now, which were taken at about the same time, so they share pages. By number they lay on a page each among the heads of a thousand
//! older sessions, and two thirds of what a group of 16 wrote were those pages.

use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, TransactionBehavior};

use super::super::StoreError;
use super::file::Place;

/// The file format this version writes, and the only one it knows.
pub(super) const FORMAT: i64 = 3;
/// Records of a chunk.
pub(super) const CHUNK: u64 = 128;
/// Tells our files from other programs' (`PRAGMA application_id`): "AGRN".
const APPLICATION: i64 = 0x4147_524E;
/// Before it, several connections writing and checkpointing could corrupt the file (the WAL-reset bug).
const OLDEST_SQLITE: i32 = 3_051_003;

const TABLES: &str = "
    CREATE TABLE store  (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
    CREATE TABLE log    (s INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, head INTEGER NOT NULL, run TEXT, end TEXT,
                         moved TEXT, UNIQUE (kind, name));
    CREATE TABLE head   (at INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, nonce BLOB NOT NULL,
                         seq INTEGER NOT NULL, durable INTEGER NOT NULL, last INTEGER NOT NULL, sum INTEGER NOT NULL);
    CREATE TABLE record (id INTEGER PRIMARY KEY, s INTEGER NOT NULL, seq INTEGER NOT NULL, epoch INTEGER NOT NULL,
                         prev INTEGER NOT NULL, frame BLOB NOT NULL);
    CREATE TABLE chunk  (s INTEGER NOT NULL, number INTEGER NOT NULL, ids BLOB NOT NULL,
                         PRIMARY KEY (s, number)) WITHOUT ROWID;
    CREATE TABLE tombstone (s INTEGER PRIMARY KEY, seq INTEGER NOT NULL, digest TEXT NOT NULL);
";

fn new_enough(sqlite: i32) -> Result<(), String> {
    if sqlite < OLDEST_SQLITE {
        return Err(format!("this build's SQLite ({sqlite}) can corrupt it; build with 3.51.3 or newer"));
    }
    Ok(())
}

/// A connection for the committer, on a file that is surely ours, with the store's id.
pub(super) fn open_writer(place: &Place) -> Result<(Connection, String), StoreError> {
    new_enough(rusqlite::version_number()).map_err(|why| place.unusable(&why))?;
    let mut conn = connect(place)?;
    let id = ours(&mut conn, place)?;
    settle_wal(&mut conn, place)?;
    let tuned = conn.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA fullfsync = 1; PRAGMA checkpoint_fullfsync = 1; PRAGMA wal_autocheckpoint = 1000;
         PRAGMA cache_size = -65536;",
    );
    tuned.map_err(|error| place.unusable(&error.to_string()))?;
    Ok((conn, id))
}

/// A connection that cannot write.
pub(super) fn open_reader(place: &Place) -> Result<Connection, StoreError> {
    let conn = connect(place)?;
    conn.execute_batch("PRAGMA query_only = 1; PRAGMA cache_size = -8192;")
        .map_err(|error| place.unusable(&error.to_string()))?;
    Ok(conn)
}

fn connect(place: &Place) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(place.path(), flags).and_then(|mut conn| {
        conn.busy_handler(Some(waits()))?;
        conn.set_prepared_statement_cache_capacity(64);
        conn.execute_batch("PRAGMA cell_size_check = 1; PRAGMA trusted_schema = 0;")?;
        Ok(conn)
    });
    opened.map_err(|error| refused(place, &error))
}

/// SQLite's own time-out backs off to 100 ms, so that a second process can starve behind a busy one (a take took 1.7 s; 29 ms so).
fn waits() -> impl FnMut(i32) -> bool + Send + 'static {
    let mut since = Instant::now();
    move |tries| {
        if tries == 0 {
            since = Instant::now();
        }
        std::thread::sleep(pause(tries));
        since.elapsed() < Duration::from_secs(10)
    }
}

const fn pause(tries: i32) -> Duration {
    if tries < 200 { Duration::from_micros(200) } else { Duration::from_millis(1) }
}

/// Makes the tables in an empty file; in any other, sees that it is ours and of a format known here.
fn ours(conn: &mut Connection, place: &Place) -> Result<String, StoreError> {
    if let Some(id) = known(conn, place)? {
        return Ok(id);
    }
    into_wal(conn, place)?;
    let made =
        conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(|error| refused(place, &error))?;
    // Another process may have made them meanwhile.
    if let Some(id) = known(&made, place)? {
        return Ok(id);
    }
    let id = uuid::Uuid::new_v4().to_string();
    made.execute_batch(TABLES)
        .and_then(|()| made.pragma_update(None, "application_id", APPLICATION))
        .and_then(|()| made.execute("INSERT INTO store VALUES ('format', ?1), ('id', ?2)", (FORMAT, &id)))
        .and_then(|_| made.commit())
        .map_err(|error| refused(place, &error))?;
    Ok(id)
}

/// The store's id, or `None` in an empty file.
fn known(conn: &Connection, place: &Place) -> Result<Option<String>, StoreError> {
    let number =
        |sql: &str| conn.query_row(sql, (), |row| row.get::<_, i64>(0)).map_err(|error| refused(place, &error));
    let application = number("PRAGMA application_id")?;
    if application == 0 && number("SELECT count(*) FROM sqlite_schema")? == 0 {
        return Ok(None);
    }
    if application != APPLICATION {
        return Err(place.unusable("it is another program's SQLite database; give another path"));
    }
    let value = |name: &str| {
        conn.query_row("SELECT value FROM store WHERE name = ?1", [name], |row| row.get::<_, rusqlite::types::Value>(0))
            .optional()
            .map_err(|error| refused(place, &error))
    };
    match value("format")? {
        Some(rusqlite::types::Value::Integer(FORMAT)) => {}
        found => {
            let found = match found {
                Some(rusqlite::types::Value::Integer(format)) => format.to_string(),
                Some(rusqlite::types::Value::Text(format)) => format,
                _ => "none".to_owned(),
            };
            return Err(StoreError::Format { found, known: FORMAT.to_string() });
        }
    }
    names(conn, place)?;
    match value("id")? {
        Some(rusqlite::types::Value::Text(id)) if uuid::Uuid::try_parse(&id).is_ok() => Ok(Some(id)),
        _ => Err(place.unusable("it has no id, so it is damaged; restore it from a backup")),
    }
}

/// Holds the names of the logs against their index: a name that damage changed in either would read as a session nobody has begun.
fn names(conn: &Connection, place: &Place) -> Result<(), StoreError> {
    let found = conn.query_row("PRAGMA integrity_check(log)", (), |row| row.get::<_, String>(0));
    let found = found.map_err(|error| refused(place, &error))?;
    if found == "ok" {
        return Ok(());
    }
    Err(place.unusable(&format!("its list of logs is damaged ({found}); restore it from a backup")))
}

/// Turning to the write-ahead log takes the file alone and does not wait by the busy handler.
fn into_wal(conn: &Connection, place: &Place) -> Result<(), StoreError> {
    let mut wait = waits();
    let mut tries = 0;
    loop {
        let mode = conn.query_row("PRAGMA journal_mode = WAL", (), |row| row.get::<_, String>(0));
        match mode {
            Ok(mode) if mode.eq_ignore_ascii_case("wal") => return Ok(()),
            Ok(mode) => {
                return Err(place.unusable(&format!("its file system allows no write-ahead log (got `{mode}`)")));
            }
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && wait(tries) => tries += 1,
            Err(error) => return Err(refused(place, &error)),
        }
    }
}

/// Syncs what a dead owner left in the write-ahead log, unless another process is in the file. A failed sync marks pages clean, so what
/// reads back well may still not be on the disk: it is synced here or the store is refused.
fn settle_wal(conn: &mut Connection, place: &Place) -> Result<(), StoreError> {
    let settle = |conn: &mut Connection| {
        into_wal(conn, place)?;
        conn.busy_handler(None::<fn(i32) -> bool>).map_err(|error| refused(place, &error))?;
        let busy = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get::<_, i64>(0));
        conn.busy_handler(Some(waits())).map_err(|error| refused(place, &error))?;
        Ok(busy)
    };
    match settle(conn)? {
        Ok(_) => Ok(()),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(()),
        Err(error) => Err(place.unusable(&format!("what is in its write-ahead log cannot be synced: {error}"))),
    }
}

fn refused(place: &Place, error: &rusqlite::Error) -> StoreError {
    let why = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => "it is not an SQLite database; give another path".to_owned(),
        Some(ErrorCode::DatabaseCorrupt) => format!("it is damaged ({error}); restore it from a backup"),
        Some(ErrorCode::DatabaseBusy) => "another process held it for over 10 s; try again".to_owned(),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            format!("it cannot be written ({error}); see to its rights and its folder's")
        }
        _ => error.to_string(),
    };
    place.unusable(&why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f16_a_sqlite_that_can_corrupt_the_file_is_refused() {
        assert!(new_enough(3_051_002).unwrap_err().contains("3.51.3"));
        new_enough(3_051_003).unwrap();
        new_enough(rusqlite::version_number()).unwrap();
    }

    #[test]
    fn f02_a_second_process_is_not_starved_by_a_growing_wait() {
        assert_eq!(pause(0), Duration::from_micros(200));
        assert_eq!(pause(199), Duration::from_micros(200));
        assert_eq!(pause(i32::MAX), Duration::from_millis(1));
    }
}
