//! Calls to a server by subcommands: the endpoint, the bearer token, and one request with one response.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::api::OPERATOR_REQUEST_MESSAGE_BYTES_MAX;

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum size of a token file in bytes.
const TOKEN_FILE_BYTES_MAX: usize = 16 * 1024;

/// Size limit of a response message, bytes. A page of 200 matches with 1,000 players each is smaller.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Client of any service of a server.
#[derive(Clone, Debug)]
pub(super) struct UnaryClient {
    grpc: Grpc<Channel>,
    authorization: Option<AsciiMetadataValue>,
}

impl UnaryClient {
    /// Creates a client over `channel` that sends `token`, if any, as a bearer token. Returns `None` if the token is
    /// not a valid header value.
    pub(super) fn new(channel: Channel, token: Option<&str>) -> Option<Self> {
        let authorization = match token {
            Some(token) => Some(format!("Bearer {token}").parse().ok()?),
            None => None,
        };
        let grpc = Grpc::new(channel)
            .max_encoding_message_size(OPERATOR_REQUEST_MESSAGE_BYTES_MAX)
            .max_decoding_message_size(RESPONSE_BYTES_MAX);
        Some(Self { grpc, authorization })
    }

    /// Calls the method at `path`.
    pub(super) async fn call<Q, A>(&mut self, path: &'static str, message: Q) -> Result<A, Status>
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

/// Endpoint at `url`, which `flag` gave, with the CA certificates of `--ca` for TLS. Fails on an invalid URL or file.
pub(super) fn endpoint_of(flag: &str, url: &str, ca: Option<&Path>) -> anyhow::Result<Endpoint> {
    let mut endpoint = Endpoint::from_shared(url.to_owned())
        .with_context(|| format!("{flag} {url} is not a URL; use one like http://127.0.0.1:50052"))?;
    if let Some(ca) = ca {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read_credential_file(ca)?));
        endpoint = endpoint.tls_config(tls).context("load the CA certificates of --ca")?;
    }
    Ok(endpoint.connect_timeout(CONNECT_TIMEOUT))
}

/// Token of a file. Fails if it cannot be read, or is empty.
pub(super) fn read_token_file(path: &Path) -> anyhow::Result<String> {
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
