//! One set's advertisements in memory: the records, which are the truth here, and an index for every living ruleset.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::domain::advertisement::Advertisement;
use crate::domain::facts::Facts;
use crate::domain::filter::Listed;
use crate::domain::id::{AdvertisementId, IdState, ReservationId, RulesetHash, UserKey};
use crate::domain::index::{Entry, Index};
use crate::domain::ruleset::Ruleset;
use crate::domain::time::UnixMs;
use crate::store::{Reservation, ReservationState, Version};

/// One advertisement and what changes under it.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) advertisement: Arc<Advertisement>,
    /// What was acknowledged to the host.
    pub(super) expires: UnixMs,
    /// What the store has: never before `expires`, so that a restart forgets nothing that was promised.
    pub(super) stored_expires: UnixMs,
    pub(super) time_to_live_ms: u32,
    pub(super) encoded: Arc<[u8]>,
    pub(super) reservations: Vec<Reservation>,
    /// The state in the store that this is.
    pub(super) version: Version,
    /// This server took its last heartbeat: `expires` is what its host was promised. Otherwise it is what is stored.
    pub(super) held: bool,
    /// The store has yet to be told of it.
    pub(super) pending: bool,
}

impl Record {
    /// Seats that nobody holds.
    pub(super) fn open_seats(&self) -> u16 {
        let taken: u32 = self.live().map(|reservation| u32::from(reservation.seats)).sum();
        self.advertisement.session.join_seats.saturating_sub(u16::try_from(taken).unwrap_or(u16::MAX))
    }

    /// Reservations that hold seats; a hold past its deadline does until the sweep has ended it.
    pub(super) fn live(&self) -> impl Iterator<Item = &Reservation> {
        self.reservations.iter().filter(|reservation| reservation.state != ReservationState::Ended)
    }

    /// Reservations that are good at `now`, swept or not.
    pub(super) fn holding(&self, now: UnixMs) -> impl Iterator<Item = &Reservation> {
        self.live().filter(move |reservation| !has_lapsed(reservation, now))
    }

    /// Whether one of `users`, sorted, already has a seat coming, other than by reservation `but`.
    pub(super) fn holds_for(&self, users: &[UserKey], but: ReservationId, now: UnixMs) -> bool {
        let theirs = |reservation: &Reservation| reservation.users.iter().any(|user| users.binary_search(user).is_ok());
        self.holding(now).any(|reservation| reservation.id != but && theirs(reservation))
    }
}

/// What publications have replaced. Giving it back takes as long as they do, and need not be done under the lock.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    records: Vec<Record>,
    entries: Vec<Entry>,
}

impl Replaced {
    /// Room for so many of each.
    pub(super) fn with_room_for(records: usize, entries: usize) -> Self {
        Self { records: Vec::with_capacity(records), entries: Vec::with_capacity(entries) }
    }
}

/// The records of one set and their views.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    records: HashMap<AdvertisementId, Record, IdState>,
    views: Vec<Index>,
    /// Held reservations by deadline, so that the sweep looks at those that are due and at no others.
    lapses: BTreeSet<(UnixMs, AdvertisementId, ReservationId)>,
    /// While a new view is being built from a copy: whose expiry has changed since the copy was made.
    touched: Option<Vec<AdvertisementId>>,
    live_reservations: usize,
}

impl Shelf {
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Reservations that hold seats.
    pub(super) fn live_reservations(&self) -> usize {
        self.live_reservations
    }

    pub(super) fn get(&self, id: AdvertisementId) -> Option<&Record> {
        self.records.get(&id)
    }

