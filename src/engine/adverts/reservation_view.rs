//! Reservations as clients see them.

use crate::domain::time::UnixMs;
use crate::engine::command::ReservationView;
use crate::store::{Reservation, ReservationState};

/// Client view of `reservation`. `token` is empty unless the reader made the reservation.
pub(crate) fn client_view_of_reservation(reservation: &Reservation, token: Vec<u8>, now: UnixMs) -> ReservationView {
    let expires_in_ms = match reservation.state {
        ReservationState::Held => {
            Some(u32::try_from(reservation.expires_or_purge_at.ms_since(now)).unwrap_or(u32::MAX))
        }
        ReservationState::Confirmed | ReservationState::Ended => None,
    };
    ReservationView { id: reservation.id, reservation_token: token, seats: reservation.seats, expires_in_ms }
}
