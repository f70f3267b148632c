//! Two servers on one Postgres are driven through queues and searches, a real Prometheus scrapes them, and answers each query of
//! each panel of the dashboards with data.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fireteam_client::pb::{self, TicketState};
use fireteam_client::{Advertisement, Client, Ticket};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::repository::dashboards::{Panel, panels};
use crate::support::database::create_test_database;
use crate::support::party_site::wait_for_state;
use crate::support::queue_server::{SET_ID, enter_request, wait_until};
use crate::support::server_process::ServerProcess;
use crate::support::source_tree;
use crate::support::test_server::{advertise_request, party_session};

/// Duels with a ready check in a common region, and sessions with a rule on skill.
fn ruleset() -> String {
    format!(
        r#"<Ruleset Name="Driven" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <HardFilters><Within Name="near_skill" Attribute="skill" Limit="10"/></HardFilters>
  <SoftFilters><SoftFilter Attribute="skill" Weight="1"/></SoftFilters>
  <ExpansionConfigs><ExpansionConfig Name="reach" Type="latency"><Expansion ExpansionDurationMs="-1" Value="300"/></ExpansionConfig>
  </ExpansionConfigs>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"><RatingWindow Start="2" Max="2"/><Regions Mode="filter" Expansion="reach"/></Queue>
  <ReadyCheck TimeoutMs="600000"/>
  <Rating System="elo"/>
  <Statistics><Region Name="eu"/></Statistics>
</Ruleset>"#
    )
}

/// A real Prometheus that scrapes two servers. Killed on drop.
struct Prometheus {
    process: Child,
    address: SocketAddr,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Prometheus {
    /// Starts Prometheus with the repository's alerts. `None` if it is not installed.
    fn start(folder: &Path, servers: &[ServerProcess]) -> Option<Self> {
        let rules = source_tree::repository_root().join("packaging/prometheus/alerts.yaml");
        let targets: Vec<String> = servers.iter().map(|server| format!("\"{}\"", server.operator_address)).collect();
        let config = format!(
            "global: {{ scrape_interval: 500ms }}\nrule_files: [{rules:?}]\nscrape_configs:\n  - job_name: fireteam\n    \
             static_configs:\n      - targets: [{}]\n",
            targets.join(", ")
        );
        std::fs::write(folder.join("prometheus.yml"), config).expect("write");
        // Prometheus does not tell which free port it has chosen.
        let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
        let mut command = Command::new("prometheus");
        command.current_dir(folder).args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
        command.arg(format!("--web.listen-address={address}"));
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        Some(Self { process, address })
    }

    /// Number of series with a value in the answer to a query; an error while Prometheus starts.
    async fn count_values(&self, query: &str) -> std::io::Result<usize> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let mut socket = TcpStream::connect(self.address).await?;
        let request = format!("GET /api/v1/query?query={encoded} HTTP/1.0\r\nhost: localhost\r\n\r\n");
        socket.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await?;
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let body: serde_json::Value = serde_json::from_str(body)?;
        assert!(body["status"] == "success" || body["errorType"] == "unavailable", "{query}: {body}");
        let results = body["data"]["result"].as_array().cloned().unwrap_or_default();
        Ok(results.iter().filter(|it| it["value"][1].as_str().is_some_and(|value| value != "NaN")).count())
    }
}

/// Query as Grafana sends it, with all sets and a short interval.
fn query_of_grafana(query: &str) -> String {
    query.replace("$__rate_interval", "30s").replace("$set", ".*")
}

/// Queries of the panels that have no data.
async fn queries_without_data(prometheus: &Prometheus, panels: &[Panel]) -> Vec<String> {
    let mut empty = Vec::new();
    for panel in panels {
        for query in &panel.queries {
            if prometheus.count_values(&query_of_grafana(query)).await.unwrap_or(0) == 0 {
                empty.push(format!("{}: {query}", panel.title.join(", ")));
            }
        }
    }
    empty
}

/// Enters one player with a measured region and a place.
async fn enter(client: &Client, user: &str, skill: f64, place: (f64, f64)) -> Ticket {
    let mut request = enter_request(SET_ID, &[(user, skill)]);
    if let Some(session) = &mut request.session_composition {
        session.region_latencies = vec![pb::RegionLatency { region: "eu".to_owned(), round_trip_ms: 20.0 }];
        session.locality_info = Some(pb::LocalityData {
            latitude_degrees: Some(place.0),
            longitude_degrees: Some(place.1),
            ..Default::default()
        });
    }
    client.enter_queue(request).await.expect("enter")
}

/// Two tickets in a proposed match.
async fn proposed_match(clients: [&Client; 2], users: [&str; 2]) -> ([Ticket; 2], pb::MatchStatus) {
    let mut one = enter(clients[0], users[0], 20.0, (48.9, 2.4)).await;
    let mut other = enter(clients[1], users[1], 20.0, (52.5, 13.4)).await;
    wait_for_state(&mut one, TicketState::Proposed).await;
    let found = wait_for_state(&mut other, TicketState::Proposed).await.found_match.expect("a match");
    ([one, other], found)
}

/// Two tickets in a match that is played.
async fn played_match(clients: [&Client; 2], users: [&str; 2]) -> ([Ticket; 2], pb::MatchStatus) {
    let ([mut one, mut other], found) = proposed_match(clients, users).await;
    one.respond_to_ready_check(&found.match_id, true).await.expect("accept");
    other.respond_to_ready_check(&found.match_id, true).await.expect("accept");
    wait_for_state(&mut one, TicketState::Matched).await;
    let found = wait_for_state(&mut other, TicketState::Matched).await.found_match.expect("a match");
    ([one, other], found)
}

