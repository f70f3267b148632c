//! SEC-2: idle connections from many addresses take all places, and players with a token are served beside them.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use fireteam::auth::identity::Role;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use crate::attacker_process;
use crate::greedy_callers::{AUDIENCE, ISSUER, bearer, issuer};
use crate::raw_http2::preface;
use crate::report::{Report, attack_duration};
use crate::server_under_attack::{Latencies, ServerUnderAttack};
use crate::support::generated_client;
use crate::support::generated_client::matchmaking_service_client::MatchmakingServiceClient;
use crate::support::server_process::TEST_TIMEOUT;

/// Variable set in the attacking process: server address, number of addresses, connections per address, milliseconds.
const FLOOD_ARGS: &str = "EDGE_FLOOD";
/// Prefix of the totals on standard output.
const OUTPUT_PREFIX: &str = "flood=";

/// Limit on the time until a newcomer with a token is served.
const SERVED_WITHIN: Duration = Duration::from_secs(1);

/// Connections that the attackers try to hold: more than there are places, and fewer than a process may have descriptors.
const CONNECTIONS: usize = 12_000;

/// Tasks of the attacking process.
const ATTACKERS: usize = 50;

/// Address number `number` of a flood; ten of each IPv4 /24.
fn flood_address(number: usize) -> IpAddr {
    let [high, low] = u16::try_from(number / 10).expect("few addresses").to_be_bytes();
    Ipv4Addr::new(127, 64 + high, low, 10 + u8::try_from(number % 10).expect("a digit")).into()
}

/// Address number `number` of a player.
fn player_address(number: usize) -> IpAddr {
    let [high, low] = u16::try_from(number).expect("few players").to_be_bytes();
    Ipv4Addr::new(127, 200, high, 1 + low % 200).into()
}

/// Idle connections of one address, the oldest first.
struct FloodSource {
    address: IpAddr,
    open: VecDeque<TcpStream>,
}

/// Connections that were opened and those that the server has closed.
#[derive(Clone, Copy, Debug, Default)]
struct FloodTotals {
    opened: usize,
    closed: usize,
}

impl FloodSource {
    /// Drops connections that were closed, and opens another one if fewer than `max` are open. Returns whether it has.
    async fn step(&mut self, target: SocketAddr, max: usize, totals: &mut FloodTotals) -> bool {
        let before = self.open.len();
        self.open.retain(|connection| {
            let mut bytes = [0; 256];
            match connection.try_read(&mut bytes) {
                Ok(0) => false,
                Ok(_) => true,
                Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
            }
        });
        totals.closed += before - self.open.len();
        if self.open.len() >= max {
            return false;
        }
        match connect(target, self.address).await {
            Ok(connection) => {
                totals.opened += 1;
                self.open.push_back(connection);
            }
            Err(_) => totals.closed += 1,
        }
        true
    }
}

/// Opens a connection with a valid start.
async fn connect(target: SocketAddr, from: IpAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(from, 0))?;
    let mut connection = socket.connect(target).await?;
    connection.write_all(&preface()).await?;
    Ok(connection)
}

/// Holds `per_address` idle connections from each of `addresses` addresses, and opens closed ones again.
async fn flood(target: SocketAddr, addresses: usize, per_address: usize, duration: Duration) -> FloodTotals {
    let end = Instant::now() + duration;
    let attacker = |first: usize| async move {
        let source = |number| FloodSource { address: flood_address(number), open: VecDeque::new() };
        let mut sources: Vec<FloodSource> = (first..addresses).step_by(ATTACKERS).map(source).collect();
        let mut totals = FloodTotals::default();
        while Instant::now() < end {
            let mut is_full = true;
            for source in &mut sources {
                is_full &= !source.step(target, per_address, &mut totals).await;
            }
            if is_full {
                sleep(Duration::from_millis(20)).await;
            }
        }
        totals
    };
    let attackers: Vec<_> = (0..ATTACKERS).map(|first| tokio::spawn(attacker(first))).collect();
    let mut all = FloodTotals::default();
    for attacker in attackers {
        let one = attacker.await.expect("an attacker does not panic");
        all = FloodTotals { opened: all.opened + one.opened, closed: all.closed + one.closed };
    }
    all
}

/// Floods from a process of its own with low priority.
async fn run_flood(target: SocketAddr, addresses: usize, duration: Duration) -> FloodTotals {
    let what = format!("{target} {addresses} {} {}", CONNECTIONS / addresses, duration.as_millis());
    let test = "many_addresses::flood_from_many_addresses_leaves_places_to_players";
    let line = attacker_process::run_in_process(test, FLOOD_ARGS, what, OUTPUT_PREFIX).await;
    let words: Vec<usize> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let [opened, closed] = *words else { panic!("two numbers: {line}") };
    FloodTotals { opened, closed }
}

