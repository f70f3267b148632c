//! Receipts of beacons over the wire: what each is worth, for whom, at which server, and what a liar gains by it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use fireteam::auth::identity::Role;
use fireteam::clock::Clock as _;
use fireteam::config::RulesetSource;
use fireteam_client::pb;
use fireteam_probe::{BeaconCookieKey, BeaconResponder, Challenge, FleetKey, Hello};
use pb::latency_service_client::LatencyServiceClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::security::session_privacy::{configure, servers_on_one_postgres};
use crate::support::database::{TestDatabase, create_test_database};
use crate::support::queue_server::wait_until;
use crate::support::ruleset_dir::RulesetDirectory;
use crate::support::test_server::{TestClock, TestServer, advertise_request, party_session};
use crate::support::tokens::TokenIssuer;

pub(super) const FLEET_KEY: [u8; 32] = [0x42; 32];
const TRUST_SET: u32 = 1;
const CLAIM_SET: u32 = 2;
/// Address of the players.
const HOME: &str = "203.0.113.7";

/// Rulesets that trust receipts only, and that trust clients.
fn rulesets() -> RulesetDirectory {
    let ruleset = |set_id: u32, latency: &str| {
        format!(
            r#"<Ruleset Name="beacons {set_id}" SetId="{set_id}">
  <Attributes><Attribute Name="skill" Type="number" Min="-1000" Max="1000" Trust="client"/></Attributes>
  <SoftFilters><SoftFilter Attribute="latency" Weight="1" Min="0" Max="1000"/></SoftFilters>
  <Latency {latency}/>
  <Teams Count="2" Size="1"/>
  <ExpansionConfigs><ExpansionConfig Name="reach" Type="latency">
    <Expansion ExpansionDurationMs="-1" Value="200"/>
  </ExpansionConfig></ExpansionConfigs>
  <Queue><Regions Mode="filter" Expansion="reach"/></Queue>
</Ruleset>"#
        )
    };
    RulesetDirectory::with_files(&[
        ("trust.xml", &ruleset(TRUST_SET, r#"Trust="proven""#)),
        ("claim.xml", &ruleset(CLAIM_SET, "")),
    ])
}

/// A beacon without a socket: the packets go through `BeaconResponder`, and the time of the path is given.
pub(crate) struct TestBeacon {
    pub(crate) id: u32,
    region: &'static str,
    responder: BeaconResponder,
    pub(crate) key_id: [u8; 4],
}

impl TestBeacon {
    pub(crate) fn new(id: u32, region: &'static str) -> Self {
        let key = FleetKey(FLEET_KEY).beacon_key(id);
        let key_id = key.key_id();
        let responder = BeaconResponder::new(id, key, BeaconCookieKey([id as u8; 32]), 50_000);
        Self { id, region, responder, key_id }
    }

    pub(crate) fn announcement(&self, latitude: f64) -> pb::AnnounceBeaconRequest {
        let beacon = pb::Beacon {
            id: self.id,
            region: self.region.into(),
            address: vec![198, 51, 100, self.id as u8],
            port: 3_478,
            latitude,
            longitude: 8.7,
            measure_first: false,
        };
        pb::AnnounceBeaconRequest { beacon: Some(beacon), key_id: self.key_id.to_vec(), trips: Vec::new() }
    }

    /// Receipt of a client at `address` that is this far away.
    pub(crate) fn receipt(&mut self, address: &str, round_trip_ms: u64, binding: &[u8], unix_s: u64) -> Vec<u8> {
        self.receipt_of_micros(address, 1_000 * round_trip_ms, binding, unix_s)
    }

    /// The same, with a round trip in microseconds.
    pub(crate) fn receipt_of_micros(
        &mut self,
        address: &str,
        round_trip_us: u64,
        binding: &[u8],
        unix_s: u64,
    ) -> Vec<u8> {
        let from = SocketAddr::from((address.parse::<IpAddr>().unwrap(), 50_000));
        let (hello, unix_s) = (Hello { sequence: 1, nonce: [5; 8] }, u32::try_from(unix_s).unwrap());
        let challenge = self.responder.handle(&hello.encode(), from, 1_000_000, unix_s).expect("a challenge");
        let proof = Challenge::decode(&challenge).unwrap().proof(binding.try_into().unwrap());
        let arrives_us = 1_000_000 + round_trip_us;
        self.responder.handle(&proof.encode(), from, arrives_us, unix_s).expect("a receipt").to_vec()
    }
}

/// Calls of one caller to the Latency service.
#[derive(Clone)]
pub(crate) struct LatencyCaller {
    pub(crate) channel: Channel,
    authorization: String,
    address: String,
}

impl LatencyCaller {
    pub(crate) async fn new(server: &TestServer, issuer: &TokenIssuer, role: Role, user: &str, address: &str) -> Self {
        Self::at(server.app.server.address, issuer, role, user, address).await
    }

    /// Caller of the server, or of a proxy, at this socket address.
    pub(crate) async fn at(to: SocketAddr, issuer: &TokenIssuer, role: Role, user: &str, address: &str) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{to}")).expect("an address");
        let channel = endpoint.connect().await.expect("connect");
        Self { channel, authorization: issuer.authorization_header(role, user), address: address.to_owned() }
    }

    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", self.authorization.parse().expect("a header"));
        request.metadata_mut().insert("x-forwarded-for", self.address.parse().expect("a header"));
        request
    }

    pub(crate) async fn announce(&self, announcement: pb::AnnounceBeaconRequest) -> Result<u32, Status> {
        let mut stub = LatencyServiceClient::new(self.channel.clone());
        let answer = stub.announce_beacon(self.request(announcement)).await?;
        Ok(answer.into_inner().announce_again_in_ms)
    }

    pub(crate) async fn beacons(&self) -> pb::GetBeaconsResponse {
        let mut stub = LatencyServiceClient::new(self.channel.clone());
        stub.get_beacons(self.request(pb::GetBeaconsRequest {})).await.expect("a list").into_inner()
    }

    pub(crate) async fn report(&self, receipts: Vec<Vec<u8>>) -> pb::ReportTripsResponse {
        self.report_with_claims(receipts, Vec::new()).await
    }

    pub(crate) async fn report_with_claims(
        &self,
        receipts: Vec<Vec<u8>>,
        claims: Vec<pb::BeaconClaim>,
    ) -> pb::ReportTripsResponse {
        let mut stub = LatencyServiceClient::new(self.channel.clone());
        let request = pb::ReportTripsRequest { receipts, claims };
        stub.report_trips(self.request(request)).await.expect("a report").into_inner()
    }

    /// Token for round trips that the client only claims.
    pub(crate) async fn claim(&self, floors: &[(u32, f32)]) -> Vec<u8> {
        let mut stub = LatencyServiceClient::new(self.channel.clone());
        let claim = |&(beacon_id, floor_ms): &(u32, f32)| {
            let (floor_ms, p50_ms) = (Some(floor_ms), Some(floor_ms));
            let statistics = pb::RoundTripStatistics { sent: 5, answered: 5, floor_ms, p50_ms, ..Default::default() };
            pb::BeaconClaim { beacon_id, statistics: Some(statistics) }
        };
        let request = pb::ReportTripsRequest { receipts: Vec::new(), claims: floors.iter().map(claim).collect() };
        stub.report_trips(self.request(request)).await.expect("a report").into_inner().latency_token
    }

    pub(crate) async fn binding(&self) -> Vec<u8> {
        self.beacons().await.binding
    }
}

