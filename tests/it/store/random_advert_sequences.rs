//! Random sequences of advertisement writes: every store gives the results of the model (R23).

use fireteam::domain::id::{ReservationId, UserKey};
use fireteam::domain::time::UnixMs;
use fireteam::store::{
    AdvertLimitPolicy, AdvertOwner, AdvertVersion, AdvertWrite, JOINED_RESERVATION_RETENTION_MS,
    LimitPerClientAndAccount, OwnerKey, Reservation, ReservationLimit, ReservationOwner, ReservedPartyKey, Store,
};
use proptest::prelude::*;

use crate::store::advert_model::Model;
use crate::store::advert_rows::{ad, ad_id, extend, put_owned, seat_id, seats};
use crate::store::sequence_runner::{Step, StoreModel, compare_memory, compare_postgres, compare_sqlite};

/// Few ids and few times, so that writes often conflict.
fn write() -> impl Strategy<Value = AdvertWrite> {
    let (n, r, now) = (0..6_u32, 0..5_u32, 0..60_u64);
    let ids = prop::collection::vec((0..5_u32).prop_map(seat_id), 0..3);
    let reservation_ids = (ids.clone(), ids);
    fn with_reservation_ids(
        write: AdvertWrite,
        (confirmed_ids, joined_ids): (Vec<ReservationId>, Vec<ReservationId>),
    ) -> AdvertWrite {
        match write {
            AdvertWrite::Publish { advertisement, expires_at: expires, owner, now, .. } => AdvertWrite::Publish {
                advertisement,
                expires_at: expires,
                confirmed_reservations: confirmed_ids,
                joined_reservations: joined_ids,
                owner,
                create_digest: None,
                now,
            },
            AdvertWrite::ExtendTtl { advertisement_id: id, expires_at: expires, now, .. } => AdvertWrite::ExtendTtl {
                advertisement_id: id,
                expires_at: expires,
                confirmed_reservations: confirmed_ids,
                joined_reservations: joined_ids,
                create_digest: None,
                now,
            },
            other => other,
        }
    }
    prop_oneof![
        6 => (n.clone(), 0..5_u16, now.clone(), 0..60_u64, reservation_ids.clone(), "[a-c]", owner_choices()).prop_map(
            |(n, open, now, more, reservation_ids, text, choices)| {
                let published = put_owned(ad(n, open, now, &text), advert_owner(n, choices), now + more, now);
                with_reservation_ids(published, reservation_ids)
            }
        ),
        3 => (n.clone(), now.clone(), 0..60_u64, reservation_ids)
            .prop_map(|(n, now, more, reservation_ids)| with_reservation_ids(extend(n, now + more, now), reservation_ids)),
        1 => (n.clone(), 0..60_u64).prop_map(|(n, until)| AdvertWrite::Delete { advertisement_id: ad_id(n), tombstone_until: UnixMs(until) }),
        2 => (n.clone(), now.clone()).prop_map(|(n, now)| AdvertWrite::Expire { advertisement_id: ad_id(n), now: UnixMs(now), expected_version: None }),
        6 => (r.clone(), n.clone(), 1..4_u16, now, 0..60_u64, owner_choices()).prop_map(
            |(r, n, count, now, more, choices)| reserve_owned(seats(r, n, count, now + more), choices, now)
        ),
        2 => (r.clone(), n.clone(), 0..2_usize, 0..60_u64).prop_map(|(r, n, which, at)| AdvertWrite::ReleaseSeat {
            reservation_id: seat_id(r),
            advertisement_id: ad_id(n),
            user: seats(r, n, 1, 0).users[which],
            purge_at: UnixMs(at),
        }),
        3 => (r.clone(), n.clone(), 0..3_usize, 0..60_u64).prop_map(|(r, n, which, at)| AdvertWrite::EraseUser {
            advertisement_id: ad_id(n),
            user: [seats(r, n, 1, 0).users[0], seats(r, n, 1, 0).users[1], UserKey::from_name(&format!("host {n}"))][which],
            seed: [r as u8; 16],
            purge_at: UnixMs(at),
        }),
        2 => (r, n, 0..60_u64).prop_map(|(r, n, at)| {
            AdvertWrite::EndReservation { reservation_id: seat_id(r), advertisement_id: ad_id(n), purge_at: UnixMs(at) }
        }),
    ]
}

/// Choices about an owner: end of tombstones and of retention, clients per account, and flags.
type OwnerChoices = (u64, u32, bool, bool, bool);

fn owner_choices() -> impl Strategy<Value = OwnerChoices> {
    (0..60_u64, 1..3_u32, any::<bool>(), any::<bool>(), prop::bool::weighted(0.8))
}

