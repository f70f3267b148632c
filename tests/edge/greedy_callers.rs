//! SEC-11: a thousand callers who each ask fifty times as often as they may, and one beside them who keeps to what is allowed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use fireteam::auth::identity::Role;
use fireteam::auth::issuing_key::{CallerTokenClaims, IssuingKey};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use crate::attacker_process;
use crate::report::{Report, scale};
use crate::server_under_attack::{Latencies, Victim};
use crate::support::generated_client;
use crate::support::generated_client::matchmaking_service_client::MatchmakingServiceClient;

/// Set in the process that is to ask: whom, in which round, how many callers there are, and for how many milliseconds.
const ASKS: &str = "EDGE_ASKS";
/// What comes before the figures on standard output.
const TOLD: &str = "asked=";

const ISSUER: &str = "the-game";
const AUDIENCE: &str = "fireteam";
/// What a client may ask, a second and at once: so little that a thousand of them can ask fifty times as much on two cores.
const PER_SECOND: f64 = 0.1;
const BURST: f64 = 10.0;
/// How many times as often they ask.
const TIMES: f64 = 50.0;
/// Connections that they share: one place has 64 at most.
const CONNECTIONS: usize = 20;
/// How often the modest one asks, who is a game server and may ask fifty times a second.
const MODEST_EVERY: Duration = Duration::from_millis(25);

fn callers() -> usize {
    (40 * scale()).min(1_000)
}

/// How long they ask in one round.
fn lasting() -> Duration {
    if scale() == 1 { Duration::from_secs(3) } else { Duration::from_secs(20) }
}

/// In the long form one after another, here and elsewhere by turns: what else the machine does is then the same for both.
fn rounds() -> usize {
    if scale() == 1 { 1 } else { 5 }
}

fn issuer() -> IssuingKey {
    IssuingKey::from_seed(&[11; 32]).unwrap()
}

fn bearer(role: Role, name: &str) -> MetadataValue<tonic::metadata::Ascii> {
    let now_s = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let issued = CallerTokenClaims {
        iss: ISSUER.into(),
        sub: name.into(),
        aud: AUDIENCE.into(),
        iat: now_s,
        exp: now_s + 600,
        role: Some(role.as_str().into()),
        scope: None,
    };
    format!("Bearer {}", issuer().sign_jwt(&issued).unwrap()).parse().unwrap()
}

/// A search by `name`, who plays for nobody else.
fn search(
    shown: &MetadataValue<tonic::metadata::Ascii>,
    name: &str,
) -> Request<generated_client::MatchmakingSearchRequest> {
    let player = generated_client::PlayerData { user_id: name.to_owned(), skill: Some(0.0), ..Default::default() };
    let session = generated_client::SessionCompositionData { players: vec![player], ..Default::default() };
    let mut request = Request::new(generated_client::MatchmakingSearchRequest {
        matchmaking_set_id: Some(1),
        session_composition: Some(session),
        ..Default::default()
    });
    request.metadata_mut().insert("authorization", shown.clone());
    request
}

async fn connect(address: SocketAddr) -> MatchmakingServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    MatchmakingServiceClient::new(endpoint.connect().await.unwrap())
}

/// What came of it for all who asked.
#[derive(Clone, Copy, Debug)]
struct Served {
    asked: u64,
    /// Refused without the time to wait, in both ways of saying it.
    unhelped: u64,
    /// Answered, and in relation to what is allowed, of the caller with least and of the one with most.
    least: f64,
    most: f64,
}

impl Served {
    fn told(&self) -> String {
        format!("{} {} {} {}", self.asked, self.unhelped, self.least, self.most)
    }

    fn of_told(told: &str) -> Self {
        let words: Vec<f64> = told.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let [asked, unhelped, least, most] = *words else { panic!("four numbers: {told}") };
        Self { asked: asked as u64, unhelped: unhelped as u64, least, most }
    }
}