    /// All of them, in no order.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.values()
    }

    /// Changes what no view shows of a record.
    pub(super) fn mark(&mut self, id: AdvertisementId, mark: impl FnOnce(&mut Record)) {
        if let Some(record) = self.records.get_mut(&id) {
            mark(record);
        }
    }

    /// The index whose facts are seen through the ruleset of that hash.
    pub(super) fn view(&self, hash: RulesetHash) -> Option<&Index> {
        self.views.iter().find(|view| view.ruleset().hash == hash)
    }

    /// All views.
    pub(super) fn views(&self) -> &[Index] {
        &self.views
    }

    /// Any one view: all hold the same advertisements with the same expiries.
    pub(super) fn any_view(&self) -> Option<&Index> {
        self.views.first()
    }

    /// The rulesets of the views, in their order.
    pub(super) fn rulesets(&self) -> Vec<Arc<Ruleset>> {
        self.views.iter().map(|view| Arc::clone(view.ruleset())).collect()
    }

    /// Reads what changes of `ids` are about to read, so that the machine fetches for many at once.
    pub(super) fn warm(&self, ids: impl Iterator<Item = AdvertisementId> + Clone) {
        let records = ids.clone().filter_map(|id| self.records.get(&id));
        std::hint::black_box(records.fold(0, |sum, record| sum ^ record.expires.0));
        self.views.iter().for_each(|view| view.warm(ids.clone()));
    }

    /// Adds or replaces a record, in every view.
    pub(super) fn put(&mut self, mut record: Record) {
        let entries: Vec<Entry> = self.views.iter().map(|view| entry(&record, view.ruleset())).collect();
        let kept = std::mem::take(&mut record.reservations);
        self.publish(record, &mut entries.into_iter(), |all| *all = kept, &mut Replaced::default());
    }

    /// Adds or replaces a record, with the next of `entries` for each view. What is replaced leaves its reservations to
    /// it, as `change` makes them, and the rest to `replaced`.
    pub(super) fn publish<T>(
        &mut self,
        mut record: Record,
        entries: &mut impl Iterator<Item = Entry>,
        change: impl FnOnce(&mut Vec<Reservation>) -> T,
        replaced: &mut Replaced,
    ) -> (&Record, T) {
        let known = self.records.entry(record.advertisement.id);
        if let MapEntry::Occupied(old) = &known {
            let old = old.get();
            unschedule(&mut self.lapses, old);
            self.live_reservations -= old.live().count();
            record.reservations.clone_from(&old.reservations);
        }
        let changed = change(&mut record.reservations);
        schedule(&mut self.lapses, &record);
        self.live_reservations += record.live().count();
        let open_seats = record.open_seats();
        for (view, entry) in self.views.iter_mut().zip(entries) {
            replaced.entries.extend(view.upsert(Entry { open_seats, ..entry }));
        }
        let record = match known {
            MapEntry::Occupied(mut known) => {
                replaced.records.push(known.insert(record));
                known.into_mut()
            }
            MapEntry::Vacant(free) => free.insert(record),
        };
        (record, changed)
    }

    /// Takes a record out, of every view.
    pub(super) fn remove(&mut self, id: AdvertisementId) -> Option<Record> {
        let record = self.records.remove(&id)?;
        unschedule(&mut self.lapses, &record);
        self.live_reservations -= record.live().count();
        for view in &mut self.views {
            view.remove(id);
        }
        Some(record)
    }

    /// Believes an advertisement until `expires` at least; what is stored already covers it.
    pub(super) fn extend(&mut self, id: AdvertisementId, expires: UnixMs) {
        let Some(record) = self.records.get_mut(&id) else { return };
        if expires <= record.expires {
            return;
        }
        record.expires = expires;
        for view in &mut self.views {
            view.set_expires(id, expires);
        }
        if let Some(touched) = &mut self.touched {
            touched.push(id);
        }
    }

    /// Notes what the store has been told of an expiry.
    pub(super) fn note_stored(&mut self, id: AdvertisementId, stored_expires: UnixMs) {
        if let Some(record) = self.records.get_mut(&id) {
            record.stored_expires = record.stored_expires.max(stored_expires);
        }
    }

    /// Changes the reservations of one record and recounts its open seats.
    pub(super) fn change_reservations<T>(
        &mut self,
        id: AdvertisementId,
        change: impl FnOnce(&mut Vec<Reservation>) -> T,
    ) -> Option<T> {
        let record = self.records.get_mut(&id)?;
        unschedule(&mut self.lapses, record);
        self.live_reservations -= record.live().count();
        let changed = change(&mut record.reservations);
        schedule(&mut self.lapses, record);
        self.live_reservations += record.live().count();
        let open_seats = record.open_seats();
        for view in &mut self.views {
            view.set_open_seats(id, open_seats);
        }
        Some(changed)
    }

    /// Appends up to `most` advertisements that are expired at `now`.
    pub(super) fn expired(&self, now: UnixMs, most: usize, out: &mut Vec<AdvertisementId>) {
        match self.any_view() {
            Some(view) => view.expired(now, most, out),
            None => {
                let due = self.records.values().filter(|record| record.expires <= now).take(most);
                out.extend(due.map(|record| record.advertisement.id));
            }
        }
    }

    /// Up to `most` held reservations whose deadline has passed.
    pub(super) fn lapsed(&self, now: UnixMs, most: usize) -> Vec<(AdvertisementId, ReservationId)> {
        let due = self.lapses.iter().take_while(|(until, ..)| *until <= now).take(most);
        due.map(|&(_, advertisement, reservation)| (advertisement, reservation)).collect()
    }

    /// Shrinks a few bounds that removals have left too wide.
    pub(super) fn tidy(&mut self) {
        self.views.iter_mut().for_each(Index::tidy);
    }

    /// Drops the views of rulesets that are no longer in `living`.
    pub(super) fn keep_views(&mut self, living: &[Arc<Ruleset>]) {
        self.views.retain(|view| living.iter().any(|ruleset| ruleset.hash == view.ruleset().hash));
    }

    /// Begins a new view: what to build it from. Expiries that change from now on are noted.
    pub(super) fn begin_view(&mut self) -> Vec<Record> {
        self.touched = Some(Vec::new());
        self.records.values().cloned().collect()
    }

    /// Takes in a finished view, brought up to date. Only expiries may have changed since `begin_view`.
    pub(super) fn end_view(&mut self, mut view: Index) {
        for id in self.touched.take().unwrap_or_default() {
            if let Some(record) = self.records.get(&id) {
                view.set_expires(id, record.expires);
            }
        }
        self.views.push(view);
    }
}

