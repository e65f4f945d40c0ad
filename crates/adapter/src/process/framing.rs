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
    /// Its length.
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
