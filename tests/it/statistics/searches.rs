//! Searches: time to a seat, how well it fits, and refusals by rule.

use fireteam_client::{Reservation, pb};

use crate::session_match::fixture::{Host, reserve_pair};
use crate::statistics::{by_all, of_hour, refusals, rows, statistics};
use crate::support::generated_client::{DistributionKind, MatchmakingDoor};
use crate::support::party_site::{PartySite, on_each_store};
use crate::support::queue_server::{SET_ID, wait_until};
use crate::support::test_server::party_session;

/// Sessions with two regions in their statistics, and a rule on skill.
pub(super) fn rooms() -> String {
    format!(
        r#"<Ruleset Name="Rooms" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <HardFilters><Within Name="near_skill" Attribute="skill" Limit="10"/></HardFilters>
  <SoftFilters><SoftFilter Attribute="skill" Weight="1"/></SoftFilters>
  <Statistics><Region Name="us east"/><Region Name="eu"/></Statistics>
</Ruleset>"#
    )
}

/// A party of one with measured round trips.
pub(super) fn party(name: &str, skill: f64, regions: &[(&str, f32)]) -> pb::SessionCompositionData {
    let latency = |&(region, ms): &(&str, f32)| pb::RegionLatency { region: region.to_owned(), round_trip_ms: ms };
    pb::SessionCompositionData {
        region_latencies: regions.iter().map(latency).collect(),
        ..party_session(&[(name, skill)])
    }
}

/// A player searches at the last server, waits for some time of the clock, searches again and reserves a seat.
pub(super) async fn reserve_after(
    site: &PartySite,
    host: &Host,
    party: pb::SessionCompositionData,
    wait_ms: u64,
) -> Reservation {
    let name = party.players[0].user_id.clone();
    let client = site.player_elsewhere(&name).await;
    let mut searching = client.new_search(SET_ID, party);
    wait_until("the search finds the session", async || {
        let found = searching.search().await.expect("search").candidates;
        found.iter().any(|candidate| candidate.advertisement_id == host.id())
    })
    .await;
    site.clock.advance_ms(wait_ms);
    searching.search().await.expect("search");
    searching.reserve(host.id()).await.expect("reserve")
}

/// Waits until each server returns these times from first search to seat: region, party size, count and sum.
async fn wait_for_seats(site: &PartySite, expected: &[(&str, &str, u64, f64)]) {
    for server in 0..site.servers.len() {
        wait_until("the seats are counted", async || {
            let found = statistics(site, server, by_all()).await;
            rows(&found, DistributionKind::SearchToSeatMs) == expected
        })
        .await;
    }
}

/// The time from the first search counts when the host has confirmed the seat or the party has joined, once, by the regions
/// that the ruleset lists and by party size. Both servers return it, also after a restart.
async fn seats_are_counted_when_settled(mut site: PartySite) {
    let host = Host::player(&site, "host").await;
    let ann = reserve_after(&site, &host, party("ann", 0.0, &[("eu", 20.0), ("us east", 90.0)]), 4_000).await;
    let bob = reserve_after(&site, &host, party("bob", 0.0, &[("my own region", 1.0), ("eu", 20.0)]), 7_000).await;
    let cid = reserve_after(&site, &host, party("cid", 5.0, &[("us east", 90.0)]), 0).await;
    host.wait_for_reservations(&[&ann, &bob, &cid]).await;
    wait_for_seats(&site, &[]).await;
    host.update(&[&ann], &[]).await;
    wait_for_seats(&site, &[("eu", "1", 1, 4_000.0)]).await;
    // Bob's region is not one of the ruleset.
    host.update(&[&ann, &bob], &[]).await;
    host.update(&[&ann], &[&ann, &bob]).await;
    wait_for_seats(&site, &[("", "1", 1, 7_000.0), ("eu", "1", 1, 4_000.0)]).await;
    cid.release().await.expect("release");
    let pair = reserve_pair(&site, &host, "dan", "eve").await;
    host.wait_for_reservations(&[&pair]).await;
    host.update(&[], &[&pair]).await;
    let expected = [("", "1", 1, 7_000.0), ("", "2", 1, 0.0), ("eu", "1", 1, 4_000.0)];
    wait_for_seats(&site, &expected).await;
    site.restart_first().await;
    wait_for_seats(&site, &expected).await;
    let total = statistics(&site, 0, of_hour()).await;
    assert_eq!(rows(&total, DistributionKind::SearchToSeatMs), [("", "", 3, 11_000.0)]);
    assert_eq!(rows(&total, DistributionKind::SeatScore), [("", "", 3, 0.0)]);
    assert_eq!(rows(&total, DistributionKind::SeatDistanceKm), [], "no place is known");
    let since = total.since_unix_ms.expect("a period");
    assert!(since.is_multiple_of(3_600_000), "{since}");
    site.shut_down().await;
}

/// Refusals count by rule and party size. During an outage of the store they wait, and none is lost.
async fn refusals_of_searches_wait_for_the_store(site: PartySite) {
    let _host = Host::player(&site, "host").await;
    let search = async |skill: f64| {
        let client = site.player("ann").await;
        let found = client.new_search(SET_ID, party("ann", skill, &[])).search().await.expect("search");
        found.refusals.iter().map(|refusal| u64::from(refusal.count)).sum::<u64>()
    };
    assert_eq!((search(0.0).await, search(10.5).await), (0, 1));
    let counted = async |count: u64| {
        for server in 0..site.servers.len() {
            wait_until("the refusals are counted", async || {
                let found = statistics(&site, server, by_all()).await;
                refusals(&found, MatchmakingDoor::Search) == [("1", "near_skill", count)]
            })
            .await;
        }
    };
    counted(1).await;
    let outage = site.begin_outage().await;
    for _ in 0..9 {
        assert_eq!(search(30.0).await, 1);
    }
    let during = statistics(&site, 0, by_all()).await;
    assert_eq!(refusals(&during, MatchmakingDoor::Search), [("1", "near_skill", 1)], "what the store has");
    // Longer than the TTL of tickets: one that the store has after all ends.
    site.clock.advance_ms(90_000);
    site.end_outage(outage).await;
    counted(10).await;
    site.shut_down().await;
}

/// Outages end when a prober has entered a queue.
pub(super) fn rooms_with_queue() -> String {
    rooms().replace("</Ruleset>", r#"<Teams Count="2" Size="1"/><Queue/></Ruleset>"#)
}

on_each_store! {
    refusals_of_searches_wait_for_the_store, rooms_with_queue(),
        refusals_of_searches_wait_for_the_store_on_sqlite, refusals_of_searches_wait_for_the_store_on_postgres;
}

/// S1-96: search times of all players, kept over a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seats_are_counted_when_settled_on_sqlite() {
    seats_are_counted_when_settled(PartySite::on_sqlite(&rooms()).await).await;
}

/// S1-96: search times of all players; what one server saw, the other returns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seats_are_counted_when_settled_on_two_servers() {
    if let Some(site) = PartySite::on_postgres("seats_are_counted_when_settled_on_two_servers", &rooms()).await {
        seats_are_counted_when_settled(site).await;
    }
}
