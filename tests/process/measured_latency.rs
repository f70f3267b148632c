//! Measured latency as a whole: server processes, hosts behind delay lines, and the search loop of the Rust client, which probes them
//! with real packets and joins the nearest.

mod beacon_processes;
mod delay_line_checks;
mod host_namespace;
mod hosts;
mod proven_round_trips;
mod recorded_calls;

use std::net::IpAddr;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use fireteam::auth::identity::Role;
use fireteam_client::matching::ConnectTarget;
use fireteam_client::matching_run::{MatchingGame, RunEnd};
use fireteam_client::{Client, Error, SearchSession, pb};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout};

use crate::cluster::{Cluster, client};
use crate::identities::Identities;
use crate::programs::{Language, printed};
use crate::report::{TestReport, lock_machine, until};
use crate::support::database::create_test_database;
use crate::support::delay_line::Path;
use crate::support::network_namespace;
use crate::support::server_process::TEST_TIMEOUT;
use host_namespace::{HostNamespace, are_separate};
use hosts::{Host, HostPlan, SET, located_session};
use recorded_calls::CallRecorder;

/// Most packets to one host in a phase, and to one that does not answer, as docs/CLIENTS.md promises.
const PACKETS_MAX: usize = 10;
const UNANSWERED_MAX: usize = 3;
/// Least time between two probes of a client.
const PACKET_INTERVAL: Duration = Duration::from_millis(25);
/// Round trip that the searcher states to the region, milliseconds.
const SEARCHER_MS: f32 = 25.0;
const SEARCHER: &str = "searcher";

/// Round trips up to 100 ms, the shorter the better. The least round trip counts, which a busy machine disturbs the least.
fn ruleset(latency: &str) -> String {
    format!(
        r#"<Ruleset Name="measured" SetId="{SET}">
  <Attributes><Attribute Name="skill" Type="number" Min="-1000" Max="1000" Trust="client"/></Attributes>
  <HardFilters><Within Expansion="net"/></HardFilters>
  <SoftFilters><SoftFilter Attribute="latency" Weight="1" Min="0" Max="1000"/></SoftFilters>
  <ExpansionConfigs><ExpansionConfig Name="net" Type="latency">
    <Expansion ExpansionDurationMs="-1" Value="100"/>
  </ExpansionConfig></ExpansionConfigs>
  <Latency Figure="floor" {latency}/>
</Ruleset>"#
    )
}

/// Hosts in the order of their estimates, which is the wrong one: the silent host first, the nearest last.
fn host_plans() -> [HostPlan; 4] {
    let path = |round_trip_ms, jitter_ms| {
        Path::of_round_trip(Duration::from_millis(round_trip_ms), Duration::from_millis(jitter_ms))
    };
    [
        HostPlan { name: "silent", path: path(20, 0).with_loss(1.0), stated_ms: 25.0 },
        HostPlan { name: "far", path: path(250, 4), stated_ms: 75.0 },
        HostPlan { name: "lossy", path: path(80, 3).with_loss(0.05), stated_ms: 75.0 },
        HostPlan { name: "near", path: path(20, 1), stated_ms: 100.0 },
    ]
}

/// Game that always connects, and keeps its targets.
#[derive(Debug, Default)]
struct Game {
    targets: Mutex<Vec<ConnectTarget>>,
}

impl MatchingGame for Game {
    async fn connect(&self, target: ConnectTarget) -> bool {
        self.targets.lock().expect("unpoisoned").push(target);
        true
    }
}

/// Servers, hosts in the order of `host_plans`, and the token with which the search loop ended.
struct Scenario {
    cluster: Cluster,
    identities: Identities,
    hosts: Vec<Host>,
    search_token: Vec<u8>,
}

fn ids(candidates: &[pb::Candidate]) -> Vec<&str> {
    candidates.iter().map(|candidate| &*candidate.advertisement_id).collect()
}

fn reason(error: &Error) -> Option<&str> {
    error.as_server_error().and_then(|status| status.reason.as_deref())
}

impl Scenario {
    /// Starts `servers` servers on the database `url`, and the hosts, which advertise at the first server in this role.
    async fn start(report: &TestReport, store: (&str, usize), role: Role, latency: &str) -> Self {
        println!("hosts: a loopback address each, 127.0.0.11 to 127.0.0.14; no network namespace is used");
        Self::start_in(Vec::new(), report, store, role, latency).await
    }

