//! The store in one SQLite file keeps the promises of its file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::suite::{Both, buffered, data, key, ledger, numbers, poll, raise, session};
use agentrun_kernel::{
    AppendError, Batch, Epoch, LedgerBody, OpenError, Refused, Seq, SharedAppend, SharedBatch, SqliteStore, Store,
    StoreError, Usd, open_url,
};
use tempfile::TempDir;

fn both() -> (TempDir, Both) {
    let folder = TempDir::new().unwrap();
    let path = file(&folder);
    let reopen = Box::new(move || open(&path));
    ((folder), Both { store: reopen(), again: reopen(), reopen })
}

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("sessions.db")
}

fn open(path: &Path) -> Store {
    Arc::new(SqliteStore::open(path).unwrap())
}

fn why(path: impl AsRef<Path>) -> String {
    match SqliteStore::open(path.as_ref()).err() {
        Some(StoreError::Unusable { why, .. }) => why,
        other => panic!("{}: not refused as unusable: {other:?}", path.as_ref().display()),
    }
}

#[tokio::test]
async fn f16_a_file_removed_under_its_owner_poisons_the_store() {
    let folder = TempDir::new().unwrap();
    let store = open(&file(&folder));
    let mut writer = store.open(&key("a"), None).await.unwrap();
    writer.append(Batch::of([data(1)]), None).await.unwrap();
    for name in ["sessions.db", "sessions.db-wal", "sessions.db-shm"] {
        std::fs::remove_file(folder.path().join(name)).unwrap();
    }
    // Another process comes, finds nothing and begins at epoch 1 as the first did.
    let fresh = open(&file(&folder));
    let mut other = fresh.open(&key("a"), None).await.unwrap();
    assert_eq!(other.epoch(), Epoch(1));
    other.append(Batch::of([data(2)]), None).await.unwrap();
    assert_poisons(&store, writer).await;
    assert_eq!(numbers(&fresh, "a").await, [2]);
}

#[tokio::test]
async fn f16_a_file_moved_under_its_owner_poisons_the_store() {
    let folder = TempDir::new().unwrap();
    let store = open(&file(&folder));
    let writer = store.open(&key("a"), None).await.unwrap();
    std::fs::rename(file(&folder), folder.path().join("elsewhere.db")).unwrap();
    assert_poisons(&store, writer).await;
}

#[tokio::test]
async fn f16_a_log_file_replaced_under_its_owner_poisons_the_store() {
    let folder = TempDir::new().unwrap();
    let store = open(&file(&folder));
    let writer = store.open(&key("a"), None).await.unwrap();
    std::fs::remove_file(folder.path().join("sessions.db-wal")).unwrap();
    assert_poisons(&store, writer).await;
}

async fn assert_poisons(store: &Store, mut writer: agentrun_kernel::SessionWriter) {
    let answer = writer.append(Batch::of([data(9)]), None).await;
    assert!(matches!(answer, Err(AppendError::Unknown(StoreError::Poisoned(_)))), "{answer:?}");
    let answer = store.open(&key("b"), None).await;
    assert!(matches!(answer, Err(OpenError::Store(StoreError::Poisoned(_)))), "{answer:?}");
    let answer = store.append_at(&ledger("r"), Seq(0), raise("x")).await;
    assert!(matches!(answer, Err(AppendError::Unknown(StoreError::Poisoned(_)))), "{answer:?}");
    assert!(matches!(store.heads(None, 1).await, Err(StoreError::Poisoned(_))));
}

