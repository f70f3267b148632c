//! Round trips between waiting tickets, predicted from beacons over the wire: limits, renewal, expiry, a liar, and hosts.

mod fleet_changes;
mod game_servers;
mod members;
mod two_servers;
mod worst_pair;

use std::net::IpAddr;
use std::sync::Arc;

use fireteam::auth::identity::Role;
use fireteam::clock::Clock as _;
use fireteam::config::{Config, StoreTarget};
use fireteam_client::{Client, pb};
use futures_util::future::join_all;
use mmdb_writer::{IpVersion, Value, Writer};
use pb::TicketState;
use pb::queue_service_client::QueueServiceClient;

use crate::security::beacon_receipts::{LatencyCaller, TestBeacon, configure_beacons};
use crate::security::session_privacy::servers_on_one_postgres;
use crate::support::database::create_test_database;
use crate::support::generated_client as wire;
use crate::support::queue_server::{QueuedParty, SET_ID, operator_client, wait_until};
use crate::support::ruleset_dir::RulesetDirectory;
use crate::support::test_server::{TestClock, TestServer, party_session};
use crate::support::tokens::TokenIssuer;

/// Players, 40 degrees apart, 1 degree north of the equator: about 90 ms to the next by distance.
pub(super) const ANN: (&str, &str, f64) = ("ann", "203.0.113.7", 0.0);
pub(super) const BOB: (&str, &str, f64) = ("bob", "198.51.100.7", 40.0);
pub(super) const CAI: (&str, &str, f64) = ("cai", "192.0.2.7", 80.0);
/// Farther from all others.
const EVE: (&str, &str, f64) = ("eve", "198.18.0.7", 170.0);

pub(super) const BEACONS: u32 = 16;

/// A set of its queue: `limits` are further elements.
fn ruleset(teams: u32, latency: &str, limits: &str) -> RulesetDirectory {
    RulesetDirectory::with_files(&[("predicted.xml", &ruleset_text(teams, latency, limits))])
}

fn ruleset_text(teams: u32, latency: &str, limits: &str) -> String {
    format!(
        r#"<Ruleset Name="Predicted" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  {limits}
  <Latency {latency}/>
  <Teams Count="{teams}" Size="1"/>
  <Queue PassIntervalMs="10"/>
</Ruleset>"#
    )
}

/// At most 100 ms between two players; more are not widened to.
pub(super) const WITHIN_100_MS: &str = r#"<HardFilters><Within Name="latency" Expansion="reach" Missing="refuse"/></HardFilters>
  <ExpansionConfigs><ExpansionConfig Name="reach" Type="latency">
    <Expansion ExpansionDurationMs="-1" Value="100"/>
  </ExpansionConfig></ExpansionConfigs>
  <Hosting Mode="none"/>"#;

pub(super) fn configure_site(config: &mut Config, folder: &RulesetDirectory, issuer: &TokenIssuer) {
    configure_beacons(config, folder, issuer);
    let mut places = Writer::builder("Test-City").ip_version(IpVersion::V4).build();
    for (_, address, longitude) in [ANN, BOB, CAI, EVE, members::AMY] {
        let degrees = Value::map([("latitude", Value::Double(1.0)), ("longitude", Value::Double(longitude))]);
        let network = format!("{address}/32").parse::<ipnet::IpNet>().expect("a network");
        places.insert_value(network, Value::map([("location", degrees)])).expect("a place");
    }
    let file = folder.path().join("places.mmdb");
    std::fs::write(&file, places.to_bytes().expect("a database")).expect("written");
    config.geoip_db_files = vec![file];
}

/// Server of the site; `None`: a store of its own.
async fn start_server(
    folder: &RulesetDirectory,
    clock: &Arc<TestClock>,
    issuer: &TokenIssuer,
    store: Option<StoreTarget>,
) -> TestServer {
    TestServer::start_on_clock(Arc::clone(clock), |config| {
        configure_site(config, folder, issuer);
        if let Some(store) = store {
            config.store = store;
        }
    })
    .await
}

