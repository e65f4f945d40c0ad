//! What a run's ledger costs where it is long or wide, each against the same without, in one run.
//!
//! `cargo bench -p agentrun-runner --bench ledger` prints three ratios: opening a ledger of a million bookings against reading its last 1,000 records;
//! one admit beside 10,000 sessions with open holds against one beside a single one; the same for the gate's answer alone.
//! `BOOKINGS=N` sets the length of the first.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)] // a bench is a report: it may stop, and it prints

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentrun_cap::{Books, TOTALS_EVERY};
use agentrun_kernel::{
    Epoch, HoldId, LedgerBody, LogKey, MemoryStore, Record, RunId, Seq, SessionKey, SharedBatch, SharedLog,
    SqliteStore, Store, Usd, read_from,
};
use agentrun_runner::{Decide, RunLedger, read_books};

/// Records written at once: only the filling of the ledger, not what is measured.
const CHUNK: usize = 5_000;
const ROUNDS: usize = 41;
const ADMITS: usize = 2_000;

fn run() -> RunId {
    RunId::new("bench").unwrap()
}

fn log() -> SharedLog {
    SharedLog::Ledger(run())
}

fn hold(id: &str, session: &SessionKey) -> LedgerBody {
    LedgerBody::Hold {
        id: HoldId(id.to_owned()),
        session: session.clone(),
        epoch: Epoch(1),
        what: "claude-sonnet-4-5-20250929".to_owned(),
        quote: Usd::from_pico(61_440_000_000),
        catalog: "bundled-2026-11-01 2026-11-01".to_owned(),
    }
}

/// A ledger as `bookings` paid steps leave it, totals where a writer puts them.
async fn long(store: &Store, bookings: usize) {
    let session = SessionKey::new("long").unwrap();
    let (mut books, mut batch) = (Books::new(), Vec::new());
    let push = |books: &mut Books, batch: &mut Vec<LedgerBody>, body: LedgerBody| {
        let totals = books.totals_due(TOTALS_EVERY).then(|| books.totals());
        for body in totals.into_iter().chain([body]) {
            books.fold([&Record { seq: books.seq().next(), epoch: Epoch(0), at: 0, body: body.clone() }]).unwrap();
            batch.push(body);
        }
    };
    push(&mut books, &mut batch, LedgerBody::Cap { cap: Some("1000000".parse().unwrap()) });
    let mut head = Seq::START;
    for n in 0..bookings {
        let id = format!("0198c0de-0000-7000-8000-{n:012}");
        push(&mut books, &mut batch, hold(&id, &session));
        let booking = LedgerBody::Booking {
            hold: HoldId(id),
            usage: Some(agentrun_kernel::Usage { input: 1_000, cache_read: 20_000, output: 400, ..Default::default() }),
            model: Some("claude-sonnet-4-5-20250929".to_owned()),
            catalog: "bundled-2026-11-01 2026-11-01".to_owned(),
            amount: Usd::from_pico(15_000_000),
        };
        push(&mut books, &mut batch, booking);
        if batch.len() >= CHUNK || n + 1 == bookings {
            head = store.append_at(&log(), head, SharedBatch::Ledger(std::mem::take(&mut batch))).await.unwrap();
        }
    }
    assert_eq!(head, books.seq());
}

async fn opening(bookings: usize) {
    let folder = tempfile::tempdir().unwrap();
    let store: Store = Arc::new(SqliteStore::open(folder.path().join("bench.db")).unwrap());
    let began = Instant::now();
    long(&store, bookings).await;
    println!("{bookings} bookings written in {:.1?}", began.elapsed());
    let head = store.read(&LogKey::Shared(log()), Seq(1), 1).await.unwrap().head.seq;
    let (mut opens, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let books = read_books(&*store, &run()).await.unwrap();
        opens.push(began.elapsed());
        assert_eq!(books.seq(), head);
        let began = Instant::now();
        let last = read_from::<LedgerBody>(&*store, &LogKey::Shared(log()), Seq(head.0 - 999)).await.unwrap();
        reads.push(began.elapsed());
        assert_eq!(last.len(), 1_000);
    }
    report("opening a ledger of that length", "reading its last 1,000 records", opens, reads);
}

/// A run in which `sessions` sessions each hold one step.
async fn wide(sessions: usize) -> (Store, Arc<RunLedger>) {
    let store: Store = Arc::new(MemoryStore::new().unwrap());
    let mut batch = vec![LedgerBody::Cap { cap: Some("100000".parse().unwrap()) }];
    for n in 0..sessions {
        let session = SessionKey::new(format!("s{n}")).unwrap();
        drop(store.open(&session, None).await.unwrap());
        batch.push(hold(&format!("h{n}"), &session));
    }
    store.append_at(&log(), Seq::START, SharedBatch::Ledger(batch)).await.unwrap();
    let ledger = RunLedger::open(store.clone(), &run(), None).await.unwrap();
    (store, Arc::new(ledger))
}

/// One step admitted, held and let go of.
async fn admit(ledger: &Arc<RunLedger>, session: &SessionKey) -> Duration {
    let began = Instant::now();
    let decide = ledger.clone().decide("step", session, Usd::from_pico(1_000)).await.unwrap();
    let took = began.elapsed();
    if let Decide::Open(decision) = decide {
        decision.not_made("a bench").await.unwrap();
    }
    took
}

async fn admits() {
    let session = SessionKey::new("s0").unwrap();
    let (many, one) = (wide(10_000).await, wide(1).await);
    let (mut of_many, mut of_one) = (Vec::new(), Vec::new());
    for _ in 0..ADMITS {
        of_many.push(admit(&many.1, &session).await);
        of_one.push(admit(&one.1, &session).await);
    }
    report("an admit beside 10,000 open sessions", "beside one", of_many, of_one);

    let (many, one) = (many.1.books().await.unwrap(), one.1.books().await.unwrap());
    let answer = |books: &Books| {
        let began = Instant::now();
        for pico in 0..1_000 {
            std::hint::black_box(books.admit(std::hint::black_box(Usd::from_pico(pico)))).unwrap();
        }
        began.elapsed()
    };
    let (of_many, of_one) = (0..ADMITS).map(|_| (answer(&many), answer(&one))).unzip();
    report("1,000 answers of the gate beside 10,000", "beside one", of_many, of_one);
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn report(what: &str, against: &str, ours: Vec<Duration>, theirs: Vec<Duration>) {
    let (ours, theirs) = (median(ours), median(theirs));
    println!(
        "{what} p50 {ours:.1?}, {against} p50 {theirs:.1?}, ratio {:.2}",
        ours.as_secs_f64() / theirs.as_secs_f64()
    );
}

#[tokio::main]
async fn main() {
    let bookings = std::env::var("BOOKINGS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    admits().await;
    opening(bookings).await;
}
