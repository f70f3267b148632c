//! What the doors ask of the engine. Tests put a scripted one in its place: one that waits, fails or panics at will.

use std::sync::Arc;

use crate::domain::id::{AdvertisementId, RulesetHash, SetId, UserKey};
use crate::domain::ruleset::Ruleset;
use crate::engine::command::{
    Caller, CandidateView, ConsentAnswer, Delete, Release, ReportLatency, ReportLatencyAnswer, ReservationAnswer,
    Reserve, ReserveAnswer, RoleAnswer, Search, SearchAnswer, Update, UpdateAnswer,
};
use crate::engine::fault::Fault;
use crate::engine::{Engine, Listener, Submitted};

/// The engine's verbs, with the engine's meaning: see `Engine`.
#[expect(missing_docs, reason = "each method is the engine's of the same name")]
pub trait Matchmaker: Send + Sync + 'static {
    fn search(
        &self,
        caller: &Caller,
        search: Search,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<SearchAnswer, Fault>;
    fn update(&self, caller: &Caller, update: Update) -> Result<Submitted<UpdateAnswer>, Fault>;
    fn delete(&self, caller: &Caller, delete: Delete) -> Result<Submitted<()>, Fault>;
    fn reserve(&self, caller: &Caller, reserve: Reserve) -> Result<Submitted<ReserveAnswer>, Fault>;
    fn release(&self, caller: &Caller, release: Release) -> Result<Submitted<()>, Fault>;
    fn report_latency(
        &self,
        caller: &Caller,
        report: ReportLatency,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<ReportLatencyAnswer, Fault>;
    fn choose_role(&self, set_id: SetId, party_size: u16) -> Result<RoleAnswer, Fault>;
    fn grant_consent(&self, caller: &Caller, leader: UserKey) -> Result<ConsentAnswer, Fault>;
    fn ruleset(&self, set_id: SetId, hash: Option<RulesetHash>) -> Result<Arc<Ruleset>, Fault>;
    fn searched_by(&self, set_id: SetId, hash: Option<RulesetHash>, token: &[u8]) -> Result<Arc<Ruleset>, Fault>;
    fn subscribe(&self, id: AdvertisementId, listener: &Listener) -> Vec<ReservationAnswer>;
}

impl Matchmaker for Engine {
    fn search(
        &self,
        caller: &Caller,
        search: Search,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<SearchAnswer, Fault> {
        Engine::search(self, caller, search, each)
    }

    fn update(&self, caller: &Caller, update: Update) -> Result<Submitted<UpdateAnswer>, Fault> {
        Engine::update(self, caller, update)
    }

    fn delete(&self, caller: &Caller, delete: Delete) -> Result<Submitted<()>, Fault> {
        Engine::delete(self, caller, delete)
    }

    fn reserve(&self, caller: &Caller, reserve: Reserve) -> Result<Submitted<ReserveAnswer>, Fault> {
        Engine::reserve(self, caller, reserve)
    }

    fn release(&self, caller: &Caller, release: Release) -> Result<Submitted<()>, Fault> {
        Engine::release(self, caller, release)
    }

    fn report_latency(
        &self,
        caller: &Caller,
        report: ReportLatency,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<ReportLatencyAnswer, Fault> {
        Engine::report_latency(self, caller, report, each)
    }

    fn choose_role(&self, set_id: SetId, party_size: u16) -> Result<RoleAnswer, Fault> {
        Engine::choose_role(self, set_id, party_size)
    }

    fn grant_consent(&self, caller: &Caller, leader: UserKey) -> Result<ConsentAnswer, Fault> {
        Engine::grant_consent(self, caller, leader)
    }

    fn ruleset(&self, set_id: SetId, hash: Option<RulesetHash>) -> Result<Arc<Ruleset>, Fault> {
        Engine::ruleset(self, set_id, hash)
    }

    fn searched_by(&self, set_id: SetId, hash: Option<RulesetHash>, token: &[u8]) -> Result<Arc<Ruleset>, Fault> {
        Engine::searched_by(self, set_id, hash, token)
    }

    fn subscribe(&self, id: AdvertisementId, listener: &Listener) -> Vec<ReservationAnswer> {
        Engine::subscribe(self, id, listener)
    }
}
