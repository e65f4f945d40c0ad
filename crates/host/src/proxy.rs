//! The listener: one a process, on 127.0.0.1. The order of the checks is the same for every provider:
//!
//! ```text
//!  form, Host, Origin ─► open routes ─► key ─► method, exact path, exact query ─► size, strict JSON and what a quote reads
//!      ─► answered and free routes leave ─► gate ─► credential ─► provider ─► tap ─► lease
//! ```

use std::convert::Infallible;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::bodies::Bodies;
use crate::credential::Credential;
use crate::edge::{self, Malformed};
use crate::exchange::{self, Checked, Passed, Side, Target};
use crate::gate::{PaidRequest, RequestGate};
use crate::head::Watched;
use crate::json::{BODY_BYTES, Unfit, strict};
use crate::key::{KeyGuard, KeyTable, SessionSecret};
use crate::policy::{ProviderPolicy, Route, RouteKind, Shaped, route, shape};
use crate::provider::Provider;
use crate::reply::{self, Reply};
use crate::tries::Retry;
use crate::upstream::{Origin, Timeouts, Upstream};

/// How long a client may take.
#[derive(Clone, Copy)]
struct Patience {
    /// A head must be whole within this time: slow heads hold connections. Counts from the last answer, so it is also how long a harness may
    /// rest between two requests without having to connect anew.
    head: Duration,
    /// A body must be whole within this time. It comes from this machine.
    body: Duration,
}

const PATIENCE: Patience = Patience { head: Duration::from_secs(90), body: Duration::from_secs(30) };
/// Connections that are served at once; the next one waits to be accepted.
const CONNECTIONS: usize = 512;
/// Most that hyper reads at once. A body of an agent's usual size then comes in a few reads; a head is held to its own bound by `head`.
const READ_BYTES: usize = 256 << 10;

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

/// What a proxy does about a provider that fails, before a byte of an answer has gone to the harness. The default is nothing: the failure is
/// passed on, and what comes next is the harness's or the host's to say.
#[derive(Debug, Default)]
pub struct Steadfast {
    /// Tries at one provider.
    pub retry: Retry,
    /// Other providers of the same API, asked in this order once the tries at the one before are used up. Each must serve the models that are
    /// asked for, by their names and at the catalog's price.
    pub fallback: Vec<Fallback>,
}

/// A provider to turn to.
pub struct Fallback {
    /// Where it is.
    pub origin: Origin,
    /// What opens it; no other provider gets it.
    pub credential: Credential,
    /// How long it is waited for.
    pub timeouts: Timeouts,
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback").field("origin", &self.origin).finish_non_exhaustive()
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
    origin: Origin,
    address: SocketAddr,
    serving: AbortHandle,
}

impl fmt::Debug for ModelProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelProxy").field("address", &self.address).finish_non_exhaustive()
    }
}

impl ModelProxy {
    /// Listens on 127.0.0.1, on a port of the system's choice. Asks the provider once a request. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`ProxyError`].
    pub async fn start(provider: ProviderConfig) -> Result<Self, ProxyError> {
        Self::start_with(provider, Steadfast::default()).await
    }

    /// The same, and asks again or elsewhere as `steadfast` says.
    ///
    /// # Errors
    /// [`ProxyError`].
    pub async fn start_with(provider: ProviderConfig, steadfast: Steadfast) -> Result<Self, ProxyError> {
        Self::patient(provider, steadfast, PATIENCE).await
    }

    async fn patient(provider: ProviderConfig, steadfast: Steadfast, patience: Patience) -> Result<Self, ProxyError> {
        let ProviderConfig { api, policy, origin, credential, timeouts } = provider;
        let target = |origin, credential, timeouts| {
            Ok::<_, ProxyError>(Target { upstream: Upstream::new(origin, timeouts)?, credential: Arc::new(credential) })
        };
        let Steadfast { retry, fallback } = steadfast;
        let first = target(origin.clone(), credential, timeouts)?;
        let others: Result<Vec<_>, _> =
            fallback.into_iter().map(|other| target(other.origin, other.credential, other.timeouts)).collect();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let keys = Arc::new(KeyTable::default());
        let door = Arc::new(Door {
            keys: keys.clone(),
            side: Arc::new(Side {
                passed: Passed::by(&*policy),
                policy,
                first,
                others: others?,
                retry,
                drains: Arc::new(Semaphore::new(exchange::DRAINS)),
            }),
            bodies: Bodies::new(),
            patience,
            port: address.port(),
        });
        let serving = tokio::spawn(serve(listener, door)).abort_handle();
        Ok(Self { keys, api, origin, address, serving })
    }

    /// A new key whose requests `gate` decides. The text is shown here once; only its hash is kept, and only while the guard lives.
    ///
    /// # Errors
    /// [`ProxyError::Random`].
    pub fn admit(&self, gate: Arc<dyn RequestGate>) -> Result<(SessionSecret, KeyGuard), ProxyError> {
        self.keys.admit(self.api, gate).map_err(ProxyError::Random)
    }

    /// Whose API is served.
    #[must_use]
    pub const fn provider(&self) -> Provider {
        self.api
    }

