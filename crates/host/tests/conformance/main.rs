//! The HTTP edge on a bare socket. Each case of `cases` is sent byte for byte on a connection of its own; held are the status, whether gate or
//! provider saw anything of it, and whether the connection is used again. The report is printed (`--no-capture` shows it).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // Tests: a failure is a report.
#![allow(clippy::print_stdout)] // The report of the cases.

mod cases;
#[path = "../common/mod.rs"]
mod common;

use tokio::io::AsyncWriteExt as _;

use agentrun_host::Provider;
use cases::{Case, Then, Way};
use common::{BODY, JSON, Session, Upstream, ask_on, header, is_closed, message, read_answer};

/// The case's bytes for this session. `{n}` is the length of what stands behind the head.
fn bytes(case: &Case, session: &Session) -> Vec<u8> {
    let (port, key) = (session.port.to_string(), session.key.as_str());
    let host = format!("Host: 127.0.0.1:{port}\r\n");
    let auth = format!("x-api-key: {key}\r\n{JSON}");
    let mut made = case.send.to_vec();
    for (name, value) in [
        ("{post}", "POST /v1/messages HTTP/1.1\r\n"),
        ("{host}", &host),
        ("{auth}", &auth),
        ("{length}", "Content-Length: {n}\r\n"),
        ("{body}", BODY),
        ("{key}", key),
        ("{half key}", &key[..40]),
        ("{port}", &port),
        ("{70 KB}", &"a".repeat(70_000)),
        ("{100 levels}", &format!("{{\"a\":{}{}}}", "[".repeat(100), "]".repeat(100))),
        ("{200 headers}", &(0..200).map(|n| format!("x-{n}: a\r\n")).collect::<String>()),
    ] {
        made = replaced(&made, name.as_bytes(), value.as_bytes());
    }
    let body = made.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |end| made.len() - end - 4);
    let body = body.to_string();
    let hex = format!("{:x}", BODY.len());
    replaced(&replaced(&made, b"{n}", body.as_bytes()), b"{hex}", hex.as_bytes())
}

fn replaced(text: &[u8], name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut made = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.windows(name.len()).position(|window| window == name) {
        made.extend_from_slice(&rest[..at]);
        made.extend_from_slice(value);
        rest = &rest[at + name.len()..];
    }
    made.extend_from_slice(rest);
    made
}

/// What one case came to, or what is wrong with it.
async fn tried(case: &Case, session: &Session, upstream: &Upstream) -> Result<String, String> {
    let before = (*session.gate.asked.borrow(), upstream.seen().len());
    let mut stream = session.connect().await;
    let request = bytes(case, session);
    let answered = match case.then {
        Then::Waits => ask_on(&mut stream, &request).await,
        Then::StopsSending => {
            let _ = stream.write_all(&request).await;
            let _ = stream.shutdown().await;
            read_answer(&mut stream).await
        }
    };
    let after = (*session.gate.asked.borrow(), upstream.seen().len());
    // Used again, or not: only a request of its own can tell.
    let next = if case.then == Then::Waits && case.way == Way::Open {
        let keyed = format!("x-api-key: {}\r\n", session.key.as_str());
        ask_on(&mut stream, &session.raw("GET /v1/models HTTP/1.1", &keyed, b"")).await.status
    } else {
        u16::from(!is_closed(&mut stream).await)
    };
    let used_again = next == 200;
    let reached = (after.0 - before.0, after.1 - before.1);
    let told = format!(
        "{:<46} {:>3}  {:<9}  {}",
        case.name,
        answered.status,
        if reached == (0, 0) { "nothing" } else { "sent" },
        if used_again { "used again" } else { "closed" }
    );
    let fault = if answered.status != case.status {
        format!("must be {}: {answered:?}", case.status)
    } else if (reached != (0, 0)) != case.reaches {
        format!("must {}reach the provider", if case.reaches { "" } else { "not " })
    } else if used_again != (case.way == Way::Open) || (case.way == Way::Closed && next != 0) {
        format!("the connection must be {:?}", case.way)
    } else if answered.body.contains(&session.key.as_str()[9..]) || answered.head.contains(&session.key.as_str()[9..]) {
        "the key is shown".to_owned()
    } else if header(&answered.head, "content-type").is_some()
        && answered.status >= 400
        && !says_error(&answered.body)
        && !case.send.starts_with(b"HEAD")
    {
        format!("not in the provider's shape: {answered:?}")
    } else {
        return Ok(told);
    };
    Err(format!("{told}: {fault}"))
}

/// The next answer may stand behind it already.
fn says_error(body: &str) -> bool {
    let first = serde_json::Deserializer::from_str(body).into_iter::<serde_json::Value>().next();
    first.is_some_and(|first| first.is_ok_and(|body| body["error"].is_object()))
}

async fn run(provider: Provider, cases: &[Case]) {
    let upstream = Upstream::answering(message()).await;
    let session = Session::of(provider, &upstream.origin, agentrun_host::Timeouts::default(), None, None).await;
    let mut faults = Vec::new();
    for case in cases {
        match tried(case, &session, &upstream).await {
            Ok(told) => println!("{told}"),
            Err(told) => {
                println!("{told}");
                faults.push(told);
            }
        }
    }
    println!("{provider}: {} cases, {} wrong", cases.len(), faults.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn b82_to_b87_the_edge_answers_each_case_as_it_must() {
    assert!(cases::ANTHROPIC.len() >= 60);
    let mut names: Vec<_> = cases::ANTHROPIC.iter().map(|case| case.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cases::ANTHROPIC.len(), "two cases of one name");
    run(Provider::Anthropic, cases::ANTHROPIC).await;
}

#[tokio::test]
async fn b83_an_upgrade_is_told_426_and_a_background_answer_has_no_route() {
    run(Provider::OpenAi, cases::RESPONSES).await;
}
