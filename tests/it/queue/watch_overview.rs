//! Overviews for operators: waiting tickets, stages, ended matches, waits and places, streamed to all who watch.

use tonic::Streaming;

use fireteam_client::{Client, Ticket, pb};

use crate::support::generated_client::{CancelMatchRequest, SetOverview, WatchOverviewRequest, WatchOverviewResponse};
use crate::support::party_site::{PartySite, by_operator, on_each_store, wait_for_state};
use crate::support::queue_server::{
    QueuedParty, SET_ID, duel_ruleset, enter_request, operator_client, servers_on_each_store, start_queue_server,
    start_queue_server_with_config,
};
use crate::support::server_process::TEST_TIMEOUT;
use crate::support::test_server::TestServer;

async fn watch(server: &TestServer) -> Streaming<WatchOverviewResponse> {
    operator_client(server).await.watch_overview(WatchOverviewRequest {}).await.expect("watch").into_inner()
}

async fn next(stream: &mut Streaming<WatchOverviewResponse>) -> WatchOverviewResponse {
    let next = tokio::time::timeout(TEST_TIMEOUT, stream.message()).await.expect("an update in time");
    next.expect("no error").expect("another update")
}

/// The first state of the set that `condition` accepts.
async fn wait_for_set(
    stream: &mut Streaming<WatchOverviewResponse>,
    condition: impl Fn(&SetOverview) -> bool,
) -> SetOverview {
    loop {
        let found = next(stream).await.sets.into_iter().find(|set| set.matchmaking_set_id == SET_ID);
        if let Some(set) = found.filter(|set| condition(set)) {
            return set;
        }
    }
}

/// A set is listed without tickets. A waiting ticket, a match in its ready check and its end are each seen by the stream that was
/// opened before them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_overview_shows_each_stage_of_a_match() {
    let ruleset = duel_ruleset(r#"<ReadyCheck TimeoutMs="600000"/>"#);
    for (server, database) in servers_on_each_store("watch_overview", &ruleset).await {
        let mut stream = watch(&server).await;
        let first = next(&mut stream).await;
        let set = first.sets.iter().find(|set| set.matchmaking_set_id == SET_ID).expect("the set");
        assert_eq!((set.name.as_str(), set.has_queue, set.waiting_tickets), ("Duel", true, 0));
        let server_state = first.server.expect("the server");
        let is_shared = server_state.feed_lag_ms.is_some();
        assert_eq!((server_state.live_servers, server_state.version.as_str()), (1, env!("CARGO_PKG_VERSION")));
        assert_eq!(is_shared, database.is_some());
        assert!(first.world_map.is_some(), "the first response has the map");

        let _ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
        let waiting = wait_for_set(&mut stream, |set| set.waiting_tickets == 1).await;
        assert_eq!((waiting.waiting_players, waiting.ready_check_matches), (1, 0));
        let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
        let proposed = wait_for_set(&mut stream, |set| set.ready_check_matches == 1).await;
        assert_eq!((proposed.waiting_tickets, proposed.playing_matches), (0, 0));
        let status = bob.wait_for_state(pb::TicketState::Proposed).await;
        let match_id = status.found_match.expect("a match").match_id;
        let cancel = CancelMatchRequest { match_id, reason: "test".to_owned() };
        operator_client(&server).await.cancel_match(cancel).await.expect("cancel");
        let ended = wait_for_set(&mut stream, |set| !set.ended_matches.is_empty()).await;
        let reason = ended.ended_matches[0].end_reason();
        assert_eq!((reason.as_str_name(), ended.ended_matches[0].count), ("MATCH_END_REASON_CANCELLED", 1));
    }
}

