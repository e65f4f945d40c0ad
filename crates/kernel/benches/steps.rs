//! A durable step (intent, then outcome, each synced before it is answered) through a session's `Drive`, against the bare store doing the
//! same two appends, in turn in one run on a SQLite store that holds a million records.
//!
//! `cargo bench -p agentrun-kernel --bench steps [-- --sessions 1,16,64 --store sqlite]`
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout, missing_docs)] // a bench is a report

mod common;

use std::time::{Duration, Instant};

use agentrun_kernel::{Batch, Begun, Body, LogKey, Owned, SessionKey, SessionState, SessionTask, Store};

#[derive(Clone, Copy)]
enum Way {
    Drive,
    Bare,
}

/// Steps a second of `sessions` new sessions, each doing one after the other, and microseconds of processor time a step.
async fn steps(store: &Store, way: Way, round: u64, sessions: u64, time: Duration) -> (f64, f64) {
    let mut ready = Vec::new();
    for n in 0..sessions {
        let name = match way {
            Way::Drive => "drive",
            Way::Bare => "bare",
        };
        let key = SessionKey::new(format!("{name}-{round}-{sessions}-{n}")).unwrap();
        let mut writer = store.open(&key, None).await.unwrap();
        writer.append(Batch::of(common::began()), None).await.unwrap();
        ready.push((LogKey::from(&key), writer));
    }
    let (processor, began) = (common::processor(), Instant::now());
    let mut tasks = Vec::new();
    for (log, mut writer) in ready {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            let mut count = 0;
            match way {
                Way::Bare => {
                    while began.elapsed() < time {
                        writer.append(Batch::of([common::intent(count)]), None).await.unwrap();
                        let outcome = Body::Outcome(common::outcome(count));
                        writer.append(Batch::of([outcome]), None).await.unwrap();
                        count += 1;
                    }
                }
                Way::Drive => {
                    let records = agentrun_kernel::read_all::<Body>(&*store, &log).await.unwrap();
                    let state = SessionState::fold(&records);
                    let watch = store.watch(&log).await.unwrap();
                    let owned = Owned { writer, state, watch, earlier: Vec::new(), events: None };
                    let task = SessionTask::spawn(owned);
                    let drive = task.drive();
                    while began.elapsed() < time {
                        match drive.begin(common::call(count), Vec::new(), None).await.unwrap() {
                            Begun::Open(effect) => {
                                effect.finish(common::outcome(count), Vec::new(), None).await.unwrap()
                            }
                            other => panic!("{other:?}"),
                        };
                        count += 1;
                    }
                    drop(drive);
                    task.join().await.unwrap();
                }
            }
            count
        }));
    }
    let mut count = 0;
    for task in tasks {
        count += task.await.unwrap();
    }
    let took = (common::processor() - processor) * 1e6;
    (count as f64 / began.elapsed().as_secs_f64(), took / count as f64)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let (rounds, records) = (common::number("rounds", 7), common::number("records", 1_000_000));
    let time = Duration::from_millis(common::number("milliseconds", 1_500));
    let folder = common::folder();
    let scheme = common::option::<String>("store", "sqlite").remove(0);
    let store = common::open(&scheme, &folder);
    common::timed(&format!("{scheme}: filled with {records} records"), common::fill(&store, records, 250)).await;
    for sessions in common::option("sessions", "1,16,64") {
        let (mut ratios, mut drives, mut bares) = (Vec::new(), Vec::new(), Vec::new());
        let (mut drive_times, mut bare_times) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            // Each goes first as often as the other.
            let ((drive, drive_time), (bare, bare_time)) = if round % 2 == 0 {
                let drive = steps(&store, Way::Drive, round, sessions, time).await;
                (drive, steps(&store, Way::Bare, round, sessions, time).await)
            } else {
                let bare = steps(&store, Way::Bare, round, sessions, time).await;
                (steps(&store, Way::Drive, round, sessions, time).await, bare)
            };
            ratios.push(drive / bare);
            drives.push(drive);
            bares.push(bare);
            drive_times.push(drive_time);
            bare_times.push(bare_time);
        }
        let all = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join(" ");
        println!(
            "{sessions:>3} sessions   drive {:>6.0} steps/s   bare {:>6.0} steps/s   {:.2} [{all}]   processor time a step {:.1} and {:.1} us",
            common::median(&drives),
            common::median(&bares),
            common::median(&ratios),
            common::median(&drive_times),
            common::median(&bare_times)
        );
    }
}
