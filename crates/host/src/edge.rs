//! The form of a request, before anybody is asked: who may speak to the proxy, and in what shape. `head` has judged the bytes already.

use std::net::SocketAddr;

use http::request::Parts;
use http::{HeaderMap, HeaderName, StatusCode, header};

/// A request whose form is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) status: StatusCode,
    pub(crate) what: &'static str,
}

// Names that are no names of the library: read once and not with each request.
static SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
static API_KEY: HeaderName = HeaderName::from_static("x-api-key");

pub(crate) const fn bad(what: &'static str) -> Malformed {
    Malformed { status: StatusCode::BAD_REQUEST, what }
}

/// Checks who asks and for whom. `port` is the listener's.
pub(crate) fn check(parts: &Parts, peer: SocketAddr, port: u16) -> Result<(), Malformed> {
    let headers = &parts.headers;
    if !peer.ip().is_loopback() {
        return Err(Malformed { status: StatusCode::FORBIDDEN, what: "only this machine is served" });
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let ours = |host: &str| {
        let (name, stated) = host.rsplit_once(':').unwrap_or_default();
        // Exactly as it is written: a port with a sign or with noughts before it is another text.
        matches!(name, "127.0.0.1" | "localhost") && !stated.starts_with(['+', '0']) && stated.parse() == Ok(port)
    };
    if !host.is_some_and(ours) {
        // A name that merely resolves here is how a web page reaches a local server.
        return Err(Malformed { status: StatusCode::MISDIRECTED_REQUEST, what: "the Host is not this proxy" });
    }
    if headers.contains_key(header::ORIGIN) || headers.contains_key(&SITE) {
        return Err(Malformed { status: StatusCode::FORBIDDEN, what: "no browser is a client of this proxy" });
    }
    if headers.get_all(header::CONTENT_ENCODING).iter().any(|coding| coding != "identity") {
        return Err(Malformed { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, what: "compressed bodies are not read" });
    }
    Ok(())
}

/// A JSON body must say that it is one: a page's plain form post cannot. It says so once, and names no other charset than the one it is
/// checked in: the provider gets the same words and must read the same text.
pub(crate) fn is_json(headers: &HeaderMap) -> Result<(), Malformed> {
    let mut kinds = headers.get_all(header::CONTENT_TYPE).iter();
    let kind = kinds.next().and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut parts = kind.split(';').map(str::trim);
    let json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    let utf8 =
        |part: &str| ["", "charset=utf-8", "charset=\"utf-8\""].iter().any(|known| part.eq_ignore_ascii_case(known));
    if json && parts.all(utf8) && kinds.next().is_none() {
        return Ok(());
    }
    Err(Malformed {
        status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
        what: "the Content-Type must be application/json, once, in UTF-8",
    })
}

/// The one key of a request: `x-api-key` or a bearer token, exactly one of them, once.
pub(crate) fn key(headers: &HeaderMap) -> Option<&[u8]> {
    let bare = headers.get_all(&API_KEY).iter().map(|value| Some(value.as_bytes()));
    let mut keys = bare.chain(headers.get_all(header::AUTHORIZATION).iter().map(|value| bearer(value.as_bytes())));
    let key = keys.next()?;
    if keys.next().is_some() { None } else { key }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}
