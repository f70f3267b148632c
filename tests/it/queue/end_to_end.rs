//! Whole pipelines over the wire, each by its shipped file: from players who enter to players who know where to go,
//! from records of wins to ratings that a match has changed, from a leaderboard to a pair.

use fireteam::clock::Clock as _;
use fireteam_client::pb;
use pb::TicketState;

use crate::rating::import_export::run;
use crate::security::match_credential::{CredentialVerifier, operator_page};
use crate::support::generated_client;
use crate::support::queue_server::{QueuedParty, operator_client, wait_until};
use crate::support::test_server::{TestServer, party_session};

/// The shipped sets.
const LADDER: u32 = 12;
const LEAGUES: u32 = 13;
const CHALLENGE: u32 = 14;

/// Gives users their ratings.
async fn rate(house: &TestServer, set: u32, ratings: impl IntoIterator<Item = (String, f64)>) {
    let row = |(user_id, rating)| generated_client::RatingRow { user_id, rating: Some(rating), ..Default::default() };
    let ratings = ratings.into_iter().map(row).collect();
    let request = generated_client::ImportRatingsRequest { matchmaking_set_id: Some(set), ratings };
    operator_client(house).await.import_ratings(request).await.expect("import");
}

/// Somebody who waits in the leagues, 30 ms from eu.
async fn waits_in_a_league(house: &TestServer, name: &str) -> QueuedParty {
    let near = pb::RegionLatency { region: "eu".into(), round_trip_ms: 30.0 };
    let session = pb::SessionCompositionData { region_latencies: vec![near], ..party_session(&[(name, 0.0)]) };
    let asked = pb::QueueEnterRequest {
        session_composition: Some(session),
        matchmaking_set_id: Some(LEAGUES),
        ..Default::default()
    };
    QueuedParty::enter_with_request(house, asked).await
}

/// S3-4, S3-13, SEC-21: players enter one by one and hear of themselves alone; those of one league are kept until they
/// are a lobby; a game server is chosen from those that there are, and each of the ten is told where it is and given a
/// proof that only this server takes. Whoever left meanwhile is not in it, and whoever is of another league waits on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_of_a_league_come_to_their_server() {
    let house = TestServer::start().await;
    let diamonds = [3_010.0, 3_480.0, 3_120.0, 3_300.0, 3_250.0, 3_060.0, 3_410.0, 3_190.0, 3_350.0, 3_230.0];
    let name = |number: usize| format!("diamond {number}");
    rate(&house, LEAGUES, (0..11).map(|number| (name(number), diamonds[number % 10]))).await;
    let mut all = Vec::new();
    for number in 0..9 {
        all.push(waits_in_a_league(&house, &name(number)).await);
    }
    let mut newcomer = waits_in_a_league(&house, "bronze").await;
    let mut leaver = waits_in_a_league(&house, &name(10)).await;
    assert!(leaver.ticket.leave().await.expect("leave"));
    wait_until("nine and a newcomer are no lobby", async || !newcomer.current_status().await.blocking_rule.is_empty())
        .await;
    all.push(waits_in_a_league(&house, &name(9)).await);
    all[0].wait_for_state(TicketState::Placing).await;
    let room = pb::SessionCompositionData {
        party_size_composition: vec![1],
        max_allowed_join_reservation_count: Some(10),
        ..Default::default()
    };
    let game_server = pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(LEAGUES),
        kind: pb::AdvertisementKind::GameServer.into(),
        session_composition: Some(room),
        connect_data: b"game.example:9000".to_vec(),
        ..Default::default()
    };
    let advertised = house.client().await.update_advertisement(game_server).await.expect("advertise");

    let (_, keys) = operator_page(&house, "/.well-known/jwks.json").await;
    let mut here = CredentialVerifier::new(&keys, &advertised.advertisement_id);
    let mut elsewhere = CredentialVerifier::new(&keys, "f".repeat(32));
    let mut teams = [0, 0];
    for waiting in &mut all {
        let play = waiting.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
        let Some(pb::assignment::Host::GameServer(at)) = play.assignment.and_then(|it| it.host) else {
            panic!("no server")
        };
        assert_eq!((&*at.connect_data, &*play.region, play.player_count), (&b"game.example:9000"[..], "eu", 10));
        let seat = &play.own_players[0];
        assert!(elsewhere.verify(&seat.credential, house.clock.now()).is_err(), "another server does not take it");
        let shown = here.verify(&seat.credential, house.clock.now()).expect("this one does");
        assert_eq!(
            (shown.match_id, shown.sub, u32::from(shown.team)),
            (play.match_id, seat.player_key.clone(), play.team)
        );
        assert!(here.verify(&seat.credential, house.clock.now()).is_err(), "once");
        teams[play.team as usize] += 1;
    }
    assert_eq!(teams, [5, 5]);
    assert_eq!(newcomer.current_status().await.state(), TicketState::Waiting);
}

