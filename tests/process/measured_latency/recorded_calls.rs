//! Recorder of unary calls: a gRPC proxy that keeps the requests of a client, and forwards them unchanged.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use prost::Message;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tower::ServiceExt as _;

/// Longest request that is forwarded.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Bytes before the message of a gRPC frame.
const FRAME_HEADER_BYTES: usize = 5;

/// Path and frame of a call.
type RecordedCall = (String, Bytes);

/// Running proxy to one server. It ends when it is dropped.
pub(crate) struct CallRecorder {
    /// Address for the client.
    pub(crate) address: SocketAddr,
    calls: Arc<Mutex<Vec<RecordedCall>>>,
    _proxy: JoinSet<()>,
}

impl CallRecorder {
    /// Starts a proxy to `server`.
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let channel = Endpoint::from_shared(format!("http://{server}")).expect("an address").connect_lazy();
        let calls: Arc<Mutex<Vec<RecordedCall>>> = Arc::default();
        let recorded = Arc::clone(&calls);
        let router = axum::Router::new()
            .fallback(move |request: http::Request<Body>| forward(channel.clone(), Arc::clone(&recorded), request));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let mut proxy = JoinSet::new();
        proxy.spawn(async move { axum::serve(listener, router).await.expect("the proxy serves") });
        Self { address, calls, _proxy: proxy }
    }

    /// Requests of one RPC so far, in their order.
    pub(crate) fn requests<Request: Message + Default>(&self, rpc: &str) -> Vec<Request> {
        let calls = self.calls.lock().expect("unpoisoned");
        let frames = calls.iter().filter(|(path, _)| path.rsplit('/').next() == Some(rpc)).map(|(_, frame)| frame);
        frames.map(|frame| Request::decode(&frame[FRAME_HEADER_BYTES..]).expect("a message")).collect()
    }
}

async fn forward(
    channel: Channel,
    calls: Arc<Mutex<Vec<RecordedCall>>>,
    request: http::Request<Body>,
) -> http::Response<Body> {
    let (head, body) = request.into_parts();
    let frame = axum::body::to_bytes(body, REQUEST_BYTES_MAX).await.expect("a unary request");
    calls.lock().expect("unpoisoned").push((head.uri.path().to_owned(), frame.clone()));
    let request = http::Request::from_parts(head, tonic::body::Body::new(Body::from(frame)));
    channel.oneshot(request).await.expect("an answer of the server").map(Body::new)
}
