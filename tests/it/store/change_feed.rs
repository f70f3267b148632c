//! Change feed between replicas: each change is read at once, whole, and none is skipped, however late it commits (R9).

use std::collections::BTreeSet;
use std::sync::Arc;

use fireteam::domain::id::{AdvertisementId, SiloId};
use fireteam::domain::time::UnixMs;
use fireteam::store::postgres::{FireteamReplica, PostgresStore};
use fireteam::store::{AdvertFeed, AdvertVersion, AdvertWrite, FeedBatch, Store, WriteOutcome};
use sqlx::{Connection as _, Executor as _};

use crate::store::advert_rows::{ad, ad_id, extend, put, reserve, seat_id, seats};
use crate::support::database::{TestDatabase, create_test_database};

async fn open_replica(database: &TestDatabase, number: u64) -> PostgresStore {
    PostgresStore::open(&database.url, FireteamReplica { id: number, silos: None }).await.unwrap()
}

/// A feed that has been read to its end.
async fn open_feed_at_end(store: &PostgresStore) -> Box<dyn AdvertFeed> {
    let mut feed = store.open_advert_feed().await.unwrap();
    let first = feed.read_batch(&[]).await.unwrap();
    assert!(first.is_snapshot);
    // A transaction that ran at the same time, also in another test's database, may be read again.
    feed.read_batch(&[]).await.unwrap();
    feed
}

async fn read_changes(feed: &mut Box<dyn AdvertFeed>) -> FeedBatch {
    let batch = feed.read_batch(&[]).await.unwrap();
    assert!(!batch.is_snapshot);
    batch
}

fn ids(batch: &FeedBatch) -> BTreeSet<AdvertisementId> {
    batch.changed.iter().map(|stored| stored.advertisement.id).collect()
}

/// R9: another replica reads publishes, heartbeats, seats, deletes and expiries; a replica does not read its own
/// changes.
#[tokio::test]
async fn change_feed_has_every_kind_of_write() {
    let Some(database) = create_test_database("change_feed_has_every_kind_of_write").await else { return };
    let (here, there) = (open_replica(&database, 1).await, open_replica(&database, 2).await);
    let (mut own_feed, mut feed) = (open_feed_at_end(&here).await, open_feed_at_end(&there).await);

    let committed =
        here.commit_adverts(&[put(ad(1, 4, 10, "a"), 5_000, 10), put(ad(2, 4, 10, "b"), 5_000, 10)]).await.unwrap();
    assert!(
        committed.version_steps.iter().all(|step| step.before == AdvertVersion::default() && step.after != step.before)
    );
    let batch = read_changes(&mut feed).await;
    assert_eq!(ids(&batch), BTreeSet::from([ad_id(1), ad_id(2)]));
    assert_eq!(batch.changed[0].advertisement, ad(1, 4, 10, "a"));
    assert_eq!(batch.changed[0].version, committed.version_steps[0].after);
    assert!(!batch.changed[0].is_heartbeat_owner);
    assert_eq!(read_changes(&mut feed).await.changed, [], "once only");
    assert_eq!(read_changes(&mut own_feed).await.changed, [], "a replica does not read its own changes");

    let seat = reserve(seats(1, 1, 2, 900), 20);
    let committed = there.commit_adverts(&[seat]).await.unwrap();
    assert_eq!(committed.version_steps[0].before, batch.changed[0].version, "the version that was read");
    let batch = read_changes(&mut own_feed).await;
    assert_eq!(batch.changed[0].reservations, [seats(1, 1, 2, 900)]);
    assert!(batch.changed[0].is_heartbeat_owner, "a reservation changes no heartbeat owner");

    there.commit_adverts(&[extend(1, 6_000, 30)]).await.unwrap();
    let batch = read_changes(&mut own_feed).await;
    assert_eq!((batch.changed[0].expires_at, batch.changed[0].is_heartbeat_owner), (UnixMs(6_000), false));

    there
        .commit_adverts(&[AdvertWrite::Delete { advertisement_id: ad_id(1), tombstone_until: UnixMs(9_000) }])
        .await
        .unwrap();
    there
        .commit_adverts(&[AdvertWrite::Expire {
            advertisement_id: ad_id(2),
            now: UnixMs(5_000),
            expected_version: None,
        }])
        .await
        .unwrap();
    let batch = read_changes(&mut own_feed).await;
    assert_eq!((batch.changed, batch.removed), (vec![], vec![ad_id(1), ad_id(2)]));
    let late = here.commit_adverts(&[put(ad(1, 4, 40, "late"), 9_000, 40)]).await.unwrap();
    assert_eq!(late.outcomes, [WriteOutcome::Tombstoned], "the tombstone holds on every replica");
}

