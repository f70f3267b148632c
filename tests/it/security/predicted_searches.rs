//! Searches that predict round trips, over the wire: order, sources, age, trust, other servers and restarts.

use std::sync::Arc;

use fireteam::auth::identity::Role;
use fireteam::clock::Clock as _;
use fireteam::config::{Config, StoreTarget};
use fireteam::domain::locality::Locality;
use fireteam::domain::location_privacy::arc_km;
use fireteam_client::{Advertisement, pb};
use pb::RoundTripSource as Source;

use crate::security::beacon_receipts::{LatencyCaller, TestBeacon, configure_beacons};
use crate::security::session_privacy::servers_on_one_postgres;
use crate::support::database::create_test_database;
use crate::support::queue_server::wait_until;
use crate::support::ruleset_dir::RulesetDirectory;
use crate::support::test_server::{TestClock, TestServer, advertise_request, party_session};
use crate::support::tokens::TokenIssuer;

pub(super) const DISTANCE_SET: u32 = 1;
const PREDICTED_SET: u32 = 2;
/// As the one before, with a limit of 100 ms.
pub(super) const LIMITED_SET: u32 = 3;
/// As the one before; no estimate passes the limit.
pub(super) const MEASURED_SET: u32 = 4;
/// As [`PREDICTED_SET`], where no player meets a blocked one.
pub(super) const AVOIDING_SET: u32 = 5;

/// Places of the beacons, in the order of their ids from 1.
pub(super) const BEACONS: [(f64, f64); 14] = [
    (50.1, 8.7),
    (51.5, -0.1),
    (48.9, 2.4),
    (40.4, -3.7),
    (52.2, 21.0),
    (59.3, 18.1),
    (41.9, 12.5),
    (55.8, 37.6),
    (38.7, -9.1),
    (60.2, 24.9),
    (40.7, -74.0),
    (45.5, -73.6),
    (47.5, 19.0),
    (53.3, -6.3),
];

/// A player with an address, a place, and a delay on every path.
#[derive(Clone, Copy)]
pub(super) struct Party {
    pub(super) user: &'static str,
    pub(super) address: &'static str,
    pub(super) at: (f64, f64),
    pub(super) delay_ms: f64,
}

pub(super) const ADA: Party = Party { user: "ada", address: "203.0.113.7", at: (50.0, 8.5), delay_ms: 0.0 };
/// 870 km from ada, behind a slow network.
pub(super) const NEAR: Party = Party { user: "near", address: "203.0.114.7", at: (52.0, 20.8), delay_ms: 150.0 };
/// 1,450 km from ada.
pub(super) const FAR: Party = Party { user: "far", address: "203.0.115.7", at: (40.2, -3.5), delay_ms: 0.0 };

fn locality((latitude, longitude): (f64, f64)) -> Locality {
    Locality::from_degrees(latitude, longitude).expect("degrees")
}

pub(super) fn path_ms(one: (f64, f64), other: (f64, f64)) -> f64 {
    4.0 + 0.0135 * arc_km(locality(one), locality(other))
}

