//! Applies other replicas' changes to memory: rows read from the store's change feed replace the local records.

use std::collections::{BTreeMap, BTreeSet};

use thin_vec::ThinVec;

use crate::domain::id::{AdvertisementId, SetId};
use crate::domain::index::IndexEntry;
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::{AdvertRecord, AdvertSet, ReplacedRecordsToFree, build_index_entry};
use crate::engine::adverts::advert_set_map::AdvertSetLock;
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::adverts::replication_state::{LastLocalBatchByAdvert, ReplicationState};
use crate::engine::command::ReservationChange;
use crate::store::{
    FeedBatch, JOINED_RESERVATION_RETENTION_MS, Reservation, ReservationState as State, StoredAdvertisement,
};

/// Maximum advertisements applied under one lock of a set.
const ADVERTS_PER_LOCK_MAX: usize = 32;

/// Reservation and its change.
type ReservationWithChange = (Reservation, ReservationChange);

impl AdvertState {
    /// Applies a feed batch that was read after local batch `as_of_batch`. Only the writer may call this.
    pub(crate) fn apply_feed(
        &self,
        feed_batch: FeedBatch,
        as_of_batch: u64,
        local_changes: &mut LastLocalBatchByAdvert,
        replication: &ReplicationState,
    ) {
        let now = self.common.clock.now();
        let mut removed = feed_batch.removed;
        if feed_batch.is_snapshot {
            removed = self.adverts_missing_from(&feed_batch.changed);
        }
        for id in removed {
            if local_changes.has_changed_after(id, as_of_batch) {
                replication.request_reread([id]);
            } else {
                self.remove_advert_from_all_sets(id, now);
            }
        }
        let mut sets: BTreeMap<SetId, Vec<StoredAdvertisement>> = BTreeMap::new();
        for stored in feed_batch.changed {
            if local_changes.has_changed_after(stored.advertisement.id, as_of_batch) {
                replication.request_reread([stored.advertisement.id]);
            } else {
                sets.entry(stored.advertisement.set_id).or_default().push(stored);
            }
        }
        for (set_id, mut stored_adverts) in sets {
            let set = self.advert_sets.get_or_create(set_id);
            let fills_sessions = self.common.fills_open_sessions(set_id);
            while !stored_adverts.is_empty() {
                let batch = stored_adverts.split_off(stored_adverts.len().saturating_sub(ADVERTS_PER_LOCK_MAX));
                self.apply_feed_batch(&set, batch, (replication.expiry_grace_until(), fills_sessions), now);
            }
        }
        local_changes.purge_through(as_of_batch);
    }

    /// Advertisements in memory that `present` lacks, except those not yet written to the store.
    fn adverts_missing_from(&self, present: &[StoredAdvertisement]) -> Vec<AdvertisementId> {
        let present: BTreeSet<AdvertisementId> = present.iter().map(|stored| stored.advertisement.id).collect();
        let mut removed = Vec::new();
        for (_, set) in self.advert_sets.all_sets() {
            let set = set.lock_for_read();
            let missing =
                set.records().filter(|record| !record.is_unwritten && !present.contains(&record.advertisement.id));
            removed.extend(missing.map(|record| record.advertisement.id));
        }
        removed
    }

    fn remove_advert_from_all_sets(&self, id: AdvertisementId, now: UnixMs) {
        for (_, set) in self.advert_sets.all_sets() {
            let is_removable = set.lock_for_read().get(id).is_some_and(|record| !record.is_unwritten);
            if is_removable {
                let removed = set.lock_for_write().remove(id);
                removed.iter().for_each(|record| self.record_end_of_sessions_reservations(record, now));
            }
        }
        self.host_events.remove_listeners_unless_hosting(id);
    }

    fn apply_feed_batch(
        &self,
        set: &AdvertSetLock,
        batch: Vec<StoredAdvertisement>,
        (expiry_grace_until, fills_sessions): (UnixMs, bool),
        now: UnixMs,
    ) {
        // Only the writer changes records and indexes, and it runs here: they cannot change between the two locks.
        let (rulesets, records) = {
            let set = set.lock_for_read();
            let records: Vec<AdvertRecord> = batch
                .into_iter()
                .filter_map(|stored| self.record_from_feed(&set, stored, expiry_grace_until))
                .collect();
            (set.indexed_rulesets(), records)
        };
        let mut entries: Vec<IndexEntry> = Vec::with_capacity(records.len() * rulesets.len());
        for record in &records {
            entries
                .extend(rulesets.iter().map(|ruleset| build_index_entry(record, ruleset, &self.common.party_values)));
        }
        let mut replaced = ReplacedRecordsToFree::with_capacity(records.len(), entries.len());
        let mut events_by_advert: Vec<(AdvertisementId, Vec<ReservationWithChange>)> = Vec::new();
        {
            let mut set = set.lock_for_write();
            set.prefetch(records.iter().map(|record| record.advertisement.id));
            let mut entries = entries.into_iter();
            for mut record in records {
                let id = record.advertisement.id;
                let reservations = std::mem::take(&mut record.reservations);
                self.record_reservations_of_feed(&reservations, now);
                let change = |existing: &mut ThinVec<Reservation>| {
                    let events = reservation_deltas(existing, &reservations, now);
                    *existing = reservations;
                    events
                };
                let (record, events) = set.upsert_with_entries(record, &mut entries, change, &mut replaced);
                if fills_sessions {
                    self.wake_backfill_if_open(record);
                }
                if !events.is_empty() {
                    events_by_advert.push((id, events));
                }
            }
        }
        drop(replaced);
        for (id, events) in events_by_advert {
            self.publish_reservation_events(id, events, now);
        }
    }

