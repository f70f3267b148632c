//! The Matchmaking service: every call is handed to the one handler.

use tonic::{Request, Response, Status, Streaming};

use crate::api::admission::{Caller, Player};
use crate::api::answer::Encoded;
use crate::api::caller::Callers;
use crate::api::connect::Conversation;
use crate::api::convert::{Door, out};
use crate::api::drain::Drain;
use crate::api::handler::Handler;
use crate::api::pb;
use crate::api::pb::matchmaking_service_server::MatchmakingService;

/// The service.
#[derive(Clone, Debug)]
pub struct MatchmakingApi {
    handler: Handler,
    callers: Callers,
    drain: Drain,
}

impl MatchmakingApi {
    /// A service that asks `handler` and ends its streams when `drain` begins.
    pub fn new(handler: Handler, callers: Callers, drain: Drain) -> Self {
        Self { handler, callers, drain }
    }

    /// The request, and the caller as which the check has let it in.
    fn open<T>(&self, request: Request<T>) -> Result<(Caller<Player>, T), Status> {
        let (metadata, extensions, wire) = request.into_parts();
        Ok((Caller::of(&self.callers, metadata.as_ref(), &extensions)?, wire))
    }
}

type Answered<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl MatchmakingService for MatchmakingApi {
    async fn core(&self, request: Request<pb::CoreRequest>) -> Answered<pb::CoreResponse> {
        let (caller, core) = self.open(request)?;
        let (echo, answer) = self.handler.take(&caller, core).await;
        Ok(Response::new(echo.around(answer?)))
    }

    type ConnectStream = Conversation;

    async fn connect(&self, request: Request<Streaming<pb::ConnectRequest>>) -> Answered<Conversation> {
        let (caller, inbound) = self.open(request)?;
        let place = self.handler.open_stream(&caller)?;
        let conversation = Conversation::new(self.handler.clone(), caller, inbound, &self.drain);
        Ok(Response::new(conversation.in_place(place)))
    }

    async fn search(&self, request: Request<pb::SearchRequest>) -> Answered<Encoded> {
        let (caller, wire) = self.open(request)?;
        Ok(Response::new(self.handler.search(Door::default(), &caller, wire)?))
    }

    async fn update_advertisement(
        &self,
        request: Request<pb::UpdateAdvertisementRequest>,
    ) -> Answered<pb::UpdateAdvertisementResponse> {
        let (caller, wire) = self.open(request)?;
        let submitted = self.handler.update(Door::default(), &caller, wire)?;
        let answer = submitted.settle().await.map_err(|fault| Door::default().rejection(fault))?;
        Ok(Response::new(out::update_response(answer)))
    }

    async fn delete_advertisement(
        &self,
        request: Request<pb::DeleteAdvertisementRequest>,
    ) -> Answered<pb::DeleteAdvertisementResponse> {
        let (caller, wire) = self.open(request)?;
        let (_, submitted) = self.handler.delete(Door::default(), &caller, wire)?;
        submitted.settle().await.map_err(|fault| Door::default().rejection(fault))?;
        Ok(Response::new(pb::DeleteAdvertisementResponse {}))
    }

    async fn get_configuration(
        &self,
        request: Request<pb::GetConfigurationRequest>,
    ) -> Answered<pb::GetConfigurationResponse> {
        let (caller, wire) = self.open(request)?;
        Ok(Response::new(self.handler.configuration(Door::default(), &caller, wire)?))
    }

    async fn reserve(&self, request: Request<pb::ReserveRequest>) -> Answered<pb::ReserveResponse> {
        let (caller, wire) = self.open(request)?;
        Ok(Response::new(self.handler.reserve(&caller, wire).await?))
    }

    async fn release(&self, request: Request<pb::ReleaseRequest>) -> Answered<pb::ReleaseResponse> {
        let (caller, wire) = self.open(request)?;
        Ok(Response::new(self.handler.release(&caller, wire).await?))
    }

    async fn report_latency(&self, request: Request<pb::ReportLatencyRequest>) -> Answered<Encoded> {
        let (caller, wire) = self.open(request)?;
        Ok(Response::new(self.handler.report_latency(&caller, wire)?))
    }

    async fn choose_action(&self, request: Request<pb::ChooseActionRequest>) -> Answered<pb::ChooseActionResponse> {
        let (caller, wire) = self.open(request)?;
        Ok(Response::new(self.handler.choose_role(&caller, wire)?))
    }

    async fn grant_consent(&self, request: Request<pb::GrantConsentRequest>) -> Answered<pb::GrantConsentResponse> {
        let (caller, wire) = self.open(request)?;
        Ok(Response::new(self.handler.grant_consent(&caller, wire)?))
    }
}
