//! Core envelope: extracts the one sub-request of a `MatchmakingCoreRequest` and wraps its response.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

use crate::api::authorization::{AuthorizedCaller, ClientOrGameServer};
use crate::api::convert::{RequestReader, to_proto};
use crate::api::matchmaking_handler::MatchmakingHandler;
use crate::api::pb;
use crate::api::pb::CoreRequestType as Type;
use crate::api::response_encoder::EncodedCandidatesResponse;
use crate::api::status::Rejection;
use crate::domain::attribute_values::FieldProblem;
use crate::domain::id::AdvertisementId;
use crate::engine::PendingAnswer;
use crate::engine::command::UpdateAdvertAnswer;
use crate::engine::error::EngineError;
use crate::telemetry::trace::{self, WaitSpan};

/// Fields of an envelope that its response repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EnvelopeHeader {
    request_type: Option<i32>,
    request_nonce: Option<u64>,
    managed_session_index: Option<i32>,
}

/// Response to a sub-request, not yet in its envelope.
#[derive(Debug)]
pub enum SubResponse {
    /// Response to a search.
    Search(EncodedCandidatesResponse),
    /// Answer to an advertisement update.
    Update(UpdateAdvertAnswer),
    /// Id of the deleted advertisement.
    Delete(AdvertisementId),
    /// Response to a configuration request.
    Configuration(pb::GetConfigurationResponse),
}

/// Envelope whose sub-request the engine has accepted: answered, or waiting for the store.
#[derive(Debug)]
pub struct PendingEnvelope {
    /// Fields that the response repeats.
    pub header: EnvelopeHeader,
    entry_point: RequestReader,
    state: EnvelopeState,
    /// Span of the wait for the store, in a traced call.
    _commit_wait: Option<WaitSpan>,
}

#[derive(Debug)]
enum EnvelopeState {
    Ready(Option<Result<SubResponse, Rejection>>),
    WaitingForUpdate(oneshot::Receiver<Result<UpdateAdvertAnswer, EngineError>>),
    WaitingForDelete(AdvertisementId, oneshot::Receiver<Result<(), EngineError>>),
}

/// Field paths of the sub-requests, each with a dot, in the order of the envelope.
const SUB_REQUEST_FIELD_PREFIXES: [&str; 4] =
    ["search_request.", "update_advertisement_request.", "delete_advertisement_request.", "get_configuration_request."];

enum SubRequest {
    Search(Box<pb::SearchRequest>),
    Update(Box<pb::UpdateAdvertisementRequest>),
    Delete(pb::DeleteAdvertisementRequest),
    Configuration(pb::GetConfigurationRequest),
}

impl EnvelopeHeader {
    /// Copies the fields of `envelope` that the response repeats.
    pub fn from_request(envelope: &pb::CoreRequest) -> Self {
        Self {
            request_type: envelope.request_type,
            request_nonce: envelope.request_nonce,
            managed_session_index: envelope.managed_session_index,
        }
    }

    /// Wraps a response.
    pub fn wrap_response(self, sub_response: SubResponse) -> pb::CoreResponse {
        let mut response = self.empty_response();
        match sub_response {
            SubResponse::Search(encoded) => response.search_response = Some(encoded),
            SubResponse::Update(answer) => {
                response.update_advertisement_response = Some(to_proto::update_response(answer))
            }
            SubResponse::Delete(_) => {
                response.delete_advertisement_response = Some(pb::DeleteAdvertisementResponse {});
            }
            SubResponse::Configuration(configuration) => {
                response.get_configuration_response = Some(Box::new(configuration));
            }
        }
        response
    }

    /// Wraps an error, for the Connect stream.
    pub fn wrap_error(self, rejection: Rejection) -> pb::CoreResponse {
        pb::CoreResponse { error: Some(Box::new(rejection.into_request_error())), ..self.empty_response() }
    }

    fn empty_response(self) -> pb::CoreResponse {
        pb::CoreResponse {
            request_type: self.request_type,
            request_nonce: self.request_nonce,
            managed_session_index: self.managed_session_index,
            ..pb::CoreResponse::default()
        }
    }
}

impl PendingEnvelope {
    /// Starts an envelope's sub-request. Requests take effect in the order of these calls.
    pub fn start(
        handler: &MatchmakingHandler,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        envelope: pb::CoreRequest,
    ) -> Self {
        let header = EnvelopeHeader::from_request(&envelope);
        match extract_sub_request(envelope) {
            Ok((entry_point, sub_request)) => {
                let state = start_sub_request(handler, entry_point, caller, sub_request);
                let is_waiting = !matches!(state, EnvelopeState::Ready(_));
                let commit_wait = is_waiting.then(trace::start_commit_wait).flatten();
                Self { header, entry_point, state, _commit_wait: commit_wait }
            }
            Err(rejection) => Self::new_rejected(header, rejection),
        }
    }

    /// Takes the response, if it is ready without waiting for the store.
    pub fn take_ready_response(&mut self) -> Option<Result<SubResponse, Rejection>> {
        match &mut self.state {
            EnvelopeState::Ready(answer) => answer.take(),
            EnvelopeState::WaitingForUpdate(_) | EnvelopeState::WaitingForDelete(..) => None,
        }
    }

    /// Creates an envelope that is answered with an error.
    pub fn new_rejected(header: EnvelopeHeader, rejection: Rejection) -> Self {
        let state = EnvelopeState::Ready(Some(Err(rejection)));
        Self { header, entry_point: RequestReader::default(), state, _commit_wait: None }
    }
}

