//! What the runner adds to the disk: a faux node on SQLite, start to end, against the bare synced appends it needs, in turn in one run.
//!
//! `cargo bench -p agentrun-runner --bench faux_node` prints the two medians and their ratio. The bare side replays the node's own records
//! in the same batches through the same store, so what is left is fold, checks, tasks, files and folders.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs)] // a bench is a report: it may stop, and it prints

mod common;

use std::sync::Arc;
use std::time::Instant;

use agentrun_cap::Catalog;
use agentrun_kernel::{Body, LedgerBody, LogKey, RunId, SessionKey, SharedLog, SqliteStore, Store, read_all};
use agentrun_runner::{HarnessRunner, ModelProvider, RunnerOptions, Step};
use agentrun_testing::faux::FauxAdapter;

use common::{Looks, Written, look, median, node, script};

const ROUNDS: usize = 60;

#[tokio::main]
async fn main() {
    let folder = common::folder();
    let store: Store = Arc::new(SqliteStore::open(folder.path().join("bench.db")).unwrap());
    let catalog = Arc::new(Catalog::bundled().unwrap());
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let key = SessionKey::new(format!("node-{round}")).unwrap();
        let homes = folder.path().join("homes");
        let options = RunnerOptions::new(store.clone(), catalog.clone(), ModelProvider::Direct, homes, folder.path());
        let runner = HarnessRunner::new(Arc::new(FauxAdapter::new(script())), options);
        let began = Instant::now();
        runner.run_node(node(look(Arc::new(Looks))), Step::first(key.clone())).await.unwrap();
        ours.push(began.elapsed().as_secs_f64() * 1e3);

        let records = read_all::<Body>(&*store, &LogKey::Session(key.clone())).await.unwrap();
        let ledger = LogKey::from(SharedLog::Ledger(RunId::from(&key)));
        let written = Written::new(records, read_all::<LedgerBody>(&*store, &ledger).await.unwrap());
        let copy = SessionKey::new(format!("bare-{round}")).unwrap();
        let began = Instant::now();
        written.append_bare(&store, &copy).await;
        bare.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let (ours, bare) = (median(ours), median(bare));
    println!("faux node on SQLite  p50 {ours:.2} ms");
    println!("its bare appends     p50 {bare:.2} ms");
    println!("ratio                {:.2}", ours / bare);
}
