//! Reference model of the advertisement store: lists and plain loops. Shares no code with a store.

use std::sync::Arc;

use fireteam::domain::advertisement::Advertisement;
use fireteam::domain::id::{AdvertisementId, ReservationId, UserKey};
use fireteam::domain::limit::RESERVATIONS_PER_ADVERTISEMENT_MAX;
use fireteam::domain::time::UnixMs;
use fireteam::store::{
    AdvertLimitPolicy, AdvertOwner, AdvertVersion, AdvertWrite, JOINED_RESERVATION_RETENTION_MS,
    LimitPerClientAndAccount, OwnerKey, Reservation, ReservationLimit, ReservationState as State, ReservedPartyKey,
    StoredAdvertisement, WriteOutcome,
};

fn stored(advertisement: Arc<Advertisement>, expires: UnixMs) -> StoredAdvertisement {
    StoredAdvertisement {
        advertisement,
        expires_at: expires,
        reservations: vec![],
        version: AdvertVersion::default(),
        is_heartbeat_owner: false,
    }
}

/// Advertisements with their reservations; tombstones as pairs.
#[derive(Default)]
pub(crate) struct Model {
    ads: Vec<StoredAdvertisement>,
    tombstones: Vec<(AdvertisementId, UnixMs)>,
    /// Owners of the advertisements; also of some that are gone.
    owners: Vec<(AdvertisementId, OwnerKey)>,
}

/// Whether two owners are clients of one account.
fn same_account(one: OwnerKey, other: OwnerKey) -> bool {
    one.as_bytes()[..12] == other.as_bytes()[..12]
}

fn is_live(reservation: &Reservation, now: UnixMs) -> bool {
    reservation.state == State::Confirmed || reservation.state == State::Held && now < reservation.expires_or_purge_at
}

/// Removes from `live`, which is in order of age, until one more fits: the oldest of the client, then the oldest of all.
fn beyond<Id: Copy + PartialEq>(limit: LimitPerClientAndAccount, mut live: Vec<(Id, bool)>) -> Vec<Id> {
    let mut gone = vec![];
    while live.iter().filter(|(_, own)| *own).count() as u32 + 1 > limit.per_client {
        let oldest = live.iter().position(|(_, own)| *own).unwrap();
        gone.push(live.remove(oldest).0);
    }
    while live.len() as u32 + 1 > limit.per_account {
        gone.push(live.remove(0).0);
    }
    gone
}

/// Takes a user from a reservation that holds seats, or whose party joined.
fn release(held: &mut Reservation, user: UserKey, purge_at: UnixMs) {
    if !held.users.contains(&user) || (held.state == State::Ended && !held.has_joined) {
        return;
    }
    held.users.retain(|other| *other != user);
    held.seats = held.seats.saturating_sub(1);
    if held.users.is_empty() {
        held.has_joined = false;
    }
    if held.state != State::Ended && (held.seats == 0 || held.users.is_empty()) {
        (held.state, held.expires_or_purge_at) = (State::Ended, purge_at);
    }
}

/// Whether the reservation named the user. It then names a key instead.
fn erase(held: &mut Reservation, user: UserKey, seed: &[u8; 16], purge_at: UnixMs) -> bool {
    let key = UserKey::of_erased(seed, held.id.as_bytes());
    let own = OwnerKey::of_reserver(user, None);
    let has_made = held.owner.is_some_and(|owner| same_account(owner.client, own));
    let is_alone = held.owner.is_some_and(|owner| owner.party == ReservedPartyKey::from_party_users(&[user]));
    if !has_made && !is_alone && !held.users.contains(&user) {
        return false;
    }
    if held.state == State::Ended && !(held.has_joined && held.users.contains(&user)) {
        for name in &mut held.users {
            *name = if *name == user { key } else { *name };
        }
        held.users.sort();
    } else {
        release(held, user, purge_at);
    }
    held.request_digest = *key.as_bytes();
    if let Some(owner) = &mut held.owner {
        owner.party = ReservedPartyKey::from_bytes(*key.as_bytes());
        owner.client = if has_made { OwnerKey::from_bytes(*key.as_bytes()) } else { owner.client };
    }
    true
}

