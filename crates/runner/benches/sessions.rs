//! A thousand faux nodes at once: what each takes of memory while all of them are in the middle of a tool call, and how fast they go through
//! the store against their own batches appended to it bare, by as many writers at once: the session's, with the ledger's part of each.
//!
//! `cargo bench -p agentrun-runner --bench sessions [-- --sessions 1000 --rounds 5 --homes DIR]`
//!
//! `--homes` puts the private homes elsewhere than on the build's disk. A node makes and removes seven files and folders, none of which the
//! store's appends need; a disk that is slow at that (ext4 without a journal is, for five minutes after each removal) shows in the ratio.
//!
//! Memory is the process's resident set: the faux adapter's part and the runtime's threads are in it. It is taken first, in a process that has
//! run a few nodes, so that what is made once is there. Each node is two model requests, a tool call and a submit; each has a home of its own.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs)] // a bench is a report

mod common;

use std::sync::Arc;
use std::time::Instant;

use agentrun_cap::Catalog;
use agentrun_kernel::{Body, LedgerBody, LogKey, RunId, SessionKey, SharedLog, SqliteStore, Store, read_all};
use agentrun_runner::{HarnessRunner, ModelProvider, RunnerOptions, Step, ToolEnd, ToolInvocation, ToolRun};
use agentrun_testing::faux::FauxAdapter;
use async_trait::async_trait;
use tempfile::TempDir;
use tokio::sync::Semaphore;

/// Bytes of a page of `/proc/self/statm`.
const PAGE: usize = 4096;

/// Says that it was called, and waits until all were.
struct Waits {
    called: Semaphore,
    go: Semaphore,
}

#[async_trait]
impl ToolRun for Waits {
    async fn run(&self, _: ToolInvocation) -> ToolEnd {
        self.called.add_permits(1);
        self.go.acquire().await.unwrap().forget();
        ToolEnd::Ok("found".to_owned())
    }
}

struct Bench {
    store: Store,
    catalog: Arc<Catalog>,
    folder: TempDir,
    homes: TempDir,
}

impl Bench {
    /// Starts `sessions` nodes at once.
    fn start(
        &self,
        round: &str,
        sessions: usize,
        tool: &Arc<dyn ToolRun>,
    ) -> Vec<tokio::task::JoinHandle<agentrun_runner::Delivered>> {
        let homes = self.homes.path().to_owned();
        let options = RunnerOptions::new(
            self.store.clone(),
            self.catalog.clone(),
            ModelProvider::Direct,
            homes,
            self.folder.path(),
        );
        let runner = HarnessRunner::new(Arc::new(FauxAdapter::new(common::script())), options);
        let run = |n: usize| {
            let (runner, node) = (runner.clone(), common::node(common::look(tool.clone())));
            let step = Step::first(key(round, n));
            tokio::spawn(async move { runner.run_node(node, step).await.unwrap() })
        };
        (0..sessions).map(run).collect()
    }

    /// Appends to fresh sessions, all at once, what the nodes of `round` wrote to theirs and to their runs' ledgers.
    async fn bare(&self, round: &str, sessions: usize) -> f64 {
        let mut written = Vec::with_capacity(sessions);
        for n in 0..sessions {
            let records = read_all::<Body>(&*self.store, &LogKey::Session(key(round, n))).await.unwrap();
            let ledger = LogKey::from(SharedLog::Ledger(RunId::from(&key(round, n))));
            let ledger = read_all::<LedgerBody>(&*self.store, &ledger).await.unwrap();
            written.push(common::Written::new(records, ledger));
        }
        let began = Instant::now();
        let writers = written.into_iter().enumerate().map(|(n, written)| {
            let (store, key) = (self.store.clone(), key(&format!("{round}-bare"), n));
            tokio::spawn(async move { written.append_bare(&store, &key).await })
        });
        ended(writers.collect()).await;
        began.elapsed().as_secs_f64()
    }
}

fn key(round: &str, n: usize) -> SessionKey {
    SessionKey::new(format!("{round}-{n}")).unwrap()
}

async fn ended<T>(tasks: Vec<tokio::task::JoinHandle<T>>) {
    for task in tasks {
        task.await.unwrap();
    }
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * PAGE
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let (sessions, rounds) = (common::number("sessions", 1_000), common::number("rounds", 5));
    let folder = common::folder();
    let store: Store = Arc::new(SqliteStore::open(folder.path().join("bench.db")).unwrap());
    let homes = common::text("homes").map_or_else(common::folder, |at| TempDir::new_in(at).unwrap());
    let bench = Bench { store, catalog: Arc::new(Catalog::bundled().unwrap()), folder, homes };
    let looks: Arc<dyn ToolRun> = Arc::new(common::Looks);
    ended(bench.start("warm", 8, &looks)).await;

    let waits = Arc::new(Waits { called: Semaphore::new(0), go: Semaphore::new(0) });
    let before = resident();
    let running = bench.start("held", sessions, &(waits.clone() as Arc<dyn ToolRun>));
    waits.called.acquire_many(u32::try_from(sessions).unwrap()).await.unwrap().forget();
    let held = resident().saturating_sub(before);
    println!(
        "{sessions} sessions, each in its tool call: {:.1} KB resident each, {} threads",
        held as f64 / sessions as f64 / 1024.0,
        std::fs::read_dir("/proc/self/task").unwrap().count()
    );
    waits.go.add_permits(sessions);
    ended(running).await;

    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let round = format!("round{round}");
        let began = Instant::now();
        ended(bench.start(&round, sessions, &looks)).await;
        ours.push(began.elapsed().as_secs_f64());
        bare.push(bench.bare(&round, sessions).await);
    }
    let ratios: Vec<f64> = ours.iter().zip(&bare).map(|(ours, bare)| bare / ours).collect();
    let rate = |seconds: &[f64]| sessions as f64 / common::median(seconds.to_vec());
    println!("nodes          {:.0}/s", rate(&ours));
    println!("bare batches   {:.0}/s", rate(&bare));
    println!("throughput     {:.2} of the bare store's {ratios:.2?}", common::median(ratios.clone()));
}
