//! Whole processes over gRPC with shipped rulesets: from enter to a game server, from records to ratings, from
//! leaderboard places to a pair.

use fireteam::clock::Clock as _;
use fireteam_client::{CredentialError, CredentialVerifier, pb};
use pb::TicketState;

use crate::rating::import_export::run;
use crate::security::match_credential::{operator_page, system_time};
use crate::support::generated_client;
use crate::support::queue_server::{QueuedParty, advertise_host, operator_client, wait_until};
use crate::support::test_server::{TestServer, party_session};

/// The shipped sets.
const LADDER: u32 = 12;
const LEAGUES: u32 = 13;
const CHALLENGE: u32 = 14;

/// Imports ratings.
async fn import_ratings(server: &TestServer, set: u32, ratings: impl IntoIterator<Item = (String, f64)>) {
    let row = |(user_id, rating)| generated_client::RatingRow { user_id, rating: Some(rating), ..Default::default() };
    let ratings = ratings.into_iter().map(row).collect();
    let request = generated_client::ImportRatingsRequest { matchmaking_set_id: Some(set), ratings };
    operator_client(server).await.import_ratings(request).await.expect("import");
}

/// A player who waits in the leagues, 30 ms from eu.
async fn enter_league(server: &TestServer, name: &str) -> QueuedParty {
    let near = pb::RegionLatency { region: "eu".into(), round_trip_ms: 30.0 };
    let session = pb::SessionCompositionData { region_latencies: vec![near], ..party_session(&[(name, 0.0)]) };
    let request = pb::QueueEnterRequest {
        session_composition: Some(session),
        matchmaking_set_id: Some(LEAGUES),
        ..Default::default()
    };
    QueuedParty::enter_with_request(server, request).await
}

/// S3-4, S3-13, SEC-21: players enter one by one; ten of one league become a match; an advertised game server is
/// reserved; each of the ten receives its address and a credential that only this server accepts. A ticket that left is
/// not in the match, and one of another league still waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn league_of_ten_is_placed_on_a_game_server_with_credentials() {
    let server = TestServer::start().await;
    let diamonds = [3_010.0, 3_480.0, 3_120.0, 3_300.0, 3_250.0, 3_060.0, 3_410.0, 3_190.0, 3_350.0, 3_230.0];
    let name = |number: usize| format!("diamond {number}");
    import_ratings(&server, LEAGUES, (0..11).map(|number| (name(number), diamonds[number % 10]))).await;
    let mut all = Vec::new();
    for number in 0..9 {
        all.push(enter_league(&server, &name(number)).await);
    }
    let mut bronze = enter_league(&server, "bronze").await;
    let mut leaver = enter_league(&server, &name(10)).await;
    assert!(leaver.ticket.leave().await.expect("leave"));
    wait_until("nine diamonds and a bronze make no match", async || {
        !bronze.current_status().await.blocking_rule.is_empty()
    })
    .await;
    all.push(enter_league(&server, &name(9)).await);
    all[0].wait_for_state(TicketState::Placing).await;
    let seats = pb::SessionCompositionData {
        party_size_composition: vec![1],
        max_allowed_join_reservation_count: Some(10),
        ..Default::default()
    };
    let game_server = pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(LEAGUES),
        kind: pb::AdvertisementKind::GameServer.into(),
        session_composition: Some(seats),
        connect_data: b"game.example:9000".to_vec(),
        ..Default::default()
    };
    let advertised = advertise_host(&server, game_server).await;

    let (_, keys) = operator_page(&server, "/.well-known/jwks.json").await;
    let mut verifier = CredentialVerifier::new(&keys, &*advertised.advertisement_id).expect("a key set");
    let mut other_verifier = CredentialVerifier::new(&keys, "f".repeat(32)).expect("a key set");
    let mut teams = [0, 0];
    for waiting in &mut all {
        let found = waiting.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
        let Some(pb::assignment::Host::GameServer(at)) = found.assignment.and_then(|it| it.host) else {
            panic!("no server")
        };
        assert_eq!((&*at.connect_data, &*found.region, found.player_count), (&b"game.example:9000"[..], "eu", 10));
        let player = &found.own_players[0];
        let now = system_time(server.clock.now());
        let elsewhere = other_verifier.verify(&player.credential, now);
        assert_eq!(elsewhere, Err(CredentialError::WrongAudience), "another server refuses it");
        let admitted = verifier.verify(&player.credential, now).expect("this server accepts it");
        assert_eq!(
            (admitted.match_id, admitted.player_key, u32::from(admitted.team)),
            (found.match_id, player.player_key.clone(), found.team)
        );
        let again = verifier.verify(&player.credential, now);
        assert_eq!(again, Err(CredentialError::UsedBefore), "a credential is accepted once");
        teams[found.team as usize] += 1;
    }
    assert_eq!(teams, [5, 5]);
    assert_eq!(bronze.current_status().await.state(), TicketState::Waiting);
}

