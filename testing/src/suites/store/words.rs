//! What the cases write and how they look at it.

use std::sync::Arc;
use std::time::Duration;

use agentrun_kernel::{
    Batch, Body, Durability, Frame, Head, InboxBody, LedgerBody, LogKey, NativeWrite, Record, RunId, Seq, SessionKey,
    SharedAppend, SharedBatch, SharedLog, Store, StoreError, SubmissionId, Usd, Watch, read_all,
};

/// How long a case waits for what must come by itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// Fails the case unless the answer is this refusal.
macro_rules! refused {
    ($answer:expr, $pattern:pat $(if $guard:expr)?) => {
        match $answer {
            $pattern $(if $guard)? => {}
            other => {
                let seen = other.map(|_| "done");
                return Err($crate::suites::failure::Failure(format!(
                    "expected {}, answered {seen:?}",
                    stringify!($pattern)
                )));
            }
        }
    };
}

pub(super) use refused;

pub(super) use crate::suites::failure::{Answer, Failure, ensure, same};

/// An ability's own failure, which is not the store's.
pub(super) fn rigged(done: Result<(), String>) -> Result<(), Failure> {
    done.map_err(|why| Failure(format!("the test rig itself failed: {why}")))
}

pub(super) fn key(name: &str) -> Result<SessionKey, Failure> {
    Ok(SessionKey::new(name)?)
}

pub(super) fn log(name: &str) -> Result<LogKey, Failure> {
    Ok(LogKey::from(&key(name)?))
}

pub(super) fn data(n: u64) -> Body {
    Body::Data { name: "n".to_owned(), value: n.into() }
}

pub(super) fn one(n: u64) -> Batch {
    Batch::of([data(n)])
}

pub(super) fn native(bytes: &[u8]) -> Body {
    Body::Native(NativeWrite { stream: "s".to_owned(), offset: 0, bytes: Arc::from(bytes) })
}

pub(super) fn buffered(n: u64) -> Batch {
    Batch { bodies: vec![data(n)], durability: Durability::Buffered }
}

pub(super) fn ledger(run: &str) -> Result<SharedLog, Failure> {
    Ok(SharedLog::Ledger(RunId::new(run)?))
}

pub(super) fn inbox(session: &str) -> Result<SharedLog, Failure> {
    Ok(SharedLog::Inbox(key(session)?))
}

pub(super) fn retract() -> SharedBatch {
    SharedBatch::Inbox(vec![InboxBody::Retract { id: SubmissionId::fresh() }])
}

pub(super) fn raise(id: &str) -> SharedBatch {
    SharedBatch::Ledger(vec![LedgerBody::Raise { id: id.to_owned(), cap: Usd::default() }])
}

pub(super) fn also(run: &str, expected: Seq, id: &str) -> Result<Option<SharedAppend>, Failure> {
    Ok(Some(SharedAppend { log: ledger(run)?, expected, batch: raise(id) }))
}

pub(super) async fn session(store: &Store, name: &str) -> Result<Vec<Record>, Failure> {
    Ok(read_all::<Body>(store.as_ref(), &log(name)?).await?)
}

/// The numbers of a session's data records, in order.
pub(super) async fn numbers(store: &Store, name: &str) -> Result<Vec<u64>, Failure> {
    let records = session(store, name).await?;
    let number = |record: &Record| match &record.body {
        Body::Data { value, .. } => value.as_u64(),
        _ => None,
    };
    Ok(records.iter().filter_map(number).collect())
}

pub(super) async fn raises(store: &Store, run: &str) -> Result<Vec<String>, Failure> {
    let records = read_all::<LedgerBody>(store.as_ref(), &ledger(run)?.into()).await?;
    let id = |record: &Record<LedgerBody>| match &record.body {
        LedgerBody::Raise { id, .. } => Some(id.clone()),
        _ => None,
    };
    Ok(records.iter().filter_map(id).collect())
}

/// Everything a store shows of a log, byte for byte.
pub(super) async fn bytes_of(store: &Store, log: &LogKey) -> Result<(Vec<Frame>, Head), StoreError> {
    let page = store.read(log, Seq(1), 10_000).await?;
    Ok((page.frames, page.head))
}

/// Asks until there is an answer.
pub(super) async fn poll<T, F: Future<Output = Result<Option<T>, Failure>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> Result<T, Failure> {
    let asking = async {
        loop {
            if let Some(answer) = ask().await? {
                return Ok(answer);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(answer) => answer,
        Err(_) => Err(Failure(format!("{what} did not come in {} s", PATIENCE.as_secs()))),
    }
}

pub(super) async fn until(watch: &mut Watch, wanted: Head) -> Result<(), Failure> {
    let seen = async {
        while watch.head() != wanted {
            if watch.changed().await.is_none() {
                return Err(Failure(format!("the watch ended before it showed {wanted:?}")));
            }
        }
        Ok(())
    };
    match tokio::time::timeout(PATIENCE, seen).await {
        Ok(answer) => answer,
        Err(_) => Err(Failure(format!("the watch never showed {wanted:?}, it is at {:?}", watch.head()))),
    }
}

/// Hands an append or open over and leaves before the answer: polled once, dropped.
pub(super) async fn abandon<T>(call: impl Future<Output = T>) -> Option<T> {
    let mut call = std::pin::pin!(call);
    std::future::poll_fn(|context| match call.as_mut().poll(context) {
        std::task::Poll::Ready(answer) => std::task::Poll::Ready(Some(answer)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}
