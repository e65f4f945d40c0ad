//! Real stores on a disk that fails and loses power: `disk.c`, preloaded into this test program run again. What was never synced is gone
//! after a cut, whatever the process was told.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use agentrun_kernel::{SledStore, SqliteStore, Store, StoreError};
use agentrun_testing::suites::Report;
use agentrun_testing::suites::store::{Data, Options, conform_with};
use tempfile::TempDir;

const CUT: &str = "f17_a_power_cut_loses_nothing_acknowledged_and_halves_no_batch";
const POISON: &str = "f17_a_failed_sync_is_unknown_and_poisons_the_store";

#[test]
fn f17_the_sqlite_store_keeps_its_word_over_power_cuts_and_failing_syncs() {
    let (said, folder) = run_again("sqlite", false);
    assert!(said.status.success(), "{}", text(&said));
    let syncs = std::fs::read_to_string(folder.path().join("syncs")).unwrap();
    assert!(syncs.lines().any(|line| line.ends_with("sessions.db-wal")), "the disk saw no sync of a log");
}

#[test]
fn f17_the_sled_store_keeps_its_word_over_power_cuts_and_failing_syncs() {
    let (said, folder) = run_again("sled", false);
    assert!(said.status.success(), "{}", text(&said));
    let syncs = std::fs::read_to_string(folder.path().join("syncs")).unwrap();
    assert!(syncs.lines().any(|line| line.ends_with("/db")), "the disk saw no sync of the log");
}

/// The disk is believed because it catches a drive that lies: a store whose syncs do nothing loses what it acknowledged.
#[test]
fn f17_a_build_whose_syncs_do_nothing_is_caught() {
    for store in ["sqlite", "sled"] {
        let (said, _folder) = run_again(store, true);
        assert!(!said.status.success(), "{store}: no sync reached the disk, and nothing was lost");
        let text = text(&said);
        let caught = text.lines().find(|line| line.starts_with("caught by: ")).unwrap_or_else(|| panic!("{text}"));
        assert!(caught.contains(CUT), "{store}: {caught}");
        assert!(!caught.contains(POISON), "{store}: {caught}");
    }
}

/// The part of the other process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part_on_the_disk() {
    let Ok(store) = std::env::var("STORE_ON_DISK") else { return };
    let disk =
        Arc::new(Disk { root: PathBuf::from(std::env::var_os("AGENTRUN_DISK").unwrap()), last: AtomicU64::new(0) });
    // Every sync copies a file, so few schedules: the many run on a plain disk.
    let options = Options { schedules: 200, ..Options::default() };
    let report = match store.as_str() {
        "sqlite" => {
            let open = |folder: &Path| Ok(Arc::new(SqliteStore::open(folder.join("sessions.db"))?) as Store);
            on(&disk, "SqliteStore on a failing disk", options, |data: Data| data.beside(), open).await
        }
        "sled" => {
            let open = |folder: &Path| Ok(Arc::new(SledStore::open(folder.join("store"))?) as Store);
            on(&disk, "SledStore on a failing disk", options, |data: Data| data, open).await
        }
        other => panic!("no store `{other}`"),
    };
    println!("{report}\n{}\ncaught by: {}", report.to_json(), report.failed().join(" "));
    assert!(report.passed());
}

async fn on(
    disk: &Arc<Disk>,
    subject: &str,
    options: Options,
    more: impl Fn(Data) -> Data,
    open: fn(&Path) -> Result<Store, StoreError>,
) -> Report {
    conform_with(options, subject, || more(disk.data(open))).await
}

struct Disk {
    root: PathBuf,
    last: AtomicU64,
}

impl Disk {
    /// A store in a folder of its own, which a power cut leaves behind for a copy of what was synced.
    fn data(self: &Arc<Self>, open: fn(&Path) -> Result<Store, StoreError>) -> Data {
        let id = Arc::new(Mutex::new(self.fresh()));
        let (disk, failing, cut) = (Arc::clone(self), Arc::clone(self), Arc::clone(self));
        let (at, of) = (Arc::clone(&id), Arc::clone(&id));
        Data::new(move || open(&disk.folder("live", *at.lock().unwrap())))
            .sync_faults(move |fails| text_of(failing.fail(*of.lock().unwrap(), fails)))
            .power_cuts(move || {
                let mut id = id.lock().unwrap();
                *id = cut.cut(*id).map_err(|error| error.to_string())?;
                Ok(())
            })
    }

    fn fresh(&self) -> u64 {
        let id = self.last.fetch_add(1, Ordering::SeqCst);
        std::fs::create_dir_all(self.folder("live", id)).unwrap();
        id
    }

    fn folder(&self, kind: &str, id: u64) -> PathBuf {
        self.root.join(kind).join(id.to_string())
    }

    fn fail(&self, id: u64, fails: bool) -> std::io::Result<()> {
        let flag = self.folder("failing", id);
        if !fails {
            return std::fs::remove_file(flag);
        }
        std::fs::create_dir_all(self.root.join("failing"))?;
        File::create(flag).map(drop)
    }

    /// Whoever still works on the old folder can do nothing to the new one.
    fn cut(&self, id: u64) -> std::io::Result<u64> {
        let next = self.fresh();
        let instant = File::create(self.root.join("lock"))?;
        instant.lock()?;
        let left = self.folder("synced", id);
        if left.is_dir() {
            copy(&left, &self.folder("live", next))?;
            copy(&left, &self.folder("synced", next))?;
        }
        Ok(next)
    }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// This test program again, in the part above, on a disk of its own.
fn run_again(store: &str, lies: bool) -> (Output, TempDir) {
    let folder = TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let library = root.join("disk.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/store_conformance/disk.c");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&library).arg(source).arg("-ldl");
    let made = compile.output().expect("a C compiler is needed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut program = Command::new(std::env::current_exe().unwrap());
    program
        .args(["disk::part_on_the_disk", "--exact", "--nocapture", "--test-threads=1"])
        .env("STORE_ON_DISK", store)
        .env("AGENTRUN_DISK", &root)
        .env("LD_PRELOAD", &library);
    if lies {
        program.env("AGENTRUN_DISK_LIES", "1");
    }
    let said = program.output().unwrap();
    println!("{}", text(&said));
    (said, folder)
}

fn text(said: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr))
}

fn text_of(done: std::io::Result<()>) -> Result<(), String> {
    done.map_err(|error| error.to_string())
}
