//! SEC-11: a thousand callers at fifty times their rate limit, and one compliant caller beside them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use fireteam::auth::identity::Role;
use fireteam::auth::jwt_signing_key::{CallerTokenClaims, JwtSigningKey};
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
use crate::server_under_attack::{Latencies, ServerUnderAttack};
use crate::support::generated_client;
use crate::support::generated_client::matchmaking_service_client::MatchmakingServiceClient;

/// Variable set in the calling process: server address, round, number of callers, and milliseconds.
const CALLER_ARGS: &str = "EDGE_CALLERS";
/// Prefix of the totals on standard output.
const OUTPUT_PREFIX: &str = "callers=";

pub(crate) const ISSUER: &str = "test-issuer";
pub(crate) const AUDIENCE: &str = "fireteam";
/// Rate limit per client, per second and burst: so low that a thousand clients can exceed it fifty times on two cores.
const PER_SECOND: f64 = 0.1;
const BURST: f64 = 10.0;
/// Rate of a greedy caller, as a multiple of its limit.
const RATE_FACTOR: f64 = 50.0;
/// Connections that the greedy callers share; one address may have 64.
const CONNECTIONS: usize = 20;
/// Interval of the compliant caller, a game server, whose limit is fifty calls a second.
const COMPLIANT_INTERVAL: Duration = Duration::from_millis(25);

fn callers() -> usize {
    (40 * scale()).min(1_000)
}

/// Duration of one round.
fn round_duration() -> Duration {
    if scale() == 1 { Duration::from_secs(3) } else { Duration::from_secs(20) }
}

/// Rounds. The long form alternates between this server and the other one, so that other load on the machine affects both.
fn rounds() -> usize {
    if scale() == 1 { 1 } else { 5 }
}

pub(crate) fn issuer() -> JwtSigningKey {
    JwtSigningKey::from_seed(&[11; 32]).unwrap()
}

pub(crate) fn bearer(role: Role, name: &str) -> MetadataValue<tonic::metadata::Ascii> {
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

/// A search by the player `name`.
fn search(
    token: &MetadataValue<tonic::metadata::Ascii>,
    name: &str,
) -> Request<generated_client::MatchmakingSearchRequest> {
    let player = generated_client::PlayerData { user_id: name.to_owned(), skill: Some(0.0), ..Default::default() };
    let session = generated_client::SessionCompositionData { players: vec![player], ..Default::default() };
    let mut request = Request::new(generated_client::MatchmakingSearchRequest {
        matchmaking_set_id: Some(1),
        session_composition: Some(session),
        ..Default::default()
    });
    request.metadata_mut().insert("authorization", token.clone());
    request
}

async fn connect(address: SocketAddr) -> MatchmakingServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    MatchmakingServiceClient::new(endpoint.connect().await.unwrap())
}

/// Totals of all greedy callers.
#[derive(Clone, Copy, Debug)]
struct CallerTotals {
    requested: u64,
    /// Rejected calls without a retry delay in both forms.
    without_retry_delay: u64,
    /// Answered calls relative to the limit, of the caller with the fewest and of the one with the most.
    lowest_share: f64,
    highest_share: f64,
}

impl CallerTotals {
    fn to_line(self) -> String {
        format!("{} {} {} {}", self.requested, self.without_retry_delay, self.lowest_share, self.highest_share)
    }

    fn from_line(line: &str) -> Self {
        let words: Vec<f64> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let [requested, without_retry_delay, lowest_share, highest_share] = *words else {
            panic!("four numbers: {line}")
        };
        Self {
            requested: requested as u64,
            without_retry_delay: without_retry_delay as u64,
            lowest_share,
            highest_share,
        }
    }
}

/// Whether a rejection is by the rate limit, which is asserted, and has a retry delay in both forms.
fn has_retry_delay(status: &Status) -> bool {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let info = status.get_details_retry_info().and_then(|it| it.retry_delay);
    status.metadata().contains_key("grpc-retry-pushback-ms") && info.is_some_and(|delay| !delay.is_zero())
}

