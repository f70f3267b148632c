//! Contract of the store of statistics, on every backend.

use fireteam::domain::id::{RulesetHash, SetId};
use fireteam::domain::statistic::{PartySizeClass, StatisticKey, StatisticKind};
use fireteam::domain::time::UnixMs;
use fireteam::store::Store;
use fireteam::store::memory::MemoryStore;
use fireteam::store::postgres::{FireteamReplica, PostgresStore};
use fireteam::store::sqlite::SqliteStore;
use fireteam::store::statistics::{
    RULESET_STATISTICS_RETENTION_MS, STATISTICS_HOUR_MS, STATISTICS_RETENTION_MS, StatisticIncrement, StatisticsBatch,
    StatisticsQuery, StatisticsStore as _, StatisticsTotals,
};

use crate::support::database::create_test_database;

const NOW: UnixMs = UnixMs(1_000_000 * STATISTICS_HOUR_MS);

fn key(set: u32, region: &str, party_size: PartySizeClass) -> StatisticKey {
    StatisticKey {
        region: region.into(),
        party_size,
        ..StatisticKey::of_matchmaking_set(StatisticKind::EnterToPlay, SetId(set))
    }
}

fn increment(key: &StatisticKey, bucket: usize, count: u64, hours_ago: u64) -> StatisticIncrement {
    let hour = UnixMs(NOW.0 - hours_ago * STATISTICS_HOUR_MS);
    StatisticIncrement { hour_start: hour, key: key.clone(), bucket, count, sum: count as f64 * 2.5 }
}

fn batch(writer: u8, number: u64, mut increments: Vec<StatisticIncrement>) -> StatisticsBatch {
    increments.sort_by_key(|it| (it.hour_start, it.key.clone(), it.bucket));
    StatisticsBatch { writer: [writer; 16], number, increments, purges: false, now: NOW }
}

fn query() -> StatisticsQuery {
    let from = UnixMs(NOW.0 - RULESET_STATISTICS_RETENTION_MS - STATISTICS_HOUR_MS);
    let until = NOW.plus_ms(STATISTICS_HOUR_MS);
    StatisticsQuery { from, until, set_id: None, by_region: true, by_party_size: true }
}

/// Key with its nonzero buckets and its sum.
type ToldRow = (StatisticKey, Vec<(usize, u64)>, f64);

fn told(totals: &StatisticsTotals) -> Vec<ToldRow> {
    let nonzero = |counts: &[u64]| counts.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect();
    totals.counts.iter().map(|(key, counts)| (key.clone(), nonzero(&counts.counts), counts.sum)).collect()
}

async fn check_store(store: &dyn Store) {
    let [eu, us] = [key(1, "eu", PartySizeClass::One), key(1, "us", PartySizeClass::Two)];
    let other = key(2, "", PartySizeClass::One);
    let first = batch(1, 1, vec![increment(&eu, 0, 3, 0), increment(&eu, 2, 1, 0), increment(&us, 2, 4, 1)]);
    store.add_statistics(&first).await.expect("added");
    store.add_statistics(&first).await.expect("a repeated batch");
    store
        .add_statistics(&batch(2, 1, vec![increment(&eu, 0, 10, 1), increment(&other, 16, 1, 0)]))
        .await
        .expect("added");
    let all = store.read_statistics(&query()).await.expect("read");
    let expected = [
        (other.clone(), vec![(16, 1)], 2.5),
        (eu.clone(), vec![(0, 13), (2, 1)], 35.0),
        (us.clone(), vec![(2, 4)], 10.0),
    ];
    let mut found = told(&all);
    found.sort_by_key(|(key, ..)| (std::cmp::Reverse(key.set_id), key.region.clone()));
    assert_eq!(found, expected);
    assert!(!all.truncated);

    let last_hour = StatisticsQuery { from: NOW, set_id: Some(SetId(1)), ..query() };
    assert_eq!(told(&store.read_statistics(&last_hour).await.expect("read")), [(eu, vec![(0, 3), (2, 1)], 10.0)]);
    let total = StatisticsQuery { by_region: false, by_party_size: false, set_id: Some(SetId(1)), ..query() };
    let all_parties = key(1, "", PartySizeClass::All);
    assert_eq!(told(&store.read_statistics(&total).await.expect("read")), [(all_parties, vec![(0, 13), (2, 5)], 45.0)]);
}