pub(crate) fn configure_beacons(
    config: &mut fireteam::config::Config,
    folder: &RulesetDirectory,
    issuer: &TokenIssuer,
) {
    configure(config, folder, issuer);
    let file = folder.path().join("fleet-key");
    let digits: String = FLEET_KEY.iter().map(|byte| format!("{byte:02x}")).collect();
    crate::support::certs::write_private_file(&file, &digits);
    config.beacon_fleet_key_file = Some(file);
    config.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    config.rulesets = RulesetSource::Directory(folder.path().to_owned());
}

async fn start(folder: &RulesetDirectory, issuer: &TokenIssuer) -> TestServer {
    TestServer::start_with_config(|config| configure_beacons(config, folder, issuer)).await
}

fn now_s(server: &TestServer) -> u64 {
    server.clock.now().0 / 1_000
}

fn verdicts(answer: &pb::ReportTripsResponse) -> Vec<pb::ReceiptVerdict> {
    answer.verdicts.iter().map(|verdict| pb::ReceiptVerdict::try_from(*verdict).unwrap()).collect()
}

fn with_latency(
    mut session: pb::SessionCompositionData,
    token: &[u8],
    regions: &[(&str, f32)],
) -> pb::SessionCompositionData {
    session.latency_token = token.to_vec();
    let region = |&(region, round_trip_ms): &(&str, f32)| pb::RegionLatency { region: region.into(), round_trip_ms };
    session.region_latencies = regions.iter().map(region).collect();
    session
}

