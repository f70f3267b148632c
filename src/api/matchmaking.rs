//! Matchmaking service: passes each call to the handler that Core and Connect share.

use tonic::{Request, Response, Status, Streaming};

use crate::api::authorization::{AuthorizedCaller, ClientOrGameServer};
use crate::api::authorized::ServiceResult;
use crate::api::client_address::ClientAddressResolver;
use crate::api::connect::ConnectResponses;
use crate::api::convert::{RequestReader, to_proto};
use crate::api::drain::Drain;
use crate::api::envelope::PendingEnvelope;
use crate::api::matchmaking_handler::MatchmakingHandler;
use crate::api::pb;
use crate::api::pb::matchmaking_service_server::MatchmakingService;
use crate::api::response_encoder::EncodedCandidatesResponse;

/// Implementation of the Matchmaking service.
#[derive(Clone, Debug)]
pub struct MatchmakingApi {
    handler: MatchmakingHandler,
    address_resolver: ClientAddressResolver,
    drain: Drain,
}

impl MatchmakingApi {
    /// Creates a service that passes calls to `handler` and ends its streams when `drain` starts.
    pub fn new(handler: MatchmakingHandler, address_resolver: ClientAddressResolver, drain: Drain) -> Self {
        Self { handler, address_resolver, drain }
    }

    /// Splits a request into its authorized caller and its message. Fails if the caller is not authorized.
    fn authorized_request<T>(&self, request: Request<T>) -> Result<(AuthorizedCaller<ClientOrGameServer>, T), Status> {
        let (metadata, extensions, message) = request.into_parts();
        Ok((AuthorizedCaller::from_checked_request(&self.address_resolver, metadata.as_ref(), &extensions)?, message))
    }
}

#[tonic::async_trait]
impl MatchmakingService for MatchmakingApi {
    async fn core(&self, request: Request<pb::CoreRequest>) -> ServiceResult<pb::CoreResponse> {
        let (caller, envelope) = self.authorized_request(request)?;
        let (header, response) = PendingEnvelope::start(&self.handler, &caller, envelope).await;
        Ok(Response::new(header.wrap_response(response?)))
    }

    type ConnectStream = ConnectResponses;

    async fn connect(&self, request: Request<Streaming<pb::ConnectRequest>>) -> ServiceResult<ConnectResponses> {
        let (caller, requests) = self.authorized_request(request)?;
        let stream_permit = self.handler.acquire_stream_permit(&caller)?;
        let responses = ConnectResponses::new(self.handler.clone(), caller, requests, &self.drain);
        Ok(Response::new(responses.with_stream_permit(stream_permit)))
    }

    async fn search(&self, request: Request<pb::SearchRequest>) -> ServiceResult<EncodedCandidatesResponse> {
        let (caller, message) = self.authorized_request(request)?;
        Ok(Response::new(self.handler.search(RequestReader::default(), &caller, message)?))
    }

    async fn update_advertisement(
        &self,
        request: Request<pb::UpdateAdvertisementRequest>,
    ) -> ServiceResult<pb::UpdateAdvertisementResponse> {
        let (caller, message) = self.authorized_request(request)?;
        let pending = self.handler.update_advertisement(RequestReader::default(), &caller, message)?;
        let answer = pending.wait().await.map_err(|error| RequestReader::default().rejection_from(error))?;
        Ok(Response::new(to_proto::update_response(answer)))
    }

    async fn delete_advertisement(
        &self,
        request: Request<pb::DeleteAdvertisementRequest>,
    ) -> ServiceResult<pb::DeleteAdvertisementResponse> {
        let (caller, message) = self.authorized_request(request)?;
        let (_, pending) = self.handler.delete_advertisement(RequestReader::default(), &caller, message)?;
        pending.wait().await.map_err(|error| RequestReader::default().rejection_from(error))?;
        Ok(Response::new(pb::DeleteAdvertisementResponse {}))
    }

    async fn get_configuration(
        &self,
        request: Request<pb::GetConfigurationRequest>,
    ) -> ServiceResult<pb::GetConfigurationResponse> {
        let (caller, message) = self.authorized_request(request)?;
        Ok(Response::new(self.handler.get_configuration(RequestReader::default(), &caller, message)?))
    }

    async fn reserve(&self, request: Request<pb::ReserveRequest>) -> ServiceResult<pb::ReserveResponse> {
        let (caller, message) = self.authorized_request(request)?;
        Ok(Response::new(self.handler.reserve(&caller, message).await?))
    }

    async fn release(&self, request: Request<pb::ReleaseRequest>) -> ServiceResult<pb::ReleaseResponse> {
        let (caller, message) = self.authorized_request(request)?;
        Ok(Response::new(self.handler.release(&caller, message).await?))
    }

    async fn start_match(&self, request: Request<pb::StartMatchRequest>) -> ServiceResult<pb::StartMatchResponse> {
        let (caller, message) = self.authorized_request(request)?;
        Ok(Response::new(self.handler.start_session_match(&caller, message).await?))
    }

    async fn report_latency(
        &self,
        request: Request<pb::ReportLatencyRequest>,
    ) -> ServiceResult<EncodedCandidatesResponse> {
        let (caller, message) = self.authorized_request(request)?;
        Ok(Response::new(self.handler.report_latency(&caller, message)?))
    }

    async fn choose_action(
        &self,
        request: Request<pb::ChooseActionRequest>,
    ) -> ServiceResult<pb::ChooseActionResponse> {
        let (caller, message) = self.authorized_request(request)?;
        Ok(Response::new(self.handler.choose_action(&caller, message)?))
    }

    async fn grant_consent(
        &self,
        request: Request<pb::GrantConsentRequest>,
    ) -> ServiceResult<pb::GrantConsentResponse> {
        let (caller, message) = self.authorized_request(request)?;
        Ok(Response::new(self.handler.grant_party_consent(&caller, message)?))
    }

    async fn revoke_consent(
        &self,
        request: Request<pb::RevokeConsentRequest>,
    ) -> ServiceResult<pb::RevokeConsentResponse> {
        let (caller, message) = self.authorized_request(request)?;
        Ok(Response::new(self.handler.revoke_consent(&caller, message).await?))
    }

    async fn update_block_list(
        &self,
        request: Request<pb::UpdateBlockListRequest>,
    ) -> ServiceResult<pb::UpdateBlockListResponse> {
        let (caller, message) = self.authorized_request(request)?;
        Ok(Response::new(self.handler.update_block_list(&caller, message).await?))
    }
}
