//! Interleavings of the failure catalogue that no other suite of the kernel has: what the kernel must survive of each, named by its number.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a failed test is a report"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use agentrun_kernel::{
    Batch, Begun, Body, Decision, Digest, DriveError, EffectKind, EffectSpec, HoldId, Import, Intent, LedgerBody,
    LogKey, LoopGuard, OnRepeat, OutcomeEnd, Owned, Record, Replay, RunId, Seq, SessionKey, SessionState, SessionTask,
    SharedAppend, SharedBatch, SharedLog, Source, SqliteStore, Store, Survey, Today, TurnEndHow, Usd, decide, export,
    follow_up_next, is_quiet, open_url, read_all, seal, settle,
};
use common::histories::canned;
use common::recovery::{done, native_call};
use common::{Dice, Log, any_legal, bound, effect, intent, message, opened, outcome, turn_end, usd};
use serde_json::json;

const TODAY: Today<'static> = Today { own_ids: true, gate_open: true, rerunnable: &|_| true, ours: &|_| true };

/// Canned histories and random ones.
fn logs() -> impl Iterator<Item = Log> {
    let random = (0..150).map(|seed| any_legal(seed, 120));
    canned().into_iter().map(|(_, log)| log).filter(|log| !log.records.is_empty()).chain(random)
}

fn named(name: &str) -> SessionKey {
    SessionKey::new(name).unwrap()
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it did not come within the bound")
}

async fn task(store: &Store, key: &SessionKey) -> SessionTask {
    let writer = store.open(key, None).await.unwrap();
    let watch = store.watch(&LogKey::from(key)).await.unwrap();
    let task =
        SessionTask::spawn(Owned { writer, state: SessionState::default(), watch, earlier: Vec::new(), events: None });
    task.drive().append(Batch::of([bound(), opened()]), None).await.unwrap();
    task
}

fn call(name: &str, paid: Option<(HoldId, Usd)>) -> EffectSpec {
    let arguments = json!({ "of": name });
    EffectSpec {
        key: effect(name),
        kind: EffectKind::Tool,
        replay: Replay::Never,
        on_repeat: OnRepeat::Refuse,
        name: "tool".to_owned(),
        turn: None,
        call: None,
        digest: Digest::of_json(&arguments),
        arguments,
        paid,
    }
}

fn run() -> SharedLog {
    SharedLog::Ledger(RunId::new("r").unwrap())
}

/// What the run's holds add up to, and where its ledger ends.
async fn held(store: &Store) -> (Usd, Seq) {
    let records = read_all::<LedgerBody>(store.as_ref(), &LogKey::Shared(run())).await.unwrap();
    let held = records.iter().fold(Usd::ZERO, |sum, record| match &record.body {
        LedgerBody::Hold { quote, .. } => sum.saturating_add(*quote),
        _ => sum,
    });
    (held, records.last().map_or(Seq::START, |record| record.seq))
}

/// Two handles on one file, as two processes have them; a session in each; every call folds the ledger, finds room, and holds. The first calls
/// both saw the whole room before either held any of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f01_b77_two_sessions_of_one_run_hold_no_more_than_its_cap() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("sessions.db");
    let cap = usd("1");
    let both_saw = Arc::new(tokio::sync::Barrier::new(2));
    let calls = ["a", "b"].map(|name| {
        let store: Store = Arc::new(SqliteStore::open(&path).unwrap());
        let both_saw = both_saw.clone();
        tokio::spawn(async move {
            let key = named(name);
            let task = task(&store, &key).await;
            let (mut conflicts, mut begun) = (0, 0);
            for call_number in 0.. {
                let id = HoldId(format!("{name}{call_number}"));
                let quote = usd("0.15");
                let began = loop {
                    let (held, end) = held(&store).await;
                    if held.saturating_add(quote) > cap {
                        break false;
                    }
                    if (call_number, conflicts) == (0, 0) {
                        both_saw.wait().await;
                    }
                    let hold = LedgerBody::Hold {
                        id: id.clone(),
                        session: key.clone(),
                        epoch: task.drive().epoch(),
                        what: "tool".to_owned(),
                        quote,
                        catalog: "c".to_owned(),
                    };
                    let also = SharedAppend { log: run(), expected: end, batch: SharedBatch::Ledger(vec![hold]) };
                    let spec = call(id.0.as_str(), Some((id.clone(), quote)));
                    match task.drive().begin(spec, Vec::new(), Some(also)).await {
                        Ok(Begun::Open(_)) => break true,
                        Err(DriveError::Conflict { .. }) => conflicts += 1,
                        other => panic!("{other:?}"),
                    }
                };
                if !began {
                    break;
                }
                begun += 1;
            }
            assert_eq!(
                task.drive().state().spent.held.pico(),
                usd("0.15").pico() * begun,
                "an intent without its hold"
            );
            (begun, conflicts)
        })
    });
    let (mut all, mut all_conflicts) = (0, 0);
    for call in calls {
        let (begun, conflicts) = within(call).await.unwrap();
        all += begun;
        all_conflicts += conflicts;
    }
    assert_ne!(all_conflicts, 0, "one of the first two holds came second");
    let store: Store = Arc::new(SqliteStore::open(&path).unwrap());
    assert_eq!((all, held(&store).await.0), (6, usd("0.9")), "as many as fit, and not one more");
}

