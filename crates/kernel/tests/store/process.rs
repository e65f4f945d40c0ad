//! The stores on a disk under real processes: a second one that takes sessions over, and a first one that is killed. The processes are
//! this test program again, in the part `part_of_another_process`.

#![allow(clippy::print_stdout, reason = "the figures are the report")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use crate::suite::{buffered, data, key, ledger, poll, raise, session};
use agentrun_kernel::{
    AppendError, Batch, Body, Digest, EffectKey, EffectKind, Epoch, Intent, LedgerBody, Outcome, OutcomeEnd, Replay,
    Seq, SharedAppend, Store, StoreError, UrlError, open_url, read_all,
};
use serde_json::json;
use tempfile::TempDir;

const WRITERS: u64 = 8;
const SYNCED: u64 = 200;

/// A place for a store that processes open by its URL.
struct Place {
    folder: TempDir,
    scheme: &'static str,
}

impl Place {
    fn sqlite() -> Self {
        Self { folder: TempDir::new().unwrap(), scheme: "sqlite" }
    }

    fn sled() -> Self {
        Self { folder: TempDir::new().unwrap(), scheme: "sled" }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("sessions")
    }

    fn url(&self) -> String {
        format!("{}:{}", self.scheme, self.path().display())
    }

    fn open(&self) -> Store {
        open(&self.url())
    }

    /// The file that records are written to first.
    fn log(&self) -> PathBuf {
        match self.scheme {
            "sqlite" => self.folder.path().join("sessions-wal"),
            _ => self.path().join("db"),
        }
    }

    /// Whether the file that records are written to first holds `text`.
    fn holds(&self, text: &str) -> bool {
        holds(&self.log(), text)
    }
}

