//! How commands reach a running server's operator port.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use crate::api::asking::OperatorClient;

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long one answer may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of a token file at most.
const TOKEN_FILE_BYTES_MAX: usize = 16 * 1024;

/// Where the operator port is, and what to show there.
#[derive(Clone, Debug, Args)]
pub struct OperatorConnectionFlags {
    /// The server's operator port.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:50052")]
    pub operator: String,
    /// A file with an operator's token, as `fireteam token` prints it.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Certificates that sign the server's own, PEM; with an https URL.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

/// Connects. Within a runtime.
pub(super) async fn connect_to_operator_port(flags: &OperatorConnectionFlags) -> anyhow::Result<OperatorClient> {
    let mut endpoint = Endpoint::from_shared(flags.operator.clone())
        .with_context(|| format!("--operator {} is no URL: http://127.0.0.1:50052", flags.operator))?;
    if let Some(ca) = &flags.ca {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read_credential_file(ca)?));
        endpoint = endpoint.tls_config(tls).context("use the certificates of --ca")?;
    }
    let token = flags.token_file.as_deref().map(read_token_file).transpose()?;
    let channel = endpoint.connect_timeout(CONNECT_TIMEOUT).timeout(CALL_TIMEOUT).connect().await;
    let channel = channel.with_context(|| format!("connect to {}", flags.operator))?;
    let asking = OperatorClient::new(channel, token.as_deref());
    asking.context("the token file holds something that no token is")
}

fn read_token_file(path: &Path) -> anyhow::Result<String> {
    let text = String::from_utf8(read_credential_file(path)?).with_context(|| format!("read {}", path.display()))?;
    let token = text.trim();
    if token.is_empty() {
        bail!("{} is empty: put a token there, as `fireteam token` prints it", path.display());
    }
    Ok(token.to_owned())
}

fn read_credential_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    if path.extension().is_none_or(|it| it != "pem") && TOKEN_FILE_BYTES_MAX < bytes.len() {
        bail!("{} has {} bytes: no token has so many", path.display(), bytes.len());
    }
    Ok(bytes)
}
