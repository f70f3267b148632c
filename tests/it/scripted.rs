//! A matchmaker that does as it is told: it answers, waits, fails or panics, and remembers what it was asked.

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use fireteam::api::answer::encode_static;
use fireteam::api::matchmaker::Matchmaker;
use fireteam::domain::advertisement::{Advertisement, Kind};
use fireteam::domain::attribute::{Attribute, Reduction, Source, Trust, ValueKind};
use fireteam::domain::filter::{Refusal, Side};
use fireteam::domain::id::{AdvertisementId, ReservationId, RulesetHash, SetId, UserKey};
use fireteam::domain::latency::DEFAULT_LINE;
use fireteam::domain::measure::Measure;
use fireteam::domain::role::{AdvertiseChances, Role};
use fireteam::domain::ruleset::teams::{ServerMode, ServerSpec};
use fireteam::domain::ruleset::{Consent, Curve, MissingSoft, Ruleset, SearchLimits, SiloRule, SoftFilter, SoftMode};
use fireteam::domain::session::Session;
use fireteam::domain::time::UnixMs;
use fireteam::engine::command::{
    Caller, CandidateView, ConsentAnswer, Delete, Release, ReportLatency, ReportLatencyAnswer, ReservationAnswer,
    ReservationChange, ReservationEvent, Reserve, ReserveAnswer, RoleAnswer, RoundTrip, Search, SearchAnswer, Update,
    UpdateAnswer,
};
use fireteam::engine::fault::Fault;
use fireteam::engine::{Listener, Submitted};

/// The one set that is ruled.
pub(crate) const SET: u32 = 42;
/// Its ruleset's hash.
pub(crate) const HASH: u32 = 0xC0FFEE;
/// An update with this time to live waits until the test answers it.
pub(crate) const WAITS_MS: u32 = 777;
/// A search of this silo makes the matchmaker panic.
pub(crate) const PANICS_SILO: u64 = 666;

/// Where an update's answer goes.
type UpdateSender = oneshot::Sender<Result<UpdateAnswer, Fault>>;

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
    pub(crate) taken_meanwhile: Mutex<Vec<ReservationAnswer>>,
    /// Who listens to what.
    pub(crate) listeners: Mutex<Vec<(AdvertisementId, Listener)>>,
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
        kind: ValueKind::Number,
        source: Source::Skill,
        range: Some((-1000.0, 1000.0)),
        unit: "points".into(),
        reduction: Reduction::Mean,
        trust: Trust::Client,
    };
    let soft = |name: &str, measure| SoftFilter {
        name: name.into(),
        weight: 0.5,
        measure,
        mode: SoftMode::LowerIsBetter,
        curve: Curve::Linear,
        missing: MissingSoft::Worst,
        min: 0.0,
        max: 300.0,
    };
    Ruleset {
        name: "scripted".into(),
        set_id: SetId(SET),
        hash: RulesetHash(HASH),
        silos: SiloRule::Any,
        attributes: Box::new([skill]),
        hard: Box::new([]),
        soft: Box::new([soft("skill", Measure::Attribute(0)), soft("latency", Measure::Latency)]),
        expansions: Box::new([]),
        chances: AdvertiseChances::rule_of_thumb(12),
        limits: SearchLimits { max_results: 50, max_evaluated: 10_000 },
        line: DEFAULT_LINE,
        involved_phase_percent: 50.0,
        consent: Consent::Assumed,
        teams: None,
        queue: None,
        ready_check: None,
        server: ServerSpec { mode: ServerMode::None, wait_ms: 0, play_max_ms: 0 },
        rating: None,
        xml: "<Ruleset/>\n".into(),
    }
}

/// What the scripted matchmaker publishes.
pub(crate) fn advertisement(byte: u8) -> Advertisement {
    Advertisement {
        id: id(byte),
        set_id: SetId(SET),
        kind: Kind::Session,
        subject: None,
        since: UnixMs(0),
        hash: RulesetHash(HASH),
        session: Session { party_sizes: vec![2, 1], ..Session::default() },
        allowed: Vec::new(),
        connect_data: vec![byte; 3],
    }
}

/// What an update of `id` is answered.
pub(crate) fn updated(id: AdvertisementId, created: bool) -> UpdateAnswer {
    UpdateAnswer {
        id,
        token: vec![7],
        created,
        expires_in_ms: 30_000,
        hash: RulesetHash(HASH),
        next_expansion_in_ms: Some(9_000),
        reservations: Vec::new(),
        pending: false,
        ignored: vec!["players[0].skill".into()],
    }
}

/// News of seats in the advertisement `id`.
pub(crate) fn event(id: AdvertisementId) -> ReservationEvent {
    let reservation =
        ReservationAnswer { id: ReservationId::from_bytes([3; 16]), token: vec![], seats: 2, expires_in_ms: Some(5) };
    ReservationEvent { advertisement_id: id, reservation, change: ReservationChange::Held }
}

