//! Queues: time to a match and to play, quality, distance, round trips, and refusals by rule.

use fireteam_client::{Ticket, pb};
use pb::TicketState;

use crate::security::match_credential::operator_page;
use crate::statistics::{by_all, of_hour, refusals, rows, statistics};
use crate::support::generated_client::{DistributionKind, GetStatisticsRequest, MatchmakingDoor, StatisticsPeriod};
use crate::support::party_site::{PartySite, on_each_store, wait_for_rule, wait_for_state};
use crate::support::queue_server::{
    QueuedParty, SET_ID, advertise_host, duel_ruleset, enter_request, game_server_advertisement, operator_client,
    start_queue_server_with_config, wait_until,
};

/// Duels with a ready check, in the nearest common region.
fn duels() -> String {
    duel_ruleset(
        r#"<ReadyCheck TimeoutMs="600000"/>
  <ExpansionConfigs><ExpansionConfig Name="reach" Type="latency"><Expansion ExpansionDurationMs="-1" Value="300"/></ExpansionConfig>
  </ExpansionConfigs>
  <Statistics><Region Name="eu"/></Statistics>"#,
    )
    .replace("</Queue>", r#"<Regions Mode="filter" Expansion="reach"/></Queue>"#)
}

/// Request to enter one player, who has measured round trips to a listed region, and to one of its own.
fn request(user: &str, skill: f64, eu_ms: f32) -> pb::QueueEnterRequest {
    let mut request = enter_request(SET_ID, &[(user, skill)]);
    let latency = |region: &str, ms| pb::RegionLatency { region: region.to_owned(), round_trip_ms: ms };
    if let Some(session) = &mut request.session_composition {
        session.region_latencies = vec![latency("eu", eu_ms), latency(&format!("home of {user}"), 1.0)];
    }
    request
}

/// A player enters at the first or at the last server.
async fn enter(site: &PartySite, user: &str, skill: f64, is_elsewhere: bool) -> Ticket {
    let client = if is_elsewhere { site.player_elsewhere(user).await } else { site.player(user).await };
    client.enter_queue(request(user, skill, 20.0)).await.expect("enter")
}

/// A match counts once, with the waits of its parties until it was proposed and until play began. One server may propose it,
/// and the other receive the last reply. Both servers return it, also after a restart.
async fn matches_are_counted_once(mut site: PartySite) {
    enter(&site, "far", 40.0, false).await;
    let mut ann = enter(&site, "ann", 20.0, false).await;
    wait_for_rule(&site, "far", "window").await;
    site.clock.advance_ms(2_000);
    let mut bob = enter(&site, "bob", 20.0, true).await;
    let found = wait_for_state(&mut ann, TicketState::Proposed).await.found_match.expect("a match");
    wait_for_state(&mut bob, TicketState::Proposed).await;
    site.clock.advance_ms(5_000);
    ann.respond_to_ready_check(&found.match_id, true).await.expect("accept");
    bob.respond_to_ready_check(&found.match_id, true).await.expect("accept");
    wait_for_state(&mut ann, TicketState::Matched).await;
    wait_for_state(&mut bob, TicketState::Matched).await;
    let expected = async |site: &PartySite, server: usize| {
        // Each server adds its own counts every two seconds.
        wait_until("all is counted", async || {
            let found = statistics(site, server, by_all()).await;
            let rules = refusals(&found, MatchmakingDoor::Queue);
            rows(&found, DistributionKind::EnterToPlayMs) == [("eu", "1", 2, 12_000.0)]
                && rows(&found, DistributionKind::EnterToMatchMs) == [("eu", "1", 2, 2_000.0)]
                && rules.iter().any(|row| matches!(row, ("", "window", 1..)))
        })
        .await;
        let found = statistics(site, server, by_all()).await;
        let round_trips = rows(&found, DistributionKind::MatchRoundTripMs);
        assert!(matches!(&*round_trips, [("eu", "1", 2, _)]), "{round_trips:?}");
        let qualities = rows(&found, DistributionKind::MatchQuality);
        assert!(matches!(&*qualities, [("eu", "", 1, _)]), "{qualities:?}");
        assert_eq!(rows(&found, DistributionKind::MatchDistanceKm), [], "no place is known");
        assert!(found.distributions.iter().all(|row| !row.region.contains("home")), "{found:?}");
    };
    for server in 0..site.servers.len() {
        expected(&site, server).await;
    }
    site.restart_first().await;
    expected(&site, 0).await;
    site.shut_down().await;
}

/// A match that is declined counts as proposed, and not as played; the one that the party gets afterwards counts with its whole wait.
async fn declined_match_is_no_play(site: PartySite) {
    let mut ann = enter(&site, "ann", 20.0, false).await;
    let mut bob = enter(&site, "bob", 20.0, true).await;
    let found = wait_for_state(&mut bob, TicketState::Proposed).await.found_match.expect("a match");
    bob.respond_to_ready_check(&found.match_id, false).await.expect("decline");
    wait_for_state(&mut ann, TicketState::Waiting).await;
    site.clock.advance_ms(3_000);
    let mut cid = enter(&site, "cid", 20.0, true).await;
    let found = wait_for_state(&mut ann, TicketState::Proposed).await.found_match.expect("a match");
    wait_for_state(&mut cid, TicketState::Proposed).await;
    ann.respond_to_ready_check(&found.match_id, true).await.expect("accept");
    cid.respond_to_ready_check(&found.match_id, true).await.expect("accept");
    wait_for_state(&mut ann, TicketState::Matched).await;
    for server in 0..site.servers.len() {
        wait_until("the match is counted", async || {
            let found = statistics(&site, server, of_hour()).await;
            rows(&found, DistributionKind::EnterToPlayMs) == [("", "", 2, 3_000.0)]
                && rows(&found, DistributionKind::EnterToMatchMs) == [("", "", 4, 3_000.0)]
        })
        .await;
    }
    site.shut_down().await;
}

on_each_store! {
    declined_match_is_no_play, duels(), declined_match_is_no_play_on_sqlite, declined_match_is_no_play_on_postgres;
}

/// S1-96: a scrape has the same counts as the call, with places of two parties, and no text of a client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scrape_has_the_same_counts_as_the_call() {
    let rules = duels().replace(r#"<ReadyCheck TimeoutMs="600000"/>"#, "");
    let server = start_queue_server_with_config(&[&rules], |config| config.allow_client_locality = true).await;
    let mut parties = Vec::new();
    // Paris and Berlin: 878 km.
    for (user, latitude, longitude) in [("ann", 48.9, 2.4), ("bob", 52.5, 13.4)] {
        let mut request = request(user, 20.0, 20.0);
        let locality = pb::LocalityData {
            latitude_degrees: Some(latitude),
            longitude_degrees: Some(longitude),
            ..Default::default()
        };
        request.session_composition.as_mut().expect("a party").locality_info = Some(locality);
        parties.push(QueuedParty::enter_with_request(&server, request).await);
    }
    let mut found = Default::default();
    wait_until("the match is counted", async || {
        let mut operator = operator_client(&server).await;
        found = operator.get_statistics(by_all()).await.expect("statistics").into_inner();
        !rows(&found, DistributionKind::EnterToPlayMs).is_empty()
    })
    .await;
    let distances = rows(&found, DistributionKind::MatchDistanceKm);
    let [("eu", "", 1, km)] = *distances else { panic!("{distances:?}") };
    assert!((700.0..1_050.0).contains(&km), "{km}");
    let (_, page) = operator_page(&server, "/metrics").await;
    for line in [
        r#"fireteam_enter_to_play_seconds_count{set="11",region="eu",party_size="1"} 2"#,
        r#"fireteam_enter_to_match_seconds_count{set="11",region="eu",party_size="1"} 2"#,
        r#"fireteam_match_distance_meters_count{set="11",region="eu",party_size=""} 1"#,
        r#"fireteam_match_round_trip_seconds_count{set="11",region="eu",party_size="1"} 2"#,
        r#"fireteam_statistics_dropped_total 0"#,
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
    }
    assert!(!page.contains("home"), "{page}");
    // After two hours the match is of the day, not of the last hour.
    server.clock.advance_ms(2 * 3_600_000);
    let mut operator = operator_client(&server).await;
    let mut told = async |request| operator.get_statistics(request).await.expect("statistics").into_inner();
    assert_eq!(told(of_hour()).await.distributions, []);
    let day = GetStatisticsRequest { period: StatisticsPeriod::Day.into(), ..Default::default() };
    assert_eq!(rows(&told(day).await, DistributionKind::EnterToPlayMs), [("", "", 2, 0.0)]);
    let other_set = GetStatisticsRequest { matchmaking_set_id: Some(SET_ID + 1), ..day };
    assert_eq!(told(other_set).await.distributions, []);
    let without_period = told(GetStatisticsRequest::default()).await;
    assert_eq!((without_period.distributions.len(), without_period.since_unix_ms), (0, None));
    let unknown = GetStatisticsRequest { period: 9, ..Default::default() };
    let refused = operator_client(&server).await.get_statistics(unknown).await.expect_err("an unknown period");
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert!(refused.message().contains("period"), "{refused}");
}

/// S1-96: waits and quality of all matches, kept over a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn matches_are_counted_once_on_sqlite() {
    matches_are_counted_once(PartySite::on_sqlite(&duels()).await).await;
}

