//! How the provider is reached: straight, or through the HTTP proxy that the environment names for it (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`, in
//! either case). Through a proxy it is always a tunnel (`CONNECT`) with TLS to the provider inside, so the proxy sees a name and a port and
//! never a credential. An origin on loopback is reached straight, whatever the environment says.

use std::future::poll_fn;

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::rt::{Read, Write};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use tower_service::Service;

type Straight = HttpsConnector<HttpConnector>;

/// The way to one origin, fixed when the proxy starts.
pub(crate) enum Way {
    Straight(Straight),
    Through(Box<HttpsConnector<Tunnel<Straight>>>),
    /// The environment names a proxy of a kind that is not spoken. Going straight would go past what somebody asked for.
    Nowhere,
}

impl Way {
    /// The way to `origin` in this process's environment.
    pub(crate) fn to(origin: &Uri) -> Result<Self, rustls::Error> {
        Self::by(origin, &Matcher::from_env())
    }

    fn by(origin: &Uri, proxies: &Matcher) -> Result<Self, rustls::Error> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let straight = tls(tcp)?;
        let loopback = matches!(origin.host(), Some("127.0.0.1" | "localhost" | "[::1]"));
        let Some(proxy) = proxies.intercept(origin).filter(|_| !loopback) else {
            return Ok(Self::Straight(straight));
        };
        if !matches!(proxy.uri().scheme_str(), Some("http" | "https")) {
            return Ok(Self::Nowhere);
        }
        let tunnel = Tunnel::new(proxy.uri().clone(), straight);
        let tunnel = match proxy.basic_auth() {
            Some(auth) => tunnel.with_auth(auth.clone()),
            None => tunnel,
        };
        Ok(Self::Through(Box::new(tls(tunnel)?)))
    }

    /// A connection that can take a request; `None`: there is none to be had, and nothing was sent to the provider. Its faults come out at the
    /// request that rides on it.
    pub(crate) async fn connect(&self, origin: &Uri) -> Option<SendRequest<Full<Bytes>>> {
        match self {
            Self::Straight(connector) => connect(connector.clone(), origin).await,
            Self::Through(connector) => connect(connector.as_ref().clone(), origin).await,
            Self::Nowhere => None,
        }
    }

    /// What to say when [`Way::connect`] gives nothing.
    pub(crate) const fn failed(&self) -> &'static str {
        match self {
            Self::Straight(_) => "the provider cannot be reached (connect failed)",
            Self::Through(_) => {
                "the provider cannot be reached through the proxy that HTTPS_PROXY or ALL_PROXY names (connect failed)"
            }
            Self::Nowhere => "HTTPS_PROXY or ALL_PROXY names a proxy that is not an http or https one",
        }
    }
}

fn tls<C>(over: C) -> Result<HttpsConnector<C>, rustls::Error> {
    Ok(HttpsConnectorBuilder::new()
        .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())?
        .https_or_http()
        .enable_http1()
        .wrap_connector(over))
}

async fn connect<C>(mut connector: C, origin: &Uri) -> Option<SendRequest<Full<Bytes>>>
where
    C: Service<Uri>,
    C::Response: Read + Write + Unpin + Send + 'static,
{
    poll_fn(|context| connector.poll_ready(context)).await.ok()?;
    let stream = connector.call(origin.clone()).await.ok()?;
    let (to, connection) = handshake(stream).await.ok()?;
    tokio::spawn(connection);
    Some(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(origin: &str, proxies: &Matcher) -> &'static str {
        match Way::by(&origin.parse().unwrap(), proxies).unwrap() {
            Way::Straight(_) => "straight",
            Way::Through(_) => "through",
            Way::Nowhere => "nowhere",
        }
    }

    #[test]
    fn b89_the_environment_names_the_way_and_loopback_is_always_straight() {
        let proxies =
            Matcher::builder().https("http://p.example:3128").no("api.openai.com,.internal,10.0.0.0/8").build();
        for (origin, expected) in [
            ("https://api.anthropic.com", "through"),
            ("https://api.openai.com", "straight"),
            ("https://models.internal", "straight"),
            ("https://10.1.2.3", "straight"),
            ("https://127.0.0.1:8443", "straight"),
            ("https://localhost:8443", "straight"),
            ("http://[::1]:8080", "straight"),
        ] {
            assert_eq!(way(origin, &proxies), expected, "{origin}");
        }
        let all = Matcher::builder().all("https://user:pass@p.example").build();
        assert_eq!(way("https://api.anthropic.com", &all), "through");
        assert_eq!(way("http://127.0.0.1:8080", &all), "straight");
        assert_eq!(way("https://api.anthropic.com", &Matcher::builder().build()), "straight");
        let socks = Matcher::builder().all("socks5://p.example").build();
        assert_eq!(way("https://api.anthropic.com", &socks), "nowhere");
    }
}
