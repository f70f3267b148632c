//! Metrics of a set: tickets and matches by state, events of matches, and ends of tickets, each counted by one server.

use fireteam_client::Ticket;
use fireteam_client::pb::{self, TicketState};

use crate::support::party_site::{PartySite, on_each_store, wait_for_state};
use crate::support::queue_server::{
    QueuedParty, SET_ID, advertise_host, duel_ruleset, enter_request, game_server_advertisement, start_queue_server,
    wait_until,
};
use crate::support::test_server::TestServer;

/// Duels with a ready check and without a host.
fn duels() -> String {
    duel_ruleset(r#"<ReadyCheck TimeoutMs="600000"/><Hosting Mode="none"/>"#)
}

/// A player enters at the first or at the last server.
async fn enter(site: &PartySite, user: &str, is_elsewhere: bool) -> Ticket {
    let client = if is_elsewhere { site.player_elsewhere(user).await } else { site.player(user).await };
    client.enter_queue(enter_request(SET_ID, &[(user, 20.0)])).await.expect("enter")
}

/// Value of a series at one server; 0 if it has none.
fn value(server: &TestServer, series: &str) -> f64 {
    let text = server.app.metrics.render();
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.map_or(0.0, |value| value.parse().expect("a number"))
}

/// Sum of a series over all servers.
pub(super) fn sum(site: &PartySite, series: &str) -> f64 {
    site.servers.iter().map(|server| value(server, series)).sum()
}

/// Number of matches of the set with this event, at all servers.
fn matches_with_event(site: &PartySite, event: &str) -> f64 {
    sum(site, &format!("fireteam_match_events_total{{set=\"{SET_ID}\",event=\"{event}\"}}"))
}

/// Number of tickets of the set that ended so, and the sum of their waits in seconds, at all servers.
fn ended_tickets(site: &PartySite, outcome: &str) -> (f64, f64) {
    let labels = format!("{{set=\"{SET_ID}\",outcome=\"{outcome}\"}}");
    let of = |suffix: &str| sum(site, &format!("fireteam_ticket_wait_seconds_{suffix}{labels}"));
    (of("count"), of("sum"))
}

/// Waits until each server has these numbers of waiting tickets, tickets in matches, matches in the ready check and in play.
async fn wait_for_gauges(site: &PartySite, expected: [f64; 4]) {
    let series = [
        format!("fireteam_queue_tickets{{set=\"{SET_ID}\",state=\"waiting\"}}"),
        format!("fireteam_queue_tickets{{set=\"{SET_ID}\",state=\"in_match\"}}"),
        format!("fireteam_queue_matches{{set=\"{SET_ID}\",stage=\"ready_check\"}}"),
        format!("fireteam_queue_matches{{set=\"{SET_ID}\",stage=\"playing\"}}"),
    ];
    for server in &site.servers {
        wait_until("the gauges are right", async || {
            series.iter().map(|series| value(server, series)).eq(expected.iter().copied())
        })
        .await;
    }
}

/// Match of two tickets that wait, as proposed to both.
async fn proposal(tickets: [&mut Ticket; 2]) -> pb::MatchStatus {
    let [one, other] = tickets;
    wait_for_state(other, TicketState::Proposed).await;
    wait_for_state(one, TicketState::Proposed).await.found_match.expect("a match")
}

/// A match that is declined, one that all players abandon, and a ticket that leaves: each event counts once over all servers, and
/// the waits are those until play or until the end.
async fn events_of_matches_count_once(site: PartySite) {
    let mut ann = enter(&site, "ann", false).await;
    wait_for_gauges(&site, [1.0, 0.0, 0.0, 0.0]).await;
    site.clock.advance_ms(2_000);
    let mut bob = enter(&site, "bob", true).await;
    let found = proposal([&mut ann, &mut bob]).await;
    wait_for_gauges(&site, [0.0, 2.0, 1.0, 0.0]).await;
    bob.respond_to_ready_check(&found.match_id, false).await.expect("decline");
    wait_for_state(&mut ann, TicketState::Waiting).await;
    let mut cid = enter(&site, "cid", true).await;
    let found = proposal([&mut ann, &mut cid]).await;
    ann.respond_to_ready_check(&found.match_id, true).await.expect("accept");
    cid.respond_to_ready_check(&found.match_id, true).await.expect("accept");
    wait_for_state(&mut ann, TicketState::Matched).await;
    wait_for_state(&mut cid, TicketState::Matched).await;
    wait_for_gauges(&site, [0.0, 2.0, 0.0, 1.0]).await;
    site.clock.advance_ms(7_000);
    assert!(ann.leave().await.expect("leave"));
    assert!(cid.leave().await.expect("leave"));
    let mut dan = enter(&site, "dan", false).await;
    site.clock.advance_ms(1_000);
    assert!(dan.leave().await.expect("leave"));
    assert!(dan.leave().await.expect("leave"), "leave is idempotent");
    wait_for_gauges(&site, [0.0, 0.0, 0.0, 0.0]).await;
    let counted =
        ["proposed", "began", "declined", "abandoned", "played"].map(|event| matches_with_event(&site, event));
    assert_eq!(counted, [2.0, 1.0, 1.0, 1.0, 0.0]);
    assert_eq!(sum(&site, &format!("fireteam_players_left_total{{set=\"{SET_ID}\"}}")), 2.0);
    assert_eq!(ended_tickets(&site, "declined"), (1.0, 0.0));
    assert_eq!(ended_tickets(&site, "left"), (1.0, 1.0));
    let (played, waited_s) = ended_tickets(&site, "played");
    assert_eq!((played, waited_s), (2.0, 2.0), "until play began, without the time of play");
    assert!(sum(&site, &format!("fireteam_pass_duration_seconds_count{{set=\"{SET_ID}\"}}")) >= 2.0);
    site.shut_down().await;
}

on_each_store! {
    events_of_matches_count_once, duels(), events_of_matches_count_once_on_sqlite, events_of_matches_count_once_on_postgres;
}

/// A shared store has the ages of both feeds, a store of one server none.
async fn feeds_have_an_age(site: PartySite) {
    let age = |server: &TestServer, feed: &str| {
        let (text, series) = (server.app.metrics.render(), format!("fireteam_feed_age_seconds{{feed=\"{feed}\"}}"));
        text.lines().any(|line| line.starts_with(&series))
    };
    for server in &site.servers {
        for feed in ["advertisements", "queues"] {
            if site.servers.len() == 1 {
                assert!(!age(server, feed));
            } else {
                wait_until("the feed was read", async || age(server, feed)).await;
            }
        }
    }
    site.shut_down().await;
}

on_each_store! {
    feeds_have_an_age, duels(), feeds_have_an_age_on_sqlite, feeds_have_an_age_on_postgres;
}

/// A game server counts as open until a match has taken all its seats, and not at all when it is deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advertisements_are_counted_by_kind_and_open_seats() {
    let server =
        start_queue_server(&[&duel_ruleset(r#"<Hosting Mode="game_server" AllocationTimeoutMs="60000"/>"#)]).await;
    let of = |kind: &str, state: &str| {
        let labels = format!("{{set=\"{SET_ID}\",kind=\"{kind}\",state=\"{state}\"}}");
        value(&server, &format!("fireteam_set_advertisements{labels}"))
    };
    let host = advertise_host(&server, game_server_advertisement(b"connect")).await;
    wait_until("the host is counted", async || of("game_server", "open") == 1.0).await;
    assert_eq!([of("game_server", "full"), of("session", "open"), of("session", "full")], [0.0; 3]);
    let _ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let _bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    wait_until("the host is full", async || of("game_server", "full") == 1.0).await;
    assert_eq!(of("game_server", "open"), 0.0);
    let request = pb::MatchmakingDeleteAdvertisementRequest {
        advertisement_id: host.advertisement_id,
        advertisement_token: host.advertisement_token,
    };
    server.client().await.delete_advertisement(request).await.expect("delete");
    wait_until("the host is gone", async || of("game_server", "full") == 0.0).await;
    assert_eq!(of("game_server", "open"), 0.0);
}
