//! Opening a store of a million records and resuming a session of 10,000 that are scattered among them: open the store, read the session,
//! fold it, take it. Warm, and with the store's files out of the page cache.
//!
//! `cargo bench -p agentrun-kernel --bench resume [-- --stores sqlite,sled]`
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout, missing_docs)] // a bench is a report

mod common;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentrun_kernel::{Batch, Body, LogKey, SessionKey, SessionState, Store, read_all};
use rustix::fs::{Advice, fadvise};

const LONG: u64 = 10_000;

fn long() -> SessionKey {
    SessionKey::new("long").unwrap()
}

/// One record at a time, between those of a hundred writers.
async fn write_long(store: Store) {
    let mut writer = store.open(&long(), None).await.unwrap();
    writer.append(Batch::of(common::began()), None).await.unwrap();
    for n in 0..(LONG - 2) / 2 {
        writer.append(Batch::of([common::intent(n)]), None).await.unwrap();
        writer.append(Batch::of([Body::Outcome(common::outcome(n))]), None).await.unwrap();
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// Only clean pages go, so the files are synced first. No store is open: SQLite's locks are not disturbed.
fn drop_cached(folder: &Path) {
    for path in files(folder) {
        let file = File::open(path).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
}

async fn resume(scheme: &str, folder: &tempfile::TempDir) -> (Duration, Duration) {
    let began = Instant::now();
    let store = common::open(scheme, folder);
    let opened = began.elapsed();
    let records = read_all::<Body>(&*store, &LogKey::from(&long())).await.unwrap();
    let state = SessionState::fold(&records);
    let writer = store.open(&long(), Some(state.head)).await.unwrap();
    let took = began.elapsed();
    assert_eq!(writer.last().0, LONG);
    (opened, took)
}

/// Until the committer's thread has closed the files.
async fn closed() {
    let open = || {
        let mut links =
            std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|link| link.ok()?.path().read_link().ok());
        links.any(|path| path.starts_with(env!("CARGO_TARGET_TMPDIR")))
    };
    while open() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let (rounds, records) = (common::number("rounds", 9), common::number("records", 1_000_000));
    for scheme in common::option::<String>("stores", "sqlite,sled") {
        let folder = common::folder();
        let store = common::open(&scheme, &folder);
        let work = async {
            let long = tokio::spawn(write_long(Arc::clone(&store)));
            common::fill(&store, records - LONG, 25).await;
            long.await.unwrap();
        };
        common::timed(&format!("{scheme}: filled with {records} records"), work).await;
        drop(store);
        closed().await;
        for cold in [false, true] {
            let (mut opens, mut all) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                if cold {
                    drop_cached(folder.path());
                }
                let (opened, took) = resume(&scheme, &folder).await;
                opens.push(opened.as_secs_f64() * 1e3);
                all.push(took.as_secs_f64() * 1e3);
                closed().await;
            }
            let name = if cold { "page cache dropped" } else { "warm" };
            let each = all.iter().map(|took| format!("{took:.0}")).collect::<Vec<_>>().join(" ");
            println!(
                "{scheme:<7} {name:<18}  open {:>6.1} ms   open and resume {:>6.1} ms [{each}]",
                common::median(&opens),
                common::median(&all)
            );
        }
    }
}
