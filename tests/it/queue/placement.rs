//! Placement on game servers: a match keeps its region, spreads over equal servers, and says why it has none.

use fireteam_client::pb;
use pb::TicketState;

use crate::support::generated_client::GetStatisticsRequest;
use crate::support::queue_server::{
    QueuedParty, SET_ID, advertise_host, enter_request, game_server_advertisement, operator_client, start_queue_server,
    wait_until,
};
use crate::support::test_server::{TestServer, advertise_request};

/// A 1v1 queue on game servers; `before` are attributes, `queue` elements of the queue, `hosting` attributes.
fn hosted_duel(before: &str, queue: &str, hosting: &str) -> String {
    format!(
        r#"<Ruleset Name="Duel" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/>
    <Attribute Name="region" Type="string" Trust="client"/></Attributes>
  {before}
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10">{queue}</Queue>
  <Hosting Mode="game_server" AllocationTimeoutMs="600000" {hosting}/>
</Ruleset>"#
    )
}

/// The three modes of regions.
fn rulesets_with_regions() -> [String; 3] {
    let reach = r#"<ExpansionConfigs><ExpansionConfig Name="reach" Type="latency">
      <Expansion ExpansionDurationMs="-1" Value="60"/></ExpansionConfig></ExpansionConfigs>"#;
    let similar = r#"<Quality><AverageSimilarity RatingSpan="50" RequiredPercent="50"/></Quality>"#;
    [
        hosted_duel("", r#"<Regions Mode="partition" Attribute="region"/>"#, ""),
        hosted_duel(reach, r#"<Regions Mode="filter" Expansion="reach"/>"#, ""),
        hosted_duel("", &format!(r#"<Regions Mode="quality" Weight="0.5" SpanMs="200"/>{similar}"#), ""),
    ]
}

/// Round trips of a player or game server that is near one region.
fn near(region: &str) -> Vec<pb::RegionLatency> {
    let round_trip = |name: &str| pb::RegionLatency {
        region: name.to_owned(),
        round_trip_ms: if name == region { 20.0 } else { 140.0 },
    };
    vec![round_trip("eu"), round_trip("us")]
}

/// Request to enter one player near `region`.
fn request_near(name: &str, region: &str) -> pb::QueueEnterRequest {
    let mut request = enter_request(SET_ID, &[(name, 20.0)]);
    let session = request.session_composition.as_mut().expect("a party");
    session.region_latencies = near(region);
    let value = pb::attribute_value::Value::StringValue(region.to_owned());
    session.attributes.insert("region".to_owned(), pb::AttributeValue { value: Some(value) });
    request
}

async fn enter_near(server: &TestServer, name: &str, region: &str) -> QueuedParty {
    QueuedParty::enter_with_request(server, request_near(name, region)).await
}

/// A game server near `region` with seats for many matches; `name` is its connect data.
fn server_near(region: &str, name: &str) -> pb::MatchmakingUpdateAdvertisementRequest {
    let mut request = game_server_advertisement(name.as_bytes());
    let session = request.session_composition.as_mut().expect("a session");
    session.region_latencies = near(region);
    session.max_allowed_join_reservation_count = Some(40);
    request
}

/// Name of the game server on which the ticket's match is played.
async fn host_of(waiting: &mut QueuedParty) -> String {
    let found = waiting.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
    match found.assignment.and_then(|assignment| assignment.host) {
        Some(pb::assignment::Host::GameServer(server)) => String::from_utf8(server.connect_data).expect("a name"),
        other => panic!("no game server: {other:?}"),
    }
}

/// S3-8: a match that was agreed for a region is placed there in every region mode, also if servers elsewhere were there
/// first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn placement_keeps_the_region_in_every_mode() {
    for ruleset in rulesets_with_regions() {
        let server = start_queue_server(&[&ruleset]).await;
        for (region, name) in [("us", "us 1"), ("us", "us 2"), ("eu", "eu 1"), ("us", "us 3")] {
            advertise_host(&server, server_near(region, name)).await;
        }
        for number in 0..10 {
            for region in ["eu", "us"] {
                let mut one = enter_near(&server, &format!("{region} one {number}"), region).await;
                let mut two = enter_near(&server, &format!("{region} two {number}"), region).await;
                let (here, there) = (host_of(&mut one).await, host_of(&mut two).await);
                assert_eq!(here, there);
                assert!(here.starts_with(region), "a match of {region} is on {here}: {ruleset}");
            }
        }
    }
}

/// While no server of the region has seats, the tickets wait in PLACING and say why; a server that appears is taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn placement_waits_for_a_server_of_the_region() {
    for ruleset in rulesets_with_regions() {
        let server = start_queue_server(&[&ruleset]).await;
        let mut one = enter_near(&server, "one", "eu").await;
        let mut two = enter_near(&server, "two", "eu").await;
        let reason = async |waiting: &mut QueuedParty| waiting.current_status().await.blocking_rule;
        wait_until("no server", async || reason(&mut one).await == "no_game_server").await;
        advertise_host(&server, server_near("us", "us 1")).await;
        wait_until("another region", async || reason(&mut one).await == "region").await;
        assert_eq!(two.current_status().await.state(), TicketState::Placing);
        advertise_host(&server, server_near("eu", "eu 1")).await;
        assert_eq!(host_of(&mut one).await, "eu 1");
        assert_eq!(host_of(&mut two).await, "eu 1");
    }
}

/// A server that is farther than the limit from one of the players is not taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn placement_refuses_servers_that_are_too_far() {
    let server = start_queue_server(&[&hosted_duel("", "", r#"MaxRoundTripMs="100""#)]).await;
    advertise_host(&server, server_near("us", "us 1")).await;
    let mut one = enter_near(&server, "one", "eu").await;
    let mut two = enter_near(&server, "two", "eu").await;
    wait_until("too far", async || one.current_status().await.blocking_rule == "round_trip").await;
    advertise_host(&server, server_near("eu", "eu 1")).await;
    assert_eq!(host_of(&mut one).await, "eu 1");
    assert_eq!(host_of(&mut two).await, "eu 1");
}

/// `fullest` packs matches on one server, `emptiest` spreads them, and equal servers share the matches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn placement_chooses_the_server_that_the_ruleset_wants() {
    for (hosting, used) in [(r#"Choose="fullest""#, 1..=1), (r#"Choose="emptiest""#, 4..=4), ("", 2..=4)] {
        let server = start_queue_server(&[&hosted_duel("", "", hosting)]).await;
        for name in ["a", "b", "c", "d"] {
            advertise_host(&server, server_near("eu", name)).await;
        }
        let mut hosts = std::collections::BTreeSet::new();
        for number in 0..12 {
            let mut one = enter_near(&server, &format!("one {number}"), "eu").await;
            let _two = enter_near(&server, &format!("two {number}"), "eu").await;
            hosts.insert(host_of(&mut one).await);
        }
        assert!(used.contains(&hosts.len()), "{hosting}: {hosts:?}");
    }
}

/// A session near `region` whose host plays in it and has one open seat.
fn session_near(region: &str, name: &str) -> pb::MatchmakingUpdateAdvertisementRequest {
    let mut request = advertise_request(&[(name, 20.0)], 1);
    request.matchmaking_set_id = Some(SET_ID);
    request.connect_data = name.as_bytes().to_vec();
    let session = request.session_composition.as_mut().expect("a session");
    session.region_latencies = near(region);
    let value = pb::attribute_value::Value::StringValue(region.to_owned());
    session.attributes.insert("region".to_owned(), pb::AttributeValue { value: Some(value) });
    request
}

/// S3-8: an open session in another region than its players' is not filled, in any region mode, nor one that is too far.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backfill_keeps_the_region_in_every_mode() {
    let too_far = hosted_duel("", "", r#"MaxRoundTripMs="100""#);
    for ruleset in rulesets_with_regions().into_iter().chain([too_far]) {
        let ruleset = ruleset.replace(r#"PassIntervalMs="10""#, r#"PassIntervalMs="10" Backfill="true""#);
        let server = start_queue_server(&[&ruleset]).await;
        for name in ["us 1", "us 2"] {
            advertise_host(&server, session_near("us", name)).await;
        }
        let mut ann = enter_near(&server, "ann", "eu").await;
        wait_until("a pass", async || !ann.current_status().await.blocking_rule.is_empty()).await;
        assert_eq!(ann.current_status().await.state(), TicketState::Waiting, "{ruleset}");
        advertise_host(&server, session_near("eu", "eu 1")).await;
        assert_eq!(host_of(&mut ann).await, "eu 1", "{ruleset}");
        let mut bob = enter_near(&server, "bob", "us").await;
        assert!(host_of(&mut bob).await.starts_with("us"), "{ruleset}");
    }
}

/// A thousand matches that have no server do not delay a later match that has one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn placement_of_a_thousand_unplaceable_matches_delays_no_other() {
    let [partitioned, ..] = rulesets_with_regions();
    let server = start_queue_server(&[&partitioned]).await;
    let client = server.client().await;
    advertise_host(&server, server_near("us", "us 1")).await;
    let mut first = enter_near(&server, "first", "eu").await;
    let mut entering = tokio::task::JoinSet::new();
    for task in 0..10 {
        let client = client.clone();
        entering.spawn(async move {
            for number in 0..210 {
                client.enter_queue(request_near(&format!("eu {task} {number}"), "eu")).await.expect("enter");
            }
        });
    }
    entering.join_all().await;
    let mut operator = operator_client(&server).await;
    wait_until("all players of eu are in matches", async || {
        let statistics =
            operator.get_statistics(GetStatisticsRequest::default()).await.expect("statistics").into_inner();
        statistics.queues.iter().any(|queue| queue.matches >= 1_050)
    })
    .await;
    let mut one = enter_near(&server, "one", "us").await;
    let mut two = enter_near(&server, "two", "us").await;
    assert_eq!(host_of(&mut one).await, "us 1");
    assert_eq!(host_of(&mut two).await, "us 1");
    first.wait_for_state(TicketState::Placing).await;
    assert_eq!(first.current_status().await.blocking_rule, "region");
}