#[tokio::test]
async fn f16_a_rewound_epoch_is_told_apart_by_its_nonce() {
    let folder = TempDir::new().unwrap();
    let path = file(&folder);
    let store = open(&path);
    store.open(&key("a"), None).await.unwrap().append(Batch::of([data(1)]), None).await.unwrap();
    let backup = rusqlite::Connection::open(&path).unwrap();
    backup.execute_batch("CREATE TEMP TABLE kept AS SELECT * FROM head").unwrap();
    let mut old = store.open(&key("a"), None).await.unwrap();
    assert_eq!(old.epoch(), Epoch(2));
    // A backup from the first epoch is put back, and somebody takes the session from it: epoch 2 for a second time.
    backup.execute("REPLACE INTO head SELECT * FROM kept", ()).unwrap();
    let mut new = open(&path).open(&key("a"), None).await.unwrap();
    assert_eq!(new.epoch(), Epoch(2));
    let answer = old.append(Batch::of([data(8)]), None).await;
    assert!(matches!(answer, Err(AppendError::Fenced { newer: Epoch(2) })), "{answer:?}");
    new.append(Batch::of([data(2)]), None).await.unwrap();
    assert_eq!(numbers(&open(&path), "a").await, [1, 2]);
}

/// Waits until the last connection has taken its log file away with it.
async fn closed(path: &Path) {
    let wal = path.with_extension("db-wal");
    poll(|| async { (!wal.exists()).then_some(()) }).await;
}