impl Model {
    pub(crate) fn commit(&mut self, batch: &[AdvertWrite]) -> Vec<WriteOutcome> {
        batch.iter().map(|write| self.apply(write.clone())).collect()
    }

    pub(crate) fn load(&mut self, now: UnixMs) -> Vec<StoredAdvertisement> {
        self.ads.retain(|ad| now < ad.expires_at);
        self.purge(now);
        self.ads.sort_by_key(|ad| ad.advertisement.id);
        self.ads.iter_mut().for_each(|ad| ad.reservations.sort_by_key(|reservation| reservation.id));
        self.ads.clone()
    }

    pub(crate) fn purge(&mut self, now: UnixMs) {
        self.tombstones.retain(|(_, until)| now < *until);
        for ad in &mut self.ads {
            ad.reservations
                .retain(|reservation| reservation.state != State::Ended || now < reservation.expires_or_purge_at);
        }
    }

    #[expect(clippy::too_many_lines, reason = "one case after another")]
    fn apply(&mut self, write: AdvertWrite) -> WriteOutcome {
        match write {
            AdvertWrite::Publish {
                advertisement,
                expires_at: expires,
                confirmed_reservations: confirmed,
                joined_reservations: joined,
                owner,
                create_digest: _,
                now,
            } => {
                let id = advertisement.id;
                if self.tombstones.iter().any(|(deleted, until)| *deleted == id && now < *until) {
                    return WriteOutcome::Tombstoned;
                }
                let outcome = match self.ad(id) {
                    Some(ad) => {
                        let since = ad.advertisement.advertised_since;
                        let mut published = (*advertisement).clone();
                        published.advertised_since = since;
                        ad.advertisement = published.into();
                        ad.expires_at = expires;
                        WriteOutcome::Published { created: false, advertised_since: since, replaced: vec![] }
                    }
                    None => {
                        let replaced = match owner.as_ref().map_or(Ok(vec![]), |owner| self.make_room(owner, now)) {
                            Ok(replaced) => replaced,
                            Err(true) => return WriteOutcome::TooManyAdvertisements,
                            Err(false) => return WriteOutcome::Tombstoned,
                        };
                        let since = advertisement.advertised_since;
                        self.owners.retain(|(owned, _)| *owned != id);
                        self.owners.extend(owner.map(|owner| (id, owner.key)));
                        self.ads.push(stored(advertisement, expires));
                        WriteOutcome::Published { created: true, advertised_since: since, replaced }
                    }
                };
                self.update_reservations(id, &confirmed, &joined, now);
                outcome
            }
            AdvertWrite::ExtendTtl {
                advertisement_id: id,
                expires_at: expires,
                confirmed_reservations: confirmed,
                joined_reservations: joined,
                create_digest: _,
                now,
            } => {
                let Some(ad) = self.ad(id) else { return WriteOutcome::NotFound };
                if ad.expires_at < expires {
                    ad.expires_at = expires;
                }
                self.update_reservations(id, &confirmed, &joined, now);
                WriteOutcome::Applied
            }
            AdvertWrite::Delete { advertisement_id: id, tombstone_until } => {
                self.delete(id, tombstone_until);
                WriteOutcome::Applied
            }
            AdvertWrite::Expire { advertisement_id: id, now, .. } => {
                self.ads.retain(|ad| ad.advertisement.id != id || now < ad.expires_at);
                WriteOutcome::Applied
            }
            AdvertWrite::ReserveSeats { reservation, limit, now } => self.reserve(reservation, limit, now),
            AdvertWrite::EndReservation { reservation_id: id, advertisement_id, purge_at } => {
                let Some(ad) = self.ad(advertisement_id) else { return WriteOutcome::NotFound };
                match ad.reservations.iter_mut().find(|reservation| reservation.id == id) {
                    None => WriteOutcome::NotFound,
                    Some(reservation) => {
                        reservation.has_joined = false;
                        if reservation.state != State::Ended {
                            reservation.state = State::Ended;
                            reservation.expires_or_purge_at = purge_at;
                        }
                        WriteOutcome::Applied
                    }
                }
            }
            AdvertWrite::ReleaseSeat { reservation_id: id, advertisement_id, user, purge_at } => {
                let Some(ad) = self.ad(advertisement_id) else { return WriteOutcome::NotFound };
                let Some(held) = ad.reservations.iter_mut().find(|reservation| reservation.id == id) else {
                    return WriteOutcome::NotFound;
                };
                release(held, user, purge_at);
                WriteOutcome::Applied
            }
            AdvertWrite::EraseUser { advertisement_id, user, seed, purge_at } => {
                let Some(ad) = self.ad(advertisement_id) else { return WriteOutcome::NotFound };
                ad.reservations.sort_by_key(|held| held.id);
                let key = UserKey::of_erased(&seed, advertisement_id.as_bytes());
                let mut published = (*ad.advertisement).clone();
                for player in published.session.players.iter_mut().filter(|player| player.user == user) {
                    (player.user, player.client_key) = (key, key);
                }
                let was_in_advertisement = published != *ad.advertisement;
                if was_in_advertisement {
                    published.session.set_published_beacon_vector(None);
                }
                ad.advertisement = published.into();
                let all = ad.reservations.iter_mut();
                let erased = all.filter_map(|held| erase(held, user, &seed, purge_at).then(|| held.clone()));
                WriteOutcome::EraseUserApplied { was_in_advertisement, reservations: erased.collect() }
            }
        }
    }

