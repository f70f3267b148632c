//! Ratings from the results of searched sessions, against the formulas of their systems, and the searches that follow.

use fireteam_client::pb;

use crate::session_match::fixture::{Host, ranks_of, ratings, reserve, team};
use crate::support::generated_client::{ImportRatingsRequest, RatingRow};
use crate::support::party_site::{PartySite, by_operator, on_each_store};
use crate::support::queue_server::{SET_ID, operator_client, wait_until};
use crate::support::test_server::party_session;

/// A set that only advertises and searches, nearest rating first.
fn rated_ruleset(rating: &str) -> String {
    format!(
        r#"<Ruleset Name="Rooms" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="5000" Trust="game_server"/></Attributes>
  <SoftFilters><SoftFilter Attribute="skill" Weight="100%" Mode="difference"/></SoftFilters>
  {rating}
</Ruleset>"#
    )
}

async fn import(site: &PartySite, rows: &[(&str, f64, f64)]) {
    let row = |&(user, rating, deviation): &(&str, f64, f64)| RatingRow {
        user_id: user.to_owned(),
        rating: Some(rating),
        deviation: Some(deviation),
        volatility: None,
        matches: 30,
    };
    let request = ImportRatingsRequest { matchmaking_set_id: Some(SET_ID), ratings: rows.iter().map(row).collect() };
    operator_client(&site.servers[0]).await.import_ratings(by_operator(site, request)).await.expect("import");
}

/// A game server's session, found by search, in which `winner` beats `loser`.
async fn duel(site: &PartySite, host: &Host, [winner, loser]: [&str; 2]) {
    let seats = [reserve(site, host, winner).await, reserve(site, host, loser).await];
    let [one, other] = &seats;
    host.wait_for_reservations(&[one, other]).await;
    host.update(&[one, other], &[]).await;
    let started = host.start(&[team(false, &[one]), team(false, &[other])]).await;
    let report = pb::ReportResultRequest {
        match_id: started.id().to_owned(),
        team_ranks: ranks_of(0),
        advertisement_token: host.token(),
        ..Default::default()
    };
    assert!(host.client.report_result(report).await.expect("report").rated);
}

/// Ids of the sessions that a player finds at the last server, best first.
async fn found_by(site: &PartySite, name: &str) -> Vec<String> {
    let client = site.player_elsewhere(name).await;
    let mut search = client.new_search(SET_ID, party_session(&[(name, 0.0)]));
    let candidates = search.search().await.expect("search").candidates;
    candidates.into_iter().map(|candidate| candidate.advertisement_id).collect()
}

/// S1-60, S1-61: ann and bob have won one match each, ann against a strong opponent. Their ratings follow Elo's formula, and searchers
/// near either rating find either one first; the record of wins would not tell them apart.
async fn opponents_strength_decides_who_is_found_first(site: PartySite) {
    import(&site, &[("strong", 1_800.0, 0.0), ("weak", 1_200.0, 0.0), ("cid", 1_525.0, 0.0), ("dan", 1_506.0, 0.0)])
        .await;
    let server = Host::game_server(&site).await;
    duel(&site, &server, ["ann", "strong"]).await;
    duel(&site, &server, ["bob", "weak"]).await;
    let gain = |opponent: f64| 32.0 * (1.0 - 1.0 / (1.0 + 10_f64.powf((opponent - 1_500.0) / 400.0)));
    let after = [1_500.0 + gain(1_800.0), 1_500.0 + gain(1_200.0), 1_800.0 - gain(1_800.0), 1_200.0 - gain(1_200.0)];
    let names = ["ann", "bob", "strong", "weak"];
    wait_until("the ratings reach the other server", async || {
        ratings(&site, names).await.iter().zip(after).all(|(found, expected)| (found - expected).abs() < 1e-9)
    })
    .await;
    let total: f64 = ratings(&site, names).await.iter().sum();
    assert!((total - 6_000.0).abs() < 1e-9, "nothing is gained or lost in all: {total}");

    let hosts = [Host::player(&site, "ann").await, Host::player(&site, "bob").await];
    let [ann, bob] = hosts.each_ref().map(|host| host.id().to_owned());
    wait_until("the other server has the sessions", async || found_by(&site, "cid").await.len() == 3).await;
    let players = async |searcher| {
        let ids = found_by(&site, searcher).await;
        ids.into_iter().filter(|id| [&ann, &bob].contains(&id)).collect::<Vec<_>>()
    };
    assert_eq!(players("cid").await, [ann.clone(), bob.clone()], "1525 is nearer to 1527 than to 1505");
    assert_eq!(players("dan").await, [bob.clone(), ann.clone()], "1506 is nearer to 1505");
    site.shut_down().await;
}

