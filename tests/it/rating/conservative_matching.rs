//! `<Rating MatchZ>`: players are matched by their rating less some deviations, so that newcomers meet low ratings first.

use pb::TicketState;

use fireteam_client::pb;

use crate::support::generated_client::{ImportRatingsRequest, RatingRow};
use crate::support::queue_server::{QueuedParty, SET_ID, operator_client, servers_on_each_store, wait_until};
use crate::support::test_server::{TestServer, advertise_request, party_session};

/// A duel of TrueSkill ratings within three points, also as hard filter.
fn duel(rating: &str) -> String {
    format!(
        r#"<Ruleset Name="Duel" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="-50" Max="50"/></Attributes>
  <HardFilters><Within Name="near" Expansion="near" Missing="pass"/></HardFilters>
  <ExpansionConfigs>
    <ExpansionConfig Name="near" Type="skill"><Expansion ExpansionDurationMs="-1" Value="3"/></ExpansionConfig>
  </ExpansionConfigs>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10" Backfill="true"><RatingWindow Start="3" Max="3"/></Queue>
  <Rating System="trueskill" Mu="25" Sigma="8" {rating}/>
</Ruleset>"#
    )
}

/// An average veteran of 25, and a weak one of 4, both with a deviation of 1.
async fn import_veterans(server: &TestServer) {
    let row = |(user_id, rating): (&str, f64)| RatingRow {
        user_id: user_id.to_owned(),
        rating: Some(rating),
        deviation: Some(1.0),
        ..Default::default()
    };
    let ratings = [("average", 25.0), ("weak", 4.0)].map(row).into();
    let request = ImportRatingsRequest { matchmaking_set_id: Some(SET_ID), ratings };
    operator_client(server).await.import_ratings(request).await.expect("import");
}

async fn enter(server: &TestServer, name: &str) -> QueuedParty {
    QueuedParty::enter(server, SET_ID, &[(name, 0.0)]).await
}

async fn assert_unmatched(waiting: &mut QueuedParty) {
    wait_until("a pass has run", async || !waiting.current_status().await.blocking_rule.is_empty()).await;
    assert_eq!(waiting.current_status().await.state(), TicketState::Waiting);
}

/// S2-3, S0-19: a newcomer of 25 with a deviation of 8 counts as 1 with `MatchZ="3"`, and meets the weak veteran, who counts as 1
/// too. Without it the newcomer meets the average veteran. The rating itself stays as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newcomer_is_matched_by_the_conservative_rating() {
    for (rating, expected, other) in
        [(r#"MatchZ="3""#, "weak", "average"), (r#"Z="3""#, "average", "weak"), (r#"MatchZ="0""#, "average", "weak")]
    {
        for (server, _database) in servers_on_each_store("newcomer", &duel(rating)).await {
            import_veterans(&server).await;
            let mut newcomer = enter(&server, "newcomer").await;
            assert_unmatched(&mut newcomer).await;
            let mut unsuitable = enter(&server, other).await;
            assert_unmatched(&mut unsuitable).await;
            let mut suitable = enter(&server, expected).await;
            suitable.wait_for_state(TicketState::Matched).await;
            newcomer.wait_for_state(TicketState::Matched).await;
            assert_eq!(unsuitable.current_status().await.state(), TicketState::Waiting, "{rating}");
            let known = server.client().await.get_ratings(SET_ID, &["newcomer"]).await.expect("ratings").remove(0);
            assert_eq!(known.rating.expect("a rating"), pb::RatingValue { rating: 25.0, deviation: 8.0 });
        }
    }
}

/// A session with an open seat is judged by the same numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_of_a_newcomer_is_filled_by_the_conservative_rating() {
    for (server, _database) in servers_on_each_store("newcomer_session", &duel(r#"MatchZ="3""#)).await {
        import_veterans(&server).await;
        let client = server.client().await;
        let request = pb::MatchmakingUpdateAdvertisementRequest {
            matchmaking_set_id: Some(SET_ID),
            ..advertise_request(&[("newcomer", 0.0)], 1)
        };
        let advertised = client.update_advertisement(request).await.expect("advertise");
        server.keep_hosting(client, advertised.advertisement_token);
        let mut average = enter(&server, "average").await;
        assert_unmatched(&mut average).await;
        enter(&server, "weak").await.wait_for_state(TicketState::Matched).await;
    }
}

/// A search sees the newcomer's session by the same numbers as the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newcomer_is_searched_for_by_the_conservative_rating() {
    for (server, _database) in servers_on_each_store("newcomer_search", &duel(r#"MatchZ="3""#)).await {
        import_veterans(&server).await;
        let client = server.client().await;
        let request = pb::MatchmakingUpdateAdvertisementRequest {
            matchmaking_set_id: Some(SET_ID),
            ..advertise_request(&[("newcomer", 0.0)], 1)
        };
        client.update_advertisement(request).await.expect("advertise");
        for (searcher, expected) in [("average", 0), ("weak", 1)] {
            let search = pb::MatchmakingSearchRequest {
                matchmaking_set_id: Some(SET_ID),
                session_composition: Some(party_session(&[(searcher, 0.0)])),
                ..Default::default()
            };
            let found = client.search(search).await.expect("search");
            assert_eq!(found.candidates.len(), expected, "{searcher}: {found:?}");
        }
    }
}
