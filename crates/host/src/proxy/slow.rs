//! Clients that are slow: nothing of them reaches anybody, and their connection ends.

use super::*;
use crate::gate::{Lease, Refusal};
use async_trait::async_trait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const SHORT: Duration = Duration::from_millis(200);
/// Only a failing test waits this long.
const LONG: Duration = Duration::from_secs(60);

struct Unasked;

#[async_trait]
impl RequestGate for Unasked {
    async fn before(self: Arc<Self>, _: &PaidRequest) -> Result<Box<dyn Lease>, Refusal> {
        panic!("the gate was asked");
    }
}

/// What a client gets that sends this, in which `{key}` and `{port}` stand for the session's, and then nothing more.
async fn told(patience: Patience, sent: &str) -> String {
    let provider = ProviderConfig {
        api: Provider::Anthropic,
        policy: Provider::Anthropic.policy(),
        origin: "http://127.0.0.1:1".parse().unwrap(),
        credential: Credential::from_text("made-up-key-0123".to_owned()).unwrap(),
        timeouts: Timeouts::default(),
    };
    let proxy = ModelProxy::patient(provider, Steadfast::default(), patience).await.unwrap();
    let (key, _guard) = proxy.admit(Arc::new(Unasked)).unwrap();
    let port = proxy.address.port();
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    let sent = sent.replace("{key}", key.as_str()).replace("{port}", &port.to_string());
    stream.write_all(sent.as_bytes()).await.unwrap();
    let mut told = Vec::new();
    // Reset or closed, it is over.
    let _ = timeout(LONG, stream.read_to_end(&mut told)).await.expect("the connection stays open");
    String::from_utf8(told).unwrap()
}

#[tokio::test]
async fn b82_a_head_that_does_not_come_in_time_ends_its_connection() {
    let patience = Patience { head: SHORT, body: LONG };
    for sent in ["", "POST /v1/mess", "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nx-api-key: {key}\r\n"] {
        let told = told(patience, sent).await;
        assert!(told.is_empty() || told.starts_with("HTTP/1.1 408 "), "{sent}: {told}");
    }
}

#[tokio::test]
async fn b82_a_body_that_does_not_come_in_time_ends_its_connection() {
    let patience = Patience { head: LONG, body: SHORT };
    let head = "Host: 127.0.0.1:{port}\r\nx-api-key: {key}\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{\"model\":";
    let paid = told(patience, &format!("POST /v1/messages HTTP/1.1\r\n{head}")).await;
    assert!(paid.starts_with("HTTP/1.1 408 ") && paid.contains("did not come in time"), "{paid}");
    // What is answered without a look at the body is told at once the time is over.
    let unserved = told(patience, &format!("POST /v1/files HTTP/1.1\r\n{head}")).await;
    assert!(unserved.starts_with("HTTP/1.1 404 ") && unserved.contains("connection: close"), "{unserved}");
}
