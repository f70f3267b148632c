//! Backfill over the wire: who is let into a session with open seats, in which team, and what its host receives.

use fireteam_client::{Client, Code, MatchHost, pb};
use pb::TicketState;

use crate::queue::hosted_matches::next_match;
use crate::security::user_keys::claims_of;
use crate::store::replicas::Replicas;
use crate::support::database::create_test_database;
use crate::support::generated_client;
use crate::support::queue_server::{
    QueuedParty, SET_ID, enter_request, operator_client, servers_on_each_store, start_queue_server, wait_until,
};
use crate::support::test_server::{TestServer, advertise_request};

/// Even teams by the server's own ratings: 25 points of difference are a win probability of 53.6 %.
fn even_teams(size: u32, more: &str) -> String {
    format!(
        r#"<Ruleset Name="Even" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="5000"/></Attributes>
  <Teams Count="2" Size="{size}"/>
  <Queue PassIntervalMs="10" Backfill="true">
    <Quality><WinProbability MinPercent="46.4" MaxPercent="53.6"/></Quality>
  </Queue>
  {more}
  <Rating System="elo"/>
</Ruleset>"#
    )
}

/// The same rules with passes on change, and otherwise one a minute.
fn even_teams_on_change(size: u32) -> String {
    even_teams(size, "").replace("PassIntervalMs=\"10\"", "PassIntervalMs=\"60000\" Pass=\"on_change\" GatherMs=\"5\"")
}

const SEATED: [&str; 9] = ["s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9"];

fn ratings_request(ratings: &[(&str, f64)]) -> generated_client::ImportRatingsRequest {
    let row = |&(user_id, rating): &(&str, f64)| generated_client::RatingRow {
        user_id: user_id.to_owned(),
        rating: Some(rating),
        ..Default::default()
    };
    generated_client::ImportRatingsRequest {
        matchmaking_set_id: Some(SET_ID),
        ratings: ratings.iter().map(row).collect(),
    }
}

async fn import(server: &TestServer, ratings: &[(&str, f64)]) {
    operator_client(server).await.import_ratings(ratings_request(ratings)).await.expect("import");
}

/// The seated players of 3010, and guests of 3490 and 3020.
fn ratings_of_ten() -> Vec<(&'static str, f64)> {
    SEATED.iter().map(|name| (*name, 3_010.0)).chain([("strong", 3_490.0), ("even", 3_020.0)]).collect()
}

/// Advertisement of a session whose players are in these teams.
fn session_with_teams(teams: &[&[&str]], open_seats: i32) -> pb::MatchmakingUpdateAdvertisementRequest {
    let players: Vec<(&str, f64)> = teams.iter().flat_map(|team| team.iter().map(|name| (*name, 0.0))).collect();
    let mut request = pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        ..advertise_request(&players, open_seats)
    };
    let teams = (0..).zip(teams).flat_map(|(team, players)| players.iter().map(move |_| team));
    let session = request.session_composition.as_mut().expect("a session");
    session.players.iter_mut().zip(teams).for_each(|(player, team)| player.team = Some(team));
    request
}

/// Waits until a pass has run and left the ticket unmatched; returns the rule that refused it.
async fn refusing_rule(waiting: &mut QueuedParty) -> String {
    wait_until("a pass has run", async || !waiting.current_status().await.blocking_rule.is_empty()).await;
    let status = waiting.current_status().await;
    assert_eq!(status.state(), TicketState::Waiting);
    status.blocking_rule
}