/// Whether a refusal is by the quota, and says when to come back.
fn helps(status: &Status) -> bool {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let info = status.get_details_retry_info().and_then(|it| it.retry_delay);
    status.metadata().contains_key("grpc-retry-pushback-ms") && info.is_some_and(|delay| !delay.is_zero())
}

/// One caller: asks so many `times` at its rate, never waiting for an answer. Its share of what it was allowed, which is more where
/// the machine has kept it waiting.
async fn ask(
    client: MatchmakingServiceClient<Channel>,
    name: String,
    begin: Instant,
    times: u64,
    tally: Arc<Tally>,
) -> f64 {
    let shown = bearer(Role::Client, &name);
    let served = Arc::new(AtomicU64::new(0));
    let mut ticks = interval_at(begin, Duration::from_secs_f64(1.0 / (PER_SECOND * TIMES)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut waits, mut last) = (Vec::new(), begin);
    for _ in 0..times {
        ticks.tick().await;
        last = Instant::now();
        let (mut client, request) = (client.clone(), search(&shown, &name));
        let (served, tally) = (served.clone(), tally.clone());
        waits.push(tokio::spawn(async move {
            tally.asked.fetch_add(1, Ordering::Relaxed);
            match client.search(request).await {
                Ok(_) => drop(served.fetch_add(1, Ordering::Relaxed)),
                Err(status) if helps(&status) => {}
                Err(_) => drop(tally.unhelped.fetch_add(1, Ordering::Relaxed)),
            }
        }));
    }
    for wait in waits {
        wait.await.expect("an answer");
    }
    served.load(Ordering::Relaxed) as f64 / (BURST + PER_SECOND * (last - begin).as_secs_f64())
}

#[derive(Default)]
struct Tally {
    asked: AtomicU64,
    unhelped: AtomicU64,
}

async fn ask_all(address: SocketAddr, round: &str, callers: usize, long: Duration) -> Served {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(connect(address).await);
    }
    let tally = Arc::new(Tally::default());
    let times = (long.as_secs_f64() * PER_SECOND * TIMES) as u64 + 1;
    // Not all in the same moment.
    let (begin, period) =
        (Instant::now() + Duration::from_millis(500), Duration::from_secs_f64(1.0 / PER_SECOND / TIMES));
    let asking: Vec<_> = (0..callers)
        .map(|at| {
            let begin = begin + period.mul_f64(at as f64 / callers as f64);
            let client = clients[at % CONNECTIONS].clone();
            tokio::spawn(ask(client, format!("greedy {round} {at}"), begin, times, tally.clone()))
        })
        .collect();
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for one in asking {
        let share = one.await.expect("a caller does not panic");
        (least, most) = (least.min(share), most.max(share));
    }
    Served { asked: tally.asked.load(Ordering::Relaxed), unhelped: tally.unhelped.load(Ordering::Relaxed), least, most }
}

/// The same from a process of its own, which gives way to everybody.
async fn greedy(address: SocketAddr, round: usize) -> Served {
    let what = format!("{address} {round} {} {}", callers(), lasting().as_millis());
    Served::of_told(
        &attacker_process::told_by("greedy_callers::a_thousand_greedy_callers_slow_nobody", ASKS, what, TOLD).await,
    )
}

/// Asks, as often as it may, until told to stop; how long it took.
fn modest(address: SocketAddr, mut stop: oneshot::Receiver<()>) -> JoinHandle<Latencies> {
    tokio::task::spawn_blocking(move || {
        Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(async {
            let (mut client, shown) = (connect(address).await, bearer(Role::GameServer, "modest"));
            let mut taken = Vec::new();
            while stop.try_recv().is_err() {
                let begun = Instant::now();
                client.search(search(&shown, "modest")).await.expect("whoever keeps to the quota is served");
                taken.push(begun.elapsed());
                sleep(MODEST_EVERY).await;
            }
            Latencies::of(taken)
        })
    })
}

/// How long the modest one waits at `victim` while something else happens.
async fn beside<T>(victim: &Victim, what: impl Future<Output = T>) -> (Latencies, T) {
    let (stop, stopped) = oneshot::channel();
    let calls = modest(victim.address, stopped);
    let came_of_it = what.await;
    stop.send(()).expect("somebody asks");
    (calls.await.expect("every call is answered"), came_of_it)
}