/// A player of its own address, connected.
async fn player(target: SocketAddr, number: usize) -> Result<MatchmakingServiceClient<Channel>, String> {
    let endpoint = Endpoint::from_shared(format!("http://{target}")).expect("a valid address");
    let endpoint = endpoint.local_address(Some(player_address(number))).timeout(TEST_TIMEOUT);
    let connected = timeout(TEST_TIMEOUT, endpoint.connect()).await.map_err(|_| "connecting takes too long")?;
    Ok(MatchmakingServiceClient::new(connected.map_err(|error| format!("no connection: {error:?}"))?))
}

/// Asks for the configuration, with a token.
async fn call(client: &mut MatchmakingServiceClient<Channel>, number: usize) -> Result<(), String> {
    let mut request = Request::new(generated_client::MatchmakingGetConfigurationRequest {
        matchmaking_set_id: Some(1),
        ..Default::default()
    });
    request.metadata_mut().insert("authorization", bearer(Role::Client, &format!("player {number}")));
    client.get_configuration(request).await.map(drop).map_err(|status| format!("a call fails: {status:?}"))
}

/// Connects one player after another and calls once, until stopped. Returns the times from the start of the connection to
/// the answer. One player stays connected and calls at the end.
fn newcomers(target: SocketAddr, mut stop: oneshot::Receiver<()>) -> JoinHandle<Result<Latencies, String>> {
    tokio::task::spawn_blocking(move || {
        Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(async {
            let mut first = player(target, 0).await?;
            call(&mut first, 0).await?;
            let (mut taken, mut number) = (Vec::new(), 0);
            while stop.try_recv().is_err() {
                number += 1;
                let started = Instant::now();
                let mut newcomer = player(target, number).await.map_err(|error| format!("{number}: {error}"))?;
                call(&mut newcomer, number).await.map_err(|error| format!("{number}: {error}"))?;
                taken.push(started.elapsed());
                sleep(Duration::from_millis(20)).await;
            }
            call(&mut first, 0).await.map_err(|error| format!("the player from before the flood: {error}"))?;
            Ok(Latencies::of(taken))
        })
    })
}

fn start() -> ServerUnderAttack {
    ServerUnderAttack::start_with(|folder| {
        std::fs::write(folder.join("jwks.json"), issuer().public_key_set()).expect("write");
        ["--auth-keys", "jwks.json", "--auth-issuer", ISSUER, "--auth-audience", AUDIENCE].map(str::to_owned).into()
    })
}

/// SEC-2: floods of idle connections from 200 and from 2,000 addresses take all places. A newcomer with a token is served
/// within a second, p99, throughout. A player who was connected before stays connected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_from_many_addresses_leaves_places_to_players() {
    if let Some(what) = std::env::var_os(FLOOD_ARGS) {
        let what = what.to_str().expect("text").to_owned();
        let words: Vec<&str> = what.split(' ').collect();
        let [target, addresses, per_address, ms] = *words else { panic!("four words: {what}") };
        let number = |word: &str| word.parse::<usize>().expect("a number");
        let duration = Duration::from_millis(number(ms) as u64);
        let totals = flood(target.parse().expect("an address"), number(addresses), number(per_address), duration).await;
        println!("\n{OUTPUT_PREFIX}{} {}", totals.opened, totals.closed);
        return;
    }
    let mut report = Report::start("flood from many addresses").await;
    for addresses in [200, 2_000] {
        let server = start();
        let before = server.resident_mib();
        let (stop, stopped) = oneshot::channel();
        let players = newcomers(server.address, stopped);
        let totals = run_flood(server.address, addresses, attack_duration(Duration::from_secs(8))).await;
        // The players have failed already if the receiver is closed.
        let _ = stop.send(());
        let growth = server.resident_mib() - before;
        report.note(format!("{addresses} addresses: {totals:?}, {growth:.1} MiB more"));
        match players.await.expect("no panic") {
            Err(error) => report.violation(format!("{addresses} addresses: {error}")),
            Ok(served) => {
                let [p50, p99] = [50, 99].map(|percent| served.percentile(percent));
                report.note(format!("  {} newcomers are served in {p50:.1?} (p50), {p99:.1?} (p99)", served.count()));
                if SERVED_WITHIN < p99 {
                    report.violation(format!("{addresses} addresses: a newcomer waits {p99:?}"));
                }
            }
        }
        if totals.opened < CONNECTIONS || totals.closed == 0 {
            report.violation(format!("{addresses} addresses: the flood did not fill the places: {totals:?}"));
        }
    }
    report.finish();
}
