//! One paid request, from the gate to its end. It runs in a task of its own: a harness that hangs up cancels nothing, and what it paid for
//! is drained and booked.
//!
//! ```text
//!  gate.before ─► still wanted? ─► upstream ─► head to the harness ─► bytes to the harness and to the tap ─► lease.after
//! ```

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use tokio::sync::{mpsc, oneshot};

use crate::RESPONSE_KEPT;
use crate::credential::Credential;
use crate::gate::{Lease, PaidRequest, RequestEnd, RequestGate};
use crate::policy::{ProviderPolicy, Route};
use crate::reply::{self, Reply};
use crate::scrub::{Scrub, holds};
use crate::upstream::{NoAnswer, Upstream};

/// Most bytes of a response that are drained for a harness that is gone.
const DRAIN_BYTES: usize = 64 << 20;
/// Pieces on the way to the harness. A slow reader then slows the provider, not our memory.
const PIECES: usize = 32;
/// Status that Claude Code does not retry (one request, then it tells its person).
const REFUSED: StatusCode = StatusCode::FORBIDDEN;

/// What every request of a proxy shares.
pub(crate) struct Side {
    pub(crate) policy: Arc<dyn ProviderPolicy>,
    pub(crate) upstream: Upstream,
    pub(crate) credential: Arc<Credential>,
}

/// A request that passed every check of its form.
pub(crate) struct Checked {
    pub(crate) route: Route,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Side {
    /// Headers as the provider gets them: what the policy lists, ours, the credential.
    fn headers(&self, given: &HeaderMap) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for name in self.policy.request_headers() {
            if let Some(value) = given.get(*name) {
                headers.insert(*name, value.clone());
            }
        }
        // The tap reads plain bytes, and a harness's own wish for compression would blind it.
        headers.insert(http::header::ACCEPT_ENCODING, http::HeaderValue::from_static("identity"));
        self.policy.authorize(&mut headers, &self.credential);
        headers
    }

    async fn send(&self, checked: &Checked) -> Result<Response<Incoming>, NoAnswer> {
        let method = http::Method::POST;
        let headers = self.headers(&checked.headers);
        self.upstream.send(method, checked.route.path, checked.route.query, headers, checked.body.clone()).await
    }

    /// The head of an answer as the harness gets it.
    fn head(&self, answer: &Response<Incoming>) -> (StatusCode, HeaderMap) {
        let mut headers = HeaderMap::new();
        for name in self.policy.response_headers() {
            if let Some(value) = answer.headers().get(*name).filter(|value| !holds(value.as_bytes(), &self.credential))
            {
                headers.insert(*name, value.clone());
            }
        }
        (answer.status(), headers)
    }

    fn error(&self, status: StatusCode, message: &str) -> Response<Reply> {
        reply::error(&*self.policy, status, message)
    }
}

/// Runs a paid request; answers its head as soon as there is one.
pub(crate) async fn paid(
    side: Arc<Side>,
    gate: Arc<dyn RequestGate>,
    checked: Checked,
    request: PaidRequest,
) -> Response<Reply> {
    let (head, answered) = oneshot::channel();
    let shared = side.clone();
    tokio::spawn(async move { run(&shared, gate, checked, request, head).await });
    match answered.await {
        Ok(response) => response,
        Err(_) => side.error(StatusCode::BAD_GATEWAY, "the request's task ended without an answer"),
    }
}

async fn run(
    side: &Side,
    gate: Arc<dyn RequestGate>,
    checked: Checked,
    request: PaidRequest,
    head: oneshot::Sender<Response<Reply>>,
) {
    let lease = match gate.before(&request).await {
        Ok(lease) => lease,
        Err(refusal) => {
            let _ = head.send(
                side.error(REFUSED, &format!("agentrun refused this request ({}): {}", refusal.word, refusal.message)),
            );
            return;
        }
    };
    if head.is_closed() {
        lease.after(RequestEnd::NotSent { why: "the harness hung up before it was sent".to_owned() }).await;
        return;
    }
    match side.send(&checked).await {
        Err(NoAnswer::NotSent(why)) => {
            // Booked first: when the harness reads the refusal, the ledger already says that nothing was spent.
            lease.after(RequestEnd::NotSent { why: why.to_owned() }).await;
            let _ = head.send(side.error(StatusCode::BAD_GATEWAY, why));
        }
        Err(NoAnswer::Unknown(why)) => {
            lease.after(RequestEnd::Unknown { status: None, why: why.to_owned(), response: Bytes::new() }).await;
            let _ = head.send(side.error(StatusCode::BAD_GATEWAY, why));
        }
        Ok(answer) if answer.status().is_success() => stream(side, lease, answer, head).await,
        Ok(answer) => failed(side, lease, answer, head).await,
    }
}

