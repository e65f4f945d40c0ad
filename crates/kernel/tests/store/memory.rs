//! B47: the store in memory keeps every promise of the suite.

use std::sync::Arc;

use crate::suite::Both;
use agentrun_kernel::MemoryStore;

fn both() -> ((), Both) {
    let store = MemoryStore::new().unwrap();
    let again = store.again().unwrap();
    let one_more = store.clone();
    let reopen = Box::new(move || Arc::new(one_more.again().unwrap()) as _);
    ((), Both { store: Arc::new(store), again: Arc::new(again), reopen })
}

crate::suite::suite!(both());
