//! The pipes of a child: a writer that never tears a line, reading that ends when the child has ended, and the last words on stderr.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::ChildStdin;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

use super::child::Exit;

/// How much of stderr is kept, in bytes: the end, where programs say why they gave up.
pub const STDERR_TAIL: usize = 64 * 1024;

/// What one read takes: as much as a pipe holds.
const CHUNK: usize = 64 * 1024;

/// How long a pipe may say nothing after everything under the guard is gone.
const SILENCE: Duration = Duration::from_secs(2);

/// Writes to a program's stdin. Clones write to the same pipe, each [`send`](Self::send) whole and in order.
#[derive(Clone, Debug)]
pub struct Stdin {
    queue: mpsc::Sender<Message>,
}

type Message = (Vec<u8>, oneshot::Sender<io::Result<()>>);

/// The program does not take input any more: it closed its stdin, it ended, or we closed the pipe.
#[derive(Debug, thiserror::Error)]
#[error("the program takes no more input; its exit and its last words on stderr say why")]
pub struct StdinClosed;

impl Stdin {
    /// Writes all of `bytes`; the caller ends its lines itself. Returns when the pipe has them.
    ///
    /// Dropping the future never tears a message: it is written whole or, when it was still waiting for room, not at all.
    ///
    /// # Errors
    /// [`StdinClosed`] when the message could not be written whole.
    pub async fn send(&self, bytes: impl Into<Vec<u8>>) -> Result<(), StdinClosed> {
        let (written, done) = oneshot::channel();
        self.queue.send((bytes.into(), written)).await.map_err(|_| StdinClosed)?;
        match done.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(StdinClosed),
        }
    }
}

/// The writer and its task. The pipe is closed when `closed` becomes true or its sender is gone, even in the middle of a write to a
/// program that does not read.
pub(super) fn stdin(mut pipe: ChildStdin, mut closed: watch::Receiver<bool>) -> Stdin {
    let (queue, mut messages) = mpsc::channel::<Message>(1);
    tokio::spawn(async move {
        let write = async {
            while let Some((bytes, written)) = messages.recv().await {
                let result = pipe.write_all(&bytes).await;
                let broken = result.is_err();
                let _ = written.send(result);
                if broken {
                    break;
                }
            }
        };
        tokio::select! {
            () = write => {}
            // An error says that the child was let go, which closes the pipe as well.
            _ = closed.wait_for(|closed| *closed) => {}
        }
    });
    Stdin { queue }
}

/// One of a program's output pipes, read until it is closed, or until the program and all below it are gone and the pipe is silent:
/// a process that was handed the pipe and lives elsewhere must not hold us up.
#[derive(Debug)]
pub(super) struct Output<R> {
    pipe: R,
    exit: watch::Receiver<Option<Exit>>,
    chunk: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Output<R> {
    pub(super) fn new(pipe: R, exit: watch::Receiver<Option<Exit>>) -> Self {
        Self { pipe, exit, chunk: vec![0; CHUNK] }
    }

    /// The next bytes. A read error is the end of what can be read; how the program ended is told by its exit, never by its output.
    pub(super) async fn next(&mut self) -> Option<&[u8]> {
        let Self { pipe, exit, chunk } = self;
        let silent = async {
            let _ = exit.wait_for(Option::is_some).await;
            sleep(SILENCE).await;
        };
        let length = tokio::select! {
            biased;
            read = pipe.read(chunk) => read.unwrap_or(0),
            () = silent => 0,
        };
        chunk.get(..length).filter(|bytes| !bytes.is_empty())
    }
}

/// The last [`STDERR_TAIL`] bytes of a program's stderr. Clones are the same ring.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring(Arc<Mutex<VecDeque<u8>>>);

impl Ring {
    fn push(&self, bytes: &[u8]) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ring.extend(bytes);
        let over = ring.len().saturating_sub(STDERR_TAIL);
        ring.drain(..over);
    }

    /// As text for people: bad UTF-8 is replaced.
    pub(super) fn text(&self) -> String {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = ring.iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(super) async fn pump(self, mut output: Output<impl AsyncRead + Unpin>) {
        while let Some(bytes) = output.next().await {
            self.push(bytes);
        }
    }
}