/// Fleet of two networks: beacons with even ids are 20 ms from each other, and so are those with odd ids.
pub(super) struct Fleet {
    beacons: Vec<TestBeacon>,
    /// Round trip from each even beacon to each odd one.
    between_networks_ms: f32,
}

impl Fleet {
    pub(super) fn new() -> Self {
        Self { beacons: (1..=BEACONS).map(Self::beacon).collect(), between_networks_ms: 200.0 }
    }

    fn beacon(id: u32) -> TestBeacon {
        TestBeacon::new(id, if id.is_multiple_of(2) { "even" } else { "odd" })
    }

    /// The same beacons, which are in no region: parties have no region in common.
    pub(super) fn without_regions() -> Self {
        Self { beacons: (1..=BEACONS).map(|id| TestBeacon::new(id, "")).collect(), ..Self::new() }
    }

    pub(super) async fn announce(&self, caller: &LatencyCaller) {
        for beacon in &self.beacons {
            let mut announcement = beacon.announcement(f64::from(beacon.id % 7) * 2.0);
            announcement.beacon.as_mut().expect("a beacon").longitude = f64::from(beacon.id) * 3.0;
            let trip = |to: u32| {
                let floor_ms = if to % 2 == beacon.id % 2 { 20.0 } else { self.between_networks_ms };
                pb::BeaconTrip { beacon_id: to, floor_ms, age_ms: 0 }
            };
            let others = self.beacons.iter().map(|other| other.id).filter(|other| *other != beacon.id);
            announcement.trips = others.map(trip).collect();
            caller.announce(announcement).await.expect("announced");
        }
    }

    /// Latency token of a player who is this far from all beacons of a network.
    pub(super) async fn token(
        &mut self,
        site: &Site<'_>,
        player: (&str, &'static str, f64),
        network: u32,
        ms: u64,
    ) -> Vec<u8> {
        self.token_of(site, Role::Client, player, network, ms).await
    }

    /// The same for a caller of another role.
    pub(super) async fn token_of(
        &mut self,
        site: &Site<'_>,
        role: Role,
        caller: (&str, &'static str, f64),
        network: u32,
        ms: u64,
    ) -> Vec<u8> {
        let (_, address, _) = caller;
        let caller = LatencyCaller::new(site.server, site.issuer, role, caller.0, address).await;
        let (binding, unix_s) = (caller.binding().await, site.server.clock.now().0 / 1_000);
        let of_network = self.beacons.iter_mut().filter(|beacon| beacon.id % 2 == network);
        let receipts = of_network.map(|beacon| beacon.receipt(address, ms, &binding, unix_s)).collect();
        caller.report(receipts).await.latency_token
    }
}

/// A server, and who signs for its callers.
#[derive(Clone, Copy)]
pub(super) struct Site<'s> {
    pub(super) server: &'s TestServer,
    pub(super) issuer: &'s TokenIssuer,
}

impl Site<'_> {
    pub(super) async fn fleet_caller(&self) -> LatencyCaller {
        LatencyCaller::new(self.server, self.issuer, Role::GameServer, "fleet", "198.51.100.1").await
    }