/// Wins and losses of ten players of similar strength; two rows are invalid.
const RECORDS: &str = "user_id,wins,losses\np0,50,50\np1,51,49\np2,-3,1\np3,52,48\np4,53,47\n\
                       p5,54,46\np6,55,45\np7,49,51\np8,48,52\np9,none,1\n";

/// S4-2, S4-14, S3-10: win records become ratings, ten similar players a match with the most even teams, and its result
/// new ratings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn win_records_become_ratings_a_match_and_new_ratings() {
    let server = TestServer::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("records.csv"), RECORDS).expect("records");
    let arguments = ["import-ratings", "records.csv", "--set", &CHALLENGE.to_string(), "--percentile"];
    let (_, output, _) = run(&server, folder.path(), &arguments).await;
    assert_eq!(output, "10 imported, 2 of them as one win and one loss, 0 rows not imported\n");
    let names: Vec<String> = (0..10).map(|number| format!("p{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let client = server.client().await;
    let ratings = async || -> Vec<f64> {
        let all = client.get_ratings(CHALLENGE, &names).await.expect("ratings");
        all.iter().map(|it| it.rating.expect("a rating").rating).collect()
    };
    let before = ratings().await;
    assert_eq!(
        (before[0], before[2], before[9]),
        (1_036.0, 1_036.0, 1_036.0),
        "an invalid row counts as one win and one loss"
    );

    let mut all = Vec::new();
    for name in &names {
        all.push(QueuedParty::enter(&server, CHALLENGE, &[(*name, 0.0)]).await);
    }
    let (mut teams, mut id) = ([0.0, 0.0], String::new());
    let mut won = Vec::new();
    for (waiting, rating) in all.iter_mut().zip(&before) {
        let found = waiting.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
        teams[found.team as usize] += rating;
        won.push(found.team == 0);
        id = found.match_id;
    }
    let fives = (0_u32..1 << 10).filter(|chosen| chosen.count_ones() == 5);
    let sum = |chosen: u32| (0..10).filter(|at| chosen >> at & 1 == 1).map(|at| before[at]).sum::<f64>();
    let least = fives.map(|chosen| (2.0 * sum(chosen) - teams[0] - teams[1]).abs()).fold(f64::INFINITY, f64::min);
    assert_eq!((teams[0] - teams[1]).abs(), least, "{teams:?}");

    all[0].ticket.report_result(&id, &[(0, 1), (1, 2)]).await.expect("report");
    let after = ratings().await;
    for ((before, after), won) in before.iter().zip(&after).zip(won) {
        assert_eq!(before < after, won, "{before} {after}");
    }
    assert!((before.iter().sum::<f64>() - after.iter().sum::<f64>()).abs() < 1e-9, "Elo points are zero-sum");
}

/// S2-9: places are counted among all rated users, connected or not: 20 places apart may match, 31 may not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaderboard_places_count_all_rated_users() {
    let server = TestServer::start().await;
    import_ratings(&server, LADDER, (0..60).map(|place| (format!("u{place}"), 60.0 - f64::from(place)))).await;
    let mut first = QueuedParty::enter(&server, LADDER, &[("u10", 0.0)]).await;
    let mut third = QueuedParty::enter(&server, LADDER, &[("u41", 0.0)]).await;
    wait_until("31 places exceed the limit", async || third.current_status().await.blocking_rule == "quality").await;
    let mut second = QueuedParty::enter(&server, LADDER, &[("u30", 0.0)]).await;
    let match_id = second.wait_for_state(TicketState::Matched).await.found_match.expect("a match").match_id;
    let statuses = [first.current_status().await, third.current_status().await];
    let same_match =
        statuses.iter().filter(|it| it.found_match.as_ref().is_some_and(|found| found.match_id == match_id));
    assert_eq!(same_match.count(), 1, "one that is 20 or 11 places away: {statuses:?}");
}
