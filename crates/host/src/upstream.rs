//! The provider's side: one origin, fixed when the proxy starts. Nothing of a request reaches the URL but a listed path; no redirect is
//! followed; nothing is sent twice.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use tokio::time::timeout;

use crate::way::Way;

/// How long the provider is waited for. Each is named in the refusal it leads to.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Until the connection stands: name, TCP and TLS.
    pub connect: Duration,
    /// Until the head of the answer.
    pub head: Duration,
    /// Between two pieces of the answer.
    pub idle: Duration,
    /// For a whole answer, and for draining one whose harness is gone.
    pub total: Duration,
}

impl Default for Timeouts {
    /// Connect 10 s, head 10 min (the provider's own client waits as long), idle 5 min (pings come more often), total 1 h.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            head: Duration::from_secs(600),
            idle: Duration::from_secs(300),
            total: Duration::from_secs(3600),
        }
    }
}

/// Where a provider is: scheme, host and port, no path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    uri: Uri,
}

/// Why a text is not an origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an origin such as https://api.example.com or http://127.0.0.1:8080 (no path; plain http only on loopback)"
)]
pub struct OriginError(pub String);

impl std::str::FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        // What stands before an `@` may be a password.
        let shown = text.rsplit_once('@').map_or(text, |(_, after)| after);
        let bad = || OriginError(shown.to_owned());
        let uri: Uri = text.parse().map_err(|_| bad())?;
        let host = uri.host().ok_or_else(bad)?;
        let loopback = matches!(host, "127.0.0.1" | "localhost" | "[::1]");
        let scheme = uri.scheme_str().ok_or_else(bad)?;
        let plain = scheme == "https" || (scheme == "http" && loopback);
        let bare =
            matches!(uri.path(), "" | "/") && uri.query().is_none() && !text.contains('@') && !text.contains('#');
        if plain && bare { Ok(Self { uri }) } else { Err(bad()) }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.uri.to_string().trim_end_matches('/'))
    }
}

