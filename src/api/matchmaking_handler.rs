//! One handler behind three doors: each request is charged, converted, put to the engine, and its answer written. The engine
//! is reached by no other way, and every way takes a caller who has passed the check.

use std::sync::Arc;

use crate::api::authorization::{AuthorizedCaller, ClientOrGameServer};
use crate::api::convert::{EntryPoint, to_proto};
use crate::api::matchmaking_engine::MatchmakingEngine;
use crate::api::pb;
use crate::api::response_encoder::{EncodedResponse, SearchResponseEncoder};
use crate::api::status::Rejection;
use crate::auth::policy::RateLimitKind;
use crate::auth::rate_limit::{RateLimitKey, RateLimits, StreamPermit};
use crate::domain::id::AdvertisementId;
use crate::engine::command::{ReservationView, UpdateAdvertAnswer};
use crate::engine::{PendingAnswer, ReservationListener};

/// Rows that a search may look at for the price of one (SEC-10): as many as where the rules do not say, some milliseconds of
/// work. A set whose rules look further costs its searchers more.
const ROWS_PER_SEARCH_CHARGE: u32 = 20_000;

/// Asks the engine.
#[derive(Clone)]
pub struct MatchmakingHandler {
    engine: Arc<dyn MatchmakingEngine>,
    rate_limits: Option<Arc<RateLimits>>,
}

impl MatchmakingHandler {
    /// A handler that asks `engine`, of whomever and as often as they like.
    pub fn new(engine: Arc<dyn MatchmakingEngine>) -> Self {
        Self { engine, rate_limits: None }
    }

    /// The same, for callers who have quotas.
    pub fn with_rate_limits(self, quotas: Arc<RateLimits>) -> Self {
        Self { rate_limits: Some(quotas), ..self }
    }

    /// Charges a caller, before anything is looked at: what turns out wrong has cost its looking (SEC-11).
    fn charge_rate_limit(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        charge: RateLimitKind,
        cost: u32,
    ) -> Result<(), Rejection> {
        self::charge_rate_limit(self.rate_limits.as_deref(), caller, charge, cost)
    }

    /// A place for one more stream of a caller.
    pub fn acquire_stream_permit(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
    ) -> Result<Option<StreamPermit>, Rejection> {
        acquire_stream_permit(self.rate_limits.as_deref(), caller)
    }

    /// Search. The ruleset is looked up first, so that every candidate's terms have their names at once, and the search
    /// is pinned to it.
    pub fn search(
        &self,
        door: EntryPoint,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        wire: pb::SearchRequest,
    ) -> Result<EncodedResponse, Rejection> {
        self.charge_rate_limit(caller, RateLimitKind::Search, 1)?;
        let mut search = door.search_command(caller.engine_caller(), wire)?;
        let ruleset = self.engine.ruleset(search.set_id, search.ruleset_hash)?;
        let rows = search
            .overrides
            .as_ref()
            .and_then(|it| it.max_evaluated_rows)
            .unwrap_or(ruleset.search_limits.max_evaluated);
        let more = rows.div_ceil(ROWS_PER_SEARCH_CHARGE).saturating_sub(1);
        if 0 < more {
            self.charge_rate_limit(caller, RateLimitKind::Search, more)?;
        }
        search.ruleset_hash = Some(ruleset.hash);
        let mut writer = SearchResponseEncoder::new(&ruleset);
        let answer =
            self.engine.search(caller.engine_caller(), search, &mut |candidate| writer.push_candidate(&candidate));
        let answer = answer.map_err(|fault| door.rejection_from(fault))?;
        Ok(writer.finish_search_response(answer))
    }

    /// Submits an update; its place among others about the same advertisement is taken when this returns.
    pub fn update(
        &self,
        door: EntryPoint,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        wire: pb::UpdateAdvertisementRequest,
    ) -> Result<PendingAnswer<UpdateAdvertAnswer>, Rejection> {
        let is_heartbeat = wire.session_composition.is_none();
        self.charge_rate_limit(caller, if is_heartbeat { RateLimitKind::Heartbeat } else { RateLimitKind::Update }, 1)?;
        let caller = caller.engine_caller();
        let update = door.update_command(caller, wire)?;
        self.engine.update(caller, update).map_err(|fault| door.rejection_from(fault))
    }

    /// Submits a deletion.
    pub fn delete(
        &self,
        door: EntryPoint,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        wire: pb::DeleteAdvertisementRequest,
    ) -> Result<(AdvertisementId, PendingAnswer<()>), Rejection> {
        self.charge_rate_limit(caller, RateLimitKind::Update, 1)?;
        let delete = door.delete_command(wire)?;
        let id = delete.id;
        let submitted =
            self.engine.delete(caller.engine_caller(), delete).map_err(|fault| door.rejection_from(fault))?;
        Ok((id, submitted))
    }

