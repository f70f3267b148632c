//! Matches of 120 players: two teams of 60, thirty of four and a free-for-all, from the queue to ratings.

use fireteam_client::{Client, pb};
use pb::TicketState;

use crate::player_attributes::fixture::{advertise, enter, player, player_who_wants};
use crate::rating::results_and_leaderboards::rating;
use crate::support::party_site::{PartySite, on_each_store};
use crate::support::queue_server::{SET_ID, wait_until};

const PLAYERS: usize = 120;

/// A rated match of these teams on a game server, after a ready check.
fn large_match(teams: &str, more: &str) -> String {
    format!(
        r#"<Ruleset Name="Large" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Trust="client"/></Attributes>
  {teams}
  <Queue PassIntervalMs="10"/>
  <ReadyCheck TimeoutMs="600000"/>
  <Hosting Mode="game_server" AllocationTimeoutMs="60000" ConfirmMs="60000"/>
  <Rating System="plackett_luce"/>
  {more}
</Ruleset>"#
    )
}

fn teams_of_60() -> String {
    large_match(
        r#"<Teams Count="2" Size="60" MaxPartySize="10"><Role Name="tank" PerTeam="12"/><Role Name="healer" PerTeam="6"/></Teams>"#,
        "",
    )
}

fn teams_of_4() -> String {
    large_match(r#"<Teams Count="30" Size="4"/>"#, "")
}

fn free_for_all() -> String {
    large_match(r#"<Teams Count="120" Size="1"/>"#, "")
}

/// Statuses of all tickets, when each is in `state`. Each look is a heartbeat of their holder.
async fn wait_for_all(client: &Client, tickets: &[pb::TicketReference], state: TicketState) -> Vec<pb::TicketStatus> {
    let mut last = Vec::new();
    wait_until("all tickets are in the state", async || {
        let request = pb::QueueHeartbeatRequest { tickets: tickets.to_vec(), ..Default::default() };
        last = client.heartbeat_tickets(request).await.expect("heartbeat").statuses;
        last.iter().all(|status| status.state() == state)
    })
    .await;
    last
}

/// The backend accepts for all players of these tickets.
async fn accept(client: &Client, tickets: &[pb::TicketReference], match_id: &str) {
    for ticket in tickets {
        let request = pb::QueueRespondRequest {
            ticket_id: ticket.ticket_id.clone(),
            ticket_token: ticket.ticket_token.clone(),
            match_id: match_id.to_owned(),
            accept: true,
            user_ids: Vec::new(),
        };
        client.respond_to_ready_check(request).await.expect("respond");
    }
}

/// 120 players enter in parties of `party_size`, pass the ready check, play on a game server, and are rated by its report. The
/// first server restarts between the entries. Returns the statuses of the tickets in play.
async fn play(site: &mut PartySite, party_size: usize, wanted: &[&str]) -> Vec<pb::TicketStatus> {
    let name = |number: usize| format!("p{number}");
    let backend = site.backend().await;
    let mut tickets = Vec::new();
    for first in (0..PLAYERS).step_by(party_size) {
        if first == PLAYERS / 2 {
            site.restart_first().await;
        }
        let wish = |number: usize| wanted.get(number % wanted.len().max(1)).map_or(Vec::new(), |role| vec![*role]);
        let members: Vec<_> =
            (first..first + party_size).map(|number| player_who_wants(&name(number), &wish(number))).collect();
        tickets.push(site.backend().await.enter_queue(enter(&members)).await.expect("enter").reference());
    }
    drop(backend);
    let backend = site
        .issuer
        .client_with_token(site.servers.last().expect("a server"), fireteam::auth::identity::Role::GameServer, "eu-1")
        .await;
    let proposed = wait_for_all(&backend, &tickets, TicketState::Proposed).await;
    let id = proposed[0].found_match.clone().expect("a match").match_id;
    let (early, late) = tickets.split_at(PLAYERS / party_size / 2);
    accept(&backend, early, &id).await;
    let request = pb::QueueHeartbeatRequest { tickets: late[..1].to_vec(), ..Default::default() };
    let status = backend.heartbeat_tickets(request).await.expect("heartbeat").statuses.remove(0);
    let accepted = status.found_match.expect("a match");
    assert_eq!((accepted.player_count as usize, accepted.accepted_count as usize), (PLAYERS, PLAYERS / 2));
    accept(&backend, late, &id).await;
    let server = pb::MatchmakingUpdateAdvertisementRequest {
        kind: pb::AdvertisementKind::GameServer.into(),
        ..advertise(&[player("dedicated", &[])], PLAYERS as i32)
    };
    let host = backend.advertise(server).await.expect("advertise");
    site.servers[0].keep_hosting(site.backend().await, host.token().to_vec());
    let playing = wait_for_all(&backend, &tickets, TicketState::Matched).await;
    let team_count =
        1 + playing.iter().map(|status| status.found_match.as_ref().expect("a match").team).max().expect("a ticket");
    let beat = pb::QueueHostHeartbeatRequest {
        advertisement_token: host.token().to_vec(),
        matches: vec![pb::HostedMatchBeat { match_id: id.clone(), ..Default::default() }],
    };
    let hosted = backend.host_heartbeat(beat).await.expect("heartbeat").matches.remove(0);
    let keys: std::collections::BTreeSet<&str> =
        hosted.parties.iter().flat_map(|party| &party.players).map(|player| &*player.player_key).collect();
    assert_eq!(keys.len(), PLAYERS);

    let ranks = (0..team_count).map(|team| pb::TeamRank { team, rank: team as i32 + 1 });
    let report = pb::ReportResultRequest {
        match_id: id,
        advertisement_token: host.token().to_vec(),
        team_ranks: ranks.collect(),
        ..Default::default()
    };
    backend.report_result(report).await.expect("report");
    wait_for_all(&backend, &tickets, TicketState::Ended).await;
    // The best team gains, the last one loses.
    for (status, ticket) in playing.iter().zip(0..) {
        let found = status.found_match.as_ref().expect("a match");
        if found.team == 0 || found.team + 1 == team_count {
            let user = name(ticket * party_size);
            let client = site.player_elsewhere(&user).await;
            wait_until("the rating moves", async || {
                let moved = rating(&client, &user).await - 25.0;
                moved != 0.0 && (moved > 0.0) == (found.team == 0)
            })
            .await;
        }
    }
    playing
}

/// Number of players by team.
fn team_sizes(playing: &[pb::TicketStatus]) -> Vec<usize> {
    let mut sizes = vec![0; PLAYERS];
    for found in playing.iter().filter_map(|status| status.found_match.as_ref()) {
        sizes[found.team as usize] += found.own_players.len();
    }
    sizes.retain(|size| *size != 0);
    sizes
}

/// Two teams of 60 from parties of ten, with a tank and a healer in each party, seated as such.
async fn two_teams_of_60_play_with_their_roles(mut site: PartySite) {
    let wanted = ["tank", "tank", "healer", "tank", "healer"];
    let playing = play(&mut site, 10, &wanted).await;
    assert_eq!(team_sizes(&playing), [60, 60]);
    for found in playing.iter().filter_map(|status| status.found_match.as_ref()) {
        let roles: Vec<&str> = found.own_players.iter().map(|player| &*player.team_role).collect();
        assert_eq!(roles, [wanted, wanted].concat());
    }
    site.shut_down().await;
}

async fn thirty_teams_of_four_play(mut site: PartySite) {
    let playing = play(&mut site, 2, &[]).await;
    assert_eq!(team_sizes(&playing), [4; 30]);
    site.shut_down().await;
}

async fn free_for_all_of_120_plays(mut site: PartySite) {
    let playing = play(&mut site, 1, &[]).await;
    assert_eq!(team_sizes(&playing), [1; 120]);
    site.shut_down().await;
}

on_each_store! {
    two_teams_of_60_play_with_their_roles, teams_of_60(),
        two_teams_of_60_play_with_their_roles_on_sqlite, two_teams_of_60_play_with_their_roles_on_postgres;
    thirty_teams_of_four_play, teams_of_4(),
        thirty_teams_of_four_play_on_sqlite, thirty_teams_of_four_play_on_postgres;
    free_for_all_of_120_plays, free_for_all(),
        free_for_all_of_120_plays_on_sqlite, free_for_all_of_120_plays_on_postgres;
}