    pub(super) async fn client(&self, player: (&str, &'static str, f64)) -> Client {
        let client = self.issuer.client_with_token(self.server, Role::Client, player.0).await;
        client.with_metadata("x-forwarded-for", player.1).expect("a header")
    }

    pub(super) async fn enter(&self, player: (&str, &'static str, f64), token: Vec<u8>) -> QueuedParty {
        let mut session = party_session(&[(player.0, 20.0)]);
        session.latency_token = token;
        let request = pb::QueueEnterRequest {
            matchmaking_set_id: Some(SET_ID),
            session_composition: Some(session),
            ..Default::default()
        };
        QueuedParty::enter_with_client(self.client(player).await, request).await
    }

    /// Heartbeat of a ticket by its player, with a latency token.
    pub(super) async fn beat(
        &self,
        player: (&str, &'static str, f64),
        ticket: &pb::TicketReference,
        token: &[u8],
    ) -> pb::TicketStatus {
        let request = pb::QueueHeartbeatRequest {
            tickets: vec![ticket.clone()],
            latency_token: token.to_vec(),
            ..Default::default()
        };
        self.client(player).await.heartbeat_tickets(request).await.expect("heartbeat").statuses.remove(0)
    }

    /// The match, as operators see it.
    async fn found_match(&self, match_id: &str) -> wire::GetMatchResponse {
        let request = self.operator_request(wire::GetMatchRequest { match_id: match_id.to_owned() });
        operator_client(self.server).await.get_match(request).await.expect("the match").into_inner()
    }

    fn operator_request<T>(&self, message: T) -> tonic::Request<T> {
        self.issuer.operator_request("ops", message)
    }

    /// Waits until a pass has refused the ticket's opponents for their round trips.
    async fn wait_for_refusing_pass(&self, party: &mut QueuedParty) {
        wait_until("a pass refuses the pair", async || party.current_status().await.blocking_rule == "latency").await;
    }

    async fn explain(&self, ticket_id: &str) -> Result<wire::ExplainResponse, tonic::Status> {
        let explain = wire::ExplainRequest { ticket_id: ticket_id.to_owned(), ..Default::default() };
        let request = self.operator_request(explain);
        operator_client(self.server).await.explain(request).await.map(tonic::Response::into_inner)
    }

    /// Rule that keeps a ticket waiting, as each server explains it; its status has it only at the server that runs the passes.
    pub(super) async fn blocking_rule(&self, ticket_id: &str) -> String {
        self.explain(ticket_id).await.expect("the ticket waits").blocking_rule
    }

    /// Rule that refuses each other ticket, and the source of the round trip to it.
    async fn misses(&self, ticket_id: &str) -> Vec<(String, wire::RoundTripSource)> {
        // Not found: another server's ticket that this one does not know yet.
        let Ok(explained) = self.explain(ticket_id).await else { return Vec::new() };
        assert!(!explained.matches_now);
        for near in &explained.near_misses {
            let round_trip = near.round_trip.expect("all have a place");
            let interval = round_trip.low_ms.zip(round_trip.high_ms);
            assert_eq!(round_trip.source() == wire::RoundTripSource::Predicted, interval.is_some(), "{near:?}");
            let is_within = |(low, high)| low < round_trip.round_trip_ms && round_trip.round_trip_ms < high;
            assert!(interval.is_none_or(is_within), "{near:?}");
            assert_eq!(round_trip.prediction.is_some(), interval.is_some(), "{near:?}");
            let sum_of_parts = |terms: wire::PredictionTerms| terms.distance_part_ms + terms.beacon_part_ms;
            let is_sum = |sum_ms: f64| (sum_ms - round_trip.round_trip_ms).abs() < 1e-9;
            assert!(round_trip.prediction.map(sum_of_parts).is_none_or(is_sum), "{near:?}");
        }
        let source = |near: &wire::NearMiss| near.round_trip.expect("a round trip").source();
        explained.near_misses.iter().map(|near| (near.rule.clone(), source(near))).collect()
    }

    /// Waits until the server knows as many other tickets that are refused, and compares the sources.
    async fn wait_for_sources(&self, ticket_id: &str, expected: &[wire::RoundTripSource]) {
        wait_until("the other tickets are known", async || self.misses(ticket_id).await.len() == expected.len()).await;
        let misses = self.misses(ticket_id).await;
        assert!(misses.iter().all(|(rule, _)| rule.contains("latency")), "{misses:?}");
        assert_eq!(misses.iter().map(|(_, source)| *source).collect::<Vec<_>>(), expected);
    }
}

/// LAT-1: a limit of a queue compares the predicted round trip, where distance would pair others. It stays so after a restart,
/// and while heartbeats and watches renew the round trips; ten minutes after the last ones distance decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_limits_follow_predictions_until_they_expire() {
    let (folder, clock) = (ruleset(2, r#"Source="predicted""#, WITHIN_100_MS), Arc::new(TestClock::new()));
    let issuer = TokenIssuer::new(&*clock);
    let store = StoreTarget::Sqlite(folder.path().join("store.db"));
    let server = start_server(&folder, &clock, &issuer, Some(store)).await;
    let (mut site, mut fleet) = (Site { server: &server, issuer: &issuer }, Fleet::new());
    fleet.announce(&site.fleet_caller().await).await;
    let tokens = [fleet.token(&site, ANN, 0, 25).await, fleet.token(&site, BOB, 1, 25).await];
    let [anns, bobs] = tokens;
    let ann = site.enter(ANN, anns).await.ticket.reference();
    let bob = site.enter(BOB, bobs).await.ticket.reference();
    site.wait_for_sources(&ann.ticket_id, &[wire::RoundTripSource::Predicted]).await;

    let server = server.restart().await;
    site = Site { server: &server, issuer: &issuer };
    site.wait_for_sources(&ann.ticket_id, &[wire::RoundTripSource::Predicted]).await;

    let pass_time = async |site: &Site<'_>, rounds: u32| {
        for _ in 0..rounds {
            clock.advance_ms(40_000);
            Fleet::new().announce(&site.fleet_caller().await).await;
            for (player, ticket) in [(ANN, &ann), (BOB, &bob)] {
                site.beat(player, ticket, &[]).await;
            }
        }
    };
    // 400 s later both have measured again. Ann's client opens a watch, bob's sends a heartbeat.
    pass_time(&site, 10).await;
    let anns = fleet.token(&site, ANN, 0, 25).await;
    let bobs = fleet.token(&site, BOB, 1, 25).await;
    let caller = LatencyCaller::new(&server, &issuer, Role::Client, ANN.0, ANN.1).await;
    let watch = pb::QueueWatchRequest { tickets: vec![ann.clone()], latency_token: anns };
    QueueServiceClient::new(caller.channel.clone()).watch(caller.request(watch)).await.expect("a watch");
    site.beat(BOB, &bob, &bobs).await;
    // 800 s after they entered, 400 s after the second token.
    pass_time(&site, 10).await;
    site.wait_for_sources(&ann.ticket_id, &[wire::RoundTripSource::Predicted]).await;
    pass_time(&site, 4).await;
    site.wait_for_sources(&ann.ticket_id, &[wire::RoundTripSource::Predicted]).await;
    // 600 s after it.
    pass_time(&site, 1).await;
    wait_until("they meet by distance", async || site.beat(ANN, &ann, &[]).await.state() == TicketState::Matched).await;
    assert_eq!(site.beat(BOB, &bob, &[]).await.state(), TicketState::Matched);
}

/// LAT-1, SEC-6, R9: servers that share a store predict alike, a party that has left is no one's opponent, and round trips that a player
/// only claims count for no pair. The players of one network meet, though others are nearer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_pair_players_of_one_network() {
    let Some(database) = create_test_database("predicted_queues").await else { return };
    let (folder, clock) = (ruleset(2, r#"Source="predicted""#, WITHIN_100_MS), Arc::new(TestClock::new()));
    let issuer = TokenIssuer::new(&*clock);
    let configure = |config: &mut Config| configure_site(config, &folder, &issuer);
    let (one, two) = servers_on_one_postgres(&database.url, &clock, configure).await;
    let (one, two) = (Site { server: &one, issuer: &issuer }, Site { server: &two, issuer: &issuer });
    let mut fleet = Fleet::new();
    fleet.announce(&one.fleet_caller().await).await;
    let at_two = LatencyCaller::new(two.server, &issuer, Role::Client, BOB.0, BOB.1).await;
    wait_until("the other server knows the beacons", async || at_two.beacons().await.beacons.len() >= 12).await;

    let mut ann = one.enter(ANN, fleet.token(&one, ANN, 0, 25).await).await;
    let mut bob = two.enter(BOB, fleet.token(&two, BOB, 1, 25).await).await;
    for site in [one, two] {
        site.wait_for_sources(ann.ticket.id(), &[wire::RoundTripSource::Predicted]).await;
    }
    // A liar: 1 ms from each beacon, without a receipt.
    let liar = LatencyCaller::new(one.server, &issuer, Role::Client, EVE.0, EVE.1).await;
    let claims: Vec<(u32, f32)> = (1..=BEACONS).map(|id| (id, 1.0)).collect();
    let claimed = liar.claim(&claims).await;
    assert!(!claimed.is_empty());
    let _eve = one.enter(EVE, claimed).await;
    let expected = [wire::RoundTripSource::Predicted, wire::RoundTripSource::Distance];
    wait_until("eve is known", async || one.misses(ann.ticket.id()).await.len() == 2).await;
    let mut sources: Vec<_> = one.misses(ann.ticket.id()).await.into_iter().map(|(_, source)| source).collect();
    sources.sort_by_key(|source| *source as i32);
    assert_eq!(sources, expected);

    bob.ticket.leave().await.expect("left");
    for site in [one, two] {
        site.wait_for_sources(ann.ticket.id(), &expected[1..]).await;
    }
    let mut cai = two.enter(CAI, fleet.token(&two, CAI, 0, 25).await).await;
    for party in [&mut ann, &mut cai] {
        party.wait_for_state(TicketState::Matched).await;
    }
}

/// LAT-1: the player whose farthest opponent is nearest hosts: by prediction cai, who is near to the beacons; by distance bob, who is in
/// the middle, if none of them has measured; and who has waited longest, where the ruleset predicts nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peer_host_follows_predictions() {
    // In the order of their waits. By place bob is between the two others.
    const PLAYERS: [(&str, &str, f64); 3] = [ANN, CAI, BOB];
    for (latency, is_measured, expected) in [
        (r#"Source="predicted""#, true, "cai"),
        (r#"Source="predicted""#, false, "bob"),
        (r#"Source="distance""#, true, "ann"),
    ] {
        let (folder, clock) = (ruleset(3, latency, r#"<Hosting Mode="peer"/>"#), Arc::new(TestClock::new()));
        let issuer = TokenIssuer::new(&*clock);
        let server = start_server(&folder, &clock, &issuer, None).await;
        let (site, mut fleet) = (Site { server: &server, issuer: &issuer }, Fleet::new());
        fleet.announce(&site.fleet_caller().await).await;
        let mut parties = Vec::new();
        for player in PLAYERS {
            let ms = if player == CAI { 25 } else { 100 };
            let token = if is_measured { fleet.token(&site, player, 0, ms).await } else { Vec::new() };
            clock.advance_ms(10);
            parties.push(site.enter(player, token).await);
        }
        // At once: the watch of the host confirms.
        let statuses = join_all(parties.iter_mut().map(|party| party.wait_for_state(TicketState::Matched))).await;
        let is_host = |status: &pb::TicketStatus| {
            let host = status.found_match.as_ref().and_then(|found| found.assignment.as_ref()?.host.as_ref());
            matches!(host, Some(pb::assignment::Host::PeerHost(peer)) if peer.is_own)
        };
        let hosts: Vec<&str> =
            PLAYERS.iter().zip(&statuses).filter(|(_, status)| is_host(status)).map(|(player, _)| player.0).collect();
        assert_eq!(hosts, [expected], "{latency}, measured: {is_measured}");
    }
}

/// Addresses are in networks of their own, so that receipts of one player are worth nothing to another.
#[test]
fn players_have_networks_of_their_own() {
    let networks =
        [ANN, BOB, CAI, EVE, members::AMY].map(|(_, address, _)| match address.parse().expect("an address") {
            IpAddr::V4(address) => address.octets()[..3].to_vec(),
            IpAddr::V6(_) => Vec::new(),
        });
    assert!(networks.iter().enumerate().all(|(index, network)| !networks[..index].contains(network)));
}
