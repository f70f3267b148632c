//! Invented matchmaking server: sessions in an order, search tokens, reservations, and the advertisement of the client.

use std::collections::{BTreeMap, BTreeSet};

use tonic::Code;

use crate::matching::call::{Answer, CallError, Request};
use crate::pb;

/// Session that a search finds, in the order of the list.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) probe: Option<pb::ProbeEndpoint>,
    /// Only the report of the quick phase has the endpoint, as that of a player's machine.
    pub(super) is_told_later: bool,
    pub(super) estimate_ms: Option<f32>,
    /// Failure of each reservation.
    pub(super) refuses: Option<pb::ErrorReason>,
}

/// Server of the tests. Its answers follow from its fields; it keeps what was asked of it.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) sessions: Vec<Session>,
    pub(super) plan: Option<pb::LatencyPlan>,
    pub(super) advertises: bool,
    pub(super) next_expansion_in_ms: Option<u64>,
    /// Share of probed sessions that must answer for the involved phase, percent.
    pub(super) involved_phase_percent: u32,
    /// Reservations of others in the client's advertisement, with 0 for confirmed ones.
    pub(super) guests: BTreeMap<String, u64>,
    pub(super) current_hash: u32,
    pub(super) tokens: u64,
    pub(super) names: u64,
    /// Measured round trip of each session; `None` if it is out.
    pub(super) measured: BTreeMap<String, Option<f32>>,
    pub(super) by_idempotency_key: BTreeMap<String, pb::MatchmakingReserveResponse>,
    pub(super) adverts_by_key: BTreeMap<String, String>,
    /// Seats that the client holds, by reservation id.
    pub(super) held: BTreeMap<String, String>,
    /// Advertisements of the client that live.
    pub(super) adverts: BTreeSet<String>,
}

pub(super) fn failure(code: Code, reason: pb::ErrorReason) -> CallError {
    CallError { code, reason, retry_after_ms: None, message: String::new() }
}

impl Server {
    pub(super) fn answer(&mut self, request: &Request) -> Result<Answer, CallError> {
        match request {
            Request::ChooseAction(_) => {
                let action =
                    if self.advertises { pb::MatchmakingAction::Advertise } else { pb::MatchmakingAction::Search };
                Ok(Answer::ChooseAction(pb::MatchmakingChooseActionResponse {
                    action: action.into(),
                    ..Default::default()
                }))
            }
            Request::GetConfiguration(_) => Ok(Answer::GetConfiguration(pb::MatchmakingGetConfigurationResponse {
                service_configuration_hash: self.current_hash,
                ..Default::default()
            })),
            Request::Search(search) => self.search(search),
            Request::ReportLatency(report) => Ok(self.report(report)),
            Request::Reserve(reserve) => self.reserve(reserve),
            Request::Release(release) => {
                self.held.remove(&release.reservation_id);
                self.held.retain(|_, session| *session != release.advertisement_id);
                Ok(Answer::Release)
            }
            Request::UpdateAdvertisement(update) => self.update(update),
            Request::DeleteAdvertisement(delete) => {
                self.adverts.remove(&delete.advertisement_id);
                self.guests.clear();
                Ok(Answer::DeleteAdvertisement)
            }
        }
    }

    fn token(&mut self) -> Vec<u8> {
        self.tokens += 1;
        format!("token {}", self.tokens).into_bytes()
    }

    fn name(&mut self, kind: u128) -> String {
        self.names += 1;
        format!("{:032x}", (kind << 64) + u128::from(self.names))
    }

    fn candidate(&self, session: &Session) -> pb::Candidate {
        let measured = self.measured.get(&session.id).copied().flatten();
        pb::Candidate {
            advertisement_id: session.id.clone(),
            probe: session.probe.clone().filter(|_| !session.is_told_later),
            round_trip_ms: measured.or(session.estimate_ms),
            ..Default::default()
        }
    }

    fn search(&mut self, search: &pb::MatchmakingSearchRequest) -> Result<Answer, CallError> {
        if search.service_configuration_hash.is_some_and(|hash| hash != self.current_hash) {
            return Err(failure(Code::FailedPrecondition, pb::ErrorReason::StaleConfiguration));
        }
        if search.search_token.is_empty() {
            self.measured.clear();
        }
        let excluded = &search.exclude_advertisement_ids;
        let is_shown =
            |session: &&Session| !excluded.contains(&session.id) && self.measured.get(&session.id) != Some(&None);
        let candidates = self.sessions.iter().filter(is_shown).map(|session| self.candidate(session)).collect();
        Ok(Answer::Search(Box::new(pb::MatchmakingSearchResponse {
            candidates,
            search_token: self.token(),
            next_expansion_in_ms: self.next_expansion_in_ms,
            latency_plan: self.plan,
            ..Default::default()
        })))
    }

