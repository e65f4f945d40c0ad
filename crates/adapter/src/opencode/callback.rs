//! The endpoint the script in the program asks: loopback, one path, a token of this epoch, a body that is bounded. An answer that is not
//! there after a while is said not to be there, and is asked for again.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use super::calls::{Name, Offered, Told};

const PATH: &str = "/call";
/// How long an answer is waited for before the script has to ask again; its runtime gives up after 300 s.
const WAIT: Duration = Duration::from_secs(10);
/// The largest request, in bytes: a call's arguments.
const LARGEST: usize = 64 * 1024 * 1024;
/// A connection that does not say what it wants by then is not the script's.
const HEADERS: Duration = Duration::from_secs(10);

/// The endpoint. Dropping it closes it and every connection.
pub(super) struct Callback {
    pub(super) url: String,
    accepting: JoinHandle<()>,
}

impl Drop for Callback {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Callback {
    /// Listens for a script that knows `token`.
    pub(super) async fn listen(token: &str, offered: Arc<Offered>) -> io::Result<Self> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let door = Arc::new(Door { address, bearer: format!("Bearer {token}"), offered });
        Ok(Self { url: format!("http://{address}{PATH}"), accepting: tokio::spawn(accept(listener, door)) })
    }
}

struct Door {
    address: SocketAddr,
    bearer: String,
    offered: Arc<Offered>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    tool: String,
    /// The program's id of the message the call stands in; of a built-in's it does not say it.
    message: Option<String>,
    /// Which asking for a built-in it is.
    asking: Option<String>,
    call: String,
    /// The log has them too, and what it has is what is recorded.
    #[serde(rename = "args")]
    _arguments: serde::de::IgnoredAny,
}

async fn accept(listener: TcpListener, door: Arc<Door>) {
    let mut connections = JoinSet::new();
    loop {
        // An accept fails for want of descriptors, or because the peer is gone already; both pass.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let door = door.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let door = door.clone();
                async move { Ok::<_, Infallible>(answer(request, &door).await) }
            });
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEADERS);
            // A script that hung up ends here; its call runs on.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(request: Request<Incoming>, door: &Door) -> Response<Full<Bytes>> {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    if header(header::HOST) != Some(&door.address.to_string()) || header(header::ORIGIN).is_some() {
        return plain(StatusCode::MISDIRECTED_REQUEST);
    }
    if header(header::AUTHORIZATION) != Some(&door.bearer) {
        return plain(StatusCode::UNAUTHORIZED);
    }
    if request.method() != Method::POST || request.uri().path() != PATH {
        return plain(StatusCode::NOT_FOUND);
    }
    let Ok(body) = Limited::new(request.into_body(), LARGEST).collect().await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE);
    };
    let Ok(asked) = serde_json::from_slice::<Asked>(&body.to_bytes()) else { return plain(StatusCode::BAD_REQUEST) };
    let name = match (asked.message, asked.asking) {
        (Some(message), None) => Name::Call { message, call: asked.call },
        (None, Some(asking)) => Name::Builtin { asking, call: asked.call },
        _ => return plain(StatusCode::BAD_REQUEST),
    };
    let Some(mut told) = door.offered.ask(name, &asked.tool) else { return std::future::pending().await };
    let waited = tokio::time::timeout(WAIT, told.wait_for(Option::is_some)).await;
    match waited.map(|told| told.map(|answer| answer.clone())) {
        Ok(Ok(Some(told))) => {
            let body = match told {
                Told::Text { text, is_error, end_turn } => {
                    json!({ "text": text, "is_error": is_error, "end_turn": end_turn })
                }
                Told::Run => json!({ "run": true }),
                Told::Denied(text) => json!({ "run": false, "text": text }),
            };
            let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
            let json = header::HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }
        Err(_) => plain(StatusCode::ACCEPTED),
        // Withheld, or its task is gone with the session: nothing is answered, and the program is ended.
        Ok(_) => std::future::pending().await,
    }
}

fn plain(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}
