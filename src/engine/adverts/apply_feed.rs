//! Other servers' changes, brought to memory: what was read of the store replaces what was believed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::domain::id::{AdvertisementId, SetId};
use crate::domain::index::IndexEntry;
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::{AdvertRecord, AdvertSet, ReplacedRecords, index_entry};
use crate::engine::adverts::advert_set_map::LockedAdvertSet;
use crate::engine::adverts::replication_state::{LocalChangeLog, ReplicationState};
use crate::engine::command::ReservationChange;
use crate::engine::core::Core;
use crate::store::{
    ENDED_RESERVATION_RETENTION_MS, FeedBatch, Reservation, ReservationState as State, StoredAdvertisement,
};

/// Advertisements under one hold of a set's lock.
const ADVERTS_PER_LOCK_MAX: usize = 32;

/// A reservation and what has happened to it.
type ReservationDelta = (Reservation, ReservationChange);

impl Core {
    /// Brings to memory what was read after batch `as_of`. The writer alone may call this.
    pub(in crate::engine) fn apply_feed(
        &self,
        news: FeedBatch,
        as_of: u64,
        recent: &mut LocalChangeLog,
        sharing: &ReplicationState,
    ) {
        let now = self.clock.now();
        let mut gone = news.removed;
        if news.is_snapshot {
            gone = self.adverts_missing_from(&news.changed);
        }
        for id in gone {
            match recent.changed_after(id, as_of) {
                true => sharing.request_reread([id]),
                false => self.remove_advert_from_all_sets(id),
            }
        }
        let mut sets: BTreeMap<SetId, Vec<StoredAdvertisement>> = BTreeMap::new();
        for stored in news.changed {
            match recent.changed_after(stored.advertisement.id, as_of) {
                true => sharing.request_reread([stored.advertisement.id]),
                false => sets.entry(stored.advertisement.set_id).or_default().push(stored),
            }
        }
        for (set_id, mut all) in sets {
            let shelf = self.advert_sets.get_or_create(set_id);
            while !all.is_empty() {
                let run = all.split_off(all.len().saturating_sub(ADVERTS_PER_LOCK_MAX));
                self.apply_feed_batch(&shelf, run, sharing.expiry_grace_until(), now);
            }
        }
        recent.purge_through(as_of);
    }

    /// Those in memory that `there` does not have, but for those that the store has yet to be told of.
    fn adverts_missing_from(&self, there: &[StoredAdvertisement]) -> Vec<AdvertisementId> {
        let there: BTreeSet<AdvertisementId> = there.iter().map(|stored| stored.advertisement.id).collect();
        let mut gone = Vec::new();
        for (_, shelf) in self.advert_sets.all() {
            let shelf = shelf.read();
            let others =
                shelf.records().filter(|record| !record.is_unwritten && !there.contains(&record.advertisement.id));
            gone.extend(others.map(|record| record.advertisement.id));
        }
        gone
    }

    fn remove_advert_from_all_sets(&self, id: AdvertisementId) {
        for (_, shelf) in self.advert_sets.all() {
            let there = shelf.read().get(id).is_some_and(|record| !record.is_unwritten);
            if there {
                shelf.write().remove(id);
            }
        }
        self.reservation_events.remove_listeners(id);
    }

    fn apply_feed_batch(
        &self,
        shelf: &LockedAdvertSet,
        run: Vec<StoredAdvertisement>,
        borne_until: UnixMs,
        now: UnixMs,
    ) {
        // Only the writer, which is here, changes records and views: they are the same when the lock is taken again.
        let (rulesets, fresh) = {
            let shelf = shelf.read();
            let fresh: Vec<AdvertRecord> =
                run.into_iter().filter_map(|stored| self.record_from_feed(&shelf, stored, borne_until)).collect();
            (shelf.indexed_rulesets(), fresh)
        };
        let mut entries: Vec<IndexEntry> = Vec::with_capacity(fresh.len() * rulesets.len());
        for record in &fresh {
            entries.extend(rulesets.iter().map(|ruleset| index_entry(record, ruleset)));
        }
        let mut replaced = ReplacedRecords::with_capacity(fresh.len(), entries.len());
        let mut told: Vec<(AdvertisementId, Vec<ReservationDelta>)> = Vec::new();
        {
            let mut shelf = shelf.write();
            shelf.prefetch(fresh.iter().map(|record| record.advertisement.id));
            let mut entries = entries.into_iter();
            for mut record in fresh {
                let id = record.advertisement.id;
                let reservations = std::mem::take(&mut record.reservations);
                let change = |all: &mut Vec<Reservation>| {
                    let events = reservation_deltas(all, &reservations, now);
                    *all = reservations;
                    events
                };
                let (_, events) = shelf.upsert_with_entries(record, &mut entries, change, &mut replaced);
                if !events.is_empty() {
                    told.push((id, events));
                }
            }
        }
        drop(replaced);
        for (id, events) in told {
            self.publish_reservation_events(id, events, now);
        }
    }

