//! An operator's calls as this program's own commands make them, to a server that runs elsewhere.

use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::api::{OPERATOR_REQUEST_MESSAGE_BYTES_MAX, pb};

/// Bytes of one answer: two hundred matches of a thousand players are less.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The Operator service of a server.
#[derive(Clone, Debug)]
pub struct OperatorClient {
    grpc: Grpc<Channel>,
    authorization: Option<AsciiMetadataValue>,
}

impl OperatorClient {
    /// Over `channel`, with a bearer token where the server asks for one. `None` when the token cannot be in a header.
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

    /// Sets ratings.
    pub async fn import_ratings(
        &mut self,
        asked: pb::ImportRatingsRequest,
    ) -> Result<pb::ImportRatingsResponse, Status> {
        self.call("/fireteam.v1.OperatorService/ImportRatings", asked).await
    }

    /// Finished matches.
    pub async fn export_matches(
        &mut self,
        asked: pb::ExportMatchesRequest,
    ) -> Result<pb::ExportMatchesResponse, Status> {
        self.call("/fireteam.v1.OperatorService/ExportMatches", asked).await
    }

    async fn call<Q, A>(&mut self, path: &'static str, asked: Q) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut request = Request::new(asked);
        if let Some(value) = &self.authorization {
            request.metadata_mut().insert("authorization", value.clone());
        }
        self.grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::from_static(path);
        let answer = self.grpc.unary(request, path, ProstCodec::<Q, A>::default()).await?;
        Ok(answer.into_inner())
    }
}