/// Rating and deviation of a player after one game, by the formulas of the thesis (chapter 3.2) and of Glickman for the deviation.
fn glicko_after([rating, deviation]: [f64; 2], [opponent, uncertainty]: [f64; 2], score: f64) -> [f64; 2] {
    let q = 10_f64.ln() / 400.0;
    let g = 1.0 / (1.0 + 3.0 * (q * uncertainty / std::f64::consts::PI).powi(2)).sqrt();
    let expected = 1.0 / (1.0 + 10_f64.powf(-g * (rating - opponent) / 400.0));
    let per_d_squared = (q * g).powi(2) * expected * (1.0 - expected);
    let precision = 1.0 / deviation.powi(2) + per_d_squared;
    [rating + q / precision * g * (score - expected), (1.0 / precision).sqrt()]
}

/// S1-62, S1-63, S1-64: a match of a searched session moves ratings and deviations as Glicko's formulas say, an uncertain player's
/// farther; GetRatings answers each as an interval of two deviations. The next search uses the new ratings.
async fn glicko_moves_an_uncertain_player_farther(site: PartySite) {
    let (new, known) = ([1_500.0, 200.0], [1_700.0, 50.0]);
    import(&site, &[("ann", new[0], new[1]), ("bob", known[0], known[1]), ("cid", 1_640.0, 50.0)]).await;
    let server = Host::game_server(&site).await;
    duel(&site, &server, ["ann", "bob"]).await;
    let after = [glicko_after(new, known, 1.0), glicko_after(known, new, 0.0)];
    assert!(after[0][0] - new[0] > 100.0 && known[0] - after[1][0] < 15.0, "{after:?}");
    for (name, [rating, deviation]) in ["ann", "bob"].into_iter().zip(after) {
        let client = site.player_elsewhere(name).await;
        let close = |found: f64, expected: f64| (found - expected).abs() < 1e-6;
        wait_until("the rating reaches the other server", async || {
            let found = client.get_ratings(SET_ID, &[name]).await.expect("ratings").remove(0);
            let value = found.rating.expect("a rating");
            let interval = [found.rating_low_95, found.rating_high_95];
            close(value.rating, rating)
                && close(value.deviation, deviation)
                && close(interval[0], rating - 2.0 * deviation)
                && close(interval[1], rating + 2.0 * deviation)
        })
        .await;
    }
    let hosts = [Host::player(&site, "ann").await, Host::player(&site, "bob").await];
    let [ann, bob] = hosts.each_ref().map(|host| host.id().to_owned());
    wait_until("the other server has the sessions", async || found_by(&site, "cid").await.len() == 3).await;
    let found = found_by(&site, "cid").await;
    let place = |id: &String| found.iter().position(|it| it == id).expect("found");
    assert!(place(&ann) < place(&bob), "1640 is nearer to ann's new rating; before it was nearer to bob's");
    site.shut_down().await;
}

on_each_store! {
    opponents_strength_decides_who_is_found_first, rated_ruleset(r#"<Rating System="elo" K="32"/>"#),
        opponents_strength_decides_who_is_found_first_on_sqlite,
        opponents_strength_decides_who_is_found_first_on_postgres;
    glicko_moves_an_uncertain_player_farther, rated_ruleset(r#"<Rating System="glicko"/>"#),
        glicko_moves_an_uncertain_player_farther_on_sqlite, glicko_moves_an_uncertain_player_farther_on_postgres;
}