/// The locks this process holds on a file, as the system lists them. Nothing of the file is opened: closing it would drop them.
fn locks(file: &Path) -> BTreeSet<String> {
    let inode = format!(":{}", std::fs::metadata(file).unwrap().ino());
    let own = std::process::id().to_string();
    let table = std::fs::read_to_string("/proc/locks").unwrap();
    let fields = table.lines().map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>());
    fields
        .filter(|fields| fields.get(3) == Some(&own.as_str()) && fields.get(4).is_some_and(|of| of.ends_with(&inode)))
        .map(|fields| fields.join(" "))
        .collect()
}

/// A file of an open store that is opened and closed by anything but SQLite drops this process's locks on it (POSIX): from then on two
/// processes write at once. So after everything a store is asked, the locks it took when it was opened are still there.
#[tokio::test]
async fn f15_nothing_a_store_does_lets_go_of_the_locks_on_its_own_files() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("sessions.db");
    let store: Store = Arc::new(SqliteStore::open(&file).unwrap());
    let key = named("s");
    let task = task(&store, &key).await;
    let files = [file.clone(), folder.path().join("sessions.db-shm")];
    let at_open = files.each_ref().map(|file| locks(file));
    assert!(at_open.iter().all(|locks| !locks.is_empty()), "SQLite holds locks on both: {at_open:?}");
    let kept = |what: &str| {
        for (file, at_open) in files.iter().zip(&at_open) {
            let lost: Vec<_> = at_open.difference(&locks(file)).cloned().collect();
            assert_eq!(lost, [""; 0], "{what} let go of locks on {}", file.display());
        }
    };
    kept("nothing");
    task.drive().append(Batch::of([common::histories::data()]), None).await.unwrap();
    kept("an append");
    store.append_at(&run(), Seq::START, raise()).await.unwrap();
    kept("an append to a shared log");
    read_all::<Body>(store.as_ref(), &LogKey::from(&key)).await.unwrap();
    store.heads(None, 100).await.unwrap();
    kept("a read");
    drop(store.watch(&LogKey::from(&key)).await.unwrap());
    kept("a watch");
    drop(SqliteStore::open(&file).unwrap());
    kept("a second handle that was closed");
    drop(open_url(&format!("sqlite:{}", file.display())).unwrap());
    kept("a handle by its URL");
    let mut copy = Vec::new();
    export(store.as_ref(), &key, &mut copy).await.unwrap();
    Import::read(Cursor::new(&copy)).unwrap().land(store.as_ref(), Some(&named("copy"))).await.unwrap();
    kept("an export and an import");
    store.remove(&named("copy"), None).await.unwrap();
    kept("a removal");
    seal(store.as_ref(), &key, "there").await.unwrap();
    kept("a seal");

    // What it looks like when somebody does.
    drop(std::fs::File::open(&file).unwrap());
    assert_ne!(locks(&file), at_open[0], "the check sees a file that was opened and closed");
}

fn raise() -> SharedBatch {
    SharedBatch::Ledger(vec![LedgerBody::Raise { id: "raise".to_owned(), cap: usd("1") }])
}

/// Two SQLites in one program would not know of each other's descriptors.
#[test]
fn f15_there_is_one_sqlite_in_the_tree() {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
    let names: Vec<_> = lock
        .lines()
        .filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
        // The third is for the web alone.
        .filter(|name| name.contains("sqlite") && !name.contains("wasm") && !name.contains("vfs"))
        .collect();
    assert_eq!(names, ["libsqlite3-sys", "rusqlite"]);
}

