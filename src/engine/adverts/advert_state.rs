//! Advertisements in memory: directory of sets, reservation events, changes in flight and replication state.
//!
//! Searches read it; only the writer changes advertisements.

mod apply_commit;
mod apply_feed;
mod candidate_view;
mod handles;
mod latency_ranking;
mod prepare_write;
mod reservation_changes;
mod search;
mod seat_statistics;
mod user_erasure;

use std::fmt;
use std::sync::Arc;

use crate::domain::advertisement::{Advertisement, AdvertisementKind};
use crate::domain::id::{AdvertisementId, ReservationId, SetId, UserKey};
use crate::engine::adverts::advert_set::AdvertRecord;
use crate::engine::adverts::advert_set_map::{AdvertSetLock, AdvertSetMap};
use crate::engine::adverts::host_events::HostEventHub;
use crate::engine::adverts::in_flight_changes::InFlightChanges;
use crate::engine::adverts::replication_state::ReplicationState;
use crate::engine::adverts::update_answer::UpdateSnapshot;
use crate::engine::command::ReservationView;
use crate::engine::common::Common;

/// State of all advertisements.
pub(crate) struct AdvertState {
    pub(crate) common: Arc<Common>,
    pub(crate) advert_sets: AdvertSetMap,
    pub(crate) host_events: HostEventHub,
    pub(crate) in_flight_changes: InFlightChanges,
    /// Replication state; `None` if the store is not shared.
    pub(crate) replication: Option<Arc<ReplicationState>>,
}

impl AdvertState {
    /// State without advertisements, with indexes for the cached rulesets.
    pub(crate) fn new(common: Arc<Common>) -> Self {
        let advert_sets = AdvertSetMap::new(Arc::clone(&common.open_silos), common.party_values.clone());
        advert_sets.set_indexed_rulesets(common.rulesets.rulesets_to_index());
        let replication = common.store_health.clone().map(|health| Arc::new(ReplicationState::new(health)));
        Self {
            common,
            advert_sets,
            host_events: HostEventHub::default(),
            in_flight_changes: InFlightChanges::default(),
            replication,
        }
    }

    /// Records a session with open seats, for the queue of its set, which fills sessions.
    pub(crate) fn wake_backfill_if_open(&self, record: &AdvertRecord) {
        let Advertisement { set_id, kind, session, .. } = &*record.advertisement;
        if *kind == AdvertisementKind::Session && record.open_seats() > 0 {
            self.common.open_session_changes.record(*set_id, session.silo);
        }
    }

    /// Client views of an advertisement's reservations, from any set.
    pub(crate) fn reservation_views_of(&self, id: AdvertisementId) -> Vec<ReservationView> {
        let now = self.common.clock.now();
        let views = |record: &AdvertRecord| UpdateSnapshot::from_record(record, now).reservations;
        let find = |set: &Arc<AdvertSetLock>| set.lock_for_read().get(id).map(views);
        self.advert_sets.all_sets().iter().find_map(|(_, set)| find(set)).unwrap_or_default()
    }

    /// Reservation in an advertisement that holds a seat for a user, or with which the user joined, and the set. A seat that is
    /// held comes first.
    pub(crate) fn reservation_of_user(&self, id: AdvertisementId, user: UserKey) -> Option<(SetId, ReservationId)> {
        let now = self.common.clock.now();
        self.advert_sets.all_sets().iter().find_map(|(set_id, set)| {
            let set = set.lock_for_read();
            let record = set.get(id)?;
            let joined = record.reservations.iter().filter(|reservation| reservation.has_joined);
            let mut reservations = record.valid_reservations(now).chain(joined);
            let held = reservations.find(|reservation| reservation.users.binary_search(&user).is_ok())?;
            Some((*set_id, held.id))
        })
    }

    /// Users that an advertisement already has: its players, and those of its reservations.
    pub(crate) fn users_of_advert(&self, id: AdvertisementId, set_id: SetId) -> Vec<UserKey> {
        let mut users = Vec::new();
        if let Some(set) = self.advert_sets.get(set_id) {
            let set = set.lock_for_read();
            if let Some(record) = set.get(id) {
                users.extend(record.advertisement.session.players.iter().map(|player| player.user));
                users.extend(record.reservations.iter().flat_map(|reservation| reservation.users.iter().copied()));
            }
        }
        users
    }
}

impl fmt::Debug for AdvertState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdvertState").field("common", &self.common).finish_non_exhaustive()
    }
}
