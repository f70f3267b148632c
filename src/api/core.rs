//! Opens the Destiny envelope, finds the one request in it, and closes it again around the answer (S1-9, S1-52).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

use crate::api::admission::{Caller, Player};
use crate::api::answer::Encoded;
use crate::api::convert::{Door, out};
use crate::api::handler::Handler;
use crate::api::pb;
use crate::api::pb::CoreRequestType as Type;
use crate::api::status::Rejection;
use crate::domain::facts::FieldProblem;
use crate::domain::id::AdvertisementId;
use crate::engine::Submitted;
use crate::engine::command::UpdateAnswer;
use crate::engine::fault::Fault;

/// What of an envelope comes back with its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Echo {
    request_type: Option<i32>,
    request_nonce: Option<u64>,
    managed_session_index: Option<i32>,
}

/// What an envelope asked for, answered.
#[derive(Debug)]
pub enum Answer {
    /// Search.
    Search(Encoded),
    /// Update.
    Update(UpdateAnswer),
    /// Delete: which.
    Delete(AdvertisementId),
    /// Configuration.
    Configuration(pb::GetConfigurationResponse),
}

/// An envelope whose request the engine has taken: answered already, or waiting for the store.
#[derive(Debug)]
pub struct Taken {
    /// What comes back with the answer.
    pub echo: Echo,
    door: Door,
    state: State,
}

#[derive(Debug)]
enum State {
    Ready(Option<Result<Answer, Rejection>>),
    Update(oneshot::Receiver<Result<UpdateAnswer, Fault>>),
    Delete(AdvertisementId, oneshot::Receiver<Result<(), Fault>>),
}

/// What stands before the fields of each request, in the order of the envelope.
const PREFIXES: [&str; 4] =
    ["search_request.", "update_advertisement_request.", "delete_advertisement_request.", "get_configuration_request."];

enum Asked {
    Search(Box<pb::SearchRequest>),
    Update(Box<pb::UpdateAdvertisementRequest>),
    Delete(pb::DeleteAdvertisementRequest),
    Configuration(pb::GetConfigurationRequest),
}

impl Echo {
    /// What to give back of `core`.
    pub fn of(core: &pb::CoreRequest) -> Self {
        Self {
            request_type: core.request_type,
            request_nonce: core.request_nonce,
            managed_session_index: core.managed_session_index,
        }
    }

    /// The envelope around an answer.
    pub fn around(self, answer: Answer) -> pb::CoreResponse {
        let mut response = self.empty();
        match answer {
            Answer::Search(encoded) => response.search_response = Some(encoded),
            Answer::Update(answer) => response.update_advertisement_response = Some(out::update_response(answer)),
            Answer::Delete(_) => {
                response.delete_advertisement_response = Some(pb::DeleteAdvertisementResponse {});
            }
            Answer::Configuration(answer) => response.get_configuration_response = Some(Box::new(answer)),
        }
        response
    }

    /// The envelope around a refusal, for connections.
    pub fn around_refusal(self, rejection: Rejection) -> pb::CoreResponse {
        pb::CoreResponse { error: Some(Box::new(rejection.into_wire())), ..self.empty() }
    }

    fn empty(self) -> pb::CoreResponse {
        pb::CoreResponse {
            request_type: self.request_type,
            request_nonce: self.request_nonce,
            managed_session_index: self.managed_session_index,
            ..pb::CoreResponse::default()
        }
    }
}

impl Handler {
    /// Puts an envelope's request to the engine. The order of these calls is the order in which requests take effect.
    pub fn take(&self, caller: &Caller<Player>, core: pb::CoreRequest) -> Taken {
        let echo = Echo::of(&core);
        match open(core) {
            Ok((door, asked)) => Taken { echo, door, state: self.begin(door, caller, asked) },
            Err(rejection) => Taken { echo, door: Door::default(), state: State::Ready(Some(Err(rejection))) },
        }
    }

