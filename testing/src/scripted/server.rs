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
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::answer::{Answer, End};
use super::messages;
use super::seen::{Book, SeenRequest};
use crate::script::{Served, Step};

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
        (&Method::POST, "/v1/messages") => ask(seen, &book).await,
        (&Method::POST, "/v1/messages/count_tokens") => {
            let count = messages::token_count(&seen.body);
            free(seen, &book, 200, &count)
        }
        (&Method::HEAD, "/") => free(seen, &book, 200, &Value::Null),
        (method, path) => {
            let error = messages::error(404, &format!("the scripted model has no route {method} {path}"));
            free(seen, &book, 404, &error)
        }
    })
}

/// Answers what the model is not asked for.
fn free(seen: SeenRequest, book: &Book, status: u16, body: &Value) -> Response<Answer> {
    match book.note(seen) {
        Ok(()) => plain(status, body),
        Err(e) => log_lost(&e),
    }
}

async fn ask(seen: SeenRequest, book: &Book) -> Response<Answer> {
    if !seen.body.is_object() {
        return free(seen, book, 400, &messages::error(400, "the body is not a JSON object"));
    }
    let talk = messages::conversation(&seen.body);
    let stream = seen.body.get("stream") == Some(&Value::Bool(true));
    let model = seen.body.get("model").and_then(Value::as_str).unwrap_or_default().to_owned();
    let credential = seen.credential();
    let served = match book.serve(seen, &talk) {
        Ok(Ok(served)) => served,
        Ok(Err(none)) => return plain(500, &messages::error(500, &none.to_string())),
        Err(e) => return log_lost(&e),
    };
    if let Some(stall) = served.step.stall_ms {
        tokio::time::sleep(Duration::from_millis(stall)).await;
    }
    let echo = credential.filter(|_| served.step.echo_authorization);
    let mut response = match served.step.status {
        Some(status) => refusal(status, &served.step, echo.as_deref()),
        None if stream => streamed(&served, &model, echo.as_deref()),
        None => unstreamed(&served, &model, echo.as_deref()),
    };
    if let Some(value) = echo.and_then(|e| HeaderValue::from_str(&e).ok()) {
        response.headers_mut().insert("x-echo-authorization", value);
    }
    response
}

fn refusal(status: u16, step: &Step, echo: Option<&str>) -> Response<Answer> {
    let message = match echo {
        Some(credential) => format!("scripted failure; the request came with the credential {credential}"),
        None => "scripted failure".to_owned(),
    };
    let mut response = plain(status, &messages::error(status, &message));
    if let Some(seconds) = step.retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

fn streamed(served: &Served, model: &str, echo: Option<&str>) -> Response<Answer> {
    let step = &served.step;
    let events = messages::events(served, model, echo);
    // Without content the first event after `message_start` is broken.
    let broken = step.corrupt.then(|| events.iter().position(|(name, _)| *name == "content_block_delta").unwrap_or(1));
    let (most, end) = limits(step);
    let pieces = events.iter().enumerate().take(most).map(|(index, (name, data))| {
        let mut data = data.to_string();
        if broken == Some(index) {
            halve(&mut data);
        }
        Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
    });
    let delay = step.event_delay_ms.map(Duration::from_millis);
    respond(200, "text/event-stream; charset=utf-8", Answer::new(pieces, delay, end))
}

fn unstreamed(served: &Served, model: &str, echo: Option<&str>) -> Response<Answer> {
    let mut body = messages::whole(served, model, echo).to_string();
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
fn log_lost(error: &std::io::Error) -> Response<Answer> {
    plain(500, &messages::error(500, &format!("the scripted model cannot write its log: {error}")))
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
    if let Ok(id) = HeaderValue::from_str(&messages::unique("req")) {
        headers.insert("request-id", id);
    }
    response
}
