//! Answers of the server to a search loop: sessions in the order of round trips, and seats.

use fireteam_client::Code;
use fireteam_client::matching::{Answer, CallError, Request};
use fireteam_client::pb;
use fireteam_domain::limit::SEARCH_RESULTS_MAX;
use fireteam_domain::location_privacy::{ROUND_TRIP_ROUNDING_MS, round_to_step};
use fireteam_domain::ruleset::probing::{QUICK_PROBE_TIMEOUT_MS, RoundTripFigure};

use crate::latency_source::LatencySource;
use crate::search_map::Route;
use crate::search_world::SearchWorld;
use crate::search_world::searcher::ChosenSession;

/// Time of a reservation, milliseconds.
const RESERVATION_MS: u64 = 15_000;

/// Session as the server ranks it for a search.
struct RankedSession {
    session: usize,
    known_ms: f64,
    source: LatencySource,
}

impl SearchWorld<'_> {
    /// Answer to a call of a search.
    pub(super) fn answer(&mut self, search: usize, request: &Request) -> Result<Answer, CallError> {
        match request {
            Request::Search(search_request) => {
                let plan = (self.source == LatencySource::Measured).then(|| self.latency_plan());
                Ok(Answer::Search(Box::new(pb::MatchmakingSearchResponse {
                    candidates: self.candidates(search, |id| !search_request.exclude_advertisement_ids.contains(id)),
                    search_token: search_token(),
                    latency_plan: plan,
                    ..Default::default()
                })))
            }
            Request::ReportLatency(report) => Ok(self.take_report(search, report)),
            Request::Reserve(reserve) => self.reserve(search, &reserve.advertisement_id),
            Request::Release(release) => {
                if let Some(session) = self.reservations.remove(&release.reservation_id) {
                    self.sessions[session].change_free_seats(1);
                }
                Ok(Answer::Release)
            }
            // A party that cannot host does not make the other calls.
            _ => Err(call_error(Code::Unimplemented, pb::ErrorReason::Unspecified)),
        }
    }

    fn latency_plan(&self) -> pb::LatencyPlan {
        let probing = &self.ruleset.probing;
        pb::LatencyPlan {
            quick: probing.quick_probe_candidates.into(),
            involved: probing.involved_probe_candidates.into(),
            // All sessions run on game servers.
            probe_players: pb::ProbePlayers::Never.into(),
            quick_timeout_ms: QUICK_PROBE_TIMEOUT_MS,
        }
    }

    /// Sessions with an open seat, the least known round trip first.
    fn ranked(&self, search: usize) -> Vec<RankedSession> {
        let Some(searcher) = self.searchers.get(&search) else { return Vec::new() };
        let open = self.sessions.iter().enumerate().filter(|(_, session)| session.free_seats > 0);
        let ranked = open.filter_map(|(number, session)| {
            let (known_ms, source) = match searcher.measured_ms.get(&number) {
                Some(measured_ms) => ((*measured_ms)?, LatencySource::Measured),
                None => self.estimate(self.map.route(searcher.city, session.place)),
            };
            Some(RankedSession { session: number, known_ms, source })
        });
        let mut ranked: Vec<RankedSession> = ranked.collect();
        ranked.sort_by(|one, other| one.known_ms.total_cmp(&other.known_ms));
        ranked
    }

    /// Estimated round trip, milliseconds, and its source.
    fn estimate(&self, route: &Route) -> (f64, LatencySource) {
        match route.predicted_ms.filter(|_| self.source != LatencySource::Distance) {
            Some(predicted_ms) => (predicted_ms, LatencySource::Predicted),
            None => (route.by_distance_ms, LatencySource::Distance),
        }
    }

    fn candidates(&self, search: usize, is_shown: impl Fn(&String) -> bool) -> Vec<pb::Candidate> {
        let ranked = self.ranked(search).into_iter();
        let shown = ranked.filter(|ranked| is_shown(&self.sessions[ranked.session].id));
        let candidate = |RankedSession { session, known_ms, source }: RankedSession| {
            let told_ms = match source {
                LatencySource::Measured => known_ms,
                _ => round_to_step(known_ms, ROUND_TRIP_ROUNDING_MS),
            };
            let session = &self.sessions[session];
            pb::Candidate {
                advertisement_id: session.id.clone(),
                round_trip_ms: Some(told_ms as f32),
                open_seats: session.free_seats,
                probe: (self.source == LatencySource::Measured).then(|| session.probe.clone()),
                ..Default::default()
            }
        };
        shown.take(SEARCH_RESULTS_MAX as usize).map(candidate).collect()
    }

    /// Takes the measurements of a phase, and answers the new order.
    fn take_report(&mut self, search: usize, report: &pb::MatchmakingReportLatencyRequest) -> Answer {
        let (mut probed, mut answered) = (0, 0);
        for measurement in &report.measurements {
            let found = self.sessions.iter().position(|session| session.id == measurement.advertisement_id);
            let (Some(session), Some(searcher)) = (found, self.searchers.get_mut(&search)) else { continue };
            let measured_ms = match measurement.outcome() {
                pb::ProbeOutcome::NotProbed | pb::ProbeOutcome::Full => continue,
                pb::ProbeOutcome::Answered => figure_ms(measurement, self.ruleset.probing.figure),
                _ => None,
            };
            probed += 1;
            answered += u32::from(measured_ms.is_some());
            searcher.measured_ms.insert(session, measured_ms);
        }
        let enough =
            self.ruleset.answered_percent_for_involved_phase * f64::from(probed) <= f64::from(answered) * 100.0;
        Answer::ReportLatency(Box::new(pb::MatchmakingReportLatencyResponse {
            candidates: self.candidates(search, |id| {
                let is_it = |measurement: &&pb::LatencyMeasurement| measurement.advertisement_id == *id;
                let listed = report.measurements.iter().find(is_it);
                listed.is_some_and(|measurement| measurement.outcome() != pb::ProbeOutcome::Full)
            }),
            involved_phase_may_start: report.phase() == pb::LatencyPhase::Quick && enough && 0 < answered,
            search_token: search_token(),
            answered,
            probed,
            ..Default::default()
        }))
    }

    fn reserve(&mut self, search: usize, advertisement_id: &str) -> Result<Answer, CallError> {
        let ranked = self.ranked(search);
        let wanted = ranked.iter().find(|ranked| self.sessions[ranked.session].id == advertisement_id);
        let Some(wanted) = wanted else {
            return Err(call_error(Code::FailedPrecondition, pb::ErrorReason::SeatsTaken));
        };
        let (session, source) = (wanted.session, wanted.source);
        let Some(searcher) = self.searchers.get(&search) else {
            return Err(call_error(Code::NotFound, pb::ErrorReason::Unspecified));
        };
        if self.source == LatencySource::Measured && self.ruleset.probing.must_measure && source != self.source {
            return Err(call_error(Code::FailedPrecondition, pb::ErrorReason::NotMeasured));
        }
        let route = |session: usize| self.map.route(searcher.city, self.sessions[session].place);
        let open = || (0..self.sessions.len()).filter(|session| self.sessions[*session].free_seats > 0);
        let least_ms = open().map(|open| route(open).round_trip_ms).fold(f64::INFINITY, f64::min);
        let by_estimate =
            |one: &usize, other: &usize| self.estimate(route(*one)).0.total_cmp(&self.estimate(route(*other)).0);
        let first = open().min_by(by_estimate).unwrap_or(session);
        let chosen = ChosenSession {
            session,
            source,
            round_trip_ms: route(session).round_trip_ms,
            least_ms,
            first_ms: route(first).round_trip_ms,
        };
        if let Some(searcher) = self.searchers.get_mut(&search) {
            searcher.chosen = Some(chosen);
        }
        self.sessions[session].change_free_seats(-1);
        self.reservation_count += 1;
        let reservation_id = format!("{:032x}", self.reservation_count);
        self.reservations.insert(reservation_id.clone(), session);
        let reservation = pb::Reservation {
            reservation_token: reservation_id.clone().into_bytes(),
            reservation_id,
            seats: 1,
            expires_in_ms: RESERVATION_MS,
        };
        Ok(Answer::Reserve(Box::new(pb::MatchmakingReserveResponse {
            reservation: Some(reservation),
            ..Default::default()
        })))
    }
}

/// Round trip of a measurement by which the ruleset orders, milliseconds.
fn figure_ms(measurement: &pb::LatencyMeasurement, figure: RoundTripFigure) -> Option<f64> {
    let floor_ms = || measurement.statistics.as_ref().and_then(|statistics| statistics.floor_ms);
    let measured_ms = match figure {
        RoundTripFigure::Median => measurement.round_trip_ms,
        RoundTripFigure::Floor => floor_ms().or(measurement.round_trip_ms),
    };
    measured_ms.map(f64::from)
}

/// Token of a search. Measurements are kept beside it.
fn search_token() -> Vec<u8> {
    b"search".to_vec()
}

fn call_error(code: Code, reason: pb::ErrorReason) -> CallError {
    CallError { code, reason, retry_after_ms: None, message: String::new() }
}
