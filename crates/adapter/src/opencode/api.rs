//! The requests OpenCode's server takes, over loopback with the password of this start. One connection a request: there is nothing to
//! keep alive, and nothing to be found half dead. Only the v1 routes; `/api/…` asks providers of its own choice.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::json::at;
use super::launch::USER;
use super::timeline::Event;

/// Every request is answered at once but the first, which loads the project.
const ANSWER: Duration = Duration::from_secs(60);
/// The largest answer that is read, in bytes: a whole event log.
const LARGEST: usize = 512 * 1024 * 1024;

/// A request that failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error("OpenCode's server at {0} cannot be reached: {1}")]
    Unreachable(SocketAddr, String),
    #[error("OpenCode's server did not answer {0} within {secs} s", secs = ANSWER.as_secs())]
    Silent(String),
    #[error("OpenCode's server answered {status} to {to}: {words}")]
    Status { to: String, status: StatusCode, words: String },
    #[error("OpenCode's server answered {to} with something else: {what}")]
    Malformed { to: String, what: String },
}

/// What the program is doing in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Idle,
    Busy,
    /// A request failed, and it will send it again by itself.
    Retries(String),
}

/// A server, and the word it knows us by.
#[derive(Clone)]
pub(super) struct Api {
    address: SocketAddr,
    authorization: String,
}

impl Api {
    pub(super) fn new(address: SocketAddr, password: &str) -> Self {
        let authorization = format!("Basic {}", base64(format!("{USER}:{password}").as_bytes()));
        Self { address, authorization }
    }

    /// Its version.
    pub(super) async fn version(&self) -> Result<String, ApiError> {
        let health = self.json(Method::GET, "/global/health", None).await?;
        text(&health, "version", "/global/health")
    }

    /// The project it takes the workspace for.
    pub(super) async fn project(&self) -> Result<String, ApiError> {
        text(&self.json(Method::GET, "/project/current", None).await?, "id", "/project/current")
    }

    /// Makes a session; its id. The title spares a request that would find one.
    pub(super) async fn create(&self) -> Result<String, ApiError> {
        text(&self.json(Method::POST, "/session", Some(&json!({ "title": "agentrun" }))).await?, "id", "/session")
    }

    /// Gives it a message. Answered before anything is stored: no receipt.
    pub(super) async fn prompt(&self, session: &str, body: &Value) -> Result<(), ApiError> {
        self.ask(Method::POST, &format!("/session/{session}/prompt_async"), Some(body)).await.map(drop)
    }

    /// Aborts what runs in the session.
    pub(super) async fn abort(&self, session: &str) -> Result<(), ApiError> {
        self.ask(Method::POST, &format!("/session/{session}/abort"), None).await.map(drop)
    }

    pub(super) async fn status(&self, session: &str) -> Result<Status, ApiError> {
        let all = self.json(Method::GET, "/session/status", None).await?;
        let status = all.get(session).unwrap_or(&Value::Null);
        Ok(match at(status, "/type").as_str() {
            None | Some("idle") => Status::Idle,
            Some("retry") => Status::Retries(at(status, "/message").as_str().unwrap_or_default().to_owned()),
            Some(_) => Status::Busy,
        })
    }

    /// The session's events from number `next` on.
    pub(super) async fn events(&self, session: &str, next: u64) -> Result<Vec<Event>, ApiError> {
        let to = "/sync/history";
        let known = next.checked_sub(1).map_or_else(|| json!({}), |last| json!({ session: last }));
        let answer = self.json(Method::POST, to, Some(&known)).await?;
        let events = Vec::<Event>::deserialize(answer)
            .map_err(|error| ApiError::Malformed { to: to.to_owned(), what: error.to_string() })?;
        Ok(events.into_iter().filter(|event| event.aggregate_id == session && event.seq >= next).collect())
    }

    /// Has it take events as if it had made them.
    pub(super) async fn replay(&self, directory: &str, events: &[Event]) -> Result<(), ApiError> {
        let events: Vec<_> = events
            .iter()
            .map(|it| json!({ "id": it.id, "aggregateID": it.aggregate_id, "seq": it.seq, "type": it.kind, "data": it.data }))
            .collect();
        let body = json!({ "directory": directory, "events": events });
        self.ask(Method::POST, "/sync/replay", Some(&body)).await.map(drop)
    }

    /// Its live events: a hint that something happened, and no more. They are not numbered and none is sent twice.
    pub(super) async fn live(&self) -> Result<Incoming, ApiError> {
        Ok(self.send(Method::GET, "/event", None).await?.into_body())
    }

    async fn json(&self, method: Method, to: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        let answer = self.ask(method, to, body).await?;
        serde_json::from_slice(&answer)
            .map_err(|error| ApiError::Malformed { to: to.to_owned(), what: error.to_string() })
    }

    async fn ask(&self, method: Method, to: &str, body: Option<&Value>) -> Result<Bytes, ApiError> {
        let asked = async {
            let response = self.send(method, to, body).await?;
            let status = response.status();
            let read = Limited::new(response.into_body(), LARGEST).collect().await;
            let bytes = read.map_err(|error| self.unreachable(error))?.to_bytes();
            if status.is_success() {
                return Ok(bytes);
            }
            let words = String::from_utf8_lossy(&bytes).chars().take(500).collect();
            Err(ApiError::Status { to: to.to_owned(), status, words })
        };
        timeout(ANSWER, asked).await.map_err(|_| ApiError::Silent(to.to_owned()))?
    }

    async fn send(&self, method: Method, to: &str, body: Option<&Value>) -> Result<Response<Incoming>, ApiError> {
        let stream = TcpStream::connect(self.address).await.map_err(|error| self.unreachable(error))?;
        // Requests are small and waited for. Refused only on a dead socket.
        let _ = stream.set_nodelay(true);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.unreachable(error))?;
        // Ends with the request: its error is the request's too.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(to)
            .header(header::HOST, self.address.to_string())
            .header(header::AUTHORIZATION, &self.authorization)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| self.unreachable(error))?;
        sender.send_request(request).await.map_err(|error| self.unreachable(error))
    }

    fn unreachable(&self, error: impl ToString) -> ApiError {
        ApiError::Unreachable(self.address, error.to_string())
    }
}

fn text(answer: &Value, name: &str, to: &str) -> Result<String, ApiError> {
    let found = answer[name].as_str().map(str::to_owned);
    found.ok_or_else(|| ApiError::Malformed { to: to.to_owned(), what: format!("no `{name}`") })
}

/// What basic authentication wants its words in.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().enumerate().fold(0_u32, |group, (at, byte)| group | u32::from(*byte) << (16 - 8 * at));
        for at in 0..4 {
            let digit = usize::try_from(group >> (18 - 6 * at) & 63).unwrap_or(0);
            let shown = at <= chunk.len();
            text.push(if shown { DIGITS.get(digit).map_or('A', |byte| char::from(*byte)) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_padded_to_groups_of_four() {
        for (plain, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("opencode:pw", "b3BlbmNvZGU6cHc=")]
        {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
