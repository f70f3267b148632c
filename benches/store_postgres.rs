//! Cost of the Postgres store beyond that of Postgres: goals PD1 to PD3, PD5, PD6, PF1 and PF2; REBUILD, the start of a whole
//! server; and the database of PH1, one machine that runs server, clients and Postgres.
//!
//! Needs a database of its own to fill and empty: `FIRETEAM_BENCH_POSTGRES=postgres://… cargo bench -- PG`. As in
//! `store_sqlite.rs`, subject and reference alternate within one run, and only ratios are meaningful.

use std::time::Duration;

use fireteam::domain::time::UnixMs;
use fireteam::store::postgres::{FireteamReplica, PostgresStore};
use fireteam::store::{AdvertWrite, Store};
use sqlx::postgres::{PgConnection, PgListener, PgPoolOptions};
use sqlx::types::Uuid;
use sqlx::{Connection, Executor};
use tokio_stream::StreamExt;

use crate::harness::{clock, quantile_of};
use crate::split_mix64::SplitMix64;
use crate::store_common::{
    BATCH, BareDatabase, COMMITS, FAR_EXPIRY_MS, ROUNDS, Row, STORED, body, compare, fill, id, keys,
    measure_heartbeats, measure_publish, measure_start, publication, publications, rate, timed,
};

/// Changes that are measured one by one.
const SINGLE_CHANGES: usize = 300;

/// Advertisements of the large store.
const MANY: u64 = 1_000_000;

/// URL of a database that may be filled and emptied.
pub(crate) fn database() -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "the variable names a database that the benchmark may fill")]
    std::env::var("FIRETEAM_BENCH_POSTGRES").ok()
}

pub(crate) fn run(wanted: &dyn Fn(&str) -> bool) {
    if !["PG1", "PG2", "PG5", "PG6", "PF1", "PF2", "REBUILD"].iter().any(|goal| wanted(goal)) {
        return;
    }
    let Some(url) = database() else {
        println!("SKIPPED: PD, PF and REBUILD on Postgres: set FIRETEAM_BENCH_POSTGRES to a database to fill");
        return;
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let here = open(&url, 1).await;
        let mut raw = BareConnection::connect(&url).await;
        raw.connection
            .execute("truncate advertisement, reservation, advertisement_change")
            .await
            .expect("an empty database");
        fill(&here, STORED).await;
        raw.connection.execute("vacuum analyze").await.expect("a tidy database");
        let mut rng = SplitMix64(1);
        if wanted("PG1") {
            let rows = measure_publish(["PD1 pg", "PD3 pg"], &here, async || {}, &mut raw, &mut rng).await;
            rows.iter().for_each(Row::print);
        }
        if wanted("PG2") {
            one_by_one(&here, &url, &mut rng).await.iter().for_each(Row::print);
        }
        if wanted("PG5") {
            measure_heartbeats("PD5 pg", &here, &mut rng).await.print();
        }
        if wanted("PG6") {
            measure_load(&here, &mut raw, STORED).await.print();
        }
        if wanted("PF1") {
            measure_feed_latency(&here, &url, &mut rng).await.iter().for_each(Row::print);
        }
        if wanted("PF2") {
            measure_feed_throughput(&here, &open(&url, 2).await, &mut raw, &mut rng).await.print();
        }
        if wanted("REBUILD") {
            measure_rebuild(&here, &url, &mut raw).await;
        }
    });
}

async fn open(url: &str, number: u64) -> PostgresStore {
    PostgresStore::open(url, FireteamReplica { id: number, silos: None }).await.expect("a store")
}

/// PD2: batches compared with one row per commit, on one connection and on 32.
async fn one_by_one(store: &PostgresStore, url: &str, rng: &mut SplitMix64) -> Vec<Row> {
    let (mut subject, mut one, mut many) = (Vec::new(), Vec::new(), Vec::new());
    let mut waiting = Vec::new();
    for _ in 0..32 {
        waiting.push(BareConnection::connect(url).await);
    }
    for round in 0..ROUNDS as u64 {
        let batch: Vec<Vec<AdvertWrite>> = (0..COMMITS).map(|_| publications(&keys(rng), round)).collect();
        let took = timed(async {
            for batch in &batch {
                store.commit_adverts(batch).await.expect("a commit");
            }
        });
        subject.push(rate(COMMITS * BATCH, took.await));
        let rows: Vec<Rows> = keys(rng).into_iter().take(200).map(|k| Rows::of(&[k], round)).collect();
        let single = &mut waiting[0];
        let took = timed(async {
            for row in &rows {
                single.write(row).await;
            }
        });
        one.push(rate(200, took.await));
        let mut tasks = tokio::task::JoinSet::new();
        let started = clock();
        for (mut raw, part) in waiting.drain(..).zip(0..) {
            let rows: Vec<Rows> = (0..30).map(|k| Rows::of(&[(part * 3_000 + k * 97) % STORED], round)).collect();
            tasks.spawn(async move {
                for row in &rows {
                    raw.write(row).await;
                }
                raw
            });
        }
        waiting = tasks.join_all().await;
        many.push(rate(32 * 30, started.elapsed()));
    }
    vec![
        compare("PD2 pg", "durable upserts/s", &subject, "one row a commit, one connection", &one),
        compare("PD2 pg", "durable upserts/s", &subject, "one row a commit, 32 connections", &many),
    ]
}

