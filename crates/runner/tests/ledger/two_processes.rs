//! Two real processes on one SQLite file, each with its own session, one run and one cap: never over it, neither fences the other, and one
//! that is killed goes on with its money told.

use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentrun_cap::Books;
use agentrun_kernel::{
    Body, LedgerBody, LogKey, Record, Replay, RunId, SessionKey, SharedLog, SqliteStore, Store, Usd, read_all, validate,
};
use agentrun_runner::{HarnessRunner, NodeWord, Step};
use serde_json::{Value, json};

use crate::parks::usd;
use crate::world::{Probe, World, adapter, calls, node, submits, when};

const FOLDER: &str = "AGENTRUN_TEST_TWO_PROCESSES";
const NAME: &str = "AGENTRUN_TEST_SESSION";
/// Both together would spend 0.3322.
const CAP: &str = "0.25";
const SEARCHES: usize = 10;
/// Longest wait for what must happen.
const PATIENCE: Duration = Duration::from_secs(120);

fn run() -> RunId {
    RunId::new("two").unwrap()
}

/// Ten searches and the value, each request slow enough that the other process meets it.
fn script() -> Value {
    let costs = |mut step: Value| {
        step["usage"] = json!({"input": 100, "output": 3_000});
        step["stall_ms"] = json!(10);
        step
    };
    let mut steps = vec![when(json!({ "results": SEARCHES }), costs(submits(1)))];
    for n in 0..SEARCHES {
        steps.push(when(json!({ "results": n }), costs(calls("search", json!({ "q": n.to_string() })))));
    }
    Value::Array(steps)
}

fn store(folder: &Path) -> Store {
    Arc::new(SqliteStore::open(folder.join("run.db")).unwrap())
}

/// What a process of the two does: the test below starts it, with its folder and name. Without them there is nothing to do.
#[tokio::test]
async fn part_of_another_process() {
    let (Ok(folder), Ok(name)) = (std::env::var(FOLDER), std::env::var(NAME)) else { return };
    let (world, probe) = (World::new(), Probe::new());
    let mut options = world.options();
    options.store = store(Path::new(&folder));
    options.cap = Some(usd(CAP));
    let step = Step { run: run(), ..Step::first(SessionKey::new(name.as_str()).unwrap()) };
    let tool = probe.tool(Replay::Safe);
    let word = match HarnessRunner::new(adapter(script()), options).run_node(node(vec![tool]), step).await {
        Ok(_) => "delivered",
        Err(error) if error.word == NodeWord::OverCap => "parked",
        Err(error) => panic!("{error}"),
    };
    std::fs::write(Path::new(&folder).join(name), word).unwrap();
}

fn start(folder: &Path, name: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "two_processes::part_of_another_process"])
        .env(FOLDER, folder)
        .env(NAME, name)
        .spawn()
        .unwrap()
}

async fn ended(child: &mut Child) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if began.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("the process did not end");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn ledger(store: &Store) -> Vec<Record<LedgerBody>> {
    read_all::<LedgerBody>(&**store, &LogKey::Shared(SharedLog::Ledger(run()))).await.unwrap()
}

fn holds_of(log: &[Record<LedgerBody>], name: &str) -> usize {
    let of = |record: &&Record<LedgerBody>| matches!(&record.body, LedgerBody::Hold { session, .. } if session.as_str() == name);
    log.iter().filter(of).count()
}

#[tokio::test]
async fn f01_b77_b80_two_processes_of_a_run_stay_under_one_cap_and_neither_fences_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let mut first = start(folder.path(), "a");
    let mut second = start(folder.path(), "b");
    // The second is killed in the middle and started again; the first is left alone.
    let began = Instant::now();
    while holds_of(&ledger(&store).await, "b") < 3 {
        assert!(began.elapsed() < PATIENCE, "the second process spends nothing");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    second.kill().unwrap();
    ended(&mut second).await;
    let mut again = start(folder.path(), "b");
    assert!(ended(&mut again).await.success());
    assert!(ended(&mut first).await.success());

    let words = ["a", "b"].map(|name| std::fs::read_to_string(folder.path().join(name)).unwrap());
    assert!(words.contains(&"parked".to_owned()), "both together want more than the cap: {words:?}");
    let log = ledger(&store).await;
    let mut books = Books::new();
    for record in &log {
        books.fold([record]).unwrap();
        if matches!(record.body, LedgerBody::Hold { .. }) {
            assert!(books.counted() <= usd(CAP), "over the cap at seq {}", record.seq);
        }
    }
    assert_eq!(books.held(), Usd::ZERO, "nothing is left open");
    assert!(books.booked() > usd("0.15"), "{} booked", books.booked());
    let mut epochs = Vec::new();
    let (mut booked, mut unknown) = (Usd::ZERO, Usd::ZERO);
    for name in ["a", "b"] {
        let log = LogKey::from(&SessionKey::new(name).unwrap());
        epochs.push(store.read(&log, agentrun_kernel::Seq(1), 1).await.unwrap().head.epoch.0);
        let state = validate(&read_all::<Body>(&*store, &log).await.unwrap()).unwrap();
        booked = booked.saturating_add(state.spent.booked);
        unknown = unknown.saturating_add(state.spent.unknown);
    }
    assert_eq!(epochs, [1, 2], "nobody but the one that was started again was opened twice");
    assert_eq!((books.booked(), books.unknown()), (booked, unknown), "both logs say the same");
    println!(
        "{} holds, {} booked, {} unknown, {words:?}",
        holds_of(&log, "a") + holds_of(&log, "b"),
        books.booked(),
        books.unknown()
    );
}
