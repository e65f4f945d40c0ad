//! Leases under a client that hangs up wherever it can: no request that was let through is without its one end, and none is sent that nobody
//! held. `AGENTRUN_FULL=1` makes it 100,000 requests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // Tests: a failure is a report.

mod common;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentrun_cap::{Books, Catalog, Date, quote};
use agentrun_host::{
    Credential, Lease, ModelProxy, Origin, PaidRequest, Provider, ProviderConfig, Refusal, RequestEnd, RequestGate,
    Timeouts,
};
use agentrun_kernel::{Epoch, HoldId, LedgerBody, Record, Seq, SessionKey, Usd};
use async_trait::async_trait;
use common::{Act, CANARY, EVENTS, JSON, LAST_CHUNK, Session, Upstream, chunk, message, stream_head};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// A bound on what must come; never met.
const PATIENCE: Duration = Duration::from_secs(120);
/// Clients at a time.
const CLIENTS: usize = 32;

/// How many requests: a part of them in every run.
fn requests() -> usize {
    if std::env::var_os("AGENTRUN_FULL").is_some() { 100_000 } else { 2_000 }
}

/// A run's books in memory, as a gate keeps them: every hold and every end is a record that they take or refuse.
struct Ledger {
    books: Mutex<Books>,
    catalog: Catalog,
    session: SessionKey,
    ends: Mutex<HashMap<&'static str, usize>>,
    dropped: AtomicUsize,
    open: tokio::sync::watch::Sender<usize>,
}

impl Ledger {
    fn new() -> Arc<Self> {
        let ledger = Self {
            books: Mutex::default(),
            catalog: Catalog::bundled().unwrap(),
            session: SessionKey::new("s").unwrap(),
            ends: Mutex::default(),
            dropped: AtomicUsize::new(0),
            open: tokio::sync::watch::Sender::new(0),
        };
        ledger.append(LedgerBody::Cap { cap: None });
        Arc::new(ledger)
    }

    fn append(&self, body: LedgerBody) {
        let mut books = self.books.lock().unwrap();
        let record = Record { seq: books.seq().next(), epoch: Epoch(0), at: 0, body };
        books.fold([&record]).unwrap();
    }
}

struct Held {
    ledger: Arc<Ledger>,
    hold: HoldId,
    quote: agentrun_cap::Quote,
    ended: bool,
}

#[async_trait]
impl RequestGate for Ledger {
    async fn before(self: Arc<Self>, request: &PaidRequest) -> Result<Box<dyn Lease>, Refusal> {
        // Where a store would be waited for.
        tokio::task::yield_now().await;
        let quote = quote(&self.catalog, &request.facts, Date::of_unix_ms(1_790_000_000_000)).unwrap();
        let hold = HoldId::fresh();
        self.append(LedgerBody::Hold {
            id: hold.clone(),
            session: self.session.clone(),
            epoch: Epoch(1),
            what: quote.model.clone(),
            quote: quote.amount,
            catalog: quote.catalog.clone(),
        });
        self.open.send_modify(|open| *open += 1);
        Ok(Box::new(Held { ledger: self, hold, quote, ended: false }))
    }
}

#[async_trait]
impl Lease for Held {
    async fn after(mut self: Box<Self>, end: RequestEnd) {
        tokio::task::yield_now().await;
        let name = match &end {
            RequestEnd::NotSent { .. } => "not sent",
            RequestEnd::Refused { .. } => "refused",
            RequestEnd::Complete { .. } => "complete",
            RequestEnd::Unknown { .. } => "unknown",
        };
        *self.ledger.ends.lock().unwrap().entry(name).or_default() += 1;
        self.ledger.append(end.ending(&self.hold, &self.quote, &self.ledger.catalog));
        self.ended = true;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.ended {
            self.ledger.dropped.fetch_add(1, Ordering::SeqCst);
        }
        self.ledger.open.send_modify(|open| *open -= 1);
    }
}

