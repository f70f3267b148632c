//! Game servers that have measured the beacons: a match is placed by the predicted round trips between them and the players.

use super::*;
use crate::support::queue_server::game_server_advertisement;

/// By distance nearest to the players, and far by prediction.
const NEAR_BY_DISTANCE: (&str, &str, f64) = ("near by distance", BOB.1, BOB.2);
/// By distance farther from the players, and near by prediction.
const NEAR_BY_PREDICTION: (&str, &str, f64) = ("near by prediction", CAI.1, CAI.2);

/// Advertises a game server, whose connect data is its name, with round trips to the beacons of a network.
async fn advertise(site: &Site<'_>, fleet: &mut Fleet, host: (&str, &'static str, f64), network: u32) {
    let client = site.issuer.client_with_token(site.server, Role::GameServer, host.0).await;
    let client = client.with_metadata("x-forwarded-for", host.1).expect("a header");
    let mut request = game_server_advertisement(host.0.as_bytes());
    let session = request.session_composition.as_mut().expect("a session");
    session.latency_token = fleet.token_of(site, Role::GameServer, host, network, 25).await;
    let advertised = client.update_advertisement(request).await.expect("published");
    assert_eq!(advertised.ignored_fields, Vec::<String>::new());
    site.server.keep_hosting(client, advertised.advertisement_token);
}

/// LAT-1, S3-8: a match goes to the game server to which its slowest player has the least predicted round trip. By distance it goes to
/// another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn match_is_placed_by_predicted_round_trips() {
    for (source, expected) in [("predicted", NEAR_BY_PREDICTION), ("distance", NEAR_BY_DISTANCE)] {
        let latency = format!("Source=\"{source}\"");
        let hosting = r#"<Hosting Mode="game_server" Choose="closest"/>"#;
        let (folder, clock) = (ruleset(2, &latency, hosting), Arc::new(TestClock::new()));
        let issuer = TokenIssuer::new(&*clock);
        let server = start_server(&folder, &clock, &issuer, None).await;
        let (site, mut fleet) = (Site { server: &server, issuer: &issuer }, Fleet::without_regions());
        fleet.announce(&site.fleet_caller().await).await;
        advertise(&site, &mut fleet, NEAR_BY_DISTANCE, 1).await;
        advertise(&site, &mut fleet, NEAR_BY_PREDICTION, 0).await;
        let mut ann = site.enter(ANN, fleet.token(&site, ANN, 0, 25).await).await;
        let mut amy = site.enter(members::AMY, fleet.token(&site, members::AMY, 0, 25).await).await;
        for party in [&mut ann, &mut amy] {
            let found = party.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
            let host = found.assignment.and_then(|assignment| assignment.host);
            let Some(pb::assignment::Host::GameServer(host)) = host else { panic!("no game server: {host:?}") };
            assert_eq!(String::from_utf8(host.connect_data).as_deref(), Ok(expected.0), "{source}");
        }
    }
}