/// Calls the handler of a sub-request.
fn start_sub_request(
    handler: &MatchmakingHandler,
    entry_point: RequestReader,
    caller: &AuthorizedCaller<ClientOrGameServer>,
    sub_request: SubRequest,
) -> EnvelopeState {
    let ready = |answer: Result<SubResponse, Rejection>| EnvelopeState::Ready(Some(answer));
    match sub_request {
        SubRequest::Search(wire) => ready(handler.search(entry_point, caller, *wire).map(SubResponse::Search)),
        SubRequest::Configuration(wire) => {
            ready(handler.get_configuration(entry_point, caller, wire).map(SubResponse::Configuration))
        }
        SubRequest::Update(wire) => match handler.update_advertisement(entry_point, caller, *wire) {
            Err(rejection) => ready(Err(rejection)),
            Ok(PendingAnswer::Ready(answer)) => ready(Ok(SubResponse::Update(answer))),
            Ok(PendingAnswer::Pending(answer)) => EnvelopeState::WaitingForUpdate(answer),
        },
        SubRequest::Delete(wire) => match handler.delete_advertisement(entry_point, caller, wire) {
            Err(rejection) => ready(Err(rejection)),
            Ok((id, PendingAnswer::Ready(()))) => ready(Ok(SubResponse::Delete(id))),
            Ok((id, PendingAnswer::Pending(answer))) => EnvelopeState::WaitingForDelete(id, answer),
        },
    }
}

/// Resolves to the response, with the fields that it repeats.
impl Future for PendingEnvelope {
    type Output = (EnvelopeHeader, Result<SubResponse, Rejection>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let result = match &mut this.state {
            EnvelopeState::Ready(answer) => {
                return Poll::Ready((this.header, answer.take().unwrap_or_else(polled_after_completion)));
            }
            EnvelopeState::WaitingForUpdate(answer) => {
                ready!(Pin::new(answer).poll(cx)).map(|answer| answer.map(SubResponse::Update))
            }
            EnvelopeState::WaitingForDelete(id, answer) => {
                ready!(Pin::new(answer).poll(cx)).map(|answer| answer.map(|()| SubResponse::Delete(*id)))
            }
        };
        let answer =
            result.unwrap_or(Err(EngineError::Internal)).map_err(|error| this.entry_point.rejection_from(error));
        Poll::Ready((this.header, answer))
    }
}

/// Result of polling a future that has completed: a bug in the caller.
fn polled_after_completion() -> Result<SubResponse, Rejection> {
    Err(EngineError::Internal.into())
}

/// Extracts the one sub-request of an envelope. Fails if there are none or several, or if `request_type` names another.
fn extract_sub_request(envelope: pb::CoreRequest) -> Result<(RequestReader, SubRequest), Rejection> {
    let is_present = [
        envelope.search_request.is_some(),
        envelope.update_advertisement_request.is_some(),
        envelope.delete_advertisement_request.is_some(),
        envelope.get_configuration_request.is_some(),
    ];
    let present_names = || {
        SUB_REQUEST_FIELD_PREFIXES
            .iter()
            .zip(is_present)
            .filter(|(_, present)| *present)
            .map(|(prefix, _)| prefix.trim_end_matches('.'))
    };
    let (expected_type, prefix, sub_request) = if let Some(wire) = envelope.search_request {
        (Type::Search, SUB_REQUEST_FIELD_PREFIXES[0], SubRequest::Search(wire))
    } else if let Some(wire) = envelope.update_advertisement_request {
        (Type::UpdateAdvertisement, SUB_REQUEST_FIELD_PREFIXES[1], SubRequest::Update(wire))
    } else if let Some(wire) = envelope.delete_advertisement_request {
        (Type::DeleteAdvertisement, SUB_REQUEST_FIELD_PREFIXES[2], SubRequest::Delete(wire))
    } else if let Some(wire) = envelope.get_configuration_request {
        (Type::GetConfiguration, SUB_REQUEST_FIELD_PREFIXES[3], SubRequest::Configuration(wire))
    } else {
        let message = "has no sub-request; set the field that it names";
        return Err(Rejection::invalid_fields(vec![FieldProblem {
            path: "request_type".into(),
            message: message.into(),
        }]));
    };
    let entry_point = RequestReader {
        field_prefix: prefix,
        envelope_set_id: envelope.matchmaking_set_id,
        envelope_nonce: envelope.request_nonce,
    };
    let mut errors = RequestReader::default().new_field_errors();
    if let Some(second) = present_names().nth(1) {
        let present: Vec<&str> = present_names().collect();
        errors.add(
            second,
            format!("is one of {} sub-requests ({}); send one sub-request", present.len(), present.join(", ")),
        );
    } else if envelope.request_type != Some(expected_type.into()) {
        let (given, sub_request_name) =
            (describe_declared_request_type(envelope.request_type), prefix.trim_end_matches('.'));
        let text = format!(
            "is {given}, but the envelope carries {sub_request_name}; set it to {}",
            expected_type.as_str_name()
        );
        errors.add("request_type", text);
    }
    errors.into_result((entry_point, sub_request))
}

fn describe_declared_request_type(given: Option<i32>) -> String {
    match given.map(|number| (number, Type::try_from(number))) {
        None => "absent".into(),
        Some((_, Ok(known))) => known.as_str_name().into(),
        Some((number, Err(_))) => format!("{number}, an unknown request type"),
    }
}
