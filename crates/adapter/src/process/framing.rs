//! Newline framing over bytes. One bad byte, one banner or one huge line costs that line and nothing after it: libraries that read
//! text lines were seen to lose every later answer to a single 0xFF.

use std::sync::Arc;

use serde::de::IgnoredAny;
use tokio::io::AsyncRead;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::stdio::Output;

/// The longest line that is handed over, in bytes without its line end. Harnesses send whole files and images in one line.
pub const LINE_LIMIT: usize = 64 * 1024 * 1024;

/// Lines that may wait for a slow reader. Beyond it, and beyond `LINE_LIMIT` bytes in all, the program has to wait.
const QUEUE: usize = 64;

/// One line of output, without its line end (LF or CRLF). Empty lines are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A JSON object, in valid UTF-8.
    Json(Vec<u8>),
    /// Anything else: a banner, a warning, a line cut off by the program's death. For diagnostics; not an error by itself.
    Noise(Vec<u8>),
}

/// A line longer than [`LINE_LIMIT`] came. It was skipped; the next frame is the line after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the program wrote a line of {bytes} bytes, more than the {limit} that are read; the line was skipped")]
pub struct FrameTooLong {
    /// Its length, with the CR of a CRLF.
    pub bytes: u64,
    /// The limit.
    pub limit: usize,
}

/// Cuts bytes into frames, however they arrive.
#[derive(Debug)]
pub struct Framer {
    line: Vec<u8>,
    /// Bytes of a line already known to be too long; its content is not kept.
    skipped: u64,
    limit: usize,
}

impl Default for Framer {
    fn default() -> Self {
        Self::new(LINE_LIMIT)
    }
}

impl Framer {
    /// A framer that hands over lines of up to `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { line: Vec::new(), skipped: 0, limit }
    }

    /// Takes the next bytes and adds every frame that is complete with them to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<Result<Frame, FrameTooLong>>) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            match part.strip_suffix(b"\n") {
                Some(end) => {
                    self.keep(end);
                    out.extend(self.cut());
                }
                None => self.keep(part),
            }
        }
    }

    /// The output is over: what came after the last line end is a frame too.
    pub fn finish(&mut self) -> Option<Result<Frame, FrameTooLong>> {
        self.cut()
    }

    fn keep(&mut self, part: &[u8]) {
        // One more than the limit, because the last byte may be the CR of a CRLF.
        if self.skipped > 0 || self.line.len() + part.len() > self.limit + 1 {
            self.skipped += (self.line.len() + part.len()) as u64;
            self.line = Vec::new();
        } else {
            self.line.extend_from_slice(part);
        }
    }

    fn cut(&mut self) -> Option<Result<Frame, FrameTooLong>> {
        let mut line = std::mem::take(&mut self.line);
        let skipped = std::mem::take(&mut self.skipped);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        let bytes = skipped + line.len() as u64;
        if skipped > 0 || line.len() > self.limit {
            return Some(Err(FrameTooLong { bytes, limit: self.limit }));
        }
        if line.is_empty() {
            return None;
        }
        Some(Ok(if is_json_object(&line) { Frame::Json(line) } else { Frame::Noise(line) }))
    }
}

