//! The HTTP edge on a bare socket: what is refused, with which status, that nothing of it reaches gate or provider, and that a connection
//! whose request was of doubtful form is not used again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // Tests: a failure is a report.

mod common;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use common::{BODY, JSON, PATIENCE, Session, Upstream, ask_on, is_closed, message};

fn body(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

#[tokio::test]
async fn b82_a_head_that_two_readers_could_read_differently_is_refused_and_the_connection_closed() {
    let upstream = Upstream::answering(message()).await;
    let session = Session::before(&upstream).await;
    let (port, key) = (session.port, session.key.as_str());
    let n = BODY.len();
    let host = format!("Host: 127.0.0.1:{port}\r\n");
    let auth = format!("x-api-key: {key}\r\n{JSON}");
    let post = "POST /v1/messages HTTP/1.1\r\n";
    let length = format!("Content-Length: {n}\r\n");
    let with = |extra: &str| format!("{post}{host}{auth}{extra}\r\n{BODY}");
    let line = |line: &str| format!("{line}\r\n{host}{auth}{length}\r\n{BODY}");
    let chunked = format!("{post}{host}{auth}Transfer-Encoding: chunked\r\n\r\n{n:x}\r\n{BODY}\r\n0\r\n\r\n");
    let cases: Vec<(&str, u16, String)> = vec![
        ("length, then chunked", 400, with(&format!("{length}Transfer-Encoding: chunked\r\n"))),
        ("chunked, then length", 400, with(&format!("Transfer-Encoding: chunked\r\n{length}"))),
        ("two equal lengths", 400, with(&format!("{length}{length}"))),
        ("two unequal lengths", 400, with(&format!("{length}Content-Length: 1\r\n"))),
        ("two lengths in one line", 400, with(&format!("Content-Length: {n}, {n}\r\n"))),
        ("length with a sign", 400, with(&format!("Content-Length: +{n}\r\n"))),
        ("length below zero", 400, with("Content-Length: -1\r\n")),
        ("empty length", 400, with("Content-Length:\r\n")),
        ("hexadecimal length", 400, with("Content-Length: 0x10\r\n")),
        ("length in two words", 400, with("Content-Length: 1 0\r\n")),
        ("length beyond 64 bits", 400, with("Content-Length: 99999999999999999999\r\n")),
        ("xchunked", 400, with("Transfer-Encoding: xchunked\r\n")),
        ("chunked, identity", 400, with("Transfer-Encoding: chunked, identity\r\n")),
        ("identity", 400, with("Transfer-Encoding: identity\r\n")),
        ("chunked alone", 411, chunked),
        ("space before the colon", 400, with(&format!("Content-Length : {n}\r\n"))),
        ("folded header", 400, with(&format!("x-app: a\r\n b\r\n{length}"))),
        ("header without a colon", 400, with(&format!("nonsense\r\n{length}"))),
        ("control character in a value", 400, with(&format!("x-app: a\x01b\r\n{length}"))),
        ("letters beyond ASCII in a value", 400, with(&format!("x-app: gr\u{fc}n\r\n{length}"))),
        ("bare line feeds", 400, with(&length).replace("\r\n", "\n")),
        ("one bare line feed", 400, with(&format!("x-app: a\n{length}"))),
        ("two hosts", 400, with(&format!("Host: evil.example\r\n{length}"))),
        ("twice the same host", 400, with(&format!("{host}{length}"))),
        ("no host", 421, with(&length).replace(&host, "")),
        ("a foreign host", 421, with(&length).replace(&host, "Host: evil.example\r\n")),
        ("our address without the port", 421, with(&length).replace(&host, "Host: 127.0.0.1\r\n")),
        ("our address with another port", 421, with(&length).replace(&host, "Host: 127.0.0.1:1\r\n")),
        ("a name that ends like ours", 421, with(&length).replace(&host, &format!("Host: x.localhost:{port}\r\n"))),
        ("absolute target elsewhere", 400, line("POST http://evil.example/v1/messages HTTP/1.1")),
        ("absolute target here", 400, line(&format!("POST http://127.0.0.1:{port}/v1/messages HTTP/1.1"))),
        ("authority target", 400, line("CONNECT evil.example:443 HTTP/1.1")),
        ("star target", 400, line("OPTIONS * HTTP/1.1")),
        ("fragment", 400, line("POST /v1/messages#x HTTP/1.1")),
        ("fragment after the query", 400, line("POST /v1/messages?beta=true#x HTTP/1.1")),
        ("target in two words", 400, line("POST /v1/messages /x HTTP/1.1")),
        ("method in small letters", 400, line("post /v1/messages HTTP/1.1")),
        ("HTTP/1.0", 505, line("POST /v1/messages HTTP/1.0")),
        // hyper hangs up without a word.
        ("HTTP/2 preface", 0, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned()),
        ("a page's request", 403, with(&format!("Origin: http://evil.example\r\n{length}"))),
        ("a sandboxed page's request", 403, with(&format!("Origin: null\r\n{length}"))),
        ("a browser's mark", 403, with(&format!("Sec-Fetch-Site: none\r\n{length}"))),
        ("a compressed body", 415, with(&format!("Content-Encoding: gzip\r\n{length}"))),
        ("a body over 32 MiB", 413, with("Content-Length: 33554433\r\n")),
        ("a head over 64 KiB", 431, with(&format!("x-app: {}\r\n{length}", "a".repeat(70_000)))),
    ];
    for (name, status, request) in cases {
        let mut stream = session.connect().await;
        let answered = ask_on(&mut stream, request.as_bytes()).await;
        assert_eq!(answered.status, status, "{name}: {answered:?}");
        assert!(is_closed(&mut stream).await, "{name}: the connection stays open");
        assert!(!answered.head.to_lowercase().contains("set-cookie"), "{name}");
    }
    assert_eq!((*session.gate.asked.borrow(), upstream.seen().len()), (0, 0), "something got through");
}

#[tokio::test]
async fn b82_to_b87_what_is_well_formed_and_not_served_is_refused() {
    let upstream = Upstream::answering(message()).await;
    let session = Session::before(&upstream).await;
    let key = session.key.as_str();
    let ok = format!("x-api-key: {key}\r\n{JSON}");
    let keyed = |keys: &str| format!("{keys}{JSON}");
    let post = |target: &str| format!("POST {target} HTTP/1.1");
    let messages = post("/v1/messages");
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(100), "]".repeat(100));
    let b = || body(BODY);
    let cases: Vec<(&str, u16, String, String, Vec<u8>)> = vec![
        ("no key", 401, messages.clone(), keyed(""), b()),
        ("a wrong key", 401, messages.clone(), keyed("x-api-key: agentrun-0000\r\n"), b()),
        ("an empty key", 401, messages.clone(), keyed("x-api-key:\r\n"), b()),
        ("the key's beginning", 401, messages.clone(), keyed(&format!("x-api-key: {}\r\n", &key[..40])), b()),
        ("the key twice", 401, messages.clone(), keyed(&format!("x-api-key: {key}\r\nx-api-key: {key}\r\n")), b()),
        (
            "both kinds of key",
            401,
            messages.clone(),
            keyed(&format!("x-api-key: {key}\r\nAuthorization: Bearer {key}\r\n")),
            b(),
        ),
        (
            "two tokens",
            401,
            messages.clone(),
            keyed(&format!("Authorization: Bearer {key}\r\nAuthorization: Bearer x\r\n")),
            b(),
        ),
        ("basic", 401, messages.clone(), keyed(&format!("Authorization: Basic {key}\r\n")), b()),
        ("the key in the query", 404, post(&format!("/v1/messages?key={key}")), ok.clone(), b()),
        ("an unknown query", 404, post("/v1/messages?x=1"), ok.clone(), b()),
        ("an empty query", 404, post("/v1/messages?"), ok.clone(), b()),
        ("one query more", 404, post("/v1/messages?beta=true&x=1"), ok.clone(), b()),
        ("two slashes", 404, post("//v1/messages"), ok.clone(), b()),
        ("a dot segment", 404, post("/./v1/messages"), ok.clone(), b()),
        ("a way back", 404, post("/v1/x/../messages"), ok.clone(), b()),
        ("an escaped letter", 404, post("/v1/%6dessages"), ok.clone(), b()),
        ("a slash at the end", 404, post("/v1/messages/"), ok.clone(), b()),
        ("capitals", 404, post("/V1/messages"), ok.clone(), b()),
        ("batches", 404, post("/v1/messages/batches"), ok.clone(), b()),
        ("files", 404, post("/v1/files"), ok.clone(), b()),
        ("the old completion", 404, post("/v1/complete"), ok.clone(), b()),
        ("another provider's route", 404, post("/v1/chat/completions"), ok.clone(), b()),
        ("another method", 404, "PUT /v1/messages HTTP/1.1".to_owned(), ok.clone(), b()),
        ("a plain get", 404, "GET / HTTP/1.1".to_owned(), ok.clone(), body("")),
        (
            "an upgrade",
            404,
            "GET /v1/responses HTTP/1.1".to_owned(),
            format!("{ok}Upgrade: websocket\r\nConnection: Upgrade\r\n"),
            body(""),
        ),
        ("models without a key", 401, "GET /v1/models HTTP/1.1".to_owned(), String::new(), body("")),
        (
            "a form's content type",
            415,
            messages.clone(),
            format!("x-api-key: {key}\r\nContent-Type: text/plain\r\n"),
            b(),
        ),
        ("no content type", 415, messages.clone(), format!("x-api-key: {key}\r\n"), b()),
        ("no body", 400, messages.clone(), ok.clone(), body("")),
        ("an array", 400, messages.clone(), ok.clone(), body("[]")),
        ("a member twice", 400, messages.clone(), ok.clone(), body(r#"{"model":"m","max_tokens":1,"max_tokens":2}"#)),
        (
            "a member twice, once escaped",
            400,
            messages.clone(),
            ok.clone(),
            body(r#"{"model":"m","max\u005ftokens":1,"max_tokens":2}"#),
        ),
        (
            "a member twice deep down",
            400,
            messages.clone(),
            ok.clone(),
            body(r#"{"model":"m","max_tokens":1,"messages":[{"a":1,"a":2}]}"#),
        ),
        ("something after the document", 400, messages.clone(), ok.clone(), body(&format!("{BODY}{{}}"))),
        ("a hundred levels", 400, messages.clone(), ok.clone(), body(&deep)),
        ("no number", 400, messages.clone(), ok.clone(), body(r#"{"model":"m","max_tokens":NaN}"#)),
        ("half a surrogate", 400, messages.clone(), ok.clone(), body(r#"{"model":"\ud800","max_tokens":1}"#)),
        (
            "bytes that are no text",
            400,
            messages.clone(),
            ok.clone(),
            b"{\"model\":\"\xff\",\"max_tokens\":1}".to_vec(),
        ),
        ("a byte order mark", 400, messages.clone(), ok.clone(), [b"\xef\xbb\xbf", BODY.as_bytes()].concat()),
        (
            "a limit with an exponent",
            400,
            messages.clone(),
            ok.clone(),
            body(r#"{"model":"m","max_tokens":1e3,"messages":[]}"#),
        ),
        (
            "a limit below zero",
            400,
            messages.clone(),
            ok.clone(),
            body(r#"{"model":"m","max_tokens":-1,"messages":[]}"#),
        ),
        (
            "a limit in quotes",
            400,
            messages.clone(),
            ok.clone(),
            body(r#"{"model":"m","max_tokens":"9","messages":[]}"#),
        ),
        ("no model", 400, messages.clone(), ok.clone(), body(r#"{"max_tokens":1,"messages":[]}"#)),
        ("a free route is strict too", 400, post("/v1/messages/count_tokens"), ok.clone(), body(r#"{"a":1,"a":2}"#)),
    ];
    for (name, status, line, headers, sent) in cases {
        let mut stream = session.connect().await;
        let answered = ask_on(&mut stream, &session.raw(&line, &headers, &sent)).await;
        assert_eq!(answered.status, status, "{name}: {answered:?}");
        let error: serde_json::Value = serde_json::from_str(&answered.body).unwrap();
        assert_eq!(error["type"], "error", "{name}: not in the provider's shape");
        assert!(!answered.body.contains(&key[9..]), "{name}: the key is shown");
        // The same connection serves the next request: it was read to where the refused one ended.
        let next = ask_on(&mut stream, &session.raw("HEAD / HTTP/1.1", "", b"")).await;
        assert_eq!(next.status, 200, "{name}");
    }
    assert_eq!((*session.gate.asked.borrow(), upstream.seen().len()), (0, 0), "something got through");
}

#[tokio::test]
async fn b82_wrong_and_missing_keys_get_the_same_answer() {
    let upstream = Upstream::answering(message()).await;
    let mut session = Session::before(&upstream).await;
    let dead = session.post("/v1/messages", BODY);
    let (_, other) = session.proxy.admit(session.gate.clone()).unwrap();
    session.guard = None;
    let none = session.raw("POST /v1/messages HTTP/1.1", JSON, BODY.as_bytes());
    let wrong =
        session.raw("POST /v1/messages HTTP/1.1", &format!("x-api-key: agentrun-00\r\n{JSON}"), BODY.as_bytes());
    let answers = [session.ask(&dead).await, session.ask(&none).await, session.ask(&wrong).await];
    for answered in &answers {
        assert_eq!((answered.status, &answered.body), (401, &answers[0].body));
    }
    drop(other);
    assert_eq!(upstream.seen().len(), 0);
}

#[tokio::test]
async fn b82_a_key_dies_also_for_a_connection_that_used_it() {
    let upstream = Upstream::answering(message()).await;
    let mut session = Session::before(&upstream).await;
    let mut stream = session.connect().await;
    let request = session.paid();
    assert_eq!(ask_on(&mut stream, &request).await.status, 200);
    session.guard = None;
    assert_eq!(ask_on(&mut stream, &request).await.status, 401);
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn b83_b85_the_routes_a_harness_needs_are_served() {
    let upstream = Upstream::answering(message()).await;
    let session = Session::before(&upstream).await;
    let key = session.key.as_str();
    let probe = session.raw("HEAD / HTTP/1.1", "", b"");
    assert_eq!(session.ask(&probe).await.status, 200, "the probe has no key");
    let models = session.raw("GET /v1/models HTTP/1.1", &format!("Authorization: bearer {key}\r\n"), b"");
    assert!(session.ask(&models).await.body.contains("\"data\":[]"));
    assert_eq!(session.ask(&session.post("/api/event_logging/batch", "{}")).await.status, 200);
    assert_eq!(upstream.seen().len(), 0, "answered here");

    assert_eq!(session.ask(&session.post("/v1/messages/count_tokens?beta=true", BODY)).await.status, 200);
    assert_eq!((*session.gate.asked.borrow(), upstream.seen().len()), (0, 1), "free: passed on, not admitted");

    for (target, keys) in [
        ("/v1/messages", format!("x-api-key: {key}\r\n")),
        ("/v1/messages?beta=true", format!("Authorization: Bearer {key}\r\n")),
        ("/v1/messages", format!("authorization: bearer {key}\r\nExpect: 100-continue\r\n")),
    ] {
        let request = session.raw(&format!("POST {target} HTTP/1.1"), &format!("{keys}{JSON}"), BODY.as_bytes());
        assert_eq!(session.ask(&request).await.status, 200, "{target}");
        let seen = upstream.seen().pop().unwrap();
        assert!(seen.starts_with(&format!("POST {target} HTTP/1.1\r\n")), "{seen}");
        assert!(seen.ends_with(&format!("\r\n\r\n{BODY}")), "the body is not as it came: {seen}");
    }
    assert_eq!(*session.gate.asked.borrow(), 3);
}

#[tokio::test]
async fn b82_requests_one_behind_the_other_in_one_write_are_each_answered() {
    let upstream = Upstream::answering(message()).await;
    let session = Session::before(&upstream).await;
    let mut stream = session.connect().await;
    // The body looks like a request; only the watch's own count of bytes tells them apart.
    let trap = BODY.replace("\"hi\"", "\"POST /v1/messages HTTP/1.1\\r\\nHost: evil\\r\\n\\r\\n\"");
    let two = [session.post("/v1/messages", &trap), session.raw("HEAD / HTTP/1.1", "", b"")].concat();
    stream.write_all(&two).await.unwrap();
    let (mut answers, mut piece) = (String::new(), [0; 4096]);
    while answers.matches("HTTP/1.1 200").count() < 2 {
        let read = timeout(PATIENCE, stream.read(&mut piece)).await.expect("the second is not answered").unwrap();
        assert!(read > 0, "closed after: {answers}");
        answers.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    assert_eq!(upstream.seen().len(), 1);
}
