//! Rating scales and pools over the wire: another scale starts with initial ratings, the old ones come back with the old
//! scale, and sets with one pool share their ratings.

use fireteam_client::{Client, pb};
use pb::TicketState;

use crate::rating::results_and_leaderboards::{Duel, rated_duel, rating};
use crate::support::generated_client::{CheckRulesetRequest, RulesetState};
use crate::support::queue_server::{QueuedParty, SET_ID};
use crate::support::ruleset_dir::{OperatorClient, RulesetDirectory};

const TRUESKILL: &str = r#"<Rating System="trueskill"/>"#;

/// A duel with this `<Rating>` element instead of Elo.
pub(crate) fn duel_with(rating: &str) -> String {
    let elo = rated_duel("");
    let start = elo.find("<Rating ").expect("a rating");
    let end = start + elo[start..].find("/>").expect("an end") + 2;
    format!("{}{rating}{}", &elo[..start], &elo[end..])
}

/// The same duel as set `set`.
pub(crate) fn as_set(xml: &str, set: u32) -> String {
    xml.replace(&format!(r#"SetId="{SET_ID}""#), &format!(r#"SetId="{set}""#))
}

async fn leaderboard_total(client: &Client) -> u64 {
    let request = pb::GetLeaderboardRequest { matchmaking_set_id: Some(SET_ID), ..Default::default() };
    client.get_leaderboard(request).await.expect("a leaderboard").total
}

async fn history_length(client: &Client) -> usize {
    let request =
        pb::GetRatingHistoryRequest { matchmaking_set_id: Some(SET_ID), user_id: "ann".into(), ..Default::default() };
    client.get_rating_history(request).await.expect("history").changes.len()
}

/// An Elo rating is not read as a TrueSkill mu.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scale_change_starts_with_initial_ratings_and_returns_the_old_ones() {
    let directory = RulesetDirectory::with_files(&[("duel.xml", &rated_duel(""))]);
    let server = directory.start_server().await;
    let (client, mut operator) = (server.client().await, OperatorClient::connect(&server).await);
    let duel = Duel::start(&server, ["ann", "bob"]).await;
    client.report_result(duel.ann_won()).await.expect("report");
    assert_eq!((rating(&client, "ann").await, leaderboard_total(&client).await), (1516.0, 2));

    directory.write_file("duel.xml", &duel_with(TRUESKILL));
    assert_eq!(operator.reload_rulesets().await.problems, []);
    assert_eq!(rating(&client, "ann").await, 25.0, "a newcomer on the new scale");
    assert_eq!((leaderboard_total(&client).await, history_length(&client).await), (0, 0));
    assert_eq!(client.predict_outcome(SET_ID, &[&["ann"], &["bob"]]).await.expect("predict"), [0.5, 0.5]);
    let duel = Duel::start(&server, ["ann", "bob"]).await;
    let change = client.report_result(duel.ann_won()).await.expect("report").changes.remove(0);
    assert_eq!(change.before.expect("before").rating, 25.0);
    let on_trueskill = change.after.expect("after").rating;
    assert!((25.0..40.0).contains(&on_trueskill), "{on_trueskill}");
    assert_eq!((leaderboard_total(&client).await, history_length(&client).await), (2, 1));

    directory.write_file("duel.xml", &duel_with(r#"<Rating System="elo" K="64"/>"#));
    assert_eq!(operator.reload_rulesets().await.problems, []);
    assert_eq!(rating(&client, "ann").await, 1516.0, "another K keeps the scale");
    assert_eq!((leaderboard_total(&client).await, history_length(&client).await), (2, 1));
    directory.write_file("duel.xml", &duel_with(r#"<Rating System="trueskill" Tau="1" Z="2"/>"#));
    operator.reload_rulesets().await;
    assert_eq!(rating(&client, "ann").await, on_trueskill, "another Tau keeps the scale");
}

/// An operator sees the number of ratings that a change concerns, before the reload and at the reload.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scale_change_reports_how_many_ratings_begin_again_or_come_back() {
    let directory = RulesetDirectory::with_files(&[("duel.xml", &rated_duel(""))]);
    let server = directory.start_server().await;
    let (client, mut operator) = (server.client().await, OperatorClient::connect(&server).await);
    let duel = Duel::start(&server, ["ann", "bob"]).await;
    client.report_result(duel.ann_won()).await.expect("report");
    let check = async |operator: &mut OperatorClient, xml: &str| {
        let request = CheckRulesetRequest { ruleset_xml: xml.to_owned(), ..Default::default() };
        operator.0.check_ruleset(request).await.expect("check").into_inner().rating_change
    };
    assert_eq!(check(&mut operator, &duel_with(r#"<Rating System="elo" K="9"/>"#)).await, "");
    let text = "the rating scale changes: 2 ratings begin again";
    assert_eq!(check(&mut operator, &duel_with(TRUESKILL)).await, text);
    let pooled = duel_with(r#"<Rating System="elo" Pool="duels"/>"#);
    assert_eq!(check(&mut operator, &pooled).await, "the rating pool changes: 2 ratings begin again");
    directory.write_file("duel.xml", &duel_with(TRUESKILL));
    assert_eq!(operator.reload_rulesets().await.changes[0].rating_change, text);

    let listed = operator.list_rulesets().await;
    let ratings: Vec<_> = listed
        .iter()
        .map(|ruleset| (ruleset.state(), ruleset.ratings.clone().expect("ratings")))
        .map(|(state, ratings)| (state, ratings.scale, ratings.pool, ratings.rating_count))
        .collect();
    let trueskill = r#"trueskill Mu="25" Sigma="8.333333333333334" Beta="6.25""#.to_owned();
    let elo = r#"elo Initial="1500" Scale="400""#.to_owned();
    let expected =
        [(RulesetState::Current, trueskill, String::new(), 0), (RulesetState::Retired, elo, String::new(), 2)];
    assert_eq!(ratings, expected);
    directory.write_file("duel.xml", &rated_duel(""));
    let text = "the rating scale changes: 2 ratings come back, 0 ratings are set aside";
    assert_eq!(operator.reload_rulesets().await.changes[0].rating_change, text);
}

/// A match is rated on the scale of the ruleset that made it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scale_change_during_a_match_rates_it_on_its_own_scale() {
    let directory = RulesetDirectory::with_files(&[("duel.xml", &rated_duel(""))]);
    let server = directory.start_server().await;
    let (client, mut operator) = (server.client().await, OperatorClient::connect(&server).await);
    let duel = Duel::start(&server, ["ann", "bob"]).await;
    directory.write_file("duel.xml", &duel_with(TRUESKILL));
    operator.reload_rulesets().await;
    let change = client.report_result(duel.ann_won()).await.expect("report").changes.remove(0);
    assert_eq!(change.after.expect("after").rating, 1516.0);
    assert_eq!((rating(&client, "ann").await, leaderboard_total(&client).await), (25.0, 0));
    directory.write_file("duel.xml", &rated_duel(""));
    operator.reload_rulesets().await;
    assert_eq!((rating(&client, "ann").await, leaderboard_total(&client).await), (1516.0, 2));
}

/// A ticket that waits during a scale change is matched by its players' ratings on the new scale.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scale_change_rates_waiting_tickets_on_the_new_scale() {
    let directory = RulesetDirectory::with_files(&[("duel.xml", &rated_duel(""))]);
    let server = directory.start_server().await;
    let mut operator = OperatorClient::connect(&server).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    directory.write_file("duel.xml", &duel_with(TRUESKILL));
    operator.reload_rulesets().await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    // 1500 and 25 are further apart than the rating window of 1000.
    bob.wait_for_state(TicketState::Matched).await;
    ann.wait_for_state(TicketState::Matched).await;
}

/// Sets with the same pool share ratings, leaderboard and history; another set does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pool_shares_ratings_between_sets() {
    let pooled = duel_with(r#"<Rating System="elo" K="32" Pool="duels"/>"#);
    let slower = as_set(&duel_with(r#"<Rating System="elo" K="16" Pool="duels" PlacementMatches="5"/>"#), 12);
    let alone = as_set(&rated_duel(""), 13);
    let files = [("duel.xml", &*pooled), ("slower.xml", &slower), ("alone.xml", &alone)];
    let directory = RulesetDirectory::with_files(&files);
    let server = directory.start_server().await;
    let client = server.client().await;
    let duel = Duel::start(&server, ["ann", "bob"]).await;
    client.report_result(duel.ann_won()).await.expect("report");
    let of_set = async |set: u32| {
        let view = client.get_ratings(set, &["ann"]).await.expect("ratings").remove(0);
        (view.rating.expect("a rating").rating, view.matches, view.leaderboard_rank, view.provisional)
    };
    assert_eq!(of_set(SET_ID).await, (1516.0, 1, Some(1), false));
    assert_eq!(of_set(12).await, (1516.0, 1, Some(1), true), "placement is a setting of each set");
    assert_eq!(of_set(13).await, (1500.0, 0, None, false));
    let request =
        pb::GetRatingHistoryRequest { matchmaking_set_id: Some(12), user_id: "ann".into(), ..Default::default() };
    assert_eq!(
        client.get_rating_history(request).await.expect("history").changes[0].match_id,
        duel.found_match.match_id
    );
}

/// One pool with two scales is refused, and the problem names both files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pool_with_two_scales_is_refused_with_both_files() {
    let pooled = duel_with(r#"<Rating System="elo" Pool="duels"/>"#);
    let directory = RulesetDirectory::with_files(&[("duel.xml", &pooled)]);
    let server = directory.start_server().await;
    let mut operator = OperatorClient::connect(&server).await;
    directory.write_file("other.xml", &as_set(&duel_with(r#"<Rating System="elo" Scale="200" Pool="duels"/>"#), 12));
    let problems = operator.reload_rulesets().await.problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    let problem = &problems[0];
    assert!(problem.file_name.ends_with("other.xml"), "{problem:?}");
    assert!(problem.message.contains("duel.xml") && problem.message.contains(r#"Scale="200""#), "{problem:?}");
    let mut out = Vec::new();
    assert!(!fireteam::cli::check::check_rulesets(&[directory.path().to_owned()], &mut out));
    let printed = String::from_utf8(out).expect("text");
    assert!(printed.contains("other.xml") && printed.contains("duel.xml"), "{printed}");
    directory.write_file("other.xml", &as_set(&duel_with(r#"<Rating System="elo" K="9" Pool="duels"/>"#), 12));
    assert_eq!(operator.reload_rulesets().await.problems, []);
}