    /// The record that `stored` makes; none where memory has it already, or is ahead of the store. It is ahead while the
    /// store has yet to be told of a heartbeat, unless another server has taken one since.
    fn record_from_feed(
        &self,
        shelf: &AdvertSet,
        stored: StoredAdvertisement,
        borne_until: UnixMs,
    ) -> Option<AdvertRecord> {
        let StoredAdvertisement {
            advertisement,
            expires_at: expires,
            reservations,
            version,
            is_heartbeat_owner: held_here,
        } = stored;
        let known = shelf.get(advertisement.id);
        let ahead = |known: &AdvertRecord| known.is_unwritten && held_here;
        if known.is_some_and(|known| ahead(known) || (known.version, known.is_heartbeat_owner) == (version, held_here))
        {
            return None;
        }
        let same = known.filter(|known| known.advertisement == advertisement);
        // What another server has promised may not have been written yet, if nobody could write a moment ago.
        let borne = known.filter(|_| !held_here).map_or(UnixMs(0), |known| known.expires_at.min(borne_until));
        // What this server has promised the host since its last write is known here alone.
        let promised = known.filter(|known| held_here && known.is_heartbeat_owner);
        Some(AdvertRecord {
            encoded_advert: same
                .map_or_else(|| (self.encode_advert)(&advertisement), |known| Arc::clone(&known.encoded_advert)),
            expires_at: promised.map_or(expires.max(borne), |known| known.expires_at),
            stored_expires_at: expires,
            ttl_ms: known.map_or(self.settings.default_ttl_ms, |known| known.ttl_ms),
            reservations,
            version,
            is_heartbeat_owner: held_here,
            is_unwritten: false,
            advertisement,
        })
    }
}

/// What a host must hear when its reservations were `before` and now are `after`.
fn reservation_deltas(before: &[Reservation], after: &[Reservation], now: UnixMs) -> Vec<ReservationDelta> {
    let mut events = Vec::new();
    for reservation in after {
        let known = before.iter().find(|known| known.id == reservation.id);
        let change = match (known.map(|known| known.state), reservation.state) {
            (None, State::Held) => ReservationChange::Held,
            (None | Some(State::Held), State::Confirmed) => ReservationChange::Confirmed,
            (Some(State::Held | State::Confirmed), State::Ended) => {
                // The host itself has taken the party in: those are remembered for longest.
                if ENDED_RESERVATION_RETENTION_MS / 2 < reservation.deadline.ms_since(now) {
                    continue;
                }
                let lapsed = known.is_some_and(|known| known.state == State::Held && known.deadline <= now);
                if lapsed { ReservationChange::Expired } else { ReservationChange::Released }
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
    use crate::domain::id::ReservationId;

    #[test]
    fn feed_reports_reservation_changes_to_the_host() {
        let seat = |n: u8, state, until| Reservation {
            id: ReservationId::from_bytes([n; 16]),
            advertisement_id: AdvertisementId::from_bytes([9; 16]),
            seats: 1,
            users: Vec::new(),
            request_digest: [0; 16],
            state,
            deadline: UnixMs(until),
        };
        let now = UnixMs(1_000);
        let settled = 1_000 + ENDED_RESERVATION_RETENTION_MS;
        let before = [
            seat(2, State::Held, 2_000),
            seat(3, State::Held, 2_000),
            seat(4, State::Held, 900),
            seat(5, State::Confirmed, 0),
            seat(6, State::Held, 2_000),
        ];
        let after = [
            seat(1, State::Held, 3_000),
            seat(2, State::Confirmed, 0),
            seat(3, State::Ended, 5_000),
            seat(4, State::Ended, 5_000),
            seat(5, State::Ended, settled),
            seat(6, State::Held, 2_000),
            seat(7, State::Ended, 5_000),
        ];
        let heard: Vec<_> = reservation_deltas(&before, &after, now)
            .into_iter()
            .map(|(it, change)| (it.id.as_bytes()[0], change))
            .collect();
        let expected = [
            (1, ReservationChange::Held),
            (2, ReservationChange::Confirmed),
            (3, ReservationChange::Released),
            (4, ReservationChange::Expired),
        ];
        assert_eq!(heard, expected);
    }
}
