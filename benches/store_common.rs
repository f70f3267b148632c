//! Parts that the store goals share: stored rows, alternating rounds of the store and a bare database, and the start of a
//! whole server.
//!
//! Disk speed varies from minute to minute, so only ratios within one run are meaningful.

use std::future::Future;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use fireteam::domain::advertisement::{Advertisement, AdvertisementKind};
use fireteam::domain::attribute::AttributeValue;
use fireteam::domain::id::{AdvertisementId, RulesetHash, SetId, UserKey};
use fireteam::domain::locality::Locality;
use fireteam::domain::session::{Player, RegionLatency, Session};
use fireteam::domain::time::UnixMs;
use fireteam::store::{AdvertWrite, Store};

use crate::goals::describe;
use crate::harness::{clock, machine, median};
use crate::split_mix64::SplitMix64;

/// Advertisements in the store during a measurement.
pub(super) const STORED: u64 = 100_000;
/// Changes in one commit, as in a batch of the writer.
pub(super) const BATCH: u64 = 1_000;
/// Alternating rounds of subject and reference.
pub(super) const ROUNDS: usize = 7;
/// Commits of each side in one round.
pub(super) const COMMITS: u64 = 20;

/// One comparison.
pub(super) struct Row {
    pub(super) goal: &'static str,
    /// The subject and its median, with a unit.
    pub(super) subject: String,
    /// The reference and its median.
    pub(super) reference: String,
    /// Subject / reference, median of the rounds.
    pub(super) ratio: f64,
    /// Lowest and highest ratio of a round.
    pub(super) spread: (f64, f64),
    /// Number of rounds.
    pub(super) n: usize,
}

impl Row {
    pub(super) fn print(&self) {
        let Row { goal, subject, reference, ratio, spread: (least, greatest), n } = self;
        let subject = describe(goal, subject);
        println!(
            "| {goal} | {subject} | {reference} | {ratio:.2} | {least:.2}-{greatest:.2} | {n} | | | | {} |",
            machine()
        );
    }
}

/// A database without the store: the same rows, the plain statement, prepared values.
pub(super) trait BareDatabase {
    /// Commits `keys`. Returns the time without the preparation of the values.
    async fn publish(&mut self, keys: &[u64], round: u64) -> Duration;

    /// Time of a minimal durable write.
    async fn flush(&mut self) -> Duration;
}

