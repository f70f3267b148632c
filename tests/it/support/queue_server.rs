//! A test server with queue rulesets, and parties that enter its queues and receive status updates.

use std::time::Duration;

use fireteam::config::{Config, PostgresUrl, RulesetSource, StoreTarget};
use fireteam_client::{Client, Ticket, TicketStream, pb};

use crate::support::database::{TestDatabase, create_test_database};
use crate::support::generated_client;
use crate::support::generated_client::operator_service_client::OperatorServiceClient;
use crate::support::server_process::TEST_TIMEOUT;
use crate::support::test_server::{TestServer, party_session};

/// Matchmaking set of the queue.
pub(crate) const SET_ID: u32 = 11;

/// Ruleset of a 1v1 queue with a rating window of two buckets of skill; `more` is inserted as further elements.
pub(crate) fn duel_ruleset(more: &str) -> String {
    format!(
        r#"<Ruleset Name="Duel" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"><RatingWindow Start="2" Max="2"/></Queue>
  {more}
</Ruleset>"#
    )
}

/// Starts a server with these ruleset files.
pub(crate) async fn start_queue_server(files: &[&str]) -> TestServer {
    start_queue_server_with_config(files, |_| {}).await
}

/// Starts a server with these ruleset files and a configuration changed by `change`.
pub(crate) async fn start_queue_server_with_config(files: &[&str], change: impl FnOnce(&mut Config)) -> TestServer {
    let folder = tempfile::tempdir().unwrap();
    for (number, xml) in files.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{number}.xml")), xml).unwrap();
    }
    let path = folder.path().to_owned();
    let mut server = TestServer::start_with_config(move |config| {
        config.rulesets = RulesetSource::Directory(path);
        change(config);
    })
    .await;
    server.keep_folder(folder);
    server
}

/// A server of `ruleset` on SQLite, and one on Postgres if it is installed.
pub(crate) async fn servers_on_each_store(test: &str, ruleset: &str) -> Vec<(TestServer, Option<TestDatabase>)> {
    let file = |config: &mut Config| {
        let folder = config.token_key_file.as_ref().and_then(|file| file.parent()).expect("a folder").to_owned();
        config.store = StoreTarget::Sqlite(folder.join("store.db"));
    };
    let mut servers = vec![(start_queue_server_with_config(&[ruleset], file).await, None)];
    if let Some(database) = create_test_database(test).await {
        let store = StoreTarget::Postgres(PostgresUrl::parse(&database.url).expect("a URL"));
        let server = start_queue_server_with_config(&[ruleset], |config| config.store = store).await;
        servers.push((server, Some(database)));
    }
    servers
}

/// Request to enter `players` into the queue of set `set`.
pub(crate) fn enter_request(set: u32, players: &[(&str, f64)]) -> pb::QueueEnterRequest {
    pb::QueueEnterRequest {
        session_composition: Some(party_session(players)),
        matchmaking_set_id: Some(set),
        ..Default::default()
    }
}

/// A party in a queue, with its own connection and status stream.
pub(crate) struct QueuedParty {
    pub(crate) client: Client,
    pub(crate) ticket: Ticket,
    status_stream: TicketStream,
}

impl QueuedParty {
    /// Enters `players` into the queue of set `set`.
    pub(crate) async fn enter(server: &TestServer, set: u32, players: &[(&str, f64)]) -> Self {
        Self::enter_with_request(server, enter_request(set, players)).await
    }

    /// Enters with the given request.
    pub(crate) async fn enter_with_request(server: &TestServer, request: pb::QueueEnterRequest) -> Self {
        Self::enter_with_client(server.client().await, request).await
    }

    /// Enters with the given request at the client's server.
    pub(crate) async fn enter_with_client(client: Client, request: pb::QueueEnterRequest) -> Self {
        let ticket = client.enter_queue(request).await.expect("enter");
        let status_stream = ticket.watch();
        Self { client, ticket, status_stream }
    }

    /// Next status update of the ticket.
    pub(crate) async fn next_status(&mut self) -> pb::TicketStatus {
        let status = tokio::time::timeout(TEST_TIMEOUT, self.status_stream.next())
            .await
            .expect("in time")
            .expect("the stream is open");
        status.expect("the ticket has not ended")
    }