/// A provider that answers each request in its turn in one of these ways. Counts whole requests.
async fn provider() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (origin, served) = (format!("http://{}", listener.local_addr().unwrap()), Arc::new(AtomicUsize::new(0)));
    let real = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace("claude-x", "claude-sonnet-4-5").into_bytes();
    let events = |events: &[&str]| {
        let chunks = events.iter().flat_map(|event| chunk(event.replace("claude-x", "claude-sonnet-4-5")));
        [stream_head(), chunks.collect()].concat()
    };
    let whole_message = {
        let message = real(message());
        let body = message[message.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4..].to_vec();
        common::answer(200, JSON, std::str::from_utf8(&body).unwrap())
    };
    // In pieces, with a chance for everybody else between them.
    let ways: Arc<[Vec<Vec<u8>>]> = Arc::from([
        vec![whole_message],
        vec![events(&EVENTS[..2]), events(&EVENTS[2..])[stream_head().len()..].to_vec(), LAST_CHUNK.to_vec()],
        vec![common::answer(529, JSON, "{}")],
        vec![events(&EVENTS[..3])],
    ]);
    let counted = served.clone();
    tokio::spawn(async move {
        loop {
            let Ok((mut stream, _)) = listener.accept().await else { return };
            let (counted, ways) = (counted.clone(), ways.clone());
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                loop {
                    let end = loop {
                        if let Some(at) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
                            break at + 4;
                        }
                        more(&mut stream, &mut bytes).await?;
                    };
                    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
                    let length: usize = common::header(&head, "content-length").unwrap().parse().unwrap();
                    while bytes.len() < end + length {
                        more(&mut stream, &mut bytes).await?;
                    }
                    bytes.drain(..end + length);
                    let nth = counted.fetch_add(1, Ordering::SeqCst);
                    let way = &ways[nth % ways.len()];
                    for piece in way {
                        stream.write_all(piece).await.ok()?;
                        tokio::task::yield_now().await;
                    }
                    if nth % ways.len() == ways.len() - 1 {
                        // Cut in the middle of its answer.
                        return None::<()>;
                    }
                }
            });
        }
    });
    (origin, served)
}

async fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
    let mut piece = [0; 4096];
    let read = stream.read(&mut piece).await.ok().filter(|read| *read > 0)?;
    bytes.extend_from_slice(&piece[..read]);
    Some(())
}

/// One client's request, hung up somewhere: in its head, in its body, behind it, in the answer's head, somewhere in the answer, at its end.
async fn hangs_up(nth: usize, port: u16, request: &[u8], open: &mut tokio::sync::watch::Receiver<usize>) {
    let Ok(mut socket) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let written = match nth % 8 {
        0 => nth * 31 % request.len(),
        1 => request.len() - 1 - nth % 50,
        _ => request.len(),
    };
    if socket.write_all(&request[..written]).await.is_err() {
        return;
    }
    let mut sink = vec![0; 1 + nth * 37 % 1_500];
    match nth % 8 {
        0..=2 => {}
        // As soon as something is held: while the gate writes, or while it is being sent.
        3 => drop(timeout(PATIENCE, open.wait_for(|open| *open > 0)).await),
        4 => tokio::task::yield_now().await,
        5 => drop(socket.read(&mut sink[..1]).await),
        6 => drop(socket.read_exact(&mut sink).await),
        _ => while matches!(socket.read(&mut sink).await, Ok(1..)) {},
    }
    if nth.is_multiple_of(3) {
        // A reset, not an orderly end.
        let _ = socket.set_zero_linger();
    }
}

