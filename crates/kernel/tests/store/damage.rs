//! Damage by hand: flipped bytes, cut files, zeroed pages, a full disk. Whatever is done to the files of a store, each session reads back
//! as it was acknowledged or the store says what is wrong; it never answers less, never something else, and never panics.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::suite::{data, key, numbers, session};
use agentrun_kernel::{Batch, Body, LogKey, SessionKey, Store, StoreError, UrlError, open_url, read_all};
use serde_json::json;
use tempfile::TempDir;

const SESSIONS: u64 = 12;
const RECORDS: u64 = 150;

/// A store at rest, copied for each damage.
struct Whole {
    folder: TempDir,
    scheme: &'static str,
}

/// What a damaged store answered.
#[derive(Debug, Default)]
struct Answers {
    whole: u64,
    refused_to_open: u64,
    damaged_sessions: u64,
}

impl Whole {
    async fn new(scheme: &'static str) -> Self {
        let folder = TempDir::new().unwrap();
        let whole = Self { folder, scheme };
        for part in 0..2 {
            let store = open_url(&whole.url()).unwrap();
            let mut writers = Vec::new();
            for n in 0..SESSIONS {
                writers.push(store.open(&name(n), None).await.unwrap());
            }
            for n in 1..=RECORDS / 2 {
                for writer in &mut writers {
                    writer.append(Batch::of([record(part * RECORDS / 2 + n)]), None).await.unwrap();
                }
            }
            drop((writers, store));
            whole.closed();
        }
        whole
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("whole/store")
    }

    fn url(&self) -> String {
        format!("{}:{}", self.scheme, self.path().display())
    }

