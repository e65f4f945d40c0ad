//! `agentrun proxy`: the loopback model proxy alone, for a harness started by hand. No session and no turn: what holds here is the cap.
//! Every request is held in the ledger of a run of its own before it is sent, and ended there before its answer ends.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agentrun_cap::{Catalog, Denied, Quote, Word, quote};
use agentrun_host::{Lease, ModelProxy, PaidRequest, Refusal, RequestEnd, RequestGate, Retry, Steadfast};
use agentrun_kernel::{HoldId, LedgerBody, RunId, SessionKey, Store, Usd};
use agentrun_runner::{LedgerError, RunLedger};
use async_trait::async_trait;
use serde::Serialize;
use serde_json::json;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use crate::args::ProxyArgs;
use crate::credential::Secrets;
use crate::exit::{Exit, Failure};
use crate::signals::Signals;
use crate::{output, price, run, stores};

/// How long requests in flight may go on after the first signal.
const DRAIN: Duration = Duration::from_secs(10);

pub(crate) async fn proxy(url: &str, args: &ProxyArgs, secrets: &Secrets) -> Result<Exit, Failure> {
    // All that can be wrong with the input is found before the store is made.
    let catalog = price::catalog(args.catalog.as_deref())?;
    let provider = args.provider;
    let upstream = run::provider_at(provider, args.base_url.as_deref(), args.credential_file.as_deref(), secrets)?;
    let retry = Retry { again: args.retries, ..Retry::NEVER };
    let steadfast = Steadfast { retry, fallback: Vec::new() };
    let proxy = ModelProxy::start_with(upstream, steadfast).await.map_err(|error| Failure::again(error.to_string()))?;
    let store = stores::open(url).await?;
    let run = SessionKey::new(format!("proxy-{}", uuid::Uuid::now_v7()))?;
    let gate = Gate::open(store, run, args.cap, catalog, args.json).await?;
    let mut signals =
        Signals::new().map_err(|error| Failure::internal(format!("signals cannot be handled: {error}")))?;
    let (key, _guard) = proxy.admit(gate.clone()).map_err(|error| Failure::internal(error.to_string()))?;

    let (base, run) = (proxy.base_url(), &gate.run);
    if args.json {
        output::json_line(&json!({"type": "proxy", "url": base, "key": key.as_str(), "run": run}));
    } else {
        output::text(&format!("url  {base}\nkey  {}\nrun  {run}", key.as_str()));
    }
    if stores::file_of(url).is_some() {
        output::note(&format!("its cap and what it spent: agentrun cap {run} --store {url}"));
    }

    signals.next().await;
    // Lives until the bill is told, so that nothing is admitted behind it.
    let mut ended = pin!(gate.open.write());
    let patience = async {
        output::note(&format!(
            "\nstopping: nothing new begins, requests in flight have {} s; once more to end at once",
            DRAIN.as_secs()
        ));
        tokio::time::sleep(DRAIN).await;
    };
    let _all_ended = tokio::select! {
        // In this order: when the note is read, nothing new begins any more.
        biased;
        all = &mut ended => Some(all),
        () = patience => None,
        _ = signals.next() => None,
    };
    gate.bill().await?;
    Ok(Exit::Done)
}

/// The gate of the proxy's one key.
struct Gate {
    ledger: RunLedger,
    run: RunId,
    /// Whom the holds are recorded for: the run's own name, which no session has.
    payer: SessionKey,
    catalog: Arc<Catalog>,
    as_json: bool,
    /// Read by each admitted request until it is booked. The stop writes: from its first try on nobody else can read.
    open: Arc<RwLock<()>>,
    admitted: AtomicU64,
}

/// One line about one request. `end` is the word of the ledger record that ended its hold, or `denied` where there was none.
#[derive(Serialize)]
struct Line<'a> {
    r#type: &'static str,
    model: &'a str,
    usd: Usd,
    unknown_usd: Usd,
    end: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

impl Gate {
    /// A new run with its cap.
    async fn open(
        store: Store,
        payer: SessionKey,
        cap: Option<Usd>,
        catalog: Arc<Catalog>,
        as_json: bool,
    ) -> Result<Arc<Self>, Failure> {
        let run = RunId::from(&payer);
        let ledger = RunLedger::open(store, &run, cap).await.map_err(|error| match error {
            LedgerError::NegativeCap(_) => Failure::usage(error.to_string()),
            error => Failure::again(error.to_string()),
        })?;
        Ok(Arc::new(Self { ledger, run, payer, catalog, as_json, open: Arc::default(), admitted: AtomicU64::new(0) }))
    }

