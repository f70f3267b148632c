//! Cost of the SQLite store beyond that of SQLite: goals PD1, PD3, PD5 and PD6; and START, a whole server from its start to
//! its first healthy answer.
//!
//! PD4, sqlx compared with rusqlite, cannot be built in one tree, because both link SQLite; docs/BENCHMARKS.md has it from a
//! crate of its own.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fireteam::domain::time::UnixMs;
use fireteam::store::Store;
use fireteam::store::sqlite::SqliteStore;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};
use tokio_stream::StreamExt;

use crate::harness::{clock, median};
use crate::split_mix64::SplitMix64;
use crate::store_common::{
    BATCH, BareDatabase, COMMITS, FAR_EXPIRY_MS, ROUNDS, Row, STORED, body, compare, fill, id, keys,
    measure_heartbeats, measure_publish, measure_start, publications, rate, timed,
};

pub(crate) fn run(wanted: &dyn Fn(&str) -> bool) {
    if !["PD1", "PD3", "PD5", "PD6", "PAGE", "START"].iter().any(|goal| wanted(goal)) {
        return;
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    runtime.block_on(async {
        let store = SqliteStore::open(&path).await.expect("a store");
        let mut rng = SplitMix64(1);
        fill(&store, STORED).await;
        store.checkpoint().await.expect("a settled log");
        let mut raw = BareConnection::copy_of(folder.path()).await;
        if wanted("PD1") || wanted("PD3") {
            let settled = async || store.checkpoint().await.expect("a settled log");
            let rows = measure_publish(["PD1", "PD3"], &store, settled, &mut raw, &mut rng).await;
            rows.iter().for_each(Row::print);
        }
        if wanted("PD5") {
            measure_heartbeats("PD5", &store, &mut rng).await.print();
        }
        if wanted("PD6") {
            measure_load(&store, &mut raw).await.print();
        }
    });
    if wanted("PAGE") {
        runtime.block_on(measure_page_size(folder.path(), &mut SplitMix64(2))).print();
    }
    if wanted("START") {
        let store = format!("sqlite:{}", path.display());
        measure_start("START", STORED, &["--store", &store], Duration::from_secs(1)).print();
    }
}

/// PAGE: publications with pages of 1024 bytes, the store's default, compared with pages of 4096.
async fn measure_page_size(folder: &Path, rng: &mut SplitMix64) -> Row {
    let path = folder.join("large.db");
    let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true).page_size(4_096);
    let mut large = options.connect().await.expect("a connection");
    large.execute("pragma journal_mode = wal; vacuum").await.expect("a file");
    large.close().await.expect("a closed file");
    let small = SqliteStore::open(&folder.join("small.db")).await.expect("a store");
    let large = SqliteStore::open(&path).await.expect("a store");
    fill(&small, STORED).await;
    fill(&large, STORED).await;
    let (mut subject, mut reference) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS as u64 {
        for (store, rates) in [(&small, &mut subject), (&large, &mut reference)] {
            store.checkpoint().await.expect("a settled log");
            let mut time = Duration::ZERO;
            for _ in 0..COMMITS {
                let batch = publications(&keys(rng), round);
                time += timed(async { store.commit_adverts(&batch).await.expect("a commit") }).await;
            }
            time += timed(async { store.checkpoint().await.expect("a settled log") }).await;
            rates.push(rate(COMMITS * BATCH, time));
        }
    }
    let mut load = Vec::new();
    for _ in 0..ROUNDS {
        let few = timed(async { small.load_advertisements(UnixMs(1)).await.expect("a load") }).await;
        load.push(
            few.as_secs_f64()
                / timed(async { large.load_advertisements(UnixMs(1)).await.expect("a load") }).await.as_secs_f64(),
        );
    }
    let mut row = compare("PAGE", "upserts/s, pages of 1024", &subject, "upserts/s, pages of 4096", &reference);
    row.reference.push_str(&format!("; load takes {:.2} as long with 1024", median(load)));
    row
}

