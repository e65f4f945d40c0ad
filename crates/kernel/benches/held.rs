//! Memory of sessions held open (task, drive, writer, watch, and the store's memory of them), beyond their folds.
//!
//! `cargo bench -p agentrun-kernel --bench held [-- --sessions 10000]`
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout, missing_docs)] // a bench is a report

mod common;

use agentrun_kernel::{Batch, Body, LogKey, Owned, SessionState, SessionTask, read_all};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let sessions = common::number("sessions", 10_000);
    for scheme in common::option::<String>("stores", "sqlite,sled") {
        let folder = common::folder();
        let store = common::open(&scheme, &folder);
        // The store's own caches grow to their bounds with the first sessions, and are no session's.
        common::fill(&store, common::number("records", 400_000), 250).await;
        let readers: Vec<_> = (0..common::SESSIONS)
            .map(|n| {
                let store = store.clone();
                tokio::spawn(
                    async move { read_all::<Body>(&*store, &LogKey::from(&common::key(n))).await.unwrap().len() },
                )
            })
            .collect();
        for reader in readers {
            assert!(reader.await.unwrap() > 0);
        }
        let mut writers = Vec::new();
        for n in 0..sessions {
            let key = common::key(1_000_000 + n);
            let mut writer = store.open(&key, None).await.unwrap();
            writer.append(Batch::of(common::began()), None).await.unwrap();
            writers.push(writer);
        }
        let key = LogKey::from(&common::key(1_000_000));
        let records = read_all::<Body>(&*store, &key).await.unwrap();
        drop(writers);
        let before = common::resident();
        let mut tasks = Vec::new();
        for n in 0..sessions {
            let key = common::key(1_000_000 + n);
            let log = LogKey::from(&key);
            let state = SessionState::fold(&read_all::<Body>(&*store, &log).await.unwrap());
            let writer = store.open(&key, Some(state.head)).await.unwrap();
            let watch = store.watch(&log).await.unwrap();
            tasks.push(SessionTask::spawn(Owned { writer, state, watch, earlier: Vec::new(), events: None }));
        }
        let held = common::resident() - before;
        // Nothing was freed since, so this memory is new too.
        let before = common::resident();
        let folds: Vec<_> = (0..sessions).map(|_| SessionState::fold(&records)).collect();
        let folded = common::resident() - before;
        let each = |bytes: u64| bytes as f64 / sessions as f64 / 1024.0;
        println!(
            "{scheme:<7} {sessions} sessions held: {:.1} KB each, their folds alone {:.1} KB, beyond it {:.1} KB",
            each(held),
            each(folded),
            each(held.saturating_sub(folded))
        );
        drop((tasks, folds));
    }
}