/// Why there was no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// Surely nothing was sent.
    NotSent(&'static str),
    /// It may have been sent.
    Unknown(&'static str),
}

/// The way to one provider: its connections, and how long it is waited for.
///
/// The pool is ours and not the client library's, because money hangs on one question it does not answer: of a request that failed on a
/// connection that had gone stale, did a byte leave?
pub(crate) struct Upstream {
    origin: Origin,
    /// `None`: it cannot stand in a header, and nothing is sent.
    host: Option<HeaderValue>,
    way: Way,
    idle: Mutex<Vec<Idle>>,
    timeouts: Timeouts,
}

struct Idle {
    to: SendRequest<Full<Bytes>>,
    since: Instant,
}

/// Providers close connections that rest longer; one that both sides still hold is worth a handshake.
const REST: Duration = Duration::from_secs(20);
/// Resting connections that are kept.
const RESTING: usize = 64;

/// An answer, and the connection it comes over.
pub(crate) struct Answer {
    pub(crate) response: Response<Incoming>,
    pub(crate) over: Over,
}

/// The connection of an answer: given back once the answer was read to its end, closed otherwise.
pub(crate) struct Over(SendRequest<Full<Bytes>>);

impl Upstream {
    pub(crate) fn new(origin: Origin, timeouts: Timeouts) -> Result<Self, rustls::Error> {
        let way = Way::to(&origin.uri)?;
        let host = origin.uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
        Ok(Self { origin, host, way, idle: Mutex::new(Vec::new()), timeouts })
    }

    /// Sends one request, once, and waits for the head of its answer. Dropped, the connection is closed.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &'static str,
        query: Option<&str>,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, NoAnswer> {
        let target =
            query.map_or_else(|| Bytes::from_static(path.as_bytes()), |query| format!("{path}?{query}").into());
        let (Ok(uri), Some(host)) = (Uri::from_maybe_shared(target), self.host.clone()) else {
            return Err(NoAnswer::NotSent("the request's path or host cannot be sent"));
        };
        headers.insert(header::HOST, host);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        loop {
            let (mut to, rested) = match self.resting() {
                Some(to) => (to, true),
                None => (self.connect().await?, false),
            };
            match timeout(self.timeouts.head, to.try_send_request(request)).await {
                Ok(Ok(response)) => return Ok(Answer { response, over: Over(to) }),
                Err(_) => {
                    return Err(NoAnswer::Unknown("the provider did not begin its answer in time (head time-out)"));
                }
                // A request that comes back was never written: a connection that rested too long may be tried over another.
                Ok(Err(mut failed)) => match failed.take_message() {
                    Some(back) if rested => request = back,
                    Some(_) => {
                        return Err(NoAnswer::NotSent("the provider closed the connection before anything was sent"));
                    }
                    None => {
                        return Err(NoAnswer::Unknown("the connection to the provider broke before it answered"));
                    }
                },
            }
        }
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, NoAnswer> {
        match timeout(self.timeouts.connect, Box::pin(self.way.connect(&self.origin.uri))).await {
            Ok(Some(to)) => Ok(to),
            Ok(None) => Err(NoAnswer::NotSent(self.way.failed())),
            Err(_) => Err(NoAnswer::NotSent("the provider cannot be reached in time (connect time-out)")),
        }
    }

    /// The connection that rested the shortest and can take a request.
    fn resting(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle();
        idle.retain(|idle| !idle.to.is_closed() && idle.since.elapsed() < REST);
        let place = idle.iter().rposition(|idle| idle.to.is_ready())?;
        Some(idle.swap_remove(place).to)
    }

    /// Keeps a connection whose answer was read to its end.
    pub(crate) fn give_back(&self, over: Over) {
        let mut idle = self.idle();
        if idle.len() < RESTING && !over.0.is_closed() {
            idle.push(Idle { to: over.0, since: Instant::now() });
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn timeouts(&self) -> Timeouts {
        self.timeouts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[tokio::test]
    async fn a_request_that_a_dying_connection_gives_back_goes_over_another_and_is_sent_once() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let origin = format!("http://{address}").parse().unwrap();
        let upstream = Upstream::new(origin, Timeouts::default()).unwrap();

        // A resting connection that looks well: nobody drives it, so nobody notices that it is about to go.
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (to, connection) =
            hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
        let mut connection = Box::pin(connection);
        poll_fn(|context| {
            let _ = connection.as_mut().poll(context);
            std::task::Poll::Ready(())
        })
        .await;
        upstream.give_back(Over(to));
        let (mut dying, _) = listener.accept().await.unwrap();

        let provider = async {
            drop(connection);
            let (mut fresh, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let read = fresh.read(&mut request).await.unwrap();
            fresh.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            request.truncate(read);
            request
        };
        let send = upstream.send(Method::POST, "/v1/messages", None, HeaderMap::new(), Bytes::from("{}"));
        let (answer, request) = timeout(Duration::from_secs(30), async { tokio::join!(send, provider) }).await.unwrap();
        assert!(answer.is_ok_and(|answer| answer.response.status() == 200));
        assert!(request.starts_with(b"POST /v1/messages HTTP/1.1\r\n"));
        let mut stray = Vec::new();
        dying.read_to_end(&mut stray).await.unwrap();
        assert!(stray.is_empty(), "the dying connection got a byte");
    }

    #[test]
    fn an_origin_is_https_or_plain_on_loopback_and_nothing_more() {
        for good in [
            "https://api.anthropic.com",
            "https://h:8443/",
            "http://127.0.0.1:9",
            "http://localhost:9",
            "http://[::1]:9",
        ] {
            assert!(good.parse::<Origin>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "api.anthropic.com",
            "http://api.anthropic.com",
            "http://127.0.0.1.evil.example",
            "https://h/v1",
            "https://h?x",
            "https://user:pass@h",
            "https://h#f",
            "ftp://127.0.0.1",
            "http://10.0.0.1",
        ] {
            assert!(bad.parse::<Origin>().is_err(), "{bad}");
        }
    }
}