/// R9: a transaction that takes its version early and commits late is read when it commits, and delays no other.
#[tokio::test]
async fn change_feed_does_not_skip_a_late_commit() {
    let Some(database) = create_test_database("change_feed_does_not_skip_a_late_commit").await else { return };
    let (here, there) = (open_replica(&database, 1).await, open_replica(&database, 2).await);
    here.commit_adverts(&[put(ad(1, 4, 10, "a"), 5_000, 10), put(ad(2, 4, 10, "b"), 5_000, 10)]).await.unwrap();
    let mut feed = open_feed_at_end(&there).await;

    // Another replica's open transaction: it has its version, and the others commit.
    let mut slow_transaction = database.connect().await;
    let mut slow_transaction = slow_transaction.begin().await.unwrap();
    let change = "with moved as (update advertisement set version = pg_current_xact_id()::text::bigint, expires_ms = 7777 \
                  where join_seats = 4 and connect_data = 'b' returning advertisement_id, version) \
                  insert into advertisement_change (batch_id, version, replica, advertisement_ids) \
                  select gen_random_uuid(), version, 3, array[advertisement_id] from moved";
    assert_eq!(slow_transaction.execute(change).await.unwrap().rows_affected(), 1);
    for n in 10..40 {
        here.commit_adverts(&[put(ad(n, 4, 10, "quick"), 5_000, 10)]).await.unwrap();
        assert_eq!(ids(&read_changes(&mut feed).await), BTreeSet::from([ad_id(n)]), "not delayed");
        assert_eq!(read_changes(&mut feed).await.changed, [], "and once only");
    }
    slow_transaction.commit().await.unwrap();
    let batch = read_changes(&mut feed).await;
    assert_eq!(ids(&batch), BTreeSet::from([ad_id(2)]));
    assert_eq!(batch.changed[0].expires_at, UnixMs(7_777));
}

/// R9: a backlog longer than one batch is read in several, and each batch includes the extra ids of the call.
#[tokio::test]
async fn change_feed_reads_a_long_backlog_in_batches() {
    let Some(database) = create_test_database("change_feed_reads_a_long_backlog_in_batches").await else { return };
    let (here, there) = (open_replica(&database, 1).await, open_replica(&database, 2).await);
    let mut feed = open_feed_at_end(&there).await;
    for n in 0..100 {
        here.commit_adverts(&[put(ad(n, 4, 10, "a"), 5_000, 10)]).await.unwrap();
    }
    let (mut all, mut batches) = (BTreeSet::new(), 0);
    loop {
        let batch = feed.read_batch(&[ad_id(7)]).await.unwrap();
        assert!(batch.changed.iter().any(|it| it.advertisement.id == ad_id(7)));
        all.extend(ids(&batch));
        batches += 1;
        if !batch.has_more {
            break;
        }
    }
    assert_eq!(all.len(), 100);
    assert!(3 < batches, "{batches}");
    assert_eq!(feed.read_batch(&[ad_id(999)]).await.unwrap().removed, [ad_id(999)]);
}

/// A replica with a list of silos loads and reads only their advertisements.
#[tokio::test]
async fn change_feed_is_limited_to_the_replicas_silos() {
    let Some(database) = create_test_database("change_feed_is_limited_to_the_replicas_silos").await else { return };
    let here = open_replica(&database, 1).await;
    let mine = SiloId(u64::MAX - 1);
    let replica_of_silo = |number, silo| FireteamReplica { id: number, silos: Some(vec![silo]) };
    let same_silo = PostgresStore::open(&database.url, replica_of_silo(2, mine)).await.unwrap();
    let other = PostgresStore::open(&database.url, replica_of_silo(3, SiloId(5))).await.unwrap();
    here.commit_adverts(&[put(ad(1, 4, 10, "a"), 5_000, 10)]).await.unwrap();
    for (store, expected) in [(&same_silo, 1), (&other, 0)] {
        let mut feed = store.open_advert_feed().await.unwrap();
        assert_eq!(feed.read_batch(&[]).await.unwrap().changed.len(), expected);
        here.commit_adverts(&[put(ad(1, 4, 10, "b"), 5_000, 10)]).await.unwrap();
        assert_eq!(feed.read_batch(&[]).await.unwrap().changed.len(), expected);
    }
}