    /// Record for a stored advertisement. `None` if memory already has it or is ahead of the store.
    ///
    /// Memory is ahead while a heartbeat is unwritten, unless another replica has received one since.
    fn record_from_feed(
        &self,
        set: &AdvertSet,
        stored: StoredAdvertisement,
        expiry_grace_until: UnixMs,
    ) -> Option<AdvertRecord> {
        let StoredAdvertisement { advertisement, expires_at, reservations, version, is_heartbeat_owner } = stored;
        let existing = set.get(advertisement.id);
        let is_ahead = |existing: &AdvertRecord| existing.is_unwritten && is_heartbeat_owner;
        if existing.is_some_and(|existing| {
            is_ahead(existing) || (existing.version, existing.is_heartbeat_owner) == (version, is_heartbeat_owner)
        }) {
            return None;
        }
        // During an outage another replica could not write the expiry that it acknowledged.
        let grace_expires_at = existing
            .filter(|_| !is_heartbeat_owner)
            .map_or(UnixMs(0), |existing| existing.expires_at.min(expiry_grace_until));
        // Heartbeats that this replica answered since its last write are known only here.
        let acknowledged = existing.filter(|existing| is_heartbeat_owner && existing.is_heartbeat_owner);
        Some(AdvertRecord {
            expires_at: acknowledged.map_or(expires_at.max(grace_expires_at), |existing| existing.expires_at),
            stored_expires_at: expires_at,
            ttl_ms: self.common.settings.ttl_ms_of_loaded_advert(&advertisement),
            reservations: reservations.into(),
            version,
            is_heartbeat_owner,
            is_unwritten: false,
            advertisement,
        })
    }
}

/// Events for the host whose reservations changed from `before` to `after`.
fn reservation_deltas(before: &[Reservation], after: &[Reservation], now: UnixMs) -> Vec<ReservationWithChange> {
    let mut events = Vec::new();
    for reservation in after {
        let existing = before.iter().find(|existing| existing.id == reservation.id);
        let change = match (existing.map(|existing| existing.state), reservation.state) {
            (None, State::Held) => ReservationChange::Held,
            (None | Some(State::Held), State::Confirmed) => ReservationChange::Confirmed,
            (Some(State::Held | State::Confirmed), State::Ended) => {
                // The host itself reported that the party joined. Those reservations have the longest retention: version 0.2.0
                // does not say that they joined.
                if reservation.has_joined
                    || reservation.expires_or_purge_at.ms_since(now) > JOINED_RESERVATION_RETENTION_MS / 2
                {
                    continue;
                }
                let was_expired = existing
                    .is_some_and(|existing| existing.state == State::Held && existing.expires_or_purge_at <= now);
                if was_expired { ReservationChange::Expired } else { ReservationChange::Released }
            }
            (Some(State::Ended), State::Ended)
                if existing
                    .is_some_and(|existing| existing.has_joined && reservation.users.len() < existing.users.len()) =>
            {
                ReservationChange::Released
            }
            _ => continue,
        };
        events.push((reservation.clone(), change));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::id::{ReservationId, UserKey};

    #[test]
    fn feed_reports_reservation_changes_to_the_host() {
        let reservation = |n: u8, state, deadline| Reservation {
            id: ReservationId::from_bytes([n; 16]),
            advertisement_id: AdvertisementId::from_bytes([9; 16]),
            seats: 1,
            users: Vec::new(),
            request_digest: [0; 16],
            state,
            has_joined: false,
            expires_or_purge_at: UnixMs(deadline),
            owner: None,
        };
        let now = UnixMs(1_000);
        let joined_until = 1_000 + JOINED_RESERVATION_RETENTION_MS;
        let joined = |n: u8, users: &[u8]| Reservation {
            users: users.iter().map(|n| UserKey::from_bytes([*n; 16])).collect(),
            has_joined: true,
            ..reservation(n, State::Ended, joined_until)
        };
        let before = [
            reservation(2, State::Held, 2_000),
            reservation(3, State::Held, 2_000),
            reservation(4, State::Held, 900),
            reservation(5, State::Confirmed, 0),
            reservation(6, State::Held, 2_000),
            joined(8, &[1, 2]),
            joined(9, &[1]),
        ];
        let after = [
            reservation(1, State::Held, 3_000),
            reservation(2, State::Confirmed, 0),
            reservation(3, State::Ended, 5_000),
            reservation(4, State::Ended, 5_000),
            reservation(5, State::Ended, joined_until),
            reservation(6, State::Held, 2_000),
            reservation(7, State::Ended, 5_000),
            joined(8, &[2]),
            joined(9, &[1]),
        ];
        let changes: Vec<_> = reservation_deltas(&before, &after, now)
            .into_iter()
            .map(|(reservation, change)| (reservation.id.as_bytes()[0], change))
            .collect();
        let expected = [
            (1, ReservationChange::Held),
            (2, ReservationChange::Confirmed),
            (3, ReservationChange::Released),
            (4, ReservationChange::Expired),
            // A player has left the session after the party had joined.
            (8, ReservationChange::Released),
        ];
        assert_eq!(changes, expected);
    }
}
