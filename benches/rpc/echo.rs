//! Reference services: a bare tonic service that answers with a requested number of bytes, and a TCP socket that echoes its
//! input.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::future::BoxFuture;
use http::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;
use tower::Service;

/// Message of the echo: the length of its answer, and padding to the length of the message that it stands for.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Blob {
    /// Bytes of the answer's blob.
    #[prost(fixed32, tag = "1")]
    pub(crate) answer_bytes: u32,
    /// Padding.
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) bytes: Bytes,
}

/// Bytes of all answers, so that the reference only pays for sending them.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

fn answer(blob: &Blob) -> Blob {
    Blob { answer_bytes: blob.answer_bytes, bytes: Bytes::from_static(&ZEROS[..blob.answer_bytes as usize]) }
}

/// The service, as `tonic_build` would generate it, with a unary and a streaming method.
#[derive(Clone, Debug)]
struct EchoRequest;

impl NamedService for EchoRequest {
    const NAME: &'static str = "bench.Echo";
}

type Answers = std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<Blob, Status>> + Send>>;

struct Unary;
struct Streamed;

impl tonic::server::UnaryService<Blob> for Unary {
    type Response = Blob;
    type Future = std::future::Ready<Result<tonic::Response<Blob>, Status>>;

    fn call(&mut self, request: tonic::Request<Blob>) -> Self::Future {
        std::future::ready(Ok(tonic::Response::new(answer(request.get_ref()))))
    }
}

impl tonic::server::StreamingService<Blob> for Streamed {
    type Response = Blob;
    type ResponseStream = Answers;
    type Future = std::future::Ready<Result<tonic::Response<Answers>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<Blob>>) -> Self::Future {
        let answers = request.into_inner().map(|blob| blob.map(|blob| answer(&blob)));
        std::future::ready(Ok(tonic::Response::new(Box::pin(answers))))
    }
}

impl Service<Request<Body>> for EchoRequest {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut grpc = Grpc::new(ProstCodec::default());
        match request.uri().path() {
            "/bench.Echo/Unary" => Box::pin(async move { Ok(grpc.unary(Unary, request).await) }),
            _ => Box::pin(async move { Ok(grpc.streaming(Streamed, request).await) }),
        }
    }
}

/// Serves a gRPC service on a free port and returns the address.
pub(crate) async fn serve_on_free_port<S>(service: S) -> SocketAddr
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + NamedService + Clone,
    S: Send + Sync + 'static,
    S::Future: Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let accepted = TcpListenerStream::new(listener).map(|accepted| accepted.inspect(|it| drop(it.set_nodelay(true))));
    tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(accepted));
    address
}

/// Serves both on free ports and returns their addresses.
pub(crate) async fn serve() -> (SocketAddr, SocketAddr) {
    let address = serve_on_free_port(EchoRequest).await;
    let raw = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let raw_address = raw.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = raw.accept().await {
            drop(stream.set_nodelay(true));
            tokio::spawn(async move {
                let mut bytes = vec![0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut bytes).await {
                    if stream.write_all(&bytes[..read]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    (address, raw_address)
}