    /// Skips status updates until the ticket is in `state`. Panics if the ticket ends first.
    pub(crate) async fn wait_for_state(&mut self, state: pb::TicketState) -> pb::TicketStatus {
        loop {
            let status = self.next_status().await;
            if status.state() == state {
                return status;
            }
            assert_ne!(status.state(), pb::TicketState::Ended, "the ticket ended: {status:?}");
        }
    }

    /// As [`Self::wait_for_state`], long before the interval of passes ends in a queue that has one a minute.
    pub(crate) async fn wait_for_state_before_the_next_minute(&mut self, state: pb::TicketState) -> pb::TicketStatus {
        tokio::time::timeout(TEST_TIMEOUT / 3, self.wait_for_state(state)).await.expect("before the interval ends")
    }

    /// The final status; skips others.
    pub(crate) async fn wait_for_end(&mut self) -> pb::TicketStatus {
        loop {
            let status = self.next_status().await;
            if status.state() == pb::TicketState::Ended {
                return status;
            }
        }
    }

    /// Waits for a proposed match, accepts or declines it, and returns its id.
    pub(crate) async fn respond_to_match(&mut self, accept: bool) -> String {
        let proposed = self.wait_for_state(pb::TicketState::Proposed).await;
        let id = proposed.found_match.expect("a proposed match").match_id;
        self.ticket.respond_to_ready_check(&id, accept).await.expect("respond");
        id
    }

    /// Current status of the ticket, requested by a heartbeat.
    pub(crate) async fn current_status(&mut self) -> pb::TicketStatus {
        self.ticket.heartbeat().await.expect("heartbeat").clone()
    }
}

/// Advertisement of a game server of this set with two seats; players join it with `connect_data`.
pub(crate) fn game_server_advertisement(connect_data: &[u8]) -> pb::MatchmakingUpdateAdvertisementRequest {
    pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        kind: pb::AdvertisementKind::GameServer.into(),
        session_composition: Some(pb::SessionCompositionData {
            party_size_composition: vec![1],
            max_allowed_join_reservation_count: Some(2),
            ..Default::default()
        }),
        connect_data: connect_data.to_vec(),
        ..Default::default()
    }
}

/// Advertises a game server that confirms its matches and keeps them alive until `server` stops.
pub(crate) async fn advertise_host(
    server: &TestServer,
    request: pb::MatchmakingUpdateAdvertisementRequest,
) -> pb::MatchmakingUpdateAdvertisementResponse {
    let client = server.client().await;
    let advertised = client.update_advertisement(request).await.expect("advertise");
    server.keep_hosting(client, advertised.advertisement_token.clone());
    advertised
}

/// Operator client of a server.
pub(crate) async fn operator_client(server: &TestServer) -> OperatorServiceClient<tonic::transport::Channel> {
    let uri = format!("http://{}", server.app.server.operator_address);
    let channel = tonic::transport::Endpoint::from_shared(uri).unwrap().connect().await.expect("connect");
    OperatorServiceClient::new(channel)
}

/// Polls until `condition` returns true. Panics after the timeout.
pub(crate) async fn wait_until(condition_name: &str, mut condition: impl AsyncFnMut() -> bool) {
    let started = tokio::time::Instant::now();
    while !condition().await {
        assert!(started.elapsed() < TEST_TIMEOUT, "timed out: {condition_name}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Request of an operator to explain a search of set [`SET_ID`] by one player.
pub(crate) fn explain_search_request(user: &str) -> generated_client::ExplainRequest {
    let session = generated_client::SessionCompositionData {
        party_size_composition: vec![1],
        players: vec![generated_client::PlayerData { user_id: user.to_owned(), ..Default::default() }],
        ..Default::default()
    };
    let search = generated_client::ExplainSearch {
        matchmaking_set_id: Some(SET_ID),
        session_composition: Some(session),
        ..Default::default()
    };
    generated_client::ExplainRequest { search: Some(search), ..Default::default() }
}
