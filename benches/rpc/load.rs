//! Load clients: they call as fast as they are answered, with messages encoded in advance, so that they use little CPU.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

use crate::harness::{clock, quantile_of};
use crate::rpc::server_process::ServerProcess;

/// Codec that passes messages as bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// Cost per operation of one side of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Wall-clock time, microseconds: mean of all operations, or median of sequential ones.
    pub(crate) wall_us: f64,
    /// CPU time of the server, microseconds.
    pub(crate) cpu_us: f64,
}

/// Destination of the messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) child: &'a ServerProcess,
    pub(crate) path: &'static str,
    /// The `authorization` header, if any.
    pub(crate) header: Option<&'a AsciiMetadataValue>,
}

/// Opens a connection.
pub(crate) async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    endpoint.tcp_nodelay(true).connect().await.expect("the server is there")
}

/// One unary call.
pub(crate) async fn call(channel: &Channel, path: &'static str, message: Bytes) -> Result<Bytes, Status> {
    call_as(channel, path, message, None).await
}

/// One unary call with an optional `authorization` header.
pub(crate) async fn call_as(
    channel: &Channel,
    path: &'static str,
    message: Bytes,
    header: Option<AsciiMetadataValue>,
) -> Result<Bytes, Status> {
    let mut request = Request::new(message);
    if let Some(header) = header {
        request.metadata_mut().insert("authorization", header);
    }
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.expect("the connection stays");
    let path = http::uri::PathAndQuery::from_static(path);
    Ok(grpc.unary(request, path, Raw).await?.into_inner())
}

/// A bidirectional stream of messages.
pub(crate) async fn open(channel: &Channel, path: &'static str) -> (mpsc::Sender<Bytes>, Streaming<Bytes>) {
    let (sender, messages) = mpsc::channel(1_024);
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.expect("the connection stays");
    let path = http::uri::PathAndQuery::from_static(path);
    let answers = grpc.streaming(Request::new(ReceiverStream::new(messages)), path, Raw).await;
    (sender, answers.expect("the stream opens").into_inner())
}

/// `calls` calls over eight connections, 64 in flight, cycling through `messages`.
pub(crate) async fn unary(target: Target<'_>, messages: &Arc<[Bytes]>, calls: usize) -> Cost {
    let mut channels = Vec::new();
    for _ in 0..8 {
        channels.push(channel(target.child.address).await);
    }
    let (begin, cpu, path) = (clock(), target.child.cpu_us(), target.path);
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let (channel, messages) = (channels[task % 8].clone(), Arc::clone(messages));
            let header = target.header.cloned();
            tokio::spawn(async move {
                for number in 0..calls / 64 {
                    let message = messages[(task + number * 64) % messages.len()].clone();
                    call_as(&channel, path, message, header.clone()).await.expect("a good answer");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a client runs to its end");
    }
    let per = (calls / 64 * 64) as f64;
    Cost { wall_us: begin.elapsed().as_secs_f64() * 1e6 / per, cpu_us: (target.child.cpu_us() - cpu) / per }
}

/// Sequential calls over one connection; the median.
pub(crate) async fn one_by_one(target: Target<'_>, messages: &[Bytes], calls: usize) -> Cost {
    let channel = channel(target.child.address).await;
    let (cpu, mut times) = (target.child.cpu_us(), Vec::with_capacity(calls));
    for number in 0..calls {
        let begin = clock();
        call(&channel, target.path, messages[number % messages.len()].clone()).await.expect("a good answer");
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Cost { wall_us: quantile_of(&mut times, 0.5), cpu_us: (target.child.cpu_us() - cpu) / calls as f64 }
}

/// Round trips of `bytes` bytes over a TCP socket; the median.
pub(crate) async fn raw_one_by_one(child: &ServerProcess, bytes: usize, calls: usize) -> Cost {
    let mut stream = tokio::net::TcpStream::connect(child.raw_address).await.expect("the echo is there");
    stream.set_nodelay(true).expect("a socket takes its options");
    let (cpu, mut times, mut buffer) = (child.cpu_us(), Vec::with_capacity(calls), vec![1; bytes]);
    for _ in 0..calls {
        let begin = clock();
        stream.write_all(&buffer).await.expect("the echo reads");
        stream.read_exact(&mut buffer).await.expect("the echo answers");
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Cost { wall_us: quantile_of(&mut times, 0.5), cpu_us: (child.cpu_us() - cpu) / calls as f64 }
}

/// `calls` messages over `connections` streams, each with up to `window` unanswered. `check` receives some of the answers.
pub(crate) async fn streamed(
    target: Target<'_>,
    messages: &Arc<[Bytes]>,
    (connections, window, calls): (usize, usize, usize),
    check: fn(&Bytes),
) -> Cost {
    let mut streams = Vec::new();
    for _ in 0..connections {
        streams.push(open(&channel(target.child.address).await, target.path).await);
    }
    let (begin, cpu, each) = (clock(), target.child.cpu_us(), calls / connections);
    let tasks = streams.into_iter().enumerate().map(|(task, (sender, mut answers))| {
        let messages = Arc::clone(messages);
        tokio::spawn(async move {
            let mut sent = 0;
            for answered in 0..each {
                while sent < each && sent - answered < window {
                    let message = messages[(sent * connections + task) % messages.len()].clone();
                    sender.try_send(message).expect("there is room for a window");
                    sent += 1;
                }
                let answer = answers.message().await.expect("the stream goes on").expect("an answer for each");
                if answered % 512 == 0 {
                    check(&answer);
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("a client runs to its end");
    }
    let per = (each * connections) as f64;
    Cost { wall_us: begin.elapsed().as_secs_f64() * 1e6 / per, cpu_us: (target.child.cpu_us() - cpu) / per }
}
