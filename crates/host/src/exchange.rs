//! One paid request, from the gate to its end. It runs in a task of its own: a harness that hangs up cancels nothing, and what it paid for
//! is drained and booked.
//!
//! ```text
//!  gate.before ─► still wanted? ─► upstream ─► head to the harness ─► bytes to the harness and to the tap ─► lease.after
//!       ▲                             └► failed ─► lease.after ─► `tries`: passed on, or once more ──┐
//!       └───────────────────────────────────────────────────────────────────────────────────────────┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::RESPONSE_KEPT;
use crate::credential::Credential;
use crate::gate::{Lease, PaidRequest, RequestEnd, RequestGate};
use crate::policy::{ProviderPolicy, Route};
use crate::reply::{self, Reply};
use crate::scrub::{Scrub, holds};
use crate::tap::Tap;
use crate::tries::{self, Failure, Next, Retry};
use crate::upstream::{Answer, NoAnswer, Upstream};

/// Most bytes of a response that are drained for a harness that is gone; the total time-out bounds the time.
const DRAIN_BYTES: usize = 64 << 20;
/// Responses that are drained at once. Codex hangs up on purpose once it has its call, so a drain is nothing rare.
pub(crate) const DRAINS: usize = 64;
/// Pieces on the way to the harness. A slow reader then slows the provider, not our memory.
const PIECES: usize = 32;
/// Largest answer that is passed on whole and not as a stream: the provider's errors, and what it answers on free routes.
const WHOLE_BYTES: usize = 1 << 20;
/// Largest answer of a stated length that the harness gets in one piece, once it is booked. It is there at once anyway, and the end of an
/// answer is never seen before it is booked: what this takes away is turns of the scheduler and frames.
const SHORT_BYTES: u64 = 64 << 10;
/// Headers that are made room for at once.
const HEADERS: usize = 12;
/// How long a provider that has said everything may take to end its answer.
const LINGER: Duration = Duration::from_secs(5);

/// What every request of a proxy shares.
pub(crate) struct Side {
    pub(crate) policy: Arc<dyn ProviderPolicy>,
    pub(crate) passed: Passed,
    pub(crate) first: Target,
    /// Asked in their order where the one before has failed. Each gets its own credential and no other.
    pub(crate) others: Vec<Target>,
    pub(crate) retry: Retry,
    pub(crate) drains: Arc<Semaphore>,
}

/// The policy's lists of headers, read once.
pub(crate) struct Passed {
    to_provider: HeaderMap<()>,
    to_harness: HeaderMap<()>,
}

impl Passed {
    pub(crate) fn by(policy: &dyn ProviderPolicy) -> Self {
        // What is no name in lower case is a header that nobody can have sent.
        let read = |names: &[&str]| -> HeaderMap<()> {
            names.iter().filter_map(|name| Some((HeaderName::from_lowercase(name.as_bytes()).ok()?, ()))).collect()
        };
        Self { to_provider: read(policy.request_headers()), to_harness: read(policy.response_headers()) }
    }
}

/// A provider, and what opens it.
pub(crate) struct Target {
    pub(crate) upstream: Upstream,
    pub(crate) credential: Arc<Credential>,
}

/// A request that passed every check of its form.
pub(crate) struct Checked {
    pub(crate) route: Route,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// What the body takes of the memory for bodies.
    pub(crate) _room: OwnedSemaphorePermit,
}

