//! Connections and routes: a request is read whole, kept, given its step, and answered as the step says.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::answer::{Answer, End};
use super::chat::Chat;
use super::messages::{self, Messages};
use super::responses::{Compaction, Responses};
use super::seen::{Book, SeenRequest};
use super::wire::{Asked, Wire, unique};
use crate::script::{Conversation, Served, Step};

/// Accepts until dropped; dropping it closes every connection.
pub(super) async fn accept(listener: TcpListener, book: Arc<Book>) {
    let mut connections = JoinSet::new();
    loop {
        // An accept fails for want of file descriptors, or because the peer is gone already; both pass.
        let Ok((stream, _peer)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        // Events are small: without this each waits for the one before to be acknowledged. Refused only on a dead socket.
        let _ = stream.set_nodelay(true);
        let book = Arc::clone(&book);
        connections.spawn(async move {
            let service = service_fn(move |request| answer(request, Arc::clone(&book)));
            // A client that hung up and an answer the script cut both end here; the book has the request.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(request: Request<Incoming>, book: Arc<Book>) -> Result<Response<Answer>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let path = head.uri.path_and_query().map_or_else(|| head.uri.path().to_owned(), ToString::to_string);
    let seen = SeenRequest::new(head.method.to_string(), path, &head.headers, &body);
    Ok(match (&head.method, head.uri.path()) {
        (&Method::POST, "/v1/messages") => ask(seen, &book, &Messages).await,
        (&Method::POST, "/v1/responses") => ask(seen, &book, &Responses).await,
        (&Method::POST, "/v1/responses/compact") => ask(seen, &book, &Compaction).await,
        (&Method::POST, "/v1/chat/completions") => ask(seen, &book, &Chat).await,
        (&Method::POST, "/v1/messages/count_tokens" | "/v1/responses/input_tokens") => {
            let count = messages::token_count(&seen.body);
            free(seen, &book, 200, &count)
        }
        (&Method::GET, "/v1/models") => {
            // Codex looks for `models`, all others for `data`.
            free(seen, &book, 200, &json!({"object": "list", "data": [], "has_more": false, "models": []}))
        }
        (&Method::GET, "/v1/responses") => {
            free(seen, &book, 426, &Responses.error(426, "the scripted model has no WebSocket"))
        }
        (&Method::HEAD, "/") => free(seen, &book, 200, &Value::Null),
        (method, path) => {
            let wire: &dyn Wire =
                if path.starts_with("/v1/responses") || path.starts_with("/v1/chat") { &Responses } else { &Messages };
            let error = wire.error(404, &format!("the scripted model has no route {method} {path}"));
            free(seen, &book, 404, &error)
        }
    })
}

/// Answers what the model is not asked for.
fn free(seen: SeenRequest, book: &Book, status: u16, body: &Value) -> Response<Answer> {
    match book.note(seen) {
        Ok(()) => plain(status, body),
        Err(e) => log_lost(&Messages, &e),
    }
}

async fn ask(seen: SeenRequest, book: &Book, wire: &dyn Wire) -> Response<Answer> {
    if !seen.body.is_object() {
        return free(seen, book, 400, &wire.error(400, "the body is not a JSON object"));
    }
    if let Err(why) = book.admit(&seen.body).await {
        // The status with which harnesses are refused: they try none of the others once only.
        return free(seen, book, 403, &wire.error(403, &why));
    }
    let talk = wire.conversation(&seen.body);
    let stream = seen.body.get("stream") == Some(&Value::Bool(true));
    let (body, credential) = (seen.body.clone(), seen.credential());
    let served = match book.serve(seen, &talk) {
        Ok(Ok(served)) => served,
        Ok(Err(none)) => return plain(wire.unserved(), &wire.error(wire.unserved(), &none.to_string())),
        Err(e) => return log_lost(wire, &e),
    };
    if let Some(stall) = served.step.stall_ms {
        tokio::time::sleep(Duration::from_millis(stall)).await;
    }
    let echo = credential.filter(|_| served.step.echo_authorization);
    let asked = Asked { body: &body, echo: echo.as_deref() };
    let mut response = match served.step.status {
        Some(status) => refusal(wire, status, &served.step, asked.echo),
        None if stream => streamed(wire, &served, &asked),
        None if served.step.failure.is_some() => refusal(wire, 500, &served.step, asked.echo),
        None => unstreamed(wire, &served, &asked),
    };
    if let Some(value) = echo.and_then(|e| HeaderValue::from_str(&e).ok()) {
        response.headers_mut().insert("x-echo-authorization", value);
    }
    response
}

/// The API a path belongs to.
fn wire_of(path: &str) -> &'static dyn Wire {
    match path.split('?').next().unwrap_or_default() {
        "/v1/chat/completions" => &Chat,
        path if path.starts_with("/v1/responses") => &Responses,
        _ => &Messages,
    }
}

impl SeenRequest {
    /// The request as a script sees it, whatever API it came by. Empty for one that asked no model.
    #[must_use]
    pub fn conversation(&self) -> Conversation {
        if self.asks_model { wire_of(&self.path).conversation(&self.body) } else { Conversation::default() }
    }
}

fn refusal(wire: &dyn Wire, status: u16, step: &Step, echo: Option<&str>) -> Response<Answer> {
    let message = match echo {
        Some(credential) => format!("scripted failure; the request came with the credential {credential}"),
        None => "scripted failure".to_owned(),
    };
    let mut response = plain(status, &wire.error(status, &message));
    if let Some(seconds) = step.retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

fn streamed(wire: &dyn Wire, served: &Served, asked: &Asked<'_>) -> Response<Answer> {
    let step = &served.step;
    let mut events = wire.events(served, asked);
    if step.corrupt {
        // Without content the event after the first is broken.
        let place = events.iter().position(|event| event.is_content).unwrap_or(1);
        if let Some(event) = events.get_mut(place) {
            halve(&mut event.data);
        }
    }
    let (most, end) = limits(step);
    let pieces = events.iter().take(most).map(|event| Bytes::from(event.frame()));
    let delay = step.event_delay_ms.map(Duration::from_millis);
    respond(200, "text/event-stream; charset=utf-8", Answer::new(pieces, delay, end))
}

fn unstreamed(wire: &dyn Wire, served: &Served, asked: &Asked<'_>) -> Response<Answer> {
    let mut body = wire.whole(served, asked).to_string();
    if served.step.corrupt {
        halve(&mut body);
    }
    let promised = body.len();
    let end = limits(&served.step).1;
    if end != End::Whole {
        halve(&mut body);
    }
    let mut response = respond(200, "application/json", Answer::new([Bytes::from(body)], None, end));
    response.headers_mut().insert(CONTENT_LENGTH, promised.into());
    response
}

/// How many events go out, and how the answer ends.
fn limits(step: &Step) -> (usize, End) {
    match (step.cut_after_events, step.stall_after_events) {
        (Some(events), _) => (events, End::Cut),
        (None, Some(events)) => (events, End::Stall),
        (None, None) => (usize::MAX, End::Whole),
    }
}

/// Keeps about the first half, which is never whole JSON.
fn halve(json: &mut String) {
    let mut at = json.len() / 2;
    while !json.is_char_boundary(at) {
        at -= 1;
    }
    json.truncate(at);
}

/// A log that cannot be written is the test's evidence lost: say so where it cannot be overlooked.
fn log_lost(wire: &dyn Wire, error: &std::io::Error) -> Response<Answer> {
    plain(500, &wire.error(500, &format!("the scripted model cannot write its log: {error}")))
}

fn plain(status: u16, body: &Value) -> Response<Answer> {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let length = body.len();
    let mut response = respond(status, "application/json", Answer::whole(body));
    response.headers_mut().insert(CONTENT_LENGTH, length.into());
    response
}

fn respond(status: u16, content_type: &'static str, body: Answer) -> Response<Answer> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Ok(id) = HeaderValue::from_str(&unique("req")) {
        headers.insert("request-id", id.clone());
        headers.insert("x-request-id", id);
    }
    response
}
