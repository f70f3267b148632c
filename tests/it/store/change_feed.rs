//! What one server changes, another reads: at once, whole, and none skipped, however late it was committed (R9).

use std::collections::BTreeSet;
use std::sync::Arc;

use fireteam::domain::id::{AdvertisementId, SiloId};
use fireteam::domain::time::UnixMs;
use fireteam::store::postgres::{PostgresStore, Replica};
use fireteam::store::{AdvertFeed, AdvertVersion, AdvertWrite, FeedBatch, Store, WriteOutcome};
use sqlx::{Connection as _, Executor as _};

use crate::store::advert_rows::{ad, ad_id, extend, put, reserve, seat_id, seats};
use crate::support::database::{TestDatabase, create_test_database};

async fn server(database: &TestDatabase, number: u64) -> PostgresStore {
    PostgresStore::open(&database.url, Replica { id: number, silos: None }).await.unwrap()
}

/// A reader that has read everything there is.
async fn reader(store: &PostgresStore) -> Box<dyn AdvertFeed> {
    let mut feed = store.open_feed().await.unwrap();
    let first = feed.read_batch(&[]).await.unwrap();
    assert!(first.is_snapshot);
    // A transaction that ran meanwhile, be it in another test's database, has some of it read once more.
    feed.read_batch(&[]).await.unwrap();
    feed
}

async fn news(feed: &mut Box<dyn AdvertFeed>) -> FeedBatch {
    let news = feed.read_batch(&[]).await.unwrap();
    assert!(!news.is_snapshot);
    news
}

fn ids(news: &FeedBatch) -> BTreeSet<AdvertisementId> {
    news.changed.iter().map(|stored| stored.advertisement.id).collect()
}

/// R9: publishing, heartbeats, seats, deletes and expiries travel; one's own changes do not come back.
#[tokio::test]
async fn everything_travels() {
    let Some(database) = create_test_database("everything_travels").await else { return };
    let (here, there) = (server(&database, 1).await, server(&database, 2).await);
    let (mut own, mut feed) = (reader(&here).await, reader(&there).await);

    let committed = here.commit(&[put(ad(1, 4, 10, "a"), 5_000, 10), put(ad(2, 4, 10, "b"), 5_000, 10)]).await.unwrap();
    assert!(
        committed.version_steps.iter().all(|step| step.before == AdvertVersion::default() && step.after != step.before)
    );
    let told = news(&mut feed).await;
    assert_eq!(ids(&told), BTreeSet::from([ad_id(1), ad_id(2)]));
    assert_eq!(told.changed[0].advertisement, ad(1, 4, 10, "a"));
    assert_eq!(told.changed[0].version, committed.version_steps[0].after);
    assert!(!told.changed[0].is_heartbeat_owner);
    assert_eq!(news(&mut feed).await.changed, [], "once");
    assert_eq!(news(&mut own).await.changed, [], "not to oneself");

    let seat = reserve(seats(1, 1, 2, 900), 20);
    let committed = there.commit(&[seat]).await.unwrap();
    assert_eq!(committed.version_steps[0].before, told.changed[0].version, "it found what it had been told of");
    let told = news(&mut own).await;
    assert_eq!(told.changed[0].reservations, [seats(1, 1, 2, 900)]);
    assert!(told.changed[0].is_heartbeat_owner, "taking seats makes nobody a holder");

    there.commit(&[extend(1, 6_000, 30)]).await.unwrap();
    let told = news(&mut own).await;
    assert_eq!((told.changed[0].expires_at, told.changed[0].is_heartbeat_owner), (UnixMs(6_000), false));

    there.commit(&[AdvertWrite::Delete { advertisement_id: ad_id(1), tombstone_until: UnixMs(9_000) }]).await.unwrap();
    there
        .commit(&[AdvertWrite::Expire { advertisement_id: ad_id(2), now: UnixMs(5_000), expected_version: None }])
        .await
        .unwrap();
    let told = news(&mut own).await;
    assert_eq!((told.changed, told.removed), (vec![], vec![ad_id(1), ad_id(2)]));
    let late = here.commit(&[put(ad(1, 4, 40, "late"), 9_000, 40)]).await.unwrap();
    assert_eq!(late.outcomes, [WriteOutcome::Tombstoned], "deleted by one is deleted for all");
}