impl Side {
    /// Headers as the provider gets them: what the policy lists, ours, the credential.
    fn headers(&self, given: &HeaderMap, credential: &Credential) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(HEADERS);
        for (name, value) in given.iter().filter(|(name, _)| self.passed.to_provider.contains_key(*name)) {
            headers.append(name, value.clone());
        }
        // The tap reads plain bytes, and a harness's own wish for compression would blind it.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        self.policy.authorize(&mut headers, credential);
        headers
    }

    async fn send(&self, to: &Target, checked: &Checked) -> Result<Answer, NoAnswer> {
        let Checked { route, headers, body, .. } = checked;
        let headers = self.headers(headers, &to.credential);
        to.upstream.send(route.method.as_http(), route.path, route.query, headers, body.clone()).await
    }

    /// The headers of an answer as the harness gets them.
    fn answered(&self, from: &Target, answer: &Response<Incoming>) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(answer.headers().len());
        for (name, value) in answer.headers().iter().filter(|(name, _)| self.passed.to_harness.contains_key(*name)) {
            // Of one that came twice, the first that is clean.
            if !headers.contains_key(name) && !holds(value.as_bytes(), &from.credential) {
                headers.insert(name, value.clone());
            }
        }
        headers
    }

    fn error(&self, status: StatusCode, message: &str) -> Response<Reply> {
        reply::error(&*self.policy, status, message)
    }

    /// An answer that is small enough to pass on in one piece. One that cannot be read is named in its place.
    async fn whole(&self, from: &Target, Answer { response, over }: Answer) -> Response<Reply> {
        let status = response.status();
        let mut headers = self.answered(from, &response);
        let until = Instant::now() + from.upstream.timeouts().idle;
        let body = if is_compressed(&response) { None } else { collected(response.into_body(), until).await };
        if let Some(body) = body {
            from.upstream.give_back(over);
            let mut scrub = Scrub::new(from.credential.clone());
            let mut clean = BytesMut::from(scrub.pass(body).as_ref());
            clean.extend_from_slice(&scrub.finish());
            return reply::whole(status, headers, clean.freeze());
        }
        let status = if status.is_success() { StatusCode::BAD_GATEWAY } else { status };
        let ours = self.error(status, "the provider's answer was cut, too long or compressed and is not passed on");
        headers.extend(ours.headers().clone());
        let (mut head, body) = ours.into_parts();
        head.headers = headers;
        Response::from_parts(head, body)
    }
}

fn is_compressed(answer: &Response<Incoming>) -> bool {
    answer.headers().get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity")
}

/// A whole body, unless it is cut, too long or too slow.
async fn collected(mut body: Incoming, until: Instant) -> Option<Bytes> {
    let mut bytes = BytesMut::new();
    loop {
        match timeout_at(until, body.frame()).await {
            Ok(None) => return Some(bytes.freeze()),
            Ok(Some(Ok(frame))) => bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
            Ok(Some(Err(_))) | Err(_) => return None,
        }
        if bytes.len() > WHOLE_BYTES {
            return None;
        }
    }
}

/// What an answer is read by once its request is gone.
struct Asked {
    route: Route,
    model: String,
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
    // In its place at once: on its way into a task the runtime moves it ten times.
    tokio::spawn(Box::pin(async move { run(&shared, gate, checked, request, head).await }));
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
    mut head: oneshot::Sender<Response<Reply>>,
) {
    let (mut target, mut others) = (&side.first, side.others.as_slice());
    let mut tried = 0_u32;
    loop {
        let lease = match gate.clone().before(&request).await {
            Ok(lease) => lease,
            Err(refusal) => {
                let _ = head.send(side.error(
                    side.policy.refused(),
                    &format!("agentrun refused this request ({}): {}", refusal.word, refusal.message),
                ));
                return;
            }
        };
        if head.is_closed() {
            lease.after(RequestEnd::NotSent { why: "the harness hung up before it was sent".to_owned() }).await;
            return;
        }
        tried = tried.saturating_add(1);
        let came = match side.send(target, &checked).await {
            Err(NoAnswer::NotSent(why)) => Box::pin(not_sent(side, lease, why)).await,
            Err(NoAnswer::Unknown(why)) => Box::pin(unreadable(side, lease, None, why)).await,
            Ok(answer) => match answer.response.status() {
                status if status.is_client_error() || status.is_server_error() => {
                    Box::pin(failed(side, target, lease, answer)).await
                }
                // Following it would carry the credential and the spend to somewhere else.
                status if !status.is_success() => {
                    let why = "the provider answered with a redirect, which is not followed";
                    Box::pin(unreadable(side, lease, Some(status), why)).await
                }
                status if is_compressed(&answer.response) => {
                    let why = "the provider compressed its answer though it was asked not to, and it cannot be read";
                    Box::pin(unreadable(side, lease, Some(status), why)).await
                }
                _ => {
                    // Its copy of the body is not needed any more, and an answer can take an hour.
                    let asked = Asked { route: checked.route, model: request.model };
                    drop((request.body, request.facts, checked.headers, checked.body, checked._room));
                    return stream(side, target, lease, &asked, answer, head).await;
                }
            },
        };
        let wait = match tries::next(&side.retry, tried, came.failure, tries::chance()) {
            Next::Again(wait) => wait,
            Next::Elsewhere if let Some((next, rest)) = others.split_first() => {
                (target, others, tried) = (next, rest, 0);
                Duration::ZERO
            }
            Next::Elsewhere | Next::End => {
                let _ = head.send(came.reply);
                return;
            }
        };
        // Nothing is held meanwhile, so a harness that is gone needs no end.
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = head.closed() => return,
        }
    }
}