    /// The current ruleset of a set.
    pub fn get_configuration(
        &self,
        door: EntryPoint,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        wire: pb::GetConfigurationRequest,
    ) -> Result<pb::GetConfigurationResponse, Rejection> {
        self.charge_rate_limit(caller, RateLimitKind::Search, 1)?;
        let (set_id, known) = door.configuration_query(wire)?;
        let ruleset = self.engine.ruleset(set_id, None)?;
        Ok(to_proto::configuration_response(&ruleset, known))
    }

    /// Takes seats.
    pub async fn reserve(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        wire: pb::ReserveRequest,
    ) -> Result<pb::ReserveResponse, Rejection> {
        self.charge_rate_limit(caller, RateLimitKind::Seats, 1)?;
        let reserve = EntryPoint::default().reserve_command(caller.engine_caller(), wire)?;
        let answer = self.engine.reserve(caller.engine_caller(), reserve)?.wait().await?;
        Ok(to_proto::reserve_response(answer))
    }

    /// Gives seats back.
    pub async fn release(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        wire: pb::ReleaseRequest,
    ) -> Result<pb::ReleaseResponse, Rejection> {
        self.charge_rate_limit(caller, RateLimitKind::Seats, 1)?;
        let release = EntryPoint::default().release_command(wire)?;
        self.engine.release(caller.engine_caller(), release)?.wait().await?;
        Ok(pb::ReleaseResponse {})
    }

    /// Orders candidates by measured round trips.
    pub fn report_latency(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        wire: pb::ReportLatencyRequest,
    ) -> Result<EncodedResponse, Rejection> {
        self.charge_rate_limit(caller, RateLimitKind::Search, 1)?;
        let caller = caller.engine_caller();
        let mut report = EntryPoint::default().report_latency_command(caller, wire)?;
        let ruleset = self.engine.ruleset_of_search(report.set_id, report.ruleset_hash, &report.search_token)?;
        report.ruleset_hash = Some(ruleset.hash);
        let mut writer = SearchResponseEncoder::new(&ruleset);
        let answer = self.engine.report_latency(caller, report, &mut |candidate| writer.push_candidate(&candidate))?;
        Ok(writer.finish_latency_response(&answer))
    }

    /// Draws a role.
    pub fn choose_action(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        wire: pb::ChooseActionRequest,
    ) -> Result<pb::ChooseActionResponse, Rejection> {
        self.charge_rate_limit(caller, RateLimitKind::Search, 1)?;
        let (set_id, party_size) = EntryPoint::default().choose_action_query(wire)?;
        let answer = self.engine.choose_action(set_id, party_size)?;
        Ok(to_proto::choose_action_response(answer))
    }

    /// Lets another player take the caller along.
    pub fn grant_consent(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        wire: pb::GrantConsentRequest,
    ) -> Result<pb::GrantConsentResponse, Rejection> {
        self.charge_rate_limit(caller, RateLimitKind::Search, 1)?;
        let leader = EntryPoint::default().consent_leader(wire)?;
        let answer = self.engine.grant_consent(caller.engine_caller(), leader)?;
        Ok(pb::GrantConsentResponse { consent_token: answer.consent_token, expires_in_ms: answer.expires_in_ms })
    }

    /// Lets a connection hear of an advertisement that its caller has updated, and says what there is to hear of by now.
    pub fn subscribe(
        &self,
        _: &AuthorizedCaller<ClientOrGameServer>,
        id: AdvertisementId,
        listener: &ReservationListener,
    ) -> Vec<ReservationView> {
        self.engine.subscribe(id, listener)
    }
}

/// Charges a caller, where there are quotas.
pub(super) fn charge_rate_limit(
    quotas: Option<&RateLimits>,
    caller: &AuthorizedCaller<ClientOrGameServer>,
    charge: RateLimitKind,
    cost: u32,
) -> Result<(), Rejection> {
    quotas.map_or(Ok(()), |quotas| Ok(quotas.consume(rate_limit_key(caller), charge, cost)?))
}

/// A place for one more stream of a caller.
pub(super) fn acquire_stream_permit(
    quotas: Option<&RateLimits>,
    caller: &AuthorizedCaller<ClientOrGameServer>,
) -> Result<Option<StreamPermit>, Rejection> {
    quotas.map_or(Ok(None), |quotas| Ok(quotas.acquire_stream_permit(rate_limit_key(caller))?))
}

/// Who pays for what `caller` asks.
fn rate_limit_key(caller: &AuthorizedCaller<ClientOrGameServer>) -> RateLimitKey {
    RateLimitKey::for_caller(
        caller.identity().map(|identity| (identity.role, identity.caller_key)),
        caller.engine_caller().ip_address,
    )
}

impl std::fmt::Debug for MatchmakingHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handler").finish_non_exhaustive()
    }
}
