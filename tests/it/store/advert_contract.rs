//! Contract of the advertisement store, run on every backend: publish, reserve, join, expire, delete, tombstone.

use std::sync::Arc;

use fireteam::domain::advertisement::Advertisement;
use fireteam::domain::limit::RESERVATIONS_PER_ADVERTISEMENT_MAX;
use fireteam::domain::time::UnixMs;
use fireteam::store::memory::MemoryStore;
use fireteam::store::postgres::{FireteamReplica, PostgresStore};
use fireteam::store::sqlite::SqliteStore;
use fireteam::store::{
    AdvertWrite, JOINED_RESERVATION_RETENTION_MS, Reservation, ReservationState, Store, WriteOutcome,
};

use crate::store::advert_rows::{ad, ad_id, extend, put, reserve, seat_id, seats};
use crate::support::database::{TestDatabase, create_test_database};

async fn commit_one(store: &dyn Store, write: AdvertWrite) -> WriteOutcome {
    let mut outcomes = store.commit_adverts(&[write]).await.unwrap().outcomes;
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

fn created(since: u64) -> WriteOutcome {
    WriteOutcome::Published { created: true, advertised_since: UnixMs(since), replaced: vec![] }
}

fn replaced(since: u64) -> WriteOutcome {
    WriteOutcome::Published { created: false, advertised_since: UnixMs(since), replaced: vec![] }
}

fn reserved(reservation: Reservation) -> WriteOutcome {
    WriteOutcome::SeatsReserved { reservation, is_retry: false, replaced: vec![] }
}

fn end(n: u32, ad: u32, purge_at: u64) -> AdvertWrite {
    AdvertWrite::EndReservation { reservation_id: seat_id(n), advertisement_id: ad_id(ad), purge_at: UnixMs(purge_at) }
}

/// A heartbeat that also confirms reservations and lists joined ones.
fn heartbeat(ad: u32, expires: u64, confirmed: &[u32], joined: &[u32], now: u64) -> AdvertWrite {
    let ids = |all: &[u32]| all.iter().copied().map(seat_id).collect();
    let (confirmed, joined) = (ids(confirmed), ids(joined));
    AdvertWrite::ExtendTtl {
        advertisement_id: ad_id(ad),
        expires_at: UnixMs(expires),
        confirmed_reservations: confirmed,
        joined_reservations: joined,
        create_digest: None,
        now: UnixMs(now),
    }
}

/// S1-44, S1-47, R5: publishing, replacing, extending, expiring, deleting.
async fn check_advertisements(store: &dyn Store) {
    assert_eq!(store.load_advertisements(UnixMs(0)).await.unwrap(), []);
    assert_eq!(store.commit_adverts(&[]).await.unwrap().outcomes, []);

    assert_eq!(commit_one(store, put(ad(1, 4, 10, "first"), 100, 10)).await, created(10));
    assert_eq!(
        commit_one(store, put(ad(1, 4, 50, "second"), 150, 50)).await,
        replaced(10),
        "advertised_since does not change"
    );
    assert_eq!(commit_one(store, extend(1, 200, 60)).await, WriteOutcome::Applied);
    assert_eq!(commit_one(store, extend(1, 120, 61)).await, WriteOutcome::Applied);
    let stored = store.load_advertisements(UnixMs(61)).await.unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].advertisement, ad(1, 4, 10, "second"));
    assert_eq!(stored[0].expires_at, UnixMs(200), "a heartbeat never shortens the TTL");
    assert_eq!(commit_one(store, put(ad(1, 4, 70, "third"), 160, 70)).await, replaced(10));
    assert_eq!(
        store.load_advertisements(UnixMs(70)).await.unwrap()[0].expires_at,
        UnixMs(160),
        "a publish sets the expiry, also to an earlier time"
    );

    assert_eq!(commit_one(store, extend(2, 200, 60)).await, WriteOutcome::NotFound);
    let expire = |now| AdvertWrite::Expire { advertisement_id: ad_id(1), now: UnixMs(now), expected_version: None };
    assert_eq!(commit_one(store, expire(159)).await, WriteOutcome::Applied);
    assert_eq!(commit_one(store, extend(1, 161, 159)).await, WriteOutcome::Applied, "not yet expired");
    assert_eq!(commit_one(store, expire(161)).await, WriteOutcome::Applied);
    assert_eq!(commit_one(store, extend(1, 300, 161)).await, WriteOutcome::NotFound);
    assert_eq!(
        commit_one(store, put(ad(1, 4, 170, "again"), 300, 170)).await,
        created(170),
        "expiry leaves no tombstone"
    );

    let delete = |until| AdvertWrite::Delete { advertisement_id: ad_id(1), tombstone_until: UnixMs(until) };
    assert_eq!(commit_one(store, delete(500)).await, WriteOutcome::Applied);
    assert_eq!(commit_one(store, delete(400)).await, WriteOutcome::Applied, "delete is idempotent");
    assert_eq!(commit_one(store, put(ad(1, 4, 499, "late"), 600, 499)).await, WriteOutcome::Tombstoned);
    assert_eq!(commit_one(store, extend(1, 600, 499)).await, WriteOutcome::NotFound);
    assert_eq!(commit_one(store, put(ad(1, 4, 500, "new"), 600, 500)).await, created(500));
    store.purge_tombstones_and_reservations(UnixMs(500)).await.unwrap();

    let stored = store.load_advertisements(UnixMs(600)).await.unwrap();
    assert_eq!(stored, [], "expired advertisements are not loaded");
    assert_eq!(commit_one(store, extend(1, 700, 600)).await, WriteOutcome::NotFound, "it was purged");
}