/// A try that gave nothing but this to pass on. Its lease has its end: when the harness reads the reply, the ledger says what was spent.
struct Failed {
    failure: Failure,
    reply: Response<Reply>,
}

async fn not_sent(side: &Side, lease: Box<dyn Lease>, why: &str) -> Failed {
    lease.after(RequestEnd::NotSent { why: why.to_owned() }).await;
    Failed { failure: Failure::NotSent, reply: side.error(StatusCode::BAD_GATEWAY, why) }
}

/// The provider may bill it and there is nothing to pass on.
async fn unreadable(side: &Side, lease: Box<dyn Lease>, status: Option<StatusCode>, why: &str) -> Failed {
    let status = status.map(|status| status.as_u16());
    lease.after(RequestEnd::Unknown { status, why: why.to_owned(), response: Bytes::new() }).await;
    Failed { failure: Failure::Doubtful, reply: side.error(StatusCode::BAD_GATEWAY, why) }
}

/// A status that is not a success is passed on as it is, unless it is asked again.
async fn failed(side: &Side, target: &Target, lease: Box<dyn Lease>, answer: Answer) -> Failed {
    let status = answer.response.status();
    let failure = Failure::Status(status, tries::after(answer.response.headers()));
    let reply = side.whole(target, answer).await;
    // Providers do not bill 4xx nor overload (529); of a time-out, a closed request and of 5xx nobody can say.
    let end = match status.as_u16() {
        status @ (400..=407 | 409..=498 | 529) => RequestEnd::Refused { status },
        status => RequestEnd::Unknown {
            status: Some(status),
            why: format!("the provider answered {status}"),
            response: Bytes::new(),
        },
    };
    lease.after(end).await;
    Failed { failure, reply }
}

/// A successful answer: its bytes go on untouched while the tap reads them.
async fn stream(
    side: &Side,
    target: &Target,
    lease: Box<dyn Lease>,
    asked: &Asked,
    answer: Answer,
    head: oneshot::Sender<Response<Reply>>,
) {
    let Answer { response, over } = answer;
    let status = response.status();
    let headers = side.answered(target, &response);
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let tap = side.policy.tap(&asked.route, &asked.model, kind);
    let length = response.body().size_hint().exact();
    let (harness, then) = if length.is_some_and(|length| length <= SHORT_BYTES) && !kind.starts_with(EVENTS) {
        (Harness::Waits, Then::Answer(head, headers))
    } else {
        let (to, pieces) = mpsc::channel(PIECES);
        let (whole, is_whole) = oneshot::channel();
        let heard = head.send(reply::streamed(status, headers, pieces, is_whole)).is_ok();
        (if heard { Harness::Reads(to) } else { Harness::Gone }, Then::End(whole))
    };
    let mut relay = Relay { side, target, tap, harness, drain: None, drained: 0, kept: Some(BytesMut::new()) };
    let why = relay.run(response.into_body()).await;
    if why.is_none() {
        target.upstream.give_back(over);
    }
    let Relay { tap, harness, kept, .. } = relay;
    let response = kept.unwrap_or_default().freeze();
    let passed = response.clone();
    let end = match tap.finish() {
        // Its figures are final, whatever became of the connection after them.
        Some(metered) => {
            RequestEnd::Complete { model: metered.model, usage: metered.usage, response_id: metered.id, response }
        }
        None => RequestEnd::Unknown {
            status: Some(status.as_u16()),
            why: why.unwrap_or("the answer ended without saying what was used").to_owned(),
            response,
        },
    };
    let is_whole = why.is_none() || matches!(end, RequestEnd::Complete { .. });
    lease.after(end).await;
    // Only now does the harness see the end: who has read an answer whole finds it booked. A cut answer is cut for it too.
    match then {
        Then::Answer(head, headers) if is_whole => drop(head.send(reply::whole(status, headers, passed))),
        Then::Answer(head, headers) => drop(head.send(reply::cut(status, headers, passed))),
        Then::End(whole) if is_whole => drop(whole.send(())),
        Then::End(_) => {}
    }
    drop(harness);
}

/// Events come one by one, and are passed on so, also those of a stated length.
const EVENTS: &str = "text/event-stream";