/// R9: a transaction that takes its number early and commits late is read when it commits, and holds nobody up.
#[tokio::test]
async fn a_late_commit_is_not_skipped() {
    let Some(database) = create_test_database("a_late_commit_is_not_skipped").await else { return };
    let (here, there) = (server(&database, 1).await, server(&database, 2).await);
    here.commit(&[put(ad(1, 4, 10, "a"), 5_000, 10), put(ad(2, 4, 10, "b"), 5_000, 10)]).await.unwrap();
    let mut feed = reader(&there).await;

    // Another server's transaction, stopped half-way: it has its number, and the others go on.
    let mut slow = database.connect().await;
    let mut slow = slow.begin().await.unwrap();
    let change = "with moved as (update advertisement set version = pg_current_xact_id()::text::bigint, expires_ms = 7777 \
                  where join_seats = 4 and connect_data = 'b' returning advertisement_id, version) \
                  insert into change (batch_id, version, replica, advertisement_ids) \
                  select gen_random_uuid(), version, 3, array[advertisement_id] from moved";
    assert_eq!(slow.execute(change).await.unwrap().rows_affected(), 1);
    for n in 10..40 {
        here.commit(&[put(ad(n, 4, 10, "quick"), 5_000, 10)]).await.unwrap();
        assert_eq!(ids(&news(&mut feed).await), BTreeSet::from([ad_id(n)]), "not held up");
        assert_eq!(news(&mut feed).await.changed, [], "nor told twice");
    }
    slow.commit().await.unwrap();
    let told = news(&mut feed).await;
    assert_eq!(ids(&told), BTreeSet::from([ad_id(2)]));
    assert_eq!(told.changed[0].expires_at, UnixMs(7_777));
}

/// R9: what is more than one look takes is read in several, and what is asked for besides comes with it.
#[tokio::test]
async fn a_long_absence_is_made_up_for() {
    let Some(database) = create_test_database("a_long_absence_is_made_up_for").await else { return };
    let (here, there) = (server(&database, 1).await, server(&database, 2).await);
    let mut feed = reader(&there).await;
    for n in 0..100 {
        here.commit(&[put(ad(n, 4, 10, "a"), 5_000, 10)]).await.unwrap();
    }
    let (mut all, mut looks) = (BTreeSet::new(), 0);
    loop {
        let told = feed.read_batch(&[ad_id(7)]).await.unwrap();
        assert!(told.changed.iter().any(|it| it.advertisement.id == ad_id(7)));
        all.extend(ids(&told));
        looks += 1;
        if !told.has_more {
            break;
        }
    }
    assert_eq!(all.len(), 100);
    assert!(3 < looks, "{looks}");
    assert_eq!(feed.read_batch(&[ad_id(999)]).await.unwrap().removed, [ad_id(999)]);
}

/// A server that is given silos loads and hears of no others.
#[tokio::test]
async fn silos_are_kept_apart() {
    let Some(database) = create_test_database("silos_are_kept_apart").await else { return };
    let here = server(&database, 1).await;
    let mine = SiloId(u64::MAX - 1);
    let serves = |number, silo| Replica { id: number, silos: Some(vec![silo]) };
    let fits = PostgresStore::open(&database.url, serves(2, mine)).await.unwrap();
    let other = PostgresStore::open(&database.url, serves(3, SiloId(5))).await.unwrap();
    here.commit(&[put(ad(1, 4, 10, "a"), 5_000, 10)]).await.unwrap();
    for (store, expected) in [(&fits, 1), (&other, 0)] {
        let mut feed = store.open_feed().await.unwrap();
        assert_eq!(feed.read_batch(&[]).await.unwrap().changed.len(), expected);
        here.commit(&[put(ad(1, 4, 10, "b"), 5_000, 10)]).await.unwrap();
        assert_eq!(feed.read_batch(&[]).await.unwrap().changed.len(), expected);
    }
}