/// S1-96: nine players of 3010 are no session for a guest of 3490. One of 3020 joins the team that has room: the ticket, the
/// credential and the host's roster say so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backfill_refuses_a_guest_who_makes_the_teams_uneven() {
    for (server, _database) in servers_on_each_store("backfill_refuses_a_guest", &even_teams(5, "")).await {
        import(&server, &ratings_of_ten()).await;
        let host_client = server.client().await;
        let (connection, mut events) = host_client.open_stream().await.expect("a stream");
        let session = session_with_teams(&[&SEATED[..4], &SEATED[4..]], 1);
        let advertisement = connection.advertise(session).await.expect("advertise");
        let mut strong = QueuedParty::enter(&server, SET_ID, &[("strong", 0.0)]).await;
        assert_eq!(refusing_rule(&mut strong).await, "quality");
        let mut even = QueuedParty::enter(&server, SET_ID, &[("even", 0.0)]).await;
        let asked = next_match(&mut events).await;
        assert!(asked.backfill);
        let teams: Vec<u32> = asked.parties.iter().map(|party| party.team).collect();
        assert_eq!(teams, [0], "the team of four has room");
        MatchHost::new(host_client.clone(), &advertisement).heartbeat().await.expect("beat");
        let found = even.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
        assert_eq!((found.team, &found.match_id), (0, &asked.match_id));
        assert_eq!(claims_of(&found.own_players[0].credential)["team"], 0);
        assert_eq!(strong.current_status().await.state(), TicketState::Waiting);
    }
}

/// The host lists the guest, and another player leaves. The seat is in the other team now. Passes run at intervals, or when the
/// session changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backfill_follows_the_teams_that_the_host_states() {
    for rules in [even_teams(2, ""), even_teams_on_change(2)] {
        assert_backfill_follows_the_host(&rules).await;
    }
}

async fn assert_backfill_follows_the_host(rules: &str) {
    let server = start_queue_server(&[rules]).await;
    import(&server, &[("hal", 3_500.0), ("hob", 3_000.0), ("hum", 3_000.0), ("top", 3_500.0), ("low", 3_000.0)]).await;
    let client = server.client().await;
    let request = session_with_teams(&[&["hal"], &["hob", "hum"]], 1);
    let advertised = client.update_advertisement(request).await.expect("advertise");
    server.keep_hosting(client.clone(), advertised.advertisement_token.clone());
    // Neither partner makes the team of the strong player even with two weak ones.
    let mut low = QueuedParty::enter(&server, SET_ID, &[("low", 0.0)]).await;
    assert_eq!(refusing_rule(&mut low).await, "quality");
    let seated_again = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: advertised.advertisement_id.clone(),
        advertisement_token: advertised.advertisement_token.clone(),
        ..session_with_teams(&[&["hob"], &["hum"]], 2)
    };
    client.update_advertisement(seated_again).await.expect("update");
    let found = low.wait_for_state_before_the_next_minute(TicketState::Matched).await.found_match.expect("a match");
    assert_eq!(found.team, 0, "both teams have room: the first");
}

/// Guests who are still joining count: a seat that is promised is not open, and the next guest is judged with the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backfill_judges_guests_with_those_who_are_still_joining() {
    let checked = r#"<ReadyCheck TimeoutMs="600000"/>"#;
    let server = start_queue_server(&[&even_teams(2, checked)]).await;
    let all = ["hal", "hob", "first", "second", "third"].map(|name| (name, 3_010.0));
    import(&server, &[&all[..], &[("strong", 3_490.0)]].concat()).await;
    let client = server.client().await;
    let advertised =
        client.update_advertisement(session_with_teams(&[&["hal"], &["hob"]], 2)).await.expect("advertise");
    server.keep_hosting(client.clone(), advertised.advertisement_token.clone());
    let mut first = QueuedParty::enter(&server, SET_ID, &[("first", 0.0)]).await;
    let proposed = first.wait_for_state(TicketState::Proposed).await.found_match.expect("a match");
    let mut strong = QueuedParty::enter(&server, SET_ID, &[("strong", 0.0)]).await;
    assert_eq!(refusing_rule(&mut strong).await, "quality");
    let mut second = QueuedParty::enter(&server, SET_ID, &[("second", 0.0)]).await;
    let other = second.wait_for_state(TicketState::Proposed).await.found_match.expect("a match");
    assert_eq!((proposed.team, other.team), (0, 1));
    let mut third = QueuedParty::enter(&server, SET_ID, &[("third", 0.0)]).await;
    assert_ne!(refusing_rule(&mut third).await, "quality", "both seats are promised");
    // A guest who declines gives the seat back.
    second.ticket.respond_to_ready_check(&other.match_id, false).await.expect("decline");
    assert_eq!(third.wait_for_state(TicketState::Proposed).await.found_match.expect("a match").team, 1);
}

