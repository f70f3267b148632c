//! The client's state machine walked whole: choose a role, search, evaluate, expand; or advertise, fill up, leave.

use fireteam_client::{Advertisement, Client, SearchSession, pb};

use crate::support::test_server::{TestServer, advertise_request, party_session};

/// Where a client is (S1-51).
#[derive(Debug, PartialEq)]
enum ClientState {
    Searching,
    Advertising,
    Joined(String),
    Full,
}

/// One client that speaks for its whole party.
struct PartyClient {
    client: Client,
    players: Vec<(&'static str, f64)>,
    search_session: Option<SearchSession>,
    advertisement: Option<Advertisement>,
    visited_steps: Vec<&'static str>,
}

impl PartyClient {
    async fn connect(house: &TestServer, players: &[(&'static str, f64)]) -> Self {
        let client = house.client().await;
        Self { client, players: players.to_vec(), search_session: None, advertisement: None, visited_steps: Vec::new() }
    }

    /// Evaluate properties: search or advertise?
    async fn choose_action(&mut self) -> ClientState {
        self.visited_steps.push("choose");
        let size = u32::try_from(self.players.len()).expect("few");
        match self.client.choose_action(1, size).await.expect("choose").action() {
            pb::MatchmakingAction::Search => {
                self.search_session = Some(self.client.search_session(1, party_session(&self.players)));
                ClientState::Searching
            }
            pb::MatchmakingAction::Advertise => {
                let seats = i32::try_from(6 - self.players.len()).expect("few");
                self.advertisement = Some(self.client.advertise(advertise_request(&self.players, seats)).await.expect("advertise"));
                ClientState::Advertising
            }
            pb::MatchmakingAction::Unspecified => panic!("no role"),
        }
    }

    /// Search matches, evaluate matches: joined, or expand and come again.
    async fn search_and_reserve(&mut self) -> ClientState {
        self.visited_steps.push("search");
        let searching = self.search_session.as_mut().expect("searches");
        for candidate in searching.search().await.expect("search").candidates {
            self.visited_steps.push("evaluate");
            if searching.reserve(&candidate.advertisement_id).await.is_ok() {
                return ClientState::Joined(candidate.advertisement_id);
            }
        }
        self.visited_steps.push("expand");
        ClientState::Searching
    }

    /// Says who sits with it now; full is out.
    async fn add_joined_players(&mut self, newcomers: &[(&'static str, f64)]) -> ClientState {
        self.visited_steps.push("update");
        let advertised = self.advertisement.as_mut().expect("advertises");
        let answer = advertised.heartbeat().await.expect("heartbeat");
        self.players.extend(newcomers);
        let open = 6 - self.players.len();
        let mut whole = advertise_request(&self.players, i32::try_from(open).expect("few"));
        whole.joined_reservation_ids = answer.reservations.into_iter().map(|it| it.reservation_id).collect();
        advertised.update(whole).await.expect("update");
        if 0 < open {
            return ClientState::Advertising;
        }
        self.advertisement.take().expect("advertises").delete().await.expect("delete");
        ClientState::Full
    }
}

/// S1-4, S1-5, S1-30, S1-32, S1-39, S1-40, S1-51: three parties become six players. One client speaks for each party;
/// who searches and who advertises is drawn; who is too far apart expands and comes again; a full match leaves.
#[tokio::test]
async fn client_state_machine_fills_a_match_from_three_parties() {
    let house = TestServer::start().await;
    let mut pair = PartyClient::connect(&house, &[("ann", 0.0), ("ben", 0.0)]).await;
    let mut trio = PartyClient::connect(&house, &[("cid", 100.0), ("dan", 100.0), ("eve", 100.0)]).await;
    let mut solo = PartyClient::connect(&house, &[("far", 340.0)]).await;

    house.clock.set_random_unit(0.9);
    assert_eq!(trio.choose_action().await, ClientState::Searching);
    assert_eq!(trio.search_and_reserve().await, ClientState::Searching, "nobody advertises: if all search, none is found");
    house.clock.set_random_unit(0.1);
    assert_eq!(pair.choose_action().await, ClientState::Advertising);
    house.clock.set_random_unit(0.16);
    assert_eq!(solo.choose_action().await, ClientState::Searching, "16 % for one player");

    let hosted = pair.advertisement.as_ref().expect("advertises").id().to_owned();
    assert_eq!(solo.search_and_reserve().await, ClientState::Searching, "340 points away, 150 allowed");
    assert_eq!(trio.search_and_reserve().await, ClientState::Joined(hosted.clone()), "three seats for one client's whole party");
    let answer = pair.advertisement.as_mut().expect("advertises").heartbeat().await.expect("heartbeat");
    assert_eq!(answer.reservations.iter().map(|it| it.seats).collect::<Vec<_>>(), [3]);
    assert_eq!(pair.add_joined_players(&[("cid", 100.0), ("dan", 100.0), ("eve", 100.0)]).await, ClientState::Advertising);

    let mut big = PartyClient::connect(&house, &[("gus", 0.0), ("hal", 0.0)]).await;
    house.clock.set_random_unit(0.9);
    assert_eq!(big.choose_action().await, ClientState::Searching);
    assert_eq!(big.search_and_reserve().await, ClientState::Searching, "one seat is left, and they are two");

    house.clock.advance_ms(10_000);
    assert_eq!(
        solo.search_and_reserve().await,
        ClientState::Joined(hosted),
        "300 points by now, and the mean of the match has come nearer"
    );
    assert_eq!(solo.visited_steps, ["choose", "search", "expand", "search", "evaluate"]);
    assert_eq!(pair.add_joined_players(&[("far", 340.0)]).await, ClientState::Full);
    assert_eq!(big.search_and_reserve().await, ClientState::Searching, "full is out");

    // Back to the start: the dice say otherwise now.
    house.clock.set_random_unit(0.0);
    assert_eq!(big.choose_action().await, ClientState::Advertising);
    assert_eq!(big.visited_steps, ["choose", "search", "expand", "search", "expand", "choose"]);
}

/// S1-41, S1-43: one central place to store, query and update; what is in it has a type and an end: when its time is
/// over and nobody has said it again, nothing is left of it, in memory or in the store.
#[tokio::test]
async fn expired_advertisement_leaves_memory_and_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("fireteam.db");
    let house = TestServer::start_with_config(|config| config.store = fireteam::config::StoreTarget::Sqlite(file.clone())).await;
    let mut advertised = house.client().await.advertise(advertise_request(&[("host", 0.0)], 5)).await.expect("advertise");
    let other = house.client().await;
    let found = other.search_session(1, party_session(&[("guest", 0.0)])).search().await.expect("search");
    assert_eq!(found.candidates[0].connect_data, b"host:7777");
    let changed =
        pb::MatchmakingUpdateAdvertisementRequest { connect_data: b"host:8888".to_vec(), ..advertise_request(&[("host", 0.0)], 4) };
    advertised.update(changed).await.expect("update");
    let mut searching = other.search_session(1, party_session(&[("guest", 0.0)]));
    let found = searching.search().await.expect("search");
    assert_eq!((&*found.candidates[0].connect_data, found.candidates[0].open_seats), (b"host:8888".as_slice(), 4));
    searching.reserve(advertised.id()).await.expect("reserve");

    house.clock.advance_ms(90_000);
    house.sweep_expired().await;
    house.sweep_expired().await;
    let metrics = house.app.metrics.render();
    for gauge in ["fireteam_advertisements 0", "fireteam_reservations 0"] {
        assert!(metrics.contains(gauge), "{gauge} in\n{metrics}");
    }
    house.app.shutdown().await;
    let store = fireteam::store::sqlite::SqliteStore::open(&file).await.expect("open");
    use fireteam::store::Store;
    assert!(store.load_advertisements(fireteam::domain::time::UnixMs(0)).await.expect("load").is_empty());
}
