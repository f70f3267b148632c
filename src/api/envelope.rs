//! Opens the Destiny envelope, finds the one request in it, and closes it again around the answer (S1-9, S1-52).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

use crate::api::authorization::{AuthorizedCaller, ClientOrGameServer};
use crate::api::convert::{EntryPoint, to_proto};
use crate::api::matchmaking_handler::MatchmakingHandler;
use crate::api::pb;
use crate::api::pb::CoreRequestType as Type;
use crate::api::response_encoder::EncodedResponse;
use crate::api::status::Rejection;
use crate::domain::attribute_values::FieldProblem;
use crate::domain::id::AdvertisementId;
use crate::engine::PendingAnswer;
use crate::engine::command::UpdateAdvertAnswer;
use crate::engine::error::EngineError;

/// What of an envelope comes back with its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EnvelopeHeader {
    request_type: Option<i32>,
    request_nonce: Option<u64>,
    managed_session_index: Option<i32>,
}

/// What an envelope asked for, answered.
#[derive(Debug)]
pub enum SubResponse {
    /// Search.
    Search(EncodedResponse),
    /// Update.
    Update(UpdateAdvertAnswer),
    /// Delete: which.
    Delete(AdvertisementId),
    /// Configuration.
    Configuration(pb::GetConfigurationResponse),
}

/// An envelope whose request the engine has taken: answered already, or waiting for the store.
#[derive(Debug)]
pub struct AcceptedEnvelope {
    /// What comes back with the answer.
    pub header: EnvelopeHeader,
    entry_point: EntryPoint,
    state: EnvelopeState,
}

#[derive(Debug)]
enum EnvelopeState {
    Ready(Option<Result<SubResponse, Rejection>>),
    WaitingForUpdate(oneshot::Receiver<Result<UpdateAdvertAnswer, EngineError>>),
    WaitingForDelete(AdvertisementId, oneshot::Receiver<Result<(), EngineError>>),
}

/// What stands before the fields of each request, in the order of the envelope.
const SUB_REQUEST_FIELD_PREFIXES: [&str; 4] =
    ["search_request.", "update_advertisement_request.", "delete_advertisement_request.", "get_configuration_request."];

enum SubRequest {
    Search(Box<pb::SearchRequest>),
    Update(Box<pb::UpdateAdvertisementRequest>),
    Delete(pb::DeleteAdvertisementRequest),
    Configuration(pb::GetConfigurationRequest),
}

impl EnvelopeHeader {
    /// What to give back of `core`.
    pub fn from_request(core: &pb::CoreRequest) -> Self {
        Self {
            request_type: core.request_type,
            request_nonce: core.request_nonce,
            managed_session_index: core.managed_session_index,
        }
    }

    /// The envelope around an answer.
    pub fn wrap_response(self, answer: SubResponse) -> pb::CoreResponse {
        let mut response = self.empty_response();
        match answer {
            SubResponse::Search(encoded) => response.search_response = Some(encoded),
            SubResponse::Update(answer) => {
                response.update_advertisement_response = Some(to_proto::update_response(answer))
            }
            SubResponse::Delete(_) => {
                response.delete_advertisement_response = Some(pb::DeleteAdvertisementResponse {});
            }
            SubResponse::Configuration(answer) => response.get_configuration_response = Some(Box::new(answer)),
        }
        response
    }

    /// The envelope around a refusal, for connections.
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

impl MatchmakingHandler {
    /// Puts an envelope's request to the engine. The order of these calls is the order in which requests take effect.
    pub fn accept_envelope(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        core: pb::CoreRequest,
    ) -> AcceptedEnvelope {
        let echo = EnvelopeHeader::from_request(&core);
        match extract_sub_request(core) {
            Ok((door, asked)) => {
                AcceptedEnvelope { header: echo, entry_point: door, state: self.start_sub_request(door, caller, asked) }
            }
            Err(rejection) => AcceptedEnvelope {
                header: echo,
                entry_point: EntryPoint::default(),
                state: EnvelopeState::Ready(Some(Err(rejection))),
            },
        }
    }