/// The stated teams and the guests' judgement survive a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backfill_knows_the_teams_after_a_restart() {
    for (server, _database) in servers_on_each_store("backfill_after_a_restart", &even_teams(5, "")).await {
        import(&server, &ratings_of_ten()).await;
        let session = session_with_teams(&[&SEATED[..5], &SEATED[5..]], 1);
        let advertised = server.client().await.update_advertisement(session).await.expect("advertise");
        let server = server.restart().await;
        server.keep_hosting(server.client().await, advertised.advertisement_token.clone());
        let mut strong = QueuedParty::enter(&server, SET_ID, &[("strong", 0.0)]).await;
        assert_eq!(refusing_rule(&mut strong).await, "quality");
        let mut even = QueuedParty::enter(&server, SET_ID, &[("even", 0.0)]).await;
        assert_eq!(even.wait_for_state(TicketState::Matched).await.found_match.expect("a match").team, 1);
    }
}

/// A session on one server is filled by a queue whose tickets are on the other, by the same judgement. Passes run on change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backfill_judges_a_session_of_another_server() {
    let Some(database) = create_test_database("backfill_judges_a_session_of_another_server").await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("even.xml"), even_teams_on_change(5)).expect("rules");
    let rules = folder.path().display().to_string();
    let replicas = Replicas::start(&database, 2, &["--rulesets", &rules]);
    let [here, there] = &replicas.servers[..] else { unreachable!() };
    here.operator_client().await.import_ratings(ratings_request(&ratings_of_ten())).await.expect("import");
    let elsewhere = there.client().await;
    wait_until("the other server has the ratings", async || {
        let known = elsewhere.get_ratings(SET_ID, &["strong", "even"]).await.expect("ratings");
        known.iter().all(|user| user.rating.as_ref().is_some_and(|known| 3_000.0 < known.rating))
    })
    .await;
    let client = here.client().await;
    let session = session_with_teams(&[&SEATED[..5], &SEATED[5..]], 1);
    let advertised = client.update_advertisement(session).await.expect("advertise");
    let hosting = tokio::spawn(keep_hosting(client, advertised.advertisement_token));
    let enter =
        async |name| QueuedParty::enter_with_client(there.client().await, enter_request(SET_ID, &[(name, 0.0)])).await;
    let mut strong = enter("strong").await;
    let mut even = enter("even").await;
    assert_eq!(
        even.wait_for_state_before_the_next_minute(TicketState::Matched).await.found_match.expect("a match").team,
        1
    );
    assert_eq!(strong.current_status().await.state(), TicketState::Waiting);
    hosting.abort();
}

async fn keep_hosting(client: Client, advertisement_token: Vec<u8>) {
    let mut host = MatchHost::from_advertisement_token(client, advertisement_token);
    loop {
        let _ = host.heartbeat().await;
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// A team that the ruleset does not have is refused by its field, and a team outside an advertisement is ignored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn team_that_the_ruleset_lacks_is_refused() {
    let server = start_queue_server(&[&even_teams(2, "")]).await;
    let client = server.client().await;
    let mut request = session_with_teams(&[&["hal"], &["hob"]], 2);
    let team = |request: &mut pb::MatchmakingUpdateAdvertisementRequest, team| {
        request.session_composition.as_mut().expect("a session").players[1].team = Some(team);
    };
    for (stated, message) in [(2, "is 2; use a team of ruleset `Even`, 0 to 1"), (u32::MAX, "is 65535")] {
        team(&mut request, stated);
        let refused = client.update_advertisement(request.clone()).await.expect_err("no such team");
        assert_eq!(refused.code(), Some(Code::InvalidArgument));
        let text = refused.to_string();
        assert!(text.contains("session_composition.players[1].team") && text.contains(message), "{text}");
    }
    let mut entering = enter_request(SET_ID, &[("ann", 0.0)]);
    entering.session_composition.as_mut().expect("a party").players[0].team = Some(9);
    client.enter_queue(entering).await.expect("ignored");
}
