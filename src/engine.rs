//! Runs the domain in time: takes commands, decides with memory, has the store confirm, tells who must hear.

pub mod command;
pub mod fault;

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::domain::id::{AdvertisementId, RulesetHash, SetId};
use crate::domain::ruleset::Ruleset;

use command::{
    Caller, CandidateView, Delete, Release, ReportLatency, ReportLatencyAnswer, ReservationEvent, Reserve,
    ReserveAnswer, RoleAnswer, Search, SearchAnswer, Update, UpdateAnswer,
};
use fault::Fault;

/// An answer that is there already, or that comes when the store has confirmed it. Dropping it cancels nothing: what
/// was submitted happens.
#[derive(Debug)]
pub enum Submitted<T> {
    /// Done.
    Done(T),
    /// On its way.
    Waiting(oneshot::Receiver<Result<T, Fault>>),
}

impl<T> Submitted<T> {
    /// Waits for the answer.
    pub async fn settle(self) -> Result<T, Fault> {
        match self {
            Submitted::Done(answer) => Ok(answer),
            Submitted::Waiting(answer) => answer.await.unwrap_or(Err(Fault::Internal)),
        }
    }
}

/// A connection that wants to hear of reservations. Its inbox is bounded; when it overflows, `overflowed` is cancelled
/// and the connection must end, so that its client comes back and asks for all of them.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Where events go.
    pub events: mpsc::Sender<ReservationEvent>,
    /// Cancelled when the inbox overflowed.
    pub overflowed: CancellationToken,
}

/// The matchmaker at work.
#[derive(Debug)]
pub struct Engine;

impl Engine {
    /// Finds sessions; `each` sees the candidates, best first, while the index is held, and must be quick.
    pub fn search(
        &self,
        _caller: &Caller,
        _search: &Search,
        _each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<SearchAnswer, Fault> {
        unimplemented!()
    }

    /// Publishes, replaces or keeps alive. Submissions about one advertisement take effect in the order submitted.
    pub fn update(&self, _caller: &Caller, _update: Update) -> Result<Submitted<UpdateAnswer>, Fault> {
        unimplemented!()
    }

    /// Withdraws.
    pub fn delete(&self, _caller: &Caller, _delete: Delete) -> Result<Submitted<()>, Fault> {
        unimplemented!()
    }

    /// Takes seats.
    pub fn reserve(&self, _caller: &Caller, _reserve: Reserve) -> Result<Submitted<ReserveAnswer>, Fault> {
        unimplemented!()
    }

    /// Gives seats back.
    pub fn release(&self, _caller: &Caller, _release: Release) -> Result<Submitted<()>, Fault> {
        unimplemented!()
    }

    /// Orders candidates by measured round trips.
    pub fn report_latency(
        &self,
        _caller: &Caller,
        _report: &ReportLatency,
        _each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<ReportLatencyAnswer, Fault> {
        unimplemented!()
    }

    /// Draws a role.
    pub fn choose_role(&self, _set_id: SetId, _party_size: u16) -> Result<RoleAnswer, Fault> {
        unimplemented!()
    }

    /// The ruleset of a set: the current one, or the one of `hash` while it is still known.
    pub fn ruleset(&self, _set_id: SetId, _hash: Option<RulesetHash>) -> Result<Arc<Ruleset>, Fault> {
        unimplemented!()
    }

    /// Lets `listener` hear of an advertisement's reservations from now on.
    pub fn subscribe(&self, _id: AdvertisementId, _listener: &Listener) {
        unimplemented!()
    }
}