    fn delete(&mut self, id: AdvertisementId, tombstone_until: UnixMs) {
        self.ads.retain(|ad| ad.advertisement.id != id);
        match self.tombstones.iter_mut().find(|(deleted, _)| *deleted == id) {
            Some((_, until)) if tombstone_until <= *until => {}
            Some((_, until)) => *until = tombstone_until,
            None => self.tombstones.push((id, tombstone_until)),
        }
    }

    /// Live advertisements of the account, oldest first, each with whether it is of the same client.
    fn of_account(&self, key: OwnerKey, now: UnixMs) -> Vec<(AdvertisementId, bool)> {
        let mut found: Vec<_> = self.ads.iter().filter(|ad| now < ad.expires_at).collect();
        found.sort_by_key(|ad| (ad.advertisement.advertised_since, ad.advertisement.id));
        let owner = |id| self.owners.iter().find(|(owned, _)| *owned == id).map(|(_, owner)| *owner);
        let with_owner = found.iter().filter_map(|ad| Some((ad.advertisement.id, owner(ad.advertisement.id)?)));
        with_owner.filter(|(_, owner)| same_account(*owner, key)).map(|(id, owner)| (id, owner == key)).collect()
    }

    /// Advertisements that were removed. If nothing may be published: whether the limit is the reason.
    fn make_room(&mut self, owner: &AdvertOwner, now: UnixMs) -> Result<Vec<AdvertisementId>, bool> {
        let live = self.of_account(owner.key, now);
        match owner.limit {
            AdvertLimitPolicy::Refuse { max } if (live.len() as u32) < max => Ok(vec![]),
            AdvertLimitPolicy::Refuse { .. } => Err(true),
            AdvertLimitPolicy::Replace { limit, tombstone_until, is_create } => {
                let gone = beyond(limit, live);
                if !is_create && !gone.is_empty() {
                    return Err(false);
                }
                gone.iter().for_each(|id| self.delete(*id, tombstone_until));
                Ok(gone)
            }
        }
    }

