//! The body of an answer: its pieces one by one at a pace, and then an end: a proper one, a cut, or silence.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

/// How a body ends once its pieces are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// As it should.
    Whole,
    /// The connection closes; the client sees a body without its end.
    Cut,
    /// Nothing more is sent; the client has to hang up.
    Stall,
}

/// The error that makes the HTTP layer drop a connection in the middle of a body.
#[derive(Debug, thiserror::Error)]
#[error("the script cuts the answer here")]
pub(super) struct ScriptedCut;

pub(super) struct Answer {
    pieces: VecDeque<Bytes>,
    end: End,
    delay: Option<Duration>,
    waiting: Option<Pin<Box<Sleep>>>,
    flushed: bool,
}

impl Answer {
    /// `pieces` with `delay` between two of them, then `end`.
    pub(super) fn new(pieces: impl IntoIterator<Item = Bytes>, delay: Option<Duration>, end: End) -> Self {
        Self { pieces: pieces.into_iter().collect(), end, delay, waiting: None, flushed: false }
    }

    /// `body` in one piece, properly ended.
    pub(super) fn whole(body: Bytes) -> Self {
        Self::new((!body.is_empty()).then_some(body), None, End::Whole)
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = ScriptedCut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ScriptedCut>>> {
        if let Some(sleep) = &mut self.waiting {
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.waiting = None;
        }
        if let Some(piece) = self.pieces.pop_front() {
            self.waiting = self.delay.map(|delay| Box::pin(tokio::time::sleep(delay)));
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match self.end {
            End::Whole => Poll::Ready(None),
            // No waker is kept: the HTTP layer watches the connection and drops this body when the client hangs up.
            End::Stall => Poll::Pending,
            // A body that fails takes what is still in the write buffer with it. One pending poll lets the buffer out first, so that
            // the client surely gets the events that the script counted.
            End::Cut if !self.flushed => {
                self.flushed = true;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            End::Cut => Poll::Ready(Some(Err(ScriptedCut))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty() && self.end == End::Whole
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
