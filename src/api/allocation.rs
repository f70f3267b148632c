//! Allocation service: a stream per allocator, with offers in one direction and answers in the other.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::unfold;
use tokio::time::timeout;
use tokio_stream::Stream;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::api::authorization::{AuthorizedCaller, GameServerOnly};
use crate::api::authorized::{ServiceResult, rejection_of_engine_error};
use crate::api::client_address::ClientAddressResolver;
use crate::api::convert::{RequestReader, allocation as to_proto};
use crate::api::matchmaking_handler::{acquire_stream_permit, charge_rate_limit};
use crate::api::pb;
use crate::api::pb::ErrorReason;
use crate::api::pb::allocate_request::Message;
use crate::api::pb::allocate_response::Message as ResponseMessage;
use crate::api::pb::allocation_service_server::AllocationService;
use crate::api::status::Rejection;
use crate::auth::policy::RateLimitKind;
use crate::auth::rate_limit::{RateLimits, StreamPermit};
use crate::engine::queues::command::OfferAnswer;
use crate::engine::queues::{AllocatorStream, QueueEngine};

/// Time from the start of a stream to the registration.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Implementation of the Allocation service.
#[derive(Clone, Debug)]
pub(super) struct AllocationApi {
    queues: QueueEngine,
    address_resolver: ClientAddressResolver,
    rate_limits: Option<Arc<RateLimits>>,
}

impl AllocationApi {
    /// Creates the service over `queues`. Without rate limits, answers are not charged.
    pub(super) fn new(
        queues: QueueEngine,
        address_resolver: ClientAddressResolver,
        rate_limits: Option<Arc<RateLimits>>,
    ) -> Self {
        Self { queues, address_resolver, rate_limits }
    }
}

/// Stream of offers and acknowledgements.
type AllocateResponses = Pin<Box<dyn Stream<Item = Result<pb::AllocateResponse, Status>> + Send>>;

#[tonic::async_trait]
impl AllocationService for AllocationApi {
    type AllocateStream = AllocateResponses;

    async fn allocate(&self, request: Request<Streaming<pb::AllocateRequest>>) -> ServiceResult<AllocateResponses> {
        let (metadata, extensions, requests) = request.into_parts();
        let caller = AuthorizedCaller::from_checked_request(&self.address_resolver, metadata.as_ref(), &extensions)?;
        let stream_permit = acquire_stream_permit(self.rate_limits.as_deref(), &caller)?;
        let connection =
            AllocatorConnection { api: self.clone(), caller, requests, stream: None, _stream_permit: stream_permit };
        // After an error the stream ends.
        let messages = unfold(Some(connection), |connection| async move {
            let mut connection = connection?;
            match connection.next_response().await {
                Ok(message) => Some((Ok(pb::AllocateResponse { message: Some(message?) }), Some(connection))),
                Err(status) => Some((Err(status), None)),
            }
        });
        Ok(Response::new(Box::pin(messages)))
    }
}

/// State of one stream.
struct AllocatorConnection {
    api: AllocationApi,
    caller: AuthorizedCaller<GameServerOnly>,
    requests: Streaming<pb::AllocateRequest>,
    /// `None` before the registration.
    stream: Option<AllocatorStream>,
    /// Permit for this stream in the caller's stream limit; released when the stream ends.
    _stream_permit: Option<StreamPermit>,
}

impl AllocatorConnection {
    /// Waits for an offer or an answer. Returns the message to send; `None` after the allocator has closed its side.
    async fn next_response(&mut self) -> Result<Option<ResponseMessage>, Status> {
        let Some(stream) = &mut self.stream else { return self.register().await };
        tokio::select! {
            biased;
            request = self.requests.message() => match request? {
                Some(request) => self.apply_answer(request).await.map(Some),
                None => Ok(None),
            },
            Some(offer) = stream.next_offer() => {
                Ok(Some(ResponseMessage::Offer(to_proto::allocation_offer(offer))))
            }
        }
    }

    /// Reads the registration.
    async fn register(&mut self) -> Result<Option<ResponseMessage>, Status> {
        let first = timeout(REGISTRATION_TIMEOUT, self.requests.message()).await;
        let registration = match first.unwrap_or(Ok(Some(pb::AllocateRequest { message: None })))? {
            None => return Ok(None),
            Some(pb::AllocateRequest { message: Some(Message::Register(registration)) }) => registration,
            Some(_) => return Err(field_rejection("register", "is missing; send it first").into_status()),
        };
        self.charge()?;
        let registration =
            RequestReader::default().allocator_registration(self.caller.engine_caller(), registration)?;
        let stream = self.api.queues.connect_allocator(registration).ok_or_else(|| {
            let text = "the server has its maximum of connected allocators; connect to another server, or end one";
            Rejection::new(Code::ResourceExhausted, ErrorReason::TooManyStreams, text)
        })?;
        self.stream = Some(stream);
        Ok(Some(ResponseMessage::Registered(pb::AllocatorRegistered {})))
    }

    async fn apply_answer(&self, request: pb::AllocateRequest) -> Result<ResponseMessage, Status> {
        self.charge()?;
        let entry_point = RequestReader::default();
        let answer: OfferAnswer = match request.message {
            Some(Message::Place(place)) => entry_point.place_answer(place)?,
            Some(Message::Refuse(refusal)) => entry_point.refuse_answer(refusal)?,
            Some(Message::Register(_)) => {
                return Err(field_rejection("register", "was sent before; send it once per stream").into_status());
            }
            None => return Err(field_rejection("message", "is missing; send place or refuse").into_status()),
        };
        let offer_token = answer.offer_token.clone();
        let accepted = self
            .api
            .queues
            .answer_offer(self.caller.engine_caller(), answer)
            .await
            .map_err(rejection_of_engine_error)?;
        let outcome = if accepted { pb::AnswerOutcome::Accepted } else { pb::AnswerOutcome::NotWanted };
        Ok(ResponseMessage::Ack(pb::AnswerAck { offer_token, outcome: outcome.into() }))
    }

    fn charge(&self) -> Result<(), Status> {
        Ok(charge_rate_limit(self.api.rate_limits.as_deref(), &self.caller, RateLimitKind::Update, 1)?)
    }
}

fn field_rejection(field: &str, message: &str) -> Rejection {
    let mut problems = RequestReader::default().new_field_errors();
    problems.add(field, message);
    match problems.into_result(()) {
        Err(rejection) => rejection,
        Ok(()) => Rejection::from(crate::engine::error::EngineError::Internal),
    }
}
