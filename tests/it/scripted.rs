//! A matchmaker that does as it is told: it answers, waits, fails or panics, and remembers what it was asked.

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use fireteam::api::matchmaking_engine::MatchmakingEngine;
use fireteam::api::response_encoder::encode_static_candidate_fields;
use fireteam::domain::advertisement::{Advertisement, AdvertisementKind};
use fireteam::domain::attribute::{Attribute, AttributeSource, PartyAggregation, Trust, ValueType};
use fireteam::domain::filter::{Refusal, RefusingSide};
use fireteam::domain::id::{AdvertisementId, ReservationId, RulesetHash, SetId, UserKey};
use fireteam::domain::latency::DEFAULT_LATENCY_MODEL;
use fireteam::domain::matchmaking_action::{AdvertiseChances, MatchmakingAction};
use fireteam::domain::measure::Measure;
use fireteam::domain::ruleset::teams::{HostingMode, HostingSpec};
use fireteam::domain::ruleset::{
    DistanceCurve, PartyConsentPolicy, Ruleset, SearchLimits, ServedSilos, SoftFilter, SoftFilterMode,
    SoftMissingPolicy,
};
use fireteam::domain::session::Session;
use fireteam::domain::time::UnixMs;
use fireteam::engine::command::{
    Caller, CandidateView, ChooseActionAnswer, DeleteAdvertCommand, GrantConsentAnswer, ReleaseReservationCommand,
    ReportLatencyAnswer, ReportLatencyCommand, ReservationChange, ReservationEvent, ReservationView, ReserveAnswer,
    ReserveCommand, RoundTrip, SearchAnswer, SearchCommand, UpdateAdvertAnswer, UpdateAdvertCommand,
};
use fireteam::engine::error::EngineError;
use fireteam::engine::{PendingAnswer, ReservationListener};

/// The one set that is ruled.
pub(crate) const SET: u32 = 42;
/// Its ruleset's hash.
pub(crate) const HASH: u32 = 0xC0FFEE;
/// An update with this time to live waits until the test answers it.
pub(crate) const WAITS_MS: u32 = 777;
/// A search of this silo makes the matchmaker panic.
pub(crate) const PANICS_SILO: u64 = 666;

/// Where an update's answer goes.
type UpdateSender = oneshot::Sender<Result<UpdateAdvertAnswer, EngineError>>;

/// The matchmaker.
#[derive(Debug)]
pub(crate) struct Scripted {
    ruleset: Arc<Ruleset>,
    /// What was asked, with all that it said, in order.
    pub(crate) asked: Mutex<Vec<String>>,
    /// Who was calling.
    pub(crate) callers: Mutex<Vec<Caller>>,
    /// Updates that wait for the test, by nonce.
    pub(crate) waiting: Mutex<Vec<(u64, UpdateSender)>>,
    /// Seats that were taken after an update was answered and before anybody listened.
    pub(crate) taken_meanwhile: Mutex<Vec<ReservationView>>,
    /// Who listens to what.
    pub(crate) listeners: Mutex<Vec<(AdvertisementId, ReservationListener)>>,
}

impl Scripted {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            ruleset: Arc::new(ruleset()),
            asked: Mutex::default(),
            callers: Mutex::default(),
            waiting: Mutex::default(),
            taken_meanwhile: Mutex::default(),
            listeners: Mutex::default(),
        })
    }

    fn note(&self, caller: &Caller, asked: impl std::fmt::Debug) {
        self.callers.lock().unwrap().push(*caller);
        self.asked.lock().unwrap().push(format!("{asked:?}"));
    }
}

/// An id whose digits are all `digit`.
pub(crate) fn id(byte: u8) -> AdvertisementId {
    AdvertisementId::from_bytes([byte; 16])
}

/// A ruleset with one term that clients state themselves and one that gives a place away.
pub(crate) fn ruleset() -> Ruleset {
    let skill = Attribute {
        name: "skill".into(),
        value_type: ValueType::Number,
        source: AttributeSource::Skill,
        normalization_range: Some((-1000.0, 1000.0)),
        unit: "points".into(),
        party_aggregation: PartyAggregation::Mean,
        trust: Trust::Client,
    };
    let soft = |name: &str, measure| SoftFilter {
        name: name.into(),
        weight: 0.5,
        measure,
        mode: SoftFilterMode::LowerIsBetter,
        curve: DistanceCurve::Linear,
        missing: SoftMissingPolicy::Worst,
        min: 0.0,
        max: 300.0,
    };
    Ruleset {
        name: "scripted".into(),
        set_id: SetId(SET),
        hash: RulesetHash(HASH),
        silos: ServedSilos::Any,
        attributes: Box::new([skill]),
        hard_filters: Box::new([]),
        soft_filters: Box::new([soft("skill", Measure::AttributeDifference(0)), soft("latency", Measure::Latency)]),
        expansions: Box::new([]),
        advertise_chances: AdvertiseChances::from_game_size(12),
        search_limits: SearchLimits { max_results: 50, max_evaluated: 10_000 },
        latency_model: DEFAULT_LATENCY_MODEL,
        involved_phase_percent: 50.0,
        consent: PartyConsentPolicy::Assumed,
        teams: None,
        queue: None,
        ready_check: None,
        server: HostingSpec { mode: HostingMode::None, wait_ms: 0, play_max_ms: 0 },
        rating: None,
        source_xml: "<Ruleset/>\n".into(),
    }
}

/// What the scripted matchmaker publishes.
pub(crate) fn advertisement(byte: u8) -> Advertisement {
    Advertisement {
        id: id(byte),
        set_id: SetId(SET),
        kind: AdvertisementKind::Session,
        publisher: None,
        advertised_since: UnixMs(0),
        ruleset_hash: RulesetHash(HASH),
        session: Session { party_sizes: vec![2, 1], ..Session::default() },
        allowed_ranges: Vec::new(),
        connect_data: vec![byte; 3],
    }
}

