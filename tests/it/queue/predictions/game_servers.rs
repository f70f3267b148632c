//! Game servers that have measured the beacons: a match is placed by the predicted round trips between them and the players. With two
//! servers on one Postgres, after a restart, by regions, and within `MaxRoundTripMs`.

use super::*;
use crate::support::queue_server::game_server_advertisement;

/// A game server, and a place of a player with a network of its own.
type Host = (&'static str, &'static str, f64);

/// By distance nearest to the players, and far by prediction.
const NEAR_BY_DISTANCE: Host = ("near by distance", BOB.1, BOB.2);
/// By distance farther from the players, and near by prediction.
const NEAR_BY_PREDICTION: Host = ("near by prediction", CAI.1, CAI.2);

fn duels(source: &str, hosting: &str) -> RulesetDirectory {
    ruleset(2, &format!("Source=\"{source}\""), &format!("<Hosting Mode=\"game_server\" {hosting}/>"))
}

/// Advertises a game server, whose connect data is its name, with round trips to the beacons of a network. Returns its token.
async fn advertise(site: &Site<'_>, fleet: &mut Fleet, host: Host, network: u32) -> Vec<u8> {
    let mut request = game_server_advertisement(host.0.as_bytes());
    request.time_to_live_ms = Some(600_000);
    let session = request.session_composition.as_mut().expect("a session");
    session.latency_token = fleet.token_of(site, Role::GameServer, host, network, 25).await;
    let advertised = host_client(site, host).await.update_advertisement(request).await.expect("published");
    assert_eq!(advertised.ignored_fields, Vec::<String>::new());
    keep_hosting(site, host, &advertised.advertisement_token).await;
    advertised.advertisement_token
}

async fn host_client(site: &Site<'_>, host: Host) -> Client {
    let client = site.issuer.client_with_token(site.server, Role::GameServer, host.0).await;
    client.with_metadata("x-forwarded-for", host.1).expect("a header")
}

async fn keep_hosting(site: &Site<'_>, host: Host, advertisement_token: &[u8]) {
    site.server.keep_hosting(host_client(site, host).await, advertisement_token.to_vec());
}

