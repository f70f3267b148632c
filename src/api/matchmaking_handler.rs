//! Request handler shared by the typed RPCs, Core and Connect: charges the rate limit, converts the request, calls the
//! engine, encodes the response. Each method requires an authorized caller.

use std::sync::Arc;

use crate::api::authorization::{AuthorizedCaller, CallerKind, ClientOrGameServer};
use crate::api::convert::{RequestReader, hosting, to_proto};
use crate::api::matchmaking_engine::MatchmakingEngine;
use crate::api::pb;
use crate::api::response_encoder::{CandidatesResponseEncoder, EncodedCandidatesResponse};
use crate::api::status::Rejection;
use crate::auth::policy::RateLimitKind;
use crate::auth::rate_limit::{RateLimitKey, RateLimits, StreamPermit};
use crate::domain::id::AdvertisementId;
use crate::engine::command::{ReservationView, UpdateAdvertAnswer};
use crate::engine::{HostEventSender, HostedMatch, PendingAnswer};

/// Rows that a search may evaluate for one unit of the search limit: the default evaluation budget of a ruleset, some
/// milliseconds of work. A ruleset with a larger budget costs its searchers more.
const ROWS_PER_SEARCH_CHARGE: u32 = 20_000;

/// Handler of matchmaking requests.
#[derive(Clone)]
pub struct MatchmakingHandler {
    engine: Arc<dyn MatchmakingEngine>,
    rate_limits: Option<Arc<RateLimits>>,
}

impl MatchmakingHandler {
    /// Creates a handler of `engine` without rate limits.
    pub fn new(engine: Arc<dyn MatchmakingEngine>) -> Self {
        Self { engine, rate_limits: None }
    }

    /// Applies `rate_limits` to callers.
    pub fn with_rate_limits(self, rate_limits: Arc<RateLimits>) -> Self {
        Self { rate_limits: Some(rate_limits), ..self }
    }

    /// Charges a caller before its request is read, so that an invalid request costs as much as a valid one.
    fn charge_rate_limit(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        kind: RateLimitKind,
        cost: u32,
    ) -> Result<(), Rejection> {
        self::charge_rate_limit(self.rate_limits.as_deref(), caller, kind, cost)
    }

    /// Permit for one more stream of the caller; `None` without rate limits. Fails if the caller has too many streams.
    pub fn acquire_stream_permit(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
    ) -> Result<Option<StreamPermit>, Rejection> {
        acquire_stream_permit(self.rate_limits.as_deref(), caller)
    }

    /// Search. Looks up the ruleset first and pins the search to it, so that the terms of candidates can be named while
    /// they are encoded.
    pub fn search(
        &self,
        entry_point: RequestReader,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        request: pb::SearchRequest,
    ) -> Result<EncodedCandidatesResponse, Rejection> {
        self.charge_rate_limit(caller, RateLimitKind::Search, 1)?;
        let mut search = entry_point.search_command(caller.engine_caller(), request)?;
        let ruleset = self.engine.current_or_cached_ruleset(search.set_id, search.ruleset_hash)?;
        let rows = search
            .overrides
            .as_ref()
            .and_then(|overrides| overrides.max_evaluated_rows)
            .unwrap_or(ruleset.search_limits.max_evaluated);
        let extra_charge = rows.div_ceil(ROWS_PER_SEARCH_CHARGE).saturating_sub(1);
        if extra_charge > 0 {
            self.charge_rate_limit(caller, RateLimitKind::Search, extra_charge)?;
        }
        search.ruleset_hash = Some(ruleset.hash);
        let mut encoder = CandidatesResponseEncoder::new(&ruleset);
        let answer =
            self.engine.search(caller.engine_caller(), search, &mut |candidate| encoder.push_candidate(&candidate));
        let answer = answer.map_err(|error| entry_point.rejection_from(error))?;
        Ok(encoder.finish_search_response(answer))
    }

    /// Submits an update. Updates of one advertisement take effect in the order of these calls.
    pub fn update_advertisement(
        &self,
        entry_point: RequestReader,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        request: pb::UpdateAdvertisementRequest,
    ) -> Result<PendingAnswer<UpdateAdvertAnswer>, Rejection> {
        let is_heartbeat = request.session_composition.is_none();
        let kind = if is_heartbeat { RateLimitKind::Heartbeat } else { RateLimitKind::Update };
        if !(is_heartbeat && self.take_due_host_heartbeat(&request.advertisement_id)) {
            self.charge_rate_limit(caller, kind, 1)?;
        } else if entry_point.field_prefix.is_empty() {
            refund_call_asked_for_by_server(self.rate_limits.as_deref(), caller);
        }
        let caller = caller.engine_caller();
        let update = entry_point.update_command(caller, request)?;
        self.engine.update(caller, update).map_err(|error| entry_point.rejection_from(error))
    }