/// R5: seats are reserved once per key, all or none, and never more than are open.
#[expect(clippy::too_many_lines, reason = "one case after another")]
async fn check_reservations(store: &dyn Store) {
    commit_one(store, put(ad(1, 4, 0, "host"), 1_000, 0)).await;
    commit_one(store, put(ad(2, 4, 0, "other host"), 1_000, 0)).await;

    let first = seats(1, 1, 3, 100);
    assert_eq!(commit_one(store, reserve(first.clone(), 10)).await, reserved(first.clone()));
    let again = commit_one(store, reserve(Reservation { expires_or_purge_at: UnixMs(120), ..first.clone() }, 20)).await;
    assert_eq!(
        again,
        WriteOutcome::SeatsReserved { reservation: first.clone(), is_retry: true, replaced: vec![] },
        "a retry does not change the deadline"
    );
    assert_eq!(commit_one(store, reserve(seats(1, 1, 2, 100), 20)).await, WriteOutcome::IdempotencyKeyReused);
    assert_eq!(
        commit_one(store, reserve(Reservation { advertisement_id: ad_id(2), ..first }, 20)).await,
        WriteOutcome::IdempotencyKeyReused
    );
    assert_eq!(
        commit_one(store, reserve(seats(2, 1, 2, 100), 20)).await,
        WriteOutcome::NotEnoughSeats { open_seats: 1 }
    );
    assert_eq!(
        commit_one(store, reserve(seats(2, 1, 1, 100), 20)).await,
        reserved(seats(2, 1, 1, 100)),
        "the last seat"
    );
    assert_eq!(
        commit_one(store, reserve(seats(3, 1, 1, 100), 20)).await,
        WriteOutcome::NotEnoughSeats { open_seats: 0 }
    );
    assert_eq!(commit_one(store, reserve(seats(3, 9, 1, 100), 20)).await, WriteOutcome::NotFound);

    // Another host confirms and joins nothing here, and an expired hold cannot be confirmed.
    commit_one(store, heartbeat(2, 1_000, &[1], &[2], 30)).await;
    assert_eq!(commit_one(store, end(1, 2, 900)).await, WriteOutcome::NotFound);
    commit_one(store, heartbeat(1, 1_000, &[1], &[], 99)).await;
    commit_one(store, heartbeat(1, 1_000, &[2], &[], 100)).await;
    assert_eq!(
        commit_one(store, reserve(seats(4, 1, 2, 200), 100)).await,
        WriteOutcome::NotEnoughSeats { open_seats: 1 },
        "reservation 2 has expired"
    );
    assert_eq!(commit_one(store, reserve(seats(4, 1, 1, 200), 100)).await, reserved(seats(4, 1, 1, 200)));
    let expired = WriteOutcome::SeatsReserved { reservation: seats(2, 1, 1, 100), is_retry: true, replaced: vec![] };
    assert_eq!(commit_one(store, reserve(seats(2, 1, 1, 300), 150)).await, expired);

    // The party of reservation 1 has joined: it is among the players now, so the host offers fewer seats.
    let joined = AdvertWrite::Publish {
        advertisement: ad(1, 1, 150, "host and guests"),
        expires_at: UnixMs(1_000),
        confirmed_reservations: vec![],
        joined_reservations: vec![seat_id(1)],
        owner: None,
        create_digest: None,
        now: UnixMs(150),
    };
    assert_eq!(commit_one(store, joined).await, replaced(0));
    assert_eq!(
        commit_one(store, reserve(seats(5, 1, 1, 300), 150)).await,
        WriteOutcome::NotEnoughSeats { open_seats: 0 }
    );
    assert_eq!(commit_one(store, end(4, 1, 400)).await, WriteOutcome::Applied);
    assert_eq!(commit_one(store, end(4, 1, 900)).await, WriteOutcome::Applied, "an ended reservation does not change");
    assert_eq!(commit_one(store, end(9, 1, 900)).await, WriteOutcome::NotFound);
    assert_eq!(commit_one(store, reserve(seats(5, 1, 1, 300), 150)).await, reserved(seats(5, 1, 1, 300)));
    commit_one(store, put(ad(1, 0, 160, "closed"), 1_000, 160)).await;
    assert_eq!(
        commit_one(store, reserve(seats(6, 1, 1, 300), 160)).await,
        WriteOutcome::NotEnoughSeats { open_seats: 0 },
        "fewer seats than are held"
    );

    let state = |n, count, until, state| Reservation { state, ..seats(n, 1, count, until) };
    let joined_until = 150 + JOINED_RESERVATION_RETENTION_MS;
    let expected = [
        Reservation { has_joined: true, ..state(1, 3, joined_until, ReservationState::Ended) },
        state(2, 1, 100, ReservationState::Held),
        state(4, 1, 400, ReservationState::Ended),
        state(5, 1, 300, ReservationState::Held),
    ];
    assert_eq!(store.load_advertisements(UnixMs(399)).await.unwrap()[0].reservations, expected);
    let ended = WriteOutcome::SeatsReserved { reservation: expected[2].clone(), is_retry: true, replaced: vec![] };
    assert_eq!(
        commit_one(store, reserve(seats(4, 1, 1, 500), 399)).await,
        ended,
        "a late retry returns the ended reservation"
    );
    store.purge_tombstones_and_reservations(UnixMs(400)).await.unwrap();
    assert_eq!(store.load_advertisements(UnixMs(400)).await.unwrap()[0].reservations.len(), 3);

    commit_one(store, AdvertWrite::Delete { advertisement_id: ad_id(1), tombstone_until: UnixMs(500) }).await;
    assert_eq!(
        commit_one(store, reserve(seats(5, 1, 1, 300), 401)).await,
        WriteOutcome::NotFound,
        "reservations are deleted with the advertisement"
    );
    assert_eq!(store.load_advertisements(UnixMs(401)).await.unwrap().len(), 1);
}