impl Matchmaker for Scripted {
    fn search(
        &self,
        caller: &Caller,
        search: Search,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<SearchAnswer, Fault> {
        assert!(search.session.silo.0 != PANICS_SILO, "as the script says");
        self.note(caller, &search);
        for (byte, score) in [(1, 0.123_456), (2, 0.5)] {
            let encoded = encode_static(&advertisement(byte));
            each(CandidateView {
                id: id(byte),
                encoded: &encoded,
                score,
                terms: &[0.023_456_7, score - 0.023_456_7],
                distance_miles: Some(250.0),
                round_trip: None,
                open_seats: 3,
            });
        }
        let own = (Refusal::Own, 1);
        let allowed = (Refusal::Filter { filter: 0, side: Side::Advertiser }, 2);
        Ok(SearchAnswer {
            ruleset: self.ruleset.clone(),
            evaluated: 5,
            truncated: false,
            refusals: vec![own, allowed],
            token: vec![9, 9],
            searching_for_ms: 1_500,
            next_expansion_in_ms: Some(8_500),
            stale_for_ms: None,
            ignored: vec!["players[0].skill".into()],
        })
    }

    fn update(&self, caller: &Caller, update: Update) -> Result<Submitted<UpdateAnswer>, Fault> {
        self.note(caller, &update);
        let created = update.target.is_none();
        let id = update.target.as_ref().map_or(id(0xAA), |(id, _)| *id);
        match (&update.target, update.nonce, update.time_to_live_ms) {
            (Some((_, token)), ..) if token.is_empty() => Err(Fault::NotYours),
            (_, Some(nonce), Some(WAITS_MS)) => {
                let (sender, receiver) = oneshot::channel();
                self.waiting.lock().unwrap().push((nonce, sender));
                Ok(Submitted::Waiting(receiver))
            }
            _ => Ok(Submitted::Done(updated(id, created))),
        }
    }

    fn delete(&self, caller: &Caller, delete: Delete) -> Result<Submitted<()>, Fault> {
        self.note(caller, &delete);
        if delete.token.is_empty() { Err(Fault::NotYours) } else { Ok(Submitted::Done(())) }
    }

    fn reserve(&self, caller: &Caller, reserve: Reserve) -> Result<Submitted<ReserveAnswer>, Fault> {
        self.note(caller, &reserve);
        let seats = reserve.session.player_count();
        if 3 < seats {
            return Err(Fault::SeatsTaken { open_seats: 3 });
        }
        let reservation =
            ReservationAnswer { id: ReservationId::from_bytes([3; 16]), token: vec![5], seats, expires_in_ms: None };
        Ok(Submitted::Done(ReserveAnswer { reservation, connect_data: vec![1, 2, 3] }))
    }

    fn release(&self, caller: &Caller, release: Release) -> Result<Submitted<()>, Fault> {
        self.note(caller, &release);
        Ok(Submitted::Done(()))
    }

    fn report_latency(
        &self,
        caller: &Caller,
        report: ReportLatency,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<ReportLatencyAnswer, Fault> {
        self.note(caller, &report);
        for &(id, round_trip_ms) in &report.measurements {
            let encoded = encode_static(&Advertisement { id, ..advertisement(1) });
            let round_trip = round_trip_ms.map(|it| RoundTrip::Measured(f64::from(it)));
            each(CandidateView {
                id,
                encoded: &encoded,
                score: 0.0,
                terms: &[0.0, 0.0],
                distance_miles: None,
                round_trip,
                open_seats: 0,
            });
        }
        Ok(ReportLatencyAnswer {
            ruleset: self.ruleset.clone(),
            involved_phase_may_start: true,
            ignored: Vec::new(),
            doubted: Vec::new(),
        })
    }

    fn choose_role(&self, set_id: SetId, _: u16) -> Result<RoleAnswer, Fault> {
        self.ruleset(set_id, None)?;
        Ok(RoleAnswer { role: Role::Advertise, advertise_percent: 50.0 })
    }

    fn grant_consent(&self, caller: &Caller, leader: UserKey) -> Result<ConsentAnswer, Fault> {
        self.note(caller, leader);
        Ok(ConsentAnswer { token: vec![7], expires_in_ms: 300_000 })
    }

    fn ruleset(&self, set_id: SetId, hash: Option<RulesetHash>) -> Result<Arc<Ruleset>, Fault> {
        if set_id != self.ruleset.set_id {
            return Err(Fault::UnknownSet(set_id));
        }
        match hash {
            Some(given) if given != self.ruleset.hash => Err(Fault::UnknownHash { given, current: self.ruleset.hash }),
            _ => Ok(self.ruleset.clone()),
        }
    }

    fn searched_by(&self, set_id: SetId, hash: Option<RulesetHash>, _: &[u8]) -> Result<Arc<Ruleset>, Fault> {
        self.ruleset(set_id, hash)
    }

    fn subscribe(&self, id: AdvertisementId, listener: &Listener) -> Vec<ReservationAnswer> {
        self.listeners.lock().unwrap().push((id, listener.clone()));
        self.taken_meanwhile.lock().unwrap().clone()
    }
}
