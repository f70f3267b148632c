//! Categories of ratings: computed again after each match, stored with its result, and returned.

use fireteam_client::{Client, pb};

use crate::rating::results_and_leaderboards::{Duel, rated_duel};
use crate::support::generated_client::{ExportMatchesRequest, ExportUserRequest, ImportRatingsRequest, RatingRow};
use crate::support::queue_server::{SET_ID, operator_client, servers_on_each_store, wait_until};
use crate::support::ruleset_dir::{OperatorClient, RulesetDirectory};
use crate::support::test_server::TestServer;

/// Ratings start at 1500 and move by 16: from category 15 into 16, or not out of 15.
fn ruleset(width: &str) -> String {
    let categories = format!(r#"K="32"><Categories Count="20" Width="{width}" From="10"/></Rating>"#);
    let rules = rated_duel("").replace(r#"K="32"/>"#, &categories);
    assert!(rules.contains("Categories"), "{rules}");
    rules
}

async fn categories(client: &Client) -> [Option<u32>; 2] {
    let ratings = client.get_ratings(SET_ID, &["ann", "bob"]).await.expect("ratings");
    [ratings[0].category, ratings[1].category]
}

/// Categories that the records of matches have, in the order of the sides.
async fn recorded(server: &TestServer) -> Vec<Option<u32>> {
    let exported = operator_client(server).await.export_matches(ExportMatchesRequest::default()).await;
    let matches = exported.expect("matches").into_inner().matches;
    matches.iter().flat_map(|found| &found.sides).flat_map(|side| &side.players).map(|player| player.category).collect()
}

/// S4-2, S4-14: a match updates ratings and then categories. The report's answer, reads of ratings, the leaderboard and the records of
/// matches have them, on each store and after a restart. An import changes the category as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn category_is_computed_again_after_a_match() {
    for (server, _database) in servers_on_each_store("category_is_computed_again_after_a_match", &ruleset("100")).await
    {
        let client = server.client().await;
        assert_eq!(categories(&client).await, [Some(15); 2]);
        let duel = Duel::start(&server, ["ann", "bob"]).await;
        let report = client.report_result(duel.ann_won()).await.expect("report");
        assert_eq!(report.changes[0].category, Some(16));
        wait_until("the ratings move", async || categories(&client).await == [Some(16), Some(15)]).await;
        let server = server.restart().await;
        let client = server.client().await;
        assert_eq!(categories(&client).await, [Some(16), Some(15)]);
        let mut found = recorded(&server).await;
        found.sort_unstable();
        assert_eq!(found, [Some(15), Some(16)]);
        let request = pb::GetLeaderboardRequest { matchmaking_set_id: Some(SET_ID), ..Default::default() };
        let entries = client.get_leaderboard(request).await.expect("a leaderboard").entries;
        assert_eq!(entries.iter().map(|entry| entry.category).collect::<Vec<_>>(), [Some(16), Some(15)]);
        let mut operator = operator_client(&server).await;
        let request = ExportUserRequest { user_id: "ann".into(), ..Default::default() };
        let exported = operator.export_user(request).await.expect("an export").into_inner();
        assert_eq!(exported.matches[0].category, Some(16));

        let row = |user: &str, rating| RatingRow {
            user_id: user.into(),
            rating: Some(rating),
            deviation: None,
            volatility: None,
            matches: 9,
        };
        let ratings = vec![row("ann", 9_000.0), row("bob", -5.0)];
        let request = ImportRatingsRequest { matchmaking_set_id: Some(SET_ID), ratings };
        operator.import_ratings(request).await.expect("import");
        wait_until("the import is read", async || categories(&client).await == [Some(20), Some(1)]).await;
    }
}

/// Other categories apply to ratings at once. The records of matches keep those of their time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_category_outlives_a_change_of_the_ruleset() {
    let directory = RulesetDirectory::with_files(&[("duel.xml", &ruleset("100"))]);
    let server = directory.start_server().await;
    let client = server.client().await;
    let duel = Duel::start(&server, ["ann", "bob"]).await;
    client.report_result(duel.ann_won()).await.expect("report");
    let before = recorded(&server).await;
    directory.write_file("duel.xml", &ruleset("200"));
    assert_eq!(OperatorClient::connect(&server).await.reload_rulesets().await.problems, []);
    assert_eq!(categories(&client).await, [Some(8); 2]);
    assert_eq!(recorded(&server).await, before);
    directory.write_file("duel.xml", &rated_duel(""));
    assert_eq!(OperatorClient::connect(&server).await.reload_rulesets().await.problems, []);
    assert_eq!(categories(&client).await, [None; 2]);
    assert!(before.contains(&Some(16)), "{before:?}");
}
