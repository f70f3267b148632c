//! Calls over HTTP/2 and TLS, for games without a transport of their own: one blocking call at a time on each thread.

use std::fmt;
use std::time::Duration;

use fireteam_client::{Certificate, ClientTlsConfig};
use prost::bytes::{Buf, BufMut};
use tokio::runtime::{Builder, Runtime};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::status::{FT_ERROR_CLIENT, FT_ERROR_VALUE};

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connection to one server. Several threads may use it at the same time. It connects at the first call, and again after a failure.
pub struct FtClient {
    runtime: Runtime,
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

/// Failed call: the status code, and `google.rpc.Status` as bytes.
pub(crate) struct Failure {
    pub(crate) code: i32,
    pub(crate) details: Vec<u8>,
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
            endpoint.connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true).connect_lazy()
        };
        Ok(Self { runtime, channel, authorization })
    }

    /// Makes a call, and waits for its answer until the deadline.
    pub(crate) fn call(
        &self,
        path: &str,
        request: Vec<u8>,
        deadline: Duration,
    ) -> Result<Result<Vec<u8>, Failure>, i32> {
        let path: PathAndQuery = path.parse().map_err(|_| FT_ERROR_VALUE)?;
        let mut request = Request::new(request);
        request.set_timeout(deadline);
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        let mut grpc = Grpc::new(self.channel.clone());
        let answered = self.runtime.block_on(async {
            let call = async {
                grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
                grpc.unary(request, path, BytesCodec).await
            };
            tokio::time::timeout(deadline, call).await
        });
        Ok(match answered {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(Failure { code: code(&status).into(), details: status.details().to_vec() }),
            Err(_) => Err(Failure { code: Code::DeadlineExceeded.into(), details: Vec::new() }),
        })
    }
}

/// Code of a failure, corrected where tonic's differs from that of other gRPC libraries: a passed deadline, and a lost connection.
fn code(status: &Status) -> Code {
    match status.code() {
        Code::Cancelled if status.message() == "Timeout expired" => Code::DeadlineExceeded,
        Code::Unknown if std::error::Error::source(status).is_some() => Code::Unavailable,
        code => code,
    }
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