/// Strict: bad UTF-8 inside a string is noise, never a value with other characters than the program meant.
fn is_json_object(line: &[u8]) -> bool {
    line.trim_ascii_start().first() == Some(&b'{')
        && std::str::from_utf8(line).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// The frames of one program's output, in order. A reader that does not keep up makes the program wait; nothing is dropped.
#[derive(Debug)]
pub struct Frames {
    queue: mpsc::Receiver<Queued>,
}

/// A frame with its share of the bytes that may wait.
#[derive(Debug)]
struct Queued {
    frame: Result<Frame, FrameTooLong>,
    _bytes: OwnedSemaphorePermit,
}

impl Frames {
    /// The next frame; `None` when the program's output is closed, which does not say that the program ended. Cancel safe.
    pub async fn recv(&mut self) -> Option<Result<Frame, FrameTooLong>> {
        self.queue.recv().await.map(|queued| queued.frame)
    }
}

/// The sending side: queues what a reader task found.
#[derive(Debug)]
pub(super) struct FrameSender {
    queue: mpsc::Sender<Queued>,
    bytes: Arc<Semaphore>,
}

pub(super) fn frames() -> (FrameSender, Frames) {
    let (sender, queue) = mpsc::channel(QUEUE);
    (FrameSender { queue: sender, bytes: Arc::new(Semaphore::new(LINE_LIMIT)) }, Frames { queue })
}

impl FrameSender {
    /// Waits for room. With nobody left to read, the frame is dropped and the program's output is still taken off its hands, so
    /// that it can end by itself.
    async fn send(&self, frame: Result<Frame, FrameTooLong>) {
        let length = match &frame {
            Ok(Frame::Json(line) | Frame::Noise(line)) => line.len(),
            Err(_) => 0,
        };
        let share = u32::try_from(length.min(LINE_LIMIT)).unwrap_or(u32::MAX);
        let bytes = tokio::select! {
            bytes = Arc::clone(&self.bytes).acquire_many_owned(share) => bytes,
            () = self.queue.closed() => return,
        };
        // The semaphore is never closed, and a closed queue means nobody reads.
        if let Ok(bytes) = bytes {
            let _ = self.queue.send(Queued { frame, _bytes: bytes }).await;
        }
    }

    /// Reads until the output is closed, calling `heard` for each frame.
    pub(super) async fn pump(self, mut output: Output<impl AsyncRead + Unpin>, heard: impl Fn()) {
        let mut framer = Framer::default();
        let mut found = Vec::new();
        while let Some(bytes) = output.next().await {
            framer.push(bytes, &mut found);
            for frame in found.drain(..) {
                heard();
                self.send(frame).await;
            }
        }
        if let Some(frame) = framer.finish() {
            heard();
            self.send(frame).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(parts: &[&[u8]], limit: usize) -> Vec<Result<Frame, FrameTooLong>> {
        let mut framer = Framer::new(limit);
        let mut out = Vec::new();
        for part in parts {
            framer.push(part, &mut out);
        }
        out.extend(framer.finish());
        out
    }

    #[test]
    fn where_the_bytes_are_split_makes_no_difference() {
        let bytes =
            b"banner\r\n{\"a\":\"\xc3\xa4\"}\n\n\xff{\n{\"b\":1}\r\n0123456789abcdefghi\n{\"c\":2}\r\r\n{\"end\":0}";
        let whole = framed(&[bytes], 16);
        assert_eq!(whole.len(), 7);
        assert_eq!(whole[4], Err(FrameTooLong { bytes: 19, limit: 16 }));
        assert_eq!(whole[6], Ok(Frame::Json(b"{\"end\":0}".to_vec())));
        for first in 0..bytes.len() {
            for second in first..bytes.len() {
                let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(framed(&parts, 16), whole, "split at {first} and {second}");
            }
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(framed(&single, 16), whole);
    }

    #[test]
    fn the_line_end_does_not_count_against_the_limit() {
        for (bytes, passes) in
            [("12345678\n", true), ("12345678\r\n", true), ("12345678", true), ("123456789\n", false)]
        {
            let frames = framed(&[bytes.as_bytes(), b"{}\n"], 8);
            if bytes.ends_with('\n') {
                assert_eq!(frames[0].is_ok(), passes, "{bytes:?}");
                assert_eq!(frames[1], Ok(Frame::Json(b"{}".to_vec())), "the next line is whole");
            }
        }
        assert_eq!(framed(&[b"123456789\r\n"], 8), [Err(FrameTooLong { bytes: 10, limit: 8 })]);
        assert_eq!(framed(&[b"1234567890\r\n"], 8), [Err(FrameTooLong { bytes: 11, limit: 8 })]);
    }
}
