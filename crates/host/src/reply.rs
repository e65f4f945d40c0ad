//! Answers to the harness: whole ones, and streams that are cut when the provider's was.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{mpsc, oneshot};

use crate::policy::ProviderPolicy;

/// The body of an answer.
pub(crate) enum Reply {
    Whole(Option<Bytes>),
    /// Ends well only if `whole` says so: a writer that vanished for whatever reason leaves a cut answer, never a short one.
    Stream {
        pieces: mpsc::Receiver<Bytes>,
        whole: oneshot::Receiver<()>,
        /// What came before the cut is on its way.
        ended: bool,
    },
}

/// The provider's stream was cut, so this one is.
#[derive(Debug)]
pub(crate) struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the provider's answer was cut")
    }
}

impl std::error::Error for Cut {}

impl Body for Reply {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Self::Whole(bytes) => {
                Poll::Ready(bytes.take().filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Stream { pieces, whole, ended } => match pieces.poll_recv(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Some(piece)) => Poll::Ready(Some(Ok(Frame::data(piece)))),
                Poll::Ready(None) if *ended => Poll::Ready(Some(Err(Cut))),
                Poll::Ready(None) if whole.try_recv().is_ok() => Poll::Ready(None),
                Poll::Ready(None) => {
                    // hyper drops what it has not written yet when a body fails; asked once more, it writes that first.
                    *ended = true;
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
            },
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Stream { .. } => SizeHint::default(),
        }
    }
}

pub(crate) fn whole(status: StatusCode, headers: HeaderMap, body: Bytes) -> Response<Reply> {
    let mut response = Response::new(Reply::Whole(Some(body)));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

pub(crate) fn streamed(
    status: StatusCode,
    headers: HeaderMap,
    pieces: mpsc::Receiver<Bytes>,
    whole: oneshot::Receiver<()>,
) -> Response<Reply> {
    let mut response = Response::new(Reply::Stream { pieces, whole, ended: false });
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// What came of an answer that was cut, and then the cut.
pub(crate) fn cut(status: StatusCode, headers: HeaderMap, came: Bytes) -> Response<Reply> {
    let (to, pieces) = mpsc::channel(1);
    if !came.is_empty() {
        let _ = to.try_send(came);
    }
    streamed(status, headers, pieces, oneshot::channel().1)
}

/// A refusal in the provider's shape.
pub(crate) fn error(policy: &dyn ProviderPolicy, status: StatusCode, message: &str) -> Response<Reply> {
    json(status, policy.error_body(status, message))
}

pub(crate) fn json(status: StatusCode, body: Bytes) -> Response<Reply> {
    let mut headers = HeaderMap::new();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    whole(status, headers, body)
}

/// After a request whose form was wrong the connection is not used again: where it ended is in doubt.
pub(crate) fn close(mut response: Response<Reply>) -> Response<Reply> {
    response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
    response
}
