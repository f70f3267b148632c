//! A scripted matchmaking engine: returns fixed answers, waits, fails or panics, and records the commands it receives.

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use fireteam::api::matchmaking_engine::MatchmakingEngine;
use fireteam::domain::advertisement::{Advertisement, AdvertisementKind};
use fireteam::domain::attribute::{Attribute, NumberAggregation, SourceField, Trust, ValueType};
use fireteam::domain::filter::search_round_trip::RoundTripWithSource;
use fireteam::domain::filter::{Refusal, RefusingSide};
use fireteam::domain::id::{AdvertisementId, ReservationId, RulesetHash, SetId};
use fireteam::domain::latency::DEFAULT_LATENCY_MODEL;
use fireteam::domain::matchmaking_action::{AdvertiseChances, MatchmakingAction};
use fireteam::domain::measure::Measure;
use fireteam::domain::ruleset::probing::DEFAULT_PROBING;
use fireteam::domain::ruleset::teams::{
    AllocatorOfferSpec, GameServerOrder, HostingMode, HostingSpec, PlayerDataForHost,
};
use fireteam::domain::ruleset::{
    AdvertisementIdForm, DistanceCurve, PartyConsentPolicy, Ruleset, RulesetSilos, SearchLimits, SoftFilter,
    SoftFilterObjective, SoftMissingPolicy,
};
use fireteam::domain::session::Session;
use fireteam::domain::time::UnixMs;
use fireteam::engine::command::{
    Caller, CandidateView, ChooseActionAnswer, DeleteAdvertCommand, GrantConsentAnswer, GrantConsentCommand,
    LatencyReportSummary, PublishOrHeartbeatAdvertCommand, ReleaseReservationOrSeatCommand, ReportLatencyCommand,
    ReportedFinding, ReservationChange, ReservationEvent, ReservationView, ReserveAnswer, ReserveCommand,
    SearchCommand, SearchSummary, UpdateAdvertAnswer, UpdateBlockListCommand,
};
use fireteam::engine::error::EngineError;
use fireteam::engine::queues::start_match_command::{StartMatchAnswer, StartMatchCommand};
use fireteam::engine::{HostEventSender, HostedMatch, PendingAnswer};

/// The only known matchmaking set.
pub(crate) const SET_ID: u32 = 42;
/// Hash of its ruleset.
pub(crate) const RULESET_HASH: u32 = 0xC0FFEE;
/// An update with this TTL stays pending until the test answers it, milliseconds.
pub(crate) const PENDING_UPDATE_TTL_MS: u64 = 777;
/// A search in this silo panics.
pub(crate) const PANIC_SILO: u64 = 666;

/// Sender of a pending update's answer.
type UpdateSender = oneshot::Sender<Result<UpdateAdvertAnswer, EngineError>>;

/// Scripted matchmaking engine.
#[derive(Debug)]
pub(crate) struct ScriptedEngine {
    ruleset: Arc<Ruleset>,
    /// Commands received, as debug text, in order.
    pub(crate) received_commands: Mutex<Vec<String>>,
    /// Callers, one per command.
    pub(crate) callers: Mutex<Vec<Caller>>,
    /// Pending updates, by nonce.
    pub(crate) pending_updates: Mutex<Vec<(u64, UpdateSender)>>,
    /// Reservations that `subscribe` returns: made after an update was answered and before the host subscribed.
    pub(crate) reservations_at_subscribe: Mutex<Vec<ReservationView>>,
    /// Subscriptions: advertisement and listener.
    pub(crate) listeners: Mutex<Vec<(AdvertisementId, HostEventSender)>>,
}

impl ScriptedEngine {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            ruleset: Arc::new(scripted_ruleset()),
            received_commands: Mutex::default(),
            callers: Mutex::default(),
            pending_updates: Mutex::default(),
            reservations_at_subscribe: Mutex::default(),
            listeners: Mutex::default(),
        })
    }

    fn record(&self, caller: &Caller, command: impl std::fmt::Debug) {
        self.callers.lock().unwrap().push(*caller);
        self.received_commands.lock().unwrap().push(format!("{command:?}"));
    }
}

