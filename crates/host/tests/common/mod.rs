//! A provider that does what a test tells it byte by byte, a gate that keeps what it is told, and a client on a bare socket.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its part of it")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentrun_host::{
    Credential, KeyGuard, Lease, ModelProxy, Origin, PaidRequest, Provider, ProviderConfig, Refusal, RequestEnd,
    RequestGate, SessionSecret, Steadfast, Timeouts,
};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;

/// Only a failing test waits this long.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Made up, and nowhere but in these tests. As long as a provider's, so that each half tells it apart too; with what a URL escapes.
pub const CANARY: &str = "sk-canary-6f1d2c9b84e7/Q0zX+a3b5d7f9c2e4";

/// What the provider does with one request, in order. Afterwards the connection stays open for the next one.
#[derive(Clone)]
pub enum Act {
    Send(Vec<u8>),
    Wait(Arc<Notify>),
    Close,
    Stall,
}

/// A provider on loopback.
pub struct Upstream {
    pub origin: String,
    seen: Arc<Mutex<Vec<String>>>,
    count: watch::Sender<usize>,
}

impl Upstream {
    /// Serves each request the next list of acts; the last list is served again and again.
    pub async fn start(script: Vec<Vec<Act>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let (seen, count) = (Arc::new(Mutex::new(Vec::new())), watch::Sender::new(0));
        let (log, told) = (seen.clone(), count.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, script.clone(), log.clone(), told.clone()));
            }
        });
        Self { origin, seen, count }
    }

    pub async fn answering(answer: impl AsRef<[u8]>) -> Self {
        Self::start(vec![vec![Act::Send(answer.as_ref().to_vec())]]).await
    }

    /// The requests so far: head and body as they came.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    pub async fn wait_for(&self, requests: usize) {
        let mut count = self.count.subscribe();
        timeout(PATIENCE, count.wait_for(|seen| *seen >= requests)).await.expect("the provider was not asked").unwrap();
    }
}

async fn serve(
    mut stream: TcpStream,
    script: Vec<Vec<Act>>,
    seen: Arc<Mutex<Vec<String>>>,
    count: watch::Sender<usize>,
) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let head = loop {
            if let Some(end) = find(&bytes, b"\r\n\r\n") {
                break end + 4;
            }
            more(&mut stream, &mut bytes).await?;
        };
        let length =
            header(&String::from_utf8_lossy(&bytes[..head]), "content-length").map_or(0, |n| n.parse().unwrap());
        while bytes.len() < head + length {
            more(&mut stream, &mut bytes).await?;
        }
        let request: Vec<u8> = bytes.drain(..head + length).collect();
        let place = {
            let mut seen = seen.lock().unwrap();
            seen.push(String::from_utf8_lossy(&request).into_owned());
            seen.len() - 1
        };
        count.send_modify(|count| *count += 1);
        for act in &script[place.min(script.len() - 1)] {
            match act {
                Act::Send(bytes) => stream.write_all(bytes).await.ok()?,
                Act::Wait(until) => until.notified().await,
                Act::Close => return None,
                Act::Stall => std::future::pending().await,
            }
        }
    }
}

async fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
    let mut piece = [0; 4096];
    let read = stream.read(&mut piece).await.ok().filter(|read| *read > 0)?;
    bytes.extend_from_slice(&piece[..read]);
    Some(())
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

pub fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

/// A whole answer with a length.
pub fn answer(status: u16, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len()).into_bytes()
}

pub const JSON: &str = "content-type: application/json\r\n";

/// A message as the provider answers it in one piece.
pub fn message() -> Vec<u8> {
    answer(
        200,
        JSON,
        r#"{"id":"msg_1","type":"message","model":"claude-x","content":[],"usage":{"input_tokens":10,"output_tokens":20}}"#,
    )
}

pub const EVENTS: &[&str] = &[
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"claude-x\",\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hello\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":20}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
];

pub fn stream_head() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec()
}