    /// The same with each host in the next of these namespaces, if there are any.
    async fn start_in(
        namespaces: Vec<HostNamespace>,
        report: &TestReport,
        (url, servers): (&str, usize),
        role: Role,
        latency: &str,
    ) -> Self {
        let identities = Identities::create();
        let arguments = identities.arguments();
        let arguments: Vec<&str> = arguments.iter().map(|argument| &**argument).collect();
        let cluster = Cluster::start_with_ruleset_and(url, servers, &ruleset(latency), &arguments);
        let server = (cluster.address(0).expect("a server"), &identities, role);
        let (mut hosts, mut namespaces) = (Vec::new(), namespaces.into_iter());
        for (number, plan) in (0..).zip(host_plans()) {
            let address = IpAddr::from([127, 0, 0, 11 + number]);
            let place = (address, report.seed() ^ (u64::from(number) << 8));
            hosts.push(match namespaces.next() {
                Some(namespace) => Host::start_in(namespace, plan, place, server).await,
                None => Host::start(plan, place, server).await,
            });
        }
        Self { cluster, identities, hosts, search_token: Vec::new() }
    }

    fn host(&self, name: &str) -> &Host {
        self.hosts.iter().find(|host| host.plan.name == name).expect("a host of this name")
    }

    fn id(&self, name: &str) -> &str {
        &self.host(name).advertisement_id
    }

    fn searching(&self, client: &Client, name: &str) -> SearchSession {
        self.identities.client_of(client, name).new_search(SET, located_session(name, SEARCHER_MS))
    }

    /// Runs the search loop at the first server until it ends, joined in the session of the nearest host.
    async fn run_search_loop(&mut self, report: &mut TestReport) {
        let recorder = CallRecorder::start(self.cluster.address(0).expect("a server")).await;
        let client = self.identities.client_of(&client(&recorder.address.to_string()), SEARCHER);
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
        let game = Game::default();
        let started_at = Instant::now();
        let mut matching = client.matching_run(SET, located_session(SEARCHER, SEARCHER_MS));
        let end = timeout(TEST_TIMEOUT, matching.run(&socket, &game)).await.expect("the loop ends in time");
        let duration = started_at.elapsed();
        assert_eq!(end, RunEnd::Joined);
        let targets = game.targets.into_inner().expect("unpoisoned");
        let invited: Vec<(&str, &[u8])> = targets.iter().map(|it| (&*it.advertisement_id, &*it.connect_data)).collect();
        assert_eq!(invited, [(self.id("near"), &b"near"[..])], "the first session that was reserved");
        let round_trip_ms = targets[0].round_trip_ms.expect("measured");
        assert!(20.0 <= round_trip_ms, "{round_trip_ms} ms");
        self.check_packets(report, duration);
        self.check_reports(&recorder, true);
        let reserves: Vec<pb::MatchmakingReserveRequest> = recorder.requests("Reserve");
        assert_eq!(reserves.len(), 1);
        self.search_token.clone_from(&reserves[0].search_token);
        report.record("loop ms", duration.as_millis());
        report.record("joined at ms", round_trip_ms);
        report.record("searches", recorder.requests::<pb::MatchmakingSearchRequest>("Search").len());
    }

    /// Runs the search loop as a program at the first server, until it has joined the session of the nearest host and left it.
    async fn run_program(&self, report: &mut TestReport, language: Language) {
        let Some(program) = language.compile("search") else { return };
        let recorder = CallRecorder::start(self.cluster.address(0).expect("a server")).await;
        let (set, region_ms) = (SET.to_string(), SEARCHER_MS.to_string());
        let mut command = Command::new(program);
        command.args([&format!("http://{}", recorder.address), &set, SEARCHER]);
        // The program in C states no round trip.
        let is_estimated = language == Language::Cpp;
        if is_estimated {
            command.args(["frankfurt", &region_ms]);
        }
        command.env("FIRETEAM_TOKEN", self.identities.token(Role::Client, SEARCHER));
        let started_at = Instant::now();
        // It ends by itself after a minute.
        let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it starts");
        let text = printed(&output);
        assert!(text.contains("connect near, 1 seats, "), "{text}");
        assert!(text.contains(&format!("joined {}\n", self.id("near"))), "{text}");
        self.check_packets(report, started_at.elapsed());
        self.check_reports(&recorder, is_estimated);
        let reserves: Vec<pb::MatchmakingReserveRequest> = recorder.requests("Reserve");
        let releases: Vec<pb::MatchmakingReleaseRequest> = recorder.requests("Release");
        assert_eq!((reserves.len(), releases.len()), (1, 1), "{text}");
        assert_eq!(reserves[0].advertisement_id, self.id("near"));
    }

