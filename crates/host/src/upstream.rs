//! The provider's side: one origin, fixed when the proxy starts. Nothing of a request reaches the URL but a listed path; no redirect is
//! followed; nothing is sent twice.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// How long the provider is waited for. Each is named in the refusal it leads to.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Until the connection stands.
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
        let bad = || OriginError(text.to_owned());
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

/// Why there was no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// Surely nothing was sent.
    NotSent(&'static str),
    /// It may have been sent.
    Unknown(&'static str),
}

/// The way to one provider.
#[derive(Clone)]
pub(crate) struct Upstream {
    origin: Origin,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    timeouts: Timeouts,
}

impl Upstream {
    pub(crate) fn new(origin: Origin, timeouts: Timeouts) -> Result<Self, rustls::Error> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(timeouts.connect));
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())?
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let client = Client::builder(TokioExecutor::new())
            // A second send is a second spend: a stale pooled connection is an error, not a reason to try again.
            .retry_canceled_requests(false)
            .pool_idle_timeout(Duration::from_secs(20))
            .build(connector);
        Ok(Self { origin, client, timeouts })
    }

    /// Sends one request and waits for the head of its answer.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        query: Option<&str>,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, NoAnswer> {
        let target = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
        let mut parts = self.origin.uri.clone().into_parts();
        parts.path_and_query = Some(target.parse().map_err(|_| NoAnswer::NotSent("the path cannot be sent"))?);
        let uri = Uri::from_parts(parts).map_err(|_| NoAnswer::NotSent("the path cannot be sent"))?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        match tokio::time::timeout(self.timeouts.head, self.client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            // A failed connect is the one fault after which it is certain that not a byte of the request left.
            Ok(Err(error)) if error.is_connect() => {
                Err(NoAnswer::NotSent("the provider cannot be reached (connect failed)"))
            }
            Ok(Err(_)) => Err(NoAnswer::Unknown("the connection to the provider broke before it answered")),
            Err(_) => Err(NoAnswer::Unknown("the provider did not begin its answer in time (head time-out)")),
        }
    }

    pub(crate) const fn timeouts(&self) -> Timeouts {
        self.timeouts
    }
}
