//! A small population that plays through searched sessions only. Results follow true skills that the server never sees; its ratings
//! must come to their order, as in the thesis's simulation.

use fireteam_client::{Client, Reservation, pb};

use crate::rating::results_and_leaderboards::rank;
use crate::session_match::fixture::{Host, NEWCOMER, rooms_with, team};
use crate::support::party_site::{PartySite, on_each_store};
use crate::support::queue_server::{SET_ID, wait_until};
use crate::support::test_server::party_session;

/// True skills on the scale of the ratings: the quantiles of a normal distribution with a deviation of 333 points.
const TRUE_SKILLS: [f64; 12] =
    [923.0, 1_119.0, 1_230.0, 1_316.0, 1_391.0, 1_465.0, 1_535.0, 1_609.0, 1_684.0, 1_770.0, 1_881.0, 2_077.0];

/// Players of one match, each for itself.
const MATCH_PLAYERS: usize = 6;

/// Rounds, in each of which every player plays once.
const ROUNDS: usize = 12;

/// Uniform numbers by SplitMix64 (Steele, Lea and Flood, 2014), so that each system rates the same matches.
struct Rng(u64);

impl Rng {
    /// Number above 0 and below 1.
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64 + f64::EPSILON / 4.0
    }

    /// Performance in one match. Of two players, one is ahead with the probability that Elo's formula gives for their skills.
    fn performance(&mut self, skill: f64) -> f64 {
        skill - (-self.uniform().ln()).ln() * 400.0 / std::f64::consts::LN_10
    }

    fn shuffle(&mut self, items: &mut [usize]) {
        for index in (1..items.len()).rev() {
            let other = (self.uniform() * (index + 1) as f64) as usize;
            items.swap(index, other);
        }
    }
}

/// Players who search at the last server for sessions of a game server at the first.
struct Population {
    host: Host,
    clients: Vec<Client>,
    rng: Rng,
}

impl Population {
    async fn new(site: &PartySite, seed: u64) -> Self {
        let host = Host::game_server_with_seats(site, 12).await;
        let mut clients = Vec::new();
        for player in 0..TRUE_SKILLS.len() {
            clients.push(site.player_elsewhere(&name(player)).await);
        }
        Self { host, clients, rng: Rng(seed) }
    }

    /// Each player plays in one match with random others.
    async fn play_round(&mut self) {
        let mut order: Vec<usize> = (0..TRUE_SKILLS.len()).collect();
        self.rng.shuffle(&mut order);
        for players in order.chunks(MATCH_PLAYERS) {
            self.play(players).await;
        }
    }

    async fn play(&mut self, players: &[usize]) {
        let mut seats = Vec::new();
        for &player in players {
            seats.push(self.reserve(player).await);
        }
        let all: Vec<&Reservation> = seats.iter().collect();
        self.host.wait_for_reservations(&all).await;
        self.host.update(&all, &[]).await;
        let teams: Vec<pb::SessionTeam> = all.iter().map(|&seat| team(false, &[seat])).collect();
        let started = self.host.start(&teams).await;
        let performances: Vec<f64> = players.iter().map(|&it| self.rng.performance(TRUE_SKILLS[it])).collect();
        let place = |own: f64| 1 + performances.iter().filter(|other| own < **other).count() as i32;
        let report = pb::ReportResultRequest {
            match_id: started.id().to_owned(),
            team_ranks: (0..).zip(&performances).map(|(team, own)| rank(team, place(*own))).collect(),
            advertisement_token: self.host.token(),
            ..Default::default()
        };
        assert!(self.host.client.report_result(report).await.expect("report").rated);
        self.host.update(&[], &all).await;
    }

    /// A player finds the session by search, and reserves a seat.
    async fn reserve(&self, player: usize) -> Reservation {
        let mut searching = self.clients[player].new_search(SET_ID, party_session(&[(&name(player), 0.0)]));
        wait_until("the search finds the session", async || {
            let found = searching.search().await.expect("search").candidates;
            found.iter().any(|candidate| candidate.advertisement_id == self.host.id())
        })
        .await;
        searching.reserve(self.host.id()).await.expect("reserve")
    }

