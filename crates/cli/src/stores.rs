//! Opening the store a command names, and reading a session from it. Commands that only read never make a store where there is none.

use std::path::{Path, PathBuf};

use agentrun_cap::Books;
use agentrun_kernel::{
    Body, Epoch, LedgerBody, LogKey, Record, RunId, Seq, SessionKey, SessionState, SharedLog, Store, Usd, open_url,
    read_all,
};
use agentrun_runner::{LedgerError, read_books};

use crate::exit::Failure;

/// The file of a `sqlite:` URL, or the folder of a `sled:` one: the place of a store on disk.
pub(crate) fn file_of(url: &str) -> Option<&Path> {
    url.strip_prefix("sqlite:").or_else(|| url.strip_prefix("sled:")).filter(|path| !path.is_empty()).map(Path::new)
}

/// Opens a store, and makes it if it is not there.
pub(crate) async fn open(url: &str) -> Result<Store, Failure> {
    let url = url.to_owned();
    let opened = tokio::task::spawn_blocking(move || open_url(&url)).await;
    let store = opened.map_err(|lost| Failure::internal(format!("opening the store failed: {lost}")))??;
    Ok(store)
}

/// Opens a store that must be there.
pub(crate) async fn existing(url: &str) -> Result<Store, Failure> {
    match file_of(url) {
        Some(path) if !path.exists() => Err(Failure::usage(format!(
            "there is no store at {}; run a node first, or name another store with --store",
            path.display()
        ))),
        _ => open(url).await,
    }
}

/// Where the private homes of a store's sessions go: beside a store on disk, so that whoever resumes there also clears what a crash left.
pub(crate) fn homes(url: &str) -> PathBuf {
    let folder = file_of(url)
        .and_then(|path| std::path::absolute(path).ok())
        .and_then(|path| path.parent().map(|it| it.join("homes")));
    folder.unwrap_or_else(|| std::env::temp_dir().join(format!("agentrun-homes-{}", std::process::id())))
}

/// A session's records; none for a key nobody used.
pub(crate) async fn records(store: &Store, key: &SessionKey) -> Result<Vec<Record>, Failure> {
    read_all::<Body>(&**store, &LogKey::from(key)).await.map_err(|error| Failure::store(&error))
}

/// A session's records and their fold, which must be there.
pub(crate) async fn session(
    store: &Store,
    url: &str,
    key: &SessionKey,
) -> Result<(Vec<Record>, SessionState), Failure> {
    let records = records(store, key).await?;
    if records.is_empty() {
        let head = store.read(&LogKey::from(key), Seq(1), 0).await.map_err(|error| Failure::store(&error))?.head;
        if head.epoch > Epoch(0) {
            return Err(Failure::usage(format!(
                "session `{key}` has no records in {url}: it was removed, or nothing was written after it was opened"
            )));
        }
        return Err(Failure::usage(format!(
            "there is no session `{key}` in {url}; `agentrun sessions --store {url}` lists those there are"
        )));
    }
    let state = SessionState::fold(&records);
    Ok((records, state))
}

/// A run's money, as its ledger says now; empty for a run that has none.
pub(crate) async fn books(store: &Store, run: &RunId) -> Result<Books, Failure> {
    read_books(&**store, run).await.map_err(|error| of_ledger(run, error))
}

/// Why a run's ledger cannot be read.
pub(crate) fn of_ledger(run: &RunId, error: LedgerError) -> Failure {
    match error {
        LedgerError::Store(error) => Failure::store(&error),
        LedgerError::Fault(fault) => {
            Failure::refused(format!("{}: {fault}", LogKey::from(SharedLog::Ledger(run.clone()))))
        }
        other => Failure::internal(other.to_string()),
    }
}

/// The cap a run began with; `None` for a run without one, or without a ledger.
pub(crate) async fn first_cap(store: &Store, run: &RunId) -> Result<Option<Usd>, Failure> {
    let log = LogKey::from(SharedLog::Ledger(run.clone()));
    let page = store.read(&log, Seq(1), 1).await.map_err(|error| Failure::store(&error))?;
    let records = page.records::<LedgerBody>().map_err(|error| Failure::store(&error))?;
    Ok(records.into_iter().find_map(|record| if let LedgerBody::Cap { cap } = record.body { cap } else { None }))
}
