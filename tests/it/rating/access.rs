//! Permission to read ratings, histories, leaderboards and predictions.

use std::sync::Arc;

use fireteam::auth::identity::Role;
use fireteam::config::{
    CallRateOrOpenStreamsMax, PostgresUrl, RateLimitRule, RateLimitSetting, RulesetSource, StoreTarget,
};
use fireteam_client::{Client, Code, Error, RetryPolicy, pb};
use pb::TicketState;

use crate::rating::results_and_leaderboards::{Duel, rated_duel};
use crate::support::database::{TestDatabase, create_test_database};
use crate::support::queue_server::{QueuedParty, SET_ID, enter_request, wait_until};
use crate::support::test_server::{TestClock, TestServer};
use crate::support::tokens::{TokenIssuer, start_authenticated_server_with_config};

/// The rating of the tests, and the same with a leaderboard that all may read.
const PRIVATE: &str = r#"K="32""#;
const PUBLIC: &str = r#"K="32" Leaderboard="public""#;

async fn start(ruleset: &str) -> (TestServer, TokenIssuer) {
    start_with_limits(ruleset, RateLimitSetting::Off).await
}

async fn start_with_limits(ruleset: &str, rate_limits: RateLimitSetting) -> (TestServer, TokenIssuer) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("duel.xml"), ruleset).expect("a ruleset");
    let path = folder.path().to_owned();
    let (mut server, issuer) = start_authenticated_server_with_config(|config| {
        config.rulesets = RulesetSource::Directory(path);
        config.rate_limits = rate_limits;
    })
    .await;
    server.keep_folder(folder);
    (server, issuer)
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, Error>) -> (Code, String) {
    let error = answer.expect_err("refused");
    (error.code().expect("a status"), error.to_string())
}

async fn history(client: &Client, user: &str) -> Result<pb::GetRatingHistoryResponse, Error> {
    let request =
        pb::GetRatingHistoryRequest { matchmaking_set_id: Some(SET_ID), user_id: user.into(), ..Default::default() };
    client.get_rating_history(request).await
}

async fn leaderboard(client: &Client, around: &str) -> Result<pb::GetLeaderboardResponse, Error> {
    let request = pb::GetLeaderboardRequest {
        matchmaking_set_id: Some(SET_ID),
        around_user_id: around.into(),
        ..Default::default()
    };
    client.get_leaderboard(request).await
}

/// SEC-9: a player reads its own ratings and those of users whom it plays or has played with; any other user is refused like one
/// who does not exist. A leaderboard that is not public is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn player_reads_ratings_of_itself_and_of_users_it_has_played_with() {
    let (server, issuer) = start(&rated_duel("")).await;
    let client = async |name: &str| issuer.client_with_token(&server, Role::Client, name).await;
    let (ann, bob, eve) = (client("ann").await, client("bob").await, client("eve").await);
    let strangers = refusal(ann.get_ratings(SET_ID, &["bob"]).await);
    assert_eq!(strangers.0, Code::PermissionDenied);
    let mut anns = QueuedParty::enter_with_client(ann.clone(), enter_request(SET_ID, &[("ann", 20.0)])).await;
    let mut bobs = QueuedParty::enter_with_client(bob.clone(), enter_request(SET_ID, &[("bob", 20.0)])).await;
    let found = anns.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
    bobs.wait_for_state(TicketState::Matched).await;

    // During play and after it.
    for _ in 0..2 {
        assert_eq!(ann.get_ratings(SET_ID, &["ann", "bob"]).await.expect("readable").len(), 2);
        history(&ann, "bob").await.expect("readable");
        ann.predict_outcome(SET_ID, &[&["ann"], &["bob"]]).await.expect("readable");
        for user in ["bob", "unknown-user"] {
            let refused = refusal(eve.get_ratings(SET_ID, &[user]).await);
            assert_eq!(refused, strangers, "the same for a known and an unknown user");
            assert_eq!(refusal(eve.get_ratings(SET_ID, &["eve", user]).await), strangers);
            assert_eq!(refusal(history(&eve, user).await).0, Code::PermissionDenied);
            let predicted = refusal(eve.predict_outcome(SET_ID, &[&["eve"], &[user]]).await);
            assert_eq!(predicted.0, Code::PermissionDenied);
        }
        assert_eq!(refusal(ann.get_ratings(SET_ID, &["eve"]).await), strangers);
        bobs.ticket.end_match(&found.match_id, false).await.expect("end");
    }
    for around in ["", "ann"] {
        let (code, text) = refusal(leaderboard(&ann, around).await);
        assert!(code == Code::PermissionDenied && text.contains("Leaderboard=\"public\""), "{text}");
    }
}