#[tokio::test]
async fn b91_report_3_a_client_that_hangs_up_at_every_point_leaves_no_hold_without_its_end() {
    let (origin, served) = provider().await;
    let ledger = Ledger::new();
    let proxy = ModelProxy::start(ProviderConfig {
        api: Provider::Anthropic,
        policy: Provider::Anthropic.policy(),
        origin: origin.parse::<Origin>().unwrap(),
        credential: Credential::from_text(CANARY.to_owned()).unwrap(),
        timeouts: Timeouts::default(),
    })
    .await
    .unwrap();
    let (key, _guard) = proxy.admit(ledger.clone()).unwrap();
    let port: u16 = proxy.base_url().rsplit(':').next().unwrap().parse().unwrap();
    let body = common::BODY.replace("claude-x", "claude-sonnet-4-5");
    let request: Arc<[u8]> = Arc::from(
        format!(
            "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nx-api-key: {}\r\n{JSON}Connection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            key.as_str(),
            body.len()
        )
        .into_bytes(),
    );
    let (clients, all) = (Arc::new(Semaphore::new(CLIENTS)), requests());
    for nth in 0..all {
        let room = clients.clone().acquire_owned().await.unwrap();
        let (request, mut open) = (request.clone(), ledger.open.subscribe());
        tokio::spawn(async move {
            hangs_up(nth, port, &request, &mut open).await;
            drop(room);
        });
    }
    drop(timeout(PATIENCE, clients.acquire_many(CLIENTS as u32)).await.expect("a client never ended").unwrap());
    // What is on its way in the proxy comes to its end by itself: first what it reads, then what it asked for.
    let quiet = async {
        let mut open = ledger.open.subscribe();
        let mut seen = Seq::START;
        loop {
            open.wait_for(|open| *open == 0).await.unwrap();
            let now = ledger.books.lock().unwrap().seq();
            if now == seen {
                return;
            }
            seen = now;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(PATIENCE, quiet).await.expect("a lease never ended");

    let books = ledger.books.lock().unwrap();
    let ends = ledger.ends.lock().unwrap().clone();
    let ended: usize = ends.values().sum();
    println!(
        "{all} requests: {} sent, ends {ends:?}, ${} booked, ${} unknown",
        served.load(Ordering::SeqCst),
        books.booked(),
        books.unknown()
    );
    assert_eq!(ledger.dropped.load(Ordering::SeqCst), 0, "leases were dropped without an end");
    assert_eq!((books.open_holds().count(), books.held()), (0, Usd::ZERO), "holds without an end");
    assert_eq!(books.seq().0 as usize, 1 + 2 * ended, "a hold and one end each");
    let count = |name: &str| ends.get(name).copied().unwrap_or_default();
    assert_eq!(served.load(Ordering::SeqCst), ended - count("not sent"), "what was sent was held, each once");
    // How many get so far before they hang up is the machine's to say; some of each kind must.
    assert!(ended > all / 20 && count("complete") > 0 && count("unknown") > 0, "{ends:?}");
}

#[tokio::test]
async fn b91_a_request_is_never_written_twice_to_a_connection_that_dies_with_it() {
    // The first answer leaves the connection open; the second request is taken whole, and the connection dies. A client library's own retry
    // of pooled connections would send it once more.
    let upstream = Upstream::start(vec![vec![Act::Send(message())], vec![Act::Close]]).await;
    let mut session = Session::before(&upstream).await;
    let mut socket = session.connect().await;
    assert_eq!(common::ask_on(&mut socket, &session.paid()).await.status, 200);
    assert!(matches!(session.end().await, RequestEnd::Complete { .. }));
    assert_eq!(common::ask_on(&mut socket, &session.paid()).await.status, 502);
    assert!(matches!(session.end().await, RequestEnd::Unknown { status: None, .. }));
    assert_eq!(upstream.seen().len(), 2, "sent twice");
}

/// A provider whose answers go on and on until it is told to end them.
async fn endless() -> (String, tokio::sync::watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let end = tokio::sync::watch::Sender::new(false);
    let told = end.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut told = told.subscribe();
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                while !bytes.ends_with(common::BODY.as_bytes()) {
                    more(&mut stream, &mut bytes).await?;
                }
                stream.write_all(&[stream_head(), chunk(EVENTS[0])].concat()).await.ok()?;
                while timeout(Duration::from_millis(10), told.wait_for(|end| *end)).await.is_err() {
                    stream.write_all(&chunk(EVENTS[2])).await.ok()?;
                }
                for event in &EVENTS[1..] {
                    stream.write_all(&chunk(event)).await.ok()?;
                }
                stream.write_all(LAST_CHUNK).await.ok()
            });
        }
    });
    (origin, end)
}

#[tokio::test]
async fn b91_drains_are_bounded_in_number_and_one_too_many_is_unknown() {
    /// As the proxy has it.
    const DRAINS: usize = 64;
    let (origin, end) = endless().await;
    let mut session = Session::with(&origin, Timeouts::default(), None, None).await;
    for _ in 0..=DRAINS {
        let mut socket = session.connect().await;
        socket.write_all(&session.paid()).await.unwrap();
        // Its answer has begun; then it hangs up.
        timeout(PATIENCE, socket.read_exact(&mut [0; 32])).await.unwrap().unwrap();
    }
    let RequestEnd::Unknown { status: Some(200), why, .. } = session.end().await else {
        panic!("an end of another kind")
    };
    assert!(why.contains("too many other answers"), "{why}");
    end.send_replace(true);
    for _ in 0..DRAINS {
        let ended = session.end().await;
        assert!(matches!(ended, RequestEnd::Complete { .. }), "{ended:?}");
    }
    assert_eq!(session.gate.dropped.load(Ordering::SeqCst), 0);
}