async fn check_purge(store: &dyn Store) {
    let wait = key(3, "", PartySizeClass::One);
    let stars = StatisticKey {
        ruleset_hash: Some(RulesetHash(u32::MAX)),
        ..StatisticKey::of_matchmaking_set(StatisticKind::Feedback, SetId(3))
    };
    let others = StatisticKey::for_overflow(StatisticKind::SearchRefusals);
    let (week, quarter) =
        (STATISTICS_RETENTION_MS / STATISTICS_HOUR_MS, RULESET_STATISTICS_RETENTION_MS / STATISTICS_HOUR_MS);
    let increments = vec![
        increment(&wait, 1, 1, week),
        increment(&wait, 1, 2, week + 1),
        increment(&stars, 4, 5, quarter),
        increment(&stars, 4, 7, quarter + 1),
        increment(&others, 0, 9, 0),
    ];
    store.add_statistics(&batch(3, 1, increments)).await.expect("added");
    let of_set = async || {
        let totals = store.read_statistics(&query()).await.expect("read");
        let told = told(&totals).into_iter().filter(|(key, ..)| key.set_id.is_none_or(|set_id| set_id == SetId(3)));
        told.map(|(key, buckets, _)| (key, buckets)).collect::<Vec<_>>()
    };
    let expected = |waits, all_stars| {
        let mut rows = vec![
            (wait.clone(), vec![(1, waits)]),
            (stars.clone(), vec![(4, all_stars)]),
            (others.clone(), vec![(0, 9)]),
        ];
        rows.sort();
        rows
    };
    assert_eq!(of_set().await, expected(3, 12));
    store.add_statistics(&StatisticsBatch { purges: true, ..batch(3, 2, vec![]) }).await.expect("purged");
    assert_eq!(of_set().await, expected(1, 5));
}

/// The hours of a period are read in parts and add up. An hour in the future, from a clock that was wrong, is none of them.
async fn check_parts(store: &dyn Store) {
    let wait = key(4, "", PartySizeClass::One);
    let hours = [0, 1, 2, 3, 4, 9, 50];
    let mut increments: Vec<_> = hours.map(|hours_ago| increment(&wait, 1, 1, hours_ago)).into();
    increments
        .push(StatisticIncrement { hour_start: NOW.plus_ms(STATISTICS_HOUR_MS), ..increment(&wait, 1, 1_000, 0) });
    store.add_statistics(&batch(4, 1, increments)).await.expect("added");
    for (hours_before, count) in [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (8, 5), (9, 6), (49, 6), (50, 7), (100, 7)] {
        let from = UnixMs(NOW.0 - hours_before * STATISTICS_HOUR_MS);
        let found = store.read_statistics(&StatisticsQuery { from, set_id: Some(SetId(4)), ..query() }).await;
        let found = told(&found.expect("read"));
        assert_eq!(found, [(wait.clone(), vec![(1, count)], count as f64 * 2.5)], "{hours_before} hours before");
    }
}

/// More keys than a read returns: the first ones are complete, also if others are in the first part only.
async fn check_truncation(store: &dyn Store) {
    let keys: Vec<_> = (0..4_100).map(|number| key(5, &format!("{number:04}"), PartySizeClass::One)).collect();
    let mut number = 0;
    for (some, hours_ago) in [(&keys[..], 20), (&keys[..3_000], 1)] {
        for chunk in some.chunks(500) {
            number += 1;
            let increments = chunk.iter().map(|key| increment(key, 3, 2, hours_ago)).collect();
            store.add_statistics(&batch(5, number, increments)).await.expect("added");
        }
    }
    let found = store.read_statistics(&StatisticsQuery { set_id: Some(SetId(5)), ..query() }).await.expect("read");
    assert!(found.truncated);
    let counts: Vec<u64> = found.counts.iter().map(|(_, counts)| counts.value_count()).collect();
    assert_eq!(counts, [vec![4; 3_000], vec![2; 1_096]].concat());
    assert!(found.counts.iter().map(|(key, _)| key).eq(&keys[..4_096]));
}

#[tokio::test]
async fn statistics_add_up_in_memory() {
    let store = MemoryStore::new();
    check_store(&store).await;
    check_purge(&store).await;
    check_parts(&store).await;
    check_truncation(&store).await;
}

#[tokio::test]
async fn statistics_add_up_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = SqliteStore::open(&path).await.unwrap();
    check_store(&store).await;
    check_purge(&store).await;
    check_parts(&store).await;
    check_truncation(&store).await;
    let before = store.read_statistics(&query()).await.unwrap();
    store.close().await;
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(store.read_statistics(&query()).await.unwrap(), before, "after it was opened again");
    store.close().await;
}

#[tokio::test]
async fn statistics_add_up_in_postgres() {
    let Some(database) = create_test_database("statistics_add_up_in_postgres").await else { return };
    let store = PostgresStore::open(&database.url, FireteamReplica { id: 1, silos: None }).await.unwrap();
    check_store(&store).await;
    check_purge(&store).await;
    check_parts(&store).await;
    check_truncation(&store).await;
    store.close().await;
}