/// One batch has the same result as its writes one by one, even if they conflict.
async fn check_one_batch(store: &dyn Store) {
    let join = AdvertWrite::Publish {
        advertisement: ad(1, 3, 9, "c"),
        expires_at: UnixMs(90),
        confirmed_reservations: vec![seat_id(1)],
        joined_reservations: vec![seat_id(2)],
        owner: None,
        create_digest: None,
        now: UnixMs(9),
    };
    let batch = [
        put(ad(1, 3, 5, "a"), 100, 5),
        put(ad(1, 4, 6, "b"), 100, 6),
        reserve(seats(1, 1, 3, 50), 7),
        reserve(seats(2, 1, 1, 50), 7),
        reserve(seats(3, 1, 1, 50), 8),
        join,
        extend(1, 80, 10),
        AdvertWrite::Expire { advertisement_id: ad_id(2), now: UnixMs(10), expected_version: None },
        put(ad(2, 1, 10, "d"), 20, 10),
        AdvertWrite::Expire { advertisement_id: ad_id(2), now: UnixMs(20), expected_version: None },
        put(ad(2, 1, 21, "e"), 100, 21),
        put(ad(3, 1, 21, "f"), 100, 21),
        AdvertWrite::Delete { advertisement_id: ad_id(3), tombstone_until: UnixMs(99) },
        put(ad(3, 1, 22, "g"), 100, 22),
    ];
    let outcomes = [
        created(5),
        replaced(5),
        reserved(seats(1, 1, 3, 50)),
        reserved(seats(2, 1, 1, 50)),
        WriteOutcome::NotEnoughSeats { open_seats: 0 },
        replaced(5),
        WriteOutcome::Applied,
        WriteOutcome::Applied,
        created(10),
        WriteOutcome::Applied,
        created(21),
        created(21),
        WriteOutcome::Applied,
        WriteOutcome::Tombstoned,
    ];
    assert_eq!(store.commit_adverts(&batch).await.unwrap().outcomes, outcomes);
    let stored = store.load_advertisements(UnixMs(30)).await.unwrap();
    assert_eq!(stored.iter().map(|it| it.expires_at.0).collect::<Vec<_>>(), [90, 100]);
    assert_eq!(*stored[0].advertisement, *ad(1, 3, 5, "c"));
    let states: Vec<_> = stored[0].reservations.iter().map(|it| it.state).collect();
    assert_eq!(states, [ReservationState::Confirmed, ReservationState::Ended]);
}