    /// Reservations that end if `wanted` is made, with their advertisements.
    fn replaced_by(
        &self,
        wanted: &Reservation,
        limit: Option<ReservationLimit>,
        now: UnixMs,
    ) -> Vec<(AdvertisementId, ReservationId)> {
        let (Some(owner), Some(ReservationLimit { limit, .. })) = (wanted.owner, limit) else { return vec![] };
        let all = self.ads.iter().flat_map(|ad| &ad.reservations).filter(|it| is_live(it, now));
        let mut live: Vec<&Reservation> = all.filter(|it| it.owner.is_some()).collect();
        live.sort_by_key(|it| (it.expires_or_purge_at, it.id));
        let own = |it: &&&Reservation| it.owner.is_some_and(|known| same_account(known.client, owner.client));
        let of_client = |it: &Reservation| it.owner.is_some_and(|known| known.client == owner.client);
        let gone = beyond(limit, live.iter().filter(own).map(|it| (it.id, of_client(it))).collect());
        let of_party = |it: &Reservation| it.owner.is_some_and(|known| known.party == owner.party);
        live.sort_by_key(|it| it.id);
        let ends = live.iter().filter(|it| gone.contains(&it.id) || of_party(it));
        ends.map(|it| (it.advertisement_id, it.id)).collect()
    }

    fn reserve(&mut self, mut wanted: Reservation, limit: Option<ReservationLimit>, now: UnixMs) -> WriteOutcome {
        for stored in self.ads.iter().flat_map(|ad| &ad.reservations) {
            if stored.id == wanted.id {
                if stored.request_digest != wanted.request_digest || stored.advertisement_id != wanted.advertisement_id
                {
                    return WriteOutcome::IdempotencyKeyReused;
                }
                return WriteOutcome::SeatsReserved { reservation: stored.clone(), is_retry: true, replaced: vec![] };
            }
        }
        let replaced = self.replaced_by(&wanted, limit, now);
        let Some(ad) = self.ad(wanted.advertisement_id) else { return WriteOutcome::NotFound };
        let (mut taken, mut live) = (0, 0);
        for reservation in &ad.reservations {
            if is_live(reservation, now) && !replaced.contains(&(ad.advertisement.id, reservation.id)) {
                taken += u32::from(reservation.seats);
                live += 1;
            }
        }
        let total = u32::from(ad.advertisement.session.offered_seats);
        let open = total.saturating_sub(taken);
        if open < u32::from(wanted.seats) {
            return WriteOutcome::NotEnoughSeats { open_seats: open as u16 };
        }
        if live == RESERVATIONS_PER_ADVERTISEMENT_MAX {
            return WriteOutcome::TooManyReservationsInAdvert;
        }
        wanted.state = State::Held;
        ad.reservations.push(wanted.clone());
        for (id, ended) in &replaced {
            let held = self.ad(*id).and_then(|ad| ad.reservations.iter_mut().find(|it| it.id == *ended)).unwrap();
            (held.state, held.expires_or_purge_at) = (State::Ended, limit.unwrap().replaced_purge_at);
        }
        WriteOutcome::SeatsReserved { reservation: wanted, is_retry: false, replaced }
    }

    fn update_reservations(
        &mut self,
        id: AdvertisementId,
        confirmed: &[ReservationId],
        joined: &[ReservationId],
        now: UnixMs,
    ) {
        let Some(ad) = self.ad(id) else { return };
        for reservation in &mut ad.reservations {
            let held = reservation.state == State::Held && now < reservation.expires_or_purge_at;
            if confirmed.contains(&reservation.id) && held {
                reservation.state = State::Confirmed;
            }
            if joined.contains(&reservation.id) && reservation.state != State::Ended {
                reservation.has_joined = is_live(reservation, now);
                reservation.state = State::Ended;
                reservation.expires_or_purge_at = UnixMs(now.0 + JOINED_RESERVATION_RETENTION_MS);
            }
        }
    }

    fn ad(&mut self, id: AdvertisementId) -> Option<&mut StoredAdvertisement> {
        self.ads.iter_mut().find(|ad| ad.advertisement.id == id)
    }
}
