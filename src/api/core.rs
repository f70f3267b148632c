//! Opens the Destiny envelope, finds the one request in it, and closes it again around the answer (S1-9, S1-52).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

use crate::api::answer::Encoded;
use crate::api::convert::{Door, out};
use crate::api::handler::Handler;
use crate::api::pb;
use crate::api::pb::CoreRequestType as Type;
use crate::api::status::Rejection;
use crate::domain::id::AdvertisementId;
use crate::engine::Submitted;
use crate::engine::command::{Caller, UpdateAnswer};
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

enum Asked {
    Search(pb::SearchRequest),
    Update(pb::UpdateAdvertisementRequest),
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
            Answer::Configuration(answer) => response.get_configuration_response = Some(answer),
        }
        response
    }

    /// The envelope around a refusal, for connections.
    pub fn around_refusal(self, rejection: Rejection) -> pb::CoreResponse {
        pb::CoreResponse { refusal: Some(rejection.into_wire()), ..self.empty() }
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
    pub fn take(&self, caller: &Caller, core: pb::CoreRequest) -> Taken {
        let echo = Echo::of(&core);
        match open(core) {
            Ok((door, asked)) => Taken { echo, door, state: self.begin(door, caller, asked) },
            Err(rejection) => Taken { echo, door: Door::default(), state: State::Ready(Some(Err(rejection))) },
        }
    }

    fn begin(&self, door: Door, caller: &Caller, asked: Asked) -> State {
        let ready = |answer: Result<Answer, Rejection>| State::Ready(Some(answer));
        match asked {
            Asked::Search(wire) => ready(self.search(door, caller, wire).map(Answer::Search)),
            Asked::Configuration(wire) => ready(self.configuration(door, wire).map(Answer::Configuration)),
            Asked::Update(wire) => match self.update(door, caller, wire) {
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
    let door = |prefix| Door { prefix, set_id: core.matchmaking_set_id, nonce: core.request_nonce };
    let mut found = Vec::with_capacity(1);
    if let Some(wire) = core.search_request {
        found.push((Type::Search, door("search_request."), Asked::Search(wire)));
    }
    if let Some(wire) = core.update_advertisement_request {
        found.push((Type::UpdateAdvertisement, door("update_advertisement_request."), Asked::Update(wire)));
    }
    if let Some(wire) = core.delete_advertisement_request {
        found.push((Type::DeleteAdvertisement, door("delete_advertisement_request."), Asked::Delete(wire)));
    }
    if let Some(wire) = core.get_configuration_request {
        found.push((Type::GetConfiguration, door("get_configuration_request."), Asked::Configuration(wire)));
    }
    let mut problems = Door::default().problems();
    let names: Vec<&str> = found.iter().map(|(_, door, _)| door.prefix.trim_end_matches('.')).collect();
    match (found.pop(), names.len()) {
        (Some((wanted, door, asked)), 1) => {
            if core.request_type != Some(wanted.into()) {
                let given = given_type(core.request_type);
                let text = format!("is {given}, but the envelope carries {}: say {}", names[0], wanted.as_str_name());
                problems.add("request_type", text);
            }
            problems.finish((door, asked))
        }
        (None, _) => {
            problems.add("request_type", "has no sub-request with it: send the one that it names");
            problems.finish((Door::default(), Asked::Search(pb::SearchRequest::default())))
        }
        (Some((_, door, asked)), count) => {
            let text = format!("the envelope carries {count} sub-requests ({}): send one", names.join(", "));
            problems.add(names[1], text);
            problems.finish((door, asked))
        }
    }
}

fn given_type(given: Option<i32>) -> String {
    match given.map(|number| (number, Type::try_from(number))) {
        None => "absent".into(),
        Some((_, Ok(known))) => known.as_str_name().into(),
        Some((number, Err(_))) => format!("{number}, which is no request type"),
    }
}