/// PD1: acknowledged publications compared with the plain statement and prepared values. PD3: p99 of the acknowledgements
/// compared with three of its batches and two p99 flushes. `settled` finishes deferred work of the store within its time, so
/// that it does not slow the reference.
pub(super) async fn measure_publish(
    [rate_goal, ack_goal]: [&'static str; 2],
    store: &impl Store,
    settled: impl AsyncFn(),
    bare: &mut impl BareDatabase,
    rng: &mut SplitMix64,
) -> Vec<Row> {
    let (mut subject, mut reference) = (Vec::new(), Vec::new());
    let (mut acks, mut batches, mut flushes) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS as u64 {
        let (mut our_time, mut their_time) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..COMMITS {
            let batch = publications(&keys(rng), round);
            let took = timed(async { store.commit_adverts(&batch).await.expect("a commit") }).await;
            our_time += took;
            acks.push(took);
        }
        our_time += timed(settled()).await;
        for _ in 0..COMMITS {
            let took = bare.publish(&keys(rng), round).await;
            their_time += took;
            batches.push(took);
            flushes.push(bare.flush().await);
        }
        subject.push(rate(COMMITS * BATCH, our_time));
        reference.push(rate(COMMITS * BATCH, their_time));
    }
    let limit = 3 * percentile(&mut batches, 50) + 2 * percentile(&mut flushes, 99);
    let (ack, batch) = (percentile(&mut acks, 99), percentile(&mut batches, 50));
    let ratio = ack.as_secs_f64() / limit.as_secs_f64();
    vec![
        compare(rate_goal, "durable upserts/s", &subject, "raw upserts/s", &reference),
        Row {
            goal: ack_goal,
            subject: format!("ack p99 {ack:.1?}, p50 {:.1?}", percentile(&mut acks, 50)),
            reference: format!("3 raw batches of {batch:.1?} + 2 flushes p99 of {:.1?}", percentile(&mut flushes, 99)),
            ratio,
            spread: (ratio, ratio),
            n: acks.len(),
        },
    ]
}

/// PD5, the store's part: heartbeats that are written, compared with publications of the same sessions.
pub(super) async fn measure_heartbeats(goal: &'static str, store: &impl Store, rng: &mut SplitMix64) -> Row {
    let (mut beats, mut replaced) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS as u64 {
        let (mut beat_time, mut put_time) = (Duration::ZERO, Duration::ZERO);
        for commit in 0..COMMITS {
            let keys = keys(rng);
            let expires = UnixMs(FAR_EXPIRY_MS + round * COMMITS + commit);
            let extend = |k: &u64| AdvertWrite::ExtendTtl {
                advertisement_id: id(*k),
                expires_at: expires,
                confirmed_reservations: vec![],
                joined_reservations: vec![],
                create_digest: None,
                now: UnixMs(1),
            };
            let batch: Vec<AdvertWrite> = keys.iter().map(extend).collect();
            beat_time += timed(async { store.commit_adverts(&batch).await.expect("a commit") }).await;
            let batch = publications(&keys, round);
            put_time += timed(async { store.commit_adverts(&batch).await.expect("a commit") }).await;
        }
        beats.push(rate(COMMITS * BATCH, beat_time));
        replaced.push(rate(COMMITS * BATCH, put_time));
    }
    compare(goal, "durable heartbeats/s", &beats, "durable upserts/s", &replaced)
}

/// Time from the start of the process to its first healthy answer, after a kill, with `count` advertisements in the store that
/// `arguments` name; compared with `limit`.
pub(super) fn measure_start(goal: &'static str, count: u64, arguments: &[&str], limit: Duration) -> Row {
    // The server rejects unknown variables that start with its prefix.
    let program = || {
        let mut program = Command::new(env!("CARGO_BIN_EXE_fireteam"));
        program.env_remove("FIRETEAM_BENCH_POSTGRES");
        program
    };
    let free = || TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port");
    let (mut ratios, mut processor) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (listen, operator): (SocketAddr, SocketAddr) = (free(), free());
        let started = clock();
        let mut server = program()
            .args(["serve", "--log-level", "warn", "--listen", &listen.to_string()])
            .args(["--operator-listen", &operator.to_string()])
            .args(arguments)
            .spawn()
            .expect("the server");
        while TcpStream::connect(listen).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let healthy = program().args(["health", "--address", &listen.to_string()]).status().expect("an answer");
        ratios.push(started.elapsed().as_secs_f64() / limit.as_secs_f64());
        processor.push(processor_s(server.id()));
        assert!(healthy.success(), "it listens before it serves");
        server.kill().expect("a signal");
        server.wait().expect("its end");
    }
    ratios.sort_by(f64::total_cmp);
    let (ratio, processor_ms) = (median(ratios.clone()), median(processor) * 1e3);
    let ms = ratio * limit.as_secs_f64() * 1e3;
    Row {
        goal,
        subject: format!("{ms:.0} ms from start to healthy with {count}, {processor_ms:.0} ms of processor"),
        reference: format!("{} ms", limit.as_millis()),
        ratio,
        spread: (ratios[0], ratios[ratios.len() - 1]),
        n: ratios.len(),
    }
}