    /// Where requests go.
    #[must_use]
    pub const fn origin(&self) -> &Origin {
        &self.origin
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
    bodies: Bodies,
    patience: Patience,
    port: u16,
}

async fn serve(listener: TcpListener, door: Arc<Door>) {
    let mut connections = JoinSet::new();
    // Lets go of connections that have ended, and is the timer that is due first: one that is set for earlier than all others wakes the
    // runtime with a system call, which the patience for a head would do after each answer.
    let mut ticks = tokio::time::interval(door.patience.head / 2);
    loop {
        while connections.len() >= CONNECTIONS {
            connections.join_next().await;
        }
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ticks.tick() => continue,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(_) => {
                // Out of descriptors: connections that end free some.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        // Not fatal: small answers then wait for the other side's acknowledgement.
        let _ = stream.set_nodelay(true);
        let (door, patience) = (door.clone(), door.patience.head);
        connections.spawn(async move {
            let (stream, verdicts) = Watched::new(stream);
            let service = service_fn(move |request| {
                let (door, verdict) = (door.clone(), verdicts.next());
                async move { Ok::<_, Infallible>(door.handle(request, peer, verdict).await) }
            });
            // A connection's end is its client's business.
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(patience)
                .max_buf_size(READ_BYTES)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

impl Door {
    async fn handle(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
        verdict: Result<(), Malformed>,
    ) -> Response<Reply> {
        let (parts, body) = request.into_parts();
        let policy = &*self.side.policy;
        // Where a request of doubtful form ends is in doubt too: nothing more of it is read.
        if let Err(malformed) = verdict.and_then(|()| edge::check(&parts, peer, self.port)) {
            return reply::close(reply::error(policy, malformed.status, malformed.what));
        }
        let (route, api, gate) = match self.admitted(&parts) {
            Ok(Admitted::Passed(route, api, gate)) => (route, api, gate),
            Ok(Admitted::Answered(answer)) => {
                let answer = reply::json(StatusCode::OK, Bytes::from_static(answer.as_bytes()));
                return self.read_past(body, answer).await;
            }
            Err((status, what)) => return self.read_past(body, reply::error(policy, status, what)).await,
        };
        let body_bytes = length(&body);
        if body_bytes > BODY_BYTES as u64 {
            let (status, what) = (StatusCode::PAYLOAD_TOO_LARGE, "the body is over 32 MiB");
            return reply::close(reply::error(policy, status, what));
        }
        let (body, room) = match timeout(self.patience.body, self.bodies.read(body, body_bytes)).await {
            Ok(Ok(read)) => read,
            Ok(Err(what)) => return reply::close(reply::error(policy, StatusCode::BAD_REQUEST, what)),
            Err(_) => {
                let what = "the body did not come in time";
                return reply::close(reply::error(policy, StatusCode::REQUEST_TIMEOUT, what));
            }
        };
        let unfit = |unfit: Unfit| reply::error(policy, StatusCode::BAD_REQUEST, &unfit.to_string());
        let checked = |body| Checked { route, headers: parts.headers, body, _room: room };
        if route.kind == RouteKind::Free {
            return match strict(&body) {
                Ok(()) => exchange::free(&self.side, checked(body)).await,
                Err(error) => unfit(error),
            };
        }
        let Shaped { body, facts } = match shape(policy, &route, &body) {
            Ok(shaped) => shaped,
            Err(error) => return unfit(error),
        };
        let checked = checked(body.clone());
        let paid = PaidRequest { provider: api, route: route.path, model: facts.model.clone(), body, facts };
        exchange::paid(self.side.clone(), gate, checked, paid).await
    }

    /// Who asks, and for what.
    fn admitted(&self, parts: &Parts) -> Result<Admitted, (StatusCode, &'static str)> {
        let route = route(&*self.side.policy, &parts.method, parts.uri.path(), parts.uri.query());
        if let Some(Route { kind: RouteKind::Open(answer), .. }) = route {
            return Ok(Admitted::Answered(answer));
        }
        let Some((api, gate)) = self.keys.find(edge::key(&parts.headers)) else {
            return Err((StatusCode::UNAUTHORIZED, "the session key is missing, wrong or no longer valid"));
        };
        let route = route.ok_or((StatusCode::NOT_FOUND, "this route is not served"))?;
        match route.kind {
            RouteKind::Answered(answer) => return Ok(Admitted::Answered(answer)),
            RouteKind::Refused(status, what) => return Err((status, what)),
            _ => {}
        }
        edge::is_json(&parts.headers).map_err(|malformed| (malformed.status, malformed.what))?;
        Ok(Admitted::Passed(route, api, gate))
    }

    /// Answers once the body is read and forgotten: a client that still sends would lose the answer with the connection.
    async fn read_past(&self, mut body: Incoming, answer: Response<Reply>) -> Response<Reply> {
        if length(&body) > BODY_BYTES as u64 {
            return reply::close(answer);
        }
        let rest = async { while let Some(Ok(_)) = body.frame().await {} };
        match timeout(self.patience.body, rest).await {
            Ok(()) => answer,
            Err(_) => reply::close(answer),
        }
    }
}

/// Where a request goes.
enum Admitted {
    Passed(Route, Provider, Arc<dyn RequestGate>),
    Answered(&'static str),
}

/// What the head announced; `head` lets no body pass that does not.
fn length(body: &Incoming) -> u64 {
    body.size_hint().exact().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod slow;
