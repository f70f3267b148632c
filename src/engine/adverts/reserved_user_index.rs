//! Advertisements by the users who have seats reserved in them, so that a searcher who avoids users finds these too.

use std::collections::HashMap;

use crate::domain::id::{AdvertisementId, BuildIdHasher, UserKey};
use crate::store::{Reservation, ReservationState};

/// Advertisements of each user with reserved seats. A user with several reservations in one advertisement has it several times.
#[derive(Debug, Default)]
pub(crate) struct ReservedUserIndex(HashMap<UserKey, Vec<AdvertisementId>, BuildIdHasher>);

impl ReservedUserIndex {
    /// Adds the users of reservations.
    #[inline]
    pub(crate) fn add(&mut self, reservations: &[Reservation]) {
        if reservations.is_empty() {
            return;
        }
        for (user, id) in reserved_user_advert_pairs(reservations) {
            self.0.entry(user).or_default().push(id);
        }
    }

    /// Removes the users of reservations that were added as they are.
    #[inline]
    pub(crate) fn remove(&mut self, reservations: &[Reservation]) {
        if reservations.is_empty() {
            return;
        }
        for (user, id) in reserved_user_advert_pairs(reservations) {
            let Some(ids) = self.0.get_mut(&user) else { continue };
            if let Some(index) = ids.iter().position(|known| *known == id) {
                ids.swap_remove(index);
            }
            if ids.is_empty() {
                self.0.remove(&user);
            }
        }
    }

    /// Advertisements in which a user has seats reserved.
    pub(crate) fn advert_ids_of_user(&self, user: UserKey) -> &[AdvertisementId] {
        self.0.get(&user).map_or(&[], Vec::as_slice)
    }
}

fn reserved_user_advert_pairs(reservations: &[Reservation]) -> impl Iterator<Item = (UserKey, AdvertisementId)> + '_ {
    let unended = reservations.iter().filter(|reservation| reservation.state != ReservationState::Ended);
    unended.flat_map(|reservation| reservation.users.iter().map(|user| (*user, reservation.advertisement_id)))
}
