//! The gRPC client of the Operator service, used by subcommands: connection flags, credentials and calls.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tonic::Status;

use crate::api::pb;
use crate::cli::unary_client::{UnaryClient, endpoint_of, read_token_file};

/// Timeout for one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

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
    calls: UnaryClient,
}

impl OperatorClient {
    /// Calls ImportRatings.
    pub async fn import_ratings(
        &mut self,
        request: pb::ImportRatingsRequest,
    ) -> Result<pb::ImportRatingsResponse, Status> {
        self.calls.call("/fireteam.v1.OperatorService/ImportRatings", request).await
    }

    /// Calls ExportMatches.
    pub async fn export_matches(
        &mut self,
        request: pb::ExportMatchesRequest,
    ) -> Result<pb::ExportMatchesResponse, Status> {
        self.calls.call("/fireteam.v1.OperatorService/ExportMatches", request).await
    }
}

/// Connects to the operator port; needs a Tokio runtime. Fails on an invalid URL, file or token, or after the timeout.
pub(super) async fn connect_to_operator_port(flags: &OperatorConnectionFlags) -> anyhow::Result<OperatorClient> {
    let endpoint = endpoint_of("--operator", &flags.operator, flags.ca.as_deref())?;
    let token = flags.token_file.as_deref().map(read_token_file).transpose()?;
    let channel = endpoint.timeout(CALL_TIMEOUT).connect().await;
    let channel = channel.with_context(|| format!("connect to {}", flags.operator))?;
    let calls = UnaryClient::new(channel, token.as_deref()).context("use the token of --token-file as a header")?;
    Ok(OperatorClient { calls })
}