/// CPU time of a process, seconds, in steps of 10 ms; 0 where the system does not report it.
fn processor_s(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let ticks = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Publishes `count` advertisements.
pub(super) async fn fill(store: &impl Store, count: u64) {
    for from in (0..count).step_by(BATCH as usize) {
        store.commit_adverts(&publications(&(from..from + BATCH).collect::<Vec<_>>(), 0)).await.expect("a commit");
    }
}

/// Keys of one batch, spread over the table, each once.
pub(super) fn keys(rng: &mut SplitMix64) -> Vec<u64> {
    (0..BATCH).map(|k| k * (STORED / BATCH) + rng.below(STORED / BATCH)).collect()
}

pub(super) fn publications(keys: &[u64], round: u64) -> Vec<AdvertWrite> {
    keys.iter().map(|k| publication(*k, round)).collect()
}

/// An expiry later than any `now` here.
pub(super) const FAR_EXPIRY_MS: u64 = 9_000_000_000_000;

/// The k-th id: pseudo-random, so that rows of a batch are not adjacent in the file.
pub(super) fn id(k: u64) -> AdvertisementId {
    let mut rng = SplitMix64(k.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (high, low) = (rng.next(), rng.next());
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&high.to_be_bytes());
    bytes[8..].copy_from_slice(&low.to_be_bytes());
    AdvertisementId::from_bytes(bytes)
}

/// A session of one player with typical attributes: some 330 bytes as JSON.
pub(super) fn publication(k: u64, round: u64) -> AdvertWrite {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&k.to_be_bytes());
    let user = UserKey::from_bytes(key);
    let texts = ["a1", "b2", "c3"].map(Box::from).to_vec();
    let region = |name: &str, round_trip_ms| RegionLatency { region: name.into(), round_trip_ms };
    let session = Session {
        party_sizes: [1].into(),
        players: vec![Player { stated_skill: Some(k as f64 + 0.25), ..Player::from_user(user) }],
        nat_type: Some(1),
        game_in_progress: Some(false),
        offered_seats: 5,
        locality: Some(Locality { x: 1234.5, y: -3456.25, z: 1022.125 }),
        attributes: vec![
            ("level".into(), AttributeValue::Number(round as f64)),
            ("maps".into(), AttributeValue::from_string_list(texts)),
            ("mode".into(), AttributeValue::String("control".into())),
        ],
        region_latencies: [region("eu-west", 34.5), region("us-east", 110.0)].into(),
        ..Session::default()
    };
    let advertisement = Advertisement {
        id: id(k),
        set_id: SetId(1),
        kind: AdvertisementKind::Session,
        publisher: None,
        advertised_since: UnixMs(1),
        ruleset_hash: RulesetHash(123_456),
        session,
        ttl_ms: None,
        allowed_ranges: Box::default(),
        connect_data: [7; 40].into(),
        probe: None,
    };
    let (expires, now) = (UnixMs(FAR_EXPIRY_MS + round), UnixMs(1));
    AdvertWrite::Publish {
        advertisement: Arc::new(advertisement),
        expires_at: expires,
        confirmed_reservations: vec![],
        joined_reservations: vec![],
        owner: None,
        create_digest: None,
        now,
    }
}

pub(super) async fn timed<T>(work: impl Future<Output = T>) -> Duration {
    let started = clock();
    work.await;
    started.elapsed()
}

pub(super) fn rate(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

pub(super) fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() - 1) * percent / 100]
}

pub(super) fn compare(
    goal: &'static str,
    subject: &str,
    subject_values: &[f64],
    reference: &str,
    reference_values: &[f64],
) -> Row {
    let mut ratios: Vec<f64> = subject_values.iter().zip(reference_values).map(|(our, their)| our / their).collect();
    ratios.sort_by(f64::total_cmp);
    Row {
        goal,
        subject: format!("{:.0} {subject}", median(subject_values.to_vec())),
        reference: format!("{:.0} {reference}", median(reference_values.to_vec())),
        ratio: ratios[ratios.len() / 2],
        spread: (ratios[0], ratios[ratios.len() - 1]),
        n: ratios.len(),
    }
}

/// Text as long as the store's JSON column of a session.
pub(super) fn body(k: u64, round: u64) -> String {
    format!(
        r#"{{"h":123456,"z":[1],"p":[["{k:032x}","{k:032x}",{k}.25]],"n":1,"g":false,"l":[1234.5,-3456.25,1022.125],"a":[["level",{round}.0],["maps",["a1","b2","c3"]],["mode","control"]],"r":[["eu-west",34.5],["us-east",110.0]]}}"#
    )
}