/// Whatever the records and the history say: a built-in that is open when its owner is gone ends as interrupted, and is asked of nobody again.
#[test]
fn f23_an_open_built_in_is_interrupted_and_never_run_again() {
    let (mut cut, mut safe) = (0, 0);
    let short = (0..600).map(|seed| any_legal(seed, 40));
    for (number, log) in logs().chain(short).enumerate() {
        let mut log = log.reopened_unless_moved();
        let state = log.state();
        let open: Vec<_> = state
            .open_effects()
            .filter(|effect| effect.intent.effect == EffectKind::Builtin)
            .map(|effect| effect.intent.key.clone())
            .collect();
        if open.is_empty() || state.answered() || state.moved.is_some() {
            continue;
        }
        cut += 1;
        // Only what a turn still wants, and is safe, could be run again at all.
        let wanted = state.open_turn.as_ref().map(|turn| &turn.id);
        safe += state
            .open_effects()
            .filter(|effect| open.contains(&effect.intent.key))
            .filter(|effect| effect.intent.replay == Replay::Safe && effect.intent.turn.as_ref() == wanted)
            .count();
        let mut survey = Survey { resumable: true, ..Survey::default() };
        survey.taken.extend(state.open_turn.iter().map(|turn| turn.message.clone()));
        let mut gate_open = false;
        for _ in 0..200 {
            let decision = decide(&log.state(), &survey, Today { gate_open, ..TODAY });
            if let Decision::RunAgain(key) = &decision {
                assert!(!open.contains(key), "log {number}: {key} is run again");
            }
            match done(&log, &mut survey, &mut gate_open, decision) {
                Some(bodies) => bodies.into_iter().for_each(|body| log.push(body)),
                None => break,
            }
        }
        let state = log.state();
        for key in &open {
            assert!(state.effect(key).unwrap().interrupted(), "log {number}: {key}");
        }
    }
    assert!(cut >= 20 && safe >= 5, "only {cut} logs with an open built-in, {safe} of them safe and in the open turn");
}

/// The harness said the turn was done and never told the built-in's end: also behind the turn it is no longer open for long.
#[test]
fn f23_a_built_in_that_outlasts_its_turn_is_interrupted_before_the_next_message() {
    for replay in [Replay::Safe, Replay::Never] {
        let log = Log::in_turn()
            .begun("b", EffectKind::Builtin, replay)
            .and(turn_end("t", TurnEndHow::Done))
            .and(common::submission("said", Source::Person))
            .reopened();
        let survey = Survey { resumable: true, taken: vec![message("m")], ended: true, ..Survey::default() };
        let interrupt = Decision::Interrupt(vec![effect("b")]);
        assert_eq!(decide(&log.state(), &survey, TODAY), interrupt);
        assert_eq!(settle(&log.state(), &survey), interrupt);
        let log = log.ended("b", OutcomeEnd::Interrupted);
        assert!(matches!(decide(&log.state(), &survey, TODAY), Decision::Place(_)));
    }
}

