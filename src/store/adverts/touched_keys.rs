//! Keys of the advertisement rows that a batch can touch: a backend reads these rows before it applies the batch.

use std::collections::BTreeSet;

use crate::domain::id::{AdvertisementId, ReservationId};
use crate::store::adverts::AdvertWrite;

/// Ids in a batch, each once.
#[derive(Default)]
pub(in crate::store) struct TouchedAdvertKeys {
    pub(in crate::store) advertisements: BTreeSet<AdvertisementId>,
    /// Advertisements whose open seats are counted.
    pub(in crate::store) seat_counted_advertisements: BTreeSet<AdvertisementId>,
    pub(in crate::store) reservations: BTreeSet<ReservationId>,
    /// Advertisements to lock where servers share the store: `advertisements`, and those of the named reservations.
    pub(in crate::store) locked_advertisements: BTreeSet<AdvertisementId>,
}

impl TouchedAdvertKeys {
    pub(in crate::store) fn of_batch(batch: &[AdvertWrite]) -> Self {
        let mut keys = Self::default();
        for write in batch {
            match write {
                AdvertWrite::Publish { advertisement, confirmed_reservations, joined_reservations, .. } => {
                    keys.advertisements.insert(advertisement.id);
                    keys.reservations.extend(confirmed_reservations.iter().chain(joined_reservations));
                }
                AdvertWrite::ExtendTtl { advertisement_id, confirmed_reservations, joined_reservations, .. } => {
                    keys.advertisements.insert(*advertisement_id);
                    keys.reservations.extend(confirmed_reservations.iter().chain(joined_reservations));
                }
                AdvertWrite::Delete { advertisement_id, .. } | AdvertWrite::Expire { advertisement_id, .. } => {
                    keys.advertisements.insert(*advertisement_id);
                }
                AdvertWrite::ReserveSeats { reservation, .. } => {
                    keys.advertisements.insert(reservation.advertisement_id);
                    keys.seat_counted_advertisements.insert(reservation.advertisement_id);
                    keys.reservations.insert(reservation.id);
                }
                AdvertWrite::EndReservation { reservation_id, advertisement_id, .. }
                | AdvertWrite::ReleaseSeat { reservation_id, advertisement_id, .. } => {
                    keys.locked_advertisements.insert(*advertisement_id);
                    keys.reservations.insert(*reservation_id);
                }
            }
        }
        keys.locked_advertisements.extend(&keys.advertisements);
        keys
    }
}
