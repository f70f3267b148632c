//! What the store's own work costs on top of what the database can do: goals PD1, PD3, PD5 and PD6 on SQLite; and START, a
//! whole server from its start to its first healthy answer.
//!
//! Subject and reference are taken in turns within one run: disks here are fast one minute and slow the next, so only
//! ratios mean anything. PD4, sqlx against rusqlite, cannot be built in one tree (both want to be the one that links
//! SQLite); docs/BENCHMARKS.md has it from a crate of its own.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use fireteam::domain::advertisement::{Advertisement, Kind};
use fireteam::domain::attribute::Value;
use fireteam::domain::id::{AdvertisementId, RulesetHash, SetId, UserKey};
use fireteam::domain::locality::Locality;
use fireteam::domain::session::{Player, RegionLatency, Session};
use fireteam::domain::time::UnixMs;
use fireteam::store::sqlite::Sqlite;
use fireteam::store::{Store, Write};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};
use tokio_stream::StreamExt;

use crate::harness::{clock, machine, median};
use crate::population::Dice;

/// Advertisements in the store while it is measured.
pub(super) const STORED: u64 = 100_000;
/// Changes in one commit, as group commit makes it.
pub(super) const BATCH: u64 = 1_000;
/// Rounds of subject and reference in turns.
pub(super) const ROUNDS: usize = 7;
/// Commits in one round of each.
pub(super) const COMMITS: u64 = 20;

/// One comparison.
pub(super) struct Row {
    pub(super) goal: &'static str,
    /// What was measured, and its median, with a unit.
    pub(super) subject: String,
    /// What it was held against.
    pub(super) reference: String,
    /// Subject by reference, median of the rounds.
    pub(super) ratio: f64,
    /// Least and greatest ratio of a round.
    pub(super) spread: (f64, f64),
    /// Rounds.
    pub(super) n: usize,
}

pub(crate) fn run(wanted: &dyn Fn(&str) -> bool) {
    if !["PD1", "PD3", "PD5", "PD6", "PAGE", "START"].iter().any(|goal| wanted(goal)) {
        return;
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    runtime.block_on(async {
        let store = Sqlite::open(&path).await.expect("a store");
        let mut dice = Dice(1);
        for from in (0..STORED).step_by(BATCH as usize) {
            let batch: Vec<Write> = (from..from + BATCH).map(|k| put(k, 0)).collect();
            store.commit(&batch).await.expect("a commit");
        }
        store.settle().await.expect("a settled log");
        let mut raw = Raw::copy_of(folder.path()).await;
        if wanted("PD1") || wanted("PD3") {
            publishing(&store, &mut raw, folder.path(), &mut dice).await.iter().for_each(Row::print);
        }
        if wanted("PD5") {
            heartbeats(&store, &mut dice).await.print();
        }
        if wanted("PD6") {
            loading(&store, &mut raw).await.print();
        }
    });
    if wanted("PAGE") {
        runtime.block_on(pages(folder.path(), &mut Dice(2))).print();
    }
    if wanted("START") {
        starting(&path).print();
    }
}

impl Row {
    pub(super) fn print(&self) {
        let Row { goal, subject, reference, ratio, spread: (least, greatest), n } = self;
        println!(
            "| {goal} | {subject} | {reference} | {ratio:.2} | {least:.2}-{greatest:.2} | {n} | | | | {} |",
            machine()
        );
    }
}

/// From the start of the process to its first healthy answer, killed the time before; against a second.
fn starting(path: &Path) -> Row {
    let program = env!("CARGO_BIN_EXE_fireteam");
    let free = || TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port");
    let (mut times, mut processor) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (listen, operator): (SocketAddr, SocketAddr) = (free(), free());
        let began = clock();
        let mut server = Command::new(program)
            .args(["serve", "--log-level", "warn", "--listen", &listen.to_string()])
            .args(["--operator-listen", &operator.to_string(), "--store", &format!("sqlite:{}", path.display())])
            .spawn()
            .expect("the server");
        while TcpStream::connect(listen).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let healthy =
            Command::new(program).args(["health", "--address", &listen.to_string()]).status().expect("an answer");
        times.push(began.elapsed().as_secs_f64());
        processor.push(processor_s(server.id()));
        assert!(healthy.success(), "it listens before it serves");
        server.kill().expect("a signal");
        server.wait().expect("its end");
    }
    times.sort_by(f64::total_cmp);
    let ms = median(times.clone()) * 1e3;
    Row {
        goal: "START",
        subject: format!(
            "{ms:.0} ms from start to healthy with {STORED}, {:.0} ms of processor",
            median(processor) * 1e3
        ),
        reference: "1000 ms".into(),
        ratio: ms / 1e3,
        spread: (times[0], times[times.len() - 1]),
        n: times.len(),
    }
}