/// A harness whose own clock ran out asks for the same call again, while it runs and afterwards: it runs once, and its one outcome answers.
#[tokio::test]
async fn f24_a_call_that_a_harness_gave_up_on_and_asks_for_again_runs_once() {
    let store: Store = Arc::new(agentrun_kernel::MemoryStore::new().unwrap());
    let task = task(&store, &common::key()).await;
    let ran = Arc::new(AtomicU32::new(0));
    let (go, may) = tokio::sync::watch::channel(false);
    let ask = || {
        let (drive, ran, mut may) = (task.drive(), ran.clone(), may.clone());
        tokio::spawn(async move {
            match drive.begin(call("a", None), Vec::new(), None).await.unwrap() {
                Begun::Open(open) => {
                    ran.fetch_add(1, Ordering::SeqCst);
                    may.wait_for(|go| *go).await.unwrap();
                    open.finish(outcome("a", OutcomeEnd::Ok), Vec::new(), None).await.unwrap()
                }
                Begun::Running(outcomes) => outcomes.outcome().await.unwrap(),
                Begun::Known(outcome) => outcome,
            }
        })
    };
    let asked: Vec<_> = (0..5).map(|_| ask()).collect();
    // All five have been served once something behind them is.
    within(async {
        while ran.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    task.drive().append(Batch::of([common::histories::data()]), None).await.unwrap();
    go.send_replace(true);
    let mut ends = Vec::new();
    for asked in asked.into_iter().chain([ask()]) {
        ends.push(within(asked).await.unwrap());
    }
    assert!(ends.iter().all(|end| end == &ends[0] && end.end == OutcomeEnd::Ok), "{ends:?}");
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

/// Two calls of one response: one has its permit and its intent, the other waited behind it. Only the first may have partly run.
#[test]
fn f32_a_call_that_waited_for_its_permit_never_began_and_is_not_called_interrupted() {
    let log = Log::in_turn().begun("runs", EffectKind::Tool, Replay::Never).reopened();
    let mut survey = Survey { resumable: true, taken: vec![message("m")], ..Survey::default() };
    survey.open_calls = vec![native_call("runs"), native_call("waits")];
    assert_eq!(decide(&log.state(), &survey, TODAY), Decision::Interrupt(vec![effect("runs")]));
    assert_eq!(settle(&log.state(), &survey), Decision::Interrupt(vec![effect("runs")]));
    let log = log.ended("runs", OutcomeEnd::Interrupted);
    let new = Decision::RunNew { call: native_call("waits"), ordinal: 0 };
    assert_eq!(decide(&log.state(), &survey, TODAY), new, "it is begun for the first time");
    // Its repeat is not in doubt either: the records have no receipt of it.
    let waited = native_call("waits");
    assert!(log.state().receipt(&waited.tool, &Digest::of_json(&waited.arguments)).is_none());
}

/// The same records under clocks that stand, run backwards, jump to their ends, or are shuffled: every state, and so every decision, is the
/// same.
#[test]
fn f34_no_decision_reads_a_clock() {
    type Clock = fn(usize, &mut Dice) -> u64;
    let clocks: [(&str, Clock); 5] = [
        ("zero", |_, _| 0),
        ("the end of time", |_, _| u64::MAX),
        ("backwards", |place, _| 1_000_000 - place as u64),
        ("back and forth", |place, _| if place % 2 == 0 { u64::MAX } else { 0 }),
        ("shuffled", |_, dice| dice.below(usize::MAX) as u64),
    ];
    let mut decided = BTreeMap::<String, usize>::new();
    for (number, log) in logs().enumerate() {
        let says = |records: &[Record]| {
            let state = SessionState::fold(records);
            let mut guard = LoopGuard::default();
            records.iter().for_each(|record| guard.apply(record));
            let mut survey = Survey { resumable: true, ..Survey::default() };
            survey.taken.extend(state.open_turn.iter().map(|turn| turn.message.clone()));
            let name = agentrun_kernel::FollowUpName::new("why").unwrap();
            (
                decide(&state, &survey, TODAY),
                settle(&state, &survey),
                is_quiet(&state, &survey),
                follow_up_next(&state, &name),
                guard,
                state,
            )
        };
        let before = says(&log.records);
        *decided.entry(format!("{:?}", before.0).split(['(', ' ']).next().unwrap().to_owned()).or_default() += 1;
        for (clock, at) in &clocks {
            let mut dice = Dice::new(number as u64);
            let told: Vec<_> = log
                .records
                .iter()
                .enumerate()
                .map(|(place, record)| Record { at: at(place, &mut dice), ..record.clone() })
                .collect();
            assert!(says(&told) == before, "log {number} under the clock `{clock}`");
        }
    }
    assert!(decided.len() >= 6, "hardly any decision was met: {decided:?}");
}

impl Log {
    /// Another process opened it, if it still lives here.
    fn reopened_unless_moved(self) -> Self {
        if self.state().moved.is_some() { self } else { self.reopened() }
    }
}

/// An intent that says what it costs and names no hold is not begun: nothing in the ledger would count it.
#[tokio::test]
async fn f02_a_paid_effect_without_its_hold_is_not_begun() {
    let store: Store = Arc::new(agentrun_kernel::MemoryStore::new().unwrap());
    let task = task(&store, &common::key()).await;
    let half = Intent { quote: Some(usd("1")), ..intent("a", EffectKind::Request, Replay::Never, None) };
    let refused = task.drive().append(Batch::of([Body::Intent(half)]), None).await;
    assert!(matches!(refused, Err(DriveError::Illegal(_))), "{refused:?}");
}