/// PD6, without the index: reading all rows as a server does at its start, compared with a bare select.
async fn measure_load(store: &PostgresStore, raw: &mut BareConnection, stored: u64) -> Row {
    let (mut subject, mut reference) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut feed = store.open_advert_feed().await.expect("a feed");
        let mut updates = None;
        let took = timed(async { updates = Some(feed.read_batch(&[]).await.expect("a reading")) }).await;
        assert_eq!(updates.map(|updates| updates.changed.len()), Some(stored as usize));
        subject.push(took.as_secs_f64() * 1e3);
        reference.push(timed(raw.read_all(stored)).await.as_secs_f64() * 1e3);
    }
    compare("PD6 pg", &format!("ms to read {stored}"), &subject, "ms for a bare select", &reference)
}

/// REBUILD: the real server, from its start to its first healthy answer; PD6 with as many rows.
async fn measure_rebuild(store: &PostgresStore, url: &str, raw: &mut BareConnection) {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("token-key").display().to_string();
    let match_key = folder.path().join("match-key.pem").display().to_string();
    let arguments = ["--store", url, "--token-key-file", &key, "--match-key-file", &match_key];
    measure_start("REBUILD", STORED, &arguments, Duration::from_secs(2)).print();
    fill(store, MANY).await;
    raw.connection.execute("vacuum analyze").await.expect("a tidy database");
    measure_start("REBUILD", MANY, &arguments, Duration::from_secs(15)).print();
    measure_load(store, raw, MANY).await.print();
}

/// PF1: from the start of a commit at one server until another has read it. Compared with a bare notification, which stores
/// and reads nothing, and with the minimum for a visible change: one statement that changes a row and notifies, and one that
/// reads the row.
async fn measure_feed_latency(here: &PostgresStore, url: &str, rng: &mut SplitMix64) -> Vec<Row> {
    let there = open(url, 2).await;
    let mut feed = there.open_advert_feed().await.expect("a feed");
    feed.read_batch(&[]).await.expect("a reading");
    feed.wait_for_changes().await;
    let pool = PgPoolOptions::new().max_connections(1).connect(url).await.expect("a pool");
    let mut listener = PgListener::connect_with(&pool).await.expect("a listener");
    listener.listen("bench").await.expect("listening");
    let (mut raw, mut reader) = (BareConnection::connect(url).await, BareConnection::connect(url).await);
    let (mut subject, mut bare, mut least) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..SINGLE_CHANGES as u64 {
        // Notifications are limited to ten per second; after a pause the next is sent immediately.
        tokio::time::sleep(Duration::from_millis(110)).await;
        let started = clock();
        here.commit_adverts(&[publication(rng.below(STORED), round)]).await.expect("a commit");
        while feed.read_batch(&[]).await.expect("a reading").changed.is_empty() {
            feed.wait_for_changes().await;
        }
        subject.push(started.elapsed().as_secs_f64() * 1e6);
        let started = clock();
        raw.connection.execute("notify bench").await.expect("a notification");
        listener.recv().await.expect("a notification");
        bare.push(started.elapsed().as_secs_f64() * 1e6);
        let changed = Uuid::from_bytes(*id(rng.below(STORED)).as_bytes());
        let started = clock();
        raw.change_and_notify(changed).await;
        listener.recv().await.expect("a notification");
        reader.read_one(changed).await;
        least.push(started.elapsed().as_secs_f64() * 1e6);
    }
    let row = |goal, at: f64, what: &str, subject: &mut [f64], reference: &mut [f64]| {
        let (our, their) = (quantile_of(subject, at), quantile_of(reference, at));
        let (subject, reference) = (format!("{our:.0} us, p{:.0}", at * 100.0), format!("{their:.0} us, {what}"));
        Row { goal, subject, reference, ratio: our / their, spread: (our / their, our / their), n: SINGLE_CHANGES }
    };
    vec![
        row("PF1 p50", 0.5, "a bare notification", &mut subject, &mut bare),
        row("PF1 p99", 0.99, "a bare notification", &mut subject, &mut bare),
        row("PF1 p50", 0.5, "commit, notify and select", &mut subject, &mut least),
        row("PF1 p99", 0.99, "commit, notify and select", &mut subject, &mut least),
    ]
}