/// The first format had no checksum over a log's head; the second had heads by the numbers of their logs.
#[tokio::test]
async fn another_format_is_refused_and_left_alone() {
    for format in [2, 4] {
        let folder = TempDir::new().unwrap();
        let path = file(&folder);
        drop(SqliteStore::open(&path).unwrap());
        closed(&path).await;
        let conn = rusqlite::Connection::open(&path).unwrap();
        conn.execute("UPDATE store SET value = ?1 WHERE name = 'format'", [format]).unwrap();
        drop(conn);
        let before = std::fs::read(&path).unwrap();
        match SqliteStore::open(&path).err() {
            Some(StoreError::Format { found, known }) => {
                assert_eq!((found, known.as_str()), (format.to_string(), "3"));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

#[test]
fn a_path_that_can_be_no_store_is_refused_with_the_reason() {
    let folder = TempDir::new().unwrap();
    assert!(why(folder.path()).contains("folder"));
    assert!(why("/proc/nowhere/sessions.db").contains("folder cannot be made"));
    std::fs::write(folder.path().join("plain"), "text").unwrap();
    assert!(why(folder.path().join("plain/sessions.db")).contains("folder"));

    let garbage = folder.path().join("garbage.db");
    std::fs::write(&garbage, vec![b'x'; 10_000]).unwrap();
    assert!(why(&garbage).contains("not an SQLite database"));
    assert_eq!(std::fs::read(&garbage).unwrap(), vec![b'x'; 10_000], "left as it was");

    let other = folder.path().join("other.db");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    assert!(why(&other).contains("another program's"));
}

#[test]
fn names_that_mean_something_to_sqlite_are_files_here() {
    let folder = TempDir::new().unwrap();
    for name in [":memory:", "file:x?mode=memory"] {
        SqliteStore::open(folder.path().join(name)).unwrap();
        assert!(folder.path().join(name).is_file(), "{name}");
    }
}

#[test]
fn folders_are_made_and_files_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("deep/er/sessions.db");
    let store = open_url(&format!("sqlite:{}", path.display())).unwrap();
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(path.clone()), 0o600);
    assert_eq!(mode(path.with_extension("db-wal")), 0o600);
    assert_eq!(mode(path.with_extension("db-shm")), 0o600);
    assert_eq!(mode(folder.path().join("deep")), 0o700);
    assert!(!store.id().is_empty());
}

#[tokio::test]
async fn what_is_damaged_is_named_and_not_skipped() {
    for (damage, at) in [
        ("UPDATE record SET frame = substr(frame, 1, length(frame) - 1) || x'ff' WHERE seq = 70", 70),
        ("DELETE FROM record WHERE seq = 130", 130),
        ("UPDATE record SET seq = 7 WHERE seq = 200", 200),
        ("UPDATE record SET s = 99 WHERE seq = 3", 3),
        ("UPDATE chunk SET ids = substr(ids, 1, 100) WHERE number = 0", 1),
        ("DELETE FROM chunk WHERE number = 0", 1),
        ("UPDATE head SET seq = seq - 1, durable = durable - 1", 199),
        ("UPDATE head SET last = 0", 200),
        ("UPDATE head SET durable = durable + 1", 200),
        ("UPDATE head SET durable = durable - 1", 200),
        ("UPDATE head SET epoch = epoch - 1", 200),
        ("UPDATE log SET moved = 'elsewhere'", 200),
        ("UPDATE log SET end = 'delivered'", 200),
        ("DELETE FROM head", 0),
        ("UPDATE log SET head = head + 1", 0),
    ] {
        let folder = TempDir::new().unwrap();
        let path = file(&folder);
        {
            let store = open(&path);
            let mut writer = store.open(&key("a"), None).await.unwrap();
            writer.append(Batch::of((1..=200).map(data)), None).await.unwrap();
        }
        closed(&path).await;
        rusqlite::Connection::open(&path).unwrap().execute_batch(damage).unwrap();
        let store = open(&path);
        let read = agentrun_kernel::read_all::<agentrun_kernel::Body>(store.as_ref(), &(&key("a")).into()).await;
        match read {
            Err(StoreError::Corrupt { log, seq, .. }) => assert_eq!((log, seq.0), ((&key("a")).into(), at), "{damage}"),
            other => panic!("{damage}: {other:?}"),
        }
        if !damage.contains("record") && !damage.contains("chunk") {
            // Nor is it written on.
            let taken = store.open(&key("a"), None).await.map(drop);
            assert!(matches!(taken, Err(OpenError::Store(StoreError::Corrupt { .. }))), "{damage}: {taken:?}");
        }
    }
}

/// What a group sets is then on few pages, however many sessions the file holds.
#[tokio::test]
async fn the_heads_of_the_sessions_taken_last_lie_side_by_side() {
    let folder = TempDir::new().unwrap();
    let store = open(&file(&folder));
    for name in ["a", "b", "c", "d", "b", "a"] {
        store.open(&key(name), None).await.unwrap().append(Batch::of([data(1)]), None).await.unwrap();
    }
    let conn = rusqlite::Connection::open(file(&folder)).unwrap();
    let mut names = conn.prepare("SELECT l.name FROM log l JOIN head h ON h.at = l.head ORDER BY h.at").unwrap();
    let names: Vec<String> = names.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(names, ["c", "d", "b", "a"]);
}

#[tokio::test]
async fn two_processes_worth_of_handles_take_a_session_from_each_other() {
    let (_folder, both) = both();
    let mut landed = Vec::new();
    let mut n = 0;
    let mut old: Option<agentrun_kernel::SessionWriter> = None;
    for round in 0..40 {
        let store = if round % 2 == 0 { &both.store } else { &both.again };
        let mut new = store.open(&key("a"), None).await.unwrap();
        n += 1;
        if let Some(mut old) = old.take() {
            let refused = old.append(Batch::of([data(1_000 + n)]), None).await;
            assert!(matches!(refused, Err(AppendError::Fenced { .. })), "{refused:?}");
        }
        new.append(Batch::of([data(n)]), None).await.unwrap();
        landed.push(n);
        old = Some(new);
    }
    assert_eq!(numbers(&both.store, "a").await, landed);
    let epochs: Vec<_> = session(&both.again, "a").await.iter().map(|record| record.epoch.0).collect();
    assert_eq!(epochs, (1..=40).collect::<Vec<_>>());
}

#[tokio::test]
async fn f18_a_buffered_batch_alone_reaches_the_file_by_itself() {
    let (folder, both) = both();
    let mut writer = both.store.open(&key("a"), None).await.unwrap();
    writer.append(buffered(data(1)), None).await.unwrap();
    let conn = rusqlite::Connection::open(file(&folder)).unwrap();
    poll(|| async {
        let rows: i64 = conn.query_row("SELECT count(*) FROM record", (), |row| row.get(0)).unwrap();
        (rows == 1).then_some(())
    })
    .await;
    assert!(session(&both.again, "a").await.is_empty(), "not synced, so not shown");
    writer.append(Batch::of([data(2)]), None).await.unwrap();
    assert_eq!(numbers(&both.again, "a").await, [1, 2]);
}

/// Rows that SQLite itself refuses, planted as a trigger: the step they are in is undone whole, its neighbours are not.
#[tokio::test]
async fn f17_a_step_the_database_refuses_half_way_leaves_nothing_and_harms_no_other() {
    let (folder, both) = both();
    let mut writer = both.store.open(&key("a"), None).await.unwrap();
    writer.append(Batch::of([data(1)]), None).await.unwrap();
    let planted = rusqlite::Connection::open(file(&folder)).unwrap();
    planted
        .execute_batch(
            "CREATE TRIGGER planted BEFORE INSERT ON record
             WHEN new.s = (SELECT s FROM log WHERE kind = 'ledger') AND new.seq = 2
             BEGIN SELECT raise(ABORT, 'planted'); END",
        )
        .unwrap();
    let mut neighbour = both.store.open(&key("b"), None).await.unwrap();
    let two = SharedBatch::Ledger(vec![
        LedgerBody::Raise { id: "x".to_owned(), cap: Usd::default() },
        LedgerBody::Raise { id: "y".to_owned(), cap: Usd::default() },
    ]);
    let also = SharedAppend { log: ledger("r"), expected: Seq(0), batch: two };
    let (refused, landed) =
        tokio::join!(writer.append(Batch::of([data(2)]), Some(also)), neighbour.append(Batch::of([data(1)]), None));
    assert!(matches!(refused, Err(AppendError::Refused(Refused::Busy(_)))), "{refused:?}");
    assert_eq!(landed.unwrap(), Seq(1));
    assert_eq!(numbers(&both.again, "a").await, [1]);
    assert_eq!(both.again.read(&ledger("r").into(), Seq(1), 10).await.unwrap().head.seq, Seq(0));
    let rows: i64 = planted.query_row("SELECT count(*) FROM record", (), |row| row.get(0)).unwrap();
    assert_eq!(rows, 2, "rows of the undone step are in the file");
    planted.execute_batch("DROP TRIGGER planted").unwrap();
    assert_eq!(writer.append(Batch::of([data(2)]), None).await.unwrap(), Seq(2));
    both.store.append_at(&ledger("r"), Seq(0), raise("x")).await.unwrap();
    assert_eq!(numbers(&both.again, "a").await, [1, 2]);
}

/// Readers come and go while another process holds the write lock.
#[tokio::test]
async fn a_writer_elsewhere_holds_up_no_reader() {
    let (folder, both) = both();
    both.store.open(&key("a"), None).await.unwrap().append(Batch::of([data(1)]), None).await.unwrap();
    let elsewhere = rusqlite::Connection::open(file(&folder)).unwrap();
    elsewhere.execute_batch("BEGIN IMMEDIATE; UPDATE head SET seq = 7, durable = 7").unwrap();
    assert_eq!(numbers(&both.again, "a").await, [1]);
    assert_eq!(both.store.heads(None, 10).await.unwrap().len(), 1);
    elsewhere.execute_batch("ROLLBACK").unwrap();
}

#[test]
fn f16_a_file_that_is_gone_or_empty_beside_its_log_is_no_new_store() {
    let folder = TempDir::new().unwrap();
    let path = file(&folder);
    let log = folder.path().join("sessions.db-wal");
    std::fs::write(&log, [7; 4096]).unwrap();
    let gone = why(&path);
    assert!(gone.contains("sessions.db-wal") && gone.contains("put the file back"), "{gone}");
    assert!(!path.exists(), "it was begun anew");
    std::fs::write(&path, "").unwrap();
    assert_eq!(why(&path), gone);
    assert_eq!(std::fs::read(&log).unwrap(), [7; 4096], "the log is what a person may still mend it from");
    std::fs::remove_file(&log).unwrap();
    drop(open(&path));
}