/// At most `limit::RESERVATIONS_PER_ADVERTISEMENT_MAX` active reservations; ended ones do not count.
async fn check_reservation_limit(store: &dyn Store) {
    let limit = RESERVATIONS_PER_ADVERTISEMENT_MAX as u32;
    commit_one(store, put(ad(1, 1_000, 0, "crowd"), 1_000, 0)).await;
    let all: Vec<AdvertWrite> = (0..=limit).map(|n| reserve(seats(n, 1, 1, 500), 1)).collect();
    let outcomes = store.commit_adverts(&all).await.unwrap().outcomes;
    let (last, rest) = outcomes.split_last().unwrap();
    assert_eq!(*last, WriteOutcome::TooManyReservationsInAdvert);
    assert!(rest.iter().all(|outcome| matches!(outcome, WriteOutcome::SeatsReserved { is_retry: false, .. })));
    commit_one(store, end(0, 1, 900)).await;
    assert_eq!(commit_one(store, reserve(seats(limit, 1, 1, 500), 2)).await, reserved(seats(limit, 1, 1, 500)));
}

/// 64 concurrent reservations of 10 seats: exactly 10 are made.
async fn check_concurrent_reservations(store: Arc<dyn Store>) {
    commit_one(&*store, put(ad(1, 10, 0, "rush"), 1_000, 0)).await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..64 {
        let store = Arc::clone(&store);
        tasks.spawn(async move { commit_one(&*store, reserve(seats(n, 1, 1, 500), 1)).await });
    }
    let outcomes = tasks.join_all().await;
    let reserved =
        outcomes.iter().filter(|it| matches!(it, WriteOutcome::SeatsReserved { is_retry: false, .. })).count();
    let refused = outcomes.iter().filter(|it| **it == WriteOutcome::NotEnoughSeats { open_seats: 0 }).count();
    assert_eq!((reserved, refused), (10, 54));
    assert_eq!(store.load_advertisements(UnixMs(1)).await.unwrap()[0].reservations.len(), 10);
}

/// A publication that creates an advertisement; the digest of its request has only this byte.
fn create(advertisement: Arc<Advertisement>, digest: u8, expires: u64, now: u64) -> AdvertWrite {
    let mut write = put(advertisement, expires, now);
    if let AdvertWrite::Publish { create_digest, .. } = &mut write {
        *create_digest = Some([digest; 16]);
    }
    write
}