fn client_limit(per_account: u32) -> LimitPerClientAndAccount {
    LimitPerClientAndAccount { per_client: 1, per_account }
}

/// Owner `number` of an account, with bytes that differ in the client only for `client`.
fn owner_key(account: u8, client: u8) -> OwnerKey {
    let mut bytes = [account; 16];
    bytes[12..].fill(client);
    OwnerKey::from_bytes(bytes)
}

/// Owner of advertisement `n`, always the same: three of two clients of an account, two of a server, one without. Rows
/// of an older version have none.
fn advert_owner(n: u32, (until, per_account, is_create, is_new, is_counted): OwnerChoices) -> Option<AdvertOwner> {
    let tombstone_until = UnixMs(until);
    let replace = AdvertLimitPolicy::Replace { limit: client_limit(per_account), tombstone_until, is_create };
    let (key, limit) = match n {
        0 | 1 => (owner_key(1, 1), replace),
        2 => (owner_key(1, 2), replace),
        3 | 4 => (owner_key(2, 0), AdvertLimitPolicy::Refuse { max: 1 }),
        _ => return None,
    };
    is_counted.then_some(AdvertOwner { key, limit, is_new_advert: is_new })
}

/// Reservations of two clients of one account, of another account for the party of the first, and of a user to erase.
fn reserve_owned(reservation: Reservation, (purge_at, per_account, ..): OwnerChoices, now: u64) -> AdvertWrite {
    let number = u32::from_be_bytes(std::array::from_fn(|at| reservation.id.as_bytes()[12 + at]));
    let owner = |account, client, party: u8| {
        Some(ReservationOwner { client: owner_key(account, client), party: ReservedPartyKey::from_bytes([party; 16]) })
    };
    let owner = match number {
        0 | 1 => owner(1, 1, 5),
        2 => owner(1, 2, 6),
        3 => owner(3, 0, 5),
        // Made by a user of every reservation, and for another alone.
        4 => {
            let [maker, alone] = [reservation.users[0], reservation.users[1]];
            Some(ReservationOwner {
                client: OwnerKey::of_reserver(maker, None),
                party: ReservedPartyKey::from_party_users(&[alone]),
            })
        }
        _ => None,
    };
    let limit =
        owner.map(|_| ReservationLimit { limit: client_limit(per_account), replaced_purge_at: UnixMs(purge_at) });
    AdvertWrite::ReserveSeats { reservation: Reservation { owner, ..reservation }, limit, now: UnixMs(now) }
}

fn steps() -> impl Strategy<Value = Vec<Step<AdvertWrite>>> {
    let moment = prop_oneof![4 => 0..60_u64, 1 => Just(JOINED_RESERVATION_RETENTION_MS + 70)];
    let step = prop_oneof![
        10 => prop::collection::vec(write(), 1..12).prop_map(Step::Commit),
        1 => moment.clone().prop_map(Step::Load),
        1 => moment.prop_map(Step::Purge),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..20)
}

impl StoreModel for Model {
    type RandomWrite = AdvertWrite;

    async fn compare_commit(&mut self, store: &impl Store, batch: Vec<AdvertWrite>) {
        assert_eq!(store.commit_adverts(&batch).await.unwrap().outcomes, self.commit(&batch));
    }

    async fn compare_load(&mut self, store: &impl Store, now: UnixMs) {
        let mut stored = store.load_advertisements(now).await.unwrap();
        // Fields that only a store shared by replicas sets.
        stored.iter_mut().for_each(|it| (it.version, it.is_heartbeat_owner) = (AdvertVersion::default(), false));
        assert_eq!(stored, self.load(now));
    }

    async fn purge_both(&mut self, store: &impl Store, now: UnixMs) {
        store.purge_tombstones_and_reservations(now).await.unwrap();
        self.purge(now);
    }
}

/// R23: results equal the model's.
#[test]
fn random_advert_writes_on_memory_equal_the_model() {
    compare_memory::<Model>(2_000, steps());
}

/// R23, and R2 without the kill: acknowledged writes are there after any reopening.
#[test]
fn random_advert_writes_on_sqlite_equal_the_model() {
    compare_sqlite::<Model>(60, steps());
}

/// R23: results equal the model's; each reopening is another replica.
#[test]
fn random_advert_writes_on_postgres_equal_the_model() {
    let name = "random_advert_writes_on_postgres_equal_the_model";
    compare_postgres::<Model>(name, 60, steps(), "advertisement, reservation, advertisement_change");
}