/// R1, R5: 64 takers of 10 seats over 4 servers, each of them twice and on two servers: 10 sit, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seats_are_taken_once_over_servers() {
    let Some(database) = create_test_database("seats_are_taken_once_over_servers").await else { return };
    let mut servers = Vec::new();
    for number in 1..=4 {
        servers.push(Arc::new(server(&database, number).await));
    }
    servers[0].commit(&[put(ad(1, 10, 0, "rush"), 9_000, 0)]).await.unwrap();
    let mut takers = tokio::task::JoinSet::new();
    for n in 0..128_usize {
        let store = Arc::clone(&servers[(n * 7 + n / 64) % 4]);
        takers.spawn(async move { store.commit(&[reserve(seats((n % 64) as u32, 1, 1, 900), 1)]).await.unwrap() });
    }
    let outcomes = takers.join_all().await.into_iter().flat_map(|committed| committed.outcomes);
    let (mut seated, mut again, mut full) = (0, 0, 0);
    for outcome in outcomes {
        match outcome {
            WriteOutcome::SeatsReserved { is_replay: false, .. } => seated += 1,
            WriteOutcome::SeatsReserved { is_replay: true, .. } => again += 1,
            WriteOutcome::NotEnoughSeats { open_seats: 0 } => full += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((seated, again, full), (10, 10, 108));
    assert_eq!(servers[3].load_advertisements(UnixMs(1)).await.unwrap()[0].reservations.len(), 10);
}

/// R9: an advertisement that one server publishes anew and another deletes is, for both, one or the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishing_and_deleting_take_turns() {
    let Some(database) = create_test_database("publishing_and_deleting_take_turns").await else { return };
    let (here, there) = (Arc::new(server(&database, 1).await), Arc::new(server(&database, 2).await));
    for n in 0..40 {
        let (one, other) = (Arc::clone(&here), Arc::clone(&there));
        let published = tokio::spawn(async move { one.commit(&[put(ad(n, 1, 10, "a"), 5_000, 10)]).await.unwrap() });
        let delete = AdvertWrite::Delete { advertisement_id: ad_id(n), tombstone_until: UnixMs(9_000) };
        let deleted = tokio::spawn(async move { other.commit(&[delete]).await.unwrap() });
        let (published, deleted) = (published.await.unwrap(), deleted.await.unwrap());
        assert_eq!(deleted.outcomes, [WriteOutcome::Applied]);
        let again = here.commit(&[put(ad(n, 1, 10, "b"), 5_000, 11)]).await.unwrap();
        assert_eq!(again.outcomes, [WriteOutcome::Tombstoned], "after {:?}", published.outcomes);
    }
    assert_eq!(here.load_advertisements(UnixMs(11)).await.unwrap(), []);
}

/// A reservation of the same name in two advertisements, on two servers at once, is one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_is_one_reservation() {
    let Some(database) = create_test_database("one_key_is_one_reservation").await else { return };
    let (here, there) = (Arc::new(server(&database, 1).await), Arc::new(server(&database, 2).await));
    here.commit(&[put(ad(1, 90, 0, "a"), 9_000, 0), put(ad(2, 90, 0, "b"), 9_000, 0)]).await.unwrap();
    for n in 0..40 {
        let (one, other) = (Arc::clone(&here), Arc::clone(&there));
        let first = tokio::spawn(async move { one.commit(&[reserve(seats(n, 1, 1, 900), 1)]).await.unwrap() });
        let second = tokio::spawn(async move { other.commit(&[reserve(seats(n, 2, 1, 900), 1)]).await.unwrap() });
        let outcomes = [first.await.unwrap().outcomes[0].clone(), second.await.unwrap().outcomes[0].clone()];
        let taken =
            outcomes.iter().filter(|it| matches!(it, WriteOutcome::SeatsReserved { is_replay: false, .. })).count();
        assert_eq!(
            (taken, outcomes.contains(&WriteOutcome::IdempotencyKeyReused)),
            (1, true),
            "{} {outcomes:?}",
            seat_id(n)
        );
    }
}
