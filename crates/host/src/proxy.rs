//! The listener: one a process, on 127.0.0.1. The order of the checks is the same for every provider:
//!
//! ```text
//!  form, Host, Origin ─► open routes ─► key ─► method, exact path, exact query ─► size, strict JSON ─► what a quote reads
//!      ─► answered and free routes leave ─► gate ─► credential ─► provider ─► tap ─► lease
//! ```

use std::convert::Infallible;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

use crate::credential::Credential;
use crate::edge;
use crate::exchange::{self, Checked, Side};
use crate::gate::{PaidRequest, RequestGate};
use crate::json::{BODY_BYTES, strict};
use crate::key::{KeyGuard, KeyTable, SessionSecret};
use crate::provider::Provider;
use crate::policy::{ProviderPolicy, Route, RouteKind, route};
use crate::reply::{self, Reply};
use crate::upstream::{Origin, Timeouts, Upstream};

/// A head must be whole within this time: slow heads hold connections.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// A body must go on within this time.
const BODY_TIME: Duration = Duration::from_secs(30);

/// One provider as the proxy serves it.
pub struct ProviderConfig {
    /// Which API it is.
    pub api: Provider,
    /// How it speaks.
    pub policy: Arc<dyn ProviderPolicy>,
    /// Where it is.
    pub origin: Origin,
    /// What opens it.
    pub credential: Credential,
    /// How long it is waited for.
    pub timeouts: Timeouts,
}

impl fmt::Debug for ProviderConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderConfig")
            .field("policy", &self.policy.name())
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

/// Why the proxy did not start.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The loopback port.
    #[error("the model proxy cannot listen on 127.0.0.1: {0}")]
    Listen(#[from] std::io::Error),
    /// TLS.
    #[error("the model proxy cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// Randomness for a session key.
    #[error("no randomness for a session key: {0}")]
    Random(getrandom::Error),
}

/// The running proxy. Dropped, it closes its port; leases that are open run on to their end.
pub struct ModelProxy {
    keys: Arc<KeyTable>,
    api: Provider,
    address: SocketAddr,
    serving: AbortHandle,
}

impl fmt::Debug for ModelProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelProxy").field("address", &self.address).finish_non_exhaustive()
    }
}

impl ModelProxy {
    /// Listens on 127.0.0.1, on a port of the system's choice. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`ProxyError`].
    pub async fn start(provider: ProviderConfig) -> Result<Self, ProxyError> {
        let ProviderConfig { api, policy, origin, credential, timeouts } = provider;
        let upstream = Upstream::new(origin, timeouts)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let keys = Arc::new(KeyTable::default());
        let door = Arc::new(Door {
            keys: keys.clone(),
            side: Arc::new(Side { policy, upstream, credential: Arc::new(credential) }),
            port: address.port(),
        });
        let serving = tokio::spawn(serve(listener, door)).abort_handle();
        Ok(Self { keys, api, address, serving })
    }

    /// A new key whose requests `gate` decides. The text is shown here once; only its hash is kept, and only while the guard lives.
    ///
    /// # Errors
    /// [`ProxyError::Random`].
    pub fn admit(&self, gate: Arc<dyn RequestGate>) -> Result<(SessionSecret, KeyGuard), ProxyError> {
        self.keys.admit(self.api, gate).map_err(ProxyError::Random)
    }

    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for ModelProxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

struct Door {
    keys: Arc<KeyTable>,
    side: Arc<Side>,
    port: u16,
}

async fn serve(listener: TcpListener, door: Arc<Door>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                // Out of descriptors: connections that end free some.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        // Not fatal: small answers then wait for the other side's acknowledgement.
        let _ = stream.set_nodelay(true);
        let door = door.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let door = door.clone();
                async move { Ok::<_, Infallible>(door.handle(request).await) }
            });
            // A connection's end is its client's business.
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME)
                .max_buf_size(64 << 10)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

impl Door {
    async fn handle(&self, request: Request<Incoming>) -> Response<Reply> {
        let (parts, body) = request.into_parts();
        let policy = &*self.side.policy;
        if let Err(malformed) = edge::check(&parts, self.port) {
            return reply::close(reply::error(policy, malformed.status, malformed.what));
        }
        let route = route(policy, &parts.method, parts.uri.path(), parts.uri.query());
        if let Some(Route { kind: RouteKind::Open(answer), .. }) = route {
            return reply::json(StatusCode::OK, Bytes::from_static(answer.as_bytes()));
        }
        let Some((api, gate)) = self.keys.find(edge::key(&parts.headers)) else {
            return reply::close(reply::error(
                policy,
                StatusCode::UNAUTHORIZED,
                "the session key is missing, wrong or no longer valid",
            ));
        };
        let Some(route) = route else {
            return reply::close(reply::error(policy, StatusCode::NOT_FOUND, "this route is not served"));
        };
        if let RouteKind::Answered(answer) = route.kind {
            return reply::json(StatusCode::OK, Bytes::from_static(answer.as_bytes()));
        }
        let body = match read(body).await {
            Ok(body) => body,
            Err(malformed) => return reply::close(reply::error(policy, malformed.status, malformed.what)),
        };
        let seen = match strict(&body) {
            Ok(seen) => seen,
            Err(error) => return reply::error(policy, StatusCode::BAD_REQUEST, &error.to_string()),
        };
        let checked = Checked { route, headers: parts.headers, body: body.clone() };
        if route.kind == RouteKind::Free {
            return exchange::free(&self.side, checked).await;
        }
        let facts = match policy.facts(&body, seen) {
            Ok(facts) => facts,
            Err(what) => return reply::error(policy, StatusCode::BAD_REQUEST, &what),
        };
        let paid = PaidRequest { provider: api, route: route.path, model: facts.model.clone(), body, facts };
        exchange::paid(self.side.clone(), gate, checked, paid).await
    }
}

async fn read(mut body: Incoming) -> Result<Bytes, edge::Malformed> {
    let mut bytes = BytesMut::new();
    loop {
        let frame = match tokio::time::timeout(BODY_TIME, body.frame()).await {
            Ok(None) => return Ok(bytes.freeze()),
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => {
                return Err(edge::Malformed { status: StatusCode::BAD_REQUEST, what: "the body ended early" });
            }
            Err(_) => {
                return Err(edge::Malformed {
                    status: StatusCode::REQUEST_TIMEOUT,
                    what: "the body did not come in time",
                });
            }
        };
        if let Ok(data) = frame.into_data() {
            if bytes.len().saturating_add(data.len()) > BODY_BYTES {
                return Err(edge::Malformed { status: StatusCode::PAYLOAD_TOO_LARGE, what: "the body is over 32 MiB" });
            }
            bytes.extend_from_slice(&data);
        }
    }
}