/// Queue traffic: a match with a result and feedback, one that is declined, one that a player leaves, and a ticket that leaves.
async fn drive_queue(clients: [&Client; 2], round: u32) {
    let name = |name: &str| format!("{name} {round}");
    let ([ann, bob], found) = played_match(clients, [&name("ann"), &name("bob")]).await;
    let rank = |team| pb::TeamRank { team, rank: if team == found.team { 1 } else { 2 } };
    let report = pb::ReportResultRequest {
        match_id: found.match_id.clone(),
        team_ranks: vec![rank(0), rank(1)],
        ticket_token: bob.reference().ticket_token,
        ..Default::default()
    };
    clients[1].report_result(report).await.expect("report");
    ann.submit_feedback(&found.match_id, 4).await.expect("feedback");

    let ([mut cid, mut dan], found) = proposed_match(clients, [&name("cid"), &name("dan")]).await;
    dan.respond_to_ready_check(&found.match_id, false).await.expect("decline");
    wait_for_state(&mut cid, TicketState::Waiting).await;
    let mut eve = enter(clients[0], &name("eve"), 40.0, (48.9, 2.4)).await;
    let reference = pb::QueueHeartbeatRequest { tickets: vec![eve.reference()], ..Default::default() };
    wait_until("a rule has refused the two", async || {
        // Only the server that runs the passes says so; the other one may not know the ticket yet.
        let elsewhere = clients[1].heartbeat_tickets(reference.clone()).await.expect("heartbeat").statuses;
        let statuses = [eve.heartbeat().await.expect("heartbeat").clone()].into_iter().chain(elsewhere);
        statuses.into_iter().any(|status| status.blocking_rule == "window")
    })
    .await;
    assert!(cid.leave().await.expect("leave"));
    assert!(eve.leave().await.expect("leave"));

    let ([mut fay, mut gil], _) = played_match(clients, [&name("fay"), &name("gil")]).await;
    assert!(fay.leave().await.expect("leave"));
    assert!(gil.leave().await.expect("leave"));
}

/// Search traffic: a session, a party that gets a seat, one that a rule refuses, and a call that fails. Returns the session: the
/// server that has reserved the seat learns from the feed that the host has confirmed it.
async fn drive_searches(clients: [&Client; 2], round: u32) -> Advertisement {
    let name = |name: &str| format!("{name} {round}");
    let mut request = advertise_request(&[(&name("host"), 20.0)], 4);
    request.matchmaking_set_id = Some(SET_ID);
    let mut host = clients[0].advertise(request).await.expect("advertise");
    let mut near = clients[1].new_search(SET_ID, party_session(&[(&name("near"), 20.0)]));
    wait_until("the search finds the session", async || {
        near.search().await.expect("search").candidates.iter().any(|candidate| candidate.advertisement_id == host.id())
    })
    .await;
    let reservation = near.reserve(host.id()).await.expect("reserve");
    wait_until("the host confirms", async || host.confirm_reservations(vec![reservation.id.clone()]).await.is_ok())
        .await;
    let mut far = clients[0].new_search(SET_ID, party_session(&[(&name("far"), 45.0)]));
    far.search().await.expect("search");
    far.reserve("no advertisement").await.expect_err("no such advertisement");
    host
}

/// Each query of each panel returns data, and no panel needs a metric that only an unlikely event creates.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboards_have_data_of_driven_servers() {
    let test = "dashboards_have_data_of_driven_servers";
    let Some(database) = create_test_database(test).await else { return };
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::fs::create_dir(folder.path().join("rules")).expect("create a directory");
    std::fs::write(folder.path().join("rules/driven.xml"), ruleset()).expect("write");
    let locations = source_tree::repository_root().join("data/dbip-tour.mmdb");
    let locations = locations.to_str().expect("UTF-8");
    let settings = [
        ("FIRETEAM_STORE", database.url.as_str()),
        ("FIRETEAM_RULESETS", "rules"),
        ("FIRETEAM_GEOIP_DB", locations),
        ("FIRETEAM_ALLOW_CLIENT_LOCALITY", "true"),
        ("FIRETEAM_TOKEN_KEY_FILE", "token-key"),
        ("FIRETEAM_MATCH_KEY_FILE", "match-key.pem"),
        ("FIRETEAM_RATE_LIMITS", "off"),
    ];
    let servers = ["first-audit-log", "second-audit-log"]
        .map(|file| ServerProcess::start_with(folder.path(), &["--audit-log-file", file], &settings));
    let Some(prometheus) = Prometheus::start(folder.path(), &servers) else {
        println!("SKIPPED {test}: prometheus is not installed");
        return;
    };
    let panels = panels(&source_tree::read_source_files(source_tree::repository_root()));
    let clients = [&servers[0].client().await, &servers[1].client().await];
    let mut round = 0;
    wait_until("Prometheus scrapes both servers", async || {
        prometheus.count_values("up{job=\"fireteam\"} == 1").await.is_ok_and(|count| count == 2)
    })
    .await;
    let (mut empty, mut sessions) = (Vec::new(), Vec::new());
    // A rate needs a counter that has risen between two scrapes.
    while round < 20 && (round == 0 || !empty.is_empty()) {
        round += 1;
        drive_queue(clients, round).await;
        sessions.push(drive_searches(clients, round).await);
        empty = queries_without_data(&prometheus, &panels).await;
    }
    assert_eq!(empty, Vec::<String>::new(), "without data after {round} rounds");
    println!(
        "{} queries of {} panels have data after {round} rounds",
        panels.iter().map(|it| it.queries.len()).sum::<usize>(),
        panels.len()
    );
}