/// SQLite's own locks on the log are not dropped by this: it locks its index file.
fn holds(file: &Path, text: &str) -> bool {
    let bytes = std::fs::read(file).unwrap();
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// A process may not have let go of a sled store yet when the next one wants it.
fn open(url: &str) -> Store {
    for _ in 0..10_000 {
        match open_url(url) {
            Err(UrlError::Store(StoreError::Unusable { .. })) => {
                std::thread::sleep(std::time::Duration::from_millis(2))
            }
            opened => return opened.unwrap(),
        }
    }
    panic!("{url} was never free");
}

/// `AGENTRUN_FULL=1` runs as many rounds as the contract names; else enough to see the machinery work.
fn rounds(few: u64, full: u64) -> u64 {
    if std::env::var_os("AGENTRUN_FULL").is_some_and(|value| value == "1") { full } else { few }
}

/// Another process, and what it says.
struct Other {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(part: &str, place: &Place) -> Self {
        Self::spawn(Command::new(std::env::current_exe().unwrap()), part, place)
    }

    fn spawn(mut program: Command, part: &str, place: &Place) -> Self {
        let mut child = program
            .args(["process::part_of_another_process", "--exact", "--nocapture", "--test-threads=1"])
            .env("STORE_PART", part)
            .env("STORE_URL", place.url())
            .env("STORE_LOG", place.log())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next thing it says, without the test harness's own lines; `None` once it has ended.
    fn says(&mut self) -> Option<(String, u64, u64)> {
        for line in self.lines.by_ref() {
            // A killed process can leave half a line: what it could not finish saying it did not say.
            let line = line.ok()?;
            let Some(words) = line.split_once("says ").and_then(|(_, said)| said.strip_suffix('.')) else { continue };
            let words: Vec<_> = words.split(' ').collect();
            return Some((words[0].to_owned(), words[1].parse().unwrap(), words[2].parse().unwrap()));
        }
        None
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(word: &str, a: u64, b: u64) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("says {word} {a} {b}.\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part_of_another_process() {
    let Ok(part) = std::env::var("STORE_PART") else { return };
    let store = open(&std::env::var("STORE_URL").unwrap());
    let log = PathBuf::from(std::env::var_os("STORE_LOG").unwrap());
    match part.as_str() {
        "writers" => write_until_killed(store).await,
        "rival" => take_and_write(&store, "rival", u64::MAX).await,
        "syncs" => {
            let mut writer = store.open(&key("a"), None).await.unwrap();
            // A group without a sync first: the next ones must not take after it.
            writer.append(buffered(words("not synced")), None).await.unwrap();
            poll(|| async { holds(&log, "not synced").then_some(()) }).await;
            say("ready", 0, 0);
            for n in 1..=SYNCED {
                writer.append(Batch::of([data(n)]), None).await.unwrap();
            }
            say("done", 0, 0);
        }
        "buffered" => {
            let mut writer = store.open(&key("a"), None).await.unwrap();
            writer.append(Batch::of([data(1)]), None).await.unwrap();
            writer.append(buffered(words("not synced")), None).await.unwrap();
            say("buffered", 0, 0);
            std::future::pending::<()>().await;
        }
        "lock" => {
            let path = std::env::var("STORE_URL").unwrap().split_once(':').unwrap().1.to_owned();
            let conn = rusqlite::Connection::open(path).unwrap();
            conn.busy_timeout(std::time::Duration::ZERO).unwrap();
            say("locked", conn.execute_batch("BEGIN IMMEDIATE").is_err().into(), 0);
        }
        "hold" => {
            say("holds", std::process::id().into(), 0);
            std::future::pending::<()>().await;
        }
        other => panic!("no part `{other}`"),
    }
}

fn words(text: &str) -> Body {
    Body::Data { name: "words".to_owned(), value: json!(text) }
}

async fn write_until_killed(store: Store) {
    let writers: Vec<_> = (0..WRITERS).map(|w| tokio::spawn(write_one(Arc::clone(&store), w))).collect();
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
}

/// Appends to its session and, in the same step, to its ledger, and says what was acknowledged. Each third record is the outcome of the
/// intent before it: an intent that the kill left open is ended as interrupted first, as a resume does.
async fn write_one(store: Store, w: u64) -> Result<(), AppendError> {
    let mut writer = store.open(&key(&format!("s{w}")), None).await.unwrap();
    say("epoch", w, writer.epoch().0);
    let mut end = OutcomeEnd::Interrupted;
    loop {
        let n = writer.last().0 + 1;
        let hold = SharedAppend { log: ledger(&format!("r{w}")), expected: Seq(n - 1), batch: raise("x") };
        writer.append(Batch::of([written(n, end)]), Some(hold)).await?;
        say("ack", w, n);
        end = OutcomeEnd::Ok;
    }
}

/// What a writer writes as record `n`.
fn written(n: u64, end: OutcomeEnd) -> Body {
    let effect = |n: u64| EffectKey(format!("effect-{n}"));
    match n % 3 {
        1 => data(n),
        2 => Body::Intent(Intent {
            key: effect(n),
            effect: EffectKind::Tool,
            replay: Replay::Never,
            name: "t".to_owned(),
            turn: None,
            call: None,
            arguments: json!(n),
            digest: Digest::of_json(&json!(n)),
            hold: None,
            quote: None,
        }),
        _ => Body::Outcome(Outcome::new(effect(n - 1), end, "x".repeat(usize::try_from(n % 700).unwrap()))),
    }
}

#[tokio::test]
async fn sqlite_sigkill_loses_no_acknowledged_record_and_halves_no_batch() {
    sigkill_loses_nothing(Place::sqlite()).await;
}

#[tokio::test]
async fn sled_sigkill_loses_no_acknowledged_record_and_halves_no_batch() {
    sigkill_loses_nothing(Place::sled()).await;
}

async fn sigkill_loses_nothing(place: Place) {
    let mut acked: BTreeMap<u64, u64> = BTreeMap::new();
    let (rounds, mut kept, mut cut) = (rounds(10, 60), 0, 0);
    for round in 1..=rounds {
        let mut other = Other::start("writers", &place);
        let enough = (40 + round * 7 % 90) * rounds / 10;
        let mut heard = 0;
        let mut killed = false;
        while let Some((word, w, n)) = other.says() {
            match word.as_str() {
                "epoch" => assert_eq!(n, round, "an epoch went back"),
                _ => {
                    acked.insert(w, n);
                    heard += 1;
                }
            }
            if heard >= enough && !killed {
                other.kill();
                killed = true;
            }
        }
        assert!(killed, "the writers ended by themselves");
        let store = place.open();
        (kept, cut) = (0, 0);
        for w in 0..WRITERS {
            let records = session(&store, &format!("s{w}")).await;
            let acked = acked.get(&w).copied().unwrap_or_default();
            assert!(records.len() as u64 >= acked, "writer {w}: {acked} acknowledged, {} there", records.len());
            assert!(records.is_sorted_by_key(|record| record.epoch), "writer {w}: epochs went back");
            let mut ended = BTreeSet::new();
            for (record, n) in records.iter().zip(1..) {
                assert_eq!(record.seq, Seq(n), "writer {w}: not dense");
                let interrupted = record.body == written(n, OutcomeEnd::Interrupted);
                assert!(interrupted || record.body == written(n, OutcomeEnd::Ok), "writer {w}: torn: {record:?}");
                if let Body::Outcome(outcome) = &record.body {
                    assert!(ended.insert(outcome.key.clone()), "writer {w}: a second outcome of {}", outcome.key);
                    cut += u64::from(interrupted);
                }
            }
            let ledger = ledger(&format!("r{w}")).into();
            let shared = read_all::<LedgerBody>(store.as_ref(), &ledger).await.unwrap();
            assert_eq!(shared.len(), records.len(), "writer {w}: half a batch");
            kept += records.len();
        }
    }
    println!(
        "{}: {rounds} rounds of {WRITERS} writers killed, {kept} records: 0 acknowledged lost, 0 torn, 0 epochs back, 0 second outcomes; \
         {cut} effects were cut",
        place.scheme
    );
    assert!(cut > 0, "no kill ever fell between an intent and its outcome");
}

#[tokio::test]
async fn f18_a_buffered_batch_survives_sigkill_once_the_file_has_it() {
    for place in [Place::sqlite(), Place::sled()] {
        let mut other = Other::start("buffered", &place);
        assert_eq!(other.says().unwrap().0, "buffered");
        poll(|| async { place.holds("not synced").then_some(()) }).await;
        other.kill();
        let left = || std::fs::metadata(place.log()).unwrap().len();
        assert_ne!(left(), 0);
        let store = place.open();
        if place.scheme == "sqlite" {
            assert_eq!(left(), 0, "f17: what the dead process left unsynced was not synced by an open that is alone");
            assert_eq!(session(&store, "a").await.len(), 1, "shown before anybody took it");
        }
        let mut writer = store.open(&key("a"), None).await.unwrap();
        assert_eq!(writer.last(), Seq(2));
        writer.append(Batch::of([data(3)]), None).await.unwrap();
        let records = session(&store, "a").await;
        assert_eq!(
            records.iter().map(|record| record.body.clone()).collect::<Vec<_>>(),
            [data(1), words("not synced"), data(3)]
        );
    }
}

/// A descriptor of the database that is closed anywhere in a process drops all of its locks (POSIX), so nothing of ours may open it but
/// SQLite, which knows.
#[test]
fn f16_opening_a_store_again_and_closing_it_keeps_this_processs_write_lock() {
    let place = Place::sqlite();
    let _store = place.open();
    let writer = rusqlite::Connection::open(place.path()).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    drop(place.open());
    let mut other = Other::start("lock", &place);
    assert_eq!(other.says().unwrap(), ("locked".to_owned(), 1, 0), "two writers at once");
    writer.execute_batch("ROLLBACK").unwrap();
    let mut other = Other::start("lock", &place);
    assert_eq!(other.says().unwrap(), ("locked".to_owned(), 0, 0));
}

#[tokio::test]
async fn a_second_process_is_told_who_owns_the_sled_store() {
    let place = Place::sled();
    let mut other = Other::start("hold", &place);
    let (_, pid, _) = other.says().unwrap();
    match open_url(&place.url()).err() {
        Some(UrlError::Store(StoreError::Unusable { why, .. })) => {
            assert!(why.starts_with(&format!("process {pid} owns it")), "{why}");
        }
        refused => panic!("{refused:?}"),
    }
    other.kill();
    open_url(&place.url()).unwrap().open(&key("a"), None).await.unwrap();
}

/// Takes the session, writes until it is fenced, takes it again. Says each take before it writes.
async fn take_and_write(store: &Store, name: &str, takes: u64) {
    for _ in 0..takes {
        let mut writer = store.open(&key("a"), None).await.unwrap();
        say("took", writer.epoch().0, writer.last().0);
        loop {
            let body = Body::Data { name: name.to_owned(), value: json!(writer.epoch().0) };
            match writer.append(Batch::of([body]), None).await {
                Ok(_) => {}
                Err(AppendError::Fenced { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[tokio::test]
async fn b43_b46_a_second_process_takes_over_and_the_first_writes_nothing_more() {
    let place = Place::sqlite();
    let store = place.open();
    let mut rival = Other::start("rival", &place);
    let mut takes: Vec<(Epoch, Seq, &str)> = Vec::new();
    for _ in 0..rounds(40, 2_000) {
        // It holds the session and may be in the middle of an append.
        let (_, epoch, last) = rival.says().expect("the rival ended");
        takes.push((Epoch(epoch), Seq(last), "rival"));
        let mut mine = store.open(&key("a"), None).await.unwrap();
        takes.push((mine.epoch(), mine.last(), "mine"));
        loop {
            // Until the rival, fenced by now, has taken it back.
            let body = Body::Data { name: "mine".to_owned(), value: json!(mine.epoch().0) };
            match mine.append(Batch::of([body]), None).await {
                Ok(_) => {}
                Err(AppendError::Fenced { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    rival.kill();
    let records = session(&store, "a").await;
    assert!(records.len() >= takes.len() / 2, "hardly anything was written: {}", records.len());
    // Between a take and the next one lie records of that take's owner alone.
    let mut ends = takes.iter().skip(1).map(|(_, last, _)| *last).chain([Seq(records.len() as u64)]);
    for (at, (epoch, last, owner)) in takes.iter().enumerate() {
        assert_eq!(epoch.0, at as u64 + 1, "epochs have a gap");
        let end = ends.next().unwrap();
        let own = usize::try_from(last.0).unwrap()..usize::try_from(end.0).unwrap();
        for record in &records[own] {
            // The last take of all may have been followed by one nobody heard of.
            if at + 1 == takes.len() && record.epoch > *epoch {
                continue;
            }
            assert_eq!(
                record.epoch, *epoch,
                "{record:?} after the take of epoch {epoch} at {last} and before the next"
            );
            let Body::Data { name, value } = &record.body else { panic!("{record:?}") };
            assert_eq!((name.as_str(), value), (*owner, &json!(epoch.0)), "a record of another writer");
        }
    }
    println!("{} takeovers by two processes, {} records: 0 of an old owner after a take", takes.len(), records.len());
}

/// Each acknowledged group of one cost one sync of the log: fewer would be an acknowledgement before its sync.
#[test]
fn each_acknowledged_group_is_one_sync_of_the_log() {
    assert!(
        Command::new("strace").arg("-V").output().is_ok(),
        "the syncs are counted by strace: install it, or run testing/run"
    );
    for place in [Place::sqlite(), Place::sled()] {
        let trace = place.folder.path().join("trace");
        let mut strace = Command::new("strace");
        strace.args(["-f", "-y", "-e", "trace=fsync,fdatasync", "-o"]).arg(&trace);
        strace.arg(std::env::current_exe().unwrap());
        let mut other = Other::spawn(strace, "syncs", &place);
        assert_eq!(other.says().unwrap().0, "ready");
        assert_eq!(other.says().unwrap().0, "done");
        assert!(other.child.wait().unwrap().success());
        let trace = std::fs::read_to_string(&trace).unwrap();
        let log = format!("<{}>)", place.log().canonicalize().unwrap_or(place.log()).display());
        let syncs = trace.lines().filter(|line| line.contains(&log)).count() as u64;
        // The rest: making the tables, the take, checkpoints.
        assert!((SYNCED..SYNCED + 20).contains(&syncs), "{}: {syncs} syncs for {SYNCED} groups", place.scheme);
    }
}