    fn begin(&self, door: Door, caller: &Caller<Player>, asked: Asked) -> State {
        let ready = |answer: Result<Answer, Rejection>| State::Ready(Some(answer));
        match asked {
            Asked::Search(wire) => ready(self.search(door, caller, *wire).map(Answer::Search)),
            Asked::Configuration(wire) => ready(self.configuration(door, caller, wire).map(Answer::Configuration)),
            Asked::Update(wire) => match self.update(door, caller, *wire) {
                Err(rejection) => ready(Err(rejection)),
                Ok(Submitted::Done(answer)) => ready(Ok(Answer::Update(answer))),
                Ok(Submitted::Waiting(answer)) => State::Update(answer),
            },
            Asked::Delete(wire) => match self.delete(door, caller, wire) {
                Err(rejection) => ready(Err(rejection)),
                Ok((id, Submitted::Done(()))) => ready(Ok(Answer::Delete(id))),
                Ok((id, Submitted::Waiting(answer))) => State::Delete(id, answer),
            },
        }
    }
}

impl Taken {
    /// The answer, when there is no waiting for it.
    pub fn now(&mut self) -> Option<Result<Answer, Rejection>> {
        match &mut self.state {
            State::Ready(answer) => answer.take(),
            State::Update(_) | State::Delete(..) => None,
        }
    }

    /// A refusal in the place of an answer.
    pub fn refused(echo: Echo, rejection: Rejection) -> Self {
        Self { echo, door: Door::default(), state: State::Ready(Some(Err(rejection))) }
    }
}

/// Waits for the answer; yields what comes back with it too.
impl Future for Taken {
    type Output = (Echo, Result<Answer, Rejection>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let settled = match &mut this.state {
            State::Ready(answer) => return Poll::Ready((this.echo, answer.take().unwrap_or_else(polled_too_late))),
            State::Update(answer) => ready!(Pin::new(answer).poll(cx)).map(|answer| answer.map(Answer::Update)),
            State::Delete(id, answer) => {
                ready!(Pin::new(answer).poll(cx)).map(|answer| answer.map(|()| Answer::Delete(*id)))
            }
        };
        let answer = settled.unwrap_or(Err(Fault::Internal)).map_err(|fault| this.door.rejection(fault));
        Poll::Ready((this.echo, answer))
    }
}

/// A future that has given its answer has none left; nobody asks twice.
fn polled_too_late() -> Result<Answer, Rejection> {
    Err(Fault::Internal.into())
}

/// Finds the one request in an envelope.
fn open(core: pb::CoreRequest) -> Result<(Door, Asked), Rejection> {
    let is_there = [
        core.search_request.is_some(),
        core.update_advertisement_request.is_some(),
        core.delete_advertisement_request.is_some(),
        core.get_configuration_request.is_some(),
    ];
    let names = || PREFIXES.iter().zip(is_there).filter(|(_, there)| *there).map(|(it, _)| it.trim_end_matches('.'));
    let (wanted, prefix, asked) = if let Some(wire) = core.search_request {
        (Type::Search, PREFIXES[0], Asked::Search(wire))
    } else if let Some(wire) = core.update_advertisement_request {
        (Type::UpdateAdvertisement, PREFIXES[1], Asked::Update(wire))
    } else if let Some(wire) = core.delete_advertisement_request {
        (Type::DeleteAdvertisement, PREFIXES[2], Asked::Delete(wire))
    } else if let Some(wire) = core.get_configuration_request {
        (Type::GetConfiguration, PREFIXES[3], Asked::Configuration(wire))
    } else {
        let what = "has no sub-request with it: send the one that it names";
        return Err(Rejection::of_fields(vec![FieldProblem { path: "request_type".into(), what: what.into() }]));
    };
    let door = Door { prefix, set_id: core.matchmaking_set_id, nonce: core.request_nonce };
    let mut problems = Door::default().problems();
    if let Some(second) = names().nth(1) {
        let all: Vec<&str> = names().collect();
        problems.add(second, format!("the envelope carries {} sub-requests ({}): send one", all.len(), all.join(", ")));
    } else if core.request_type != Some(wanted.into()) {
        let (given, name) = (given_type(core.request_type), prefix.trim_end_matches('.'));
        let text = format!("is {given}, but the envelope carries {name}: say {}", wanted.as_str_name());
        problems.add("request_type", text);
    }
    problems.finish((door, asked))
}

fn given_type(given: Option<i32>) -> String {
    match given.map(|number| (number, Type::try_from(number))) {
        None => "absent".into(),
        Some((_, Ok(known))) => known.as_str_name().into(),
        Some((number, Err(_))) => format!("{number}, which is no request type"),
    }
}
