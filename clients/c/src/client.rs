//! Calls over HTTP/2 and TLS, for games without a transport of their own: one blocking call at a time on each thread.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fireteam_client::{Certificate, ClientTlsConfig};
use prost::bytes::{Buf, BufMut};
use tokio::runtime::{Builder, Runtime};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};
use tower::util::MapResponse;

use crate::call_failure::CallFailure;
use crate::connection::{connector, without_vectored_writes};
use crate::status::{FT_ERROR_CLIENT, FT_ERROR_VALUE};
use crate::stream::FtStream;

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connection to one server. Several threads may use it at the same time. It connects at the first call, and again after a failure.
pub struct FtClient {
    runtime: Arc<Runtime>,
    channel: Channel,
    authorization: Option<AsciiMetadataValue>,
}

/// Settings of a client.
pub(crate) struct ClientSettings<'a> {
    pub(crate) uri: &'a str,
    pub(crate) ca_certificates: &'a [u8],
    pub(crate) server_name: Option<&'a str>,
    pub(crate) token: Option<&'a str>,
}

impl FtClient {
    pub(crate) fn new(settings: &ClientSettings<'_>) -> Result<Self, i32> {
        let mut endpoint = Endpoint::from_shared(settings.uri.to_owned()).map_err(|_| FT_ERROR_CLIENT)?;
        match endpoint.uri().scheme_str() {
            Some("http") => {}
            Some("https") if !settings.ca_certificates.is_empty() => {
                let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(settings.ca_certificates));
                if let Some(name) = settings.server_name {
                    tls = tls.domain_name(name);
                }
                endpoint = endpoint.tls_config(tls).map_err(|_| FT_ERROR_CLIENT)?;
            }
            _ => return Err(FT_ERROR_VALUE),
        }
        let authorization = match settings.token {
            Some(token) => Some(format!("Bearer {token}").parse().map_err(|_| FT_ERROR_VALUE)?),
            None => None,
        };
        let runtime = Builder::new_current_thread().enable_io().enable_time().build().map_err(|_| FT_ERROR_CLIENT)?;
        // The channel needs the runtime for its background task.
        let channel = {
            let _entered = runtime.enter();
            let connector = MapResponse::new(connector(CONNECT_TIMEOUT), without_vectored_writes);
            endpoint.connect_timeout(CONNECT_TIMEOUT).connect_with_connector_lazy(connector)
        };
        Ok(Self { runtime: Arc::new(runtime), channel, authorization })
    }

    /// Makes a call, and waits for its answer until the deadline.
    pub(crate) fn call(
        &self,
        path: &str,
        request: Vec<u8>,
        deadline: Duration,
    ) -> Result<Result<Vec<u8>, CallFailure>, i32> {
        let path = parse_path(path)?;
        let mut request = self.request(request);
        request.set_timeout(deadline);
        let mut grpc = Grpc::new(self.channel.clone());
        let answered = self.runtime.block_on(async {
            let call = async {
                wait_until_ready(&mut grpc).await?;
                grpc.unary(request, path, BytesCodec).await
            };
            tokio::time::timeout(deadline, call).await
        });
        Ok(match answered {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(CallFailure::from(&status)),
            Err(_) => Err(CallFailure { code: Code::DeadlineExceeded.into(), details: Vec::new() }),
        })
    }

    /// Server stream that its first read opens, until the deadline. The stream itself has none.
    pub(crate) fn stream(
        &self,
        call_id: u64,
        path: &str,
        request: Vec<u8>,
        deadline: Duration,
    ) -> Result<FtStream, i32> {
        let path = parse_path(path)?;
        let request = self.request(request);
        let mut grpc = Grpc::new(self.channel.clone());
        let opening = Box::pin(async move {
            let open = async {
                wait_until_ready(&mut grpc).await?;
                grpc.server_streaming(request, path, BytesCodec).await
            };
            let opened = tokio::time::timeout(deadline, open).await;
            opened
                .map_err(|_| Status::deadline_exceeded("the stream was not opened in time"))?
                .map(Response::into_inner)
        });
        Ok(FtStream::new(Arc::clone(&self.runtime), opening, call_id))
    }

    /// Request with the client's token.
    fn request(&self, message: Vec<u8>) -> Request<Vec<u8>> {
        let mut request = Request::new(message);
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        request
    }
}

fn parse_path(path: &str) -> Result<PathAndQuery, i32> {
    path.parse().map_err(|_| FT_ERROR_VALUE)
}

/// Waits for the connection.
async fn wait_until_ready(grpc: &mut Grpc<Channel>) -> Result<(), Status> {
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))
}

impl fmt::Debug for FtClient {
    /// Prints no token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FtClient").finish_non_exhaustive()
    }
}

/// Messages as bytes.
#[derive(Debug)]
struct BytesCodec;

impl Codec for BytesCodec {
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

impl Encoder for BytesCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut message = vec![0; buffer.remaining()];
        buffer.copy_to_slice(&mut message);
        Ok(Some(message))
    }
}
