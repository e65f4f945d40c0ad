//! The yardstick: the least a reverse proxy in this stack does. hyper on both sides, one thread, bodies handed through as they come; no
//! check, no key, no tap.

use std::convert::Infallible;

use hyper::body::Incoming;
use hyper::header::{HOST, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

pub(crate) async fn serve(origin: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    crate::tell(&format!("http://{}", listener.local_addr().unwrap()), "none");
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<HttpConnector, Incoming> = Client::builder(TokioExecutor::new()).build(connector);
    let authority = origin.strip_prefix("http://").unwrap().to_owned();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (client, authority) = (client.clone(), authority.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let (client, authority) = (client.clone(), authority.clone());
                async move { Ok::<_, Infallible>(pass(&client, &authority, request).await) }
            });
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn pass(
    client: &Client<HttpConnector, Incoming>,
    authority: &str,
    mut request: Request<Incoming>,
) -> Response<Incoming> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = format!("http://{authority}{path}").parse::<Uri>().unwrap();
    request.headers_mut().insert(HOST, HeaderValue::from_str(authority).unwrap());
    client.request(request).await.unwrap()
}
