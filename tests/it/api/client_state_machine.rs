//! The complete state machine of a client: choose an action, search, evaluate, expand; or advertise, fill the session,
//! leave.

use fireteam_client::{Advertisement, Client, SearchSession, pb};

use crate::support::test_server::{TestServer, advertise_request, party_session};

/// State of a client (S1-51).
#[derive(Debug, PartialEq)]
enum ClientState {
    Searching,
    Advertising,
    Joined(String),
    Full,
}

/// A client that acts for its whole party.
struct PartyClient {
    client: Client,
    players: Vec<(&'static str, f64)>,
    search_session: Option<SearchSession>,
    advertisement: Option<Advertisement>,
    visited_steps: Vec<&'static str>,
}

impl PartyClient {
    async fn connect(server: &TestServer, players: &[(&'static str, f64)]) -> Self {
        let client = server.client().await;
        Self { client, players: players.to_vec(), search_session: None, advertisement: None, visited_steps: Vec::new() }
    }

    /// Chooses to search or to advertise.
    async fn choose_action(&mut self) -> ClientState {
        self.visited_steps.push("choose");
        let size = u32::try_from(self.players.len()).expect("few");
        match self.client.choose_action(1, size).await.expect("choose").action() {
            pb::MatchmakingAction::Search => {
                self.search_session = Some(self.client.new_search(1, party_session(&self.players)));
                ClientState::Searching
            }
            pb::MatchmakingAction::Advertise => {
                let seats = i32::try_from(6 - self.players.len()).expect("few");
                self.advertisement =
                    Some(self.client.advertise(advertise_request(&self.players, seats)).await.expect("advertise"));
                ClientState::Advertising
            }
            pb::MatchmakingAction::Unspecified => panic!("unspecified action"),
        }
    }

    /// Searches and reserves: joined, or the search continues with expanded limits.
    async fn search_and_reserve(&mut self) -> ClientState {
        self.visited_steps.push("search");
        let searching = self.search_session.as_mut().expect("search session");
        for candidate in searching.search().await.expect("search").candidates {
            self.visited_steps.push("evaluate");
            if searching.reserve(&candidate.advertisement_id).await.is_ok() {
                return ClientState::Joined(candidate.advertisement_id);
            }
        }
        self.visited_steps.push("expand");
        ClientState::Searching
    }

    /// Adds joined players to the advertisement; deletes it when the session is full.
    async fn add_joined_players(&mut self, newcomers: &[(&'static str, f64)]) -> ClientState {
        self.visited_steps.push("update");
        let advertised = self.advertisement.as_mut().expect("advertisement");
        let answer = advertised.heartbeat().await.expect("heartbeat");
        self.players.extend(newcomers);
        let open = 6 - self.players.len();
        let mut update = advertise_request(&self.players, i32::try_from(open).expect("few"));
        update.joined_reservation_ids =
            answer.reservations.into_iter().map(|reservation| reservation.reservation_id).collect();
        advertised.replace_published(update).await.expect("update");
        if open > 0 {
            return ClientState::Advertising;
        }
        self.advertisement.take().expect("advertisement").delete().await.expect("delete");
        ClientState::Full
    }
}

/// S1-4, S1-5, S1-30, S1-32, S1-39, S1-40, S1-51: three parties fill a session of six players. One client acts for each
/// party. A random number decides between search and advertise. A party whose skill is too far away finds the session
/// after an expansion. A full session is deleted.
#[tokio::test]
async fn client_state_machine_fills_a_match_from_three_parties() {
    let server = TestServer::start().await;
    let mut pair = PartyClient::connect(&server, &[("ann", 0.0), ("ben", 0.0)]).await;
    let mut trio = PartyClient::connect(&server, &[("cid", 100.0), ("dan", 100.0), ("eve", 100.0)]).await;
    let mut solo = PartyClient::connect(&server, &[("far", 340.0)]).await;

    server.clock.set_random_unit(0.9);
    assert_eq!(trio.choose_action().await, ClientState::Searching);
    assert_eq!(trio.search_and_reserve().await, ClientState::Searching, "no advertisement exists yet");
    server.clock.set_random_unit(0.1);
    assert_eq!(pair.choose_action().await, ClientState::Advertising);
    server.clock.set_random_unit(0.16);
    assert_eq!(solo.choose_action().await, ClientState::Searching, "one player advertises with 16 %");

    let hosted = pair.advertisement.as_ref().expect("advertisement").id().to_owned();
    assert_eq!(solo.search_and_reserve().await, ClientState::Searching, "skill differs by 340, limit 150");
    assert_eq!(trio.search_and_reserve().await, ClientState::Joined(hosted.clone()), "three seats for the whole party");
    let answer = pair.advertisement.as_mut().expect("advertisement").heartbeat().await.expect("heartbeat");
    assert_eq!(answer.reservations.iter().map(|reservation| reservation.seats).collect::<Vec<_>>(), [3]);
    assert_eq!(
        pair.add_joined_players(&[("cid", 100.0), ("dan", 100.0), ("eve", 100.0)]).await,
        ClientState::Advertising
    );

    let mut big = PartyClient::connect(&server, &[("gus", 0.0), ("hal", 0.0)]).await;
    server.clock.set_random_unit(0.9);
    assert_eq!(big.choose_action().await, ClientState::Searching);
    assert_eq!(big.search_and_reserve().await, ClientState::Searching, "one seat is left for a party of two");

    server.clock.advance_ms(10_000);
    assert_eq!(
        solo.search_and_reserve().await,
        ClientState::Joined(hosted),
        "limit 300, and the mean skill of the session is nearer"
    );
    assert_eq!(solo.visited_steps, ["choose", "search", "expand", "search", "evaluate"]);
    assert_eq!(pair.add_joined_players(&[("far", 340.0)]).await, ClientState::Full);
    assert_eq!(big.search_and_reserve().await, ClientState::Searching, "the full session is not found");

    // The next choice is made with another random number.
    server.clock.set_random_unit(0.0);
    assert_eq!(big.choose_action().await, ClientState::Advertising);
    assert_eq!(big.visited_steps, ["choose", "search", "expand", "search", "expand", "choose"]);
}

/// S1-41, S1-43: advertisements can be created, queried and updated in one store, and expire. After expiry nothing is
/// left in memory or in the store.
#[tokio::test]
async fn expired_advertisement_leaves_memory_and_store() {
    let folder = tempfile::tempdir().expect("create a temporary directory");
    let file = folder.path().join("fireteam.db");
    let server =
        TestServer::start_with_config(|config| config.store = fireteam::config::StoreTarget::Sqlite(file.clone()))
            .await;
    let mut advertised =
        server.client().await.advertise(advertise_request(&[("host", 0.0)], 5)).await.expect("advertise");
    let other = server.client().await;
    let found = other.new_search(1, party_session(&[("guest", 0.0)])).search().await.expect("search");
    assert_eq!(found.candidates[0].open_seats, 5);
    let changed = pb::MatchmakingUpdateAdvertisementRequest {
        connect_data: b"host:8888".to_vec(),
        ..advertise_request(&[("host", 0.0)], 4)
    };
    advertised.replace_published(changed).await.expect("update");
    let mut searching = other.new_search(1, party_session(&[("guest", 0.0)]));
    let found = searching.search().await.expect("search");
    assert_eq!(found.candidates[0].open_seats, 4);
    assert_eq!(searching.reserve(advertised.id()).await.expect("reserve").connect_data, b"host:8888");

    server.clock.advance_ms(90_000);
    server.sweep_expired_adverts_and_wait().await;
    server.sweep_expired_adverts_and_wait().await;
    let metrics = server.app.metrics.render();
    for gauge in ["fireteam_advertisements 0", "fireteam_reservations 0"] {
        assert!(metrics.contains(gauge), "{gauge} in\n{metrics}");
    }
    server.app.shutdown().await;
    let store = fireteam::store::sqlite::SqliteStore::open(&file).await.expect("open");
    use fireteam::store::Store;
    assert!(store.load_advertisements(fireteam::domain::time::UnixMs(0)).await.expect("load").is_empty());
}
