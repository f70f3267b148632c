//! Erasure of a player whose client publishes a session with another player.

use fireteam::auth::identity::{Role, caller_key_of};
use fireteam_client::pb;

use crate::security::erasure::{collect_files, key_patterns, named_in, table_texts};
use crate::support::generated_client as wire;
use crate::support::party_site::{PartySite, by_operator, on_each_store, pairs_ruleset};
use crate::support::queue_server::{SET_ID, operator_client, wait_until};
use crate::support::test_server::{advertise_request, party_session};
use crate::support::tokens::ISSUER;

/// Everything that the store has written.
async fn stored_bytes(site: &PartySite) -> Vec<(String, Vec<u8>)> {
    let mut outputs = Vec::new();
    collect_files(site.folder(), &mut outputs);
    if let Some(database) = site.database() {
        outputs.extend(table_texts(&mut database.connect().await).await);
    }
    outputs
}

/// SEC-17: the account's digest as a publisher is nowhere after an erasure, and the session is no longer found, at any server.
async fn session_of_an_erased_publisher_is_deleted(site: PartySite) {
    let consent = site.consent("ben", "ana", false, pb::ConsentUse::Search).await;
    let mut request = pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        time_to_live_ms: Some(600_000),
        ..advertise_request(&[("ana", 20.0), ("ben", 20.0)], 4)
    };
    request.session_composition.as_mut().expect("a session").players[1].consent_token = consent;
    site.player("ana").await.advertise(request).await.expect("advertise");
    let searcher = site.player_elsewhere("hal").await;
    let sessions = async || {
        let mut search = searcher.new_search(SET_ID, party_session(&[("hal", 20.0)]));
        search.search().await.expect("search").candidates.len()
    };
    wait_until("the other server has the session", async || sessions().await == 1).await;
    let patterns = key_patterns("the publisher", caller_key_of(ISSUER, Role::Client, "ana"));
    assert!(!named_in(&stored_bytes(&site).await, &patterns).is_empty(), "the search finds the publisher");

    let request = wire::EraseUserRequest { user_id: "ana".into(), reason: "request 4713".into(), ..Default::default() };
    operator_client(&site.servers[0]).await.erase_user(by_operator(&site, request)).await.expect("erase");
    wait_until("no server has the session", async || sessions().await == 0).await;
    wait_until("the store has forgotten the publisher", async || {
        named_in(&stored_bytes(&site).await, &patterns).is_empty()
    })
    .await;
    site.shut_down().await;
}

/// SEC-17: the operator's server need not have the session: it was published at the other server a moment ago.
async fn session_of_an_erased_publisher_is_found_in_the_store(site: PartySite) {
    let mut request = pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        time_to_live_ms: Some(600_000),
        ..advertise_request(&[("ana", 20.0), ("ben", 20.0)], 4)
    };
    request.session_composition.as_mut().expect("a session").players[1].consent_token =
        site.consent("ben", "ana", false, pb::ConsentUse::Search).await;
    let patterns = key_patterns("the publisher", caller_key_of(ISSUER, Role::Client, "ana"));
    let publisher = site.player_elsewhere("ana").await;
    let mut operator = operator_client(&site.servers[0]).await;
    let erase = wire::EraseUserRequest { user_id: "ana".into(), reason: "request 4714".into(), ..Default::default() };
    publisher.advertise(request).await.expect("advertise");
    operator.erase_user(by_operator(&site, erase)).await.expect("erase");
    wait_until("the store has forgotten the publisher", async || {
        named_in(&stored_bytes(&site).await, &patterns).is_empty()
    })
    .await;
    site.shut_down().await;
}

on_each_store! {
    session_of_an_erased_publisher_is_found_in_the_store, pairs_ruleset(""),
        session_of_an_erased_publisher_is_found_in_the_store_on_sqlite,
        session_of_an_erased_publisher_is_found_in_the_store_on_postgres;
    session_of_an_erased_publisher_is_deleted, pairs_ruleset(""),
        session_of_an_erased_publisher_is_deleted_on_sqlite, session_of_an_erased_publisher_is_deleted_on_postgres;
}
