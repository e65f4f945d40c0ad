//! The store in a sled folder keeps the promises of its folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::suite::{data, key, ledger, numbers, raise};
use agentrun_kernel::{AppendError, Batch, Epoch, OpenError, Seq, SledStore, Store, StoreError, open_url};
use tempfile::TempDir;

fn at(folder: &TempDir) -> PathBuf {
    folder.path().join("sessions")
}

fn open(path: &Path) -> Store {
    Arc::new(SledStore::open(path).unwrap())
}

fn why(path: impl AsRef<Path>) -> String {
    match SledStore::open(path.as_ref()).err() {
        Some(StoreError::Unusable { why, .. }) => why,
        other => panic!("{}: not refused as unusable: {other:?}", path.as_ref().display()),
    }
}

#[tokio::test]
async fn what_was_written_is_there_after_the_store_was_closed() {
    let folder = TempDir::new().unwrap();
    let big = "x".repeat(50_000);
    for epoch in 1..=20 {
        let store = open(&at(&folder));
        let mut writer = store.open(&key("a"), Some(Seq(2 * (epoch - 1)))).await.unwrap();
        assert_eq!(writer.epoch(), Epoch(epoch), "an epoch went back");
        let large = agentrun_kernel::Body::Data { name: "large".to_owned(), value: big.as_str().into() };
        writer.append(Batch::of([data(epoch), large]), None).await.unwrap();
        store.append_at(&ledger("r"), Seq(epoch - 1), raise("x")).await.unwrap();
    }
    assert_eq!(numbers(&open(&at(&folder)), "a").await, (1..=20).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_writer_keeps_its_store_open_and_another_open_finds_it() {
    let folder = TempDir::new().unwrap();
    let mut writer = open(&at(&folder)).open(&key("a"), None).await.unwrap();
    writer.append(Batch::of([data(1)]), None).await.unwrap();
    let store = open(&at(&folder));
    let mut next = store.open(&key("a"), None).await.unwrap();
    next.append(Batch::of([data(2)]), None).await.unwrap();
    assert!(matches!(writer.append(Batch::of([data(9)]), None).await, Err(AppendError::Fenced { .. })));
    assert_eq!(numbers(&store, "a").await, [1, 2]);
}

#[test]
fn a_path_that_can_be_no_store_is_refused_with_the_reason() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("file"), "text").unwrap();
    assert!(why(folder.path().join("file")).contains("it is a file"));
    assert!(why("/proc/nowhere").contains("cannot be made"));
    assert!(why(folder.path()).contains("holds other files"));
    assert!(!folder.path().join("db").exists(), "left alone");

    let other = folder.path().join("other");
    drop(sled::open(&other).unwrap().insert("theirs", "value").unwrap());
    assert!(why(&other).contains("another program's"));
    let theirs = sled::open(&other).unwrap();
    assert!(why(&other).contains("another program has"));
    drop(theirs);
}

#[test]
fn the_folder_and_its_records_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("deep/er");
    let store = open_url(&format!("sled:{}", path.display())).unwrap();
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(path.clone()), 0o700);
    assert_eq!(mode(path.join("db")), 0o600);
    assert!(!store.id().is_empty());
}

#[tokio::test]
async fn a_newer_format_is_refused() {
    let folder = TempDir::new().unwrap();
    drop(open(&at(&folder)));
    closed(&at(&folder));
    sled::open(at(&folder)).unwrap().insert("mformat", &2_u64.to_le_bytes()).unwrap();
    match SledStore::open(at(&folder)).err() {
        Some(StoreError::Format { found, known }) => assert_eq!((found.as_str(), known.as_str()), ("2", "1")),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn f16_a_log_moved_or_removed_under_its_owner_poisons_the_store() {
    for moved in [true, false] {
        let folder = TempDir::new().unwrap();
        let store = open(&at(&folder));
        let mut writer = store.open(&key("a"), None).await.unwrap();
        let db = at(&folder).join("db");
        if moved { std::fs::rename(&db, folder.path().join("elsewhere")) } else { std::fs::remove_file(&db) }.unwrap();
        let answer = writer.append(Batch::of([data(9)]), None).await;
        assert!(matches!(answer, Err(AppendError::Unknown(StoreError::Poisoned(_)))), "{answer:?}");
        let answer = store.open(&key("b"), None).await;
        assert!(matches!(answer, Err(OpenError::Store(StoreError::Poisoned(_)))), "{answer:?}");
        assert!(matches!(store.heads(None, 1).await, Err(StoreError::Poisoned(_))));
        assert!(matches!(SledStore::open(at(&folder)).err(), Some(StoreError::Poisoned(_))), "while it is held");
    }
}

/// Waits until this process has let the folder go, as another program would see it.
fn closed(path: &Path) {
    let locks = ["owner", "db"].map(|name| std::fs::File::open(path.join(name)).unwrap());
    for lock in locks {
        lock.lock().unwrap();
    }
}
