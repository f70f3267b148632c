//! Which rows a batch of changes can touch: what a store has to read before it decides.

use std::collections::BTreeSet;

use crate::domain::id::{AdvertisementId, ReservationId};
use crate::store::Write;

/// The ids that a batch names, each once.
#[derive(Default)]
pub(super) struct Touched {
    pub(super) advertisements: BTreeSet<AdvertisementId>,
    /// Those whose seats are counted.
    pub(super) counted: BTreeSet<AdvertisementId>,
    pub(super) reservations: BTreeSet<ReservationId>,
    /// Those of `advertisements` and those whose reservations are named: what several servers must not change at once.
    pub(super) locked: BTreeSet<AdvertisementId>,
}

impl Touched {
    pub(super) fn by(batch: &[Write]) -> Self {
        let mut touched = Self::default();
        for write in batch {
            match write {
                Write::Put { advertisement, confirmed, settled, .. } => {
                    touched.advertisements.insert(advertisement.id);
                    touched.reservations.extend(confirmed.iter().chain(settled));
                }
                Write::Extend { id, confirmed, settled, .. } => {
                    touched.advertisements.insert(*id);
                    touched.reservations.extend(confirmed.iter().chain(settled));
                }
                Write::Delete { id, .. } | Write::Expire { id, .. } => {
                    touched.advertisements.insert(*id);
                }
                Write::Reserve { reservation, .. } => {
                    touched.advertisements.insert(reservation.advertisement_id);
                    touched.counted.insert(reservation.advertisement_id);
                    touched.reservations.insert(reservation.id);
                }
                Write::End { id, advertisement_id, .. } => {
                    touched.locked.insert(*advertisement_id);
                    touched.reservations.insert(*id);
                }
            }
        }
        touched.locked.extend(&touched.advertisements);
        touched
    }
}