    /// Packets within the limits: 10 to a host and phase, 3 to one that does not answer, 40 a second in all.
    fn check_packets(&self, report: &mut TestReport, duration: Duration) {
        let mut sent = 0;
        for host in &self.hosts {
            let counts = host.packets();
            report.record(host.plan.name, format!("{} + {} packets", counts.quick, counts.involved));
            assert!(counts.quick.max(counts.involved) <= PACKETS_MAX, "{}: {counts:?}", host.plan.name);
            if counts.delivered == 0 {
                assert_eq!(counts.sent(), UNANSWERED_MAX, "{}: {counts:?}", host.plan.name);
            }
            sent += counts.sent();
        }
        report.record("packets", sent);
        assert!(PACKET_INTERVAL * (sent as u32 - 1) <= duration, "{sent} packets in {duration:?}");
        assert!(0 < self.host("near").packets().involved, "the joined host was probed in both phases");
        let [silent, far] = ["silent", "far"].map(|name| self.host(name).packets());
        assert_eq!((silent.received, silent.involved, far.involved), (0, 0, 0), "neither is among the best");
    }

    /// Reports with each host's own figures, in the order of the estimates if the searcher gave the server what it estimates from: none below its delay, no answer of the silent one.
    fn check_reports(&self, recorder: &CallRecorder, is_estimated: bool) {
        let reports: Vec<pb::MatchmakingReportLatencyRequest> = recorder.requests("ReportLatency");
        let phases: Vec<pb::LatencyPhase> = reports.iter().map(|report| report.phase()).collect();
        assert_eq!(phases, [pb::LatencyPhase::Quick, pb::LatencyPhase::Involved]);
        let by_estimate: Vec<&str> = reports[0].measurements.iter().map(|it| &*it.advertisement_id).collect();
        assert_eq!(by_estimate.len(), 4);
        if is_estimated {
            assert_eq!((by_estimate[0], by_estimate[3]), (self.id("silent"), self.id("near")));
        }
        for measurement in reports.iter().flat_map(|report| &report.measurements) {
            let host = self.hosts.iter().find(|host| host.advertisement_id == measurement.advertisement_id);
            let host = host.expect("one of the hosts");
            let statistics = measurement.statistics.expect("statistics of a probed host");
            let counts = host.packets();
            assert!(statistics.sent as usize <= counts.sent(), "{}: {statistics:?}, {counts:?}", host.plan.name);
            assert!(statistics.answered as usize <= counts.delivered, "{}: {statistics:?}", host.plan.name);
            let outcome = measurement.outcome();
            match statistics.floor_ms {
                Some(ms) => {
                    let least_ms = host.plan.path.round_trip().as_secs_f32() * 1_000.0;
                    assert!(least_ms <= ms, "{}: {statistics:?}", host.plan.name);
                    assert_eq!(outcome, pb::ProbeOutcome::Answered, "{}", host.plan.name);
                }
                None => assert_eq!(outcome, pb::ProbeOutcome::Silent, "{}: {statistics:?}", host.plan.name),
            }
        }
    }

    /// The search goes on at server `at` as the loop left it: the silent host is gone and cannot be reserved, and neither can the far one.
    /// Another player's search knows nothing of it.
    async fn check_search_goes_on(&self, at: usize) {
        let client = self.cluster.client(at, 0).expect("a server");
        until("the server knows all sessions", async || {
            let mut search = self.searching(&client, "another searcher");
            search.search().await.is_ok_and(|found| found.candidates.len() == self.hosts.len())
        })
        .await;
        let mut search = self.searching(&client, SEARCHER);
        search.request_mut().search_token.clone_from(&self.search_token);
        let found = search.search().await.expect("a search");
        let mut left: Vec<&str> = vec![self.id("near")];
        if 0 < self.host("lossy").packets().delivered {
            left.push(self.id("lossy"));
        }
        assert_eq!(ids(&found.candidates), left, "server {at}");
        for candidate in &found.candidates {
            assert_eq!(candidate.round_trip_source(), pb::RoundTripSource::Measured);
        }
        let refusals: Vec<_> =
            found.refusals.iter().map(|refusal| (refusal.kind(), &*refusal.rule, refusal.count)).collect();
        assert!(refusals.contains(&(pb::RefusalKind::Filter, "latency", 1)), "{refusals:?}");
        assert!(refusals.iter().any(|(kind, _, _)| *kind == pb::RefusalKind::Silent), "{refusals:?}");
        for (name, expected) in [("silent", "SILENT"), ("far", "REFUSED_BY_RULE")] {
            let error = search.reserve(self.id(name)).await.expect_err("refused");
            assert_eq!(reason(&error), Some(expected), "server {at}: {error}");
        }
    }