fn start() -> Victim {
    let quota = format!("client.search={PER_SECOND}/{BURST}/10000");
    Victim::start_with(|folder| {
        std::fs::write(folder.join("jwks.json"), issuer().public_key_set()).expect("write");
        let named = ["--auth-keys", "jwks.json", "--auth-issuer", ISSUER, "--auth-audience", AUDIENCE];
        named.map(str::to_owned).into_iter().chain(["--rate-limits".to_owned(), quota]).collect()
    })
}

/// SEC-11: each is served what it may have, a tenth more or less, whoever is refused hears when to come back, and whoever keeps
/// to the quota is never refused. In the long form the modest one's calls are held against what they take when the same is done to
/// another server on the same two cores.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_greedy_callers_slow_nobody() {
    if let Some(what) = std::env::var_os(ASKS) {
        let what = what.to_str().expect("text").to_owned();
        let words: Vec<&str> = what.split(' ').collect();
        let [address, round, callers, ms] = *words else { panic!("four words: {what}") };
        let long = Duration::from_millis(ms.parse().expect("milliseconds"));
        let (address, callers) = (address.parse().expect("an address"), callers.parse().expect("a number"));
        let served = ask_all(address, round, callers, long).await;
        println!("\n{TOLD}{}", served.told());
        return;
    }
    let mut report = Report::begin("greedy callers").await;
    let (victim, other) = (start(), start());
    let (mut quiet, mut beside_them, mut elsewhere) = (Vec::new(), Vec::new(), Vec::new());
    let mut shares = Vec::new();
    for round in 0..rounds() {
        quiet.push(beside(&victim, sleep(lasting() / 3)).await.0);
        if 1 < scale() {
            elsewhere.push(beside(&victim, greedy(other.address, round)).await.0);
        }
        let (calls, served) = beside(&victim, greedy(victim.address, round)).await;
        beside_them.push(calls);
        shares.push(served);
    }
    let [quiet, beside_them] = [quiet, beside_them].map(Latencies::all);
    let ms = |calls: &Latencies| {
        let [p50, p99] = [50, 99].map(|percent| calls.percentile(percent).as_secs_f64() * 1e3);
        format!("p50 {p50:.2} ms, p99 {p99:.2} ms of {}", calls.count())
    };
    let (callers, long) = (callers(), lasting());
    let asked = shares.iter().map(|served| served.asked).sum::<u64>() as f64 / (long * rounds() as u32).as_secs_f64();
    let least = shares.iter().map(|served| served.least).fold(f64::INFINITY, f64::min);
    let most = shares.iter().map(|served| served.most).fold(0.0, f64::max);
    report.note(format!(
        "{callers} callers ask {asked:.0} times a second; each is served {least:.2} to {most:.2} of its quota"
    ));
    report.note(format!("one who asks as it may: quiet {}; beside them {}", ms(&quiet), ms(&beside_them)));
    let unhelped: u64 = shares.iter().map(|served| served.unhelped).sum();
    if 0 < unhelped {
        report.violated(format!("{unhelped} refusals do not say when to come back"));
    }
    // A whole call is more than a tenth of what few seconds allow.
    let slack = (1.0 / (BURST + PER_SECOND * long.as_secs_f64())).max(0.1);
    if least < 1.0 - slack || 1.0 + slack < most {
        report.violated(format!("shares are not kept to: {shares:?}"));
    }
    if !elsewhere.is_empty() {
        let elsewhere = Latencies::all(elsewhere);
        report.note(format!("the same beside another server: {}", ms(&elsewhere)));
        let machine = elsewhere.percentile(99).max(quiet.percentile(99));
        if 2 * machine < beside_them.percentile(99) {
            report.violated(format!("others wait {:?}, {machine:?} without them", beside_them.percentile(99)));
        }
    }
    report.end();
}
