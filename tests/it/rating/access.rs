//! Permission to read ratings, histories, leaderboards and predictions.

use fireteam::auth::identity::Role;
use fireteam::config::{RateLimitRules, RulesetSource};
use fireteam_client::{Client, Code, Error, pb};
use pb::TicketState;

use crate::rating::results_and_leaderboards::rated_duel;
use crate::support::queue_server::{QueuedParty, SET_ID, enter_request};
use crate::support::test_server::TestServer;
use crate::support::tokens::{TokenIssuer, start_authenticated_server_with_config};

async fn start(ruleset: &str) -> (TestServer, TokenIssuer) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("duel.xml"), ruleset).expect("a ruleset");
    let path = folder.path().to_owned();
    let (mut server, issuer) = start_authenticated_server_with_config(|config| {
        config.rulesets = RulesetSource::Directory(path);
        config.rate_limits = RateLimitRules::Off;
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
    let (server, issuer) = start(&rated_duel("").replace(r#"K="32""#, r#"K="32" Leaderboard="public""#)).await;
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
    let mut ann = backend.enter(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("enter");
    backend.get_ratings(SET_ID, &["ann"]).await.expect("it entered ann");
    history(&backend, "ann").await.expect("it entered ann");
    assert_eq!(refusal(other.get_ratings(SET_ID, &["ann"]).await).0, Code::PermissionDenied);
    assert_eq!(refusal(backend.get_ratings(SET_ID, &["ann", "bob"]).await).0, Code::PermissionDenied);
    assert!(ann.leave().await.expect("leave"));
    assert_eq!(refusal(backend.get_ratings(SET_ID, &["ann"]).await).0, Code::PermissionDenied);
}
