//! What the benches share: a store filled as a long-used one is, records of 600 bytes, and medians.
#![allow(dead_code)] // each bench is a program of its own and uses a part of this

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use agentrun_kernel::{
    Batch, Body, Bound, Built, Digest, EffectKey, EffectKind, EffectSpec, FORMAT, Intent, OnRepeat, Opened, Outcome,
    OutcomeEnd, PlanDigests, Replay, RunId, SessionKey, SledStore, SqliteStore, Store,
};
use serde_json::json;
use tempfile::TempDir;

/// Sessions of a filled store.
pub(crate) const SESSIONS: u64 = 1_000;
/// Bytes of a record's frame.
pub(crate) const RECORD: usize = 600;

/// A folder on the disk the build is on: a temporary folder may be in memory.
pub(crate) fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) fn open(scheme: &str, folder: &TempDir) -> Store {
    match scheme {
        "sqlite" => Arc::new(SqliteStore::open(folder.path().join("sessions.db")).unwrap()),
        "sled" => Arc::new(SledStore::open(folder.path().join("sessions")).unwrap()),
        other => panic!("no store `{other}`"),
    }
}

/// What follows `--NAME` on the command line, or the default.
pub(crate) fn option<T: std::str::FromStr>(name: &str, default: &str) -> Vec<T> {
    let mut arguments = std::env::args().skip_while(|argument| argument.strip_prefix("--") != Some(name)).skip(1);
    let text = arguments.next().unwrap_or_else(|| default.to_owned());
    text.split(',').map(|value| value.parse().unwrap_or_else(|_| panic!("--{name}: `{value}`"))).collect()
}

/// The same, where one number is wanted.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    option(name, &default.to_string())[0]
}

pub(crate) fn key(n: u64) -> SessionKey {
    SessionKey::new(format!("session-{n}")).unwrap()
}

/// A record of 600 bytes, half of it of one letter, half as good as random, other for each `n`.
pub(crate) fn record(n: u64) -> Body {
    let mut seed = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let noise = (0..270).map(|_| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        char::from(b'a' + (seed % 26) as u8)
    });
    let text: String = std::iter::repeat_n('x', 262).chain(noise).collect();
    Body::Data { name: "bench".to_owned(), value: json!(text) }
}

/// `records` records as `writers` tasks append them to the sessions in turn, so that those of one session are scattered among all, as in
/// a store that many sessions wrote.
pub(crate) async fn fill(store: &Store, records: u64, writers: u64) {
    const BATCH: u64 = 4;
    let left = Arc::new(AtomicU64::new(records / BATCH));
    let writers: Vec<_> = (0..writers)
        .map(|w| {
            let step = writers as usize;
            let (store, left) = (Arc::clone(store), Arc::clone(&left));
            tokio::spawn(async move {
                let mut writers = Vec::new();
                for n in (w..SESSIONS).step_by(step) {
                    writers.push(store.open(&key(n), None).await.unwrap());
                }
                let mut n = w;
                loop {
                    for writer in &mut writers {
                        if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
                        {
                            return;
                        }
                        writer.append(Batch::of((0..BATCH).map(|at| record(n + at))), None).await.unwrap();
                        n += BATCH;
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

/// A session that began: what every fold starts from.
pub(crate) fn began() -> Vec<Body> {
    let digest = Digest::of(b"bench");
    let plan = PlanDigests {
        prompt: digest.clone(),
        system: digest.clone(),
        schema: digest.clone(),
        tools: digest,
        model: "model".to_owned(),
        label: "bench".to_owned(),
        attempt: 1,
    };
    let bound = Bound {
        format: u32::from(FORMAT),
        adapter: "faux".to_owned(),
        binding: plan.binding(),
        plan,
        run: RunId::new("bench").unwrap(),
        parent: None,
        builtins: Built::Gated,
        host: json!(null),
    };
    let opened = Opened { earlier: Vec::new(), version: "0".to_owned(), harness: None, native_session: None };
    vec![Body::Bound(bound), Body::Opened(opened)]
}

pub(crate) fn call(n: u64) -> EffectSpec {
    let arguments = json!({ "query": format!("number {n}") });
    EffectSpec {
        key: EffectKey(format!("{n:032x}")),
        kind: EffectKind::Tool,
        replay: Replay::Never,
        on_repeat: OnRepeat::Refuse,
        name: "search".to_owned(),
        turn: None,
        call: None,
        digest: Digest::of_json(&arguments),
        arguments,
        paid: None,
    }
}

pub(crate) fn intent(n: u64) -> Body {
    let EffectSpec { key, kind, replay, name, turn, call, arguments, digest, .. } = call(n);
    Body::Intent(Intent { key, effect: kind, replay, name, turn, call, arguments, digest, hold: None, quote: None })
}

/// The outcome of [`call`], with 600 bytes of text.
pub(crate) fn outcome(n: u64) -> Outcome {
    Outcome::new(call(n).key, OutcomeEnd::Ok, "found ".repeat(100))
}

/// Says how long `work` took.
pub(crate) async fn timed<T>(what: &str, work: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let done = work.await;
    println!("{what}: {:.1} s", began.elapsed().as_secs_f64());
    done
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

pub(crate) fn quantile(sorted: &[Duration], of: f64) -> Duration {
    sorted.get((sorted.len() as f64 * of) as usize).copied().unwrap_or_default()
}

/// Bytes this process had written to disks, as the system counts them.
pub(crate) fn written() -> u64 {
    proc_number("/proc/self/io", "write_bytes: ")
}

/// Seconds of processor time this process took so far, in steps of 10 ms. On a machine that does other things it says more than the clock.
pub(crate) fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name, in brackets, may hold anything; user and system time are the 12th and 13th behind it.
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let ticks: f64 = rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap()).sum();
    ticks / 100.0
}

fn proc_number(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
