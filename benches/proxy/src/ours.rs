//! The proxy under measure: `agentrun-host` with a gate that quotes each request, holds the quote in a run's books, and books its price.
//! `memory` keeps the books folded and nothing else; any store URL makes each of the two records durable before the request goes on.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use agentrun_cap::{Books, Catalog, Date, Quote, Word, quote};
use agentrun_host::{
    Credential, Lease, ModelProxy, PaidRequest, Provider, ProviderConfig, Refusal, RequestEnd, RequestGate, Timeouts,
};
use agentrun_kernel::{
    Epoch, HoldId, LedgerBody, Record, RunId, SessionKey, SharedBatch, SharedLog, Store, Usd, open_url,
};
use async_trait::async_trait;
use tokio::sync::Mutex;

pub(crate) async fn serve(origin: &str, books: &str) {
    let proxy = ModelProxy::start(ProviderConfig {
        api: Provider::Anthropic,
        policy: Provider::Anthropic.policy(),
        origin: origin.parse().unwrap(),
        credential: Credential::from_text("made-up-credential-of-a-bench-0123456789".to_owned()).unwrap(),
        timeouts: Timeouts::default(),
    })
    .await
    .unwrap();
    let store = (books != "memory").then(|| open_url(books).unwrap());
    let gate = Gate {
        catalog: Arc::new(Catalog::bundled().unwrap()),
        payer: SessionKey::new("bench").unwrap(),
        log: SharedLog::Ledger(RunId::new("bench").unwrap()),
        books: Mutex::new(Books::new()),
        store,
    };
    gate.append(LedgerBody::Cap { cap: Some(Usd::from_pico(i64::MAX)) }).await;
    let (key, _guard) = proxy.admit(Arc::new(gate)).unwrap();
    crate::tell(&proxy.base_url(), key.as_str());
    std::future::pending::<()>().await;
}

struct Gate {
    catalog: Arc<Catalog>,
    payer: SessionKey,
    log: SharedLog,
    books: Mutex<Books>,
    store: Option<Store>,
}

impl Gate {
    /// The books are locked over the append, so that no try is lost to another.
    async fn append(&self, body: LedgerBody) {
        let mut books = self.books.lock().await;
        if let LedgerBody::Hold { quote, .. } = &body {
            books.admit(*quote).unwrap();
        }
        if let Some(store) = &self.store {
            store.append_at(&self.log, books.seq(), SharedBatch::Ledger(vec![body.clone()])).await.unwrap();
        }
        let record = Record { seq: books.seq().next(), epoch: Epoch(0), at: unix_ms(), body };
        books.fold([&record]).unwrap();
    }
}

#[async_trait]
impl RequestGate for Gate {
    async fn before(self: Arc<Self>, request: &PaidRequest) -> Result<Box<dyn Lease>, Refusal> {
        let quote = quote(&self.catalog, &request.facts, Date::of_unix_ms(unix_ms()))
            .map_err(|error| Refusal { word: Word::Unpriced, message: error.to_string() })?;
        let hold = HoldId::fresh();
        self.append(LedgerBody::Hold {
            id: hold.clone(),
            session: self.payer.clone(),
            epoch: Epoch::default(),
            what: quote.model.clone(),
            quote: quote.amount,
            catalog: quote.catalog.clone(),
        })
        .await;
        Ok(Box::new(Held { gate: self, hold, quote }))
    }
}

struct Held {
    gate: Arc<Gate>,
    hold: HoldId,
    quote: Quote,
}

#[async_trait]
impl Lease for Held {
    async fn after(self: Box<Self>, end: RequestEnd) {
        self.gate.append(end.ending(&self.hold, &self.quote, &self.gate.catalog)).await;
    }
}

pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}