pub(super) fn rulesets() -> RulesetDirectory {
    let ruleset = |set_id: u32, latency: &str, filters: &str| {
        format!(
            r#"<Ruleset Name="predicted {set_id}" SetId="{set_id}">
  <Attributes><Attribute Name="skill" Type="number" Min="-1000" Max="1000" Trust="client"/></Attributes>
  {filters}
  <SoftFilters><SoftFilter Attribute="latency" Weight="1" Min="0" Max="1000"/></SoftFilters>
  <Latency {latency}/>
  <Party Consent="assumed"/>
  <ExpansionConfigs><ExpansionConfig Name="reach" Type="latency">
    <Expansion ExpansionDurationMs="-1" Value="100"/>
  </ExpansionConfig></ExpansionConfigs>
</Ruleset>"#
        )
    };
    let limit = r#"<HardFilters><Within Expansion="reach"/></HardFilters>"#;
    let refusing_unmeasured = r#"<HardFilters><Within Expansion="reach" Missing="refuse"/></HardFilters>"#;
    RulesetDirectory::with_files(&[
        ("distance.xml", &ruleset(DISTANCE_SET, "", limit)),
        ("predicted.xml", &ruleset(PREDICTED_SET, r#"Source="predicted""#, "")),
        ("limited.xml", &ruleset(LIMITED_SET, r#"Source="predicted" Predictor="1""#, limit)),
        ("measured.xml", &ruleset(MEASURED_SET, r#"Source="measured""#, refusing_unmeasured)),
        ("avoiding.xml", &ruleset(AVOIDING_SET, r#"Source="predicted""#, r#"<Avoid Whom="blocked" How="never"/>"#)),
    ])
}

/// A server, its beacons and the callers' tokens.
pub(super) struct World {
    pub(super) server: TestServer,
    pub(super) issuer: TokenIssuer,
    clock: Arc<TestClock>,
    fleet: LatencyCaller,
    beacons: Vec<TestBeacon>,
    folder: RulesetDirectory,
}

pub(super) fn test_beacons() -> Vec<TestBeacon> {
    (1..=BEACONS.len() as u32).map(|id| TestBeacon::new(id, "")).collect()
}

pub(super) async fn announce(fleet: &LatencyCaller, beacons: &[TestBeacon]) {
    for beacon in beacons {
        let here = BEACONS[beacon.id as usize - 1];
        let trip = |(index, there): (usize, &(f64, f64))| pb::BeaconTrip {
            beacon_id: index as u32 + 1,
            floor_ms: path_ms(here, *there) as f32,
            age_ms: 0,
        };
        let announced = pb::Beacon {
            id: beacon.id,
            region: String::new(),
            address: vec![198, 51, 100, beacon.id as u8],
            port: 3_478,
            latitude: here.0,
            longitude: here.1,
            measure_first: false,
        };
        let trips = BEACONS.iter().enumerate().filter(|(index, _)| *index as u32 + 1 != beacon.id).map(trip).collect();
        let request = pb::AnnounceBeaconRequest { beacon: Some(announced), key_id: beacon.key_id.to_vec(), trips };
        fleet.announce(request).await.expect("announced");
    }
}

impl World {
    async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(super) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let (folder, clock) = (rulesets(), Arc::new(TestClock::new()));
        let issuer = TokenIssuer::new(&*clock);
        let server = TestServer::start_on_clock(Arc::clone(&clock), |config| {
            configure_beacons(config, &folder, &issuer);
            config.allow_client_locality = true;
            change(config);
        })
        .await;
        let fleet = LatencyCaller::new(&server, &issuer, Role::GameServer, "fleet", "198.51.100.1").await;
        let world = Self { server, issuer, clock, fleet, beacons: test_beacons(), folder };
        announce(&world.fleet, &world.beacons).await;
        world
    }

    /// Latency token of a party's receipts.
    pub(super) async fn token(&mut self, party: Party) -> Vec<u8> {
        token(&self.server, &self.issuer, &mut self.beacons, party).await
    }

    pub(super) async fn advertise(&self, set_id: u32, party: Party, token: &[u8]) -> Advertisement {
        advertise(&self.server, &self.issuer, set_id, party, session(party, token)).await
    }

    async fn search(&self, set_id: u32, token: &[u8]) -> Vec<pb::Candidate> {
        search(&self.server, &self.issuer, set_id, token).await
    }

    /// Lets time pass, in which hosts and beacons stay alive.
    async fn pass_ms(&self, ms: u64, hosts: &mut [&mut Advertisement], beacons: &[TestBeacon]) {
        for _ in 0..ms / 30_000 {
            self.clock.advance_ms(30_000);
            announce(&self.fleet, beacons).await;
            for host in &mut *hosts {
                host.heartbeat().await.expect("a heartbeat");
            }
        }
    }
}

pub(super) async fn token(
    server: &TestServer,
    issuer: &TokenIssuer,
    beacons: &mut [TestBeacon],
    party: Party,
) -> Vec<u8> {
    let caller = LatencyCaller::new(server, issuer, Role::Client, party.user, party.address).await;
    let (binding, now_s) = (caller.binding().await, server.clock.now().0 / 1_000);
    let receipts = beacons.iter_mut().map(|beacon| {
        let floor_ms = path_ms(party.at, BEACONS[beacon.id as usize - 1]) + party.delay_ms;
        beacon.receipt(party.address, floor_ms.round() as u64, &binding, now_s)
    });
    caller.report(receipts.collect()).await.latency_token
}

pub(super) fn session(party: Party, token: &[u8]) -> pb::SessionCompositionData {
    let mut session = party_session(&[(party.user, 0.0)]);
    session.latency_token = token.to_vec();
    session.locality_info = Some(pb::LocalityData {
        latitude_degrees: Some(party.at.0),
        longitude_degrees: Some(party.at.1),
        ..Default::default()
    });
    session
}

pub(super) async fn advertise(
    server: &TestServer,
    issuer: &TokenIssuer,
    set_id: u32,
    party: Party,
    mut session: pb::SessionCompositionData,
) -> Advertisement {
    let client = issuer.client_with_token(server, Role::Client, party.user).await;
    let client = client.with_metadata("x-forwarded-for", party.address).expect("a header");
    let mut request = advertise_request(&[], 4);
    session.max_allowed_join_reservation_count = Some(4);
    request.session_composition = Some(session);
    request.matchmaking_set_id = Some(set_id);
    client.advertise(request).await.expect("published")
}

/// Candidates of a search of ada.
async fn search(server: &TestServer, issuer: &TokenIssuer, set_id: u32, token: &[u8]) -> Vec<pb::Candidate> {
    let client = issuer.client_with_token(server, Role::Client, ADA.user).await;
    let client = client.with_metadata("x-forwarded-for", ADA.address).expect("a header");
    client.new_search(set_id, session(ADA, token)).search().await.expect("a search").candidates
}

fn sources(candidates: &[pb::Candidate]) -> Vec<Source> {
    candidates.iter().map(pb::Candidate::round_trip_source).collect()
}

pub(super) fn ids(candidates: &[pb::Candidate]) -> Vec<&str> {
    candidates.iter().map(|candidate| &*candidate.advertisement_id).collect()
}

/// LAT-1, LAT-2: where a route is slow, a search that predicts orders and refuses otherwise than one by distance. Answers tell the
/// source, and the interval in steps of 25 ms; a reservation is judged alike.
#[tokio::test]
async fn predicted_search_orders_and_refuses_by_slow_routes() {
    let mut world = World::start().await;
    let [ada, near, far] = [world.token(ADA).await, world.token(NEAR).await, world.token(FAR).await];
    for set_id in [DISTANCE_SET, PREDICTED_SET, LIMITED_SET] {
        let near = world.advertise(set_id, NEAR, &near).await;
        let far = world.advertise(set_id, FAR, &far).await;
        let found = world.search(set_id, &ada).await;
        match set_id {
            DISTANCE_SET => {
                assert_eq!((ids(&found), sources(&found)), (vec![near.id(), far.id()], vec![Source::Distance; 2]));
                assert_eq!((found[0].round_trip_low_ms, found[0].round_trip_high_ms), (None, None));
            }
            PREDICTED_SET => {
                assert_eq!((ids(&found), sources(&found)), (vec![far.id(), near.id()], vec![Source::Predicted; 2]));
                let [far, near] = [&found[0], &found[1]].map(|candidate| {
                    let (low, high) = (candidate.round_trip_low_ms.unwrap(), candidate.round_trip_high_ms.unwrap());
                    let middle = candidate.round_trip_ms.unwrap();
                    assert!(low <= middle && middle <= high && [low, middle, high].iter().all(|ms| ms % 25.0 == 0.0));
                    middle
                });
                assert!(far <= 50.0 && 125.0 <= near, "{far} and {near} ms");
            }
            _ => {
                assert_eq!(ids(&found), [far.id()], "the other is beyond the limit");
                let without_token = world.search(set_id, &[]).await;
                assert_eq!(
                    (ids(&without_token), sources(&without_token)),
                    (vec![near.id(), far.id()], vec![Source::Distance; 2])
                );
            }
        }
        // One advertisement of an account at a time.
        near.delete().await.expect("deleted");
        far.delete().await.expect("deleted");
    }
    let metrics = world.server.app.metrics.render();
    assert!(metrics.contains("fireteam_round_trip_sources_total{source=\"predicted\"} 3\n"), "{metrics}");
    assert!(metrics.contains("fireteam_round_trip_sources_total{source=\"distance\"} 4\n"), "{metrics}");
}

/// LAT-1: a host's vector counts for ten minutes, which heartbeats do not extend; a full update with a fresh token renews it, and one
/// without a token removes it. Where too few beacons live, searches use distance.
#[tokio::test]
async fn published_vector_expires_and_predictions_fall_back_to_distance() {
    let mut world = World::start().await;
    let far = world.token(FAR).await;
    let mut host = world.advertise(PREDICTED_SET, FAR, &far).await;
    let ada = world.token(ADA).await;
    let source = async |world: &World, ada: &[u8]| sources(&world.search(PREDICTED_SET, ada).await);
    assert_eq!(source(&world, &ada).await, [Source::Predicted]);

    world.pass_ms(570_000, &mut [&mut host], &world.beacons).await;
    let ada = world.token(ADA).await;
    assert_eq!(source(&world, &ada).await, [Source::Predicted]);
    world.pass_ms(30_000, &mut [&mut host], &world.beacons).await;
    assert_eq!(source(&world, &ada).await, [Source::Distance], "ten minutes after the token");

    let fresh = world.token(FAR).await;
    update(&mut host, &fresh).await;
    assert_eq!(source(&world, &ada).await, [Source::Predicted]);
    update(&mut host, &[]).await;
    assert_eq!(source(&world, &ada).await, [Source::Distance], "an update without a token");
    let fresh = world.token(FAR).await;
    update(&mut host, &fresh).await;
    assert_eq!(source(&world, &ada).await, [Source::Predicted]);

    world.pass_ms(60_000, &mut [&mut host], &world.beacons[..11]).await;
    assert_eq!(source(&world, &ada).await, [Source::Distance], "eleven live beacons");
    world.pass_ms(30_000, &mut [&mut host], &world.beacons).await;
    assert_eq!(source(&world, &ada).await, [Source::Predicted], "they are back");
}

/// Full update of the advertisement of [`FAR`].
async fn update(host: &mut Advertisement, token: &[u8]) {
    let mut request = advertise_request(&[], 4);
    request.session_composition =
        Some(pb::SessionCompositionData { max_allowed_join_reservation_count: Some(4), ..session(FAR, token) });
    host.replace_published(request).await.expect("updated");
}

/// LAT-5, SEC-6: where the ruleset trusts receipts, a claimed vector is none; and a party is as far as its farthest member.
#[tokio::test]
async fn claimed_vectors_do_not_count_and_the_farthest_member_does() {
    let mut world = World::start().await;
    let ada = world.token(ADA).await;
    let liar = LatencyCaller::new(&world.server, &world.issuer, Role::Client, NEAR.user, NEAR.address).await;
    let claims: Vec<(u32, f32)> = (1..=14).map(|id| (id, 1.0)).collect();
    let claimed = liar.claim(&claims).await;
    let lying = world.advertise(PREDICTED_SET, NEAR, &claimed).await;
    let found = world.search(PREDICTED_SET, &ada).await;
    assert_eq!((ids(&found), sources(&found)), (vec![lying.id()], vec![Source::Distance]));

    lying.delete().await.expect("deleted");
    let host = Party { user: "host", address: "203.0.116.7", ..FAR };
    let (alone, hosts, member) = (world.token(FAR).await, world.token(host).await, world.token(NEAR).await);
    let solo = world.advertise(PREDICTED_SET, FAR, &alone).await;
    let mut party = party_session(&[(host.user, 0.0), (NEAR.user, 0.0)]);
    party.players[1].latency_token = member;
    party =
        pb::SessionCompositionData { locality_info: session(FAR, &[]).locality_info, latency_token: hosts, ..party };
    let together = advertise(&world.server, &world.issuer, PREDICTED_SET, host, party).await;
    let found = world.search(PREDICTED_SET, &ada).await;
    let round_trip = |id: &str| {
        let candidate = found.iter().find(|candidate| candidate.advertisement_id == id).expect("found");
        assert_eq!(candidate.round_trip_source(), Source::Predicted);
        candidate.round_trip_ms.expect("a round trip")
    };
    let (solo, together) = (round_trip(solo.id()), round_trip(together.id()));
    assert!(solo + 50.0 <= together, "{solo} ms alone, {together} with a member behind a slow network");
}

/// R8: the vector is in the store: a server that restarts predicts as before.
#[tokio::test]
async fn published_vector_survives_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let mut world =
        World::start_with(|config| config.store = StoreTarget::Sqlite(data.path().join("fireteam.db"))).await;
    let far = world.token(FAR).await;
    let host = world.advertise(PREDICTED_SET, FAR, &far).await;
    let ada = world.token(ADA).await;
    let before = world.search(PREDICTED_SET, &ada).await;
    assert_eq!((ids(&before), sources(&before)), (vec![host.id()], vec![Source::Predicted]));
    let World { server, issuer, folder, .. } = world;
    let server = server.restart().await;
    wait_until("the server knows its beacons again", async || {
        let found = search(&server, &issuer, PREDICTED_SET, &ada).await;
        sources(&found) == [Source::Predicted]
    })
    .await;
    let after = search(&server, &issuer, PREDICTED_SET, &ada).await;
    assert_eq!(after[0].round_trip_ms, before[0].round_trip_ms);
    drop(folder);
}

/// LAT-1, R9: another server of the database learns the vector with the advertisement, and that it is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn published_vector_reaches_other_servers() {
    let Some(database) = create_test_database("predicted_searches").await else { return };
    let (folder, clock) = (rulesets(), Arc::new(TestClock::new()));
    let issuer = TokenIssuer::new(&*clock);
    let (one, two) = servers_on_one_postgres(&database.url, &clock, |config| {
        configure_beacons(config, &folder, &issuer);
        config.allow_client_locality = true;
    })
    .await;
    let fleet = LatencyCaller::new(&one, &issuer, Role::GameServer, "fleet", "198.51.100.1").await;
    let mut beacons = test_beacons();
    announce(&fleet, &beacons).await;
    let [ada, far] = [token(&one, &issuer, &mut beacons, ADA).await, token(&one, &issuer, &mut beacons, FAR).await];
    let mut host = advertise(&one, &issuer, PREDICTED_SET, FAR, session(FAR, &far)).await;
    let told = async |server: &TestServer, expected: Source| {
        wait_until("the source is as expected", async || {
            let found = search(server, &issuer, PREDICTED_SET, &ada).await;
            sources(&found) == [expected] && ids(&found) == [host.id()]
        })
        .await;
        search(server, &issuer, PREDICTED_SET, &ada).await[0].round_trip_ms
    };
    assert_eq!(told(&one, Source::Predicted).await, told(&two, Source::Predicted).await);
    update(&mut host, &[]).await;
    let found = async |server: &TestServer| sources(&search(server, &issuer, PREDICTED_SET, &ada).await);
    wait_until("the other server knows that it is gone", async || found(&two).await == [Source::Distance]).await;
    assert_eq!(found(&one).await, [Source::Distance]);
}
