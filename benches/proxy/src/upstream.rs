//! The scripted provider: it reads a request to the end of its length and answers at once, or with an event every millisecond.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use crate::bodies;
use crate::load::find;

const PACE: Duration = Duration::from_millis(1);

struct Script {
    answer: Vec<u8>,
    events: Vec<Vec<u8>>,
}

pub(crate) async fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    crate::tell(&format!("http://{}", listener.local_addr().unwrap()), "-");
    let script = Arc::new(Script { answer: bodies::answer(), events: bodies::events() });
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let script = script.clone();
        tokio::spawn(async move { answer(stream, &script).await });
    }
}

async fn answer(mut stream: TcpStream, script: &Script) -> Option<()> {
    let mut bytes = Vec::with_capacity(256 << 10);
    loop {
        let head = loop {
            if let Some(end) = find(&bytes, b"\r\n\r\n") {
                break end + 4;
            }
            more(&mut stream, &mut bytes).await?;
        };
        let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
        let length = text.split("content-length:").nth(1).and_then(|rest| rest.lines().next()?.trim().parse().ok());
        match length {
            Some(length) => {
                let length: usize = length;
                while bytes.len() < head + length {
                    more(&mut stream, &mut bytes).await?;
                }
            }
            // A peer that forwards what it has not read whole.
            None if text.contains("chunked") => {
                while !bytes.ends_with(b"0\r\n\r\n") {
                    more(&mut stream, &mut bytes).await?;
                }
            }
            None => {}
        }
        // The request is on its own here, and names it at its beginning; peers write JSON with a blank or without.
        let beginning = &bytes[head..];
        let streamed = find(beginning, b"\"stream\":true").or_else(|| find(beginning, b"\"stream\": true")).is_some();
        bytes.clear();
        if !streamed {
            stream.write_all(&script.answer).await.ok()?;
            continue;
        }
        stream.write_all(bodies::STREAM_HEAD).await.ok()?;
        for event in &script.events {
            stream.write_all(event).await.ok()?;
            sleep(PACE).await;
        }
    }
}

async fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
    match stream.read_buf(bytes).await {
        Ok(read) if read > 0 => Some(()),
        _ => None,
    }
}