    /// Kills the first server with SIGKILL, and starts it again.
    fn restart_first(&self) {
        self.cluster.kill(0);
        self.cluster.fill(0, None, &[]);
    }
}

/// S1-28, S1-29, S1-31: the search loop of a client probes game servers at 20, 80 and 250 ms, one of which loses packets, and a silent
/// one. It joins the nearest. The silent one is gone from the search and refused at both servers, also after one was killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_loop_joins_the_nearest_game_server_on_two_servers() {
    let Some(database) = create_test_database("measured latency").await else { return };
    let mut report = TestReport::start("measured latency, game servers, Postgres").await;
    let mut scenario = Scenario::start(&report, (&database.url, 2), Role::GameServer, "").await;
    scenario.run_search_loop(&mut report).await;
    scenario.check_search_goes_on(0).await;
    scenario.check_search_goes_on(1).await;
    scenario.restart_first();
    scenario.check_search_goes_on(0).await;
    report.finish();
}

/// S1-28, S1-29, S1-31: the same where players host and the ruleset lets searchers probe their machines at once. One server on SQLite,
/// killed and started again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_loop_joins_the_nearest_player_who_hosts() {
    let mut report = TestReport::start("measured latency, players, SQLite").await;
    let store = ("sqlite:fireteam.db", 1);
    let mut scenario = Scenario::start(&report, store, Role::Client, r#"ProbePlayers="quick""#).await;
    scenario.run_search_loop(&mut report).await;
    scenario.check_search_goes_on(0).await;
    scenario.restart_first();
    scenario.check_search_goes_on(0).await;
    report.finish();
}

/// Runs the search loop as a program among hosts of this role, with one server on SQLite.
async fn run_program_among(report_name: &'static str, hosts: Role, latency: &str, language: Language) {
    let mut report = TestReport::start(report_name).await;
    let scenario = Scenario::start(&report, ("sqlite:fireteam.db", 1), hosts, latency).await;
    scenario.run_program(&mut report, language).await;
    report.finish();
}

/// S1-28, S1-29, S1-31: the search loop as a program in C joins the nearest game server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn program_in_c_joins_the_nearest_game_server() {
    run_program_among("measured latency, C, game servers, SQLite", Role::GameServer, "", Language::C).await;
}

/// S1-28, S1-29, S1-31: the search loop as a program in C++ joins the nearest game server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn program_in_cpp_joins_the_nearest_game_server() {
    run_program_among("measured latency, C++, game servers, SQLite", Role::GameServer, "", Language::Cpp).await;
}

/// S1-28, S1-29, S1-31: the same in C++ where players host and the ruleset lets searchers probe their machines at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn program_in_cpp_joins_the_nearest_player_who_hosts() {
    run_program_among("measured latency, C++, players, SQLite", Role::Client, r#"ProbePlayers="quick""#, Language::Cpp)
        .await;
}

/// S1-28, S1-29, S1-31: the same with each game server in a network namespace of its own, which its delay line alone joins to that of the
/// searcher.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_loop_joins_the_nearest_across_network_namespaces() {
    let name = "measured_latency::search_loop_joins_the_nearest_across_network_namespaces";
    if !network_namespace::is_inside() {
        if let Err(error) = network_namespace::try_setup("unshare --net ip link set lo up") {
            eprintln!("SKIPPED: no network namespace: {name} did NOT run; install iproute2: {error}");
            return;
        }
        let _machine_lock = lock_machine().await;
        network_namespace::run_test_inside("true", name);
        return;
    }
    let mut report = TestReport::start("measured latency, network namespaces, SQLite").await;
    let namespaces: Result<Vec<HostNamespace>, String> = host_plans().iter().map(|_| HostNamespace::start()).collect();
    let namespaces = namespaces.expect("as in the trial");
    assert!(are_separate(namespaces.iter()));
    let store = ("sqlite:fireteam.db", 1);
    let mut scenario = Scenario::start_in(namespaces, &report, store, Role::GameServer, "").await;
    scenario.run_search_loop(&mut report).await;
    scenario.check_search_goes_on(0).await;
    report.finish();
}
