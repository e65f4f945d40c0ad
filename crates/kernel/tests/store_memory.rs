//! B47: the store in memory keeps every promise of the suite.
// A failed test is the report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod store_suite;

use std::sync::Arc;

use agentrun_kernel::MemoryStore;
use store_suite::Both;

fn both() -> ((), Both) {
    let store = MemoryStore::new().unwrap();
    let again = store.again().unwrap();
    let one_more = store.clone();
    let reopen = Box::new(move || Arc::new(one_more.again().unwrap()) as _);
    ((), Both { store: Arc::new(store), again: Arc::new(again), reopen })
}

suite!(both());
