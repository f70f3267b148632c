//! Advertisements of a set that a searching party avoids. The cost is in the number of users whom the party avoids and who
//! advertise or have seats; without rules in the ruleset there is none.

use crate::domain::filter::AdvertsOfAvoidedPlayers;
use crate::domain::id::{AdvertisementId, UserKey};
use crate::domain::index::AdvertisementIndex;
use crate::engine::adverts::advert_set::{AdvertRecord, AdvertSet};
use crate::engine::party_avoidance::{PartyAvoidance, SessionAvoidanceVerdict};

/// Advertisements that a party avoids, as searches take them.
#[derive(Debug, Default)]
pub(crate) struct AvoidedAdvertIds {
    hidden: Vec<AdvertisementId>,
    costs: Vec<(AdvertisementId, f64)>,
}

impl AvoidedAdvertIds {
    /// Those among `records`.
    pub(crate) fn among<'a>(records: impl Iterator<Item = &'a AdvertRecord>, avoidance: &PartyAvoidance<'_>) -> Self {
        let mut avoided = Self::default();
        for record in records {
            let id = record.advertisement.id;
            match avoidance.verdict(&users_of_record(record)) {
                SessionAvoidanceVerdict::Hidden => avoided.hidden.push(id),
                SessionAvoidanceVerdict::Cost(0.0) => {}
                SessionAvoidanceVerdict::Cost(cost) => avoided.costs.push((id, cost)),
            }
        }
        avoided.hidden.sort_unstable();
        avoided.costs.sort_unstable_by_key(|(id, _)| *id);
        avoided
    }

    /// Those in a set. `index` is that of the ruleset with the rules.
    pub(crate) fn in_set(set: &AdvertSet, index: &AdvertisementIndex, avoidance: &PartyAvoidance<'_>) -> Self {
        // Of a user whom many have blocked, few advertise: then it is cheaper to ask for each advertisement.
        if index.tracked_player_count() < avoidance.avoided_user_count_bound() {
            return Self::among(set.records(), avoidance);
        }
        let ids_of_user = |user: UserKey| {
            let as_player = index.tracked_ids_of_user(user);
            as_player.into_iter().chain(set.reserved_user_index().advert_ids_of_user(user).iter().copied())
        };
        let mut ids: Vec<AdvertisementId> = avoidance.avoided_users().flat_map(ids_of_user).collect();
        ids.sort_unstable();
        ids.dedup();
        Self::among(ids.into_iter().filter_map(|id| set.get(id)), avoidance)
    }

    /// As a search takes them.
    pub(crate) fn view(&self) -> AdvertsOfAvoidedPlayers<'_> {
        AdvertsOfAvoidedPlayers { hidden: &self.hidden, costs: &self.costs }
    }
}

/// Players of an advertised session, and users with seats in it, sorted.
pub(crate) fn users_of_record(record: &AdvertRecord) -> Vec<UserKey> {
    let players = record.advertisement.session.players.iter().map(|player| player.user);
    let reserved = record.unended_reservations().flat_map(|reservation| reservation.users.iter().copied());
    let mut users: Vec<UserKey> = players.chain(reserved).collect();
    users.sort_unstable();
    users.dedup();
    users
}