/// What the harness is told once the answer is booked.
enum Then {
    /// All of it.
    Answer(oneshot::Sender<Response<Reply>>, HeaderMap),
    /// That it was whole.
    End(oneshot::Sender<()>),
}

/// Who an answer is passed on to.
enum Harness {
    /// It reads the pieces as they come.
    Reads(mpsc::Sender<Bytes>),
    /// It gets the answer in one piece.
    Waits,
    /// It hung up.
    Gone,
}

/// One answer on its way.
struct Relay<'s> {
    side: &'s Side,
    target: &'s Target,
    tap: Box<dyn Tap>,
    harness: Harness,
    /// One of the drains, while nobody reads the answer.
    drain: Option<OwnedSemaphorePermit>,
    drained: usize,
    /// `None` once it was too long to keep.
    kept: Option<BytesMut>,
}

impl Relay<'_> {
    /// Passes the body on to its end, or says why it has none.
    async fn run(&mut self, mut body: Incoming) -> Option<&'static str> {
        let timeouts = self.target.upstream.timeouts();
        let mut now = Instant::now();
        let ends = now + timeouts.total;
        // Before anything else sees a byte: neither the harness nor the records may hold an echoed credential.
        let mut scrub = Scrub::new(self.target.credential.clone());
        loop {
            let patience = if self.tap.is_whole() { LINGER.min(timeouts.idle) } else { timeouts.idle };
            let frame = match timeout_at(ends.min(now + patience), body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => return self.pass(scrub.finish(), ends).await.err(),
                Ok(Some(Err(_))) => {
                    let _ = self.pass(scrub.finish(), ends).await;
                    return Some("the connection to the provider broke in the middle of its answer");
                }
                Err(_) if Instant::now() >= ends => return Some("the answer took too long (total time-out)"),
                Err(_) => return Some("the provider stopped in the middle of its answer (idle time-out)"),
            };
            if let Ok(data) = frame.into_data()
                && let Err(why) = self.pass(scrub.pass(data), ends).await
            {
                return Some(why);
            }
            // An answer with a length ends here, not a turn of the scheduler later: its last bytes and its end then go out in one write.
            if body.is_end_stream() {
                return self.pass(scrub.finish(), ends).await.err();
            }
            now = Instant::now();
        }
    }

    async fn pass(&mut self, data: Bytes, ends: Instant) -> Result<(), &'static str> {
        if data.is_empty() {
            return Ok(());
        }
        self.tap.feed(&data);
        match &mut self.kept {
            Some(kept) if kept.len().saturating_add(data.len()) <= RESPONSE_KEPT => kept.extend_from_slice(&data),
            kept => *kept = None,
        }
        let length = data.len();
        match &self.harness {
            Harness::Waits => return Ok(()),
            Harness::Reads(to) => {
                let Err(unsent) = to.try_send(data) else { return Ok(()) };
                // A harness that does not read is gone, as one that hung up: what it paid for must still come to an end.
                if let TrySendError::Full(data) = unsent {
                    let left = ends.saturating_duration_since(Instant::now());
                    let patience = left.min(self.target.upstream.timeouts().idle);
                    if matches!(timeout(patience, to.send(data)).await, Ok(Ok(()))) {
                        return Ok(());
                    }
                }
                self.harness = Harness::Gone;
            }
            Harness::Gone => {}
        }
        if self.drain.is_none() {
            let permit = self.side.drains.clone().try_acquire_owned();
            self.drain =
                Some(permit.map_err(|_| "the harness hung up while too many other answers were read to their end")?);
        }
        self.drained = self.drained.saturating_add(length);
        if self.drained > DRAIN_BYTES {
            return Err("the harness hung up and the rest of the answer was too long to read");
        }
        Ok(())
    }
}

/// A free request: passed on, not admitted, not booked. Nothing is lost when the harness hangs up and this is dropped.
pub(crate) async fn free(side: &Side, checked: Checked) -> Response<Reply> {
    match side.send(&side.first, &checked).await {
        Ok(answer) if answer.response.status().is_redirection() => {
            side.error(StatusCode::BAD_GATEWAY, "the provider answered with a redirect, which is not followed")
        }
        Ok(answer) => side.whole(&side.first, answer).await,
        Err(NoAnswer::NotSent(why) | NoAnswer::Unknown(why)) => side.error(StatusCode::BAD_GATEWAY, why),
    }
}
