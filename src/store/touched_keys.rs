//! Which rows a batch of changes can touch: what a store has to read before it decides.

use std::collections::BTreeSet;

use crate::domain::id::{AdvertisementId, ReservationId};
use crate::store::AdvertWrite;

/// The ids that a batch names, each once.
#[derive(Default)]
pub(super) struct TouchedAdvertKeys {
    pub(super) advertisements: BTreeSet<AdvertisementId>,
    /// Those whose seats are counted.
    pub(super) seat_checked: BTreeSet<AdvertisementId>,
    pub(super) reservations: BTreeSet<ReservationId>,
    /// Those of `advertisements` and those whose reservations are named: what several servers must not change at once.
    pub(super) locked_advertisements: BTreeSet<AdvertisementId>,
}

impl TouchedAdvertKeys {
    pub(super) fn of_batch(batch: &[AdvertWrite]) -> Self {
        let mut touched = Self::default();
        for write in batch {
            match write {
                AdvertWrite::Publish {
                    advertisement,
                    confirmed_reservations: confirmed,
                    joined_reservations: settled,
                    ..
                } => {
                    touched.advertisements.insert(advertisement.id);
                    touched.reservations.extend(confirmed.iter().chain(settled));
                }
                AdvertWrite::ExtendTtl {
                    advertisement_id: id,
                    confirmed_reservations: confirmed,
                    joined_reservations: settled,
                    ..
                } => {
                    touched.advertisements.insert(*id);
                    touched.reservations.extend(confirmed.iter().chain(settled));
                }
                AdvertWrite::Delete { advertisement_id: id, .. } | AdvertWrite::Expire { advertisement_id: id, .. } => {
                    touched.advertisements.insert(*id);
                }
                AdvertWrite::ReserveSeats { reservation, .. } => {
                    touched.advertisements.insert(reservation.advertisement_id);
                    touched.seat_checked.insert(reservation.advertisement_id);
                    touched.reservations.insert(reservation.id);
                }
                AdvertWrite::EndReservation { reservation_id: id, advertisement_id, .. } => {
                    touched.locked_advertisements.insert(*advertisement_id);
                    touched.reservations.insert(*id);
                }
            }
        }
        touched.locked_advertisements.extend(&touched.advertisements);
        touched
    }
}
