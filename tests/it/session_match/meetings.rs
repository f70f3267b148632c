//! Meetings in sessions' matches: the next searches know them, and their results count for satisfaction. The set has no queue.

use fireteam_client::pb;
use pb::TicketState;

use crate::session_match::fixture::{
    Host, hear, own_ticket, ratings, reserve, rooms_ruleset, session_of, team, wait_for_ratings, win_of,
};
use crate::support::party_site::{PartySite, on_each_store, wait_for_state};
use crate::support::queue_server::{SET_ID, wait_until};
use crate::support::test_server::party_session;

/// The rooms, where opponents are kept apart for two minutes.
fn rooms_avoiding_opponents() -> String {
    let rule = r#"<Avoid Whom="recent_opponents" How="never" RecentMs="120000"/>"#;
    rooms_ruleset().replace("<Rating ", &format!("{rule}<Rating "))
}

/// The rooms, where a searcher finds hosts within 20 points, and one who has lost the last match within 40.
fn rooms_with_wider_limits() -> String {
    let rules = r#"<HardFilters><Within Name="near" Attribute="skill" Limit="20" ReciprocalPercent="0"/></HardFilters>
  <Satisfaction LosingStreak="1" WidenLimits="2"/>"#;
    rooms_ruleset().replace("<Rating ", &format!("{rules}<Rating "))
}

/// Ids that a player finds at the last server.
async fn found(site: &PartySite, searcher: &str) -> Vec<String> {
    let client = site.player_elsewhere(searcher).await;
    let mut search = client.new_search(SET_ID, party_session(&[(searcher, 0.0)]));
    let candidates = search.search().await.expect("search").candidates;
    candidates.into_iter().map(|candidate| candidate.advertisement_id).collect()
}

/// The host plays a match against a guest of its session, and wins it by both sides' reports.
async fn win_against(site: &PartySite, host: (&str, &Host), guest: &str) {
    let (name, host) = host;
    let reserved = reserve(site, host, guest).await;
    host.seat(&[name, guest], &[&reserved]).await;
    let started = host.start(&[team(true, &[]), team(false, &[&reserved])]).await;
    let mut tickets = [own_ticket(site, name, started.id()).await, own_ticket(site, guest, started.id()).await];
    let [own, other] = &mut tickets;
    hear(site, &mut [own, other]).await;
    own.report_result(started.id(), &win_of(0)).await.expect("report");
    assert!(other.report_result(started.id(), &win_of(0)).await.expect("report").rated);
    wait_for_state(own, TicketState::Ended).await;
    // The guest goes home.
    let alone = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: host.id().to_owned(),
        advertisement_token: host.token(),
        time_to_live_ms: Some(600_000),
        ..session_of(&[name])
    };
    host.client.update_advertisement(alone).await.expect("update");
}

/// Opponents of a session's match are not offered to each other, for either of the two and after a restart; a player who was not in
/// the match finds both.
async fn opponents_of_a_session_match_are_not_offered_to_each_other(mut site: PartySite) {
    let host = Host::player(&site, "ann").await;
    win_against(&site, ("ann", &host), "bob").await;
    let long = pb::MatchmakingUpdateAdvertisementRequest { time_to_live_ms: Some(600_000), ..session_of(&["bob"]) };
    Host::advertise(site.player("bob").await, long).await;
    for restarted in [false, true] {
        if restarted {
            site.restart_first().await;
        }
        wait_until("a third player finds both", async || found(&site, "eve").await.len() == 2).await;
        wait_until("ann does not find bob", async || found(&site, "ann").await.is_empty()).await;
        wait_until("bob does not find ann", async || found(&site, "bob").await.is_empty()).await;
    }
    site.clock.advance_ms(120_000);
    let renewed = Host::player(&site, "bob").await;
    wait_until("ann finds bob after two minutes", async || {
        found(&site, "ann").await.contains(&renewed.id().to_owned())
    })
    .await;
    site.shut_down().await;
}

/// Results of sessions' matches count for satisfaction: who has lost finds a host 32 points away. Who has not lost does not find one
/// 31 points away.
async fn loser_of_a_session_match_searches_further(site: PartySite) {
    let host = Host::player(&site, "ann").await;
    win_against(&site, ("ann", &host), "bob").await;
    wait_for_ratings(&site, ["ann", "bob"], [1_516.0, 1_484.0]).await;
    wait_until("the loser finds the host", async || found(&site, "bob").await == [host.id()]).await;
    assert_eq!(found(&site, "eve").await, [host.id()], "16 points away");
    win_against(&site, ("ann", &host), "cat").await;
    wait_until("the host's rating is known", async || found(&site, "eve").await.is_empty()).await;
    let [ann, eve] = ratings(&site, ["ann", "eve"]).await;
    assert!((30.0..32.0).contains(&(ann - eve)), "{ann}");
    site.shut_down().await;
}

on_each_store! {
    opponents_of_a_session_match_are_not_offered_to_each_other, rooms_avoiding_opponents(),
        session_match_keeps_opponents_apart_in_searches_on_sqlite, session_match_keeps_opponents_apart_in_searches_on_postgres;
    loser_of_a_session_match_searches_further, rooms_with_wider_limits(),
        session_match_of_a_loser_widens_its_limits_on_sqlite, session_match_of_a_loser_widens_its_limits_on_postgres;
}
