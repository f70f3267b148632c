//! Attempts of searching parties to take seats: each has one outcome, counted once over all servers.

use fireteam_client::{SearchSession, pb};

use crate::session_match::fixture::{Host, session_of};
use crate::statistics::match_events::sum;
use crate::statistics::searches::{party, reserve_after, rooms};
use crate::support::party_site::{PartySite, on_each_store};
use crate::support::queue_server::{SET_ID, wait_until};

/// Number of attempts with this outcome, and the sum of their times in seconds, at all servers.
fn attempts(site: &PartySite, outcome: &str) -> (f64, f64) {
    let labels = format!("{{set=\"{SET_ID}\",outcome=\"{outcome}\"}}");
    let of = |suffix: &str| sum(site, &format!("fireteam_seat_attempt_seconds_{suffix}{labels}"));
    (of("count"), of("sum"))
}

/// Waits until this outcome has this number of attempts and sum of times.
async fn wait_for_attempts(site: &PartySite, outcome: &str, expected: (f64, f64)) {
    wait_until(outcome, async || attempts(site, outcome) == expected).await;
}

/// A search at the last server that has found the session of `host`.
async fn search_that_found(site: &PartySite, host: &Host, party: pb::SessionCompositionData) -> SearchSession {
    let client = site.player_elsewhere(&party.players[0].user_id).await;
    let mut searching = client.new_search(SET_ID, party);
    wait_until("the search finds the session", async || {
        let found = searching.search().await.expect("search").candidates;
        found.iter().any(|candidate| candidate.advertisement_id == host.id())
    })
    .await;
    searching
}

/// A reservation is confirmed, released, expires, or ends with its session; refused attempts have their reason.
async fn seat_attempts_are_counted_by_outcome(site: PartySite) {
    let host = Host::player(&site, "host").await;
    let ann = reserve_after(&site, &host, party("ann", 0.0, &[]), 2_000).await;
    host.wait_for_reservations(&[&ann]).await;
    site.clock.advance_ms(3_000);
    host.update(&[&ann], &[]).await;
    wait_for_attempts(&site, "seated", (1.0, 5.0)).await;
    host.update(&[], &[&ann]).await;

    let bob = reserve_after(&site, &host, party("bob", 0.0, &[]), 1_000).await;
    site.clock.advance_ms(1_000);
    bob.clone().release().await.expect("release");
    bob.release().await.expect("release is idempotent");
    wait_for_attempts(&site, "released", (1.0, 2.0)).await;

    let cid = reserve_after(&site, &host, party("cid", 0.0, &[]), 1_000).await;
    host.wait_for_reservations(&[&cid]).await;
    let until_deadline_s = cid.expires_in_ms as f64 / 1_000.0;
    site.clock.advance_ms(cid.expires_in_ms + 1_500);
    wait_for_attempts(&site, "expired", (1.0, 1.0 + until_deadline_s)).await;

    refused_attempts(&site).await;

    let other = Host::player(&site, "other host").await;
    let eve = search_that_found(&site, &other, party("eve", 0.0, &[])).await;
    let dan = reserve_after(&site, &other, party("dan", 0.0, &[]), 0).await;
    other.wait_for_reservations(&[&dan]).await;
    site.clock.advance_ms(4_000);
    let delete = pb::MatchmakingDeleteAdvertisementRequest {
        advertisement_id: other.id().to_owned(),
        advertisement_token: other.token(),
    };
    other.client.delete_advertisement(delete).await.expect("delete");
    wait_for_attempts(&site, "session_ended", (1.0, 4.0)).await;
    eve.reserve(other.id()).await.expect_err("the session has ended");
    wait_for_attempts(&site, "session_ended", (2.0, 8.0)).await;
    let seen = ["seated", "released", "expired", "full", "refused_by_rule"].map(|outcome| attempts(&site, outcome).0);
    assert_eq!(seen, [1.0; 5], "nothing was counted twice");
    site.shut_down().await;
}

/// A party for which no seat is left, and one that a rule refuses.
async fn refused_attempts(site: &PartySite) {
    let mut request = session_of(&["small host"]);
    let session = request.session_composition.as_mut().expect("a session");
    session.max_allowed_join_reservation_count = Some(1);
    let small = Host::advertise(site.player("small host").await, request).await;
    search_that_found(site, &small, party("fay", 0.0, &[])).await.reserve(small.id()).await.expect("the only seat");
    let parties = [party("gil", 0.0, &[]), party("hal", 45.0, &[])];
    for (party, outcome) in parties.into_iter().zip(["full", "refused_by_rule"]) {
        let client = site.player_elsewhere(&party.players[0].user_id).await;
        let mut searching = client.new_search(SET_ID, party);
        let found = searching.search().await.expect("search").candidates;
        assert!(found.iter().all(|candidate| candidate.advertisement_id != small.id()), "{outcome}");
        site.clock.advance_ms(1_000);
        searching.reserve(small.id()).await.expect_err(outcome);
        assert_eq!(attempts(site, outcome), (1.0, 1.0), "{outcome}");
    }
}

on_each_store! {
    seat_attempts_are_counted_by_outcome, rooms(),
        seat_attempts_are_counted_by_outcome_on_sqlite, seat_attempts_are_counted_by_outcome_on_postgres;
}