/// LAT-5, SEC-4: only game servers announce beacons, with the key that follows from the fleet key, and each id has one place. Clients get
/// the live ones; a beacon that is silent for a minute is dead.
#[tokio::test]
async fn beacons_are_announced_and_listed_while_they_live() {
    let (folder, issuer) = (rulesets(), TokenIssuer::new(&TestClock::new()));
    let server = start(&folder, &issuer).await;
    let fleet = LatencyCaller::new(&server, &issuer, Role::GameServer, "fleet", "198.51.100.1").await;
    let player = LatencyCaller::new(&server, &issuer, Role::Client, "ada", HOME).await;
    let beacon = TestBeacon::new(7, "frankfurt");
    let refused = player.announce(beacon.announcement(50.1)).await.expect_err("a client");
    assert_eq!(refused.code(), Code::PermissionDenied);
    let wrong_key = pb::AnnounceBeaconRequest { key_id: vec![1, 2, 3, 4], ..beacon.announcement(50.1) };
    assert_eq!(fleet.announce(wrong_key).await.expect_err("a wrong key").code(), Code::InvalidArgument);
    assert_eq!(player.beacons().await.beacons, []);

    assert_eq!(fleet.announce(beacon.announcement(50.1)).await.expect("announced"), 10_000);
    let list = player.beacons().await;
    assert_eq!((list.binding.len(), list.beacons_wanted), (16, 12));
    let mut expected = beacon.announcement(50.1).beacon.unwrap();
    expected.measure_first = true;
    assert_eq!(list.beacons, [expected]);
    let moved = fleet.announce(beacon.announcement(48.9)).await.expect_err("the same id elsewhere");
    assert_eq!(moved.code(), Code::InvalidArgument);
    assert_eq!(player.beacons().await.beacons[0].latitude, 50.1);

    server.clock.advance_ms(59_999);
    assert_eq!(player.beacons().await.beacons.len(), 1);
    server.clock.advance_ms(1);
    assert_eq!(player.beacons().await.beacons, []);
    let binding = player.binding().await;
    let mut beacon = beacon;
    let receipt = beacon.receipt(HOME, 20, &binding, now_s(&server));
    assert_eq!(verdicts(&player.report(vec![receipt]).await)[0], pb::ReceiptVerdict::UnknownBeacon);
    fleet.announce(beacon.announcement(50.1)).await.expect("announced");
    assert_eq!(player.beacons().await.beacons.len(), 1);
}

/// LAT-5: over the wire each receipt gets its verdict; one measured at another network counts as a claim only.
#[tokio::test]
async fn receipts_get_verdicts_and_become_a_token() {
    let (folder, issuer) = (rulesets(), TokenIssuer::new(&TestClock::new()));
    let server = start(&folder, &issuer).await;
    let fleet = LatencyCaller::new(&server, &issuer, Role::GameServer, "fleet", "198.51.100.1").await;
    let player = LatencyCaller::new(&server, &issuer, Role::Client, "ada", HOME).await;
    let other = LatencyCaller::new(&server, &issuer, Role::Client, "bob", HOME).await;
    let (mut near, mut far) = (TestBeacon::new(7, "frankfurt"), TestBeacon::new(8, "tokyo"));
    for beacon in [&near, &far] {
        fleet.announce(beacon.announcement(50.1)).await.expect("announced");
    }
    let (binding, foreign, now) = (player.binding().await, other.binding().await, now_s(&server));
    assert_ne!(binding, foreign);
    let genuine = near.receipt(HOME, 20, &binding, now);
    let mut altered = genuine.clone();
    altered[22] ^= 1;
    let receipts = vec![
        near.receipt(HOME, 25, &binding, now),
        genuine.clone(),
        altered,
        genuine[..63].to_vec(),
        far.receipt("198.18.0.9", 1, &binding, now),
        far.receipt(HOME, 240, &binding, now - 601),
        far.receipt(HOME, 240, &foreign, now),
    ];
    let answer = player.report(receipts).await;
    use pb::ReceiptVerdict as Verdict;
    let expected = [
        Verdict::Proven,
        Verdict::Proven,
        Verdict::BadMac,
        Verdict::Malformed,
        Verdict::ForeignPrefix,
        Verdict::Stale,
        Verdict::ForeignBinding,
    ];
    assert_eq!(verdicts(&answer), expected);
    assert_eq!(answer.good_for_ms, 600_000);
    let regions: Vec<_> = answer.regions.iter().map(|it| (&*it.region, it.round_trip_ms, it.claimed)).collect();
    assert_eq!(regions, [("frankfurt", 20.0, false), ("tokyo", 1.0, true)], "of two receipts the least counts");
    let replayed = other.report(vec![genuine]).await;
    assert_eq!(verdicts(&replayed)[0], Verdict::ForeignBinding, "another user presents it");
}

