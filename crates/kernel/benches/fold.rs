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
    let (mut folds, mut both) = (Vec::new(), Vec::new());
    for _ in 0..common::number("rounds", 51) {
        let began = Instant::now();
        let state = black_box(SessionState::fold(&records));
        folds.push(records.len() as f64 / began.elapsed().as_secs_f64());
        drop(state);
        let began = Instant::now();
        black_box(SessionState::fold(&read(&frames)));
        both.push(records.len() as f64 / began.elapsed().as_secs_f64());
    }
    println!("fold             {:>9.0} records/s", common::median(&folds));
    println!("decode and fold  {:>9.0} records/s", common::median(&both));
}