/// PF2: rows that one server commits and another reads, compared with the plain statement alone.
async fn measure_feed_throughput(
    here: &PostgresStore,
    there: &PostgresStore,
    raw: &mut BareConnection,
    rng: &mut SplitMix64,
) -> Row {
    let mut feed = there.open_advert_feed().await.expect("a feed");
    feed.read_batch(&[]).await.expect("a reading");
    let (mut subject, mut reference) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS as u64 {
        let batches: Vec<Vec<AdvertWrite>> = (0..COMMITS).map(|_| publications(&keys(rng), round)).collect();
        let started = clock();
        let commits = async {
            for batch in &batches {
                here.commit_adverts(batch).await.expect("a commit");
            }
        };
        let reads = async {
            let mut rows = 0;
            // A row that two batches have changed may be read once.
            let last = batches.last().map(|batch| batch.iter().map(AdvertWrite::advertisement_id).collect::<Vec<_>>());
            let mut missing: std::collections::BTreeSet<_> = last.into_iter().flatten().collect();
            while !missing.is_empty() {
                feed.wait_for_changes().await;
                loop {
                    let updates = feed.read_batch(&[]).await.expect("a reading");
                    rows += updates.changed.len();
                    for stored in &updates.changed {
                        if stored.expires_at == UnixMs(FAR_EXPIRY_MS + round) {
                            missing.remove(&stored.advertisement.id);
                        }
                    }
                    if !updates.has_more {
                        break;
                    }
                }
            }
            rows
        };
        let ((), rows) = tokio::join!(commits, reads);
        assert!(0 < rows);
        subject.push(rate(COMMITS * BATCH, started.elapsed()));
        let rows: Vec<Rows> = (0..COMMITS).map(|_| Rows::of(&keys(rng), round)).collect();
        let took = timed(async {
            for rows in &rows {
                raw.write(rows).await;
            }
        });
        reference.push(rate(COMMITS * BATCH, took.await));
    }
    compare("PF2", "committed here and read there/s", &subject, "raw upserts/s", &reference)
}

/// The database without the store: the same table, the plain statement.
struct BareConnection {
    connection: PgConnection,
}

/// The columns of some published advertisements, ready to bind.
struct Rows {
    ids: Vec<Uuid>,
    expires_ms: Vec<i64>,
    bodies: Vec<String>,
    connect_data: Vec<Vec<u8>>,
}

impl Rows {
    fn of(keys: &[u64], round: u64) -> Self {
        Self {
            ids: keys.iter().map(|k| Uuid::from_bytes(*id(*k).as_bytes())).collect(),
            expires_ms: vec![(FAR_EXPIRY_MS + round) as i64; keys.len()],
            bodies: keys.iter().map(|k| body(*k, round)).collect(),
            connect_data: vec![vec![7; 40]; keys.len()],
        }
    }
}

impl BareDatabase for BareConnection {
    async fn publish(&mut self, keys: &[u64], round: u64) -> Duration {
        let rows = Rows::of(keys, round);
        timed(self.write(&rows)).await
    }

    /// A minimal commit.
    async fn flush(&mut self) -> Duration {
        let changed = Uuid::from_bytes(*id(0).as_bytes());
        let update = sqlx::query("update advertisement set version = 1 where advertisement_id = $1").bind(changed);
        timed(async { update.execute(&mut self.connection).await.expect("a commit") }).await
    }
}

impl BareConnection {
    async fn connect(url: &str) -> Self {
        Self { connection: PgConnection::connect(url).await.expect("a connection") }
    }

    async fn write(&mut self, rows: &Rows) {
        let text = "insert into advertisement (advertisement_id, version, heartbeat_owner, silo_id, set_id, kind, since_ms,
                        expires_ms, join_seats, body, connect_data)
                    select u.id, 1, 1, 0, 1, 0, 1, u.expires_ms, 5, u.body, u.connect_data
                      from unnest($1::uuid[], $2::bigint[], $3::text[], $4::bytea[]) as u (id, expires_ms, body, connect_data)
                        on conflict (advertisement_id) do update
                       set version = excluded.version, heartbeat_owner = excluded.heartbeat_owner, silo_id = excluded.silo_id,
                           set_id = excluded.set_id, kind = excluded.kind, expires_ms = excluded.expires_ms,
                           join_seats = excluded.join_seats, body = excluded.body, connect_data = excluded.connect_data";
        let query =
            sqlx::query(text).bind(&rows.ids).bind(&rows.expires_ms).bind(&rows.bodies).bind(&rows.connect_data);
        query.execute(&mut self.connection).await.expect("an upsert");
    }

    async fn change_and_notify(&mut self, changed: Uuid) {
        let text =
            "with changed as (update advertisement set version = 1 where advertisement_id = $1 returning version)
                    select pg_notify('bench', '')::text from changed";
        sqlx::query(text).bind(changed).fetch_all(&mut self.connection).await.expect("a commit");
    }

    async fn read_one(&mut self, changed: Uuid) {
        let text = "select * from advertisement where advertisement_id = $1";
        sqlx::query(text).bind(changed).fetch_all(&mut self.connection).await.expect("a row");
    }

    async fn read_all(&mut self, stored: u64) {
        let mut rows = self.connection.fetch("select * from advertisement");
        let mut count = 0;
        while let Some(row) = rows.next().await {
            row.expect("a row");
            count += 1;
        }
        assert_eq!(count, stored);
    }
}
