//! The credential goes to the provider and nowhere else, whatever the provider does with it; of the harness's headers only the listed
//! ones go out, and of the provider's only the listed ones come back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // Tests: a failure is a report.

mod common;

use common::{Act, BODY, CANARY, EVENTS, JSON, LAST_CHUNK, Session, Upstream, answer, chunk, header, stream_head};

fn echoing() -> Vec<(&'static str, Vec<Act>)> {
    let headers = format!("{JSON}request-id: req-{CANARY}\r\nx-echo: {CANARY}\r\nset-cookie: k={CANARY}\r\n");
    let error = format!(r#"{{"type":"error","error":{{"type":"x","message":"bad key {CANARY}, Bearer {CANARY}"}}}}"#);
    let message = format!(
        r#"{{"id":"{CANARY}","type":"message","model":"m-{CANARY}","content":[{{"type":"text","text":"{CANARY}"}}],"usage":{{"input_tokens":1,"output_tokens":1}}}}"#
    );
    let text = EVENTS[3].replace("hello", &format!("key {CANARY} key"));
    let mut streamed = vec![Act::Send(stream_head())];
    for event in [EVENTS[0], EVENTS[1]] {
        streamed.push(Act::Send(chunk(event)));
    }
    // In two chunks, cut within the credential.
    let (head, tail) = text.split_at(text.find(CANARY).unwrap() + 7);
    streamed.extend([head, tail, EVENTS[4], EVENTS[5], EVENTS[6]].map(|piece| Act::Send(chunk(piece))));
    streamed.push(Act::Send(LAST_CHUNK.to_vec()));
    let cut = [Act::Send(stream_head()), Act::Send(chunk(EVENTS[0])), Act::Send(chunk(&text)), Act::Close];
    vec![
        ("an answer", vec![Act::Send(answer(200, &headers, &message))]),
        ("a stream", streamed),
        ("a cut stream", cut.to_vec()),
        (
            "a redirect",
            vec![Act::Send(answer(307, &format!("location: http://127.0.0.1:1/{CANARY}\r\n{headers}"), &error))],
        ),
        (
            "a compressed answer",
            vec![Act::Send(answer(200, &format!("content-encoding: gzip\r\n{headers}"), &message))],
        ),
        ("a compressed error", vec![Act::Send(answer(400, &format!("content-encoding: br\r\n{headers}"), &error))]),
        ("no HTTP", vec![Act::Send(format!("{CANARY}\r\n\r\n").into_bytes()), Act::Close]),
    ]
    .into_iter()
    .chain(
        [400, 401, 403, 404, 408, 413, 429, 500, 503, 529]
            .map(|status| ("an error", vec![Act::Send(answer(status, &headers, &error))])),
    )
    .collect()
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Written here again, so that the search does not rest on what it judges.
fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let group = three.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = DIGITS[(group >> (18 - 6 * place) & 63) as usize];
            text.push(if place > three.len() { '=' } else { char::from(digit) });
        }
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn url(text: &str) -> String {
    text.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() || byte == b'-' {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

/// The credential in every way that it may be echoed. Each stands between words that must come through.
fn disguises() -> Vec<(String, String)> {
    let (first, second) = CANARY.split_at(CANARY.len() / 2);
    let mut all = vec![
        ("raw".to_owned(), CANARY.to_owned()),
        ("its first half".to_owned(), first.to_owned()),
        ("its second half".to_owned(), second.to_owned()),
        ("hexadecimal".to_owned(), hex(CANARY.as_bytes())),
        ("hexadecimal in capitals".to_owned(), hex(CANARY.as_bytes()).to_uppercase()),
        ("escaped for a URL".to_owned(), url(CANARY)),
        ("escaped for a URL in small letters".to_owned(), url(CANARY).replace("%2F", "%2f").replace("%2B", "%2b")),
        ("escaped for JSON".to_owned(), CANARY.replace('/', "\\/")),
    ];
    for before in ["", "x", "xy", "Bearer "] {
        let text = base64(format!("{before}{CANARY}:").as_bytes());
        all.push((format!("base64 behind `{before}`"), text.clone()));
        all.push((format!("base64 for URLs behind `{before}`"), text.replace('+', "-").replace('/', "_")));
    }
    all
}

/// Which disguise of the credential stands in what somebody was given, if one does. Of base64 the ends are left out: they hang on what
/// stands beside it.
fn shown(text: &str) -> Option<String> {
    disguises().into_iter().find_map(|(name, disguise)| {
        let core = if name.starts_with("base64") { &disguise[12..disguise.len() - 6] } else { &disguise };
        text.contains(core).then_some(name)
    })
}

#[test]
fn the_search_finds_what_it_looks_for() {
    assert_eq!(base64(b"any carnal pleas"), "YW55IGNhcm5hbCBwbGVhcw==");
    for (name, disguise) in disguises() {
        assert!(shown(&format!("a {disguise} b")).is_some(), "{name}");
    }
    assert_eq!(shown("sk-canary- is how such a key begins"), None);
}

#[tokio::test]
async fn b89_the_credential_in_any_disguise_reaches_neither_the_harness_nor_the_records() {
    for (name, disguise) in disguises() {
        let headers = format!(
            "{JSON}request-id: {disguise}\r\nretry-after: {disguise}\r\nlocation: http://127.0.0.1:1/{disguise}\r\n"
        );
        let body = format!(r#"{{"type":"error","error":{{"type":"x","message":"before {disguise} behind"}}}}"#);
        let text = EVENTS[3].replace("hello", &format!("before {disguise} behind"));
        // Cut within the disguise at several places, each piece in a chunk of its own.
        let start = text.find(&disguise).unwrap();
        let pieces: Vec<&str> =
            [0, start + 1, start + 5, start + disguise.len() / 2, start + disguise.len() - 1, text.len()]
                .windows(2)
                .map(|cut| &text[cut[0]..cut[1]])
                .collect();
        let streamed = [&[EVENTS[0], EVENTS[1]][..], &pieces[..], &[EVENTS[4], EVENTS[5], EVENTS[6]][..]].concat();
        let message = format!(
            r#"{{"id":"m","type":"message","model":"m","content":[{{"type":"text","text":"before {disguise} behind"}}],"usage":{{"input_tokens":1,"output_tokens":1}}}}"#
        );
        for (what, acts) in [
            ("an answer", vec![Act::Send(answer(200, &headers, &message))]),
            ("a stream", common::streamed(&streamed)),
            ("an error", vec![Act::Send(answer(400, &headers, &body))]),
            ("a failure", vec![Act::Send(answer(500, &headers, &body))]),
            ("a redirect", vec![Act::Send(answer(307, &headers, &body))]),
        ] {
            let upstream = Upstream::start(vec![acts]).await;
            let mut session = Session::before(&upstream).await;
            let answered = session.ask(&session.paid()).await;
            let end = session.end().await;
            let everything = format!("{}{}{end:?}", answered.head, answered.body);
            assert_eq!(shown(&everything), None, "{name} in {what}: {everything}");
            // The records hold bytes; their `Debug` escapes some.
            if let agentrun_host::RequestEnd::Complete { response, .. }
            | agentrun_host::RequestEnd::Unknown { response, .. } = &end
            {
                assert_eq!(shown(&String::from_utf8_lossy(response)), None, "{name} in {what}, as recorded");
            }
            if what != "a redirect" {
                assert!(
                    answered.body.contains("before ") && answered.body.contains(" behind"),
                    "{name} in {what}: {answered:?}"
                );
            }
            let free = session.ask(&session.post("/v1/messages/count_tokens", BODY)).await;
            assert_eq!(shown(&format!("{}{}", free.head, free.body)), None, "{name} in {what} on a free route");
        }
    }
}

#[tokio::test]
async fn b89_an_echoed_credential_reaches_neither_the_harness_nor_the_records() {
    for (name, acts) in echoing() {
        let upstream = Upstream::start(vec![acts]).await;
        let mut session = Session::before(&upstream).await;
        let answered = session.ask(&session.paid()).await;
        let end = session.end().await;
        let everything = format!("{answered:?} {end:?}");
        assert!(!everything.contains(&CANARY[3..]), "{name}: {everything}");
        assert!(!everything.to_lowercase().contains("set-cookie") && !everything.contains("x-echo"), "{name}");

        let free = session.ask(&session.post("/v1/messages/count_tokens", BODY)).await;
        assert!(!format!("{free:?}").contains(&CANARY[3..]), "{name} on a free route: {free:?}");

        let seen = upstream.seen();
        assert_eq!(seen.len(), 2, "{name}: each request once");
        assert!(seen.iter().all(|request| header(request, "x-api-key") == Some(CANARY)), "{name}");
    }
}

#[tokio::test]
async fn b89_a_masked_answer_is_still_whole_and_counted() {
    let (_, acts) = echoing().remove(1);
    let upstream = Upstream::start(vec![acts]).await;
    let mut session = Session::before(&upstream).await;
    let answered = session.ask(&session.paid()).await;
    assert!(answered.whole && answered.body.contains(&format!("key {} key", "*".repeat(CANARY.len()))), "{answered:?}");
    assert!(matches!(session.end().await, agentrun_host::RequestEnd::Complete { .. }));
}

#[tokio::test]
async fn b89_only_listed_headers_pass_and_the_session_key_never_does() {
    let headers =
        format!("{JSON}request-id: req_1\r\nretry-after: 3\r\nanthropic-organization-id: org\r\nalt-svc: x\r\n");
    let upstream = Upstream::answering(answer(200, &headers, "{}")).await;
    let session = Session::before(&upstream).await;
    let key = session.key.as_str();
    let given = format!(
        "Authorization: Bearer {key}\r\n{JSON}accept-encoding: gzip, br\r\nanthropic-beta: a\r\nanthropic-beta: b\r\nanthropic-version: 2023-06-01\r\n\
         cookie: c=1\r\nproxy-authorization: Basic x\r\nx-forwarded-for: 1.2.3.4\r\nx-forwarded-host: evil\r\nforwarded: for=1\r\n\
         x-portkey-custom-host: http://evil\r\nanthropic-user-profile-id: u\r\nte: trailers\r\nconnection: keep-alive, x-app\r\n"
    );
    let answered = session.ask(&session.raw("POST /v1/messages HTTP/1.1", &given, BODY.as_bytes())).await;
    let seen = upstream.seen().remove(0);
    let mut names: Vec<String> = seen
        .lines()
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| line.split(':').next().unwrap().to_lowercase())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "accept-encoding",
            "anthropic-beta",
            "anthropic-beta",
            "anthropic-version",
            "content-length",
            "content-type",
            "host",
            "x-api-key"
        ]
    );
    assert_eq!(header(&seen, "accept-encoding"), Some("identity"));
    assert_eq!(header(&seen, "host"), upstream.origin.strip_prefix("http://"));
    assert!(!seen.contains(key));
    assert_eq!(header(&answered.head, "request-id"), Some("req_1"));
    assert_eq!(header(&answered.head, "retry-after"), Some("3"));
    assert!(
        header(&answered.head, "anthropic-organization-id").is_none() && header(&answered.head, "alt-svc").is_none()
    );
}