/// SEC-9: a public leaderboard is read by each caller, but around a user only by who may read that user's ratings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn public_leaderboard_is_read_by_all_and_around_users_one_may_read() {
    let (server, issuer) = start(&rated_duel("").replace(PRIVATE, PUBLIC)).await;
    let ann = issuer.client_with_token(&server, Role::Client, "ann").await;
    let game_server = issuer.client_with_token(&server, Role::GameServer, "eu-1").await;
    leaderboard(&ann, "").await.expect("public");
    leaderboard(&game_server, "").await.expect("public");
    leaderboard(&ann, "ann").await.expect("its own place");
    assert_eq!(refusal(leaderboard(&ann, "bob").await).0, Code::PermissionDenied);
    assert_eq!(refusal(leaderboard(&game_server, "bob").await).0, Code::PermissionDenied);
}

/// SEC-9: a game server reads ratings of users whose tickets it has entered, while they have not ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn game_server_reads_ratings_of_users_whom_it_enters() {
    let (server, issuer) = start(&rated_duel("")).await;
    let backend = issuer.client_with_token(&server, Role::GameServer, "eu-1").await;
    let other = issuer.client_with_token(&server, Role::GameServer, "eu-2").await;
    assert_eq!(refusal(backend.get_ratings(SET_ID, &["ann"]).await).0, Code::PermissionDenied);
    let mut ann = backend.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("enter");
    backend.get_ratings(SET_ID, &["ann"]).await.expect("it entered ann");
    history(&backend, "ann").await.expect("it entered ann");
    assert_eq!(refusal(other.get_ratings(SET_ID, &["ann"]).await).0, Code::PermissionDenied);
    assert_eq!(refusal(backend.get_ratings(SET_ID, &["ann", "bob"]).await).0, Code::PermissionDenied);
    assert!(ann.leave().await.expect("leave"));
    assert_eq!(refusal(backend.get_ratings(SET_ID, &["ann"]).await).0, Code::PermissionDenied);
}

/// SEC-9: an operator reads the ratings, histories, predictions and leaderboards of all users, also where the leaderboard is not
/// public. It reports no result and gives no feedback, and its reads are charged as its own calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_reads_the_ratings_of_all_users() {
    let (server, issuer) = start(&rated_duel("")).await;
    let client = async |role, name: &str| issuer.client_with_token(&server, role, name).await;
    let (ann, backend) = (client(Role::Client, "ann").await, client(Role::GameServer, "eu-1").await);
    let mut anns = QueuedParty::enter_with_client(backend.clone(), enter_request(SET_ID, &[("ann", 20.0)])).await;
    let mut bobs = QueuedParty::enter_with_client(backend.clone(), enter_request(SET_ID, &[("bob", 20.0)])).await;
    let found = anns.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
    bobs.wait_for_state(TicketState::Matched).await;
    let report = anns.ticket.report_result(&found.match_id, &[(found.team, 1), (1 - found.team, 2)]).await;
    assert!(report.expect("report").rated);

    let operator = client(Role::Operator, "ops").await;
    let ratings = operator.get_ratings(SET_ID, &["ann", "bob", "unknown-user"]).await.expect("all");
    assert_eq!(ratings.iter().map(|rating| rating.matches).collect::<Vec<_>>(), [1, 1, 0]);
    assert_eq!(history(&operator, "bob").await.expect("bob's history").changes.len(), 1);
    let predicted = operator.predict_outcome(SET_ID, &[&["ann"], &["unknown-user"]]).await.expect("any sides");
    assert!(predicted[0] > 0.5, "{predicted:?}");
    for around in ["", "bob"] {
        assert_eq!(leaderboard(&operator, around).await.expect("not public").total, 2);
        assert_eq!(refusal(leaderboard(&ann, around).await).0, Code::PermissionDenied);
    }
    let ticket_token = anns.ticket.reference().ticket_token;
    let feedback = pb::SubmitFeedbackRequest {
        match_id: found.match_id.clone(),
        ticket_token: ticket_token.clone(),
        stars: 5,
        ..Default::default()
    };
    let report = pb::ReportResultRequest { match_id: found.match_id, ticket_token, ..Default::default() };
    let refused = [refusal(operator.submit_feedback(feedback).await), refusal(operator.report_result(report).await)];
    for (code, text) in refused {
        assert!(code == Code::PermissionDenied && text.contains("role `operator`"), "{text}");
    }
}

