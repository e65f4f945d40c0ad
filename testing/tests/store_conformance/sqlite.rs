//! The store in one SQLite file.

use std::path::Path;
use std::sync::Arc;

use agentrun_kernel::SqliteStore;
use agentrun_testing::suites::store::Data;
use rusqlite::Connection;
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sqlite_store_conforms() {
    let skipped = [
        "f17_a_failed_sync_is_unknown_and_poisons_the_store",
        "f17_no_fence_is_told_that_was_not_synced",
        "f17_a_power_cut_loses_nothing_acknowledged_and_halves_no_batch",
        "f18_a_synced_batch_behind_a_buffered_group_survives_a_power_cut",
        "f17_a_refusal_rests_on_a_durable_epoch",
        "f17_a_conflict_rests_on_a_durable_record",
    ];
    crate::conforms("SqliteStore", crate::schedules(3_000), &skipped, || {
        let folder = TempDir::new().unwrap();
        in_folder(folder.path()).keep(folder)
    })
    .await;
}

/// A store at `sessions.db` in `folder`, whose copies are taken and put back through SQLite, as a person would with its own tools.
pub(crate) fn in_folder(folder: &Path) -> Data {
    let (path, copy) = (folder.join("sessions.db"), folder.join("copy.db"));
    let (from, to, back) = (path.clone(), copy.clone(), path.clone());
    Data::new(move || Ok(Arc::new(SqliteStore::open(&path)?)))
        .beside()
        .leaving()
        .copies(move || text(save(&from, &to)), move || text(restore(&back, &copy)))
}

fn save(path: &Path, copy: &Path) -> rusqlite::Result<()> {
    Connection::open(path)?.execute("VACUUM INTO ?1", [copy.to_str()]).map(drop)
}

fn restore(path: &Path, copy: &Path) -> rusqlite::Result<()> {
    let conn = Connection::open(path)?;
    conn.execute("ATTACH ?1 AS copy", [copy.to_str()])?;
    let tables: Vec<String> = conn
        .prepare("SELECT name FROM copy.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")?
        .query_map((), |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let back: String = tables
        .iter()
        .map(|table| format!("DELETE FROM main.{table}; INSERT INTO main.{table} SELECT * FROM copy.{table};"))
        .collect();
    conn.execute_batch(&format!("BEGIN IMMEDIATE; {back} COMMIT"))
}

fn text<T>(done: rusqlite::Result<T>) -> Result<(), String> {
    done.map(drop).map_err(|error| error.to_string())
}
