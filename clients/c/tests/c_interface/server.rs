//! Scripted server over HTTP/2, with or without TLS, and hosts that answer probes on UDP sockets.

use std::convert::Infallible;
use std::future::Future;
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use fireteam_c::responder_exports::ft_responder_advertise;
use fireteam_c::types::{FT_IPV4, FtAddress};
use fireteam_client::pb;
use prost::bytes::{Buf, BufMut};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService, ServerStreamingService, UnaryService};
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use crate::functions::{answer_probe, c, endpoint, new_host};
use crate::script::{Script, id};

/// Paths of the calls, and their `authorization`.
type RecordedCalls = Arc<Mutex<Vec<(String, Option<String>)>>>;

/// Running server.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) calls: RecordedCalls,
    /// Certificate, PEM, if the server uses TLS.
    pub(crate) certificate: Option<String>,
    _runtime: Runtime,
}

#[derive(Clone)]
struct ScriptedServer {
    script: Script,
    calls: RecordedCalls,
}

/// Starts a server.
pub(crate) fn serve(script: Script, has_tls: bool) -> Served {
    let runtime = Runtime::new().unwrap();
    let calls = Arc::default();
    let service = ScriptedServer { script, calls: Arc::clone(&calls) };
    let mut server = Server::builder();
    let certificate = has_tls.then(|| rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap());
    if let Some(certificate) = &certificate {
        let identity = Identity::from_pem(certificate.cert.pem(), certificate.signing_key.serialize_pem());
        server = server.tls_config(ServerTlsConfig::new().identity(identity)).unwrap();
    }
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(server.add_service(service).serve_with_incoming(TcpListenerStream::new(listener)));
    Served { address, calls, certificate: certificate.map(|it| it.cert.pem()), _runtime: runtime }
}

/// Starts a host that answers probes after this time. Returns its endpoint.
pub(crate) fn serve_probes(number: u8, delay: Duration) -> pb::ProbeEndpoint {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let host = new_host();
        let id = std::ffi::CString::new(id(number)).unwrap();
        assert_eq!(c!(ft_responder_advertise(host.0, id.as_ptr())), 0);
        sender.send(endpoint(&host, port)).unwrap();
        let (start, mut packet) = (Instant::now(), [0; 2_048]);
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            let mut ip = [0; 16];
            ip[..4].copy_from_slice(&[127, 0, 0, 1]);
            let source = FtAddress { ip, port: from.port(), family: FT_IPV4 };
            std::thread::sleep(delay);
            let now_us = start.elapsed().as_micros() as u64;
            if let Ok(answer) = answer_probe(&host, source, &packet[..length], now_us) {
                socket.send_to(&answer, from).unwrap();
            }
        }
    });
    pb::ProbeEndpoint { address: vec![127, 0, 0, 1], ..receiver.recv().unwrap() }
}

impl NamedService for ScriptedServer {
    const NAME: &'static str = "fireteam.v1.MatchmakingService";
}

impl Service<http::Request<Body>> for ScriptedServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let path = request.uri().path().to_owned();
        let token = request.headers().get("authorization").map(|it| it.to_str().unwrap().to_owned());
        self.calls.lock().unwrap().push((path.clone(), token));
        let method = Method { script: self.script.clone(), path };
        Box::pin(async move {
            if method.path.ends_with("Stream") {
                return Ok(Grpc::new(Bytes).server_streaming(method, request).await);
            }
            Ok(Grpc::new(Bytes).unary(method, request).await)
        })
    }
}

struct Method {
    script: Script,
    path: String,
}

impl UnaryService<Vec<u8>> for Method {
    type Response = Vec<u8>;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Vec<u8>>, Status>> + Send>>;

    fn call(&mut self, request: Request<Vec<u8>>) -> Self::Future {
        let (script, path) = (self.script.clone(), self.path.clone());
        Box::pin(async move {
            match path.rsplit('/').next() {
                Some("Fail") => Err(Status::with_details(tonic::Code::NotFound, "no", b"details".to_vec().into())),
                Some("Hang") => std::future::pending().await,
                _ => Ok(Response::new(script.respond(&path, request.get_ref()))),
            }
        })
    }
}

/// A stream has the lengths that its request lists, one byte each, as messages of zeros. Then it ends, as its path says.
impl ServerStreamingService<Vec<u8>> for Method {
    type Response = Vec<u8>;
    type ResponseStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<Vec<u8>, Status>> + Send>>;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Self::ResponseStream>, Status>> + Send>>;

    fn call(&mut self, request: Request<Vec<u8>>) -> Self::Future {
        let path = self.path.clone();
        Box::pin(async move {
            let failure = || Status::with_details(tonic::Code::Unavailable, "no", b"details".to_vec().into());
            let messages = tokio_stream::iter(request.into_inner()).map(|length| Ok(vec![0; length.into()]));
            let stream: Self::ResponseStream = match path.rsplit('/').next() {
                Some("RefusedStream") => return Err(failure()),
                Some("SilentStream") => return std::future::pending().await,
                Some("OpenStream") => Box::pin(messages.chain(tokio_stream::pending())),
                Some("FailingStream") => Box::pin(messages.chain(tokio_stream::once(Err(failure())))),
                _ => Box::pin(messages),
            };
            Ok(Response::new(stream))
        })
    }
}

/// Messages as bytes.
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining()).to_vec()))
    }
}