/// SEC-9: reads of an operator count against its limit of operators' calls; those of others against their limit of searches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_an_operator_are_charged_as_its_calls() {
    let limit = |role: &'static str, limit: &'static str| RateLimitRule {
        role,
        limit,
        allowance: CallRateOrOpenStreamsMax::Calls { per_second: 0.01, burst: 2, per_5_min: 2 },
    };
    let rules = RateLimitSetting::Overrides(vec![limit("operator", "operator"), limit("game_server", "search")]);
    let (server, issuer) = start_with_limits(&rated_duel("").replace(PRIVATE, PUBLIC), rules).await;
    for (role, name) in [(Role::Operator, "ops"), (Role::GameServer, "eu-1")] {
        let client = issuer.client_with_token(&server, role, name).await.with_retry_policy(RetryPolicy::NEVER);
        for _ in 0..2 {
            leaderboard(&client, "").await.expect("within the limit");
        }
        assert_eq!(refusal(leaderboard(&client, "").await).0, Code::ResourceExhausted, "{name}");
    }
}

/// Servers of one store with ratings that are kept for 30 days: one on SQLite, or two on Postgres.
async fn start_with_retention(database: Option<&TestDatabase>) -> Vec<TestServer> {
    let clock = Arc::new(TestClock::new());
    let mut servers: Vec<TestServer> = Vec::new();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("duel.xml"), rated_duel("")).expect("a ruleset");
    for _ in 0..database.map_or(1, |_| 2) {
        let (path, keys) = (folder.path().to_owned(), servers.first().map(|first| first.folder.path().to_owned()));
        let start = TestServer::start_on_clock(Arc::clone(&clock), |config| {
            let own = config.token_key_file.as_ref().and_then(|file| file.parent()).expect("a folder").to_owned();
            config.token_key_file = Some(keys.unwrap_or_else(|| own.clone()).join("token-key"));
            config.rulesets = RulesetSource::Directory(path);
            config.rating_retention_days = Some(30);
            config.store = match database {
                None => StoreTarget::Sqlite(own.join("store.db")),
                Some(database) => StoreTarget::Postgres(PostgresUrl::parse(&database.url).expect("a URL")),
            };
        });
        servers.push(start.await);
    }
    servers[0].keep_folder(folder);
    servers
}

async fn ratings_end_after_their_retention(servers: Vec<TestServer>) {
    let (first, last) = (&servers[0], servers.last().expect("a server"));
    let client = first.client().await;
    let old = Duel::start(first, ["ann", "bob"]).await;
    client.report_result(old.ann_won()).await.expect("report");
    let on_leaderboard = async |server: &TestServer| leaderboard(&server.client().await, "").await.expect("read").total;
    wait_until("each server has both", async || on_leaderboard(last).await == 2).await;
    first.clock.advance_ms(29 * 24 * 60 * 60 * 1_000);
    first.app.engine.queues().remove_old_ratings().await;
    assert_eq!(on_leaderboard(first).await, 2, "not yet");
    let recent = Duel::start(first, ["cid", "ann"]).await;
    client.report_result(recent.ann_won()).await.expect("report");
    first.clock.advance_ms(2 * 24 * 60 * 60 * 1_000);
    first.app.engine.queues().remove_old_ratings().await;
    for server in &servers {
        wait_until("only bob's rating is removed", async || on_leaderboard(server).await == 2).await;
    }
    let ratings = client.get_ratings(SET_ID, &["ann", "bob", "cid"]).await.expect("ratings");
    assert_eq!(ratings.iter().map(|rating| rating.matches).collect::<Vec<_>>(), [2, 0, 1]);
    assert!(history(&client, "bob").await.expect("a history").changes.is_empty());
    assert_eq!(history(&client, "ann").await.expect("a history").changes.len(), 2);
}

/// SEC-17: a rating ends with its history when its last rated match is older than the operator keeps ratings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rating_ends_after_its_retention_on_sqlite() {
    ratings_end_after_their_retention(start_with_retention(None).await).await;
}

/// SEC-17: and at each other server of the database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rating_ends_after_its_retention_on_postgres() {
    let Some(database) = create_test_database("rating_ends_after_its_retention_on_postgres").await else { return };
    ratings_end_after_their_retention(start_with_retention(Some(&database)).await).await;
}
