//! What the store that servers share costs on top of what Postgres can do: goals PD1 to PD3, PD5, PD6, PF1 and PF2; and
//! REBUILD, a server's picture from the store.
//!
//! Wants a database of its own to fill and empty: `FIRETEAM_BENCH_POSTGRES=postgres://… cargo bench -- PG`. As in
//! `store.rs`, subject and reference take turns within one run, and only ratios mean anything.

use std::sync::Arc;
use std::time::Duration;

use fireteam::domain::advertisement::Advertisement;
use fireteam::domain::time::UnixMs;
use fireteam::store::postgres::{Postgres, Replica};
use fireteam::store::{Store, Write};
use sqlx::postgres::{PgConnection, PgListener, PgPoolOptions};
use sqlx::types::Uuid;
use sqlx::{Connection, Executor};
use tokio_stream::StreamExt;

use crate::harness::{clock, quantile_of};
use crate::population::Dice;
use crate::store::{BATCH, COMMITS, MUCH_LATER, ROUNDS, Row, STORED, compare, id, percentile, put, rate, timed};

/// Changes that are waited for one by one.
const LONELY: usize = 300;

pub(crate) fn run(wanted: &dyn Fn(&str) -> bool) {
    if !["PG1", "PG2", "PG5", "PG6", "PF1", "PF2", "REBUILD"].iter().any(|goal| wanted(goal)) {
        return;
    }
    #[expect(clippy::disallowed_methods, reason = "a benchmark is told where a database is that it may fill")]
    let Ok(url) = std::env::var("FIRETEAM_BENCH_POSTGRES") else {
        println!("SKIPPED: PD, PF and REBUILD on Postgres: set FIRETEAM_BENCH_POSTGRES to a database to fill");
        return;
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let here = open(&url, 1).await;
        let mut raw = Raw::connect(&url).await;
        raw.connection.execute("truncate advertisement, reservation, change").await.expect("an empty database");
        for from in (0..STORED).step_by(BATCH as usize) {
            let batch: Vec<Write> = (from..from + BATCH).map(|k| put(k, 0)).collect();
            here.commit(&batch).await.expect("a commit");
        }
        raw.connection.execute("vacuum analyze").await.expect("a tidy database");
        let mut dice = Dice(1);
        if wanted("PG1") {
            publishing(&here, &mut raw, &mut dice).await.iter().for_each(Row::print);
        }
        if wanted("PG2") {
            one_by_one(&here, &url, &mut dice).await.iter().for_each(Row::print);
        }
        if wanted("PG5") {
            heartbeats(&here, &mut dice).await.print();
        }
        if wanted("PG6") || wanted("REBUILD") {
            loading(&here, &mut raw).await.iter().for_each(Row::print);
        }
        if wanted("PF1") {
            seen_elsewhere(&here, &url, &mut dice).await.iter().for_each(Row::print);
        }
        if wanted("PF2") {
            following(&here, &open(&url, 2).await, &mut raw, &mut dice).await.print();
        }
    });
}

async fn open(url: &str, number: u64) -> Postgres {
    Postgres::open(url, Replica { number, silos: None }).await.expect("a store")
}

fn keys(dice: &mut Dice) -> Vec<u64> {
    (0..BATCH).map(|k| k * (STORED / BATCH) + dice.below(STORED / BATCH)).collect()
}

