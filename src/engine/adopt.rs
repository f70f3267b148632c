//! Other servers' changes, brought to memory: what was read of the store replaces what was believed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::domain::id::{AdvertisementId, SetId};
use crate::domain::index::Entry;
use crate::domain::time::UnixMs;
use crate::engine::command::ReservationChange;
use crate::engine::core::Core;
use crate::engine::directory::Shared;
use crate::engine::sharing::{Recent, Sharing};
use crate::engine::shelf::{Record, Replaced, Shelf, entry};
use crate::store::{News, Reservation, ReservationState as State, SETTLED_KEPT_MS, StoredAdvertisement};

/// Advertisements under one hold of a set's lock.
const RUN_MAX: usize = 32;

/// A reservation and what has happened to it.
type Event = (Reservation, ReservationChange);

impl Core {
    /// Brings to memory what was read after batch `as_of`. The writer alone may call this.
    pub(super) fn adopt(&self, news: News, as_of: u64, recent: &mut Recent, sharing: &Sharing) {
        let now = self.clock.now();
        let mut gone = news.gone;
        if news.whole {
            gone = self.all_but(&news.changed);
        }
        for id in gone {
            match recent.is_newer(id, as_of) {
                true => sharing.read_again([id]),
                false => self.forget_anywhere(id),
            }
        }
        let mut sets: BTreeMap<SetId, Vec<StoredAdvertisement>> = BTreeMap::new();
        for stored in news.changed {
            match recent.is_newer(stored.advertisement.id, as_of) {
                true => sharing.read_again([stored.advertisement.id]),
                false => sets.entry(stored.advertisement.set_id).or_default().push(stored),
            }
        }
        for (set_id, mut all) in sets {
            let shelf = self.directory.shelf_or_new(set_id);
            while !all.is_empty() {
                let run = all.split_off(all.len().saturating_sub(RUN_MAX));
                self.adopt_run(&shelf, run, sharing.borne_until(), now);
            }
        }
        recent.forget(as_of);
    }

    /// Those in memory that `there` does not have, but for those that the store has yet to be told of.
    fn all_but(&self, there: &[StoredAdvertisement]) -> Vec<AdvertisementId> {
        let there: BTreeSet<AdvertisementId> = there.iter().map(|stored| stored.advertisement.id).collect();
        let mut gone = Vec::new();
        for (_, shelf) in self.directory.shelves() {
            let shelf = shelf.read();
            let others = shelf.records().filter(|record| !record.pending && !there.contains(&record.advertisement.id));
            gone.extend(others.map(|record| record.advertisement.id));
        }
        gone
    }

    fn forget_anywhere(&self, id: AdvertisementId) {
        for (_, shelf) in self.directory.shelves() {
            let there = shelf.read().get(id).is_some_and(|record| !record.pending);
            if there {
                shelf.write().remove(id);
            }
        }
        self.events.forget(id);
    }

    fn adopt_run(&self, shelf: &Shared, run: Vec<StoredAdvertisement>, borne_until: UnixMs, now: UnixMs) {
        // Only the writer, which is here, changes records and views: they are the same when the lock is taken again.
        let (rulesets, fresh) = {
            let shelf = shelf.read();
            let fresh: Vec<Record> =
                run.into_iter().filter_map(|stored| self.adopted(&shelf, stored, borne_until)).collect();
            (shelf.rulesets(), fresh)
        };
        let mut entries: Vec<Entry> = Vec::with_capacity(fresh.len() * rulesets.len());
        for record in &fresh {
            entries.extend(rulesets.iter().map(|ruleset| entry(record, ruleset)));
        }
        let mut replaced = Replaced::with_room_for(fresh.len(), entries.len());
        let mut told: Vec<(AdvertisementId, Vec<Event>)> = Vec::new();
        {
            let mut shelf = shelf.write();
            shelf.warm(fresh.iter().map(|record| record.advertisement.id));
            let mut entries = entries.into_iter();
            for mut record in fresh {
                let id = record.advertisement.id;
                let reservations = std::mem::take(&mut record.reservations);
                let change = |all: &mut Vec<Reservation>| {
                    let events = changes(all, &reservations, now);
                    *all = reservations;
                    events
                };
                let (_, events) = shelf.publish(record, &mut entries, change, &mut replaced);
                if !events.is_empty() {
                    told.push((id, events));
                }
            }
        }
        drop(replaced);
        for (id, events) in told {
            self.tell(id, events, now);
        }
    }

    /// The record that `stored` makes; none where memory has it already, or is ahead of the store. It is ahead while the
    /// store has yet to be told of a heartbeat, unless another server has taken one since.
    fn adopted(&self, shelf: &Shelf, stored: StoredAdvertisement, borne_until: UnixMs) -> Option<Record> {
        let StoredAdvertisement { advertisement, expires, reservations, version, held_here } = stored;
        let known = shelf.get(advertisement.id);
        let ahead = |known: &Record| known.pending && held_here;
        if known.is_some_and(|known| ahead(known) || (known.version, known.held) == (version, held_here)) {
            return None;
        }
        let same = known.filter(|known| known.advertisement == advertisement);
        // What another server has promised may not have been written yet, if nobody could write a moment ago.
        let borne = known.filter(|_| !held_here).map_or(UnixMs(0), |known| known.expires.min(borne_until));
        // What this server has promised the host since its last write is known here alone.
        let promised = known.filter(|known| held_here && known.held);
        Some(Record {
            encoded: same.map_or_else(|| (self.encode)(&advertisement), |known| Arc::clone(&known.encoded)),
            expires: promised.map_or(expires.max(borne), |known| known.expires),
            stored_expires: expires,
            time_to_live_ms: known.map_or(self.settings.time_to_live_default_ms, |known| known.time_to_live_ms),
            reservations,
            version,
            held: held_here,
            pending: false,
            advertisement,
        })
    }
}

/// What a host must hear when its reservations were `before` and now are `after`.
fn changes(before: &[Reservation], after: &[Reservation], now: UnixMs) -> Vec<Event> {
    let mut events = Vec::new();
    for reservation in after {
        let known = before.iter().find(|known| known.id == reservation.id);
        let change = match (known.map(|known| known.state), reservation.state) {
            (None, State::Held) => ReservationChange::Held,
            (None | Some(State::Held), State::Confirmed) => ReservationChange::Confirmed,
            (Some(State::Held | State::Confirmed), State::Ended) => {
                // The host itself has taken the party in: those are remembered for longest.
                if SETTLED_KEPT_MS / 2 < reservation.until.since(now) {
                    continue;
                }
                let lapsed = known.is_some_and(|known| known.state == State::Held && known.until <= now);
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
    fn a_host_hears_what_has_become_of_its_seats() {
        let seat = |n: u8, state, until| Reservation {
            id: ReservationId::from_bytes([n; 16]),
            advertisement_id: AdvertisementId::from_bytes([9; 16]),
            seats: 1,
            users: Vec::new(),
            payload: [0; 16],
            state,
            until: UnixMs(until),
        };
        let now = UnixMs(1_000);
        let settled = 1_000 + SETTLED_KEPT_MS;
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
        let heard: Vec<_> =
            changes(&before, &after, now).into_iter().map(|(it, change)| (it.id.as_bytes()[0], change)).collect();
        let expected = [
            (1, ReservationChange::Held),
            (2, ReservationChange::Confirmed),
            (3, ReservationChange::Released),
            (4, ReservationChange::Expired),
        ];
        assert_eq!(heard, expected);
    }
}