/// All streams of a server get the same states, so each is computed once. A stream that opens later begins with a map too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_overview_streams_share_each_state() {
    let server = start_queue_server(&[&duel_ruleset("")]).await;
    let mut one = watch(&server).await;
    next(&mut one).await;
    let mut other = watch(&server).await;
    let first = next(&mut other).await;
    assert!(first.world_map.is_some(), "a later stream has the map first");
    // The clock of the server moves for each state, so equal times are equal states.
    server.clock.advance_ms(1_234);
    let mut later = Vec::new();
    for stream in [&mut one, &mut other] {
        later.push(loop {
            let state = next(stream).await;
            if state.at_unix_ms > first.at_unix_ms {
                break state;
            }
        });
    }
    let (of_one, of_other) = (&later[0], &later[1]);
    assert_eq!(of_one, of_other);
    assert!(of_one.world_map.is_none(), "a map is sent once");
}

/// The places on the map are the centers of cells; a player without a place is counted beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_overview_map_has_waiting_players_by_cell() {
    let server =
        start_queue_server_with_config(&[&duel_ruleset("")], |config| config.allow_client_locality = true).await;
    let mut placed = enter_request(SET_ID, &[("ann", 10.0)]);
    let session = placed.session_composition.as_mut().expect("a party");
    session.locality_info =
        Some(pb::LocalityData { latitude_degrees: Some(52.5), longitude_degrees: Some(13.4), ..Default::default() });
    let _ann = QueuedParty::enter_with_request(&server, placed).await;
    let _bob = QueuedParty::enter(&server, SET_ID, &[("bob", 40.0)]).await;
    let map = next(&mut watch(&server).await).await.world_map.expect("a map");
    let cells: Vec<_> = map.cells.iter().map(|cell| (cell.latitude, cell.longitude, cell.waiting_players)).collect();
    assert_eq!((map.cell_degrees, cells), (5.0, vec![(52.5, 12.5, 1)]));
    assert_eq!(map.waiting_players_without_place, 1);
}

async fn watch_at(site: &PartySite, at: usize) -> Streaming<WatchOverviewResponse> {
    let request = by_operator(site, WatchOverviewRequest {});
    operator_client(&site.servers[at]).await.watch_overview(request).await.expect("watch").into_inner()
}

async fn enter(client: Client, user: &str) -> Ticket {
    client.enter_queue(enter_request(SET_ID, &[(user, 20.0)])).await.expect("enter")
}

/// Each server shows the tickets and matches of all. A server that starts again shows those that are live, and no end that was before.
async fn each_server_shows_the_tickets_and_matches_of_all(mut site: PartySite) {
    let mut streams = Vec::new();
    for at in 0..site.servers.len() {
        streams.push(watch_at(&site, at).await);
    }
    let _ann = enter(site.player("ann").await, "ann").await;
    for stream in &mut streams {
        wait_for_set(stream, |set| (set.waiting_tickets, set.waiting_players) == (1, 1)).await;
    }
    let mut bob = enter(site.player_elsewhere("bob").await, "bob").await;
    for stream in &mut streams {
        wait_for_set(stream, |set| (set.waiting_tickets, set.ready_check_matches) == (0, 1)).await;
    }
    let proposed = wait_for_state(&mut bob, pb::TicketState::Proposed).await;
    let match_id = proposed.found_match.expect("a match").match_id;
    let cancel = by_operator(&site, CancelMatchRequest { match_id, reason: "test".to_owned() });
    operator_client(&site.servers[0]).await.cancel_match(cancel).await.expect("cancel");
    for stream in &mut streams {
        let ended = wait_for_set(stream, |set| !set.ended_matches.is_empty()).await;
        assert_eq!((ended.ended_matches.len(), ended.ended_matches[0].count), (1, 1));
    }
    let _cid = enter(site.player_elsewhere("cid").await, "cid").await;
    drop(streams);
    site.restart_first().await;
    let restarted = wait_for_set(&mut watch_at(&site, 0).await, |set| set.ready_check_matches == 1).await;
    assert_eq!(restarted.ended_matches, []);
    site.shut_down().await;
}

on_each_store! {
    each_server_shows_the_tickets_and_matches_of_all, duel_ruleset(r#"<ReadyCheck TimeoutMs="600000"/>"#),
    overview_of_all_tickets_and_matches_on_sqlite, overview_of_all_tickets_and_matches_on_postgres;
}