/// What an update of `id` is answered.
pub(crate) fn updated(id: AdvertisementId, created: bool) -> UpdateAdvertAnswer {
    UpdateAdvertAnswer {
        id,
        advertisement_token: vec![7],
        created,
        expires_in_ms: 30_000,
        ruleset_hash: RulesetHash(HASH),
        next_expansion_in_ms: Some(9_000),
        reservations: Vec::new(),
        not_yet_durable: false,
        ignored_fields: vec!["players[0].skill".into()],
    }
}

/// News of seats in the advertisement `id`.
pub(crate) fn event(id: AdvertisementId) -> ReservationEvent {
    let reservation = ReservationView {
        id: ReservationId::from_bytes([3; 16]),
        reservation_token: vec![],
        seats: 2,
        expires_in_ms: Some(5),
    };
    ReservationEvent { advertisement_id: id, reservation, change: ReservationChange::Held }
}

impl MatchmakingEngine for Scripted {
    fn search(
        &self,
        caller: &Caller,
        search: SearchCommand,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<SearchAnswer, EngineError> {
        assert!(search.session.silo.0 != PANICS_SILO, "as the script says");
        self.note(caller, &search);
        for (byte, score) in [(1, 0.123_456), (2, 0.5)] {
            let encoded = encode_static_candidate_fields(&advertisement(byte));
            each(CandidateView {
                id: id(byte),
                encoded_advert: &encoded,
                score,
                score_terms: &[0.023_456_7, score - 0.023_456_7],
                distance_miles: Some(250.0),
                round_trip: None,
                open_seats: 3,
            });
        }
        let own = (Refusal::OwnSession, 1);
        let allowed = (Refusal::HardFilter { filter_index: 0, side: RefusingSide::Advertiser }, 2);
        Ok(SearchAnswer {
            ruleset: self.ruleset.clone(),
            evaluated_rows: 5,
            truncated: false,
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
        update: UpdateAdvertCommand,
    ) -> Result<PendingAnswer<UpdateAdvertAnswer>, EngineError> {
        self.note(caller, &update);
        let created = update.existing_advert.is_none();
        let id = update.existing_advert.as_ref().map_or(id(0xAA), |(id, _)| *id);
        match (&update.existing_advert, update.envelope_nonce, update.ttl_ms) {
            (Some((_, token)), ..) if token.is_empty() => Err(EngineError::NotOwner),
            (_, Some(nonce), Some(WAITS_MS)) => {
                let (sender, receiver) = oneshot::channel();
                self.waiting.lock().unwrap().push((nonce, sender));
                Ok(PendingAnswer::Pending(receiver))
            }
            _ => Ok(PendingAnswer::Ready(updated(id, created))),
        }
    }

    fn delete(&self, caller: &Caller, delete: DeleteAdvertCommand) -> Result<PendingAnswer<()>, EngineError> {
        self.note(caller, &delete);
        if delete.advertisement_token.is_empty() { Err(EngineError::NotOwner) } else { Ok(PendingAnswer::Ready(())) }
    }

    fn reserve(&self, caller: &Caller, reserve: ReserveCommand) -> Result<PendingAnswer<ReserveAnswer>, EngineError> {
        self.note(caller, &reserve);
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

    fn release(&self, caller: &Caller, release: ReleaseReservationCommand) -> Result<PendingAnswer<()>, EngineError> {
        self.note(caller, &release);
        Ok(PendingAnswer::Ready(()))
    }

    fn report_latency(
        &self,
        caller: &Caller,
        report: ReportLatencyCommand,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<ReportLatencyAnswer, EngineError> {
        self.note(caller, &report);
        for &(id, round_trip_ms) in &report.measurements {
            let encoded = encode_static_candidate_fields(&Advertisement { id, ..advertisement(1) });
            let round_trip = round_trip_ms.map(|it| RoundTrip::Measured(f64::from(it)));
            each(CandidateView {
                id,
                encoded_advert: &encoded,
                score: 0.0,
                score_terms: &[0.0, 0.0],
                distance_miles: None,
                round_trip,
                open_seats: 0,
            });
        }
        Ok(ReportLatencyAnswer {
            ruleset: self.ruleset.clone(),
            involved_phase_may_start: true,
            ignored_fields: Vec::new(),
            implausible_measurements: Vec::new(),
        })
    }

    fn choose_action(&self, set_id: SetId, _: u16) -> Result<ChooseActionAnswer, EngineError> {
        self.ruleset(set_id, None)?;
        Ok(ChooseActionAnswer { action: MatchmakingAction::Advertise, advertise_percent: 50.0 })
    }

    fn grant_consent(&self, caller: &Caller, leader: UserKey) -> Result<GrantConsentAnswer, EngineError> {
        self.note(caller, leader);
        Ok(GrantConsentAnswer { consent_token: vec![7], expires_in_ms: 300_000 })
    }

    fn ruleset(&self, set_id: SetId, hash: Option<RulesetHash>) -> Result<Arc<Ruleset>, EngineError> {
        if set_id != self.ruleset.set_id {
            return Err(EngineError::UnknownSet(set_id));
        }
        match hash {
            Some(given) if given != self.ruleset.hash => {
                Err(EngineError::UnknownRulesetHash { requested: given, current: self.ruleset.hash })
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
        self.ruleset(set_id, hash)
    }

    fn subscribe(&self, id: AdvertisementId, listener: &ReservationListener) -> Vec<ReservationView> {
        self.listeners.lock().unwrap().push((id, listener.clone()));
        self.taken_meanwhile.lock().unwrap().clone()
    }
}
