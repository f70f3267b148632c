//! Statistics of seats that searching parties reserve.

use crate::domain::locality::KM_PER_MILE;
use crate::domain::statistic::PartySizeClass;
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::adverts::writer_command::ReserveSeats;
use crate::engine::statistics::UnsettledReservation;
use crate::store::Reservation;

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
}
