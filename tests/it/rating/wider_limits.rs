//! Limits of frustrated players: wider in searches, reservations and queues of rated sets, and as usual again after a win.

use fireteam_client::pb;
use pb::TicketState;

use crate::rating::results_and_leaderboards::{Duel, rated_duel};
use crate::support::generated_client as wire;
use crate::support::queue_server::{
    QueuedParty, SET_ID, explain_search_request, operator_client, servers_on_each_store, wait_until,
};
use crate::support::test_server::{TestServer, advertise_request, party_session};

/// A rated duel within 10 points of skill, or 20 for who has lost the last match. `reciprocal` is the share that the other side's
/// limit covers, percent.
fn rules(reciprocal: u32) -> String {
    rated_duel(&format!(
        r#"<HardFilters><Within Name="near" Attribute="skill" Limit="10" ReciprocalPercent="{reciprocal}"/></HardFilters>
           <Satisfaction LosingStreak="1" WidenLimits="2"/>"#
    ))
}

/// Plays a duel that the first player wins.
async fn play(server: &TestServer, winner: &str, loser: &str) {
    let duel = Duel::start(server, [winner, loser]).await;
    server.client().await.report_result(duel.ann_won()).await.expect("report");
}

async fn advertise(server: &TestServer, host: &str, skill: f64) -> String {
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        time_to_live_ms: Some(600_000),
        ..advertise_request(&[(host, skill)], 4)
    };
    server.client().await.advertise(request).await.expect("advertise").id().to_owned()
}

async fn found(server: &TestServer, searcher: &str, skill: f64) -> Vec<String> {
    let mut search = server.client().await.new_search(SET_ID, party_session(&[(searcher, skill)]));
    let answer = search.search().await.expect("search");
    answer.candidates.into_iter().map(|candidate| candidate.advertisement_id).collect()
}

/// Limit and factor in an explanation of a search.
async fn explained(server: &TestServer, searcher: &str) -> (Vec<f64>, Option<f64>) {
    let request = explain_search_request(searcher);
    let explained = operator_client(server).await.explain(request).await.expect("an explanation").into_inner();
    (explained.limits.iter().map(|limit| limit.value).collect(), explained.limit_factor)
}

/// S1-97: a player who has lost finds a host that others do not find, and reserves a seat there; in the queue it meets an opponent whom others do not
/// meet. Also after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_are_wider_after_a_losing_streak() {
    for (server, _database) in servers_on_each_store("limits_are_wider_after_a_losing_streak", &rules(0)).await {
        play(&server, "ann", "bob").await;
        let host = advertise(&server, "hal", 35.0).await;
        assert_eq!(found(&server, "ann", 20.0).await, Vec::<String>::new());
        assert_eq!(found(&server, "bob", 20.0).await, std::slice::from_ref(&host));
        assert_eq!(found(&server, "bob", 14.0).await, Vec::<String>::new(), "beyond twice the limit");
        assert_eq!(explained(&server, "bob").await, (vec![20.0], Some(2.0)));
        assert_eq!(explained(&server, "ann").await, (vec![10.0], None));

        let server = server.restart().await;
        let client = server.client().await;
        let mut search = client.new_search(SET_ID, party_session(&[("bob", 20.0)]));
        assert_eq!(search.search().await.expect("search").candidates.len(), 1);
        search.reserve(&host).await.expect("a seat");
        let mut search = client.new_search(SET_ID, party_session(&[("ann", 20.0)]));
        search.search().await.expect("search");
        let error = search.reserve(&host).await.expect_err("refused");
        assert!(error.to_string().contains("near"), "{error}");

        let mut dan = QueuedParty::enter(&server, SET_ID, &[("dan", 35.0)]).await;
        let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
        wait_until("a pass has refused the pair", async || ann.current_status().await.blocking_rule == "near").await;
        let ticket_id = ann.ticket.id().to_owned();
        let request = wire::ExplainRequest { ticket_id, ..Default::default() };
        let explained = operator_client(&server).await.explain(request).await.expect("explain").into_inner();
        assert_eq!((explained.limits[0].value, explained.limit_factor), (10.0, None));
        assert!(ann.ticket.leave().await.expect("leave"));
        QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await.wait_for_state(TicketState::Matched).await;
        dan.wait_for_state(TicketState::Matched).await;
        server.shut_down().await;
    }
}

/// S1-97: with full reciprocity both sides must have wider limits. A host that wins meanwhile has its usual ones again, in the advertisement
/// that is live.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_a_live_advertisement_follow_the_results_of_its_host() {
    for (server, _database) in servers_on_each_store("limits_of_a_live_advertisement_follow_results", &rules(100)).await
    {
        play(&server, "ann", "bob").await;
        play(&server, "cyd", "dan").await;
        let of_bob = advertise(&server, "bob", 35.0).await;
        let of_ann = advertise(&server, "ann", 35.0).await;
        assert_eq!(
            found(&server, "dan", 20.0).await,
            std::slice::from_ref(&of_bob),
            "ann has won: her limit is the usual one"
        );
        assert_eq!(found(&server, "cyd", 20.0).await, Vec::<String>::new());
        play(&server, "bob", "ann").await;
        wait_until("the limits follow the result", async || {
            found(&server, "dan", 20.0).await == std::slice::from_ref(&of_ann)
        })
        .await;
        server.shut_down().await;
    }
}