/// Processor time that a process has used, seconds, in steps of 10 ms; 0 where the system does not say.
fn processor_s(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let ticks = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Pages of 1024 bytes, which the store makes, against pages of 4096: upserts in turns.
async fn pages(folder: &Path, dice: &mut Dice) -> Row {
    let path = folder.join("large.db");
    let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true).page_size(4_096);
    let mut large = options.connect().await.expect("a connection");
    large.execute("pragma journal_mode = wal; vacuum").await.expect("a file");
    large.close().await.expect("a closed file");
    let small = Sqlite::open(&folder.join("small.db")).await.expect("a store");
    let large = Sqlite::open(&path).await.expect("a store");
    for from in (0..STORED).step_by(BATCH as usize) {
        let batch: Vec<Write> = (from..from + BATCH).map(|k| put(k, 0)).collect();
        small.commit(&batch).await.expect("a commit");
        large.commit(&batch).await.expect("a commit");
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS as u64 {
        for (store, rates) in [(&small, &mut ours), (&large, &mut theirs)] {
            store.settle().await.expect("a settled log");
            let mut time = Duration::ZERO;
            for _ in 0..COMMITS {
                let keys = (0..BATCH).map(|k| k * (STORED / BATCH) + dice.below(STORED / BATCH));
                let batch: Vec<Write> = keys.map(|k| put(k, round)).collect();
                time += timed(async { store.commit(&batch).await.expect("a commit") }).await;
            }
            time += timed(async { store.settle().await.expect("a settled log") }).await;
            rates.push(rate(COMMITS * BATCH, time));
        }
    }
    let mut load = Vec::new();
    for _ in 0..ROUNDS {
        let few = timed(async { small.load(UnixMs(1)).await.expect("a load") }).await;
        load.push(
            few.as_secs_f64() / timed(async { large.load(UnixMs(1)).await.expect("a load") }).await.as_secs_f64(),
        );
    }
    let mut row = compare("PAGE", "upserts/s, pages of 1024", &ours, "upserts/s, pages of 4096", &theirs);
    row.reference.push_str(&format!("; load takes {:.2} as long with 1024", median(load)));
    row
}

/// PD1: acknowledged upserts against the same statement with its values ready. PD3: the slowest acknowledgement in a
/// hundred against three batch times and two of the disk's slowest flushes in a hundred.
async fn publishing(store: &Sqlite, raw: &mut Raw, folder: &Path, dice: &mut Dice) -> Vec<Row> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let (mut acks, mut batches, mut flushes) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS as u64 {
        let (mut our_time, mut their_time) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..COMMITS {
            let keys: Vec<u64> = (0..BATCH).map(|k| k * (STORED / BATCH) + dice.below(STORED / BATCH)).collect();
            let batch: Vec<Write> = keys.iter().map(|k| put(*k, round)).collect();
            let took = timed(async { store.commit(&batch).await.expect("a commit") }).await;
            our_time += took;
            acks.push(took);
        }
        // What was put off is paid here, and does not disturb the other side.
        our_time += timed(async { store.settle().await.expect("a settled log") }).await;
        for _ in 0..COMMITS {
            let keys: Vec<u64> = (0..BATCH).map(|k| k * (STORED / BATCH) + dice.below(STORED / BATCH)).collect();
            let rows: Vec<Publication> = keys.iter().map(|k| Publication::of(*k, round)).collect();
            let took = timed(raw.publish(&rows)).await;
            their_time += took;
            batches.push(took);
            flushes.push(flush(folder));
        }
        ours.push(rate(COMMITS * BATCH, our_time));
        theirs.push(rate(COMMITS * BATCH, their_time));
    }
    let promised = 3 * percentile(&mut batches, 50) + 2 * percentile(&mut flushes, 99);
    let (ack, batch) = (percentile(&mut acks, 99), percentile(&mut batches, 50));
    let late = ack.as_secs_f64() / promised.as_secs_f64();
    vec![
        compare("PD1", "durable upserts/s", &ours, "raw upserts/s", &theirs),
        Row {
            goal: "PD3",
            subject: format!("ack p99 {ack:.1?}, p50 {:.1?}", percentile(&mut acks, 50)),
            reference: format!("3 raw batches of {batch:.1?} + 2 flushes p99 of {:.1?}", percentile(&mut flushes, 99)),
            ratio: late,
            spread: (late, late),
            n: acks.len(),
        },
    ]
}

/// PD5, the store's part: what the heartbeats cost that are written at all, against publishing the same sessions.
async fn heartbeats(store: &Sqlite, dice: &mut Dice) -> Row {
    let (mut beats, mut puts) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS as u64 {
        let (mut beat_time, mut put_time) = (Duration::ZERO, Duration::ZERO);
        for commit in 0..COMMITS {
            let keys: Vec<u64> = (0..BATCH).map(|k| k * (STORED / BATCH) + dice.below(STORED / BATCH)).collect();
            let expires = UnixMs(MUCH_LATER + round * COMMITS + commit);
            let extend =
                |k: &u64| Write::Extend { id: id(*k), expires, confirmed: vec![], settled: vec![], now: UnixMs(1) };
            let batch: Vec<Write> = keys.iter().map(extend).collect();
            beat_time += timed(async { store.commit(&batch).await.expect("a commit") }).await;
            let batch: Vec<Write> = keys.iter().map(|k| put(*k, round)).collect();
            put_time += timed(async { store.commit(&batch).await.expect("a commit") }).await;
        }
        beats.push(rate(COMMITS * BATCH, beat_time));
        puts.push(rate(COMMITS * BATCH, put_time));
    }
    compare("PD5", "durable heartbeats/s", &beats, "durable upserts/s", &puts)
}