/// Two servers on one Postgres, a beacon, and the latency tokens of two players: ada is 90 ms from the beacon, bob 160 ms.
struct TokenSite {
    issuer: TokenIssuer,
    clock: Arc<TestClock>,
    one: TestServer,
    two: TestServer,
    fleet: LatencyCaller,
    beacon: TestBeacon,
    adas: Vec<u8>,
    bobs: Vec<u8>,
    _folder: RulesetDirectory,
    _database: TestDatabase,
}

impl TokenSite {
    /// Starts the site; `None` without Postgres.
    async fn start(test: &str) -> Option<Self> {
        let database = create_test_database(test).await?;
        let (folder, clock) = (rulesets(), Arc::new(TestClock::new()));
        let issuer = TokenIssuer::new(&*clock);
        let (one, two) =
            servers_on_one_postgres(&database.url, &clock, |config| configure_beacons(config, &folder, &issuer)).await;
        let fleet = LatencyCaller::new(&one, &issuer, Role::GameServer, "fleet", "198.51.100.1").await;
        let ada = LatencyCaller::new(&one, &issuer, Role::Client, "ada", HOME).await;
        let bob = LatencyCaller::new(&one, &issuer, Role::Client, "bob", "203.0.113.99").await;
        let mut beacon = TestBeacon::new(7, "frankfurt");
        fleet.announce(beacon.announcement(50.1)).await.expect("announced");
        let at_two = LatencyCaller::new(&two, &issuer, Role::Client, "ada", HOME).await;
        wait_until("the other server knows the beacon", async || at_two.beacons().await.beacons.len() == 1).await;
        let now = now_s(&one);
        let adas = ada.report(vec![beacon.receipt(HOME, 90, &ada.binding().await, now)]).await.latency_token;
        let bobs = bob.report(vec![beacon.receipt("203.0.113.99", 160, &bob.binding().await, now)]).await.latency_token;
        let site = Self { issuer, clock, one, two, fleet, beacon, adas, bobs, _folder: folder, _database: database };
        site.advertise().await;
        Some(site)
    }

    /// Advertises a session of a game server in each set, at 0 ms of both regions, and waits until both servers know it.
    async fn advertise(&self) {
        let host = self.issuer.client_with_token(&self.one, Role::GameServer, "host").await;
        for set_id in [TRUST_SET, CLAIM_SET] {
            let mut request = advertise_request(&[], 8);
            let mut session = with_latency(party_session(&[]), &[], &[("frankfurt", 0.0), ("tokyo", 0.0)]);
            session.party_size_composition = vec![1];
            session.max_allowed_join_reservation_count = Some(8);
            request.session_composition = Some(session);
            request.matchmaking_set_id = Some(set_id);
            host.update_advertisement(request).await.expect("published");
        }
        for server in [&self.one, &self.two] {
            wait_until("the server knows the session", async || {
                self.search(server, CLAIM_SET, &[], &[("frankfurt", 10.0)]).await.0.is_some()
            })
            .await;
        }
    }

    /// Round trip to the session in a search of ada, and the ignored fields.
    async fn search(
        &self,
        server: &TestServer,
        set_id: u32,
        token: &[u8],
        regions: &[(&str, f32)],
    ) -> (Option<f32>, Vec<String>) {
        let client = self.issuer.client_with_token(server, Role::Client, "ada").await;
        let client = client.with_metadata("x-forwarded-for", HOME).expect("a header");
        let session = with_latency(party_session(&[("ada", 0.0)]), token, regions);
        let found = client.new_search(set_id, session).search().await.expect("a search");
        (found.candidates.first().and_then(|candidate| candidate.round_trip_ms), found.ignored_fields)
    }
}

