//! Results are reported, ratings follow them, leaderboards are looked at: through the client, against a whole server.

use fireteam_client::{Client, Code, Error, pb};
use pb::TicketState;

use crate::support::generated_client;
use crate::support::queue_server::{
    QueuedParty, SET_ID, duel_ruleset, enter_request, game_server_advertisement, operator_client, start_queue_server,
};
use crate::support::test_server::TestServer;

/// A duel that is rated by Elo, in which anybody meets anybody.
fn rated(more: &str) -> String {
    let wide = r#"<RatingWindow Start="1000" Max="1000"/>"#;
    duel_ruleset(&format!(r#"{more}<Rating System="elo" K="32"/>"#))
        .replace(r#"<RatingWindow Start="2" Max="2"/>"#, wide)
}

/// Two who play each other, by their accounts.
struct Duel {
    ann: QueuedParty,
    bob: QueuedParty,
    /// As ann's ticket sees it.
    play: pb::MatchStatus,
}

impl Duel {
    /// They enter and are matched at once.
    async fn begun(house: &TestServer, [ann, bob]: [&str; 2]) -> Self {
        let mut ann = QueuedParty::enter(house, SET_ID, &[(ann, 20.0)]).await;
        let mut bob = QueuedParty::enter(house, SET_ID, &[(bob, 20.0)]).await;
        bob.wait_for_state(TicketState::Matched).await;
        let play = ann.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
        Self { ann, bob, play }
    }

    fn id(&self) -> &str {
        &self.play.match_id
    }

    /// Ann's team came in first.
    fn ann_won(&self) -> pb::ReportResultRequest {
        let (ann, bob) = (self.play.team, 1 - self.play.team);
        pb::ReportResultRequest {
            match_id: self.id().to_owned(),
            team_ranks: vec![rank(ann, 1), rank(bob, 2)],
            ticket_token: self.ann.ticket.reference().ticket_token,
            ..Default::default()
        }
    }

    fn keys(&self) -> [String; 2] {
        let ann = self.play.own_players[0].player_key.clone();
        let bob = self.play.players.iter().find(|it| it.player_key != ann).expect("bob").player_key.clone();
        [ann, bob]
    }
}

fn rank(team: u32, rank: i32) -> pb::TeamRank {
    pb::TeamRank { team, rank }
}

async fn rating(client: &Client, user: &str) -> f64 {
    client.get_ratings(SET_ID, &[user]).await.expect("ratings")[0].rating.expect("a rating").rating
}

fn refused<T: std::fmt::Debug>(answer: Result<T, Error>) -> (Code, String) {
    let error = answer.expect_err("it is refused");
    (error.code().expect("by the server"), error.to_string())
}

/// S1-61, S2-2, R5: a report moves both ratings once, ends the match and both tickets; again it is answered the same,
/// and another is refused and told what the first one said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_counts_once_and_ends_the_match() {
    let house = start_queue_server(&[&rated("")]).await;
    let client = house.client().await;
    let mut duel = Duel::begun(&house, ["ann", "bob"]).await;
    let first = client.report_result(duel.ann_won()).await.expect("report");
    assert!(first.rated && !first.already_reported);
    let change = &first.changes[0];
    assert_eq!(first.changes.len(), 1, "a ticket hears of its own players");
    assert_eq!((change.player_key.as_str(), change.after.expect("after").rating), (&*duel.keys()[0], 1516.0));
    for waiting in [&mut duel.ann, &mut duel.bob] {
        assert_eq!(waiting.current_status().await.end_reason(), pb::TicketEndReason::Played);
    }
    let again = client.report_result(duel.ann_won()).await.expect("report again");
    assert!(again.already_reported);
    assert_eq!(again.changes, first.changes);
    let otherwise = pb::ReportResultRequest { team_ranks: vec![rank(0, 1), rank(1, 1)], ..duel.ann_won() };
    let (code, text) = refused(client.report_result(otherwise).await);
    let words = if duel.play.team == 0 { "team 0 has rank 1, team 1 has rank 2" } else { "team 0 has rank 2" };
    assert!(code == Code::FailedPrecondition && text.contains(words), "{text}");
    assert_eq!((rating(&client, "ann").await, rating(&client, "bob").await), (1516.0, 1484.0));

    let ann = client.get_ratings(SET_ID, &["ann", "nobody"]).await.expect("ratings");
    assert_eq!((ann[0].matches, ann[0].streak, ann[0].leaderboard_rank), (1, 1, Some(1)));
    assert_eq!(
        (ann[1].matches, ann[1].leaderboard_rank, ann[1].rating.expect("a newcomer's").rating),
        (0, None, 1500.0)
    );
    let chances = client.predict_outcome(SET_ID, &[&["ann"], &["bob"]]).await.expect("predict");
    assert!(
        (chances[0] - 1.0 / (1.0 + 10_f64.powf(-32.0 / 400.0))).abs() < 1e-12
            && (chances[0] + chances[1] - 1.0).abs() < 1e-12
    );
    let asked =
        pb::GetRatingHistoryRequest { matchmaking_set_id: Some(SET_ID), user_id: "bob".into(), ..Default::default() };
    let history = client.get_rating_history(asked).await.expect("history").changes;
    assert_eq!((history.len(), history[0].match_id.as_str(), history[0].rank, history[0].sides), (1, duel.id(), 2, 2));
}

/// S1-64, S2-3: pages by place and by token, a user and its neighbours, ties by user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaderboard_is_read_in_pages_and_around_a_user() {
    let glicko = r#"<Rating System="glicko" Z="2" PlacementMatches="5"/>"#;
    let house = start_queue_server(&[&duel_ruleset(glicko)]).await;
    let client = house.client().await;
    let row = |n: u32| generated_client::RatingRow {
        user_id: format!("user-{n}"),
        rating: Some(1_000.0 + f64::from(n)),
        deviation: Some(50.0),
        volatility: None,
        matches: n,
    };
    let ratings: Vec<_> = (0..50).map(row).collect();
    let request = generated_client::ImportRatingsRequest { matchmaking_set_id: Some(SET_ID), ratings };
    operator_client(&house).await.import_ratings(request).await.expect("import");
    let best = client.get_ratings(SET_ID, &["user-49"]).await.expect("ratings").remove(0);
    assert_eq!(
        (best.rating_low_95, best.rating_high_95, best.conservative_rating, best.leaderboard_rank),
        (949.0, 1_149.0, 949.0, Some(1))
    );
    let new = client.get_ratings(SET_ID, &["user-4"]).await.expect("ratings").remove(0);
    assert!(new.provisional && !best.provisional);

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
        places.extend(answer.entries.iter().map(|it| (it.leaderboard_rank.expect("a place"), it.conservative_rating)));
        token = answer.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    let wanted: Vec<(u32, f64)> = (0..50).map(|n| (n + 1, 949.0 - f64::from(n))).collect();
    assert_eq!(places, wanted);
    let from = page(pb::GetLeaderboardRequest { from_rank: Some(41), ..Default::default() }).await.expect("a page");
    assert_eq!((from.entries.len(), from.entries[0].leaderboard_rank, from.next_page_token.len()), (10, Some(41), 0));
    let around = pb::GetLeaderboardRequest {
        around_user_id: "user-30".into(),
        page_size: Some(5),
        matchmaking_set_id: Some(SET_ID),
        ..Default::default()
    };
    let around = client.get_leaderboard(around).await.expect("neighbours").entries;
    assert_eq!(around.iter().map(|it| it.leaderboard_rank.expect("a place")).collect::<Vec<_>>(), [18, 19, 20, 21, 22]);
    assert_eq!(around[2].user_key, client.get_ratings(SET_ID, &["user-30"]).await.expect("ratings")[0].user_key);
    let nobody = pb::GetLeaderboardRequest { around_user_id: "nobody".into(), ..Default::default() };
    assert_eq!(page(nobody).await.expect("nothing").entries, []);
}

/// Whatever is wrong with a report is named by its field, and changes nothing: the match is played on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_report_has_no_effect() {
    let house = start_queue_server(&[&rated("")]).await;
    let client = house.client().await;
    let mut duel = Duel::begun(&house, ["ann", "bob"]).await;
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
        let (code, text) = refused(client.report_result(request.clone()).await);
        assert!(code == Code::InvalidArgument && text.contains(what), "{request:?}: {text}");
    }
    let never_made = pb::ReportResultRequest { match_id: "0".repeat(32), ..good.clone() };
    assert_eq!(refused(client.report_result(never_made).await).0, Code::PermissionDenied);
    let forged = pb::ReportResultRequest { ticket_token: vec![1; 80], ..good.clone() };
    assert_eq!(refused(client.report_result(forged).await).0, Code::PermissionDenied);
    assert_eq!(duel.bob.current_status().await.state(), TicketState::Matched, "it is played on");
    assert_eq!(rating(&client, "ann").await, 1500.0);
    // Players may be ranked as well; only the order counts.
    let by_players = players(vec![player(&bob, 9), player(&ann, 4)]);
    assert!(client.report_result(by_players).await.expect("report").rated);
    assert!(client.report_result(good).await.expect("the same").already_reported);
    assert_eq!(rating(&client, "ann").await, 1516.0);
}