/// S1-96: waits and quality of all matches; what one server saw, the other returns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn matches_are_counted_once_on_two_servers() {
    if let Some(site) = PartySite::on_postgres("matches_are_counted_once_on_two_servers", &duels()).await {
        matches_are_counted_once(site).await;
    }
}

/// Play counts once when the host has confirmed, and not again when a player leaves or the match ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosted_match_counts_once() {
    let rules = duel_ruleset(r#"<Hosting Mode="game_server" AllocationTimeoutMs="600000"/>"#);
    let server = start_queue_server_with_config(&[&rules], |_| {}).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    let mut operator = operator_client(&server).await;
    let mut totals = async || {
        let found = operator.get_statistics(of_hour()).await.expect("statistics").into_inner();
        let total = |kind| rows(&found, kind).iter().map(|row| (row.2, row.3)).collect::<Vec<_>>();
        (total(DistributionKind::EnterToMatchMs), total(DistributionKind::EnterToPlayMs))
    };
    wait_until("the match is proposed", async || totals().await == (vec![(2, 0.0)], vec![])).await;
    server.clock.advance_ms(6_000);
    advertise_host(&server, game_server_advertisement(b"server")).await;
    let found = ann.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
    let played = (vec![(2, 0.0)], vec![(2, 12_000.0)]);
    assert_eq!(totals().await, played);
    server.clock.advance_ms(1_000);
    assert!(bob.ticket.leave().await.expect("leave"));
    ann.ticket.end_match(&found.match_id, false).await.expect_err("the game server ends the match");
    assert!(ann.ticket.leave().await.expect("leave"));
    assert_eq!(totals().await, played);
}