/// R1, R5: 64 reservations of 10 seats on 4 replicas, each sent twice to two replicas: 10 are made, once each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reserve_on_four_replicas_never_exceeds_the_seats() {
    let Some(database) = create_test_database("reserve_on_four_replicas_never_exceeds_the_seats").await else { return };
    let mut servers = Vec::new();
    for number in 1..=4 {
        servers.push(Arc::new(open_replica(&database, number).await));
    }
    servers[0].commit_adverts(&[put(ad(1, 10, 0, "rush"), 9_000, 0)]).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..128_usize {
        let store = Arc::clone(&servers[(n * 7 + n / 64) % 4]);
        tasks.spawn(
            async move { store.commit_adverts(&[reserve(seats((n % 64) as u32, 1, 1, 900), 1)]).await.unwrap() },
        );
    }
    let outcomes = tasks.join_all().await.into_iter().flat_map(|committed| committed.outcomes);
    let (mut reserved, mut again, mut full) = (0, 0, 0);
    for outcome in outcomes {
        match outcome {
            WriteOutcome::SeatsReserved { is_retry: false, .. } => reserved += 1,
            WriteOutcome::SeatsReserved { is_retry: true, .. } => again += 1,
            WriteOutcome::NotEnoughSeats { open_seats: 0 } => full += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((reserved, again, full), (10, 10, 108));
    assert_eq!(servers[3].load_advertisements(UnixMs(1)).await.unwrap()[0].reservations.len(), 10);
}

/// R9: of a publish and a delete of one advertisement on two replicas, each runs wholly before or after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publish_and_delete_on_two_replicas_are_serialized() {
    let Some(database) = create_test_database("publish_and_delete_on_two_replicas_are_serialized").await else {
        return;
    };
    let (here, there) = (Arc::new(open_replica(&database, 1).await), Arc::new(open_replica(&database, 2).await));
    for n in 0..40 {
        let (one, other) = (Arc::clone(&here), Arc::clone(&there));
        let published =
            tokio::spawn(async move { one.commit_adverts(&[put(ad(n, 1, 10, "a"), 5_000, 10)]).await.unwrap() });
        let delete = AdvertWrite::Delete { advertisement_id: ad_id(n), tombstone_until: UnixMs(9_000) };
        let deleted = tokio::spawn(async move { other.commit_adverts(&[delete]).await.unwrap() });
        let (published, deleted) = (published.await.unwrap(), deleted.await.unwrap());
        assert_eq!(deleted.outcomes, [WriteOutcome::Applied]);
        let again = here.commit_adverts(&[put(ad(n, 1, 10, "b"), 5_000, 11)]).await.unwrap();
        assert_eq!(again.outcomes, [WriteOutcome::Tombstoned], "after {:?}", published.outcomes);
    }
    assert_eq!(here.load_advertisements(UnixMs(11)).await.unwrap(), []);
}

/// An idempotency key used for two advertisements on two replicas at once makes one reservation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reserve_with_one_key_on_two_replicas_is_one_reservation() {
    let Some(database) = create_test_database("reserve_with_one_key_on_two_replicas_is_one_reservation").await else {
        return;
    };
    let (here, there) = (Arc::new(open_replica(&database, 1).await), Arc::new(open_replica(&database, 2).await));
    here.commit_adverts(&[put(ad(1, 90, 0, "a"), 9_000, 0), put(ad(2, 90, 0, "b"), 9_000, 0)]).await.unwrap();
    for n in 0..40 {
        let (one, other) = (Arc::clone(&here), Arc::clone(&there));
        let first = tokio::spawn(async move { one.commit_adverts(&[reserve(seats(n, 1, 1, 900), 1)]).await.unwrap() });
        let second =
            tokio::spawn(async move { other.commit_adverts(&[reserve(seats(n, 2, 1, 900), 1)]).await.unwrap() });
        let outcomes = [first.await.unwrap().outcomes[0].clone(), second.await.unwrap().outcomes[0].clone()];
        let reserved =
            outcomes.iter().filter(|it| matches!(it, WriteOutcome::SeatsReserved { is_retry: false, .. })).count();
        assert_eq!(
            (reserved, outcomes.contains(&WriteOutcome::IdempotencyKeyReused)),
            (1, true),
            "{} {outcomes:?}",
            seat_id(n)
        );
    }
}
