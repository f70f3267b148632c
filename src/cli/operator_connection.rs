//! Connection of subcommands to a running server's operator port.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use crate::cli::operator_client::OperatorClient;

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout for one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of a token file in bytes.
const TOKEN_FILE_BYTES_MAX: usize = 16 * 1024;

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
