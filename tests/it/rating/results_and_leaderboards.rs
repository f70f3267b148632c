//! Match results, ratings, leaderboards and feedback, through the client library against a whole server.

use fireteam_client::{Client, Code, Error, pb};
use pb::TicketState;

use crate::support::generated_client;
use crate::support::queue_server::{
    QueuedParty, SET_ID, advertise_host, duel_ruleset, enter_request, game_server_advertisement, operator_client,
    start_queue_server,
};
use crate::support::test_server::TestServer;

/// A duel rated by Elo, with a window that accepts every pair.
pub(crate) fn rated_duel(more: &str) -> String {
    let wide = r#"<RatingWindow Start="1000" Max="1000"/>"#;
    duel_ruleset(&format!(r#"{more}<Rating System="elo" K="32"/>"#))
        .replace(r#"<RatingWindow Start="2" Max="2"/>"#, wide)
}

/// A match of two players.
pub(crate) struct Duel {
    pub(crate) ann: QueuedParty,
    pub(crate) bob: QueuedParty,
    /// The match in ann's status.
    pub(crate) found_match: pb::MatchStatus,
}

impl Duel {
    /// Both enter and are matched at once.
    pub(crate) async fn start(server: &TestServer, [ann, bob]: [&str; 2]) -> Self {
        let mut ann = QueuedParty::enter(server, SET_ID, &[(ann, 20.0)]).await;
        let mut bob = QueuedParty::enter(server, SET_ID, &[(bob, 20.0)]).await;
        bob.wait_for_state(TicketState::Matched).await;
        let found_match = ann.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
        Self { ann, bob, found_match }
    }

    pub(crate) fn id(&self) -> &str {
        &self.found_match.match_id
    }

    /// A report that ann's team won.
    pub(crate) fn ann_won(&self) -> pb::ReportResultRequest {
        let (ann, bob) = (self.found_match.team, 1 - self.found_match.team);
        pb::ReportResultRequest {
            match_id: self.id().to_owned(),
            team_ranks: vec![rank(ann, 1), rank(bob, 2)],
            ticket_token: self.ann.ticket.reference().ticket_token,
            ..Default::default()
        }
    }

    fn keys(&self) -> [String; 2] {
        let ann = self.found_match.own_players[0].player_key.clone();
        let bob = self.found_match.players.iter().find(|it| it.player_key != ann).expect("bob").player_key.clone();
        [ann, bob]
    }
}

pub(crate) fn rank(team: u32, rank: i32) -> pb::TeamRank {
    pb::TeamRank { team, rank }
}

pub(crate) async fn rating(client: &Client, user: &str) -> f64 {
    client.get_ratings(SET_ID, &[user]).await.expect("ratings")[0].rating.expect("a rating").rating
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, Error>) -> (Code, String) {
    let error = answer.expect_err("the call is refused");
    (error.code().expect("a status code"), error.to_string())
}

/// S1-61, S2-2, R5: a report changes both ratings once and ends the match and both tickets; repeated, it has the same
/// answer; a different one is refused with the recorded ranks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_of_a_result_counts_once_and_ends_the_match() {
    let server = start_queue_server(&[&rated_duel("")]).await;
    let client = server.client().await;
    let mut duel = Duel::start(&server, ["ann", "bob"]).await;
    let first = client.report_result(duel.ann_won()).await.expect("report");
    assert!(first.rated && !first.already_reported);
    let change = &first.changes[0];
    assert_eq!(first.changes.len(), 1, "a ticket receives its own players' changes");
    assert_eq!((change.player_key.as_str(), change.after.expect("after").rating), (&*duel.keys()[0], 1516.0));
    for waiting in [&mut duel.ann, &mut duel.bob] {
        assert_eq!(waiting.current_status().await.end_reason(), pb::TicketEndReason::Played);
    }
    let again = client.report_result(duel.ann_won()).await.expect("report again");
    assert!(again.already_reported);
    assert_eq!(again.changes, first.changes);
    let different = pb::ReportResultRequest { team_ranks: vec![rank(0, 1), rank(1, 1)], ..duel.ann_won() };
    let (code, text) = refusal(client.report_result(different).await);
    let expected =
        if duel.found_match.team == 0 { "team 0 has rank 1, team 1 has rank 2" } else { "team 0 has rank 2" };
    assert!(code == Code::FailedPrecondition && text.contains(expected), "{text}");
    assert_eq!((rating(&client, "ann").await, rating(&client, "bob").await), (1516.0, 1484.0));

    let ann = client.get_ratings(SET_ID, &["ann", "unknown"]).await.expect("ratings");
    assert_eq!((ann[0].matches, ann[0].streak, ann[0].leaderboard_rank), (1, 1, Some(1)));
    assert_eq!(
        (ann[1].matches, ann[1].leaderboard_rank, ann[1].rating.expect("the initial rating").rating),
        (0, None, 1500.0)
    );
    let chances = client.predict_outcome(SET_ID, &[&["ann"], &["bob"]]).await.expect("predict");
    assert!(
        (chances[0] - 1.0 / (1.0 + 10_f64.powf(-32.0 / 400.0))).abs() < 1e-12
            && (chances[0] + chances[1] - 1.0).abs() < 1e-12
    );
    let request =
        pb::GetRatingHistoryRequest { matchmaking_set_id: Some(SET_ID), user_id: "bob".into(), ..Default::default() };
    let history = client.get_rating_history(request).await.expect("history").changes;
    assert_eq!((history.len(), history[0].match_id.as_str(), history[0].rank, history[0].sides), (1, duel.id(), 2, 2));
}

/// S1-64, S2-3: a leaderboard by rank, by page token, and around a user; ties are ordered by user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaderboard_is_read_in_pages_and_around_a_user() {
    let glicko = r#"<Rating System="glicko" Z="2" PlacementMatches="5"/>"#;
    let server = start_queue_server(&[&duel_ruleset(glicko)]).await;
    let client = server.client().await;
    let row = |n: u32| generated_client::RatingRow {
        user_id: format!("user-{n}"),
        rating: Some(1_000.0 + f64::from(n)),
        deviation: Some(50.0),
        volatility: None,
        matches: n,
    };
    let ratings: Vec<_> = (0..50).map(row).collect();
    let request = generated_client::ImportRatingsRequest { matchmaking_set_id: Some(SET_ID), ratings };
    operator_client(&server).await.import_ratings(request).await.expect("import");
    let best = client.get_ratings(SET_ID, &["user-49"]).await.expect("ratings").remove(0);
    assert_eq!(
        (best.rating_low_95, best.rating_high_95, best.conservative_rating, best.leaderboard_rank),
        (949.0, 1_149.0, 949.0, Some(1))
    );
    let provisional = client.get_ratings(SET_ID, &["user-4"]).await.expect("ratings").remove(0);
    assert!(provisional.provisional && !best.provisional);

    let page = |request: pb::GetLeaderboardRequest| {
        client.get_leaderboard(pb::GetLeaderboardRequest {
            matchmaking_set_id: Some(SET_ID),
            page_size: Some(20),
            ..request
        })
    };
    let (mut places, mut token) = (Vec::new(), Vec::new());
    loop {
        let answer = page(pb::GetLeaderboardRequest { page_token: token, ..Default::default() }).await.expect("a page");
        assert_eq!(answer.total, 50);
        places.extend(answer.entries.iter().map(|it| (it.leaderboard_rank.expect("a rank"), it.conservative_rating)));
        token = answer.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    let expected: Vec<(u32, f64)> = (0..50).map(|n| (n + 1, 949.0 - f64::from(n))).collect();
    assert_eq!(places, expected);
    let from = page(pb::GetLeaderboardRequest { from_rank: Some(41), ..Default::default() }).await.expect("a page");
    assert_eq!((from.entries.len(), from.entries[0].leaderboard_rank, from.next_page_token.len()), (10, Some(41), 0));
    let around = pb::GetLeaderboardRequest {
        around_user_id: "user-30".into(),
        page_size: Some(5),
        matchmaking_set_id: Some(SET_ID),
        ..Default::default()
    };
    let around = client.get_leaderboard(around).await.expect("neighbours").entries;
    assert_eq!(around.iter().map(|it| it.leaderboard_rank.expect("a rank")).collect::<Vec<_>>(), [18, 19, 20, 21, 22]);
    assert_eq!(around[2].user_key, client.get_ratings(SET_ID, &["user-30"]).await.expect("ratings")[0].user_key);
    let unknown = pb::GetLeaderboardRequest { around_user_id: "unknown".into(), ..Default::default() };
    assert_eq!(page(unknown).await.expect("an empty page").entries, []);
}

/// An invalid report names the wrong field and changes nothing; the match continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_with_invalid_fields_has_no_effect() {
    let server = start_queue_server(&[&rated_duel("")]).await;
    let client = server.client().await;
    let mut duel = Duel::start(&server, ["ann", "bob"]).await;
    let [ann, bob] = duel.keys();
    let player = |key: &str, rank| pb::PlayerRank { player_key: key.to_owned(), rank };
    let good = duel.ann_won();
    let teams = |team_ranks| pb::ReportResultRequest { team_ranks, ..good.clone() };
    let players = |player_ranks| pb::ReportResultRequest { team_ranks: vec![], player_ranks, ..good.clone() };
    let bad = [
        (teams(vec![]), "team_ranks"),
        (teams(vec![rank(0, 1)]), "team_ranks: has no rank for team 1"),
        (teams(vec![rank(0, 1), rank(1, 0)]), "team_ranks[1].rank: is 0"),
        (teams(vec![rank(0, -3), rank(1, 1)]), "team_ranks[0].rank: is -3"),
        (teams(vec![rank(0, 1), rank(7, 2)]), "team_ranks[1].team: is 7"),
        (teams(vec![rank(0, 1), rank(0, 2)]), "team_ranks[1].team: is a duplicate"),
        (players(vec![player(&ann, 1), player(&"0".repeat(32), 2)]), "player_ranks[1].player_key: is not a player"),
        (players(vec![player(&ann, 1), player("bob", 2)]), "player_ranks[1].player_key: is not an id"),
        (players(vec![player(&ann, 1)]), "player_ranks: has no rank for a player"),
        (players(vec![player(&ann, 1), player(&ann, 2)]), "player_ranks[1].player_key: is a duplicate"),
        (
            pb::ReportResultRequest { player_ranks: vec![player(&ann, 1)], ..good.clone() },
            "team_ranks: is set together",
        ),
        (
            pb::ReportResultRequest { disconnected_player_keys: vec!["f".repeat(32)], ..good.clone() },
            "disconnected_player_keys[0]: is not a player",
        ),
        (pb::ReportResultRequest { match_id: "x".into(), ..good.clone() }, "match_id: is not an id"),
        (pb::ReportResultRequest { ticket_token: vec![], ..good.clone() }, "advertisement_token: is missing"),
        (pb::ReportResultRequest { duration_ms: Some(u64::MAX), ..good.clone() }, "duration_ms: exceeds"),
    ];
    for (request, what) in bad {
        let (code, text) = refusal(client.report_result(request.clone()).await);
        assert!(code == Code::InvalidArgument && text.contains(what), "{request:?}: {text}");
    }
    let unknown = pb::ReportResultRequest { match_id: "0".repeat(32), ..good.clone() };
    assert_eq!(refusal(client.report_result(unknown).await).0, Code::PermissionDenied);
    let forged = pb::ReportResultRequest { ticket_token: vec![1; 80], ..good.clone() };
    assert_eq!(refusal(client.report_result(forged).await).0, Code::PermissionDenied);
    assert_eq!(duel.bob.current_status().await.state(), TicketState::Matched, "the match continues");
    assert_eq!(rating(&client, "ann").await, 1500.0);
    // Players may be ranked as well; only the order counts.
    let player_ranks = players(vec![player(&bob, 9), player(&ann, 4)]);
    assert!(client.report_result(player_ranks).await.expect("report").rated);
    assert!(client.report_result(good).await.expect("the same report").already_reported);
    assert_eq!(rating(&client, "ann").await, 1516.0);
}

/// S3-14: only the game server of a match may report its result, with the token of that advertisement, also after the
/// match has ended, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_is_accepted_from_the_hosting_server_only() {
    let server =
        start_queue_server(&[&rated_duel(r#"<Hosting Mode="game_server" AllocationTimeoutMs="30000"/>"#)]).await;
    let host_client = server.client().await;
    let advertise = |key: &str| {
        let idempotency_key = key.to_owned();
        advertise_host(
            &server,
            pb::MatchmakingUpdateAdvertisementRequest { idempotency_key, ..game_server_advertisement(key.as_bytes()) },
        )
    };
    let here = advertise("the hosting server").await;
    let duel = Duel::start(&server, ["ann", "bob"]).await;
    let there = advertise("another game server").await;
    let report_with = |token: &[u8]| pb::ReportResultRequest {
        advertisement_token: token.to_vec(),
        ticket_token: Vec::new(),
        ..duel.ann_won()
    };
    for other_report in [duel.ann_won(), report_with(&there.advertisement_token)] {
        assert_eq!(refusal(host_client.report_result(other_report).await).0, Code::PermissionDenied);
    }
    let end = pb::QueueEndMatchRequest {
        match_id: duel.id().to_owned(),
        advertisement_token: here.advertisement_token.clone(),
        ..Default::default()
    };
    host_client.end_match(end).await.expect("end");
    assert_eq!(
        refusal(host_client.report_result(report_with(&there.advertisement_token)).await).0,
        Code::PermissionDenied
    );
    let answer = host_client.report_result(report_with(&here.advertisement_token)).await.expect("report");
    assert_eq!((answer.rated, answer.changes.len()), (true, 2), "a game server receives all changes");
    assert_eq!(rating(&host_client, "bob").await, 1484.0);
}

/// A match that was not played has no result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_of_an_unplayed_match_is_refused() {
    let server = start_queue_server(&[&rated_duel(r#"<ReadyCheck TimeoutMs="20000"/>"#)]).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    let found_match = ann.wait_for_state(TicketState::Proposed).await.found_match.expect("a match");
    let report = pb::ReportResultRequest {
        match_id: found_match.match_id,
        team_ranks: vec![rank(0, 1), rank(1, 2)],
        ticket_token: ann.ticket.reference().ticket_token,
        ..Default::default()
    };
    let (code, text) = refusal(ann.client.report_result(report.clone()).await);
    assert!(code == Code::FailedPrecondition && text.contains("was not played"), "{text}");
    bob.respond_to_match(false).await;
    ann.wait_for_state(TicketState::Waiting).await;
    assert_eq!(refusal(ann.client.report_result(report).await).0, Code::FailedPrecondition);
}

/// S2-13: with `OnDisconnect="ignore"`, a match that a player left changes no rating, and the report lists the player.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_with_a_disconnect_changes_no_rating_if_ignored() {
    let ignoring_disconnects = rated_duel("").replace(r#"K="32""#, r#"K="32" OnDisconnect="ignore""#);
    let server = start_queue_server(&[&ignoring_disconnects]).await;
    let client = server.client().await;
    let duel = Duel::start(&server, ["ann", "bob"]).await;
    let [_, bob] = duel.keys();
    let with_disconnect = pb::ReportResultRequest { disconnected_player_keys: vec![bob], ..duel.ann_won() };
    let answer = client.report_result(with_disconnect.clone()).await.expect("report");
    assert_eq!((answer.rated, answer.unrated(), answer.changes.len()), (false, pb::UnratedReason::Disconnected, 0));
    assert_eq!((rating(&client, "ann").await, rating(&client, "bob").await), (1500.0, 1500.0));
    let (code, text) = refusal(client.report_result(duel.ann_won()).await);
    assert!(code == Code::FailedPrecondition && text.contains("1 player left early"), "{text}");
}

/// S1-97, S1-98: each player gives feedback once; an operator exports expectations and results of matches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn feedback_is_recorded_once_and_exported() {
    let server = start_queue_server(&[&rated_duel("")]).await;
    let client = server.client().await;
    let mut operator = operator_client(&server).await;
    let duel = Duel::start(&server, ["ann", "bob"]).await;
    server.clock.advance_ms(90_000);
    let report = generated_client::ReportResultRequest {
        match_id: duel.id().to_owned(),
        team_ranks: vec![
            generated_client::TeamRank { team: 0, rank: 1 },
            generated_client::TeamRank { team: 1, rank: 1 },
        ],
        ..Default::default()
    };
    let unknown = generated_client::ReportResultRequest { match_id: "0".repeat(32), ..report.clone() };
    let unknown = operator.report_result(generated_client::OperatorReportResultRequest { report: Some(unknown) }).await;
    assert_eq!(unknown.expect_err("an unknown match").code(), tonic::Code::NotFound);
    let report = generated_client::OperatorReportResultRequest { report: Some(report) };
    let answer = operator.report_result(report).await.expect("report").into_inner().report.expect("an answer");
    assert_eq!((answer.rated, answer.changes.len()), (true, 2));

    duel.ann.ticket.submit_feedback(duel.id(), 5).await.expect("feedback");
    duel.ann.ticket.submit_feedback(duel.id(), 5).await.expect("the same feedback again");
    let (code, text) = refusal(duel.ann.ticket.submit_feedback(duel.id(), 4).await);
    assert!(code == Code::FailedPrecondition && text.contains("5 stars"), "{text}");
    assert_eq!(refusal(duel.bob.ticket.submit_feedback(duel.id(), 6).await).0, Code::InvalidArgument);
    duel.bob.ticket.submit_feedback(duel.id(), 2).await.expect("feedback");

    let page =
        operator.export_matches(generated_client::ExportMatchesRequest::default()).await.expect("export").into_inner();
    let [finished] = &*page.matches else { panic!("{page:?}") };
    assert_eq!(finished.match_id, duel.id());
    assert_eq!((finished.duration_ms, finished.feedback_count, finished.mean_feedback), (Some(90_000), 2, Some(3.5)));
    assert_eq!((finished.rating_gap, finished.sides.len(), finished.parties.len()), (0.0, 2, 2));
    assert!(finished.sides.iter().all(|side| side.win_probability == Some(0.5) && side.rank == 1));
    let rest = generated_client::ExportMatchesRequest { page_token: page.next_page_token, page_size: None };
    assert_eq!(operator.export_matches(rest).await.expect("export").into_inner().matches, []);
    assert_eq!(rating(&client, "ann").await, 1500.0, "a draw of equal ratings");
}

/// S1-97: a losing streak widens the rating window; explain shows the factor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn satisfaction_widens_the_window_after_a_losing_streak() {
    let satisfaction = r#"<RatingWindow Start="1000" Max="1000"/><Satisfaction LosingStreak="1" Widen="2.5"/>"#;
    let server =
        start_queue_server(&[&rated_duel("").replace(r#"<RatingWindow Start="1000" Max="1000"/>"#, satisfaction)])
            .await;
    let duel = Duel::start(&server, ["ann", "bob"]).await;
    duel.ann.client.report_result(duel.ann_won()).await.expect("report");
    let mut operator = operator_client(&server).await;
    for (user, range, widened) in [("bob", 2_500, Some(2.5)), ("ann", 1_000, None)] {
        let mut waiting = QueuedParty::enter(&server, SET_ID, &[(user, 20.0)]).await;
        let ticket_id = waiting.ticket.id().to_owned();
        let request = generated_client::ExplainRequest { ticket_id, max_nearest: None, search: None };
        let explained = operator.explain(request).await.expect("explain").into_inner();
        assert_eq!((explained.range, explained.range_factor), (Some(range), widened), "{user}");
        assert!(waiting.ticket.leave().await.expect("leave"));
    }
}

/// S1-97: low feedback shifts the rating window down, also for a waiting ticket; explain shows the shift.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn satisfaction_shifts_the_window_after_low_feedback() {
    let satisfaction =
        r#"<RatingWindow Start="1000" Max="1000"/><Satisfaction FeedbackBelow="3" MinMatches="1" ShiftDown="25"/>"#;
    let server =
        start_queue_server(&[&rated_duel("").replace(r#"<RatingWindow Start="1000" Max="1000"/>"#, satisfaction)])
            .await;
    let duel = Duel::start(&server, ["ann", "bob"]).await;
    duel.ann.client.report_result(duel.ann_won()).await.expect("report");
    let mut operator = operator_client(&server).await;
    let mut waiting = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    for (score, shifted_down) in [(None, None), (Some(2), Some(25.0))] {
        if let Some(score) = score {
            duel.bob.ticket.submit_feedback(duel.id(), score).await.expect("feedback");
        }
        let ticket_id = waiting.ticket.id().to_owned();
        let request = generated_client::ExplainRequest { ticket_id, max_nearest: None, search: None };
        let explained = operator.explain(request).await.expect("explain").into_inner();
        assert_eq!(
            (explained.range, explained.rating_shift, explained.range_factor),
            (Some(1_000), shifted_down, None)
        );
    }
    assert!(waiting.ticket.leave().await.expect("leave"));
}

/// S0-21: a player who enters again right after the result waits: the server may still be ending the player's other
/// tickets.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn enter_right_after_a_result_waits() {
    let server = start_queue_server(&[&rated_duel("")]).await;
    for round in 0..60 {
        let duel = Duel::start(&server, ["ann", "bob"]).await;
        duel.ann.client.report_result(duel.ann_won()).await.expect("report");
        let mut ticket = duel.bob.client.enter_queue(enter_request(SET_ID, &[("bob", 20.0)])).await.expect("enter");
        let status = ticket.heartbeat().await.expect("heartbeat").clone();
        assert_eq!(status.state(), TicketState::Waiting, "round {round}: {status:?}");
        assert!(ticket.leave().await.expect("leave"), "round {round}");
    }
}

/// A set without ratings records results too; requests for its ratings are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ratings_of_a_set_without_ratings_are_refused() {
    let server = start_queue_server(&[&duel_ruleset("")]).await;
    let client = server.client().await;
    let duel = Duel::start(&server, ["ann", "bob"]).await;
    let answer = client.report_result(duel.ann_won()).await.expect("report");
    assert_eq!((answer.rated, answer.unrated()), (false, pb::UnratedReason::NoRatingSystem));
    let (code, text) = refusal(client.get_ratings(SET_ID, &["ann"]).await);
    assert!(code == Code::FailedPrecondition && text.contains("add <Rating>"), "{text}");
    assert_eq!(refusal(client.get_ratings(99, &["ann"]).await).0, Code::NotFound);
    assert_eq!(refusal(client.get_ratings(SET_ID, &[]).await).0, Code::InvalidArgument);
    assert_eq!(refusal(client.predict_outcome(SET_ID, &[&["ann"]]).await).0, Code::InvalidArgument);
    assert_eq!(refusal(client.predict_outcome(SET_ID, &[&["ann"], &["ann"]]).await).0, Code::InvalidArgument);
}