/// A heartbeat of advertisement 1 that repeats its creation.
fn repeat(digest: u8, expires: u64, now: u64) -> AdvertWrite {
    let mut write = extend(1, expires, now);
    if let AdvertWrite::ExtendTtl { create_digest, .. } = &mut write {
        *create_digest = Some([digest; 16]);
    }
    write
}

/// A request with the key of another that created an advertisement is refused while that advertisement lives. An update and an
/// erasure do not change that.
async fn check_create_digests(store: &dyn Store) {
    let reused = WriteOutcome::IdempotencyKeyReused;
    assert_eq!(commit_one(store, create(ad(1, 4, 10, "first"), 1, 100, 10)).await, created(10));
    assert_eq!(commit_one(store, create(ad(1, 4, 20, "another"), 2, 100, 20)).await, reused);
    assert_eq!(commit_one(store, create(ad(1, 4, 30, "first"), 1, 100, 30)).await, replaced(10));
    assert_eq!(commit_one(store, put(ad(1, 3, 40, "updated"), 100, 40)).await, replaced(10));
    assert_eq!(commit_one(store, repeat(2, 150, 50)).await, reused);
    assert_eq!(commit_one(store, repeat(1, 150, 50)).await, WriteOutcome::Applied);
    let batch = [create(ad(2, 4, 60, "one"), 3, 200, 60), create(ad(2, 4, 60, "other"), 4, 200, 60)];
    assert_eq!(store.commit_adverts(&batch).await.unwrap().outcomes, [created(60), reused.clone()]);
    let stored = store.load_advertisements(UnixMs(60)).await.unwrap();
    let seen: Vec<_> = stored.iter().map(|it| (&*it.advertisement.connect_data, it.expires_at)).collect();
    assert_eq!(seen, [(&b"updated"[..], UnixMs(150)), (b"one", UnixMs(200))]);
    // It has expired and is still there: the new one is another advertisement.
    assert_eq!(commit_one(store, create(ad(1, 4, 160, "another"), 2, 300, 160)).await, created(160));
    assert_eq!(commit_one(store, create(ad(1, 4, 170, "first"), 1, 300, 170)).await, reused);
    let user = ad(1, 4, 0, "").session.players[0].user;
    let erase = AdvertWrite::EraseUser { advertisement_id: ad_id(1), user, seed: [7; 16], purge_at: UnixMs(500) };
    let erased = WriteOutcome::EraseUserApplied { was_in_advertisement: true, reservations: vec![] };
    assert_eq!(commit_one(store, erase).await, erased);
    assert_eq!(
        commit_one(store, create(ad(1, 4, 180, "another"), 2, 300, 180)).await,
        reused,
        "the digest is replaced"
    );
    // Without a digest, as from version 0.2.0, nothing is compared.
    assert_eq!(commit_one(store, put(ad(3, 4, 10, "former"), 300, 180)).await, created(10));
    assert_eq!(commit_one(store, create(ad(3, 4, 190, "repeated"), 5, 300, 190)).await, replaced(10));
}

/// Each part starts with an empty store.
async fn run_all<S: Store>(open: impl AsyncFn() -> S) {
    check_advertisements(&open().await).await;
    check_reservations(&open().await).await;
    check_one_batch(&open().await).await;
    check_create_digests(&open().await).await;
    check_reservation_limit(&open().await).await;
    check_concurrent_reservations(Arc::new(open().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_advert_store_meets_the_contract() {
    run_all(async || MemoryStore::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_advert_store_meets_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let next = std::sync::atomic::AtomicU32::new(0);
    run_all(async || {
        let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        SqliteStore::open(&folder.path().join(format!("{n}.db"))).await.unwrap()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_advert_store_meets_the_contract() {
    let next = std::sync::atomic::AtomicU64::new(1);
    if create_test_database("advert store contract on Postgres").await.is_none() {
        return;
    }
    run_all(async || {
        let TestDatabase { url } = create_test_database("part of the advert store contract").await.unwrap();
        let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        PostgresStore::open(&url, FireteamReplica { id: number, silos: None }).await.unwrap()
    })
    .await;
}
