//! Engine interface that the Matchmaking service calls. Tests replace the engine by a scripted one.

use std::sync::Arc;

use crate::domain::id::{AdvertisementId, RulesetHash, SetId};
use crate::domain::ruleset::Ruleset;
use crate::engine::command::{
    Caller, CandidateView, ChooseActionAnswer, DeleteAdvertCommand, GrantConsentAnswer, GrantConsentCommand,
    LatencyReportSummary, PublishOrHeartbeatAdvertCommand, ReleaseReservationOrSeatCommand, ReportLatencyCommand,
    ReservationView, ReserveAnswer, ReserveCommand, SearchCommand, SearchSummary, UpdateAdvertAnswer,
    UpdateBlockListCommand,
};
use crate::engine::error::EngineError;
use crate::engine::queues::start_match_command::{StartMatchAnswer, StartMatchCommand};
use crate::engine::{Engine, HostEventSender, HostedMatch, PendingAnswer};

/// Advertisement, search and reservation operations. `Engine` documents each.
#[expect(missing_docs, reason = "each method is documented at `Engine`")]
pub trait MatchmakingEngine: Send + Sync + 'static {
    fn search(
        &self,
        caller: &Caller,
        search: SearchCommand,
        on_candidate: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<SearchSummary, EngineError>;
    fn update(
        &self,
        caller: &Caller,
        update: PublishOrHeartbeatAdvertCommand,
    ) -> Result<PendingAnswer<UpdateAdvertAnswer>, EngineError>;
    fn delete(&self, caller: &Caller, delete: DeleteAdvertCommand) -> Result<PendingAnswer<()>, EngineError>;
    fn reserve(&self, caller: &Caller, reserve: ReserveCommand) -> Result<PendingAnswer<ReserveAnswer>, EngineError>;
    fn release(
        &self,
        caller: &Caller,
        release: ReleaseReservationOrSeatCommand,
    ) -> Result<PendingAnswer<()>, EngineError>;
    fn start_match(
        &self,
        caller: &Caller,
        start: StartMatchCommand,
    ) -> Result<PendingAnswer<StartMatchAnswer>, EngineError>;
    fn report_latency(
        &self,
        caller: &Caller,
        report: ReportLatencyCommand,
        on_candidate: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<LatencyReportSummary, EngineError>;
    fn choose_action(&self, set_id: SetId, party_size: u16) -> Result<ChooseActionAnswer, EngineError>;
    fn grant_party_consent(
        &self,
        caller: &Caller,
        grant: &GrantConsentCommand,
    ) -> Result<GrantConsentAnswer, EngineError>;
    fn revoke_consent(&self, caller: &Caller, consent_token: &[u8]) -> Result<PendingAnswer<bool>, EngineError>;
    fn update_block_list(
        &self,
        caller: &Caller,
        update: UpdateBlockListCommand,
    ) -> Result<PendingAnswer<usize>, EngineError>;
    fn current_or_cached_ruleset(&self, set_id: SetId, hash: Option<RulesetHash>) -> Result<Arc<Ruleset>, EngineError>;
    fn ruleset_of_search(
        &self,
        set_id: SetId,
        hash: Option<RulesetHash>,
        token: &[u8],
    ) -> Result<Arc<Ruleset>, EngineError>;
    fn subscribe_host_to_advertisement(
        &self,
        id: AdvertisementId,
        listener: &HostEventSender,
    ) -> (Vec<ReservationView>, Vec<HostedMatch>);
    fn take_due_host_heartbeat(&self, id: AdvertisementId) -> bool;
}

impl MatchmakingEngine for Engine {
    fn search(
        &self,
        caller: &Caller,
        search: SearchCommand,
        on_candidate: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<SearchSummary, EngineError> {
        Engine::search(self, caller, search, on_candidate)
    }

    fn update(
        &self,
        caller: &Caller,
        update: PublishOrHeartbeatAdvertCommand,
    ) -> Result<PendingAnswer<UpdateAdvertAnswer>, EngineError> {
        Engine::update_advertisement(self, caller, update)
    }

    fn delete(&self, caller: &Caller, delete: DeleteAdvertCommand) -> Result<PendingAnswer<()>, EngineError> {
        Engine::delete_advertisement(self, caller, delete)
    }

    fn reserve(&self, caller: &Caller, reserve: ReserveCommand) -> Result<PendingAnswer<ReserveAnswer>, EngineError> {
        Engine::reserve_seats(self, caller, reserve)
    }

    fn release(
        &self,
        caller: &Caller,
        release: ReleaseReservationOrSeatCommand,
    ) -> Result<PendingAnswer<()>, EngineError> {
        Engine::release_reservation(self, caller, release)
    }

    fn start_match(
        &self,
        caller: &Caller,
        start: StartMatchCommand,
    ) -> Result<PendingAnswer<StartMatchAnswer>, EngineError> {
        Engine::start_match(self, caller, start)
    }

    fn report_latency(
        &self,
        caller: &Caller,
        report: ReportLatencyCommand,
        on_candidate: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<LatencyReportSummary, EngineError> {
        Engine::report_latency(self, caller, report, on_candidate)
    }

    fn choose_action(&self, set_id: SetId, party_size: u16) -> Result<ChooseActionAnswer, EngineError> {
        Engine::choose_action(self, set_id, party_size)
    }

    fn grant_party_consent(
        &self,
        caller: &Caller,
        grant: &GrantConsentCommand,
    ) -> Result<GrantConsentAnswer, EngineError> {
        Engine::grant_party_consent(self, caller, grant)
    }

    fn revoke_consent(&self, caller: &Caller, consent_token: &[u8]) -> Result<PendingAnswer<bool>, EngineError> {
        Engine::revoke_consent(self, caller, consent_token)
    }

    fn update_block_list(
        &self,
        caller: &Caller,
        update: UpdateBlockListCommand,
    ) -> Result<PendingAnswer<usize>, EngineError> {
        Engine::update_block_list(self, caller, update)
    }

    fn current_or_cached_ruleset(&self, set_id: SetId, hash: Option<RulesetHash>) -> Result<Arc<Ruleset>, EngineError> {
        Engine::current_or_cached_ruleset(self, set_id, hash)
    }

    fn ruleset_of_search(
        &self,
        set_id: SetId,
        hash: Option<RulesetHash>,
        token: &[u8],
    ) -> Result<Arc<Ruleset>, EngineError> {
        Engine::ruleset_of_search(self, set_id, hash, token)
    }

    fn subscribe_host_to_advertisement(
        &self,
        id: AdvertisementId,
        listener: &HostEventSender,
    ) -> (Vec<ReservationView>, Vec<HostedMatch>) {
        Engine::subscribe_to_host_events(self, id, listener)
    }

    fn take_due_host_heartbeat(&self, id: AdvertisementId) -> bool {
        Engine::take_due_host_heartbeat(self, id)
    }
}