    fn report(&mut self, report: &pb::MatchmakingReportLatencyRequest) -> Answer {
        let mut order = Vec::new();
        for measurement in &report.measurements {
            let id = &measurement.advertisement_id;
            let Some(session) = self.sessions.iter().find(|session| session.id == *id).cloned() else { continue };
            let round_trip_ms = measurement.round_trip_ms;
            match measurement.outcome() {
                pb::ProbeOutcome::NotProbed => {}
                pb::ProbeOutcome::Answered => {
                    self.measured.insert(id.clone(), round_trip_ms);
                }
                pb::ProbeOutcome::Full => continue,
                _ => {
                    self.measured.insert(id.clone(), None);
                    continue;
                }
            }
            order.push(session);
        }
        let mut candidates: Vec<_> = order.iter().map(|session| self.candidate(session)).collect();
        let millis = |candidate: &pb::Candidate| candidate.round_trip_ms.unwrap_or(f32::INFINITY);
        candidates.sort_by(|left, right| millis(left).total_cmp(&millis(right)));
        let probed = self.measured.len() as u32;
        let answered = self.measured.values().flatten().count() as u32;
        let is_quick = report.phase() == pb::LatencyPhase::Quick;
        let told = order.iter().filter(|session| is_quick && session.is_told_later);
        let probes = told
            .map(|session| pb::CandidateProbe { advertisement_id: session.id.clone(), probe: session.probe.clone() });
        Answer::ReportLatency(Box::new(pb::MatchmakingReportLatencyResponse {
            candidates,
            involved_phase_may_start: is_quick && probed * self.involved_phase_percent <= answered * 100,
            search_token: self.token(),
            answered,
            probed,
            probes: probes.collect(),
            ..Default::default()
        }))
    }

    fn reserve(&mut self, reserve: &pb::MatchmakingReserveRequest) -> Result<Answer, CallError> {
        if let Some(known) = self.by_idempotency_key.get(&reserve.idempotency_key) {
            return Ok(Answer::Reserve(Box::new(known.clone())));
        }
        let Some(session) = self.sessions.iter().find(|session| session.id == reserve.advertisement_id) else {
            return Err(failure(Code::NotFound, pb::ErrorReason::AdvertisementNotFound));
        };
        match session.refuses {
            Some(pb::ErrorReason::NotMeasured) if self.measured.contains_key(&session.id) => {}
            Some(reason) => return Err(failure(Code::FailedPrecondition, reason)),
            None => {}
        }
        let session_id = session.id.clone();
        let reservation_id = self.name(2);
        self.held.insert(reservation_id.clone(), session_id.clone());
        let response = pb::MatchmakingReserveResponse {
            reservation: Some(pb::Reservation {
                reservation_token: format!("token of {reservation_id}").into_bytes(),
                reservation_id,
                seats: 1,
                expires_in_ms: 15_000,
            }),
            connect_data: session_id.into_bytes(),
        };
        self.by_idempotency_key.insert(reserve.idempotency_key.clone(), response.clone());
        Ok(Answer::Reserve(Box::new(response)))
    }

    fn update(&mut self, update: &pb::MatchmakingUpdateAdvertisementRequest) -> Result<Answer, CallError> {
        if update.service_configuration_hash.is_some_and(|hash| hash != self.current_hash) {
            return Err(failure(Code::FailedPrecondition, pb::ErrorReason::StaleConfiguration));
        }
        let mut id = update.advertisement_id.clone();
        if id.is_empty() {
            let known = self.adverts_by_key.get(&update.idempotency_key).cloned();
            id = known.unwrap_or_else(|| self.name(3));
            self.adverts_by_key.insert(update.idempotency_key.clone(), id.clone());
            self.adverts.insert(id.clone());
        } else if !self.adverts.contains(&id) && update.session_composition.is_none() {
            return Err(failure(Code::NotFound, pb::ErrorReason::AdvertisementNotFound));
        } else {
            self.adverts.insert(id.clone());
        }
        for guest in &update.confirmed_reservation_ids {
            match self.guests.get_mut(guest) {
                Some(expires_in_ms) => *expires_in_ms = 0,
                None => return Err(failure(Code::NotFound, pb::ErrorReason::ReservationNotFound)),
            }
        }
        self.guests.retain(|guest, _| !update.joined_reservation_ids.contains(guest));
        let reservation = |(id, expires_in_ms): (&String, &u64)| pb::Reservation {
            reservation_id: id.clone(),
            seats: 1,
            expires_in_ms: *expires_in_ms,
            ..Default::default()
        };
        Ok(Answer::UpdateAdvertisement(Box::new(pb::MatchmakingUpdateAdvertisementResponse {
            advertisement_token: format!("token of {id}").into_bytes(),
            advertisement_id: id,
            created: update.advertisement_id.is_empty(),
            expires_in_ms: 30_000,
            reservations: self.guests.iter().map(reservation).collect(),
            next_beat_in_ms: Some(2_000),
            ..Default::default()
        })))
    }
}
