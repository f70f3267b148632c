//! The Matchmaking service: every call is handed to the one handler.

use tonic::{Request, Response, Status, Streaming};

use crate::api::authorization::{AuthorizedCaller, ClientOrGameServer};
use crate::api::client_address::ClientAddressResolver;
use crate::api::connect::ConnectResponses;
use crate::api::convert::{EntryPoint, to_proto};
use crate::api::drain::Drain;
use crate::api::matchmaking_handler::MatchmakingHandler;
use crate::api::pb;
use crate::api::pb::matchmaking_service_server::MatchmakingService;
use crate::api::response_encoder::EncodedResponse;

/// The service.
#[derive(Clone, Debug)]
pub struct MatchmakingApi {
    handler: MatchmakingHandler,
    address_resolver: ClientAddressResolver,
    drain: Drain,
}

impl MatchmakingApi {
    /// A service that asks `handler` and ends its streams when `drain` begins.
    pub fn new(handler: MatchmakingHandler, callers: ClientAddressResolver, drain: Drain) -> Self {
        Self { handler, address_resolver: callers, drain }
    }

    /// The request, and the caller as which the check has let it in.
    fn authorized_request<T>(&self, request: Request<T>) -> Result<(AuthorizedCaller<ClientOrGameServer>, T), Status> {
        let (metadata, extensions, wire) = request.into_parts();
        Ok((AuthorizedCaller::from_request(&self.address_resolver, metadata.as_ref(), &extensions)?, wire))
    }
}

type ServiceResult<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl MatchmakingService for MatchmakingApi {
    async fn core(&self, request: Request<pb::CoreRequest>) -> ServiceResult<pb::CoreResponse> {
        let (caller, core) = self.authorized_request(request)?;
        let (echo, answer) = self.handler.accept_envelope(&caller, core).await;
        Ok(Response::new(echo.wrap_response(answer?)))
    }

    type ConnectStream = ConnectResponses;

    async fn connect(&self, request: Request<Streaming<pb::ConnectRequest>>) -> ServiceResult<ConnectResponses> {
        let (caller, inbound) = self.authorized_request(request)?;
        let place = self.handler.acquire_stream_permit(&caller)?;
        let conversation = ConnectResponses::new(self.handler.clone(), caller, inbound, &self.drain);
        Ok(Response::new(conversation.with_stream_permit(place)))
    }

    async fn search(&self, request: Request<pb::SearchRequest>) -> ServiceResult<EncodedResponse> {
        let (caller, wire) = self.authorized_request(request)?;
        Ok(Response::new(self.handler.search(EntryPoint::default(), &caller, wire)?))
    }

    async fn update_advertisement(
        &self,
        request: Request<pb::UpdateAdvertisementRequest>,
    ) -> ServiceResult<pb::UpdateAdvertisementResponse> {
        let (caller, wire) = self.authorized_request(request)?;
        let submitted = self.handler.update(EntryPoint::default(), &caller, wire)?;
        let answer = submitted.wait().await.map_err(|fault| EntryPoint::default().rejection_from(fault))?;
        Ok(Response::new(to_proto::update_response(answer)))
    }

    async fn delete_advertisement(
        &self,
        request: Request<pb::DeleteAdvertisementRequest>,
    ) -> ServiceResult<pb::DeleteAdvertisementResponse> {
        let (caller, wire) = self.authorized_request(request)?;
        let (_, submitted) = self.handler.delete(EntryPoint::default(), &caller, wire)?;
        submitted.wait().await.map_err(|fault| EntryPoint::default().rejection_from(fault))?;
        Ok(Response::new(pb::DeleteAdvertisementResponse {}))
    }

    async fn get_configuration(
        &self,
        request: Request<pb::GetConfigurationRequest>,
    ) -> ServiceResult<pb::GetConfigurationResponse> {
        let (caller, wire) = self.authorized_request(request)?;
        Ok(Response::new(self.handler.get_configuration(EntryPoint::default(), &caller, wire)?))
    }

    async fn reserve(&self, request: Request<pb::ReserveRequest>) -> ServiceResult<pb::ReserveResponse> {
        let (caller, wire) = self.authorized_request(request)?;
        Ok(Response::new(self.handler.reserve(&caller, wire).await?))
    }

    async fn release(&self, request: Request<pb::ReleaseRequest>) -> ServiceResult<pb::ReleaseResponse> {
        let (caller, wire) = self.authorized_request(request)?;
        Ok(Response::new(self.handler.release(&caller, wire).await?))
    }

    async fn report_latency(&self, request: Request<pb::ReportLatencyRequest>) -> ServiceResult<EncodedResponse> {
        let (caller, wire) = self.authorized_request(request)?;
        Ok(Response::new(self.handler.report_latency(&caller, wire)?))
    }

    async fn choose_action(
        &self,
        request: Request<pb::ChooseActionRequest>,
    ) -> ServiceResult<pb::ChooseActionResponse> {
        let (caller, wire) = self.authorized_request(request)?;
        Ok(Response::new(self.handler.choose_action(&caller, wire)?))
    }

    async fn grant_consent(
        &self,
        request: Request<pb::GrantConsentRequest>,
    ) -> ServiceResult<pb::GrantConsentResponse> {
        let (caller, wire) = self.authorized_request(request)?;
        Ok(Response::new(self.handler.grant_consent(&caller, wire)?))
    }
}