    /// Whether a heartbeat of an advertisement was asked for and is due, so that it is not charged. It is then taken: at most
    /// one per interval and advertisement, also of callers who do not own it.
    fn take_due_host_heartbeat(&self, advertisement_id: &str) -> bool {
        self.rate_limits.is_some()
            && AdvertisementId::parse(advertisement_id).is_some_and(|id| self.engine.take_due_host_heartbeat(id))
    }

    /// Submits a deletion; returns the id with the pending answer.
    pub fn delete_advertisement(
        &self,
        entry_point: RequestReader,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        request: pb::DeleteAdvertisementRequest,
    ) -> Result<(AdvertisementId, PendingAnswer<()>), Rejection> {
        self.charge_rate_limit(caller, RateLimitKind::Update, 1)?;
        let delete = entry_point.delete_command(request)?;
        let id = delete.id;
        let pending =
            self.engine.delete(caller.engine_caller(), delete).map_err(|error| entry_point.rejection_from(error))?;
        Ok((id, pending))
    }

    /// Returns the current ruleset of a set, without its text if the client's hash matches.
    pub fn get_configuration(
        &self,
        entry_point: RequestReader,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        request: pb::GetConfigurationRequest,
    ) -> Result<pb::GetConfigurationResponse, Rejection> {
        self.charge_rate_limit(caller, RateLimitKind::Search, 1)?;
        let (set_id, known_hash) = entry_point.configuration_query(request)?;
        let ruleset = self.engine.current_or_cached_ruleset(set_id, None)?;
        Ok(to_proto::configuration_response(&ruleset, known_hash))
    }

    /// Reserves seats in an advertised session.
    pub async fn reserve(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        request: pb::ReserveRequest,
    ) -> Result<pb::ReserveResponse, Rejection> {
        self.charge_rate_limit(caller, RateLimitKind::Seats, 1)?;
        let reserve = RequestReader::default().reserve_command(caller.engine_caller(), request)?;
        let answer = self.engine.reserve(caller.engine_caller(), reserve)?.wait().await?;
        Ok(to_proto::reserve_response(answer))
    }

    /// Releases a reservation.
    pub async fn release(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        request: pb::ReleaseRequest,
    ) -> Result<pb::ReleaseResponse, Rejection> {
        self.charge_rate_limit(caller, RateLimitKind::Seats, 1)?;
        let release = RequestReader::default().release_command(request)?;
        self.engine.release(caller.engine_caller(), release)?.wait().await?;
        Ok(pb::ReleaseResponse {})
    }

    /// Starts a match of a session.
    pub async fn start_session_match(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        request: pb::StartMatchRequest,
    ) -> Result<pb::StartMatchResponse, Rejection> {
        self.charge_rate_limit(caller, RateLimitKind::Update, 1)?;
        let start = RequestReader::default().start_match_command(caller.engine_caller(), request)?;
        let answer = self.engine.start_match(caller.engine_caller(), start)?.wait().await?;
        Ok(hosting::start_match_response(&answer))
    }

    /// Orders candidates by the round trips that the client measured.
    pub fn report_latency(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        request: pb::ReportLatencyRequest,
    ) -> Result<EncodedCandidatesResponse, Rejection> {
        self.charge_rate_limit(caller, RateLimitKind::Search, 1)?;
        let caller = caller.engine_caller();
        let mut report = RequestReader::default().report_latency_command(caller, request)?;
        let ruleset = self.engine.ruleset_of_search(report.set_id, report.ruleset_hash, &report.search_token)?;
        report.ruleset_hash = Some(ruleset.hash);
        let mut encoder = CandidatesResponseEncoder::of_latency_report(&ruleset);
        let answer = self.engine.report_latency(caller, report, &mut |candidate| encoder.push_candidate(&candidate))?;
        Ok(encoder.finish_latency_response(&answer))
    }