/// Id with all bytes equal to `byte`.
pub(crate) fn advertisement_id(byte: u8) -> AdvertisementId {
    AdvertisementId::from_bytes([byte; 16])
}

/// Ruleset with one term that clients state themselves and one that would reveal a location.
pub(crate) fn scripted_ruleset() -> Ruleset {
    let skill = Attribute {
        name: "skill".into(),
        value_type: ValueType::Number,
        source: SourceField::Skill,
        normalization_range: Some((-1000.0, 1000.0)),
        unit: "points".into(),
        number_aggregation: NumberAggregation::Mean,
        trust: Trust::Client,
        allows_wishes: false,
    };
    let soft = |name: &str, measure| SoftFilter {
        name: name.into(),
        weight: 0.5,
        measure,
        mode: SoftFilterObjective::LowerIsBetter,
        curve: DistanceCurve::Linear,
        missing: SoftMissingPolicy::Worst,
        min: 0.0,
        max: 300.0,
    };
    Ruleset {
        name: "scripted".into(),
        set_id: SetId(SET_ID),
        hash: RulesetHash(RULESET_HASH),
        silos: RulesetSilos::Any,
        attributes: Box::new([skill]),
        hard_filters: Box::new([]),
        soft_filters: Box::new([soft("skill", Measure::AttributeDifference(0)), soft("latency", Measure::Latency)]),
        expansions: Box::new([]),
        advertise_chances: AdvertiseChances::from_game_size(12),
        search_limits: SearchLimits { max_results: 50, max_evaluated: 10_000 },
        clients_per_account: 1,
        advertisement_id_form: AdvertisementIdForm::Ids,
        latency_model: DEFAULT_LATENCY_MODEL,
        answered_percent_for_involved_phase: 50.0,
        probing: DEFAULT_PROBING,
        allows_latency_wishes: false,
        consent: PartyConsentPolicy::Assumed,
        avoid: Box::default(),
        frustrated_player_limits: None,
        teams: None,
        queue: None,
        ready_check: None,
        hosting: HostingSpec {
            mode: HostingMode::None,
            allocation_timeout_ms: 0,
            max_match_ms: 0,
            confirm_ms: 0,
            host_loss_ms: 0,
            report_window_ms: 0,
            game_server_order: GameServerOrder::BestScore,
            max_round_trip_ms: None,
            allocator_offers: AllocatorOfferSpec::NO_OFFERS,
            host_data: PlayerDataForHost::default(),
        },
        rating: None,
        former_rating: None,
        rating_pool: None,
        statistics_regions: Box::default(),
        source_xml: "<Ruleset/>\n".into(),
        file_xml: "<Ruleset/>\n".into(),
    }
}

/// Advertisement that the scripted engine publishes.
pub(crate) fn scripted_advertisement(byte: u8) -> Advertisement {
    Advertisement {
        id: advertisement_id(byte),
        set_id: SetId(SET_ID),
        kind: AdvertisementKind::Session,
        publisher: None,
        advertised_since: UnixMs(0),
        ruleset_hash: RulesetHash(RULESET_HASH),
        session: Session { party_sizes: [2, 1].into(), ..Session::default() },
        ttl_ms: None,
        allowed_ranges: Box::default(),
        connect_data: [byte; 3].into(),
        probe: None,
    }
}

/// Answer to an update of `id`.
pub(crate) fn update_answer(id: AdvertisementId, created: bool) -> UpdateAdvertAnswer {
    UpdateAdvertAnswer {
        id,
        advertisement_token: vec![7],
        is_new_advert: created,
        expires_in_ms: 30_000,
        ruleset_hash: RulesetHash(RULESET_HASH),
        next_expansion_in_ms: Some(9_000),
        reservations: Vec::new(),
        not_yet_durable: false,
        ignored_fields: vec!["players[0].skill".into()],
        hosted_match_ids: Vec::new(),
        next_beat_in_ms: None,
    }
}

