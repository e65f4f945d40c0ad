//! The backends, as the files of promises run on them.

use std::sync::Arc;

use agentrun_kernel::{MemoryStore, SledStore, SqliteStore, Store};
use tempfile::TempDir;

use crate::suite::Both;

pub(crate) fn memory() -> ((), Both) {
    let store = MemoryStore::new().unwrap();
    let again = store.again().unwrap();
    let one_more = store.clone();
    let reopen = Box::new(move || Arc::new(one_more.again().unwrap()) as _);
    ((), Both { store: Arc::new(store), again: Arc::new(again), reopen })
}

pub(crate) fn sqlite() -> (TempDir, Both) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("sessions.db");
    let reopen = Box::new(move || Arc::new(SqliteStore::open(&path).unwrap()) as Store);
    (folder, Both { store: reopen(), again: reopen(), reopen })
}

/// Sled is for one process: a second handle is the same store.
pub(crate) fn sled() -> (TempDir, Both) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("sessions");
    let reopen = Box::new(move || Arc::new(SledStore::open(&path).unwrap()) as Store);
    (folder, Both { store: reopen(), again: reopen(), reopen })
}
