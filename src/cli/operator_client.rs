//! The gRPC client of the Operator service, used by the subcommands of this program.

use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::api::{OPERATOR_REQUEST_MESSAGE_BYTES_MAX, pb};

/// Size limit of a response message, bytes. A page of 200 matches with 1,000 players each is smaller.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Client of the Operator service.
#[derive(Clone, Debug)]
pub struct OperatorClient {
    grpc: Grpc<Channel>,
    authorization: Option<AsciiMetadataValue>,
}

impl OperatorClient {
    /// Creates a client over `channel` that sends `token`, if any, as a bearer token. Returns `None` if the token is
    /// not a valid header value.
    pub fn new(channel: Channel, token: Option<&str>) -> Option<Self> {
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