/// One caller: makes `times` calls at its rate, without waiting for answers. Returns its answered calls relative to its limit
/// over the time that the calls took.
async fn call_repeatedly(
    client: MatchmakingServiceClient<Channel>,
    name: String,
    begin: Instant,
    times: u64,
    counts: Arc<CallCounts>,
) -> f64 {
    let token = bearer(Role::Client, &name);
    let served = Arc::new(AtomicU64::new(0));
    let mut ticks = interval_at(begin, Duration::from_secs_f64(1.0 / (PER_SECOND * RATE_FACTOR)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut waits, mut last) = (Vec::new(), begin);
    for _ in 0..times {
        ticks.tick().await;
        last = Instant::now();
        let (mut client, request) = (client.clone(), search(&token, &name));
        let (served, counts) = (served.clone(), counts.clone());
        waits.push(tokio::spawn(async move {
            counts.requested.fetch_add(1, Ordering::Relaxed);
            match client.search(request).await {
                Ok(_) => drop(served.fetch_add(1, Ordering::Relaxed)),
                Err(status) if has_retry_delay(&status) => {}
                Err(_) => drop(counts.without_retry_delay.fetch_add(1, Ordering::Relaxed)),
            }
        }));
    }
    for wait in waits {
        wait.await.expect("an answer");
    }
    served.load(Ordering::Relaxed) as f64 / (BURST + PER_SECOND * (last - begin).as_secs_f64())
}

#[derive(Default)]
struct CallCounts {
    requested: AtomicU64,
    without_retry_delay: AtomicU64,
}

async fn run_callers(address: SocketAddr, round: &str, callers: usize, duration: Duration) -> CallerTotals {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(connect(address).await);
    }
    let counts = Arc::new(CallCounts::default());
    let times = (duration.as_secs_f64() * PER_SECOND * RATE_FACTOR) as u64 + 1;
    // Callers start at different moments.
    let (begin, period) =
        (Instant::now() + Duration::from_millis(500), Duration::from_secs_f64(1.0 / PER_SECOND / RATE_FACTOR));
    let tasks: Vec<_> = (0..callers)
        .map(|at| {
            let begin = begin + period.mul_f64(at as f64 / callers as f64);
            let client = clients[at % CONNECTIONS].clone();
            tokio::spawn(call_repeatedly(client, format!("greedy {round} {at}"), begin, times, counts.clone()))
        })
        .collect();
    let (mut lowest_share, mut highest_share) = (f64::INFINITY, 0.0_f64);
    for one in tasks {
        let share = one.await.expect("a caller does not panic");
        (lowest_share, highest_share) = (lowest_share.min(share), highest_share.max(share));
    }
    CallerTotals {
        requested: counts.requested.load(Ordering::Relaxed),
        without_retry_delay: counts.without_retry_delay.load(Ordering::Relaxed),
        lowest_share,
        highest_share,
    }
}

/// Runs the greedy callers in a process of their own with low priority.
async fn run_greedy_callers(address: SocketAddr, round: usize) -> CallerTotals {
    let what = format!("{address} {round} {} {}", callers(), round_duration().as_millis());
    CallerTotals::from_line(
        &attacker_process::run_in_process(
            "greedy_callers::greedy_callers_do_not_slow_others",
            CALLER_ARGS,
            what,
            OUTPUT_PREFIX,
        )
        .await,
    )
}

/// Calls at the allowed rate until stopped. Returns the latencies.
fn compliant(address: SocketAddr, mut stop: oneshot::Receiver<()>) -> JoinHandle<Latencies> {
    tokio::task::spawn_blocking(move || {
        Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(async {
            let (mut client, token) = (connect(address).await, bearer(Role::GameServer, "compliant"));
            let mut taken = Vec::new();
            while stop.try_recv().is_err() {
                let started = Instant::now();
                client.search(search(&token, "compliant")).await.expect("calls within the rate limit are served");
                taken.push(started.elapsed());
                sleep(COMPLIANT_INTERVAL).await;
            }
            Latencies::of(taken)
        })
    })
}

/// Latencies of the compliant caller at `server` while `what` runs.
async fn measure_during<T>(server: &ServerUnderAttack, what: impl Future<Output = T>) -> (Latencies, T) {
    let (stop, stopped) = oneshot::channel();
    let calls = compliant(server.address, stopped);
    let output = what.await;
    stop.send(()).expect("the receiver is open");
    (calls.await.expect("all calls are answered"), output)
}