/// A view of `records` through `ruleset`. Takes a while for many records, and needs no lock.
pub(super) fn build_view(ruleset: &Arc<Ruleset>, records: &[Record]) -> Index {
    let mut view = Index::new(Arc::clone(ruleset));
    for record in records {
        view.upsert(entry(record, ruleset));
    }
    view
}

/// A record as filters and scores see it through facts of some ruleset.
pub(super) fn listed<'a>(record: &'a Record, facts: &'a Facts) -> Listed<'a> {
    Listed { advertisement: &record.advertisement, facts, expires: record.expires, open_seats: record.open_seats() }
}

/// A record as the view of `ruleset` holds it.
pub(super) fn entry(record: &Record, ruleset: &Ruleset) -> Entry {
    Entry {
        advertisement: Arc::clone(&record.advertisement),
        facts: Facts::of(ruleset, &record.advertisement.session),
        expires: record.expires,
        open_seats: record.open_seats(),
        encoded: Arc::clone(&record.encoded),
    }
}

/// Whether a hold is past its deadline.
pub(super) fn has_lapsed(reservation: &Reservation, now: UnixMs) -> bool {
    reservation.state == ReservationState::Held && reservation.until <= now
}

type Lapses = BTreeSet<(UnixMs, AdvertisementId, ReservationId)>;

fn schedule(lapses: &mut Lapses, record: &Record) {
    let held = record.reservations.iter().filter(|reservation| reservation.state == ReservationState::Held);
    lapses.extend(held.map(|held| (held.until, held.advertisement_id, held.id)));
}

fn unschedule(lapses: &mut Lapses, record: &Record) {
    for held in record.reservations.iter().filter(|reservation| reservation.state == ReservationState::Held) {
        lapses.remove(&(held.until, held.advertisement_id, held.id));
    }
}
