//! The load: so many connections, each with one request after the other, on bare sockets. It reads no more of an answer than where it ends.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Whom to ask: `http://127.0.0.1:PORT`, and the key.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) url: String,
    pub(crate) key: String,
}

/// What came of a load: for each request nanoseconds until the first byte of the body, and until the last.
#[derive(Default)]
pub(crate) struct Took {
    pub(crate) first: Vec<u64>,
    pub(crate) whole: Vec<u64>,
}

pub(crate) fn request(target: &Target, body: &[u8]) -> Vec<u8> {
    let host = target.url.strip_prefix("http://").unwrap();
    let key = &target.key;
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
         Accept: application/json\r\nUser-Agent: claude-cli/2.1.332 (external, cli)\r\nanthropic-version: 2023-06-01\r\n\
         anthropic-beta: interleaved-thinking-2025-05-14\r\nx-app: cli\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Loads a target until a moment or until so many requests were answered.
pub(crate) async fn run(target: &Target, body: &[u8], connections: usize, until: Instant, most: usize) -> Took {
    let request: std::sync::Arc<[u8]> = request(target, body).into();
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let (request, address) = (request.clone(), target.url.strip_prefix("http://").unwrap().to_owned());
        tasks.spawn(async move {
            let mut took = Took::default();
            let mut stream = TcpStream::connect(&address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let mut bytes = Vec::with_capacity(64 << 10);
            while Instant::now() < until && took.whole.len() < most.div_ceil(connections) {
                let start = Instant::now();
                stream.write_all(&request).await.unwrap();
                bytes.clear();
                let first = answer(&mut stream, &mut bytes).await;
                took.first.push(first.duration_since(start).as_nanos() as u64);
                took.whole.push(start.elapsed().as_nanos() as u64);
            }
            took
        });
    }
    let mut all = Took::default();
    while let Some(took) = tasks.join_next().await {
        let took = took.unwrap();
        all.first.extend(took.first);
        all.whole.extend(took.whole);
    }
    all
}

/// Reads an answer to its end; when its body began.
async fn answer(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Instant {
    let head = loop {
        if let Some(end) = find(bytes, b"\r\n\r\n") {
            break end + 4;
        }
        more(stream, bytes).await;
    };
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    assert!(text.starts_with("http/1.1 200"), "{}", String::from_utf8_lossy(bytes));
    while bytes.len() <= head {
        more(stream, bytes).await;
    }
    let first = Instant::now();
    if let Some(length) = text.split("content-length:").nth(1) {
        let length: usize = length.lines().next().unwrap().trim().parse().unwrap();
        while bytes.len() < head + length {
            more(stream, bytes).await;
        }
    } else {
        while !bytes.ends_with(b"0\r\n\r\n") {
            more(stream, bytes).await;
        }
    }
    first
}

async fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) {
    // A peer that hangs must not hang the bench.
    let read = tokio::time::timeout(Duration::from_secs(60), stream.read_buf(bytes)).await;
    let read = read.expect("no answer in a minute").unwrap();
    assert!(read > 0, "the connection was closed after: {}", String::from_utf8_lossy(bytes));
}

pub(crate) fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
