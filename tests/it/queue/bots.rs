//! Matches whose seats are not all taken: bots play there, as the ruleset says.

use fireteam_client::{Client, Ticket, pb};
use pb::TicketState;

use crate::rating::results_and_leaderboards::rank;
use crate::support::party_site::{PartySite, on_each_store, wait_for_rule, wait_for_state};
use crate::support::queue_server::{SET_ID, enter_request, game_server_advertisement, wait_until};

/// Time after which bots may play, milliseconds.
const AFTER_MS: u64 = 30_000;

/// Two rated teams of three on game servers; after the wait, three players are enough.
fn skirmish() -> String {
    format!(
        r#"<Ruleset Name="Skirmish" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number"/></Attributes>
  <Teams Count="2" Size="3"><Bots AfterMs="{AFTER_MS}" MinPlayers="3"/></Teams>
  <Queue PassIntervalMs="10"/>
  <ReadyCheck TimeoutMs="20000"/>
  <Hosting Mode="game_server" AllocationTimeoutMs="60000" ConfirmMs="60000"/>
  <Rating System="elo"/>
  <Party Consent="assumed"/>
</Ruleset>"#
    )
}

async fn enter(client: &Client, name: &str) -> Ticket {
    client.enter_queue(enter_request(SET_ID, &[(name, 20.0)])).await.expect("enter")
}

/// Players accept their match.
async fn accept(tickets: &mut [Ticket]) -> pb::MatchStatus {
    let mut found = None;
    for ticket in tickets {
        let proposed = wait_for_state(ticket, TicketState::Proposed).await.found_match.expect("a match");
        ticket.respond_to_ready_check(&proposed.match_id, true).await.expect("accept");
        found = Some(proposed);
    }
    found.expect("a match")
}

/// S4-16: three players wait. When the first of them has waited for the time, they get a match in which each team has a player and
/// bots have the other seats. The players and the host receive this, also from the other server and after a restart. The result
/// moves no rating.
async fn bots_take_the_seats_for_which_no_player_is_found(mut site: PartySite) {
    let backend = site.backend().await;
    let mut tickets = Vec::new();
    for name in ["ann", "bob"] {
        tickets.push(enter(&backend, name).await);
    }
    site.clock.advance_ms(AFTER_MS - 1_000);
    tickets.push(enter(&backend, "cid").await);
    wait_for_rule(&site, "cid", "team").await;
    site.clock.advance_ms(1_000);
    let proposed = accept(&mut tickets).await;
    assert_eq!((proposed.player_count, proposed.bots_by_team.iter().sum::<u32>()), (3, 3));
    for ticket in &mut tickets {
        wait_for_state(ticket, TicketState::Placing).await;
    }

    let mut request = game_server_advertisement(b"host");
    request.session_composition.as_mut().expect("a session").max_allowed_join_reservation_count = Some(3);
    let host = backend.advertise(request).await.expect("advertise");
    site.servers[0].keep_hosting(site.backend().await, host.token().to_vec());
    for ticket in &mut tickets {
        wait_for_state(ticket, TicketState::Matched).await;
    }
    site.restart_first().await;
    let found = site.player_elsewhere("cid").await.own_tickets_and_cooldowns().await.expect("mine").0;
    let found = found[0].status.found_match.clone().expect("a match");
    assert_eq!((&found.match_id, &found.bots_by_team), (&proposed.match_id, &proposed.bots_by_team));
    let backend = site.backend().await;
    let beat = pb::QueueHostHeartbeatRequest {
        advertisement_token: host.token().to_vec(),
        matches: vec![pb::HostedMatchBeat { match_id: found.match_id.clone(), ..Default::default() }],
    };
    let hosted = backend.host_heartbeat(beat).await.expect("heartbeat").matches.remove(0);
    assert_eq!(hosted.bots_by_team, found.bots_by_team);
    let players_in = |team: u32| found.players.iter().filter(|player| player.team == team).count() as u32;
    let sizes: Vec<u32> = found.bots_by_team.iter().zip(0..).map(|(bots, team)| bots + players_in(team)).collect();
    assert_eq!(sizes, [3, 3]);
    assert!(0 < players_in(0) && 0 < players_in(1));

    let report = pb::ReportResultRequest {
        match_id: found.match_id.clone(),
        team_ranks: vec![rank(0, 1), rank(1, 2)],
        advertisement_token: host.token().to_vec(),
        ..Default::default()
    };
    assert!(!backend.report_result(report).await.expect("report").rated);
    let own = site.player_elsewhere("ann").await.get_ratings(SET_ID, &["ann"]).await.expect("ratings").remove(0);
    assert_eq!(own.matches, 0);
    site.shut_down().await;
}

/// S4-16: two are too few. A party of three makes them five: a match with one bot, beside the two. When one declines, the others get
/// another match with two bots.
async fn match_with_bots_that_a_player_declines_is_made_again(site: PartySite) {
    let backend = site.backend().await;
    let mut tickets = vec![enter(&backend, "first").await, enter(&backend, "second").await];
    site.clock.advance_ms(AFTER_MS);
    wait_for_rule(&site, "first", "team").await;
    let others = enter_request(SET_ID, &["one", "two", "three"].map(|name| (name, 20.0)));
    tickets.push(backend.enter_queue(others).await.expect("enter"));
    let proposed = wait_for_state(&mut tickets[2], TicketState::Proposed).await.found_match.expect("a match");
    // Five players: the party is a team of its own, and one bot plays beside the other two.
    assert_eq!((proposed.player_count, proposed.bots_by_team.iter().copied().max()), (5, Some(1)));
    tickets[0].respond_to_ready_check(&proposed.match_id, false).await.expect("decline");
    wait_until("the party has another match", async || {
        let status = tickets[2].heartbeat().await.expect("heartbeat");
        status.found_match.as_ref().is_some_and(|found| found.match_id != proposed.match_id && found.player_count == 4)
    })
    .await;
    site.shut_down().await;
}

on_each_store! {
    bots_take_the_seats_for_which_no_player_is_found, skirmish(),
        bots_take_the_seats_for_which_no_player_is_found_on_sqlite,
        bots_take_the_seats_for_which_no_player_is_found_on_postgres;
    match_with_bots_that_a_player_declines_is_made_again, skirmish(),
        match_with_bots_that_a_player_declines_is_made_again_on_sqlite,
        match_with_bots_that_a_player_declines_is_made_again_on_postgres;
}
