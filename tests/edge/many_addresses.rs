//! SEC-2: idle connections from many addresses take all places, and players with a token are served beside them.

mod flood;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use fireteam::auth::identity::Role;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use crate::greedy_callers::{AUDIENCE, ISSUER, bearer, issuer};
use crate::report::{Report, attack_duration, scale};
use crate::server_under_attack::{Latencies, ServerUnderAttack};
use crate::support::generated_client;
use crate::support::generated_client::matchmaking_service_client::MatchmakingServiceClient;
use crate::support::network_namespace;
use crate::support::server_process::TEST_TIMEOUT;

use flood::{CONNECTIONS, FloodSources};

/// Limit on the time until a newcomer with a token is served.
const SERVED_WITHIN: Duration = Duration::from_secs(1);

/// Shell script that prepares a network namespace: connections may come from any address of these networks, which are
/// reserved for documentation.
const SOURCE_NETWORKS: &str = "ip -6 route add local 2001:db8::/32 dev lo && ip -6 route add local 3fff::/20 dev lo \
                               && echo 1 >/proc/sys/net/ipv6/ip_nonlocal_bind";

/// Address number `number` of a player, each of a network of its own with IPv6.
fn player_address(server: SocketAddr, number: usize) -> IpAddr {
    let number = u16::try_from(number).expect("few players");
    let [high, low] = number.to_be_bytes();
    match server {
        SocketAddr::V4(_) => Ipv4Addr::new(127, 200, high, 1 + low % 200).into(),
        SocketAddr::V6(_) => Ipv6Addr::new(0x3fff, 0, number, 0, 0, 0, 0, 1).into(),
    }
}

/// A player of its own address, connected.
async fn player(target: SocketAddr, number: usize) -> Result<MatchmakingServiceClient<Channel>, String> {
    let endpoint = Endpoint::from_shared(format!("http://{target}")).expect("a valid address");
    let endpoint = endpoint.local_address(Some(player_address(target, number))).timeout(TEST_TIMEOUT);
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

/// Starts a server that listens at `listen`.
fn start(listen: &str) -> ServerUnderAttack {
    ServerUnderAttack::start_at(listen, |folder| {
        std::fs::write(folder.join("jwks.json"), issuer().public_key_set()).expect("write");
        ["--auth-keys", "jwks.json", "--auth-issuer", ISSUER, "--auth-audience", AUDIENCE].map(str::to_owned).into()
    })
}

/// Floods a server from `sources` for `duration` while players connect, and adds figures and violations to the report.
async fn check_flood(report: &mut Report, server: &ServerUnderAttack, sources: FloodSources, duration: Duration) {
    let (name, before) = (sources.name(), server.resident_mib());
    let (stop, stopped) = oneshot::channel();
    let players = newcomers(server.address, stopped);
    let totals = flood::run(server.address, sources, duration).await;
    // The players have failed already if the receiver is closed.
    let _ = stop.send(());
    let growth = server.resident_mib() - before;
    report.note(format!("{name}: {totals:?}, {growth:.1} MiB more"));
    match players.await.expect("no panic") {
        Err(error) => report.violation(format!("{name}: {error}")),
        Ok(served) => {
            let [p50, p99, most] = [50, 99, 100].map(|percent| served.percentile(percent));
            report.note(format!(
                "  {} newcomers are served in {p50:.1?} (p50), {p99:.1?} (p99), {most:.1?} at most",
                served.count()
            ));
            if SERVED_WITHIN < p99 {
                report.violation(format!("{name}: a newcomer waits {p99:?}"));
            }
        }
    }
    if totals.opened < CONNECTIONS || totals.closed == 0 {
        report.violation(format!("{name}: the flood did not exceed the places: {totals:?}"));
    }
    if 1 < scale() && 0 < totals.unused_sources {
        report.violation(format!("{name}: not all of them were used: {totals:?}"));
    }
}

/// SEC-2: floods of idle connections from 200 and from 2,000 addresses take all places. A newcomer with a token is served
/// within a second, p99, throughout. A player who was connected before stays connected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_from_many_addresses_leaves_places_to_players() {
    let mut report = Report::start("flood from many addresses").await;
    for addresses in [200, 2_000] {
        let (server, duration) = (start("127.0.0.1:0"), attack_duration(Duration::from_secs(8)));
        check_flood(&mut report, &server, FloodSources::Ipv4(addresses), duration).await;
    }
    report.finish();
}

/// SEC-2: the same from 65,536 IPv6 /64, over the loopback interface of a network namespace: those of one /48, which may have a
/// fifth of the places, and those of as many /48, which take all places. The long form uses each of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_from_many_ipv6_networks_leaves_places_to_players() {
    const THIS_TEST: &str = "many_addresses::flood_from_many_ipv6_networks_leaves_places_to_players";
    let mut report = Report::start("flood from many IPv6 networks").await;
    if !network_namespace::is_inside() {
        match network_namespace::try_setup(SOURCE_NETWORKS) {
            Ok(()) => network_namespace::run_test_inside(SOURCE_NETWORKS, THIS_TEST),
            Err(error) => eprintln!(
                "SKIPPED: no network namespace: {THIS_TEST} did NOT flood from IPv6; install iproute2 (Debian: apt-get install \
                 iproute2): {error}"
            ),
        }
        return;
    }
    for sources in [FloodSources::OneIpv6Network, FloodSources::ManyIpv6Networks] {
        let (server, duration) = (start("[::1]:0"), attack_duration(Duration::from_secs(5)));
        check_flood(&mut report, &server, sources, duration).await;
    }
    report.finish();
}
