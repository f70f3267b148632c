//! Statistics of seats that searching parties reserve.

use crate::domain::locality::KM_PER_MILE;
use crate::domain::statistic::PartySizeClass;
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::AdvertRecord;
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::adverts::writer_command::ReserveSeats;
use crate::engine::error::EngineError;
use crate::engine::statistics::UnsettledReservation;
use crate::store::{Reservation, ReservationState};
use crate::telemetry::label::SeatOutcomeLabel;

impl AdvertState {
    /// Keeps a new reservation of a searching party for the statistics; it counts when it is settled.
    pub(super) fn keep_unsettled_reservation_of_search(
        &self,
        reserve: &ReserveSeats,
        reservation: &Reservation,
        now: UnixMs,
    ) {
        let Some(measures) = reserve.measures else { return };
        let seat = UnsettledReservation {
            set_id: reserve.set_id,
            region: reserve.ruleset.nearest_region_if_in_statistics(&reserve.session).map(Into::into),
            party_size: PartySizeClass::from_player_count(reserve.session.player_count().into()),
            waited_ms: now.ms_since(reserve.searching_since),
            score: measures.score,
            distance_km: measures.distance_miles.map(|miles| miles * KM_PER_MILE),
            round_trip_ms: measures.round_trip_ms,
            at: now,
            deadline: reservation.expires_or_purge_at,
        };
        self.common.statistics.add_unsettled_reservation(reservation.id, seat);
    }
    /// Counts a refused attempt of a searching party to take seats.
    pub(super) fn record_refused_seats(&self, reserve: &ReserveSeats, error: &EngineError, now: UnixMs) {
        let Some(outcome) = outcome_of_refusal(error).filter(|_| reserve.is_of_search) else { return };
        let waited_s = now.ms_since(reserve.searching_since) as f64 / 1_000.0;
        self.common.metrics.record_seat_attempt(reserve.set_id, outcome, waited_s);
    }

    /// Counts the reservations that a removed advertisement had and that were not settled.
    pub(super) fn record_end_of_sessions_reservations(&self, removed: &AdvertRecord, now: UnixMs) {
        for reservation in removed.unended_reservations() {
            self.record_ended_reservation(reservation, SeatOutcomeLabel::SessionEnded, now);
        }
    }

    /// Counts the reservations that another server has settled or ended.
    pub(super) fn record_reservations_of_feed(&self, reservations: &[Reservation], now: UnixMs) {
        let (statistics, metrics) = (&self.common.statistics, &self.common.metrics);
        for reservation in reservations {
            if reservation.is_confirmed_or_joined() {
                statistics.record_settled_reservation(reservation.id, now, metrics);
            } else if reservation.state == ReservationState::Ended {
                statistics.record_reservation_ended_elsewhere(reservation.id, now, metrics);
            }
        }
    }

    /// Counts the end of a reservation, if it was not settled.
    pub(super) fn record_ended_reservation(&self, ended: &Reservation, outcome: SeatOutcomeLabel, now: UnixMs) {
        self.common.statistics.record_ended_reservation(ended.id, outcome, now, &self.common.metrics);
    }
}

/// Outcome of an attempt that failed with `error`; `None` if the request or the store was at fault.
fn outcome_of_refusal(error: &EngineError) -> Option<SeatOutcomeLabel> {
    match error {
        EngineError::SeatsTaken { .. } | EngineError::AdvertisementReservationsFull => Some(SeatOutcomeLabel::Full),
        EngineError::RefusedByRule { .. } => Some(SeatOutcomeLabel::RefusedByRule),
        EngineError::HostNotMeasured | EngineError::HostDidNotAnswerProbes => Some(SeatOutcomeLabel::NotMeasured),
        EngineError::AdvertisementNotFound => Some(SeatOutcomeLabel::SessionEnded),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::filter::RefusingSide;

    #[test]
    fn seat_outcome_of_a_refusal_is_its_reason_and_none_for_faults_of_requests() {
        let by_rule = EngineError::RefusedByRule { rule: "own".into(), side: RefusingSide::Searcher };
        let cases = [
            (EngineError::SeatsTaken { open_seats: 1 }, Some(SeatOutcomeLabel::Full)),
            (EngineError::AdvertisementReservationsFull, Some(SeatOutcomeLabel::Full)),
            (by_rule, Some(SeatOutcomeLabel::RefusedByRule)),
            (EngineError::HostNotMeasured, Some(SeatOutcomeLabel::NotMeasured)),
            (EngineError::HostDidNotAnswerProbes, Some(SeatOutcomeLabel::NotMeasured)),
            (EngineError::AdvertisementNotFound, Some(SeatOutcomeLabel::SessionEnded)),
            (EngineError::IdempotencyKeyReused, None),
            (EngineError::StoreUnavailable { retry_after_ms: 1 }, None),
        ];
        for (error, outcome) in cases {
            assert_eq!(outcome_of_refusal(&error), outcome, "{error:?}");
        }
    }
}