/// A status that is not a success: passed on as it is, but for redirects.
async fn failed(
    side: &Side,
    lease: Box<dyn Lease>,
    answer: Response<Incoming>,
    head: oneshot::Sender<Response<Reply>>,
) {
    let status = answer.status();
    if !status.is_client_error() && !status.is_server_error() {
        let why = "the provider answered with a redirect or another status that is not followed";
        lease
            .after(RequestEnd::Unknown { status: Some(status.as_u16()), why: why.to_owned(), response: Bytes::new() })
            .await;
        let _ = head.send(side.error(StatusCode::BAD_GATEWAY, why));
        return;
    }
    let (_, headers) = side.head(&answer);
    let body = collected(answer.into_body(), side.upstream.timeouts().idle).await;
    let mut scrub = Scrub::new(side.credential.clone());
    let mut clean = BytesMut::from(scrub.pass(body).as_ref());
    clean.extend_from_slice(&scrub.finish());
    // Providers do not bill 4xx nor overload (529); of a time-out and of 5xx nobody can say.
    let end = match status.as_u16() {
        code @ (400..=407 | 409..=498 | 529) => RequestEnd::Refused { status: code },
        code => RequestEnd::Unknown {
            status: Some(code),
            why: format!("the provider answered {code}"),
            response: Bytes::new(),
        },
    };
    lease.after(end).await;
    let _ = head.send(reply::whole(status, headers, clean.freeze()));
}

async fn collected(mut body: Incoming, idle: Duration) -> Bytes {
    let mut bytes = BytesMut::new();
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(idle, body.frame()).await {
        if let Some(data) = frame.data_ref().filter(|data| bytes.len().saturating_add(data.len()) <= RESPONSE_KEPT) {
            bytes.extend_from_slice(data);
        }
    }
    bytes.freeze()
}

/// A successful answer: its bytes go on untouched while the tap reads them.
async fn stream(
    side: &Side,
    lease: Box<dyn Lease>,
    answer: Response<Incoming>,
    head: oneshot::Sender<Response<Reply>>,
) {
    let timeouts = side.upstream.timeouts();
    let (status, headers) = side.head(&answer);
    let content_type =
        headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let encoded = answer.headers().get(http::header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity");
    let mut tap = side.policy.tap(&content_type);
    let (pieces, receiver) = mpsc::channel::<Result<Frame<Bytes>, Infallible>>(PIECES);
    let (cut, was_cut) = oneshot::channel();
    let mut harness = head.send(reply::streamed(status, headers, receiver, was_cut)).is_ok().then_some(pieces);
    let mut scrub = Scrub::new(side.credential.clone());
    let mut kept = BytesMut::new();
    let (mut over, mut drained) = (false, 0_usize);
    let mut body = answer.into_body();
    let ends = tokio::time::Instant::now() + timeouts.total;
    let why = loop {
        let piece =
            match tokio::time::timeout_at(ends.min(tokio::time::Instant::now() + timeouts.idle), body.frame()).await {
                Err(_) => break Some("the provider stopped in the middle of its answer (idle or total time-out)"),
                Ok(None) => break None,
                Ok(Some(Err(_))) => break Some("the connection to the provider broke in the middle of its answer"),
                Ok(Some(Ok(frame))) => frame,
            };
        let Ok(data) = piece.into_data() else { continue };
        tap.feed(&data);
        over |= kept.len().saturating_add(data.len()) > RESPONSE_KEPT;
        if !over {
            kept.extend_from_slice(&data);
        }
        if let Some(to) = &harness {
            if to.send(Ok(Frame::data(scrub.pass(data)))).await.is_err() {
                harness = None;
            }
        } else {
            drained = drained.saturating_add(data.len());
            if drained > DRAIN_BYTES {
                break Some("the harness hung up and the rest of the answer was too long to read");
            }
        }
    };
    let response = if over { Bytes::new() } else { kept.freeze() };
    let end = match (why, tap.finish()) {
        _ if encoded => RequestEnd::Unknown {
            status: Some(status.as_u16()),
            why: "the answer is compressed and its usage cannot be read".to_owned(),
            response,
        },
        // Its figures are final once the stop reason came, whatever became of the connection after it.
        (_, Some(metered)) => {
            RequestEnd::Complete { model: metered.model, usage: metered.usage, response_id: metered.id, response }
        }
        (why, None) => {
            let why = why.unwrap_or("the answer ended without saying what was used");
            RequestEnd::Unknown { status: Some(status.as_u16()), why: why.to_owned(), response }
        }
    };
    lease.after(end).await;
    if let Some(to) = harness {
        let _ = to.send(Ok(Frame::data(scrub.finish()))).await;
        if why.is_some() {
            // The harness must not take a cut answer for a whole one: its connection is cut too.
            let _ = cut.send(());
        }
    }
}

/// A free request: passed on, not admitted, not booked.
pub(crate) async fn free(side: &Side, checked: Checked) -> Response<Reply> {
    match side.send(&checked).await {
        Ok(answer) => {
            let (status, headers) = side.head(&answer);
            let body = collected(answer.into_body(), side.upstream.timeouts().idle).await;
            let mut scrub = Scrub::new(side.credential.clone());
            let mut clean = BytesMut::from(scrub.pass(body).as_ref());
            clean.extend_from_slice(&scrub.finish());
            reply::whole(status, headers, clean.freeze())
        }
        Err(NoAnswer::NotSent(why) | NoAnswer::Unknown(why)) => side.error(StatusCode::BAD_GATEWAY, why),
    }
}
