//! Reservations as clients see them.

use crate::domain::time::UnixMs;
use crate::engine::command::ReservationAnswer;
use crate::store::{Reservation, ReservationState};

/// A reservation with the token that its reader may have.
pub(super) fn reservation(reservation: &Reservation, token: Vec<u8>, now: UnixMs) -> ReservationAnswer {
    let expires_in_ms = match reservation.state {
        ReservationState::Held => Some(u32::try_from(reservation.until.since(now)).unwrap_or(u32::MAX)),
        ReservationState::Confirmed | ReservationState::Ended => None,
    };
    ReservationAnswer { id: reservation.id, token, seats: reservation.seats, expires_in_ms }
}
