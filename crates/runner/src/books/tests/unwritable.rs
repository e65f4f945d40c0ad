//! A ledger that cannot be written lets nothing through (the report that a gateway sent what it could not reserve).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentrun_cap::{Catalog, Quote, RequestFacts, quote};
use agentrun_host::{Credential, ModelProxy, Provider, ProviderConfig, Timeouts};
use agentrun_kernel::{
    AppendError, Head, LogKey, OpenError, Page, Seq, SessionHead, SessionKey, SessionStore, SessionWriter, SharedBatch,
    SharedLog, SqliteStore, StopRaiser, Store, StoreError, Usd, Watch,
};
use async_trait::async_trait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::{LedgerError, RunLedger};
use super::{key, memory, run, session, usd};
use crate::gate::{AttemptGate, Limits, Trouble};

/// A bound on what must come; never met.
const PATIENCE: Duration = Duration::from_secs(60);

/// A provider that counts who knocks, and answers nobody.
async fn provider() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (origin, knocks) = (format!("http://{}", listener.local_addr().unwrap()), Arc::new(AtomicUsize::new(0)));
    let counted = knocks.clone();
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (origin, knocks)
}

#[tokio::test]
async fn f04_report_4_a_ledger_that_cannot_be_written_sends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let store: Store = Arc::new(SqliteStore::open(&file).unwrap());
    let session = session(&store, &key("a"), &run()).await;
    let ledger = Arc::new(RunLedger::open(store.clone(), &run(), Some(usd("10"))).await.unwrap());
    let limits = Limits { turns: None, requests: 100, budget: None };
    let catalog = Arc::new(Catalog::bundled().unwrap());
    let gate = Arc::new(AttemptGate::new(session.drive.clone(), ledger, catalog, limits, None, StopRaiser::new()));
    let _turn = gate.open_turn();

    let (origin, knocks) = provider().await;
    let proxy = ModelProxy::start(ProviderConfig {
        api: Provider::Anthropic,
        policy: Provider::Anthropic.policy(),
        origin: origin.parse().unwrap(),
        credential: Credential::from_text("sk-made-up-0123456789".to_owned()).unwrap(),
        timeouts: Timeouts::default(),
    })
    .await
    .unwrap();
    let (secret, _guard) = proxy.admit(gate.clone()).unwrap();

    // From here on nothing that is written has a file to be written to.
    std::fs::remove_file(&file).unwrap();

    let host = proxy.base_url().trim_start_matches("http://").to_owned();
    let body = r#"{"model":"claude-haiku-4-5","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}"#;
    let request = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: {host}\r\nx-api-key: {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        secret.as_str(),
        body.len()
    );
    let mut stream = TcpStream::connect(&host).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();

    assert!(answer.starts_with("HTTP/1.1 403"), "refused, in a status that is not retried: {answer}");
    assert!(answer.contains("agentrun refused this request"), "{answer}");
    assert!(matches!(gate.trouble(), Some(Trouble::Storage(_))), "{:?}", gate.trouble());
    assert_eq!(knocks.load(Ordering::SeqCst), 0, "not even a connection was made");
}

/// A store whose shared logs cannot be written.
struct ReadOnly(Store);

#[async_trait]
impl SessionStore for ReadOnly {
    async fn open(&self, key: &SessionKey, expected: Option<Seq>) -> Result<SessionWriter, OpenError> {
        self.0.open(key, expected).await
    }
    async fn read(&self, log: &LogKey, from: Seq, limit: usize) -> Result<Page, StoreError> {
        self.0.read(log, from, limit).await
    }
    async fn heads(&self, after: Option<&SessionKey>, limit: usize) -> Result<Vec<SessionHead>, StoreError> {
        self.0.heads(after, limit).await
    }
    async fn watch(&self, log: &LogKey) -> Result<Watch, StoreError> {
        self.0.watch(log).await
    }
    async fn append_at(&self, _: &SharedLog, _: Seq, _: SharedBatch) -> Result<Seq, AppendError> {
        Err(AppendError::Unknown(StoreError::Io("no space left on the device".to_owned())))
    }
    fn id(&self) -> &str {
        self.0.id()
    }
}

pub(super) fn quoted() -> Quote {
    let facts =
        RequestFacts { model: "claude-haiku-4-5".to_owned(), max_output: Some(1_000), ..RequestFacts::default() };
    quote(&Catalog::bundled().unwrap(), &facts, "2026-11-30".parse().unwrap()).unwrap()
}

#[tokio::test]
async fn f04_report_4_a_proxy_alone_gets_no_hold_from_a_ledger_that_cannot_be_written() {
    let (store, _) = memory();
    RunLedger::open(store.clone(), &run(), Some(usd("10"))).await.unwrap();
    let ledger = RunLedger::open(Arc::new(ReadOnly(store.clone())), &run(), None).await.unwrap();
    let error = ledger.hold_request(&key("proxy"), &quoted()).await.unwrap_err();
    assert!(matches!(error, LedgerError::Store(_)), "{error}");
    let head: Head = store.read(&LogKey::Shared(SharedLog::Ledger(run())), Seq(1), 0).await.unwrap().head;
    assert_eq!((head.seq, ledger.books().await.unwrap().held()), (Seq(1), Usd::ZERO));
}

#[tokio::test]
async fn b80_a_proxys_requests_write_totals_as_a_runs_do_and_end_once() {
    let (store, _) = memory();
    let ledger = RunLedger::open(store.clone(), &run(), Some(usd("10"))).await.unwrap();
    let mut paid = Usd::ZERO;
    for n in 0..agentrun_cap::TOTALS_EVERY {
        let hold = ledger.hold_request(&key("proxy"), &quoted()).await.unwrap();
        let end = super::booking(&hold, Usd::from_pico(1));
        assert_eq!(ledger.end_request(end.clone()).await.unwrap(), end);
        if n == 0 {
            let twice = ledger.end_request(end).await.unwrap_err();
            assert!(matches!(twice, LedgerError::Unfit(_)), "{twice}");
            let hold = ledger.hold_request(&key("proxy"), &quoted()).await.unwrap();
            let odd = ledger.end_request(super::booking(&hold, Usd::from_pico(-1))).await.unwrap();
            assert!(matches!(odd, agentrun_kernel::LedgerBody::Unknown { .. }), "{odd:?}");
        }
        paid = paid.checked_add(Usd::from_pico(1)).unwrap();
    }
    let records = super::records(&store, &run()).await;
    let totals = records.iter().filter(|it| matches!(it.body, agentrun_kernel::LedgerBody::Totals { .. })).count();
    assert_eq!(totals, 2, "of {} records", records.len());
    let books = super::super::read_books(&*store, &run()).await.unwrap();
    assert_eq!((books.booked(), books.unknown(), books.held()), (paid, quoted().amount, Usd::ZERO));
}
