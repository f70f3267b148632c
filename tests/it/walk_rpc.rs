//! The client's state machine walked whole: choose a role, search, evaluate, expand; or advertise, fill up, leave.

use fireteam_client::{Advertisement, Client, SearchSession, pb};

use crate::harness::{House, host, party};

/// Where a client is (S1-51).
#[derive(Debug, PartialEq)]
enum State {
    Searching,
    Advertising,
    Joined(String),
    Full,
}

/// One client that speaks for its whole party.
struct Walker {
    client: Client,
    players: Vec<(&'static str, f64)>,
    searching: Option<SearchSession>,
    advertised: Option<Advertisement>,
    steps: Vec<&'static str>,
}

impl Walker {
    async fn of(house: &House, players: &[(&'static str, f64)]) -> Self {
        let client = house.client().await;
        Self { client, players: players.to_vec(), searching: None, advertised: None, steps: Vec::new() }
    }

    /// Evaluate properties: search or advertise?
    async fn choose(&mut self) -> State {
        self.steps.push("choose");
        let size = u32::try_from(self.players.len()).expect("few");
        match self.client.choose_action(1, size).await.expect("choose").action() {
            pb::MatchmakingAction::Search => {
                self.searching = Some(self.client.search_session(1, party(&self.players)));
                State::Searching
            }
            pb::MatchmakingAction::Advertise => {
                let seats = i32::try_from(6 - self.players.len()).expect("few");
                self.advertised = Some(self.client.advertise(host(&self.players, seats)).await.expect("advertise"));
                State::Advertising
            }
            pb::MatchmakingAction::Unspecified => panic!("no role"),
        }
    }

    /// Search matches, evaluate matches: joined, or expand and come again.
    async fn look(&mut self) -> State {
        self.steps.push("search");
        let searching = self.searching.as_mut().expect("searches");
        for candidate in searching.search().await.expect("search").candidates {
            self.steps.push("evaluate");
            if searching.reserve(&candidate.advertisement_id).await.is_ok() {
                return State::Joined(candidate.advertisement_id);
            }
        }
        self.steps.push("expand");
        State::Searching
    }

    /// Says who sits with it now; full is out.
    async fn seat(&mut self, newcomers: &[(&'static str, f64)]) -> State {
        self.steps.push("update");
        let advertised = self.advertised.as_mut().expect("advertises");
        let answer = advertised.heartbeat().await.expect("heartbeat");
        self.players.extend(newcomers);
        let open = 6 - self.players.len();
        let mut whole = host(&self.players, i32::try_from(open).expect("few"));
        whole.joined_reservation_ids = answer.reservations.into_iter().map(|it| it.reservation_id).collect();
        advertised.update(whole).await.expect("update");
        if 0 < open {
            return State::Advertising;
        }
        self.advertised.take().expect("advertises").delete().await.expect("delete");
        State::Full
    }
}

/// S1-4, S1-5, S1-30, S1-32, S1-39, S1-40, S1-51: three parties become six players. One client speaks for each party;
/// who searches and who advertises is drawn; who is too far apart expands and comes again; a full match leaves.
#[tokio::test]
async fn three_parties_become_a_match() {
    let house = House::open().await;
    let mut pair = Walker::of(&house, &[("ann", 0.0), ("ben", 0.0)]).await;
    let mut trio = Walker::of(&house, &[("cid", 100.0), ("dan", 100.0), ("eve", 100.0)]).await;
    let mut solo = Walker::of(&house, &[("far", 340.0)]).await;

    house.clock.load_dice(0.9);
    assert_eq!(trio.choose().await, State::Searching);
    assert_eq!(trio.look().await, State::Searching, "nobody advertises: if all search, none is found");
    house.clock.load_dice(0.1);
    assert_eq!(pair.choose().await, State::Advertising);
    house.clock.load_dice(0.16);
    assert_eq!(solo.choose().await, State::Searching, "16 % for one player");

    let hosted = pair.advertised.as_ref().expect("advertises").id().to_owned();
    assert_eq!(solo.look().await, State::Searching, "340 points away, 150 allowed");
    assert_eq!(trio.look().await, State::Joined(hosted.clone()), "three seats for one client's whole party");
    let answer = pair.advertised.as_mut().expect("advertises").heartbeat().await.expect("heartbeat");
    assert_eq!(answer.reservations.iter().map(|it| it.seats).collect::<Vec<_>>(), [3]);
    assert_eq!(pair.seat(&[("cid", 100.0), ("dan", 100.0), ("eve", 100.0)]).await, State::Advertising);

    let mut big = Walker::of(&house, &[("gus", 0.0), ("hal", 0.0)]).await;
    house.clock.load_dice(0.9);
    assert_eq!(big.choose().await, State::Searching);
    assert_eq!(big.look().await, State::Searching, "one seat is left, and they are two");

    house.clock.turn(10_000);
    assert_eq!(
        solo.look().await,
        State::Joined(hosted),
        "300 points by now, and the mean of the match has come nearer"
    );
    assert_eq!(solo.steps, ["choose", "search", "expand", "search", "evaluate"]);
    assert_eq!(pair.seat(&[("far", 340.0)]).await, State::Full);
    assert_eq!(big.look().await, State::Searching, "full is out");

    // Back to the start: the dice say otherwise now.
    house.clock.load_dice(0.0);
    assert_eq!(big.choose().await, State::Advertising);
    assert_eq!(big.steps, ["choose", "search", "expand", "search", "expand", "choose"]);
}

/// S1-41, S1-43: one central place to store, query and update; what is in it has a type and an end: when its time is
/// over and nobody has said it again, nothing is left of it, in memory or in the store.
#[tokio::test]
async fn what_is_stored_passes() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("fireteam.db");
    let house = House::open_with(|config| config.store = fireteam::config::StoreTarget::Sqlite(file.clone())).await;
    let mut advertised = house.client().await.advertise(host(&[("host", 0.0)], 5)).await.expect("advertise");
    let other = house.client().await;
    let found = other.search_session(1, party(&[("guest", 0.0)])).search().await.expect("search");
    assert_eq!(found.candidates[0].connect_data, b"host:7777");
    let changed =
        pb::MatchmakingUpdateAdvertisementRequest { connect_data: b"host:8888".to_vec(), ..host(&[("host", 0.0)], 4) };
    advertised.update(changed).await.expect("update");
    let mut searching = other.search_session(1, party(&[("guest", 0.0)]));
    let found = searching.search().await.expect("search");
    assert_eq!((&*found.candidates[0].connect_data, found.candidates[0].open_seats), (b"host:8888".as_slice(), 4));
    searching.reserve(advertised.id()).await.expect("reserve");

    house.clock.turn(90_000);
    house.sweep().await;
    house.sweep().await;
    let metrics = house.parts.metrics.render();
    for gauge in ["fireteam_advertisements 0", "fireteam_reservations 0"] {
        assert!(metrics.contains(gauge), "{gauge} in\n{metrics}");
    }
    house.parts.shutdown().await;
    let store = fireteam::store::sqlite::SqliteStore::open(&file).await.expect("open");
    use fireteam::store::Store;
    assert!(store.load_advertisements(fireteam::domain::time::UnixMs(0)).await.expect("load").is_empty());
}
