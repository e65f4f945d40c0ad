//! The cases, as data. `{post}`, `{host}`, `{auth}`, `{length}` and `{body}` stand for the parts of a request that is served; each case has
//! one thing about it that is not.

/// One request as it goes over the wire, and what must come of it.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) send: &'static [u8],
    /// What the client does once it has sent.
    pub(crate) then: Then,
    /// The status of the answer; 0: hung up without one.
    pub(crate) status: u16,
    /// Whether gate or provider may see anything of it.
    pub(crate) reaches: bool,
    pub(crate) way: Way,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    Waits,
    StopsSending,
}

/// The connection afterwards: one whose request was of doubtful form must not be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    Closed,
}

/// Where the request ends is in doubt, or it was not ours to read.
const fn doubtful(name: &'static str, status: u16, send: &'static [u8]) -> Case {
    Case { name, send, then: Then::Waits, status, reaches: false, way: Way::Closed }
}

/// Well formed, and not served.
const fn refused(name: &'static str, status: u16, send: &'static [u8]) -> Case {
    Case { name, send, then: Then::Waits, status, reaches: false, way: Way::Open }
}

/// Odd, and served all the same.
const fn served(name: &'static str, send: &'static [u8]) -> Case {
    Case { name, send, then: Then::Waits, status: 200, reaches: true, way: Way::Open }
}

/// Answered by the proxy itself.
const fn answered(name: &'static str, send: &'static [u8]) -> Case {
    Case { name, send, then: Then::Waits, status: 200, reaches: false, way: Way::Open }
}

