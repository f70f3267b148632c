//! Each rating system through searched sessions: its published examples, reproduced by a server from imported ratings.

use fireteam_client::{Reservation, pb};

use crate::rating::results_and_leaderboards::rank;
use crate::rating::vector_files::{EloVectors, Glicko2Case, Glicko2Vectors, GlickoVectors, TeamCase, TeamVectors};
use crate::rating::vectors::{ranks, ranks_against};
use crate::session_match::fixture::{Host, reserve, rooms_with, team};
use crate::support::generated_client::{ImportRatingsRequest, RatingRow};
use crate::support::party_site::{PartySite, by_operator, on_each_store};
use crate::support::queue_server::{SET_ID, operator_client, wait_until};

/// A match to be played: rating and deviation of each player by side before and after it, and the place of each side.
struct PlayedMatch {
    before: Vec<Vec<[f64; 2]>>,
    volatility: Option<f64>,
    places: Vec<u32>,
    after: Vec<Vec<[f64; 2]>>,
}

/// Imports the ratings, lets each player find the session of a game server by search and reserve a seat, plays the match, and compares
/// the ratings that the last server then tells.
async fn assert_match_moves_ratings(site: &PartySite, name: &str, played: &PlayedMatch, tolerance: f64) {
    let sides: Vec<Vec<String>> = played.before.iter().zip(0..).map(|(side, at)| names(name, at, side.len())).collect();
    let players = sides.iter().flatten().zip(played.before.iter().flatten());
    let rows = players.map(|(user, &[rating, deviation])| RatingRow {
        user_id: user.clone(),
        rating: Some(rating),
        deviation: Some(deviation),
        volatility: played.volatility,
        matches: 30,
    });
    let request = ImportRatingsRequest { matchmaking_set_id: Some(SET_ID), ratings: rows.collect() };
    operator_client(&site.servers[0]).await.import_ratings(by_operator(site, request)).await.expect("import");

    let host = Host::game_server_with_seats(site, 12).await;
    let mut seats: Vec<Vec<Reservation>> = Vec::new();
    for side in &sides {
        let mut of_side = Vec::new();
        for user in side {
            of_side.push(reserve(site, &host, user).await);
        }
        seats.push(of_side);
    }
    let all: Vec<&Reservation> = seats.iter().flatten().collect();
    host.wait_for_reservations(&all).await;
    host.update(&all, &[]).await;
    let teams: Vec<pb::SessionTeam> = seats.iter().map(|side| team(false, &side.iter().collect::<Vec<_>>())).collect();
    let started = host.start(&teams).await;
    let report = pb::ReportResultRequest {
        match_id: started.id().to_owned(),
        team_ranks: (0..)
            .zip(&played.places)
            .map(|(team, place)| rank(team, i32::try_from(*place).expect("a small number")))
            .collect(),
        advertisement_token: host.token(),
        ..Default::default()
    };
    assert!(host.client.report_result(report).await.expect("report").rated);

    for (user, expected) in sides.iter().flatten().zip(played.after.iter().flatten()) {
        let client = site.player_elsewhere(user).await;
        let mut found = [0.0; 2];
        let close = |found: f64, expected: f64| (found - expected).abs() <= tolerance * expected.abs().max(1e-3);
        wait_until(&format!("{name}: {user} is near {expected:?}"), async || {
            let rating =
                client.get_ratings(SET_ID, &[user]).await.expect("ratings").remove(0).rating.expect("a rating");
            found = [rating.rating, rating.deviation];
            close(found[0], expected[0]) && close(found[1], expected[1])
        })
        .await;
    }
}

fn names(name: &str, side: usize, count: usize) -> Vec<String> {
    (0..count).map(|player| format!("{name}-{side}-{player}")).collect()
}

async fn assert_elo_table(site: PartySite, constant: f64) {
    let vectors = EloVectors::read();
    let rows = vectors.tables.iter().filter(|row| row.k == constant);
    for (number, row) in rows.enumerate() {
        let sides = |a: f64, b: f64| vec![vec![[a, 0.0]], vec![[b, 0.0]]];
        let played = PlayedMatch {
            before: sides(row.a, row.b),
            volatility: None,
            places: ranks(row.score_a).to_vec(),
            after: sides(row.a_after, row.b_after),
        };
        assert_match_moves_ratings(&site, &format!("elo-{number}"), &played, 1e-9).await;
    }
    site.shut_down().await;
}

