//! Memory of sessions held open (task, drive, writer, watch, and the store's memory of them), beyond their folds: what was allocated and
//! not freed, counted. What the system says of the process is no measure, since freed memory stays the process's and is used again.
//!
//! `cargo bench -p agentrun-kernel --bench held [-- --sessions 10000]`
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout, missing_docs)] // a bench is a report
#![allow(unsafe_code)] // an allocator can be counted in no other way, and SQLite's count is a C function

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};

use agentrun_kernel::{Batch, Body, LogKey, Owned, SessionState, SessionTask, read_all};

/// The system's allocator, counted.
struct Counted;

static LIVE: AtomicI64 = AtomicI64::new(0);

/// Bytes that an allocation takes with the allocator's own (glibc: 8 more, in steps of 16, 32 at least).
fn taken(size: usize) -> i64 {
    (size + 8).next_multiple_of(16).max(32) as i64
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(taken(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(taken(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller keeps the promises of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_add(taken(size) - taken(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller keeps the promises of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

/// Bytes allocated and not freed: by Rust, and by SQLite, which has its own allocator and counts for itself.
fn live() -> (i64, i64) {
    // SAFETY: it has no preconditions.
    (LIVE.load(Ordering::Relaxed), unsafe { rusqlite::ffi::sqlite3_memory_used() })
}

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
        let (rust, sqlite) = live();
        let mut tasks = Vec::with_capacity(sessions as usize);
        let vector = live().0 - rust;
        for n in 0..sessions {
            let key = common::key(1_000_000 + n);
            let log = LogKey::from(&key);
            let state = SessionState::fold(&read_all::<Body>(&*store, &log).await.unwrap());
            let writer = store.open(&key, Some(state.head)).await.unwrap();
            let watch = store.watch(&log).await.unwrap();
            tasks.push(SessionTask::spawn(Owned { writer, state, watch, earlier: Vec::new(), events: None }));
        }
        let (rust_held, sqlite_held) = live();
        let (held, caches) = (rust_held - rust - vector, sqlite_held - sqlite);
        let before = live().0;
        let mut folds = Vec::with_capacity(sessions as usize);
        let vector = live().0 - before;
        folds.extend((0..sessions).map(|_| SessionState::fold(&records)));
        // The state itself lies in the vector, as that of a held session does in its task.
        let inline = (sessions as usize * size_of::<SessionState>()) as i64;
        let folded = live().0 - before - vector + inline;
        let each = |bytes: i64| bytes as f64 / sessions as f64 / 1024.0;
        println!(
            "{scheme:<7} {sessions} sessions held: {:.2} KB each and {:.2} KB of SQLite's own, their folds alone {:.2} KB, beyond it {:.2} KB",
            each(held),
            each(caches),
            each(folded),
            each(held + caches - folded)
        );
        drop((tasks, folds));
    }
}