/// PD1: acknowledged upserts against the plain statement with its values ready. PD3: the slowest acknowledgement in a
/// hundred against three of its batches and two of its emptiest commits, which are the disk's flushes.
async fn publishing(store: &Postgres, raw: &mut Raw, dice: &mut Dice) -> Vec<Row> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let (mut acks, mut batches, mut flushes) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS as u64 {
        let (mut our_time, mut their_time) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..COMMITS {
            let batch: Vec<Write> = keys(dice).into_iter().map(|k| put(k, round)).collect();
            let took = timed(async { store.commit(&batch).await.expect("a commit") }).await;
            our_time += took;
            acks.push(took);
            let rows = Rows::of(&keys(dice), round);
            let took = timed(raw.publish(&rows)).await;
            their_time += took;
            batches.push(took);
            flushes.push(timed(raw.flush()).await);
        }
        ours.push(rate(COMMITS * BATCH, our_time));
        theirs.push(rate(COMMITS * BATCH, their_time));
    }
    let promised = 3 * percentile(&mut batches, 50) + 2 * percentile(&mut flushes, 99);
    let (ack, batch) = (percentile(&mut acks, 99), percentile(&mut batches, 50));
    let late = ack.as_secs_f64() / promised.as_secs_f64();
    vec![
        compare("PD1 pg", "durable upserts/s", &ours, "raw upserts/s", &theirs),
        Row {
            goal: "PD3 pg",
            subject: format!("ack p99 {ack:.1?}, p50 {:.1?}", percentile(&mut acks, 50)),
            reference: format!("3 raw batches of {batch:.1?} + 2 flushes p99 of {:.1?}", percentile(&mut flushes, 99)),
            ratio: late,
            spread: (late, late),
            n: acks.len(),
        },
    ]
}

/// PD2: batches against one row for each commit, on one connection and on 32.
async fn one_by_one(store: &Postgres, url: &str, dice: &mut Dice) -> Vec<Row> {
    let (mut ours, mut one, mut many) = (Vec::new(), Vec::new(), Vec::new());
    let mut crowd = Vec::new();
    for _ in 0..32 {
        crowd.push(Raw::connect(url).await);
    }
    for round in 0..ROUNDS as u64 {
        let batch: Vec<Vec<Write>> =
            (0..COMMITS).map(|_| keys(dice).into_iter().map(|k| put(k, round)).collect()).collect();
        let took = timed(async {
            for batch in &batch {
                store.commit(batch).await.expect("a commit");
            }
        });
        ours.push(rate(COMMITS * BATCH, took.await));
        let rows: Vec<Rows> = keys(dice).into_iter().take(200).map(|k| Rows::of(&[k], round)).collect();
        let lonely = &mut crowd[0];
        let took = timed(async {
            for row in &rows {
                lonely.publish(row).await;
            }
        });
        one.push(rate(200, took.await));
        let mut tasks = tokio::task::JoinSet::new();
        let began = clock();
        for (mut raw, part) in crowd.drain(..).zip(0..) {
            let rows: Vec<Rows> = (0..30).map(|k| Rows::of(&[(part * 3_000 + k * 97) % STORED], round)).collect();
            tasks.spawn(async move {
                for row in &rows {
                    raw.publish(row).await;
                }
                raw
            });
        }
        crowd = tasks.join_all().await;
        many.push(rate(32 * 30, began.elapsed()));
    }
    vec![
        compare("PD2 pg", "durable upserts/s", &ours, "one row a commit, one connection", &one),
        compare("PD2 pg", "durable upserts/s", &ours, "one row a commit, 32 connections", &many),
    ]
}

/// PD5, the store's part.
async fn heartbeats(store: &Postgres, dice: &mut Dice) -> Row {
    let (mut beats, mut puts) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS as u64 {
        let (mut beat_time, mut put_time) = (Duration::ZERO, Duration::ZERO);
        for commit in 0..COMMITS {
            let expires = UnixMs(MUCH_LATER + round * COMMITS + commit);
            let extend =
                |k: u64| Write::Extend { id: id(k), expires, confirmed: vec![], settled: vec![], now: UnixMs(1) };
            let batch: Vec<Write> = keys(dice).into_iter().map(extend).collect();
            beat_time += timed(async { store.commit(&batch).await.expect("a commit") }).await;
            let batch: Vec<Write> = keys(dice).into_iter().map(|k| put(k, round)).collect();
            put_time += timed(async { store.commit(&batch).await.expect("a commit") }).await;
        }
        beats.push(rate(COMMITS * BATCH, beat_time));
        puts.push(rate(COMMITS * BATCH, put_time));
    }
    compare("PD5 pg", "durable heartbeats/s", &beats, "durable upserts/s", &puts)
}