/// PD6, without the index: reading and decoding all rows, compared with a bare select of the same columns.
async fn measure_load(store: &SqliteStore, raw: &mut BareConnection) -> Row {
    let (mut subject, mut reference) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut loaded = Vec::new();
        let took = timed(async { loaded = store.load_advertisements(UnixMs(1)).await.expect("a load") }).await;
        assert_eq!(loaded.len(), STORED as usize);
        subject.push(took.as_secs_f64() * 1e3);
        reference.push(timed(raw.read_all()).await.as_secs_f64() * 1e3);
    }
    compare("PD6", "ms to load 100,000", &subject, "ms for a bare select", &reference)
}

/// The database without the store: the same file format, the same settings, the same statement.
struct BareConnection {
    connection: SqliteConnection,
    /// File that is written to measure a flush.
    flushed: std::fs::File,
}

impl BareDatabase for BareConnection {
    async fn publish(&mut self, keys: &[u64], round: u64) -> Duration {
        let rows: Vec<Publication> = keys.iter().map(|k| Publication::of(*k, round)).collect();
        timed(self.write(&rows)).await
    }

    async fn flush(&mut self) -> Duration {
        self.flushed.write_all(&[1; 8_192]).expect("room");
        let started = clock();
        self.flushed.sync_data().expect("a flush");
        started.elapsed()
    }
}

/// The columns of one published advertisement, ready to bind.
struct Publication {
    id: [u8; 16],
    expires_ms: i64,
    body: String,
    connect_data: Vec<u8>,
    checksum: i64,
}

impl Publication {
    fn of(k: u64, round: u64) -> Self {
        let expires_ms = (FAR_EXPIRY_MS + round) as i64;
        Self { id: *id(k).as_bytes(), expires_ms, body: body(k, round), connect_data: vec![7; 40], checksum: k as i64 }
    }
}

impl BareConnection {
    /// A copy of the store's file, so that both write to rows of the same shape.
    async fn copy_of(folder: &Path) -> Self {
        let (from, to): (PathBuf, PathBuf) = (folder.join("store.db"), folder.join("raw.db"));
        let mut source = SqliteConnectOptions::new().filename(&from).connect().await.expect("a connection");
        let vacuum = format!("vacuum into '{}'", to.display());
        source.execute(AssertSqlSafe(vacuum)).await.expect("a copy");
        let options = SqliteConnectOptions::new()
            .filename(&to)
            .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
            .synchronous(sqlx::sqlite::SqliteSynchronous::Full)
            .foreign_keys(true)
            .pragma("secure_delete", "on")
            .pragma("cache_size", "-32768")
            .pragma("wal_autocheckpoint", "16384")
            .row_buffer_size(1_024)
            .disable_statement_logging();
        let flushed = std::fs::File::options().create(true).append(true).open(folder.join("flush")).expect("a file");
        Self { connection: options.connect().await.expect("a connection"), flushed }
    }

    async fn write(&mut self, rows: &[Publication]) {
        let mut transaction = self.connection.begin_with("begin immediate").await.expect("a transaction");
        let mut rest = rows;
        while !rest.is_empty() {
            let size = 1_usize << rest.len().ilog2();
            let (now, later) = rest.split_at(size);
            let values = vec!["(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"; size].join(",");
            let text = format!(
                "insert into advertisement (advertisement_id, silo_id, set_id, kind, since_ms, expires_ms, join_seats,
                    body, connect_data, checksum) values {values} on conflict (advertisement_id) do update set
                    silo_id = excluded.silo_id, set_id = excluded.set_id, kind = excluded.kind,
                    expires_ms = excluded.expires_ms, join_seats = excluded.join_seats, body = excluded.body,
                    connect_data = excluded.connect_data, checksum = excluded.checksum"
            );
            let mut query = sqlx::query(AssertSqlSafe(text));
            for row in now {
                query = query.bind(row.id.as_slice()).bind(0_i64).bind(1_i64).bind(0_i64).bind(1_i64);
                query = query.bind(row.expires_ms).bind(5_i64).bind(row.body.as_str());
                query = query.bind(row.connect_data.as_slice()).bind(row.checksum);
            }
            query.execute(&mut *transaction).await.expect("an upsert");
            rest = later;
        }
        transaction.commit().await.expect("a commit");
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
