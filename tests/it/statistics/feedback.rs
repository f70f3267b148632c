//! Feedback by ruleset: a designer compares the rules before and after a change.

use crate::rating::results_and_leaderboards::{Duel, rated_duel};
use crate::support::generated_client::{GetStatisticsRequest, RulesetFeedback, StatisticsPeriod};
use crate::support::queue_server::SET_ID;
use crate::support::ruleset_dir::{OperatorClient, RulesetDirectory};

/// S1-97: stars and results count by the ruleset that made the match, once, also after a reload and for a late answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn feedback_counts_by_the_ruleset_of_the_match() {
    let directory = RulesetDirectory::with_files(&[("duel.xml", &rated_duel(""))]);
    let server = directory.start_server().await;
    let client = server.client().await;
    let mut operator = OperatorClient::connect(&server).await;
    let first = Duel::start(&server, ["ann", "bob"]).await;
    client.report_result(first.ann_won()).await.expect("report");
    first.ann.ticket.submit_feedback(first.id(), 5).await.expect("feedback");
    first.ann.ticket.submit_feedback(first.id(), 5).await.expect("the same feedback again");
    first.ann.ticket.submit_feedback(first.id(), 1).await.expect_err("other feedback");

    directory.write_file("duel.xml", &rated_duel("").replace(r#"K="32""#, r#"K="16""#));
    let changes = operator.reload_rulesets().await.changes;
    let (Some(before), Some(after)) = (changes[0].previous_hash, changes[0].current_hash) else {
        panic!("{changes:?}")
    };
    let second = Duel::start(&server, ["cid", "dan"]).await;
    client.report_result(second.ann_won()).await.expect("report");
    client.report_result(second.ann_won()).await.expect("the same report again");
    let third = Duel::start(&server, ["eve", "fay"]).await;
    second.ann.ticket.submit_feedback(second.id(), 2).await.expect("feedback");
    third.bob.ticket.submit_feedback(third.id(), 3).await.expect("feedback");
    first.bob.ticket.submit_feedback(first.id(), 4).await.expect("late feedback");

    // Feedback is kept for longer than a week.
    server.clock.advance_ms(30 * 24 * 3_600_000);
    let request = GetStatisticsRequest { period: StatisticsPeriod::Quarter.into(), ..Default::default() };
    let found = operator.0.get_statistics(request).await.expect("statistics").into_inner();
    let row = |hash, stars: [u64; 5], mean, results| RulesetFeedback {
        matchmaking_set_id: Some(SET_ID),
        service_configuration_hash: hash,
        feedback_count: stars.iter().sum(),
        mean_stars: Some(mean),
        star_counts: stars.to_vec(),
        match_results: results,
    };
    let mut expected = vec![row(before, [0, 0, 0, 1, 1], 4.5, 1), row(after, [0, 1, 1, 0, 0], 2.5, 1)];
    expected.sort_by_key(|row| row.service_configuration_hash);
    assert_eq!(found.ruleset_feedback, expected);
    let week = GetStatisticsRequest { period: StatisticsPeriod::Week.into(), ..Default::default() };
    assert_eq!(operator.0.get_statistics(week).await.expect("statistics").into_inner().ruleset_feedback, []);
}
