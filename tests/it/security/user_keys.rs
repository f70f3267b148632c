//! Public keys of users: leaderboards, ratings, credentials and operators' answers never have the digest of an account, and a
//! match keeps the keys by which it named its players.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fireteam::config::StoreTarget;
use fireteam::domain::id::UserKey;
use fireteam_client::{Client, pb};
use pb::TicketState;
use pb::assignment::Host;

use crate::rating::results_and_leaderboards::{Duel, rated_duel};
use crate::support::generated_client as wire;
use crate::support::queue_server::{
    QueuedParty, SET_ID, advertise_host, duel_ruleset, game_server_advertisement, operator_client, start_queue_server,
    start_queue_server_with_config,
};

async fn page(client: &Client, size: u32, page_token: Vec<u8>) -> pb::GetLeaderboardResponse {
    let request = pb::GetLeaderboardRequest {
        matchmaking_set_id: Some(SET_ID),
        page_size: Some(size),
        page_token,
        ..Default::default()
    };
    client.get_leaderboard(request).await.expect("a page")
}

/// Whether bytes contain the digest of an account, as bytes or as text.
fn names_account(bytes: &[u8], user: &str) -> bool {
    let key = UserKey::from_name(user);
    let has = |pattern: &[u8]| bytes.windows(pattern.len()).any(|window| window == pattern);
    has(key.as_bytes()) || has(key.to_string().as_bytes())
}

/// SEC-9: a leaderboard has keys that cannot be computed from an account, in entries and in page tokens; they are those of
/// GetRatings, and another deployment has others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaderboard_shows_no_digest_of_an_account() {
    let users: Vec<String> = (0..7).map(|number| format!("user-{number}")).collect();
    let mut keys_of_deployments = Vec::new();
    for _ in 0..2 {
        let server = start_queue_server(&[&rated_duel("")]).await;
        let ratings = users.iter().enumerate().map(|(number, user)| wire::RatingRow {
            user_id: user.clone(),
            rating: Some(1500.0 + number as f64),
            ..Default::default()
        });
        let import = wire::ImportRatingsRequest { matchmaking_set_id: Some(SET_ID), ratings: ratings.collect() };
        operator_client(&server).await.import_ratings(import).await.expect("import");
        let client = server.client().await;
        let (mut keys, mut token) = (Vec::new(), Vec::new());
        loop {
            let read = page(&client, 3, token).await;
            for user in &users {
                assert!(!names_account(format!("{read:?}").as_bytes(), user), "{read:?}");
                assert!(!names_account(&read.next_page_token, user), "{:?}", read.next_page_token);
            }
            keys.extend(read.entries.into_iter().map(|entry| entry.user_key));
            token = read.next_page_token;
            if token.is_empty() {
                break;
            }
        }
        let named: Vec<&str> = users.iter().rev().map(String::as_str).collect();
        let by_account = client.get_ratings(SET_ID, &named).await.expect("ratings");
        assert_eq!(keys, by_account.into_iter().map(|rating| rating.user_key).collect::<Vec<_>>());
        keys_of_deployments.push(keys);
    }
    assert!(keys_of_deployments[0].iter().all(|key| !keys_of_deployments[1].contains(key)));
}

pub(crate) fn claims_of(credential: &str) -> serde_json::Value {
    let part = credential.split('.').nth(1).expect("claims");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).expect("base64")).expect("JSON")
}

/// SEC-21: the credential of a match that a player hosts names the host and the players by their keys in the match only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credential_for_a_hosting_player_has_keys_of_the_match_only() {
    let server = start_queue_server(&[&duel_ruleset(r#"<Hosting Mode="peer" ConfirmMs="60000"/>"#)]).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    // The watch of the hosting player confirms the match.
    let (of_ann, of_bob) =
        tokio::join!(ann.wait_for_state(TicketState::Matched), bob.wait_for_state(TicketState::Matched));
    let statuses = [of_ann, of_bob].map(|status| status.found_match.expect("a match"));
    for status in &statuses {
        let own = &status.own_players[0];
        let claims = claims_of(&own.credential);
        assert_eq!(claims["sub"], own.player_key);
        let Some(Host::PeerHost(host)) = &status.assignment.as_ref().expect("an assignment").host else {
            panic!("a player hosts: {status:?}")
        };
        assert_eq!(claims["host"], *host.player_key, "the host by its key in the match: {claims}");
        assert_eq!(claims["aud"], claims["host"]);
        assert!(claims.get("user").is_none(), "{claims}");
        for name in ["ann", "bob"] {
            assert!(!names_account(claims.to_string().as_bytes(), name), "{claims}");
            let user = UserKey::from_name(name);
            let client = UserKey::of_client_of_user(user, user);
            assert!(!claims.to_string().contains(&client.to_string()), "{claims}");
        }
    }
}

/// SEC-21: a game server recognizes a user by a key of its own, which an operator can look up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credential_for_a_game_server_has_the_key_that_an_operator_looks_up() {
    let hosted = r#"<Hosting Mode="game_server" AllocationTimeoutMs="600000"/>"#;
    let server = start_queue_server(&[&duel_ruleset(hosted)]).await;
    advertise_host(&server, game_server_advertisement(b"here")).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let _bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    let status = ann.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
    let claims = claims_of(&status.own_players[0].credential);
    let mut operator = operator_client(&server).await;
    let request = wire::GetPlayerRequest { user_id: "ann".to_owned(), ..Default::default() };
    let player = operator.get_player(request).await.expect("a player").into_inner();
    assert_eq!(claims["user"], player.credential_user_key);
    let keys = [&player.user_key, &player.leaderboard_user_key, &player.credential_user_key, &player.log_key];
    let digest = UserKey::from_name("ann").to_string();
    for (at, key) in keys.iter().enumerate() {
        assert_ne!(**key, digest);
        assert!(!keys[..at].contains(key), "one key per purpose: {keys:?}");
    }
    let details = operator.get_match(wire::GetMatchRequest { match_id: status.match_id }).await.expect("a match");
    let details = format!("{:?}", details.into_inner());
    assert!(details.contains(&player.user_key) && !details.contains(&digest), "{details}");
}

/// SEC-21: a rotation of token keys changes no player's key in a match: a report by the key of before is accepted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn match_keeps_the_keys_of_its_players_when_token_keys_rotate() {
    let server = start_queue_server_with_config(&[&rated_duel("")], |config| {
        let folder = config.token_key_file.as_ref().and_then(|file| file.parent()).expect("a folder").to_owned();
        config.store = StoreTarget::Sqlite(folder.join("store.db"));
    })
    .await;
    let duel = Duel::start(&server, ["ann", "bob"]).await;
    let keys: Vec<String> = duel.found_match.players.iter().map(|player| player.player_key.clone()).collect();
    let report = duel.ann_won();
    drop(duel);
    let file = server.folder.path().join("token-key");
    let rotated = "5a".repeat(32) + "\n" + &std::fs::read_to_string(&file).expect("a key");
    std::fs::write(&file, rotated).expect("write");
    let server = server.restart().await;
    let client = server.client().await;
    let left_early = pb::ReportResultRequest { disconnected_player_keys: vec![keys[1].clone()], ..report };
    let answer = client.report_result(left_early).await.expect("the key of before names the player");
    assert!(answer.changes.iter().all(|change| keys.contains(&change.player_key)), "{answer:?}");
}
