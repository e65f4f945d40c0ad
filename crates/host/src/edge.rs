//! The form of a request, before anybody is asked: what hyper lets through and two readers could read differently is refused here.

use http::request::Parts;
use http::{HeaderMap, StatusCode, Version, header};

/// A request whose form is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) status: StatusCode,
    pub(crate) what: &'static str,
}

const fn bad(what: &'static str) -> Malformed {
    Malformed { status: StatusCode::BAD_REQUEST, what }
}

/// Checks head and peer-bound headers. `port` is the listener's.
pub(crate) fn check(parts: &Parts, port: u16) -> Result<(), Malformed> {
    let headers = &parts.headers;
    if parts.version != Version::HTTP_11 {
        return Err(Malformed { status: StatusCode::HTTP_VERSION_NOT_SUPPORTED, what: "HTTP/1.1 only" });
    }
    if parts.uri.scheme().is_some() || parts.uri.authority().is_some() {
        return Err(bad("the target must be a path"));
    }
    if count(headers, header::CONTENT_LENGTH.as_str()) > 1 {
        return Err(bad("one Content-Length at most"));
    }
    if headers.contains_key(header::CONTENT_LENGTH) && headers.contains_key(header::TRANSFER_ENCODING) {
        return Err(bad("Content-Length or Transfer-Encoding, not both"));
    }
    if count(headers, header::HOST.as_str()) > 1 {
        return Err(bad("one Host at most"));
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let ours = |host: &str| ["127.0.0.1", "localhost"].iter().any(|name| host == format!("{name}:{port}"));
    if !host.is_some_and(ours) {
        // A name that merely resolves here is how a web page reaches a local server.
        return Err(Malformed { status: StatusCode::MISDIRECTED_REQUEST, what: "the Host is not this proxy" });
    }
    if headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site") {
        return Err(Malformed { status: StatusCode::FORBIDDEN, what: "no browser is a client of this proxy" });
    }
    if headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return Err(Malformed { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, what: "compressed bodies are not read" });
    }
    Ok(())
}

/// The one key of a request: `x-api-key` or a bearer token, exactly one of them, once.
pub(crate) fn key(headers: &HeaderMap) -> Option<&[u8]> {
    let mut keys = headers
        .get_all("x-api-key")
        .iter()
        .map(|value| Some(value.as_bytes()))
        .chain(headers.get_all(header::AUTHORIZATION).iter().map(|value| value.as_bytes().strip_prefix(b"Bearer ")));
    let key = keys.next()?;
    if keys.next().is_some() { None } else { key }
}

fn count(headers: &HeaderMap, name: &str) -> usize {
    headers.get_all(name).iter().count()
}