fn start() -> ServerUnderAttack {
    let quota = format!("client.search={PER_SECOND}/{BURST}/10000");
    ServerUnderAttack::start_with(|folder| {
        std::fs::write(folder.join("jwks.json"), issuer().public_key_set()).expect("write");
        let named = ["--auth-keys", "jwks.json", "--auth-issuer", ISSUER, "--auth-audience", AUDIENCE];
        named.map(str::to_owned).into_iter().chain(["--rate-limits".to_owned(), quota]).collect()
    })
}

/// SEC-11: each greedy caller is served its limit, within a tenth, each rejection has a retry delay, and the compliant caller is
/// never rejected. In the long form its latencies are compared with those while the same callers call another server on the same
/// two cores.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn greedy_callers_do_not_slow_others() {
    if let Some(what) = std::env::var_os(CALLER_ARGS) {
        let what = what.to_str().expect("text").to_owned();
        let words: Vec<&str> = what.split(' ').collect();
        let [address, round, callers, ms] = *words else { panic!("four words: {what}") };
        let duration = Duration::from_millis(ms.parse().expect("milliseconds"));
        let (address, callers) = (address.parse().expect("an address"), callers.parse().expect("a number"));
        let served = run_callers(address, round, callers, duration).await;
        println!("\n{OUTPUT_PREFIX}{}", served.to_line());
        return;
    }
    let mut report = Report::start("greedy callers").await;
    let (server, other) = (start(), start());
    let (mut quiet, mut during_load, mut elsewhere) = (Vec::new(), Vec::new(), Vec::new());
    let mut shares = Vec::new();
    for round in 0..rounds() {
        quiet.push(measure_during(&server, sleep(round_duration() / 3)).await.0);
        if 1 < scale() {
            elsewhere.push(measure_during(&server, run_greedy_callers(other.address, round)).await.0);
        }
        let (calls, served) = measure_during(&server, run_greedy_callers(server.address, round)).await;
        during_load.push(calls);
        shares.push(served);
    }
    let [quiet, during_load] = [quiet, during_load].map(Latencies::all);
    let ms = |calls: &Latencies| {
        let [p50, p99] = [50, 99].map(|percent| calls.percentile(percent).as_secs_f64() * 1e3);
        format!("p50 {p50:.2} ms, p99 {p99:.2} ms of {}", calls.count())
    };
    let (callers, duration) = (callers(), round_duration());
    let requested =
        shares.iter().map(|served| served.requested).sum::<u64>() as f64 / (duration * rounds() as u32).as_secs_f64();
    let lowest_share = shares.iter().map(|served| served.lowest_share).fold(f64::INFINITY, f64::min);
    let highest_share = shares.iter().map(|served| served.highest_share).fold(0.0, f64::max);
    report.note(format!(
        "{callers} callers make {requested:.0} calls a second; each is served {lowest_share:.2} to {highest_share:.2} of its limit"
    ));
    report.note(format!("compliant caller: quiet {}; beside the greedy callers {}", ms(&quiet), ms(&during_load)));
    let without_retry_delay: u64 = shares.iter().map(|served| served.without_retry_delay).sum();
    if 0 < without_retry_delay {
        report.violation(format!("{without_retry_delay} rejections have no retry delay"));
    }
    // In a short run one call is more than a tenth of the limit.
    let slack = (1.0 / (BURST + PER_SECOND * duration.as_secs_f64())).max(0.1);
    if lowest_share < 1.0 - slack || 1.0 + slack < highest_share {
        report.violation(format!("shares differ from the limits: {shares:?}"));
    }
    if !elsewhere.is_empty() {
        let elsewhere = Latencies::all(elsewhere);
        report.note(format!("while they call another server: {}", ms(&elsewhere)));
        let machine = elsewhere.percentile(99).max(quiet.percentile(99));
        if 2 * machine < during_load.percentile(99) {
            report.violation(format!(
                "the compliant caller's p99 is {:?}, and {machine:?} without greedy callers",
                during_load.percentile(99)
            ));
        }
    }
    report.finish();
}