/// PD6 and REBUILD, without the index: reading everything as a starting server does, against a bare select.
async fn loading(store: &Postgres, raw: &mut Raw) -> Vec<Row> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut feed = store.feed().await.expect("a feed");
        let mut read = 0;
        let took = timed(async { read = feed.read(&[]).await.expect("a reading").changed.len() }).await;
        assert_eq!(read, STORED as usize);
        ours.push(took.as_secs_f64() * 1e3);
        theirs.push(timed(raw.read_all()).await.as_secs_f64() * 1e3);
    }
    let rebuild: Vec<f64> = vec![2_000.0; ours.len()];
    vec![
        compare("PD6 pg", "ms to read 100,000", &ours, "ms for a bare select", &theirs),
        compare("REBUILD", "ms to read 100,000", &ours, "ms asked, index included", &rebuild),
    ]
}

/// PF1: from a commit's begin at one server until another has read it, against a bare notification's round.
async fn seen_elsewhere(here: &Postgres, url: &str, dice: &mut Dice) -> Vec<Row> {
    let there = open(url, 2).await;
    let mut feed = there.feed().await.expect("a feed");
    feed.read(&[]).await.expect("a reading");
    feed.wait().await;
    let pool = PgPoolOptions::new().max_connections(1).connect(url).await.expect("a pool");
    let mut listener = PgListener::connect_with(&pool).await.expect("a listener");
    listener.listen("bench").await.expect("listening");
    let mut raw = Raw::connect(url).await;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..LONELY as u64 {
        // The bell may be rung ten times a second: whoever changes something now and then is heard at once.
        tokio::time::sleep(Duration::from_millis(110)).await;
        let began = clock();
        here.commit(&[put(dice.below(STORED), round)]).await.expect("a commit");
        while feed.read(&[]).await.expect("a reading").changed.is_empty() {
            feed.wait().await;
        }
        ours.push(began.elapsed().as_secs_f64() * 1e6);
        let began = clock();
        raw.connection.execute("notify bench").await.expect("a notification");
        listener.recv().await.expect("a notification");
        theirs.push(began.elapsed().as_secs_f64() * 1e6);
    }
    let row = |goal, at: f64, ours: &mut [f64], theirs: &mut [f64]| {
        let (our, their) = (quantile_of(ours, at), quantile_of(theirs, at));
        let (subject, reference) = (format!("{our:.0} us, p{:.0}", at * 100.0), format!("{their:.0} us, bare"));
        Row { goal, subject, reference, ratio: our / their, spread: (our / their, our / their), n: LONELY }
    };
    vec![row("PF1 p50", 0.5, &mut ours, &mut theirs), row("PF1 p99", 0.99, &mut ours, &mut theirs)]
}