/// Enters ann at one server and amy at the other; both are 25 ms from the even beacons. Both names may stand for one server.
async fn enter_two([one, two]: [Site<'_>; 2], fleet: &mut Fleet) -> [QueuedParty; 2] {
    let ann = one.enter(ANN, fleet.token(&one, ANN, 0, 25).await).await;
    [ann, two.enter(members::AMY, fleet.token(&two, members::AMY, 0, 25).await).await]
}

/// Waits until both are matched on the same game server, and returns its name with the region of the match.
async fn place_of(parties: &mut [QueuedParty; 2]) -> (String, String) {
    let mut places = Vec::new();
    for party in parties {
        let found = party.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
        let host = found.assignment.and_then(|assignment| assignment.host);
        let Some(pb::assignment::Host::GameServer(host)) = host else { panic!("no game server: {host:?}") };
        places.push((String::from_utf8(host.connect_data).expect("a name"), found.region));
    }
    assert_eq!(places[0], places[1]);
    places.remove(0)
}

/// Waits until the server knows all beacons and this number of game servers.
async fn wait_until_known(site: &Site<'_>, game_servers: u32) {
    let caller = LatencyCaller::new(site.server, site.issuer, Role::Client, ANN.0, ANN.1).await;
    let gauge = format!("fireteam_advertisements {game_servers}\n");
    wait_until("the server knows beacons and game servers", async || {
        caller.beacons().await.beacons.len() == BEACONS as usize && site.server.app.metrics.render().contains(&gauge)
    })
    .await;
}

/// LAT-1: a match goes to the game server to which its slowest player has the least predicted round trip. By distance it goes to
/// another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn match_is_placed_by_predicted_round_trips() {
    for (source, expected) in [("predicted", NEAR_BY_PREDICTION), ("distance", NEAR_BY_DISTANCE)] {
        let (folder, clock) = (duels(source, r#"Choose="closest""#), Arc::new(TestClock::new()));
        let issuer = TokenIssuer::new(&*clock);
        let server = start_server(&folder, &clock, &issuer, None).await;
        let (site, mut fleet) = (Site { server: &server, issuer: &issuer }, Fleet::without_regions());
        fleet.announce(&site.fleet_caller().await).await;
        advertise(&site, &mut fleet, NEAR_BY_DISTANCE, 1).await;
        advertise(&site, &mut fleet, NEAR_BY_PREDICTION, 0).await;
        let mut parties = enter_two([site; 2], &mut fleet).await;
        assert_eq!(place_of(&mut parties).await.0, expected.0, "{source}");
    }
}

/// LAT-1, R9: the same with two servers on one Postgres: beacons, game servers and one player are at one, the other player at the
/// other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn match_of_two_servers_is_placed_by_predicted_round_trips() {
    let Some(database) = create_test_database("predicted_placement").await else { return };
    let (folder, clock) = (duels("predicted", r#"Choose="closest""#), Arc::new(TestClock::new()));
    let issuer = TokenIssuer::new(&*clock);
    let configure = |config: &mut Config| configure_site(config, &folder, &issuer);
    let (one, two) = servers_on_one_postgres(&database.url, &clock, configure).await;
    let sites = [Site { server: &one, issuer: &issuer }, Site { server: &two, issuer: &issuer }];
    let mut fleet = Fleet::without_regions();
    fleet.announce(&sites[0].fleet_caller().await).await;
    advertise(&sites[0], &mut fleet, NEAR_BY_DISTANCE, 1).await;
    advertise(&sites[0], &mut fleet, NEAR_BY_PREDICTION, 0).await;
    for site in &sites {
        wait_until_known(site, 2).await;
    }
    let mut parties = enter_two(sites, &mut fleet).await;
    assert_eq!(place_of(&mut parties).await.0, NEAR_BY_PREDICTION.0);
}

/// LAT-1, R8: vectors of game servers and beacons are in the store: a server that restarts places matches as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn match_after_a_restart_is_placed_by_predicted_round_trips() {
    let (folder, clock) = (duels("predicted", r#"Choose="closest""#), Arc::new(TestClock::new()));
    let issuer = TokenIssuer::new(&*clock);
    let store = StoreTarget::Sqlite(folder.path().join("store.db"));
    let server = start_server(&folder, &clock, &issuer, Some(store)).await;
    let (site, mut fleet) = (Site { server: &server, issuer: &issuer }, Fleet::without_regions());
    fleet.announce(&site.fleet_caller().await).await;
    let mut hosts = Vec::new();
    for (host, network) in [(NEAR_BY_DISTANCE, 1), (NEAR_BY_PREDICTION, 0)] {
        hosts.push((host, advertise(&site, &mut fleet, host, network).await));
    }
    let server = server.restart().await;
    let site = Site { server: &server, issuer: &issuer };
    for (host, token) in &hosts {
        keep_hosting(&site, *host, token).await;
    }
    wait_until_known(&site, 2).await;
    let mut parties = enter_two([site; 2], &mut fleet).await;
    assert_eq!(place_of(&mut parties).await.0, NEAR_BY_PREDICTION.0);
}

/// LAT-1, S3-8: with regions, the match is agreed for the region whose beacons are near to the players, and a game server of another one is
/// not taken, though distance says that it is nearest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn match_is_placed_in_the_region_of_its_beacons() {
    let reach = r#"<ExpansionConfigs><ExpansionConfig Name="reach" Type="latency">
    <Expansion ExpansionDurationMs="-1" Value="150"/>
  </ExpansionConfig></ExpansionConfigs>
  <Hosting Mode="game_server" Choose="closest"/>"#;
    let queue = r#"<Queue PassIntervalMs="10"><Regions Mode="filter" Expansion="reach"/></Queue>"#;
    let text = ruleset_text(2, r#"Source="predicted""#, reach).replace(r#"<Queue PassIntervalMs="10"/>"#, queue);
    let (folder, clock) = (RulesetDirectory::with_files(&[("regions.xml", &text)]), Arc::new(TestClock::new()));
    let issuer = TokenIssuer::new(&*clock);
    let server = start_server(&folder, &clock, &issuer, None).await;
    let (site, mut fleet) = (Site { server: &server, issuer: &issuer }, Fleet::new());
    fleet.announce(&site.fleet_caller().await).await;
    advertise(&site, &mut fleet, NEAR_BY_DISTANCE, 1).await;
    let mut parties = enter_two([site; 2], &mut fleet).await;
    let reason = async |party: &mut QueuedParty| party.current_status().await.blocking_rule;
    wait_until("only a server elsewhere", async || reason(&mut parties[0]).await == "region").await;
    advertise(&site, &mut fleet, NEAR_BY_PREDICTION, 0).await;
    assert_eq!(place_of(&mut parties).await, (NEAR_BY_PREDICTION.0.to_owned(), "even".to_owned()));
}

/// LAT-1: `MaxRoundTripMs` compares the predicted round trip of the slowest player: a game server within it by distance is not taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn match_is_placed_within_the_predicted_max_round_trip() {
    for source in ["predicted", "distance"] {
        let (folder, clock) = (duels(source, r#"MaxRoundTripMs="100""#), Arc::new(TestClock::new()));
        let issuer = TokenIssuer::new(&*clock);
        let server = start_server(&folder, &clock, &issuer, None).await;
        let (site, mut fleet) = (Site { server: &server, issuer: &issuer }, Fleet::without_regions());
        fleet.announce(&site.fleet_caller().await).await;
        // The first one is beyond the limit.
        let (beyond, within) = match source {
            "predicted" => ((NEAR_BY_DISTANCE, 1), (NEAR_BY_PREDICTION, 0)),
            _ => ((NEAR_BY_PREDICTION, 0), (NEAR_BY_DISTANCE, 1)),
        };
        advertise(&site, &mut fleet, beyond.0, beyond.1).await;
        let mut parties = enter_two([site; 2], &mut fleet).await;
        let reason = async |party: &mut QueuedParty| party.current_status().await.blocking_rule;
        wait_until("the server is too far", async || reason(&mut parties[0]).await == "round_trip").await;
        advertise(&site, &mut fleet, within.0, within.1).await;
        assert_eq!(place_of(&mut parties).await.0, within.0.0, "{source}");
    }
}