    /// Draws the action, search or advertise, from the ruleset's chances for the party size.
    pub fn choose_action(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        request: pb::ChooseActionRequest,
    ) -> Result<pb::ChooseActionResponse, Rejection> {
        self.charge_rate_limit(caller, RateLimitKind::Search, 1)?;
        let (set_id, party_size) = RequestReader::default().choose_action_query(request)?;
        let answer = self.engine.choose_action(set_id, party_size)?;
        Ok(to_proto::choose_action_response(answer))
    }

    /// Issues a consent token with which another player may include the caller in a party.
    pub fn grant_party_consent(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        request: pb::GrantConsentRequest,
    ) -> Result<pb::GrantConsentResponse, Rejection> {
        self.charge_rate_limit(caller, RateLimitKind::Search, 1)?;
        let grant = RequestReader::default().grant_party_consent_command(request)?;
        let answer = self.engine.grant_party_consent(caller.engine_caller(), &grant)?;
        Ok(pb::GrantConsentResponse { consent_token: answer.consent_token, expires_in_ms: answer.expires_in_ms.into() })
    }

    /// Revokes a consent token of the caller.
    pub async fn revoke_consent(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        request: pb::RevokeConsentRequest,
    ) -> Result<pb::RevokeConsentResponse, Rejection> {
        self.charge_rate_limit(caller, RateLimitKind::Update, 1)?;
        let token = RequestReader::default().unverified_consent_token_to_revoke(request)?;
        let was_used = self.engine.revoke_consent(caller.engine_caller(), &token)?.wait().await?;
        Ok(pb::RevokeConsentResponse { was_used })
    }

    /// Changes a durable block list.
    pub async fn update_block_list(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
        request: pb::UpdateBlockListRequest,
    ) -> Result<pb::UpdateBlockListResponse, Rejection> {
        self.charge_rate_limit(caller, RateLimitKind::Update, 1)?;
        let update = RequestReader::default().update_block_list_command(request)?;
        let count = self.engine.update_block_list(caller.engine_caller(), update)?.wait().await?;
        Ok(pb::UpdateBlockListResponse { blocked_user_count: u32::try_from(count).unwrap_or(u32::MAX) })
    }

    /// Subscribes a connection to the events of an advertisement that its caller has updated. Returns the current
    /// reservations and matches.
    pub fn subscribe_host_to_advertisement(
        &self,
        _: &AuthorizedCaller<ClientOrGameServer>,
        id: AdvertisementId,
        listener: &HostEventSender,
    ) -> (Vec<ReservationView>, Vec<HostedMatch>) {
        self.engine.subscribe_host_to_advertisement(id, listener)
    }
}

/// Charges a caller, if there are rate limits.
pub(super) fn charge_rate_limit<P: CallerKind>(
    rate_limits: Option<&RateLimits>,
    caller: &AuthorizedCaller<P>,
    kind: RateLimitKind,
    cost: u32,
) -> Result<(), Rejection> {
    rate_limits.map_or(Ok(()), |rate_limits| {
        Ok(rate_limits.consume_for_caller_and_network(
            rate_limit_key(caller),
            caller.address_limited_besides_caller(),
            kind,
            cost,
        )?)
    })
}

/// Gives back the charge of a call that the server has asked for. Requests within an envelope are no calls of their own.
pub(super) fn refund_call_asked_for_by_server<P: CallerKind>(
    rate_limits: Option<&RateLimits>,
    caller: &AuthorizedCaller<P>,
) {
    if let Some(rate_limits) = rate_limits {
        rate_limits.refund_to_caller_and_network(
            rate_limit_key(caller),
            caller.address_limited_besides_caller(),
            RateLimitKind::Call,
            1,
        );
    }
}

/// Permit for one more stream of the caller; `None` without rate limits.
pub(super) fn acquire_stream_permit<P: CallerKind>(
    rate_limits: Option<&RateLimits>,
    caller: &AuthorizedCaller<P>,
) -> Result<Option<StreamPermit>, Rejection> {
    rate_limits.map_or(Ok(None), |rate_limits| Ok(rate_limits.acquire_stream_permit(rate_limit_key(caller))?))
}

/// Key under which the calls of `caller` are charged: its identity, else its address.
fn rate_limit_key<P: CallerKind>(caller: &AuthorizedCaller<P>) -> RateLimitKey {
    RateLimitKey::for_caller(
        caller.identity().map(|identity| (identity.role, identity.caller_key)),
        caller.engine_caller().ip_address,
    )
}

impl std::fmt::Debug for MatchmakingHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MatchmakingHandler").finish_non_exhaustive()
    }
}
