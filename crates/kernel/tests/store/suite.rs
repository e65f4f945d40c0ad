//! What the tests of the stores share: two handles on the same data, and words to write and read. What every store must do is the public
//! conformance suite's (`agentrun-testing`); here is what only a backend of ours promises.

use std::time::Duration;

use agentrun_kernel::*;
use serde_json::json;

/// Two handles on the same data.
pub(crate) struct Both {
    pub(crate) store: Store,
    pub(crate) again: Store,
    /// Opens one more.
    pub(crate) reopen: Box<dyn Fn() -> Store + Send + Sync>,
}

pub(crate) fn key(name: &str) -> SessionKey {
    SessionKey::new(name).unwrap()
}

pub(crate) fn data(n: u64) -> Body {
    Body::Data { name: "n".to_owned(), value: json!(n) }
}

pub(crate) fn buffered(body: Body) -> Batch {
    Batch { bodies: vec![body], durability: Durability::Buffered }
}

pub(crate) fn ledger(run: &str) -> SharedLog {
    SharedLog::Ledger(RunId::new(run).unwrap())
}

pub(crate) fn raise(id: &str) -> SharedBatch {
    SharedBatch::Ledger(vec![LedgerBody::Raise { id: id.to_owned(), cap: Usd::default() }])
}

pub(crate) async fn session(store: &Store, name: &str) -> Vec<Record> {
    read_all::<Body>(store.as_ref(), &LogKey::from(&key(name))).await.unwrap()
}

pub(crate) async fn numbers(store: &Store, name: &str) -> Vec<u64> {
    session(store, name)
        .await
        .into_iter()
        .filter_map(|record| match record.body {
            Body::Data { value, .. } => value.as_u64(),
            _ => None,
        })
        .collect()
}

/// Asks until there is an answer, for 20 s at most.
pub(crate) async fn poll<T, F: Future<Output = Option<T>>>(mut ask: impl FnMut() -> F) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), asking).await.expect("no answer in 20 s")
}
