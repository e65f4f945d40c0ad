//! How fast a session's records become its state: a log of 10,000 records (5,000 effects) folded again and again, and the same with
//! reading the records from their bytes.
//!
//! `cargo bench -p agentrun-kernel --bench fold`
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout, missing_docs)] // a bench is a report

mod common;

use std::hint::black_box;
use std::time::Instant;

use agentrun_kernel::{Body, Epoch, Frame, LogKey, Record, Seq, SessionState};

const RECORDS: u64 = 10_000;

fn main() {
    let log = LogKey::from(&common::key(0));
    let effects = (0..(RECORDS - 2) / 2).flat_map(|n| [common::intent(n), Body::Outcome(common::outcome(n))]);
    let frames: Vec<Frame> = common::began()
        .into_iter()
        .chain(effects)
        .zip(1..)
        .map(|(body, seq)| Frame::encode(&log, Seq(seq), Epoch(1), 0, &body).unwrap())
        .collect();
    let read = |frames: &[Frame]| frames.iter().map(|frame| frame.decode::<Body>(&log).unwrap()).collect::<Vec<_>>();
    let records: Vec<Record> = read(&frames);
    let mut measured = [const { Vec::new() }; 4];
    for _ in 0..common::number("rounds", 51) {
        let (wall, processor) = timed(|| SessionState::fold(&records));
        measured[0].push(RECORDS as f64 / wall);
        measured[1].push(RECORDS as f64 / processor);
        let (wall, processor) = timed(|| SessionState::fold(&read(&frames)));
        measured[2].push(RECORDS as f64 / wall);
        measured[3].push(RECORDS as f64 / processor);
    }
    let [fold, fold_processor, both, both_processor] = measured.map(|rates| common::median(&rates));
    println!("fold             {fold:>9.0} records/s of wall time   {fold_processor:>9.0} of processor time");
    println!("decode and fold  {both:>9.0} records/s of wall time   {both_processor:>9.0} of processor time");
}

/// Seconds of wall and of this thread's processor time that making a state took, without its drop. On a machine that does other things
/// the second says what the first would on a quiet one, but for the caches.
fn timed(make: impl Fn() -> SessionState) -> (f64, f64) {
    let (before, began) = (processor(), Instant::now());
    let state = black_box(make());
    let wall = began.elapsed().as_secs_f64();
    let took = processor() - before;
    drop(state);
    (wall, took as f64 / 1e9)
}

/// Nanoseconds this thread ran so far. Yielding first brings the system's count up to date.
fn processor() -> u64 {
    std::thread::yield_now();
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    times.split_whitespace().next().unwrap().parse().unwrap()
}
