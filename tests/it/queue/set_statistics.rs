//! Statistics of queues: totals of each set over its silos.

use fireteam_client::pb;

use crate::support::generated_client::{GetStatisticsRequest, GetStatisticsResponse};
use crate::support::queue_server::{
    QueuedParty, SET_ID, duel_ruleset, enter_request, operator_client, servers_on_each_store, wait_until,
};
use crate::support::test_server::TestServer;

async fn statistics(server: &TestServer) -> GetStatisticsResponse {
    operator_client(server)
        .await
        .get_statistics(GetStatisticsRequest::default())
        .await
        .expect("statistics")
        .into_inner()
}

async fn enter(server: &TestServer, silo: u64, players: &[(&str, f64)]) -> QueuedParty {
    let mut request: pb::QueueEnterRequest = enter_request(SET_ID, players);
    request.session_composition.as_mut().expect("a party").silo_id = Some(silo);
    QueuedParty::enter_with_request(server, request).await
}

/// S1-96: three silos of a set are one row: tickets, players, matches and the longest wait, also after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_statistics_are_totals_over_all_silos() {
    let ruleset =
        duel_ruleset(r#"<ReadyCheck TimeoutMs="600000"/>"#).replace(r#"Count="2" Size="1""#, r#"Count="2" Size="2""#);
    for (server, _database) in servers_on_each_store("set_statistics", &ruleset).await {
        assert!(statistics(&server).await.sets.is_empty());
        let _ann = enter(&server, 1, &[("ann", 20.0)]).await;
        server.clock.advance_ms(3_000);
        let _pair = enter(&server, 2, &[("bob", 20.0), ("eve", 20.0)]).await;
        let _duos = [
            enter(&server, 3, &[("a", 20.0), ("b", 20.0)]).await,
            enter(&server, 3, &[("c", 20.0), ("d", 20.0)]).await,
        ];
        wait_until("the duos are matched", async || statistics(&server).await.sets[0].matches == 1).await;
        let server = server.restart().await;
        let found = statistics(&server).await;
        assert_eq!((found.queues.len(), found.sets.len()), (3, 1));
        let set = &found.sets[0];
        let counts = (set.matchmaking_set_id, set.silos, set.waiting_tickets, set.waiting_players, set.matches);
        assert_eq!((counts, set.longest_wait_ms), ((SET_ID, 3, 2, 3, 1), 3_000));
    }
}