#[rustfmt::skip] // A table: a case a line.
pub(crate) const ANTHROPIC: &[Case] = &[
    // How long the body is.
    doubtful("length, then chunked", 400, b"{post}{host}{auth}{length}Transfer-Encoding: chunked\r\n\r\n{body}"),
    doubtful("chunked, then length", 400, b"{post}{host}{auth}Transfer-Encoding: chunked\r\n{length}\r\n{body}"),
    doubtful("two equal lengths", 400, b"{post}{host}{auth}{length}{length}\r\n{body}"),
    doubtful("two unequal lengths", 400, b"{post}{host}{auth}{length}Content-Length: 1\r\n\r\n{body}"),
    doubtful("two lengths, one in small letters", 400, b"{post}{host}{auth}{length}content-length: 1\r\n\r\n{body}"),
    doubtful("two lengths in one line", 400, b"{post}{host}{auth}Content-Length: {n}, {n}\r\n\r\n{body}"),
    doubtful("length with a sign", 400, b"{post}{host}{auth}Content-Length: +{n}\r\n\r\n{body}"),
    doubtful("length below zero", 400, b"{post}{host}{auth}Content-Length: -1\r\n\r\n{body}"),
    doubtful("empty length", 400, b"{post}{host}{auth}Content-Length:\r\n\r\n{body}"),
    doubtful("hexadecimal length", 400, b"{post}{host}{auth}Content-Length: 0x10\r\n\r\n{body}"),
    doubtful("length in two words", 400, b"{post}{host}{auth}Content-Length: 1 0\r\n\r\n{body}"),
    doubtful("length with a fraction", 400, b"{post}{host}{auth}Content-Length: {n}.0\r\n\r\n{body}"),
    doubtful("length beyond 64 bits", 400, b"{post}{host}{auth}Content-Length: 99999999999999999999\r\n\r\n{body}"),
    doubtful("length of 2^64 - 1", 431, b"{post}{host}{auth}Content-Length: 18446744073709551615\r\n\r\n{body}"),
    doubtful("a body over 32 MiB", 413, b"{post}{host}{auth}Content-Length: 33554433\r\n\r\n"),
    // The rest of the body is read as the next request, which it is not.
    doubtful("length too short", 400, b"{post}{host}{auth}Content-Length: 10\r\n\r\n{body}"),
    doubtful("no length and a body", 400, b"{post}{host}{auth}\r\n{body}"),
    Case { then: Then::StopsSending, ..doubtful("length too long", 400, b"{post}{host}{auth}Content-Length: 9999\r\n\r\n{body}") },
    Case { then: Then::StopsSending, ..doubtful("a head without end", 0, b"{post}{host}{auth}") },
    // Chunks.
    doubtful("chunked alone", 411, b"{post}{host}{auth}Transfer-Encoding: chunked\r\n\r\n{hex}\r\n{body}\r\n0\r\n\r\n"),
    doubtful("chunked in capitals", 411, b"{post}{host}{auth}TRANSFER-ENCODING: CHUNKED\r\n\r\n0\r\n\r\n"),
    doubtful("chunked behind a tab", 411, b"{post}{host}{auth}Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n"),
    doubtful("chunked with an extension", 411, b"{post}{host}{auth}Transfer-Encoding: chunked\r\n\r\n{hex};a=b\r\n{body}\r\n0\r\n\r\n"),
    doubtful("chunked with a trailer", 411, b"{post}{host}{auth}Transfer-Encoding: chunked\r\nTrailer: x-api-key\r\n\r\n0\r\nx-api-key: {key}\r\n\r\n"),
    doubtful("a chunk of no number", 411, b"{post}{host}{auth}Transfer-Encoding: chunked\r\n\r\nxyz\r\n{body}\r\n0\r\n\r\n"),
    doubtful("xchunked", 400, b"{post}{host}{auth}Transfer-Encoding: xchunked\r\n\r\n{body}"),
    doubtful("chunked twice", 400, b"{post}{host}{auth}Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    doubtful("chunked, identity", 400, b"{post}{host}{auth}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    doubtful("identity", 400, b"{post}{host}{auth}Transfer-Encoding: identity\r\n\r\n{body}"),
    doubtful("gzip, chunked", 400, b"{post}{host}{auth}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    doubtful("an empty encoding, and a length", 400, b"{post}{host}{auth}{length}Transfer-Encoding:\r\n\r\n{body}"),
    // Lines.
    doubtful("space before the colon", 400, b"{post}{host}{auth}Content-Length : {n}\r\n\r\n{body}"),
    doubtful("tab before the colon", 400, b"{post}{host}{auth}Content-Length\t: {n}\r\n\r\n{body}"),
    doubtful("folded header", 400, b"{post}{host}{auth}x-app: a\r\n b\r\n{length}\r\n{body}"),
    doubtful("header folded by a tab", 400, b"{post}{host}{auth}x-app: a\r\n\tTransfer-Encoding: chunked\r\n{length}\r\n{body}"),
    doubtful("space before the first header", 400, b"{post} x: y\r\n{host}{auth}{length}\r\n{body}"),
    doubtful("header without a colon", 400, b"{post}{host}{auth}nonsense\r\n{length}\r\n{body}"),
    doubtful("header without a name", 400, b"{post}{host}{auth}: a\r\n{length}\r\n{body}"),
    doubtful("brackets in a name", 400, b"{post}{host}{auth}x(app): a\r\n{length}\r\n{body}"),
    doubtful("NUL in a name", 400, b"{post}{host}{auth}x\0app: a\r\n{length}\r\n{body}"),
    doubtful("NUL in a value", 400, b"{post}{host}{auth}x-app: a\0b\r\n{length}\r\n{body}"),
    doubtful("control character in a value", 400, b"{post}{host}{auth}x-app: a\x01b\r\n{length}\r\n{body}"),
    doubtful("carriage return in a value", 400, b"{post}{host}{auth}x-app: a\rb\r\n{length}\r\n{body}"),
    doubtful("two carriage returns", 400, b"{post}{host}{auth}x-app: a\r\r\n{length}\r\n{body}"),
    doubtful("letters beyond ASCII in a value", 400, b"{post}{host}{auth}x-app: gr\xc3\xbcn\r\n{length}\r\n{body}"),
    doubtful("bytes that are no text in a value", 400, b"{post}{host}{auth}x-app: \xff\r\n{length}\r\n{body}"),
    doubtful("bare line feeds", 400, b"POST /v1/messages HTTP/1.1\nHost: 127.0.0.1:{port}\nx-api-key: {key}\nContent-Length: 2\n\n{}"),
    doubtful("one bare line feed", 400, b"{post}{host}{auth}x-app: a\n{length}\r\n{body}"),
    doubtful("a head over 64 KiB", 431, b"{post}{host}{auth}x-app: {70 KB}\r\n{length}\r\n{body}"),
    doubtful("a target over 64 KiB", 414, b"POST /{70 KB} HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    doubtful("two hundred headers", 431, b"{post}{host}{auth}{200 headers}{length}\r\n{body}"),
    // Whom it is for.
    doubtful("two hosts", 400, b"{post}{host}{auth}Host: evil.example\r\n{length}\r\n{body}"),
    doubtful("twice the same host", 400, b"{post}{host}{auth}{host}{length}\r\n{body}"),
    doubtful("no host", 421, b"{post}{auth}{length}\r\n{body}"),
    doubtful("an empty host", 421, b"{post}Host:\r\n{auth}{length}\r\n{body}"),
    doubtful("a foreign host", 421, b"{post}Host: evil.example\r\n{auth}{length}\r\n{body}"),
    doubtful("our address without the port", 421, b"{post}Host: 127.0.0.1\r\n{auth}{length}\r\n{body}"),
    doubtful("our address with another port", 421, b"{post}Host: 127.0.0.1:1\r\n{auth}{length}\r\n{body}"),
    doubtful("our address in another spelling", 421, b"{post}Host: 127.1:{port}\r\n{auth}{length}\r\n{body}"),
    doubtful("our address behind a name", 421, b"{post}Host: evil@127.0.0.1:{port}\r\n{auth}{length}\r\n{body}"),
    doubtful("our address and more", 421, b"{post}Host: 127.0.0.1:{port}, evil.example\r\n{auth}{length}\r\n{body}"),
    doubtful("a name that ends like ours", 421, b"{post}Host: x.localhost:{port}\r\n{auth}{length}\r\n{body}"),
    doubtful("a name that begins like ours", 421, b"{post}Host: localhost.evil.example:{port}\r\n{auth}{length}\r\n{body}"),
    doubtful("our name with a dot at its end", 421, b"{post}Host: localhost.:{port}\r\n{auth}{length}\r\n{body}"),
    served("our name", b"{post}Host: localhost:{port}\r\n{auth}{length}\r\n{body}"),
    doubtful("absolute target elsewhere", 400, b"POST http://evil.example/v1/messages HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    doubtful("absolute target here", 400, b"POST http://127.0.0.1:{port}/v1/messages HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    doubtful("CONNECT", 400, b"CONNECT evil.example:443 HTTP/1.1\r\n{host}{auth}\r\n"),
    doubtful("star target", 400, b"OPTIONS * HTTP/1.1\r\n{host}{auth}\r\n"),
    doubtful("target without a slash", 400, b"POST v1/messages HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    doubtful("fragment", 400, b"POST /v1/messages#x HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    doubtful("fragment after the query", 400, b"POST /v1/messages?beta=true#x HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    doubtful("target in two words", 400, b"POST /v1/messages /x HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    doubtful("two blanks before the target", 400, b"POST  /v1/messages HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    doubtful("a blank at the line's end", 400, b"POST /v1/messages HTTP/1.1 \r\n{host}{auth}{length}\r\n{body}"),
    doubtful("a tab for a blank", 400, b"POST\t/v1/messages HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    doubtful("letters beyond ASCII in the target", 400, b"POST /v1/messages\xc3\xbc HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    doubtful("method in small letters", 400, b"post /v1/messages HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    doubtful("HTTP/1.0", 505, b"POST /v1/messages HTTP/1.0\r\n{host}{auth}{length}\r\n{body}"),
    doubtful("HTTP/0.9", 400, b"GET /v1/messages\r\n\r\n"),
    doubtful("HTTP/1.2", 400, b"POST /v1/messages HTTP/1.2\r\n{host}{auth}{length}\r\n{body}"),
    doubtful("http/1.1 in small letters", 400, b"POST /v1/messages http/1.1\r\n{host}{auth}{length}\r\n{body}"),
    // hyper hangs up without a word.
    doubtful("HTTP/2 preface", 0, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    doubtful("a TLS greeting", 400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
    doubtful("a page's request", 403, b"{post}{host}{auth}Origin: http://evil.example\r\n{length}\r\n{body}"),
    doubtful("a sandboxed page's request", 403, b"{post}{host}{auth}Origin: null\r\n{length}\r\n{body}"),
    doubtful("our own page's request", 403, b"{post}{host}{auth}Origin: http://127.0.0.1:{port}\r\n{length}\r\n{body}"),
    doubtful("a browser's mark", 403, b"{post}{host}{auth}Sec-Fetch-Site: none\r\n{length}\r\n{body}"),
    doubtful("a page that asks before it asks", 403, b"OPTIONS /v1/messages HTTP/1.1\r\n{host}Origin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n\r\n"),
    doubtful("a probe from a page", 403, b"HEAD / HTTP/1.1\r\n{host}Origin: http://evil.example\r\n\r\n"),
    doubtful("a compressed body", 415, b"{post}{host}{auth}Content-Encoding: gzip\r\n{length}\r\n{body}"),
    doubtful("a body said to be plain, then compressed", 415, b"{post}{host}{auth}Content-Encoding: identity\r\nContent-Encoding: zstd\r\n{length}\r\n{body}"),
    // One behind the other.
    doubtful("a good one behind a doubtful one", 400, b"{post}{host}{auth}x(): a\r\n\r\n{post}{host}{auth}Content-Length: 2\r\n\r\n{}"),
    served("an empty line before the request", b"\r\n{post}{host}{auth}{length}\r\n{body}"),
    // Who asks.
    refused("no key", 401, b"{post}{host}Content-Type: application/json\r\n{length}\r\n{body}"),
    refused("a wrong key", 401, b"{post}{host}Content-Type: application/json\r\nx-api-key: agentrun-0000\r\n{length}\r\n{body}"),
    refused("an empty key", 401, b"{post}{host}Content-Type: application/json\r\nx-api-key:\r\n{length}\r\n{body}"),
    refused("the key's beginning", 401, b"{post}{host}Content-Type: application/json\r\nx-api-key: {half key}\r\n{length}\r\n{body}"),
    refused("the key and more", 401, b"{post}{host}Content-Type: application/json\r\nx-api-key: {key}0\r\n{length}\r\n{body}"),
    refused("the key twice", 401, b"{post}{host}{auth}x-api-key: {key}\r\n{length}\r\n{body}"),
    refused("both kinds of key", 401, b"{post}{host}{auth}Authorization: Bearer {key}\r\n{length}\r\n{body}"),
    refused("two tokens", 401, b"{post}{host}Content-Type: application/json\r\nAuthorization: Bearer {key}\r\nAuthorization: Bearer x\r\n{length}\r\n{body}"),
    refused("a token without its word", 401, b"{post}{host}Content-Type: application/json\r\nAuthorization: {key}\r\n{length}\r\n{body}"),
    refused("basic", 401, b"{post}{host}Content-Type: application/json\r\nAuthorization: Basic {key}\r\n{length}\r\n{body}"),
    refused("the key for another proxy", 401, b"{post}{host}Content-Type: application/json\r\nProxy-Authorization: Bearer {key}\r\n{length}\r\n{body}"),
    refused("the key in a cookie", 401, b"{post}{host}Content-Type: application/json\r\nCookie: x-api-key={key}\r\n{length}\r\n{body}"),
    refused("models without a key", 401, b"GET /v1/models HTTP/1.1\r\n{host}\r\n"),
    served("a token", b"{post}{host}Content-Type: application/json\r\nAuthorization: bearer {key}\r\n{length}\r\n{body}"),
    // For what.
    refused("the key in the query", 404, b"POST /v1/messages?key={key} HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("an unknown query", 404, b"POST /v1/messages?x=1 HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("an empty query", 404, b"POST /v1/messages? HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("two question marks", 404, b"POST /v1/messages??beta=true HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("one query more", 404, b"POST /v1/messages?beta=true&x=1 HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("the query twice", 404, b"POST /v1/messages?beta=true&beta=true HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("an escaped query", 404, b"POST /v1/messages?beta=%74rue HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("two slashes", 404, b"POST //v1/messages HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("a host for a path", 404, b"POST //evil.example/v1/messages HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("a dot segment", 404, b"POST /./v1/messages HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("a way back", 404, b"POST /v1/x/../messages HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("an escaped way back", 404, b"POST /v1/x/%2e%2e/messages HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("an escaped letter", 404, b"POST /v1/%6dessages HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("an escaped slash", 404, b"POST /v1%2fmessages HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("an escaped end", 404, b"POST /v1/messages%00 HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("an escaped blank", 404, b"POST /v1/messages%20 HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("half an escape", 404, b"POST /v1/messages%2 HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("a backslash", 404, b"POST /v1\\messages HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("a path parameter", 404, b"POST /v1/messages;a=b HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("a slash at the end", 404, b"POST /v1/messages/ HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("a dot at the end", 404, b"POST /v1/messages. HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("capitals", 404, b"POST /V1/messages HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("batches", 404, b"POST /v1/messages/batches HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("files", 404, b"POST /v1/files HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("the old completion", 404, b"POST /v1/complete HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("another provider's route", 404, b"POST /v1/chat/completions HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("an administrator's route", 404, b"GET /v1/organizations/api_keys HTTP/1.1\r\n{host}{auth}\r\n"),
    refused("another method", 404, b"PUT /v1/messages HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("a method of one's own", 404, b"MESSAGES /v1/messages HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    refused("DELETE", 404, b"DELETE /v1/messages HTTP/1.1\r\n{host}{auth}\r\n"),
    refused("TRACE", 404, b"TRACE /v1/messages HTTP/1.1\r\n{host}{auth}\r\n"),
    refused("a plain get", 404, b"GET / HTTP/1.1\r\n{host}{auth}\r\n"),
    refused("an upgrade to a WebSocket", 404, b"GET /v1/responses HTTP/1.1\r\n{host}{auth}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
    // No header changes where it goes or what becomes of it.
    served("an upgrade to HTTP/2", b"{post}{host}{auth}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n{length}\r\n{body}"),
    served("another method by header", b"{post}{host}{auth}X-HTTP-Method-Override: DELETE\r\n{length}\r\n{body}"),
    served("another host by header", b"{post}{host}{auth}X-Forwarded-Host: evil.example\r\nForwarded: host=evil.example\r\n{length}\r\n{body}"),
    served("another target by header", b"{post}{host}{auth}X-Original-URL: /v1/files\r\nX-Rewrite-URL: /v1/files\r\n{length}\r\n{body}"),
    served("a wait before the body", b"{post}{host}{auth}Expect: 100-continue\r\n{length}\r\n{body}"),
    Case { way: Way::Closed, ..served("its last request", b"{post}{host}{auth}Connection: close\r\n{length}\r\n{body}") },
    answered("a probe", b"HEAD / HTTP/1.1\r\n{host}\r\n"),
    answered("models", b"GET /v1/models HTTP/1.1\r\n{host}{auth}\r\n"),
    answered("a body where none belongs", b"GET /v1/models HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    // What it says.
    refused("a form's content type", 415, b"{post}{host}x-api-key: {key}\r\nContent-Type: text/plain\r\n{length}\r\n{body}"),
    refused("no content type", 415, b"{post}{host}x-api-key: {key}\r\n{length}\r\n{body}"),
    refused("two content types", 415, b"{post}{host}{auth}Content-Type: text/plain\r\n{length}\r\n{body}"),
    refused("two content types in one line", 415, b"{post}{host}x-api-key: {key}\r\nContent-Type: application/json, text/plain\r\n{length}\r\n{body}"),
    refused("a type that begins like JSON's", 415, b"{post}{host}x-api-key: {key}\r\nContent-Type: application/jsonp\r\n{length}\r\n{body}"),
    refused("another charset", 415, b"{post}{host}x-api-key: {key}\r\nContent-Type: application/json; charset=utf-16\r\n{length}\r\n{body}"),
    served("the charset it is", b"{post}{host}x-api-key: {key}\r\nContent-Type: application/json; charset=UTF-8\r\n{length}\r\n{body}"),
    refused("no body", 400, b"{post}{host}{auth}\r\n"),
    refused("an empty body", 400, b"{post}{host}{auth}Content-Length: 0\r\n\r\n"),
    refused("an array", 400, b"{post}{host}{auth}{length}\r\n[]"),
    refused("a text", 400, b"{post}{host}{auth}{length}\r\n\"{}\""),
    refused("a member twice", 400, b"{post}{host}{auth}{length}\r\n{\"model\":\"m\",\"max_tokens\":1,\"max_tokens\":2}"),
    refused("a member twice, once escaped", 400, b"{post}{host}{auth}{length}\r\n{\"model\":\"m\",\"max\\u005ftokens\":1,\"max_tokens\":2}"),
    refused("a member twice deep down", 400, b"{post}{host}{auth}{length}\r\n{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{\"a\":1,\"a\":2}]}"),
    refused("something after the document", 400, b"{post}{host}{auth}{length}\r\n{body}{}"),
    refused("NUL after the document", 400, b"{post}{host}{auth}{length}\r\n{body}\0"),
    refused("a hundred levels", 400, b"{post}{host}{auth}{length}\r\n{100 levels}"),
    refused("no number", 400, b"{post}{host}{auth}{length}\r\n{\"model\":\"m\",\"max_tokens\":NaN}"),
    refused("a number out of range", 400, b"{post}{host}{auth}{length}\r\n{\"model\":\"m\",\"max_tokens\":1e999}"),
    refused("half a surrogate", 400, b"{post}{host}{auth}{length}\r\n{\"model\":\"\\ud800\",\"max_tokens\":1}"),
    refused("bytes that are no text", 400, b"{post}{host}{auth}{length}\r\n{\"model\":\"\xff\",\"max_tokens\":1}"),
    refused("a byte order mark", 400, b"{post}{host}{auth}{length}\r\n\xef\xbb\xbf{body}"),
    refused("UTF-16", 400, b"{post}{host}{auth}{length}\r\n{\0}\0"),
    refused("a comment", 400, b"{post}{host}{auth}{length}\r\n/* */{body}"),
    refused("a comma at the end", 400, b"{post}{host}{auth}{length}\r\n{\"model\":\"m\",\"max_tokens\":1,\"messages\":[],}"),
    refused("a limit with an exponent", 400, b"{post}{host}{auth}{length}\r\n{\"model\":\"m\",\"max_tokens\":1e3,\"messages\":[]}"),
    refused("a limit with a fraction", 400, b"{post}{host}{auth}{length}\r\n{\"model\":\"m\",\"max_tokens\":1.0,\"messages\":[]}"),
    refused("a limit below zero", 400, b"{post}{host}{auth}{length}\r\n{\"model\":\"m\",\"max_tokens\":-1,\"messages\":[]}"),
    refused("a limit in quotes", 400, b"{post}{host}{auth}{length}\r\n{\"model\":\"m\",\"max_tokens\":\"9\",\"messages\":[]}"),
    refused("a limit beyond 64 bits", 400, b"{post}{host}{auth}{length}\r\n{\"model\":\"m\",\"max_tokens\":18446744073709551616,\"messages\":[]}"),
    refused("no model", 400, b"{post}{host}{auth}{length}\r\n{\"max_tokens\":1,\"messages\":[]}"),
    refused("a free route is strict too", 400, b"POST /v1/messages/count_tokens HTTP/1.1\r\n{host}{auth}{length}\r\n{\"a\":1,\"a\":2}"),
];

#[rustfmt::skip] // A table: a case a line.
pub(crate) const RESPONSES: &[Case] = &[
    refused("an upgrade to a WebSocket", 426, b"GET /v1/responses HTTP/1.1\r\n{host}{auth}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"),
    refused("an answer that is kept there", 404, b"GET /v1/responses/resp_1 HTTP/1.1\r\n{host}{auth}\r\n"),
    refused("an answer to be deleted", 404, b"DELETE /v1/responses/resp_1 HTTP/1.1\r\n{host}{auth}\r\n"),
    refused("an answer to be cancelled", 404, b"POST /v1/responses/resp_1/cancel HTTP/1.1\r\n{host}{auth}{length}\r\n{}"),
    refused("batches", 404, b"POST /v1/batches HTTP/1.1\r\n{host}{auth}{length}\r\n{}"),
    refused("files", 404, b"POST /v1/files HTTP/1.1\r\n{host}{auth}{length}\r\n{}"),
    refused("the other API of the same provider", 404, b"POST /v1/chat/completions HTTP/1.1\r\n{host}{auth}{length}\r\n{}"),
    refused("another provider's route", 404, b"POST /v1/messages HTTP/1.1\r\n{host}{auth}{length}\r\n{body}"),
    doubtful("a zstd body, as some logins send it", 415, b"POST /v1/responses HTTP/1.1\r\n{host}{auth}Content-Encoding: zstd\r\n{length}\r\n\x28\xb5\x2f\xfd"),
    answered("models, asked with a version", b"GET /v1/models?client_version=0.171.0 HTTP/1.1\r\n{host}{auth}\r\n"),
];