/// PD6, without the index: reading and decoding everything against a bare select of the same columns.
async fn loading(store: &Sqlite, raw: &mut Raw) -> Row {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut loaded = Vec::new();
        let took = timed(async { loaded = store.load(UnixMs(1)).await.expect("a load") }).await;
        assert_eq!(loaded.len(), STORED as usize);
        ours.push(took.as_secs_f64() * 1e3);
        theirs.push(timed(raw.read_all()).await.as_secs_f64() * 1e3);
    }
    compare("PD6", "ms to load 100,000", &ours, "ms for a bare select", &theirs)
}

/// The database without the store: the same file format, the same settings, the same statement.
struct Raw {
    connection: SqliteConnection,
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
        let body = format!(
            r#"{{"h":123456,"z":[1],"p":[["{0:032x}","{0:032x}",{0}.25]],"n":1,"g":false,"l":[1234.5,-3456.25,1022.125],"a":[["level",{1}.0],["maps",["a1","b2","c3"]],["mode","control"]],"r":[["eu-west",34.5],["us-east",110.0]]}}"#,
            k, round
        );
        let expires_ms = (MUCH_LATER + round) as i64;
        Self { id: *id(k).as_bytes(), expires_ms, body, connect_data: vec![7; 40], checksum: k as i64 }
    }
}

impl Raw {
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
        Self { connection: options.connect().await.expect("a connection") }
    }

    async fn publish(&mut self, rows: &[Publication]) {
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

/// Later than any `now` here.
pub(super) const MUCH_LATER: u64 = 9_000_000_000_000;

/// The k-th name: as good as random, so that neighbours in a batch are strangers in the file.
pub(super) fn id(k: u64) -> AdvertisementId {
    let mut dice = Dice(k.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (high, low) = (dice.next(), dice.next());
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&high.to_be_bytes());
    bytes[8..].copy_from_slice(&low.to_be_bytes());
    AdvertisementId::from_bytes(bytes)
}

/// A session of one player with what games usually say: some 330 bytes as JSON.
pub(super) fn put(k: u64, round: u64) -> Write {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&k.to_be_bytes());
    let user = UserKey::from_bytes(key);
    let texts = ["a1", "b2", "c3"].map(Box::from).to_vec();
    let region = |name: &str, round_trip_ms| RegionLatency { region: name.into(), round_trip_ms };
    let session = Session {
        party_sizes: vec![1],
        players: vec![Player { user, player: user, skill: Some(k as f64 + 0.25) }],
        nat_type: Some(1),
        game_in_progress: Some(false),
        join_seats: 5,
        locality: Some(Locality { x: 1234.5, y: -3456.25, z: 1022.125 }),
        attributes: vec![
            ("level".into(), Value::Number(round as f64)),
            ("maps".into(), Value::texts(texts)),
            ("mode".into(), Value::Text("control".into())),
        ],
        regions: [region("eu-west", 34.5), region("us-east", 110.0)].into(),
        ..Session::default()
    };
    let advertisement = Advertisement {
        id: id(k),
        set_id: SetId(1),
        kind: Kind::Session,
        subject: None,
        since: UnixMs(1),
        hash: RulesetHash(123_456),
        session,
        allowed: vec![],
        connect_data: vec![7; 40],
    };
    let (expires, now) = (UnixMs(MUCH_LATER + round), UnixMs(1));
    Write::Put { advertisement: Arc::new(advertisement), expires, confirmed: vec![], settled: vec![], now }
}

pub(super) async fn timed<T>(work: impl Future<Output = T>) -> Duration {
    let began = clock();
    work.await;
    began.elapsed()
}

/// How long the disk takes to keep 8 KiB, right now.
fn flush(folder: &Path) -> Duration {
    let mut file = std::fs::File::options().create(true).append(true).open(folder.join("flush")).expect("a file");
    file.write_all(&[1; 8_192]).expect("room");
    let began = clock();
    file.sync_data().expect("a flush");
    began.elapsed()
}

pub(super) fn rate(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

pub(super) fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() - 1) * percent / 100]
}

pub(super) fn compare(goal: &'static str, subject: &str, ours: &[f64], reference: &str, theirs: &[f64]) -> Row {
    let mut ratios: Vec<f64> = ours.iter().zip(theirs).map(|(our, their)| our / their).collect();
    ratios.sort_by(f64::total_cmp);
    Row {
        goal,
        subject: format!("{:.0} {subject}", median(ours.to_vec())),
        reference: format!("{:.0} {reference}", median(theirs.to_vec())),
        ratio: ratios[ratios.len() / 2],
        spread: (ratios[0], ratios[ratios.len() - 1]),
        n: ratios.len(),
    }
}