/// S1-66: the rows of the first table with a constant of 16, played through searched sessions.
async fn elo_rows_with_16_are_reproduced_by_searched_matches(site: PartySite) {
    assert_elo_table(site, 16.0).await;
}

/// S1-66: the rows of the first table with a constant of 32, played through searched sessions.
async fn elo_rows_with_32_are_reproduced_by_searched_matches(site: PartySite) {
    assert_elo_table(site, 32.0).await;
}

/// S1-66: equal players, a favorite who wins and an upset, with deviations of 350, 200, 50 and both, played through searched sessions.
async fn glicko_tables_are_reproduced_by_searched_matches(site: PartySite) {
    let vectors = GlickoVectors::read();
    assert_eq!(vectors.tables.len(), 12);
    for (number, row) in vectors.tables.iter().enumerate() {
        let played = PlayedMatch {
            before: vec![vec![row.a], vec![row.b]],
            volatility: None,
            places: ranks(row.score_a).to_vec(),
            after: vec![vec![row.a_after], vec![row.b_after]],
        };
        assert_match_moves_ratings(&site, &format!("glicko-{number}"), &played, 1e-9).await;
    }
    site.shut_down().await;
}

/// S1-65: the examples of Glicko-2's author, as matches of a searched session in which the player meets each opponent.
async fn glicko_2_examples_are_reproduced_by_searched_matches(site: PartySite) {
    let vectors = Glicko2Vectors::read();
    let cases: Vec<Glicko2Case> = vectors.cases.into_iter().filter(|case| case.tau == 0.5).collect();
    assert_eq!(cases.len(), 3);
    for Glicko2Case { id, player: [rating, deviation, volatility], opponents, scores, result, .. } in cases {
        let played = PlayedMatch {
            before: std::iter::once([rating, deviation]).chain(opponents).map(|player| vec![player]).collect(),
            volatility: Some(volatility),
            places: ranks_against(&scores),
            after: vec![vec![[result[0], result[1]]]],
        };
        assert_match_moves_ratings(&site, &id.replace('_', "-"), &played, 1e-9).await;
    }
    site.shut_down().await;
}

/// S1-65: TrueSkill's reference results as matches of searched sessions: duels, five against five, many sides, and a tie.
async fn trueskill_results_are_reproduced_by_searched_matches(site: PartySite) {
    let vectors = TeamVectors::read_trueskill();
    let is_played = |case: &TeamCase| 0.0 < case.tau && case.draw_probability == 0.1;
    let cases: Vec<TeamCase> = vectors.cases.into_iter().filter(is_played).collect();
    assert_eq!(cases.len(), 5);
    for TeamCase { id, teams, ranks, result, .. } in cases {
        let played = PlayedMatch { before: teams, volatility: None, places: ranks, after: result };
        assert_match_moves_ratings(&site, &id.replace('_', "-"), &played, 1e-6).await;
    }
    site.shut_down().await;
}

on_each_store! {
    elo_rows_with_16_are_reproduced_by_searched_matches, rooms_with(r#"<Rating System="elo" K="16"/>"#),
        elo_rows_with_16_are_reproduced_by_searched_matches_on_sqlite,
        elo_rows_with_16_are_reproduced_by_searched_matches_on_postgres;
    elo_rows_with_32_are_reproduced_by_searched_matches, rooms_with(r#"<Rating System="elo" K="32"/>"#),
        elo_rows_with_32_are_reproduced_by_searched_matches_on_sqlite,
        elo_rows_with_32_are_reproduced_by_searched_matches_on_postgres;
    glicko_tables_are_reproduced_by_searched_matches, rooms_with(r#"<Rating System="glicko" MinDeviation="0"/>"#),
        glicko_tables_are_reproduced_by_searched_matches_on_sqlite,
        glicko_tables_are_reproduced_by_searched_matches_on_postgres;
    glicko_2_examples_are_reproduced_by_searched_matches, rooms_with(r#"<Rating System="glicko2" Tau="0.5"/>"#),
        glicko_2_examples_are_reproduced_by_searched_matches_on_sqlite,
        glicko_2_examples_are_reproduced_by_searched_matches_on_postgres;
    trueskill_results_are_reproduced_by_searched_matches,
        rooms_with(r#"<Rating System="trueskill" Beta="4.166666666666667" Tau="0.08333333333333333" DrawPercent="10"/>"#),
        trueskill_results_are_reproduced_by_searched_matches_on_sqlite,
        trueskill_results_are_reproduced_by_searched_matches_on_postgres;
}