/// Event of a held reservation of the advertisement `id`.
pub(crate) fn reservation_event(id: AdvertisementId) -> ReservationEvent {
    let reservation = ReservationView {
        id: ReservationId::from_bytes([3; 16]),
        reservation_token: vec![],
        seats: 2,
        expires_in_ms: Some(5),
    };
    ReservationEvent { advertisement_id: id, reservation, change: ReservationChange::Held }
}

impl MatchmakingEngine for ScriptedEngine {
    fn search(
        &self,
        caller: &Caller,
        search: SearchCommand,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<SearchSummary, EngineError> {
        assert!(search.session.silo.0 != PANIC_SILO, "scripted panic");
        self.record(caller, &search);
        for (byte, score) in [(1, 0.123_456), (2, 0.5)] {
            each(CandidateView {
                chosen: &[],
                player_probe: None,
                avoidance_cost: 0.0,
                advertisement: &scripted_advertisement(byte),
                handle: None,
                score,
                score_terms: &[0.023_456_7, score - 0.023_456_7],
                distance_miles: Some(250.0),
                round_trip: None,
                open_seats: 3,
            });
        }
        let own = (Refusal::OwnSession, 1);
        let allowed = (Refusal::HardFilter { filter_index: 0, side: RefusingSide::Advertiser }, 2);
        Ok(SearchSummary {
            ruleset: self.ruleset.clone(),
            evaluated_rows: 5,
            is_truncated: false,
            refusal_counts: vec![own, allowed],
            search_token: vec![9, 9],
            searching_for_ms: 1_500,
            next_expansion_in_ms: Some(8_500),
            store_staleness_ms: None,
            ignored_fields: vec!["players[0].skill".into()],
        })
    }

    fn update(
        &self,
        caller: &Caller,
        update: PublishOrHeartbeatAdvertCommand,
    ) -> Result<PendingAnswer<UpdateAdvertAnswer>, EngineError> {
        self.record(caller, &update);
        let created = update.existing_advert.is_none();
        let id = update.existing_advert.as_ref().map_or(advertisement_id(0xAA), |(id, _)| *id);
        match (&update.existing_advert, update.envelope_nonce, update.ttl_ms) {
            (Some((_, token)), ..) if token.is_empty() => Err(EngineError::NotOwner),
            (_, Some(nonce), Some(ttl_ms)) if u64::from(ttl_ms) == PENDING_UPDATE_TTL_MS => {
                let (sender, receiver) = oneshot::channel();
                self.pending_updates.lock().unwrap().push((nonce, sender));
                Ok(PendingAnswer::Pending(receiver))
            }
            _ => Ok(PendingAnswer::Ready(update_answer(id, created))),
        }
    }

    fn delete(&self, caller: &Caller, delete: DeleteAdvertCommand) -> Result<PendingAnswer<()>, EngineError> {
        self.record(caller, &delete);
        if delete.advertisement_token.is_empty() { Err(EngineError::NotOwner) } else { Ok(PendingAnswer::Ready(())) }
    }

    fn reserve(&self, caller: &Caller, reserve: ReserveCommand) -> Result<PendingAnswer<ReserveAnswer>, EngineError> {
        self.record(caller, &reserve);
        let seats = reserve.session.player_count();
        if 3 < seats {
            return Err(EngineError::SeatsTaken { open_seats: 3 });
        }
        let reservation = ReservationView {
            id: ReservationId::from_bytes([3; 16]),
            reservation_token: vec![5],
            seats,
            expires_in_ms: None,
        };
        Ok(PendingAnswer::Ready(ReserveAnswer { reservation, connect_data: vec![1, 2, 3] }))
    }

    fn release(
        &self,
        caller: &Caller,
        release: ReleaseReservationOrSeatCommand,
    ) -> Result<PendingAnswer<()>, EngineError> {
        self.record(caller, &release);
        Ok(PendingAnswer::Ready(()))
    }

    fn start_match(
        &self,
        caller: &Caller,
        start: StartMatchCommand,
    ) -> Result<PendingAnswer<StartMatchAnswer>, EngineError> {
        self.record(caller, &start);
        Err(EngineError::Draining)
    }

    fn report_latency(
        &self,
        caller: &Caller,
        report: ReportLatencyCommand,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<LatencyReportSummary, EngineError> {
        self.record(caller, &report);
        for &(id, finding) in &report.candidate_findings {
            let round_trip = match finding {
                Some(ReportedFinding::Answered(statistics)) => Some(RoundTripWithSource::Measured(statistics.p50_ms)),
                _ => None,
            };
            each(CandidateView {
                chosen: &[],
                player_probe: None,
                avoidance_cost: 0.0,
                advertisement: &Advertisement { id, ..scripted_advertisement(1) },
                handle: None,
                score: 0.0,
                score_terms: &[0.0, 0.0],
                distance_miles: None,
                round_trip,
                open_seats: 0,
            });
        }
        Ok(LatencyReportSummary {
            ruleset: self.ruleset.clone(),
            involved_phase_may_start: true,
            search_token: Vec::new(),
            answered_count: 0,
            probed_count: 0,
            ignored_fields: Vec::new(),
            implausible_measurement_indices: Vec::new(),
        })
    }

    fn choose_action(&self, set_id: SetId, _: u16) -> Result<ChooseActionAnswer, EngineError> {
        self.current_or_cached_ruleset(set_id, None)?;
        Ok(ChooseActionAnswer { action: MatchmakingAction::Advertise, advertise_percent: 50.0 })
    }

    fn grant_party_consent(
        &self,
        caller: &Caller,
        grant: &GrantConsentCommand,
    ) -> Result<GrantConsentAnswer, EngineError> {
        self.record(caller, grant);
        Ok(GrantConsentAnswer { consent_token: vec![7], expires_in_ms: 300_000 })
    }

    fn revoke_consent(&self, caller: &Caller, consent_token: &[u8]) -> Result<PendingAnswer<bool>, EngineError> {
        self.record(caller, consent_token);
        Ok(PendingAnswer::Ready(false))
    }

    fn update_block_list(
        &self,
        caller: &Caller,
        update: UpdateBlockListCommand,
    ) -> Result<PendingAnswer<usize>, EngineError> {
        self.record(caller, update);
        Ok(PendingAnswer::Ready(1))
    }

    fn current_or_cached_ruleset(&self, set_id: SetId, hash: Option<RulesetHash>) -> Result<Arc<Ruleset>, EngineError> {
        if set_id != self.ruleset.set_id {
            return Err(EngineError::UnknownSet(set_id));
        }
        match hash {
            Some(requested) if requested != self.ruleset.hash => {
                Err(EngineError::UnknownRulesetHash { requested, current: self.ruleset.hash })
            }
            _ => Ok(self.ruleset.clone()),
        }
    }

    fn ruleset_of_search(
        &self,
        set_id: SetId,
        hash: Option<RulesetHash>,
        _: &[u8],
    ) -> Result<Arc<Ruleset>, EngineError> {
        self.current_or_cached_ruleset(set_id, hash)
    }

    fn subscribe_host_to_advertisement(
        &self,
        id: AdvertisementId,
        listener: &HostEventSender,
    ) -> (Vec<ReservationView>, Vec<HostedMatch>) {
        self.listeners.lock().unwrap().push((id, listener.clone()));
        (self.reservations_at_subscribe.lock().unwrap().clone(), Vec::new())
    }

    fn take_due_host_heartbeat(&self, _: AdvertisementId) -> bool {
        false
    }
}