    /// Ratings after `rounds`, as the server of the searches tells them.
    async fn ratings_after(&self, rounds: usize) -> Vec<f64> {
        let mut ratings = Vec::new();
        for (player, client) in self.clients.iter().enumerate() {
            let user = name(player);
            let mut rating = 0.0;
            wait_until("the ratings reach the server", async || {
                let found = client.get_ratings(SET_ID, &[&user]).await.expect("ratings").remove(0);
                rating = found.rating.expect("a rating").rating;
                found.matches as usize == rounds
            })
            .await;
            ratings.push(rating);
        }
        ratings
    }
}

fn name(player: usize) -> String {
    format!("player-{player}")
}

/// Spearman's rank correlation of ratings with the true skills, which are in order.
fn rank_correlation(ratings: &[f64]) -> f64 {
    let count = ratings.len() as f64;
    let rank_of = |own: f64| ratings.iter().filter(|other| **other < own).count() as f64;
    let squares: f64 = ratings.iter().zip(0..).map(|(&own, truth)| (rank_of(own) - f64::from(truth)).powi(2)).sum();
    1.0 - 6.0 * squares / (count * (count * count - 1.0))
}

/// Mean distance of the ratings from the true skills, in points.
fn mean_error(ratings: &[f64]) -> f64 {
    ratings.iter().zip(TRUE_SKILLS).map(|(rating, truth)| (rating - truth).abs()).sum::<f64>() / ratings.len() as f64
}

/// S1-67: newcomers play matches of random players whose results are drawn from true skills. The ratings come to the order of the
/// truth, the distance to it halves, and each player's history has every match.
async fn ratings_of_a_searching_population_come_to_the_true_order(site: PartySite) {
    let mut population = Population::new(&site, 1).await;
    for _ in 0..ROUNDS {
        population.play_round().await;
    }
    let ratings = population.ratings_after(ROUNDS).await;
    let correlation = rank_correlation(&ratings);
    assert!(0.85 < correlation, "{correlation}: {ratings:?}");
    let (before, after) = (mean_error(&[NEWCOMER; 12]), mean_error(&ratings));
    assert!(after < before / 2.0, "{after} of {before}: {ratings:?}");
    for (player, client) in population.clients.iter().enumerate() {
        let request = pb::GetRatingHistoryRequest {
            matchmaking_set_id: Some(SET_ID),
            user_id: name(player),
            ..Default::default()
        };
        let history = client.get_rating_history(request).await.expect("a history").changes;
        let value = |value: &Option<pb::RatingValue>| value.as_ref().map(|it| it.rating).expect("a rating");
        assert_eq!(history.len(), ROUNDS);
        let ends = (value(&history[ROUNDS - 1].before), value(&history[0].after));
        assert_eq!(ends, (NEWCOMER, ratings[player]), "the latest first");
    }
    site.shut_down().await;
}

on_each_store! {
    ratings_of_a_searching_population_come_to_the_true_order, rooms_with(r#"<Rating System="glicko"/>"#),
        ratings_of_a_searching_population_come_to_the_true_order_on_sqlite,
        ratings_of_a_searching_population_come_to_the_true_order_on_postgres;
}

/// S1-68: with the same matches, Glicko is nearer to the truth than Elo after ten, and a higher constant of Elo is faster than a lower.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn glicko_is_nearer_than_elo_after_ten_searched_matches() {
    let mut errors = Vec::new();
    for system in [r#"System="glicko""#, r#"System="elo" K="64""#, r#"System="elo" K="16""#] {
        let site = PartySite::on_sqlite(&rooms_with(&format!("<Rating {system}/>"))).await;
        let mut population = Population::new(&site, 2).await;
        for _ in 0..10 {
            population.play_round().await;
        }
        let ratings = population.ratings_after(10).await;
        assert!(0.75 < rank_correlation(&ratings), "{system}: {ratings:?}");
        errors.push(mean_error(&ratings));
        site.shut_down().await;
    }
    let start = mean_error(&[NEWCOMER; 12]);
    assert!(errors.is_sorted() && errors[2] < start, "{errors:?} of {start}");
    // Within a twentieth of the scale are most by Glicko; by Elo it takes dozens of matches.
    assert!(1.3 * errors[0] < errors[2], "{errors:?}");
}