    async fn admit(self: &Arc<Self>, request: &PaidRequest) -> Result<Held, Refusal> {
        let refused = |denied: &Denied| Refusal { word: denied.word, message: denied.to_string() };
        let Ok(open) = self.open.clone().try_read_owned() else {
            return Err(Refusal { word: Word::Stopped, message: "the proxy is being stopped".to_owned() });
        };
        let quote =
            quote(&self.catalog, &request.facts, price::today()).map_err(|error| refused(&Denied::from(error)))?;
        let hold = match self.ledger.hold_request(&self.payer, &quote).await {
            Ok(hold) => hold,
            Err(LedgerError::Denied(denied)) => return Err(refused(&denied)),
            Err(error) => return Err(Refusal { word: Word::Stopped, message: error.to_string() }),
        };
        self.admitted.fetch_add(1, Ordering::Relaxed);
        Ok(Held { gate: self.clone(), hold, quote, _open: open })
    }

    fn tell(&self, line: &Line<'_>) {
        if self.as_json {
            output::json_line(line);
            return;
        }
        let Line { model, usd, unknown_usd, end, why, .. } = line;
        let unknown = if *unknown_usd > Usd::ZERO { format!(", ${unknown_usd} unknown") } else { String::new() };
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        output::text(&format!("{model}  ${usd}{unknown}  {end}{why}"));
    }

    /// The last line. What is still held has no bill either, so it counts as unknown.
    async fn bill(&self) -> Result<(), Failure> {
        let books = self.ledger.books().await.map_err(|error| Failure::again(error.to_string()))?;
        let requests = self.admitted.load(Ordering::Relaxed);
        let (usd, unknown) = (books.booked(), books.unknown().saturating_add(books.held()));
        if self.as_json {
            output::json_line(&json!({"type": "bill", "requests": requests, "usd": usd, "unknown_usd": unknown}));
        } else {
            let requests = output::counted(requests, "request");
            output::text(&format!("{requests}, ${usd}, and ${unknown} unknown"));
        }
        Ok(())
    }
}

#[async_trait]
impl RequestGate for Gate {
    async fn before(self: Arc<Self>, request: &PaidRequest) -> Result<Box<dyn Lease>, Refusal> {
        match self.admit(request).await {
            Ok(held) => Ok(Box::new(held)),
            Err(refusal) => {
                let why = refusal.to_string();
                self.tell(&Line {
                    r#type: "request",
                    model: &request.model,
                    usd: Usd::ZERO,
                    unknown_usd: Usd::ZERO,
                    end: "denied",
                    why: Some(&why),
                });
                Err(refusal)
            }
        }
    }
}

/// One admitted request.
struct Held {
    gate: Arc<Gate>,
    hold: HoldId,
    quote: Quote,
    _open: OwnedRwLockReadGuard<()>,
}

#[async_trait]
impl Lease for Held {
    async fn after(self: Box<Self>, end: RequestEnd) {
        let Self { gate, hold, quote, _open } = *self;
        let ending = end.ending(&hold, &quote, &gate.catalog);
        let ending = gate.ledger.end_request(ending).await.unwrap_or_else(|error| {
            // The hold stays and counts in full, which is what the line then says.
            output::note(&format!("agentrun: a request's end is not in the ledger: {error}"));
            LedgerBody::Unknown { hold, why: error.to_string() }
        });
        let line = Line {
            r#type: "request",
            model: &quote.model,
            usd: Usd::ZERO,
            unknown_usd: Usd::ZERO,
            end: "unknown",
            why: None,
        };
        gate.tell(&match &ending {
            LedgerBody::Booking { amount, model, .. } => {
                Line { model: model.as_deref().unwrap_or(&quote.model), usd: *amount, end: "booked", ..line }
            }
            LedgerBody::Release { proof, .. } => Line { end: "released", why: Some(proof), ..line },
            LedgerBody::Unknown { why, .. } => Line { unknown_usd: quote.amount, why: Some(why), ..line },
            _ => line,
        });
    }
}