/// S3-14: only the server on which a match was placed may say what came of it, by that very advertisement; and it may after the
/// match is over, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_server_that_hosts_may_report() {
    let house = start_queue_server(&[&rated(r#"<Hosting Mode="game_server" AllocationTimeoutMs="30000"/>"#)]).await;
    let server = house.client().await;
    let advertise = |key: &str| {
        server.update_advertisement(pb::MatchmakingUpdateAdvertisementRequest {
            idempotency_key: key.to_owned(),
            ..game_server_advertisement(key.as_bytes())
        })
    };
    let here = advertise("the server that hosts").await.expect("advertise");
    let duel = Duel::begun(&house, ["ann", "bob"]).await;
    let there = advertise("another server of ours").await.expect("advertise");
    let by = |token: &[u8]| pb::ReportResultRequest {
        advertisement_token: token.to_vec(),
        ticket_token: Vec::new(),
        ..duel.ann_won()
    };
    for stranger in [duel.ann_won(), by(&there.advertisement_token)] {
        assert_eq!(refused(server.report_result(stranger).await).0, Code::PermissionDenied);
    }
    let end = pb::QueueEndMatchRequest {
        match_id: duel.id().to_owned(),
        advertisement_token: here.advertisement_token.clone(),
        ..Default::default()
    };
    server.end_match(end).await.expect("end");
    assert_eq!(refused(server.report_result(by(&there.advertisement_token)).await).0, Code::PermissionDenied);
    let answer = server.report_result(by(&here.advertisement_token)).await.expect("report");
    assert_eq!((answer.rated, answer.changes.len()), (true, 2), "a server hears of everybody");
    assert_eq!(rating(&server, "bob").await, 1484.0);
}

/// A match that was not played has no result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_played_has_no_result() {
    let house = start_queue_server(&[&rated(r#"<ReadyCheck TimeoutMs="20000"/>"#)]).await;
    let mut ann = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&house, SET_ID, &[("bob", 20.0)]).await;
    let play = ann.wait_for_state(TicketState::Proposed).await.found_match.expect("a match");
    let said = pb::ReportResultRequest {
        match_id: play.match_id,
        team_ranks: vec![rank(0, 1), rank(1, 2)],
        ticket_token: ann.ticket.reference().ticket_token,
        ..Default::default()
    };
    let (code, text) = refused(ann.client.report_result(said.clone()).await);
    assert!(code == Code::FailedPrecondition && text.contains("was not played"), "{text}");
    bob.respond_to_match(false).await;
    ann.wait_for_state(TicketState::Waiting).await;
    assert_eq!(refused(ann.client.report_result(said).await).0, Code::FailedPrecondition);
}

/// S2-13: where the ruleset says so, a match that somebody left changes no rating, and who left is remembered for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_match_that_somebody_left_changes_nothing() {
    let strict = rated("").replace(r#"K="32""#, r#"K="32" OnDisconnect="ignore""#);
    let house = start_queue_server(&[&strict]).await;
    let client = house.client().await;
    let duel = Duel::begun(&house, ["ann", "bob"]).await;
    let [_, bob] = duel.keys();
    let left = pb::ReportResultRequest { disconnected_player_keys: vec![bob], ..duel.ann_won() };
    let answer = client.report_result(left.clone()).await.expect("report");
    assert_eq!((answer.rated, answer.unrated(), answer.changes.len()), (false, pb::UnratedReason::Disconnected, 0));
    assert_eq!((rating(&client, "ann").await, rating(&client, "bob").await), (1500.0, 1500.0));
    let (code, text) = refused(client.report_result(duel.ann_won()).await);
    assert!(code == Code::FailedPrecondition && text.contains("1 player left early"), "{text}");
}

/// S1-97, S1-98: players score a match once each; an operator exports what was wanted of it beside what came of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn matches_are_scored_and_exported() {
    let house = start_queue_server(&[&rated("")]).await;
    let client = house.client().await;
    let mut operator = operator_client(&house).await;
    let duel = Duel::begun(&house, ["ann", "bob"]).await;
    house.clock.advance_ms(90_000);
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
    assert_eq!(unknown.expect_err("nobody knows it").code(), tonic::Code::NotFound);
    let said = generated_client::OperatorReportResultRequest { report: Some(report) };
    let answer = operator.report_result(said).await.expect("report").into_inner().report.expect("an answer");
    assert_eq!((answer.rated, answer.changes.len()), (true, 2));

    duel.ann.ticket.submit_feedback(duel.id(), 5).await.expect("score");
    duel.ann.ticket.submit_feedback(duel.id(), 5).await.expect("the same again");
    let (code, text) = refused(duel.ann.ticket.submit_feedback(duel.id(), 4).await);
    assert!(code == Code::FailedPrecondition && text.contains("5 stars"), "{text}");
    assert_eq!(refused(duel.bob.ticket.submit_feedback(duel.id(), 6).await).0, Code::InvalidArgument);
    duel.bob.ticket.submit_feedback(duel.id(), 2).await.expect("score");

    let page =
        operator.export_matches(generated_client::ExportMatchesRequest::default()).await.expect("export").into_inner();
    let [finished] = &*page.matches else { panic!("{page:?}") };
    assert_eq!(finished.match_id, duel.id());
    assert_eq!((finished.duration_ms, finished.feedback_count, finished.mean_feedback), (Some(90_000), 2, Some(3.5)));
    assert_eq!((finished.rating_gap, finished.sides.len(), finished.parties.len()), (0.0, 2, 2));
    assert!(finished.sides.iter().all(|side| side.win_probability == Some(0.5) && side.rank == 1));
    let rest = generated_client::ExportMatchesRequest { page_token: page.next_page_token, page_size: None };
    assert_eq!(operator.export_matches(rest).await.expect("export").into_inner().matches, []);
    assert_eq!(rating(&client, "ann").await, 1500.0, "a draw of equals");
}

/// S1-97: who has lost as often as the ruleset says looks further, and whoever asks why it still waits is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_lost_often_looks_further() {
    let kind = r#"<RatingWindow Start="1000" Max="1000"/><Satisfaction LosingStreak="1" Widen="2.5"/>"#;
    let house = start_queue_server(&[&rated("").replace(r#"<RatingWindow Start="1000" Max="1000"/>"#, kind)]).await;
    let duel = Duel::begun(&house, ["ann", "bob"]).await;
    duel.ann.client.report_result(duel.ann_won()).await.expect("report");
    let mut operator = operator_client(&house).await;
    for (user, range, widened) in [("bob", 2_500, Some(2.5)), ("ann", 1_000, None)] {
        let mut waiting = QueuedParty::enter(&house, SET_ID, &[(user, 20.0)]).await;
        let ticket_id = waiting.ticket.id().to_owned();
        let asked = generated_client::ExplainRequest { ticket_id, max_nearest: None, search: None };
        let told = operator.explain(asked).await.expect("explain").into_inner();
        assert_eq!((told.range, told.range_factor), (Some(range), widened), "{user}");
        assert!(waiting.ticket.leave().await.expect("leave"));
    }
}

/// S1-97: who scores matches low looks further down, from the moment of the score on, even while waiting; and is told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_scores_matches_low_looks_further_down() {
    let kind =
        r#"<RatingWindow Start="1000" Max="1000"/><Satisfaction FeedbackBelow="3" MinMatches="1" ShiftDown="25"/>"#;
    let house = start_queue_server(&[&rated("").replace(r#"<RatingWindow Start="1000" Max="1000"/>"#, kind)]).await;
    let duel = Duel::begun(&house, ["ann", "bob"]).await;
    duel.ann.client.report_result(duel.ann_won()).await.expect("report");
    let mut operator = operator_client(&house).await;
    let mut waiting = QueuedParty::enter(&house, SET_ID, &[("bob", 20.0)]).await;
    for (score, shifted_down) in [(None, None), (Some(2), Some(25.0))] {
        if let Some(score) = score {
            duel.bob.ticket.submit_feedback(duel.id(), score).await.expect("score");
        }
        let ticket_id = waiting.ticket.id().to_owned();
        let asked = generated_client::ExplainRequest { ticket_id, max_nearest: None, search: None };
        let told = operator.explain(asked).await.expect("explain").into_inner();
        assert_eq!((told.range, told.rating_shift, told.range_factor), (Some(1_000), shifted_down, None));
    }
    assert!(waiting.ticket.leave().await.expect("leave"));
}

/// S0-21: whoever comes back as soon as a match is over waits, however soon that is: the match began at once, and its server
/// may still be about to end what its players had waiting elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_comes_back_at_once_waits() {
    let house = start_queue_server(&[&rated("")]).await;
    for round in 0..60 {
        let duel = Duel::begun(&house, ["ann", "bob"]).await;
        duel.ann.client.report_result(duel.ann_won()).await.expect("report");
        let mut back = duel.bob.client.enter(enter_request(SET_ID, &[("bob", 20.0)])).await.expect("enter");
        let stands = back.heartbeat().await.expect("heartbeat").clone();
        assert_eq!(stands.state(), TicketState::Waiting, "round {round}: {stands:?}");
        assert!(back.leave().await.expect("leave"), "round {round}");
    }
}

/// A set without ratings takes results as well, for whoever learns from them; what is asked of its ratings is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_without_ratings_says_so() {
    let house = start_queue_server(&[&duel_ruleset("")]).await;
    let client = house.client().await;
    let duel = Duel::begun(&house, ["ann", "bob"]).await;
    let answer = client.report_result(duel.ann_won()).await.expect("report");
    assert_eq!((answer.rated, answer.unrated()), (false, pb::UnratedReason::NoRatingSystem));
    let (code, text) = refused(client.get_ratings(SET_ID, &["ann"]).await);
    assert!(code == Code::FailedPrecondition && text.contains("add <Rating>"), "{text}");
    assert_eq!(refused(client.get_ratings(99, &["ann"]).await).0, Code::NotFound);
    assert_eq!(refused(client.get_ratings(SET_ID, &[]).await).0, Code::InvalidArgument);
    assert_eq!(refused(client.predict_outcome(SET_ID, &[&["ann"]]).await).0, Code::InvalidArgument);
    assert_eq!(refused(client.predict_outcome(SET_ID, &[&["ann"], &["ann"]]).await).0, Code::InvalidArgument);
}