    fn start_sub_request(
        &self,
        door: EntryPoint,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        asked: SubRequest,
    ) -> EnvelopeState {
        let ready = |answer: Result<SubResponse, Rejection>| EnvelopeState::Ready(Some(answer));
        match asked {
            SubRequest::Search(wire) => ready(self.search(door, caller, *wire).map(SubResponse::Search)),
            SubRequest::Configuration(wire) => {
                ready(self.get_configuration(door, caller, wire).map(SubResponse::Configuration))
            }
            SubRequest::Update(wire) => match self.update(door, caller, *wire) {
                Err(rejection) => ready(Err(rejection)),
                Ok(PendingAnswer::Ready(answer)) => ready(Ok(SubResponse::Update(answer))),
                Ok(PendingAnswer::Pending(answer)) => EnvelopeState::WaitingForUpdate(answer),
            },
            SubRequest::Delete(wire) => match self.delete(door, caller, wire) {
                Err(rejection) => ready(Err(rejection)),
                Ok((id, PendingAnswer::Ready(()))) => ready(Ok(SubResponse::Delete(id))),
                Ok((id, PendingAnswer::Pending(answer))) => EnvelopeState::WaitingForDelete(id, answer),
            },
        }
    }
}

impl AcceptedEnvelope {
    /// The answer, when there is no waiting for it.
    pub fn take_ready_response(&mut self) -> Option<Result<SubResponse, Rejection>> {
        match &mut self.state {
            EnvelopeState::Ready(answer) => answer.take(),
            EnvelopeState::WaitingForUpdate(_) | EnvelopeState::WaitingForDelete(..) => None,
        }
    }

    /// A refusal in the place of an answer.
    pub fn rejected(echo: EnvelopeHeader, rejection: Rejection) -> Self {
        Self { header: echo, entry_point: EntryPoint::default(), state: EnvelopeState::Ready(Some(Err(rejection))) }
    }
}

/// Waits for the answer; yields what comes back with it too.
impl Future for AcceptedEnvelope {
    type Output = (EnvelopeHeader, Result<SubResponse, Rejection>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let settled = match &mut this.state {
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
            settled.unwrap_or(Err(EngineError::Internal)).map_err(|fault| this.entry_point.rejection_from(fault));
        Poll::Ready((this.header, answer))
    }
}

/// A future that has given its answer has none left; nobody asks twice.
fn polled_after_completion() -> Result<SubResponse, Rejection> {
    Err(EngineError::Internal.into())
}

/// Finds the one request in an envelope.
fn extract_sub_request(core: pb::CoreRequest) -> Result<(EntryPoint, SubRequest), Rejection> {
    let is_there = [
        core.search_request.is_some(),
        core.update_advertisement_request.is_some(),
        core.delete_advertisement_request.is_some(),
        core.get_configuration_request.is_some(),
    ];
    let names = || {
        SUB_REQUEST_FIELD_PREFIXES
            .iter()
            .zip(is_there)
            .filter(|(_, there)| *there)
            .map(|(it, _)| it.trim_end_matches('.'))
    };
    let (wanted, prefix, asked) = if let Some(wire) = core.search_request {
        (Type::Search, SUB_REQUEST_FIELD_PREFIXES[0], SubRequest::Search(wire))
    } else if let Some(wire) = core.update_advertisement_request {
        (Type::UpdateAdvertisement, SUB_REQUEST_FIELD_PREFIXES[1], SubRequest::Update(wire))
    } else if let Some(wire) = core.delete_advertisement_request {
        (Type::DeleteAdvertisement, SUB_REQUEST_FIELD_PREFIXES[2], SubRequest::Delete(wire))
    } else if let Some(wire) = core.get_configuration_request {
        (Type::GetConfiguration, SUB_REQUEST_FIELD_PREFIXES[3], SubRequest::Configuration(wire))
    } else {
        let what = "has no sub-request with it: send the one that it names";
        return Err(Rejection::invalid_fields(vec![FieldProblem {
            path: "request_type".into(),
            message: what.into(),
        }]));
    };
    let door = EntryPoint {
        field_prefix: prefix,
        envelope_set_id: core.matchmaking_set_id,
        envelope_nonce: core.request_nonce,
    };
    let mut problems = EntryPoint::default().field_errors();
    if let Some(second) = names().nth(1) {
        let all: Vec<&str> = names().collect();
        problems.add(second, format!("the envelope carries {} sub-requests ({}): send one", all.len(), all.join(", ")));
    } else if core.request_type != Some(wanted.into()) {
        let (given, name) = (request_type_name(core.request_type), prefix.trim_end_matches('.'));
        let text = format!("is {given}, but the envelope carries {name}: say {}", wanted.as_str_name());
        problems.add("request_type", text);
    }
    problems.into_result((door, asked))
}

fn request_type_name(given: Option<i32>) -> String {
    match given.map(|number| (number, Type::try_from(number))) {
        None => "absent".into(),
        Some((_, Ok(known))) => known.as_str_name().into(),
        Some((number, Err(_))) => format!("{number}, which is no request type"),
    }
}
