//! Recent opponents in searches: what a queue has matched, a search knows. On SQLite, and through two servers on one Postgres.

use fireteam_client::pb;
use pb::TicketState;

use crate::support::party_site::{PartySite, on_each_store, pairs_ruleset};
use crate::support::queue_server::{SET_ID, enter_request, wait_until};
use crate::support::test_server::{advertise_request, party_session};

const MINUTE_MS: u64 = 60_000;

/// Duels, with an avoidance rule for two minutes.
fn duels_avoiding(rule: &str) -> String {
    let rule = format!(r#"<Avoid Whom="recent_opponents" RecentMs="120000" {rule}/>"#);
    pairs_ruleset(&rule).replace(r#"Size="2""#, r#"Size="1""#)
}

/// Two players meet in the queue, at different servers, and end their match.
async fn play(site: &PartySite, one: &str, other: &str) {
    let request = |user| enter_request(SET_ID, &[(user, 20.0)]);
    let mut first = site.player(one).await.enter_queue(request(one)).await.expect("enter");
    let mut second = site.player_elsewhere(other).await.enter_queue(request(other)).await.expect("enter");
    wait_until("the match starts", async || {
        first.heartbeat().await.expect("heartbeat");
        second.heartbeat().await.expect("heartbeat").state() == TicketState::Matched
            && first.status.state() == TicketState::Matched
    })
    .await;
    let id = first.status.found_match.as_ref().expect("a match").match_id.clone();
    first.end_match(&id, false).await.expect("end");
}

async fn advertise(site: &PartySite, host: &str) -> String {
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        time_to_live_ms: Some(600_000),
        ..advertise_request(&[(host, 20.0)], 4)
    };
    site.player(host).await.advertise(request).await.expect("advertise").id().to_owned()
}

/// Hosts that a searcher finds at the last server, each with score and cost.
async fn found(site: &PartySite, searcher: &str) -> Vec<(String, f64, Vec<(String, f64)>)> {
    let client = site.player_elsewhere(searcher).await;
    let mut search = client.new_search(SET_ID, party_session(&[(searcher, 20.0)]));
    let answer = search.search().await.expect("search");
    assert!(answer.refusals.is_empty(), "{answer:?}");
    let terms =
        |candidate: &pb::Candidate| candidate.terms.iter().map(|term| (term.name.clone(), term.value)).collect();
    let candidates = answer.candidates.iter();
    candidates.map(|candidate| (candidate.advertisement_id.clone(), candidate.score, terms(candidate))).collect()
}

async fn wait_for_ids(site: &PartySite, searcher: &str, ids: &[&String]) {
    wait_until("the searcher finds the sessions", async || {
        found(site, searcher).await.iter().map(|(id, ..)| id).eq(ids.iter().copied())
    })
    .await;
}

/// S1-96: an opponent's session does not exist for two minutes, for either of the two, also after a restart.
async fn recent_opponent_is_not_found(mut site: PartySite) {
    play(&site, "ana", "ben").await;
    let of_ben = advertise(&site, "ben").await;
    wait_for_ids(&site, "eve", &[&of_ben]).await;
    wait_for_ids(&site, "ana", &[]).await;
    site.restart_first().await;
    let client = site.player("ana").await;
    let mut search = client.new_search(SET_ID, party_session(&[("ana", 20.0)]));
    assert_eq!(search.search().await.expect("search").candidates.len(), 0, "after a restart");
    let error = search.reserve(&of_ben).await.expect_err("it does not exist");
    assert!(error.to_string().contains("advertisement not found"), "{error}");
    site.clock.advance_ms(2 * MINUTE_MS);
    wait_for_ids(&site, "ana", &[&of_ben]).await;
    site.shut_down().await;
}

/// S1-96: an opponent's session comes later for some time: its score is higher by a cost that halves, and that is one of its terms.
async fn recent_opponent_is_found_later(site: PartySite) {
    let mut hosts = [("ben", String::new()), ("cyd", String::new())];
    for (host, id) in &mut hosts {
        *id = advertise(&site, host).await;
    }
    let [(_, of_ben), (_, of_cyd)] = &hosts;
    let mut in_id_order = [of_ben, of_cyd];
    in_id_order.sort();
    wait_for_ids(&site, "ana", &in_id_order).await;
    // The one that comes first.
    let (met, other) = if in_id_order[0] == of_ben { ("ben", of_cyd) } else { ("cyd", of_ben) };
    play(&site, "ana", met).await;
    wait_for_ids(&site, "ana", &[other, in_id_order[0]]).await;
    let cost = async |expected: f64| {
        let found = found(&site, "ana").await;
        assert_eq!(found[0].1, 0.0);
        assert_eq!(found[1].1, expected);
        assert_eq!(found[1].2, [("avoid".to_owned(), expected)]);
    };
    cost(0.4).await;
    site.clock.advance_ms(MINUTE_MS);
    cost(0.2).await;
    site.clock.advance_ms(MINUTE_MS);
    wait_for_ids(&site, "ana", &in_id_order).await;
    assert_eq!(found(&site, "ana").await[0].1, 0.0, "no longer recent");
    site.shut_down().await;
}

on_each_store! {
    recent_opponent_is_not_found, duels_avoiding(r#"How="never""#),
        recent_opponent_is_not_found_on_sqlite, recent_opponent_is_not_found_on_postgres;
    recent_opponent_is_found_later, duels_avoiding(r#"How="prefer_not" Cost="0.4" HalfLifeMs="60000""#),
        recent_opponent_is_found_later_on_sqlite, recent_opponent_is_found_later_on_postgres;
}
