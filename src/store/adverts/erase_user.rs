//! Erasure of a user from a reservation; the same plain code for every backend.

use crate::domain::id::UserKey;
use crate::domain::time::UnixMs;
use crate::store::adverts::{OwnerKey, Reservation, ReservedPartyKey, UserTraces};

impl Reservation {
    /// Whether something in it names the user, or could be computed from the account.
    pub(in crate::store) fn names_user(&self, traces: &UserTraces) -> bool {
        self.users.contains(&traces.user)
            || self
                .owner
                .is_some_and(|owner| traces.includes_reserver(owner.client) || owner.party == traces.solo_party)
    }

    /// Whether `after`, a later state of this one, differs in columns that only an erasure changes.
    pub(in crate::store) fn differs_in_erased_columns(&self, after: &Self) -> bool {
        (self.request_digest, self.owner) != (after.request_digest, after.owner)
    }

    /// Replaces what names the user by `key`, and releases the user's seat unless the reservation has ended. Returns whether
    /// it named the user.
    pub(super) fn erase_user_and_release_seat(&mut self, traces: &UserTraces, key: UserKey, purge_at: UnixMs) -> bool {
        if !self.names_user(traces) {
            return false;
        }
        if !self.release_seat(traces.user, purge_at) {
            self.users.iter_mut().filter(|user| **user == traces.user).for_each(|user| *user = key);
            self.users.sort_unstable();
        }
        // The digests of the request and of the party could be computed from the party's accounts.
        self.request_digest = *key.as_bytes();
        if let Some(owner) = &mut self.owner {
            owner.party = ReservedPartyKey::from_bytes(*key.as_bytes());
            if traces.includes_reserver(owner.client) {
                owner.client = OwnerKey::from_bytes(*key.as_bytes());
            }
        }
        true
    }
}