/// PF2: what one server commits and another reads, against the plain statement alone.
async fn following(here: &Postgres, there: &Postgres, raw: &mut Raw, dice: &mut Dice) -> Row {
    let mut feed = there.feed().await.expect("a feed");
    feed.read(&[]).await.expect("a reading");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS as u64 {
        let batches: Vec<Vec<Write>> =
            (0..COMMITS).map(|_| keys(dice).into_iter().map(|k| put(k, round)).collect()).collect();
        let began = clock();
        let commits = async {
            for batch in &batches {
                here.commit(batch).await.expect("a commit");
            }
        };
        let reads = async {
            let mut rows = 0;
            // A row that two batches have changed may be read once.
            let last = batches.last().map(|batch| batch.iter().map(Write::advertisement_id).collect::<Vec<_>>());
            let mut missing: std::collections::BTreeSet<_> = last.into_iter().flatten().collect();
            while !missing.is_empty() {
                feed.wait().await;
                loop {
                    let news = feed.read(&[]).await.expect("a reading");
                    rows += news.changed.len();
                    for stored in &news.changed {
                        if stored.expires == UnixMs(MUCH_LATER + round) {
                            missing.remove(&stored.advertisement.id);
                        }
                    }
                    if !news.more {
                        break;
                    }
                }
            }
            rows
        };
        let ((), rows) = tokio::join!(commits, reads);
        assert!(0 < rows);
        ours.push(rate(COMMITS * BATCH, began.elapsed()));
        let rows: Vec<Rows> = (0..COMMITS).map(|_| Rows::of(&keys(dice), round)).collect();
        let took = timed(async {
            for rows in &rows {
                raw.publish(rows).await;
            }
        });
        theirs.push(rate(COMMITS * BATCH, took.await));
    }
    compare("PF2", "committed here and read there/s", &ours, "raw upserts/s", &theirs)
}

/// The database without the store: the same table, the plain statement.
struct Raw {
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
        let body = |k: &u64| match put(*k, round) {
            Write::Put { advertisement, .. } => text(&advertisement),
            _ => String::new(),
        };
        Self {
            ids: keys.iter().map(|k| Uuid::from_bytes(*id(*k).as_bytes())).collect(),
            expires_ms: vec![(MUCH_LATER + round) as i64; keys.len()],
            bodies: keys.iter().map(body).collect(),
            connect_data: vec![vec![7; 40]; keys.len()],
        }
    }
}

/// As many bytes as the store writes.
fn text(advertisement: &Arc<Advertisement>) -> String {
    let user = format!("{:032x}", advertisement.since.0);
    format!(
        r#"{{"h":123456,"z":[1],"p":[["{user}","{user}",{}.25]],"n":1,"g":false,"l":[1234.5,-3456.25,1022.125],"a":[["level",1.0],["maps",["a1","b2","c3"]],["mode","control"]],"r":[["eu-west",34.5],["us-east",110.0]]}}"#,
        advertisement.since.0
    )
}

impl Raw {
    async fn connect(url: &str) -> Self {
        Self { connection: PgConnection::connect(url).await.expect("a connection") }
    }

    async fn publish(&mut self, rows: &Rows) {
        let text = "insert into advertisement (advertisement_id, version, holder, silo_id, set_id, kind, since_ms,
                        expires_ms, join_seats, body, connect_data)
                    select u.id, 1, 1, 0, 1, 0, 1, u.expires_ms, 5, u.body, u.connect_data
                      from unnest($1::uuid[], $2::bigint[], $3::text[], $4::bytea[]) as u (id, expires_ms, body, connect_data)
                        on conflict (advertisement_id) do update
                       set version = excluded.version, holder = excluded.holder, silo_id = excluded.silo_id,
                           set_id = excluded.set_id, kind = excluded.kind, expires_ms = excluded.expires_ms,
                           join_seats = excluded.join_seats, body = excluded.body, connect_data = excluded.connect_data";
        let query =
            sqlx::query(text).bind(&rows.ids).bind(&rows.expires_ms).bind(&rows.bodies).bind(&rows.connect_data);
        query.execute(&mut self.connection).await.expect("an upsert");
    }

    /// A commit of next to nothing.
    async fn flush(&mut self) {
        let text = "update advertisement set version = 1 where advertisement_id = $1";
        sqlx::query(text)
            .bind(Uuid::from_bytes(*id(0).as_bytes()))
            .execute(&mut self.connection)
            .await
            .expect("a commit");
    }

    async fn read_all(&mut self) {
        let mut rows = self.connection.fetch("select * from advertisement");
        let mut count = 0;
        while let Some(row) = rows.next().await {
            row.expect("a row");
            count += 1;
        }
        assert_eq!(count, STORED);
    }
}
