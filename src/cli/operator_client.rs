//! The gRPC client of the Operator service, used by subcommands: connection flags, credentials and calls.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::api::{OPERATOR_REQUEST_MESSAGE_BYTES_MAX, pb};

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout for one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of a token file in bytes.
const TOKEN_FILE_BYTES_MAX: usize = 16 * 1024;

/// Size limit of a response message, bytes. A page of 200 matches with 1,000 players each is smaller.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Flags for the operator port and its credentials.
#[derive(Clone, Debug, Args)]
pub struct OperatorConnectionFlags {
    /// URL of the server's operator port.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:50052")]
    pub operator: String,
    /// File with an operator's token, as printed by `fireteam token`.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// CA certificates for verifying the server's certificate, PEM file; for an https URL.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

/// Client of the Operator service.
#[derive(Clone, Debug)]
pub struct OperatorClient {
    grpc: Grpc<Channel>,
    authorization: Option<AsciiMetadataValue>,
}

impl OperatorClient {
    /// Creates a client over `channel` that sends `token`, if any, as a bearer token. Returns `None` if the token is
    /// not a valid header value.
    fn new(channel: Channel, token: Option<&str>) -> Option<Self> {
        let authorization = match token {
            Some(token) => Some(format!("Bearer {token}").parse().ok()?),
            None => None,
        };
        let grpc = Grpc::new(channel)
            .max_encoding_message_size(OPERATOR_REQUEST_MESSAGE_BYTES_MAX)
            .max_decoding_message_size(RESPONSE_BYTES_MAX);
        Some(Self { grpc, authorization })
    }

    /// Calls ImportRatings.
    pub async fn import_ratings(
        &mut self,
        request: pb::ImportRatingsRequest,
    ) -> Result<pb::ImportRatingsResponse, Status> {
        self.call("/fireteam.v1.OperatorService/ImportRatings", request).await
    }

    /// Calls ExportMatches.
    pub async fn export_matches(
        &mut self,
        request: pb::ExportMatchesRequest,
    ) -> Result<pb::ExportMatchesResponse, Status> {
        self.call("/fireteam.v1.OperatorService/ExportMatches", request).await
    }

    async fn call<Q, A>(&mut self, path: &'static str, message: Q) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut request = Request::new(message);
        if let Some(value) = &self.authorization {
            request.metadata_mut().insert("authorization", value.clone());
        }
        self.grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::from_static(path);
        let response = self.grpc.unary(request, path, ProstCodec::<Q, A>::default()).await?;
        Ok(response.into_inner())
    }
}

/// Connects to the operator port; needs a Tokio runtime. Fails on an invalid URL, file or token, or after the timeout.
pub(super) async fn connect_to_operator_port(flags: &OperatorConnectionFlags) -> anyhow::Result<OperatorClient> {
    let mut endpoint = Endpoint::from_shared(flags.operator.clone())
        .with_context(|| format!("--operator {} is not a URL; use one like http://127.0.0.1:50052", flags.operator))?;
    if let Some(ca) = &flags.ca {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read_credential_file(ca)?));
        endpoint = endpoint.tls_config(tls).context("load the CA certificates of --ca")?;
    }
    let token = flags.token_file.as_deref().map(read_token_file).transpose()?;
    let channel = endpoint.connect_timeout(CONNECT_TIMEOUT).timeout(CALL_TIMEOUT).connect().await;
    let channel = channel.with_context(|| format!("connect to {}", flags.operator))?;
    let client = OperatorClient::new(channel, token.as_deref());
    client.context("use the token of --token-file as a header")
}

fn read_token_file(path: &Path) -> anyhow::Result<String> {
    let text = String::from_utf8(read_credential_file(path)?).with_context(|| format!("read {}", path.display()))?;
    let token = text.trim();
    if token.is_empty() {
        bail!("{} is empty; write a token from `fireteam token` to it", path.display());
    }
    Ok(token.to_owned())
}

fn read_credential_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    if path.extension().is_none_or(|extension| extension != "pem") && bytes.len() > TOKEN_FILE_BYTES_MAX {
        bail!("{} has {} bytes; a token file has at most {TOKEN_FILE_BYTES_MAX}", path.display(), bytes.len());
    }
    Ok(bytes)
}