pub fn chunk(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The whole stream, an event a piece.
pub fn stream() -> Vec<Act> {
    streamed(EVENTS)
}

/// A whole stream of these events, each in a piece.
pub fn streamed(events: &[impl AsRef<[u8]>]) -> Vec<Act> {
    let events = events.iter().map(|event| Act::Send(chunk(event)));
    std::iter::once(Act::Send(stream_head())).chain(events).chain([Act::Send(LAST_CHUNK.to_vec())]).collect()
}

/// A gate that lets through or refuses, and keeps every end.
pub struct Gate {
    refusal: Option<Refusal>,
    /// Waited for before an answer, if there is one.
    pub open: Option<Arc<Notify>>,
    pub asked: watch::Sender<usize>,
    /// The bodies it was asked about.
    pub bodies: Mutex<Vec<Bytes>>,
    ends: mpsc::UnboundedSender<RequestEnd>,
    pub dropped: Arc<AtomicUsize>,
}

struct Kept {
    ends: mpsc::UnboundedSender<RequestEnd>,
    dropped: Arc<AtomicUsize>,
    ended: bool,
}

#[async_trait]
impl RequestGate for Gate {
    async fn before(self: Arc<Self>, request: &PaidRequest) -> Result<Box<dyn Lease>, Refusal> {
        assert_eq!(request.facts.body_bytes, request.body.len() as u64);
        self.bodies.lock().unwrap().push(request.body.clone());
        self.asked.send_modify(|asked| *asked += 1);
        if let Some(open) = &self.open {
            open.notified().await;
        }
        match &self.refusal {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(Box::new(Kept { ends: self.ends.clone(), dropped: self.dropped.clone(), ended: false })),
        }
    }
}

#[async_trait]
impl Lease for Kept {
    async fn after(mut self: Box<Self>, end: RequestEnd) {
        self.ended = true;
        let _ = self.ends.send(end);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.ended {
            self.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A proxy before a provider, with one session.
pub struct Session {
    pub proxy: ModelProxy,
    pub key: SessionSecret,
    pub guard: Option<KeyGuard>,
    pub gate: Arc<Gate>,
    pub ends: mpsc::UnboundedReceiver<RequestEnd>,
    pub port: u16,
}

pub fn quick() -> Timeouts {
    Timeouts {
        connect: Duration::from_millis(300),
        head: Duration::from_millis(300),
        idle: Duration::from_millis(300),
        ..Timeouts::default()
    }
}

impl Session {
    pub async fn before(upstream: &Upstream) -> Self {
        Self::with(&upstream.origin, Timeouts::default(), None, None).await
    }

    pub async fn refusing(upstream: &Upstream, refusal: Refusal) -> Self {
        Self::with(&upstream.origin, Timeouts::default(), Some(refusal), None).await
    }

    pub async fn with(origin: &str, timeouts: Timeouts, refusal: Option<Refusal>, open: Option<Arc<Notify>>) -> Self {
        Self::of(Provider::Anthropic, origin, timeouts, refusal, open).await
    }

    pub async fn of(
        api: Provider,
        origin: &str,
        timeouts: Timeouts,
        refusal: Option<Refusal>,
        open: Option<Arc<Notify>>,
    ) -> Self {
        Self::steadfast(api, origin, timeouts, Steadfast::default(), refusal, open).await
    }

    /// One whose proxy asks again, or elsewhere.
    pub async fn steadfast(
        api: Provider,
        origin: &str,
        timeouts: Timeouts,
        steadfast: Steadfast,
        refusal: Option<Refusal>,
        open: Option<Arc<Notify>>,
    ) -> Self {
        let provider = ProviderConfig {
            api,
            policy: api.policy(),
            origin: origin.parse::<Origin>().unwrap(),
            credential: Credential::from_text(CANARY.to_owned()).unwrap(),
            timeouts,
        };
        Self::speaking(provider, steadfast, refusal, open).await
    }

    /// One on any provider and policy.
    pub async fn speaking(
        provider: ProviderConfig,
        steadfast: Steadfast,
        refusal: Option<Refusal>,
        open: Option<Arc<Notify>>,
    ) -> Self {
        let proxy = ModelProxy::start_with(provider, steadfast).await.unwrap();
        let (send, ends) = mpsc::unbounded_channel();
        let gate = Arc::new(Gate {
            refusal,
            open,
            asked: watch::Sender::new(0),
            bodies: Mutex::default(),
            ends: send,
            dropped: Arc::default(),
        });
        let (key, guard) = proxy.admit(gate.clone()).unwrap();
        let port = proxy.base_url().rsplit(':').next().unwrap().parse().unwrap();
        Self { proxy, key, guard: Some(guard), gate, ends, port }
    }

    /// How the next request ended.
    pub async fn end(&mut self) -> RequestEnd {
        timeout(PATIENCE, self.ends.recv()).await.expect("the request was never ended").unwrap()
    }

    /// A paid request as a harness sends it.
    pub fn paid(&self) -> Vec<u8> {
        self.post("/v1/messages?beta=true", BODY)
    }

    pub fn post(&self, target: &str, body: &str) -> Vec<u8> {
        let key = self.key.as_str();
        self.raw(&format!("POST {target} HTTP/1.1"), &format!("x-api-key: {key}\r\n{JSON}"), body.as_bytes())
    }

    pub fn raw(&self, line: &str, headers: &str, body: &[u8]) -> Vec<u8> {
        let head =
            format!("{line}\r\nHost: 127.0.0.1:{}\r\n{headers}Content-Length: {}\r\n\r\n", self.port, body.len());
        [head.as_bytes(), body].concat()
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }

    pub async fn ask(&self, request: &[u8]) -> Answered {
        let mut stream = self.connect().await;
        ask_on(&mut stream, request).await
    }
}

pub const BODY: &str =
    r#"{"model":"claude-x","max_tokens":100,"messages":[{"role":"user","content":"hi"}],"stream":true}"#;

/// An answer as it came.
#[derive(Debug)]
pub struct Answered {
    pub status: u16,
    pub head: String,
    /// Without the framing.
    pub body: String,
    /// It came to the end that its framing announced.
    pub whole: bool,
}

pub async fn ask_on(stream: &mut TcpStream, request: &[u8]) -> Answered {
    // A refusal may come, and the connection go, before all was written.
    let _ = stream.write_all(request).await;
    read_answer(stream).await
}

pub async fn read_answer(stream: &mut TcpStream) -> Answered {
    timeout(PATIENCE, read(stream)).await.expect("the proxy did not answer")
}

async fn read(stream: &mut TcpStream) -> Answered {
    let mut bytes = Vec::new();
    let mut end = None;
    while end.is_none() && more(stream, &mut bytes).await.is_some() {
        end = find(&bytes, b"\r\n\r\n").map(|at| at + 4);
    }
    let Some(end) = end else {
        return Answered {
            status: 0,
            head: String::from_utf8_lossy(&bytes).into_owned(),
            body: String::new(),
            whole: false,
        };
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut rest = bytes.split_off(end);
    if status == 100 {
        let mut answered = Box::pin(read(stream)).await;
        answered.head.insert_str(0, &head);
        return answered;
    }
    let length = header(&head, "content-length").map(|n| n.parse::<usize>().unwrap());
    let whole = |bytes: &[u8]| match length {
        Some(length) => bytes.len() >= length,
        None if header(&head, "transfer-encoding").is_some() => bytes.ends_with(LAST_CHUNK),
        None => true,
    };
    while !whole(&rest) && more(stream, &mut rest).await.is_some() {}
    let is_whole = whole(&rest);
    let body = if length.is_some() { rest } else { unchunked(&rest) };
    Answered { status, head, body: String::from_utf8(body).unwrap(), whole: is_whole }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(line) = find(bytes, b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..line]).unwrap(), 16).unwrap();
        let piece = &bytes[line + 2..];
        body.extend_from_slice(&piece[..length.min(piece.len())]);
        bytes = piece.get(length + 2..).unwrap_or_default();
    }
    body
}

/// Whether the proxy has closed the connection.
pub async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    matches!(timeout(PATIENCE, stream.read(&mut byte)).await, Ok(Ok(0) | Err(_)))
}
