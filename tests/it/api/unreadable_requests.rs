//! Requests that cannot be read: the client's fault in the answer and in the metrics, on unary calls, streams and in the
//! envelope.

use bytes::{Buf, BufMut, Bytes};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use crate::support::test_server::TestServer;

/// Sends messages as given.
#[derive(Clone, Copy, Default)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Vec<u8>;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for RawCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&message);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// Error that ends a call with these messages.
async fn end_of_call(channel: &Channel, path: &'static str, messages: Vec<Vec<u8>>) -> Status {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let request = Request::new(tokio_stream::iter(messages));
    let mut answers = match grpc.streaming(request, path.parse().unwrap(), RawCodec).await {
        Err(status) => return status,
        Ok(response) => response.into_inner(),
    };
    loop {
        match answers.message().await {
            Ok(Some(_)) => {}
            Ok(None) => return Status::ok(""),
            Err(status) => return status,
        }
    }
}

/// Messages that are no protobuf, or that end in the middle of a field.
const GARBAGE: [&[u8]; 4] = [b"\x07", b"\x0a\xff", b"\x0a\x01", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"];

const UNARY: [&str; 4] = [
    "/fireteam.v1.MatchmakingService/Search",
    "/fireteam.v1.MatchmakingService/Core",
    "/fireteam.v1.QueueService/Enter",
    "/fireteam.v1.RatingService/GetRatings",
];
const STREAMS: [&str; 3] = [
    "/fireteam.v1.MatchmakingService/Connect",
    "/fireteam.v1.AllocationService/Allocate",
    "/fireteam.v1.QueueService/Watch",
];
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

/// SEC-3: an unreadable message is INVALID_ARGUMENT, and one that is too long OUT_OF_RANGE. No metric of server faults counts
/// them.
#[tokio::test]
async fn unreadable_request_is_no_fault_of_the_server() {
    let server = TestServer::start().await;
    let endpoint = Endpoint::from_shared(format!("http://{}", server.app.server.address)).unwrap();
    let channel = endpoint.connect().await.unwrap();
    // Reflection ends its stream without an error.
    assert_eq!(end_of_call(&channel, REFLECTION, vec![vec![7]]).await.code(), Code::Ok);
    for path in UNARY.into_iter().chain(STREAMS) {
        for garbage in GARBAGE {
            let status = end_of_call(&channel, path, vec![garbage.to_vec()]).await;
            assert_eq!(status.code(), Code::InvalidArgument, "{path} {garbage:?}: {status:?}");
            let reason = status.get_details_error_info().map(|info| info.reason);
            assert_eq!(reason.as_deref(), Some("INVALID_REQUEST"), "{path}: {status:?}");
        }
        let long = end_of_call(&channel, path, vec![vec![0; 5 << 20]]).await;
        assert!(matches!(long.code(), Code::OutOfRange | Code::ResourceExhausted), "{path}: {long:?}");
    }
    for path in UNARY {
        let status = end_of_call(&channel, path, Vec::new()).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{path} without a message: {status:?}");
    }
    let operator = format!("http://{}", server.app.server.operator_address);
    let operator = Endpoint::from_shared(operator).unwrap().connect().await.unwrap();
    let status = end_of_call(&operator, "/fireteam.v1.OperatorService/Explain", vec![vec![7]]).await;
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    let metrics = server.app.metrics.render();
    for fault in ["internal", "unknown", "data_loss", "unavailable"] {
        let label = format!("code=\"{fault}\"");
        let counted =
            metrics.lines().find(|line| line.starts_with("fireteam_rpc_calls_total") && line.contains(&label));
        assert_eq!(counted, None);
    }
}

/// SEC-3: a message flagged as compressed on a call without compression is the client's fault too.
#[tokio::test]
async fn message_with_a_wrong_frame_is_no_fault_of_the_server() {
    let server = TestServer::start().await;
    for flag in [1_u8, 7] {
        let frame = [&[flag, 0, 0, 0, 1][..], &[0]].concat();
        let body = http_body_of(server.app.server.address, &frame).await;
        assert!(body.contains("grpc-status:3") || body.contains("grpc-status: 3"), "{flag}: {body}");
    }
}

/// Response to a gRPC-Web call whose body is `frame`.
async fn http_body_of(address: std::net::SocketAddr, frame: &[u8]) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /fireteam.v1.MatchmakingService/Search HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/grpc-web+proto\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        frame.len()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(frame).await.unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).to_lowercase()
}