fn paths(fields: &[&str]) -> Vec<String> {
    fields.iter().map(|field| format!("session_composition.{field}")).collect()
}

/// LAT-5, SEC-6: where the ruleset trusts receipts only, a claimed round trip without one is ignored, and one below the proven round trip
/// counts as that; where it trusts clients, they can still look no nearer than what is proven. So it is at another server, and after ten
/// minutes no longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proven_round_trip_is_the_least_that_counts() {
    let Some(site) = TokenSite::start("beacon_receipts").await else { return };
    let TokenSite { adas, bobs, .. } = &site;
    let (none, no_token) = (paths(&[]), paths(&["latency_token"]));
    for server in [&site.one, &site.two] {
        let claimed =
            async |token: &[u8], regions: &[(&str, f32)]| site.search(server, CLAIM_SET, token, regions).await;
        assert_eq!(claimed(&[], &[("frankfurt", 25.0)]).await, (Some(25.0), none.clone()));
        assert_eq!(claimed(adas, &[("frankfurt", 25.0)]).await, (Some(100.0), none.clone()));
        assert_eq!(claimed(adas, &[("frankfurt", 150.0)]).await, (Some(150.0), none.clone()));
        assert_eq!(claimed(adas, &[]).await, (Some(100.0), none.clone()), "proven, not stated");
        assert_eq!(claimed(bobs, &[("frankfurt", 25.0)]).await, (Some(25.0), no_token.clone()), "another user's");
        let mut altered = adas.clone();
        altered[50] ^= 1;
        assert_eq!(claimed(&altered, &[("frankfurt", 25.0)]).await, (Some(25.0), no_token.clone()));
        // Where only receipts are trusted.
        let stated = [("frankfurt", 25.0), ("tokyo", 1.0)];
        let proven = async |token: &[u8]| site.search(server, TRUST_SET, token, &stated).await.1;
        assert_eq!(proven(adas).await, paths(&["region_latencies[1]"]));
        assert_eq!(proven(&[]).await, paths(&["region_latencies[0]", "region_latencies[1]"]));
    }
    for _ in 0..11 {
        site.clock.advance_ms(54_546);
        site.fleet.announce(site.beacon.announcement(50.1)).await.expect("announced");
    }
    assert_eq!(site.search(&site.one, CLAIM_SET, adas, &[]).await.1, no_token, "ten minutes later");
}

/// LAT-5, SEC-6: of a party the slowest member counts, by tokens that are each good for one member alone. In a queue, a liar whose receipt
/// says 90 ms does not enter with 1 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_of_each_member_counts_for_that_member() {
    let Some(site) = TokenSite::start("beacon_members").await else { return };
    let TokenSite { adas, bobs, .. } = &site;
    let client = site.issuer.client_with_token(&site.one, Role::GameServer, "backend").await;
    let search = async |tokens: [&[u8]; 2]| {
        let mut session = with_latency(party_session(&[("ada", 0.0), ("bob", 0.0)]), &[], &[]);
        for (player, token) in session.players.iter_mut().zip(tokens) {
            player.latency_token = token.to_vec();
        }
        let found = client.new_search(CLAIM_SET, session).search().await.expect("a search");
        (found.candidates.first().and_then(|candidate| candidate.round_trip_ms), found.ignored_fields)
    };
    assert_eq!(search([adas, bobs]).await, (Some(150.0), paths(&[])), "160 ms, rounded to 25");
    assert_eq!(search([adas, &[]]).await, (Some(100.0), paths(&[])));
    assert_eq!(search([bobs, adas]).await.1, paths(&["players[0].latency_token", "players[1].latency_token"]));

    let liar = site.issuer.client_with_token(&site.two, Role::Client, "ada").await;
    let liar = liar.with_metadata("x-forwarded-for", HOME).expect("a header");
    let stated = [("frankfurt", 1.0), ("tokyo", 1.0)];
    let request = pb::QueueEnterRequest {
        matchmaking_set_id: Some(TRUST_SET),
        session_composition: Some(with_latency(party_session(&[("ada", 0.0)]), adas, &stated)),
        ..Default::default()
    };
    let ticket = liar.enter_queue(request).await.expect("entered");
    assert_eq!(ticket.ignored_fields, paths(&["region_latencies[1]"]));
}
