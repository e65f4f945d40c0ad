//! Through the HTTP proxy that the environment names: a tunnel to the provider and nothing else. The environment is a process's, so each test
//! runs once more in a child of its own that has it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // Tests: a failure is a report.

mod common;

use agentrun_host::{RequestEnd, Timeouts};
use common::{CANARY, PATIENCE, Session};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;

/// A name that no resolver has: only a tunnel gets there.
const PROVIDER: &str = "https://provider.invalid";

/// Runs the test named so in a child with these variables, unless this is that child.
fn is_child(test: &str, variables: &[(&str, &str)]) -> bool {
    if std::env::var_os("AGENTRUN_TEST_CHILD").is_some() {
        return true;
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy", "REQUEST_METHOD"] {
        child.env_remove(name);
    }
    let child =
        child.args([test, "--exact", "--nocapture"]).env("AGENTRUN_TEST_CHILD", "1").envs(variables.iter().copied());
    let ran = child.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
    false
}

/// A port that is ours in the child: taken from the address that the variable names.
async fn proxy_at_its_address() -> TcpListener {
    let named = std::env::var("HTTPS_PROXY").unwrap();
    TcpListener::bind(named.rsplit('@').next().unwrap().trim_start_matches("http://")).await.unwrap()
}

/// An address for the child's proxy. On a loopback address that is this process's alone: nobody can be given the port before the child is.
fn free_address() -> String {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let own = std::net::Ipv4Addr::new(127, 64 | high & 63, middle, low);
    std::net::TcpListener::bind((own, 0)).unwrap().local_addr().unwrap().to_string()
}

/// What the proxy is asked first, to the end of its head.
async fn asked(stream: &mut tokio::net::TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(PATIENCE, stream.read_u8()).await.expect("the proxy was not asked").unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn b89_a_proxy_sees_a_name_and_a_port_and_then_only_tls() {
    let url = format!("http://user:pass@{}", free_address());
    if !is_child("b89_a_proxy_sees_a_name_and_a_port_and_then_only_tls", &[("HTTPS_PROXY", &url)]) {
        return;
    }
    let proxy = proxy_at_its_address().await;
    let mut session = Session::with(PROVIDER, Timeouts::default(), None, None).await;
    let request = session.paid();
    let tunnelled = async {
        let (mut stream, _) = proxy.accept().await.unwrap();
        let head = asked(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
        let mut inside = vec![0; 600];
        let read = timeout(PATIENCE, stream.read(&mut inside)).await.unwrap().unwrap();
        inside.truncate(read);
        (head, inside)
    };
    let (answered, (head, inside)) = tokio::join!(session.ask(&request), tunnelled);
    assert_eq!(
        head,
        "CONNECT provider.invalid:443 HTTP/1.1\r\nHost: provider.invalid:443\r\nProxy-Authorization: Basic dXNlcjpwYXNz\r\n\r\n"
    );
    // A TLS greeting with the provider's name in it, and nothing of the request.
    assert_eq!(inside[..2], [0x16, 0x03]);
    let inside = String::from_utf8_lossy(&inside);
    assert!(inside.contains("provider.invalid") && !inside.contains(CANARY) && !inside.contains("POST"));
    assert_eq!(answered.status, 502);
    assert!(answered.body.contains("HTTPS_PROXY") && !answered.body.contains("pass"), "{}", answered.body);
    assert!(matches!(session.end().await, RequestEnd::NotSent { .. }), "the handshake failed: nothing was sent");
}

#[tokio::test]
async fn b89_a_proxy_that_refuses_gets_no_request_and_nothing_was_spent() {
    let url = format!("http://{}", free_address());
    if !is_child("b89_a_proxy_that_refuses_gets_no_request_and_nothing_was_spent", &[("HTTPS_PROXY", &url)]) {
        return;
    }
    let proxy = proxy_at_its_address().await;
    for refusal in
        ["HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "HTTP/1.1 403 Forbidden\r\n\r\n", "nonsense\r\n\r\n", ""]
    {
        let mut session = Session::with(PROVIDER, Timeouts::default(), None, None).await;
        let request = session.paid();
        let refused = async {
            let (mut stream, _) = proxy.accept().await.unwrap();
            let head = asked(&mut stream).await;
            stream.write_all(refusal.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut rest = Vec::new();
            // However the other side ends it.
            let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap();
            (head, rest)
        };
        let (answered, (head, rest)) = tokio::join!(session.ask(&request), refused);
        assert!(head.starts_with("CONNECT provider.invalid:443 ") && !head.contains(CANARY), "{head}");
        assert!(rest.is_empty(), "{refusal}: it got more");
        assert_eq!(answered.status, 502, "{refusal}");
        assert!(matches!(session.end().await, RequestEnd::NotSent { .. }), "{refusal}");
    }
}

#[tokio::test]
async fn b89_a_provider_that_no_proxy_names_and_one_on_loopback_are_reached_straight() {
    let url = format!("http://{}", free_address());
    let variables = [("HTTPS_PROXY", url.as_str()), ("HTTP_PROXY", &url), ("NO_PROXY", "provider.invalid")];
    if !is_child("b89_a_provider_that_no_proxy_names_and_one_on_loopback_are_reached_straight", &variables) {
        return;
    }
    // Nobody listens at the proxy's address: whoever went there would fail.
    let upstream = common::Upstream::answering(common::message()).await;
    let session = Session::before(&upstream).await;
    assert_eq!(session.ask(&session.paid()).await.status, 200);

    let session = Session::with(PROVIDER, Timeouts::default(), None, None).await;
    let answered = session.ask(&session.paid()).await;
    assert!(answered.status == 502 && !answered.body.contains("HTTPS_PROXY"), "{}", answered.body);
}
