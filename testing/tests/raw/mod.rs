//! A client on a bare socket, for what a scripted model really sends.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use agentrun_testing::script::Script;
use agentrun_testing::scripted::ScriptedModel;
use serde_json::Value;

/// Long enough for any machine; only a broken server makes a test wait so long.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn model(script: &Value) -> ScriptedModel {
    ScriptedModel::start(Script::parse(&script.to_string()).unwrap()).unwrap()
}

/// A raw client: what the bytes on the connection are is the point of these tests.
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: BufReader<TcpStream>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The whole body. `Err` with what came when the connection ended before the body did.
    pub fn body(mut self) -> Result<String, String> {
        let mut body = Vec::new();
        let whole = if let Some(length) = self.header("content-length") {
            let length: usize = length.parse().unwrap();
            let mut limited = self.body.take(length as u64);
            limited.read_to_end(&mut body).unwrap();
            body.len() == length
        } else {
            read_chunks(&mut self.body, &mut body)
        };
        let body = String::from_utf8(body).unwrap();
        if whole { Ok(body) } else { Err(body) }
    }

    pub fn json(self) -> Value {
        serde_json::from_str(&self.body().unwrap()).unwrap()
    }
}

/// Whether the last chunk came.
fn read_chunks(from: &mut BufReader<TcpStream>, into: &mut Vec<u8>) -> bool {
    while let Some(chunk) = read_chunk(from) {
        if chunk.is_empty() {
            return true;
        }
        into.extend(chunk);
    }
    false
}

pub fn read_chunk(from: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    let length = usize::from_str_radix(line.trim_end(), 16).ok()?;
    let mut chunk = vec![0; length + 2];
    from.read_exact(&mut chunk).ok()?;
    chunk.truncate(length);
    Some(chunk)
}

pub fn send(model: &ScriptedModel, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(model.base_url().strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    write!(stream, "{method} {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {length}\r\n\r\n{body}").unwrap();
    stream
}

pub fn reply(stream: TcpStream) -> Reply {
    let mut body = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(body.read_line(&mut head).unwrap(), 0, "closed before the head: {head:?}");
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply { status, head, body }
}
