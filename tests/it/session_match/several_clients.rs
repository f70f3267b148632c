//! Several clients of one account, where the ruleset allows them: each is a player of its own, and they share one rating.

use fireteam_client::{Client, pb};

use crate::session_match::fixture::{
    Host, NEWCOMER, hear, own_ticket, reserve, rooms_ruleset, session_of, team, wait_for_ratings, win_of,
};
use crate::support::generated_client as wire;
use crate::support::party_site::{PartySite, by_operator};
use crate::support::queue_server::{SET_ID, operator_client, wait_until};
use crate::support::test_server::party_session;

/// Two clients of an account may each have a session; sessions within ten points are found.
fn two_clients() -> String {
    rooms_ruleset().replace(
        r#"<Rating "#,
        r#"<Limits ClientsPerAccount="2"/>
  <HardFilters><Within Name="skill" Attribute="skill" Limit="10"/></HardFilters>
  <Rating "#,
    )
}

/// Session of one client of ann.
fn session_with(client_of_ann: &str) -> pb::MatchmakingUpdateAdvertisementRequest {
    let mut request = session_of(&["ann"]);
    let session = request.session_composition.as_mut().expect("a session");
    session.players[0].player_id = client_of_ann.to_owned();
    request
}

/// Advertises a session of one client of ann.
async fn host_with(site: &PartySite, client_of_ann: &str) -> Host {
    Host::advertise(site.player("ann").await, session_with(client_of_ann)).await
}

/// Sets the rating of a user.
async fn import_rating(site: &PartySite, user: &str, rating: f64) {
    let ratings = vec![wire::RatingRow { user_id: user.to_owned(), rating: Some(rating), ..Default::default() }];
    let request = wire::ImportRatingsRequest { matchmaking_set_id: Some(SET_ID), ratings };
    operator_client(&site.servers[0]).await.import_ratings(by_operator(site, request)).await.expect("import");
}

/// Ids of the sessions that a player finds.
async fn found(client: &Client, name: &str) -> Vec<String> {
    let answer = client.new_search(SET_ID, party_session(&[(name, 0.0)])).search().await.expect("search");
    let mut ids: Vec<String> = answer.candidates.into_iter().map(|candidate| candidate.advertisement_id).collect();
    ids.sort();
    ids
}

/// Two clients of one account each host a session. A match of one of them moves the rating of the account, and with it
/// what searchers find of both, at every server and after a restart. A third client takes the place of the oldest session.
async fn two_clients_of_an_account_have_sessions_and_one_rating(mut site: PartySite) {
    let first = host_with(&site, "ann's console").await;
    site.clock.advance_ms(10);
    let second = host_with(&site, "ann's phone").await;
    let mut both = [first.id().to_owned(), second.id().to_owned()];
    both.sort();
    let eve = site.player_elsewhere("eve").await;
    wait_until("both sessions are found", async || found(&eve, "eve").await == both).await;

    let bob = reserve(&site, &second, "bob").await;
    second.seat(&["ann", "bob"], &[&bob]).await;
    let started = second.start(&[team(true, &[]), team(false, &[&bob])]).await;
    let mut tickets = [own_ticket(&site, "ann", started.id()).await, own_ticket(&site, "bob", started.id()).await];
    let [of_ann, of_bob] = &mut tickets;
    hear(&site, &mut [of_ann, of_bob]).await;
    for ticket in &tickets {
        ticket.report_result(started.id(), &win_of(1)).await.expect("report");
    }
    wait_for_ratings(&site, ["ann", "bob"], [NEWCOMER - 16.0, NEWCOMER + 16.0]).await;
    // Ann is 16 points from eve now, also in the session of the client that has not played. With bob, the mean is eve's.
    wait_until("only the session with bob is near", async || found(&eve, "eve").await == [second.id()]).await;
    let alone = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: second.id().to_owned(),
        advertisement_token: second.token(),
        ..session_with("ann's phone")
    };
    second.client.update_advertisement(alone).await.expect("bob has left");
    wait_until("no session is near enough", async || found(&eve, "eve").await.is_empty()).await;
    drop((eve, tickets));

    // A third client takes the place of the oldest session, as a second one would with one client per account.
    let third = host_with(&site, "ann's laptop").await;
    import_rating(&site, "eve", NEWCOMER - 16.0).await;
    let mut left = [second.id().to_owned(), third.id().to_owned()];
    left.sort();
    let eve = site.player_elsewhere("eve").await;
    wait_until("the two later sessions are found", async || found(&eve, "eve").await == left).await;
    drop((eve, third));
    drop((first, second));
    site.restart_first().await;
    let eve = site.player("eve").await;
    assert_eq!(found(&eve, "eve").await, left);
    site.shut_down().await;
}

/// S2-1: one rating an account, several clients of it at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_of_an_account_have_sessions_and_one_rating_on_sqlite() {
    two_clients_of_an_account_have_sessions_and_one_rating(PartySite::on_sqlite(&two_clients()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_of_an_account_have_sessions_and_one_rating_on_postgres() {
    let test = "two_clients_of_an_account_have_sessions_and_one_rating_on_postgres";
    if let Some(site) = PartySite::on_postgres(test, &two_clients()).await {
        two_clients_of_an_account_have_sessions_and_one_rating(site).await;
    }
}