    /// Until nothing of this process has the store's files open.
    fn closed(&self) {
        let within = self.folder.path().join("whole");
        for _ in 0..10_000 {
            let mut links =
                std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|link| link.ok()?.path().read_link().ok());
            if !links.any(|path| path.starts_with(&within)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the store is never closed");
    }

    /// Does `damage` to a copy and asks for everything.
    async fn damaged(&self, damage: impl FnOnce(&Path), answers: &mut Answers) {
        let copy = TempDir::new().unwrap();
        copy_all(&self.folder.path().join("whole"), copy.path());
        let path = copy.path().join("store");
        damage(&path);
        let store = match open_url(&format!("{}:{}", self.scheme, path.display())) {
            Ok(store) => store,
            Err(UrlError::Store(StoreError::Unusable { .. } | StoreError::Format { .. })) => {
                answers.refused_to_open += 1;
                return;
            }
            Err(other) => panic!("{other:?}"),
        };
        let mut all = true;
        for n in 0..SESSIONS {
            match read_all::<Body>(&*store, &LogKey::from(&name(n))).await {
                Ok(records) => {
                    let bodies: Vec<_> = records.into_iter().map(|record| record.body).collect();
                    let written: Vec<_> = (1..=RECORDS).map(record).collect();
                    assert!(bodies == written, "{} records, or others, without a word", bodies.len());
                }
                Err(StoreError::Corrupt { .. } | StoreError::Version { .. } | StoreError::Io(_)) => {
                    answers.damaged_sessions += 1;
                    all = false;
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        match store.heads(None, 100).await {
            Ok(heads) => assert_eq!(heads.len() as u64, SESSIONS, "a session is missing from the list"),
            Err(StoreError::Corrupt { .. } | StoreError::Io(_)) => all = false,
            Err(other) => panic!("{other:?}"),
        }
        answers.whole += u64::from(all);
    }
}

fn name(n: u64) -> SessionKey {
    key(&format!("session-{n}"))
}

/// Some as small as most are, some over several pages.
fn record(n: u64) -> Body {
    let text = format!("{n:04}").repeat(if n.is_multiple_of(10) { 2_000 } else { 60 });
    Body::Data { name: "n".to_owned(), value: json!(text) }
}

fn copy_all(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy_all(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// The file that holds the records.
fn records_of(scheme: &str, path: &Path) -> PathBuf {
    if scheme == "sqlite" { path.to_owned() } else { path.join("db") }
}

fn write_at(path: &Path, at: u64, change: impl FnOnce(&mut [u8]), length: usize) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at).unwrap();
    change(&mut bytes);
    file.write_all_at(&bytes, at).unwrap();
}

/// `AGENTRUN_FULL=1` tries more places.
fn places(few: u64, full: u64) -> u64 {
    if std::env::var_os("AGENTRUN_FULL").is_some_and(|value| value == "1") { full } else { few }
}

async fn flipped_bytes(scheme: &'static str) {
    let whole = Whole::new(scheme).await;
    let size = std::fs::metadata(records_of(scheme, &whole.path())).unwrap().len();
    let mut answers = Answers::default();
    let count = places(60, 2_000);
    for n in 0..count {
        // Spread over the file, at no fixed place of a page.
        let at = size / count * n + n * 2_654_435_761 % (size / count);
        let damage = |path: &Path| write_at(&records_of(scheme, path), at, |bytes| bytes[0] ^= 0x41, 1);
        whole.damaged(damage, &mut answers).await;
    }
    println!("{scheme}: {count} flipped bytes: {answers:?}");
    assert!(answers.refused_to_open + answers.damaged_sessions > 0, "nothing was hit: {answers:?}");
    assert!(answers.whole > 0, "every byte is fatal: {answers:?}");
}

#[tokio::test]
async fn sqlite_a_flipped_byte_is_told_or_harms_nothing() {
    flipped_bytes("sqlite").await;
}

#[tokio::test]
async fn sled_a_flipped_byte_is_told_or_harms_nothing() {
    flipped_bytes("sled").await;
}

async fn zeroed_pages_and_cut_files(scheme: &'static str) {
    let whole = Whole::new(scheme).await;
    let size = std::fs::metadata(records_of(scheme, &whole.path())).unwrap().len();
    let mut answers = Answers::default();
    let count = places(30, 300);
    for n in 0..count {
        let page = size / 4096 * n / count * 4096;
        let zeroed = |path: &Path| write_at(&records_of(scheme, path), page, |bytes| bytes.fill(0), 4096);
        whole.damaged(zeroed, &mut answers).await;
        let cut = |path: &Path| {
            let file = OpenOptions::new().write(true).open(records_of(scheme, path)).unwrap();
            // Nothing at all is a store that nobody has begun; anything less than all is damage.
            file.set_len(size * n / count + 1).unwrap();
        };
        whole.damaged(cut, &mut answers).await;
    }
    println!("{scheme}: {count} zeroed pages and {count} cut files: {answers:?}");
    assert!(answers.refused_to_open + answers.damaged_sessions > 0, "nothing was hit: {answers:?}");
}

#[tokio::test]
async fn sqlite_a_zeroed_page_and_a_cut_file_are_told() {
    zeroed_pages_and_cut_files("sqlite").await;
}

#[tokio::test]
async fn sled_a_zeroed_page_and_a_cut_file_are_told() {
    zeroed_pages_and_cut_files("sled").await;
}

fn snapshots(folder: &Path) -> Vec<PathBuf> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    names.filter(|entry| entry.file_name().to_string_lossy().starts_with("snap.")).map(|entry| entry.path()).collect()
}

fn refused(url: &str) -> String {
    match open_url(url).err() {
        Some(UrlError::Store(StoreError::Unusable { why, .. })) => why,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn sled_an_empty_snapshot_is_told_with_what_to_do_and_doing_it_helps() {
    let whole = Whole::new("sled").await;
    for damage in [Vec::new(), vec![7; 300]] {
        let [snapshot] = &snapshots(&whole.path())[..] else { panic!("not one snapshot") };
        std::fs::write(snapshot, damage).unwrap();
        let why = refused(&whole.url());
        let name = snapshot.file_name().unwrap().to_str().unwrap();
        assert!(why.contains(&format!("move `{name}` out of it")), "{why}");
        std::fs::rename(snapshot, whole.folder.path().join("moved")).unwrap();
        let store = open_url(&whole.url()).unwrap();
        for n in 0..SESSIONS {
            assert_eq!(session(&store, &format!("session-{n}")).await.len() as u64, RECORDS);
        }
        drop(store);
        whole.closed();
    }
}

/// sled takes the first damaged entry of its log for the end of it, and panics on some.
#[tokio::test]
async fn sled_a_damaged_log_without_a_snapshot_is_told() {
    let whole = Whole::new("sled").await;
    let size = std::fs::metadata(whole.path().join("db")).unwrap().len();
    let mut answers = Answers::default();
    let count = places(30, 300);
    for n in 0..count {
        let damage = |path: &Path| {
            for snapshot in snapshots(path) {
                std::fs::remove_file(snapshot).unwrap();
            }
            write_at(&path.join("db"), size / count * n, |bytes| bytes.fill(0x5A), 64);
        };
        whole.damaged(damage, &mut answers).await;
    }
    println!("sled: {count} damaged logs without a snapshot: {answers:?}");
    assert!(answers.refused_to_open > 0, "{answers:?}");
}

/// A disk with room for `kib` more in any one file: what a full one is to a store that is not alone on it. Answers what was
/// acknowledged, as another process said it.
fn fill_up(scheme: &str, path: &Path, kib: u64) -> (u64, String) {
    let program = std::env::current_exe().unwrap();
    let limited = format!(
        "trap '' XFSZ; ulimit -f {kib}; exec '{}' damage::part_that_fills_the_disk --exact --nocapture --test-threads=1",
        program.display()
    );
    let output = std::process::Command::new("bash")
        .args(["-c", &limited])
        .env("FILL_URL", format!("{scheme}:{}", path.display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said.lines().find_map(|line| line.split_once("acknowledged ")).map(|(_, line)| line.to_owned());
    let line = line.unwrap_or_else(|| panic!("{said}\n{}", String::from_utf8_lossy(&output.stderr)));
    let (count, answer) = line.split_once(' ').unwrap();
    (count.parse().unwrap(), answer.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part_that_fills_the_disk() {
    let Ok(url) = std::env::var("FILL_URL") else { return };
    let store: Store = open_url(&url).unwrap();
    let mut writer = store.open(&key("a"), None).await.unwrap();
    let mut acknowledged = 0;
    let answer = loop {
        let filling = writer.append(Batch::of([data(acknowledged + 1), record(10)]), None);
        match tokio::time::timeout(Duration::from_secs(30), filling).await.expect("the store hangs on a full disk") {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    println!("acknowledged {acknowledged} {answer:?}");
}

async fn a_full_disk(scheme: &'static str, kib: u64) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store");
    let (acknowledged, answer) = fill_up(scheme, &path, kib);
    assert!(acknowledged > 0, "{answer}");
    let typed = ["Refused(Busy(", "Refused(DiskLow", "Unknown(Poisoned("];
    assert!(typed.iter().any(|start| answer.starts_with(start)), "{answer}");
    // There is room again.
    let store = open_url(&format!("{scheme}:{}", path.display())).unwrap();
    let found = numbers(&store, "a").await;
    assert!(found.len() as u64 >= acknowledged, "{acknowledged} acknowledged, {} there", found.len());
    assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>());
    let mut writer = store.open(&key("a"), None).await.unwrap();
    writer.append(Batch::of([data(found.len() as u64 + 1)]), None).await.unwrap();
}

#[tokio::test]
async fn f19_sqlite_a_full_disk_is_a_typed_answer_and_loses_nothing() {
    for kib in [600, 2_000, 6_000] {
        a_full_disk("sqlite", kib).await;
    }
}

#[tokio::test]
async fn f19_sled_a_full_disk_is_a_typed_answer_and_loses_nothing() {
    for kib in [600, 2_000, 6_000] {
        a_full_disk("sled", kib).await;
    }
}