/// Wins and losses of ten who are about as good, and one of each that cannot be.
const RECORDS: &str = "user_id,wins,losses\np0,50,50\np1,51,49\np2,-3,1\np3,52,48\np4,53,47\n\
                       p5,54,46\np6,55,45\np7,49,51\np8,48,52\np9,none,1\n";

/// S4-2, S4-14, S3-10: records become ratings, ten who are alike a match, the match two teams as even as can be, and
/// its result new ratings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_become_a_match_and_the_match_new_ratings() {
    let house = TestServer::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("records.csv"), RECORDS).expect("records");
    let arguments = ["import-ratings", "records.csv", "--set", &CHALLENGE.to_string(), "--percentile"];
    let (_, said, _) = run(&house, folder.path(), &arguments).await;
    assert_eq!(said, "10 imported, 2 of them as one win and one loss, 0 rows not imported\n");
    let names: Vec<String> = (0..10).map(|number| format!("p{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let client = house.client().await;
    let ratings = async || -> Vec<f64> {
        let all = client.get_ratings(CHALLENGE, &names).await.expect("ratings");
        all.iter().map(|it| it.rating.expect("a rating").rating).collect()
    };
    let before = ratings().await;
    assert_eq!(
        (before[0], before[2], before[9]),
        (1_036.0, 1_036.0, 1_036.0),
        "what cannot be is one win and one loss"
    );

    let mut all = Vec::new();
    for name in &names {
        all.push(QueuedParty::enter(&house, CHALLENGE, &[(*name, 0.0)]).await);
    }
    let (mut teams, mut id) = ([0.0, 0.0], String::new());
    let mut won = Vec::new();
    for (waiting, rating) in all.iter_mut().zip(&before) {
        let play = waiting.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
        teams[play.team as usize] += rating;
        won.push(play.team == 0);
        id = play.match_id;
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
    assert!(
        (before.iter().sum::<f64>() - after.iter().sum::<f64>()).abs() < 1e-9,
        "what one team wins the other loses"
    );
}

/// S2-9: places are counted among everybody who is rated, connected or not: twenty apart may meet, thirty may not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_are_counted_among_everybody() {
    let house = TestServer::start().await;
    rate(&house, LADDER, (0..60).map(|place| (format!("u{place}"), 60.0 - f64::from(place)))).await;
    let mut first = QueuedParty::enter(&house, LADDER, &[("u10", 0.0)]).await;
    let mut third = QueuedParty::enter(&house, LADDER, &[("u41", 0.0)]).await;
    wait_until("31 places are too many", async || third.current_status().await.blocking_rule == "quality").await;
    let mut second = QueuedParty::enter(&house, LADDER, &[("u30", 0.0)]).await;
    let met = second.wait_for_state(TicketState::Matched).await.found_match.expect("a match").match_id;
    let by_whom = [first.current_status().await, third.current_status().await];
    let met_by = by_whom.iter().filter(|it| it.found_match.as_ref().is_some_and(|play| play.match_id == met));
    assert_eq!(met_by.count(), 1, "who is 20 or 11 places away: {by_whom:?}");
}
