//! Grouped fenced appends of 600 bytes, each synced before its answer, on stores that already hold a million records, against a raw
//! preallocated log behind the same committer. In turn in one run: the ratios are what counts.
//!
//! `cargo bench -p agentrun-kernel --features bench --bench appends [-- --stores sqlite,sled --sessions 256,16,1]`
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout, missing_docs)] // a bench is a report: it may stop, and it prints

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentrun_kernel::{Batch, RawLog, Store};

/// Bytes of the raw log's file; it begins at its front again when it is full.
const RAW: u64 = 512 << 20;

struct Measured {
    rate: f64,
    bytes: f64,
    /// Microseconds of processor time a record.
    processor: f64,
    times: Vec<Duration>,
}

/// `sessions` tasks, each on its own session, one append after the other.
async fn appends(store: &Store, sessions: u64, time: Duration) -> Measured {
    let mut writers = Vec::new();
    for n in 0..sessions {
        writers.push(store.open(&common::key(n), None).await.unwrap());
    }
    let (before, processor, began) = (common::written(), common::processor(), Instant::now());
    let tasks: Vec<_> = writers
        .into_iter()
        .zip(0_u64..)
        .map(|(mut writer, n)| {
            tokio::spawn(async move {
                let mut times = Vec::new();
                while began.elapsed() < time {
                    let batch = Batch::of([common::record(n + times.len() as u64)]);
                    let began = Instant::now();
                    writer.append(batch, None).await.unwrap();
                    times.push(began.elapsed());
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    let (took, count) = (began.elapsed().as_secs_f64(), times.len() as f64);
    let processor = (common::processor() - processor) * 1e6 / count;
    times.sort();
    Measured { rate: count / took, bytes: (common::written() - before) as f64 / count, processor, times }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let (rounds, records) = (common::number("rounds", 5), common::number("records", 1_000_000));
    let time = Duration::from_secs(common::number("seconds", 2));
    let folder = common::folder();
    let raw: Store = Arc::new(RawLog::create(&folder.path().join("raw"), RAW).unwrap());
    let mut stores = vec![("raw".to_owned(), raw)];
    for scheme in common::option::<String>("stores", "sqlite,sled") {
        let store = common::open(&scheme, &folder);
        common::timed(&format!("{scheme}: filled with {records} records"), common::fill(&store, records, 250)).await;
        stores.push((scheme, store));
    }
    for sessions in common::option("sessions", "256,16,1") {
        let mut ratios = vec![Vec::new(); stores.len()];
        let mut rates = vec![Vec::new(); stores.len()];
        let mut bytes = vec![Vec::new(); stores.len()];
        let mut processor = vec![Vec::new(); stores.len()];
        let mut times = vec![Vec::new(); stores.len()];
        for _ in 0..rounds {
            let mut raw = None;
            for (at, (_, store)) in stores.iter().enumerate() {
                let measured = appends(store, sessions, time).await;
                let raw = *raw.get_or_insert(measured.rate);
                ratios[at].push(measured.rate / raw);
                rates[at].push(measured.rate);
                bytes[at].push(measured.bytes);
                processor[at].push(measured.processor);
                times[at].extend(measured.times);
            }
        }
        println!("{sessions} sessions");
        for (at, (name, _)) in stores.iter().enumerate() {
            let all = ratios[at].iter().map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join(" ");
            times[at].sort();
            println!(
                "  {name:<7} {:.2} x raw [{all}]   {:>7.0}/s   {:>6.0} B written and {:.1} us of processor time a record   p50 {:.2} ms  p99 {:.2} ms",
                common::median(&ratios[at]),
                common::median(&rates[at]),
                common::median(&bytes[at]),
                common::median(&processor[at]),
                common::quantile(&times[at], 0.5).as_secs_f64() * 1e3,
                common::quantile(&times[at], 0.99).as_secs_f64() * 1e3,
            );
        }
    }
}
