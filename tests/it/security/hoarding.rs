//! Hoarding: a client has one advertisement of a kind and the seats of one session, a user few tickets. Newer ones take the place of
//! older ones, on SQLite and on two servers with one Postgres.

use std::collections::BTreeSet;
use std::sync::Arc;

use fireteam::auth::identity::Role;
use fireteam::config::{Config, PostgresUrl, RateLimitRules, RulesetSource, StoreTarget};
use fireteam_client::{Client, Code, Error, HostEvent, TokenSource, pb};
use sqlx::Row as _;

use crate::support::database::{TestDatabase, create_test_database};
use crate::support::queue_server::{enter_request, wait_until};
use crate::support::test_server::{TestClock, TestServer, party_session};
use crate::support::tokens::TokenIssuer;

/// Set without further rules; clients of one account count as one.
const OPEN_SET: u32 = 1;
/// The same set, in which an account may have two clients.
const TWO_CLIENTS_SET: u32 = 2;
/// First of five sets with a queue that allows others beside it.
const FIRST_QUEUE_SET: u32 = 11;

fn open_ruleset(set_id: u32, limits: &str) -> String {
    format!(
        r#"<Ruleset Name="Open {set_id}" SetId="{set_id}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <SoftFilters><SoftFilter Attribute="skill" Weight="100%"/></SoftFilters>
  {limits}
  <Party Consent="assumed"/>
</Ruleset>"#
    )
}

fn queue_ruleset(set_id: u32) -> String {
    format!(
        r#"<Ruleset Name="Queue {set_id}" SetId="{set_id}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <Party Consent="assumed"/>
  <Teams Count="2" Size="3"/>
  <Queue PassIntervalMs="1000" AllowOtherQueues="true"><RatingWindow Start="2" Max="2"/></Queue>
</Ruleset>"#
    )
}

/// Servers on one store, with authentication and without rate limits.
struct Site {
    servers: Vec<TestServer>,
    issuer: TokenIssuer,
    database: Option<TestDatabase>,
    _folder: tempfile::TempDir,
}

impl Site {
    async fn start(database: Option<TestDatabase>, change: impl Fn(&mut Config)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = folder.path().join("rules");
        std::fs::create_dir(&rules).expect("a folder");
        let queues = FIRST_QUEUE_SET..FIRST_QUEUE_SET + 5;
        let mut files: Vec<String> = queues.map(queue_ruleset).collect();
        files.push(open_ruleset(OPEN_SET, ""));
        files.push(open_ruleset(TWO_CLIENTS_SET, r#"<Limits ClientsPerAccount="2"/>"#));
        for (number, text) in files.iter().enumerate() {
            std::fs::write(rules.join(format!("{number}.xml")), text).expect("write");
        }
        let clock = Arc::new(TestClock::new());
        let issuer = TokenIssuer::new(&*clock);
        let auth = issuer.write_jwt_settings(folder.path());
        let stores = match &database {
            None => vec![StoreTarget::Sqlite(folder.path().join("store.db"))],
            Some(it) => vec![StoreTarget::Postgres(PostgresUrl::parse(&it.url).expect("a URL")); 2],
        };
        let mut servers = Vec::new();
        for store in stores {
            let start = TestServer::start_on_clock(Arc::clone(&clock), |config| {
                config.store = store;
                config.rulesets = RulesetSource::Directory(rules.clone());
                config.auth = Some(auth.clone());
                config.rate_limits = RateLimitRules::Off;
                config.token_key_file = Some(folder.path().join("token-key"));
                change(config);
            });
            servers.push(start.await);
        }
        Self { servers, issuer, database, _folder: folder }
    }

    async fn on_sqlite() -> Self {
        Self::start(None, |_| {}).await
    }

    async fn on_postgres(test: &str) -> Option<Self> {
        Some(Self::start(Some(create_test_database(test).await?), |_| {}).await)
    }

    fn last(&self) -> &TestServer {
        self.servers.last().expect("a server")
    }

    /// Client of `server` with the identity of `user`.
    async fn client_of(&self, server: &TestServer, role: Role, user: &str) -> Client {
        let token = TokenSource::fixed(&self.issuer.sign_token(role, user)).expect("a token");
        server.client().await.with_token_source(token)
    }

    /// Client of the first server, a player's game.
    async fn player(&self, user: &str) -> Client {
        self.client_of(&self.servers[0], Role::Client, user).await
    }

    /// Client of the last server, a player's game.
    async fn player_elsewhere(&self, user: &str) -> Client {
        self.client_of(self.last(), Role::Client, user).await
    }

    /// Ids of the sessions of `set` that `watcher` finds at the last server.
    async fn found_by(&self, watcher: &str, set: u32) -> BTreeSet<String> {
        let client = self.player_elsewhere(watcher).await;
        let found = client.search(search_request(set, watcher)).await.expect("a search");
        found.candidates.into_iter().map(|candidate| candidate.advertisement_id).collect()
    }

    /// Number of rows that the query finds, on Postgres.
    async fn count(&self, query: &'static str) -> i64 {
        let database = self.database.as_ref().expect("a database");
        let mut connection = database.connect().await;
        sqlx::query(query).fetch_one(&mut connection).await.expect("a count").get(0)
    }
}

fn advertise(set: u32, user: &str, player: &str, seats: i32, key: &str) -> pb::MatchmakingUpdateAdvertisementRequest {
    let mut session = party_session(&[(user, 20.0)]);
    session.players[0].player_id = player.to_owned();
    session.max_allowed_join_reservation_count = Some(seats);
    pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(set),
        session_composition: Some(session),
        time_to_live_ms: Some(600_000),
        connect_data: b"victim.example:7777".to_vec(),
        idempotency_key: format!("{user} advertises by {key}"),
        ..Default::default()
    }
}

fn search_request(set: u32, user: &str) -> pb::MatchmakingSearchRequest {
    pb::MatchmakingSearchRequest {
        matchmaking_set_id: Some(set),
        session_composition: Some(party_session(&[(user, 20.0)])),
        ..Default::default()
    }
}

/// Reserves at `id` for the party of `users`, the first of whom is the caller.
async fn reserve(
    client: &Client,
    set: u32,
    id: &str,
    users: &[&str],
    key: &str,
) -> Result<pb::MatchmakingReserveResponse, Error> {
    let party: Vec<(&str, f64)> = users.iter().map(|user| (*user, 20.0)).collect();
    let search = pb::MatchmakingSearchRequest {
        session_composition: Some(party_session(&party)),
        ..search_request(set, users[0])
    };
    let found = client.search(search.clone()).await.expect("a search");
    let request = pb::MatchmakingReserveRequest {
        advertisement_id: id.to_owned(),
        idempotency_key: format!("{} reserves by {key}", users[0]),
        search_token: found.search_token,
        session_composition: search.session_composition,
        hold_for_ms: Some(120_000),
        ..Default::default()
    };
    client.reserve(request).await
}

/// Heartbeat of an advertisement.
async fn heartbeat(
    client: &Client,
    published: &pb::MatchmakingUpdateAdvertisementResponse,
) -> Result<pb::MatchmakingUpdateAdvertisementResponse, Error> {
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: published.advertisement_id.clone(),
        advertisement_token: published.advertisement_token.clone(),
        ..Default::default()
    };
    client.update_advertisement(request).await
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T, Error>, code: Code, reason: &str) -> Error {
    let error = result.expect_err("refused");
    assert_eq!(error.code(), Some(code), "{error}");
    assert_eq!(error.server_error().and_then(|details| details.reason.clone()).as_deref(), Some(reason), "{error}");
    error
}

/// Failure 5: one client held the seats of 40 of 40 sessions, and renewed them for as long as it liked.
async fn hold_seats_of_forty_sessions(site: Site) {
    const SESSIONS: usize = 40;
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        let (user, client) = (format!("host {number}"), site.player(&format!("host {number}")).await);
        let published = client.update_advertisement(advertise(OPEN_SET, &user, &user, 1, "itself")).await;
        sessions.push((client, published.expect("published")));
    }
    let ids: BTreeSet<String> = sessions.iter().map(|(_, session)| session.advertisement_id.clone()).collect();
    wait_until("the last server has all sessions", async || site.found_by("watcher", OPEN_SET).await == ids).await;
    let hoarder = site.player("hoarder").await;
    let mut last = None;
    for round in 0..2 {
        for (_, session) in &sessions {
            let key = format!("round {round} at {}", session.advertisement_id);
            let held = reserve(&hoarder, OPEN_SET, &session.advertisement_id, &["hoarder"], &key).await;
            last = held.expect("the newer reservation takes the older one's place").reservation;
        }
    }
    let last = last.expect("a reservation").reservation_id;
    let mut held = Vec::new();
    for (client, session) in &sessions {
        held.extend(heartbeat(client, session).await.expect("a heartbeat").reservations);
    }
    assert_eq!(held.iter().map(|it| &it.reservation_id).collect::<Vec<_>>(), [&last], "of {SESSIONS} sessions");
    let mut open = ids;
    open.remove(&sessions[SESSIONS - 1].1.advertisement_id);
    wait_until("every other session is open", async || site.found_by("watcher", OPEN_SET).await == open).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_holds_the_seats_of_one_session() {
    hold_seats_of_forty_sessions(Site::on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_holds_the_seats_of_one_session_over_two_servers() {
    let test = "client_holds_the_seats_of_one_session_over_two_servers";
    let Some(site) = Site::on_postgres(test).await else { return };
    hold_seats_of_forty_sessions(site).await;
}

/// Failure 5: one client published 74 ten-minute sessions with connect data of its choice.
async fn publish_seventy_four_sessions(site: Site) {
    let spammer = [site.player("spammer").await, site.player_elsewhere("spammer").await];
    let first = spammer[0].update_advertisement(advertise(OPEN_SET, "spammer", "spammer", 3, "0")).await.expect("one");
    let mut last = first.clone();
    for number in 1..74 {
        let request = advertise(OPEN_SET, "spammer", "spammer", 3, &number.to_string());
        last = spammer[number % 2].update_advertisement(request).await.expect("the newer takes the older one's place");
    }
    let only = BTreeSet::from([last.advertisement_id.clone()]);
    wait_until("one session is found", async || site.found_by("watcher", OPEN_SET).await == only).await;

    // Nothing brings the older one back: no heartbeat, no update by its token, no retry of its create.
    for client in &spammer {
        wait_until("the older one has no heartbeat", async || {
            heartbeat(client, &first).await.is_err_and(|error| error.code() == Some(Code::NotFound))
        })
        .await;
        let update = pb::MatchmakingUpdateAdvertisementRequest {
            advertisement_id: first.advertisement_id.clone(),
            advertisement_token: first.advertisement_token.clone(),
            ..advertise(OPEN_SET, "spammer", "spammer", 3, "0")
        };
        let late = client.update_advertisement(update).await;
        assert_refused(late, Code::FailedPrecondition, "ADVERTISEMENT_DELETED");
        let retried = client.update_advertisement(advertise(OPEN_SET, "spammer", "spammer", 3, "0")).await;
        assert_refused(retried, Code::FailedPrecondition, "ADVERTISEMENT_DELETED");
        heartbeat(client, &last).await.expect("the newer one lives");
    }
    assert_eq!(site.found_by("watcher", OPEN_SET).await, only);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_advertises_one_session() {
    publish_seventy_four_sessions(Site::on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_advertises_one_session_over_two_servers() {
    let Some(site) = Site::on_postgres("client_advertises_one_session_over_two_servers").await else { return };
    publish_seventy_four_sessions(site).await;
}

/// A crash leaves nothing behind that stands in the way: the game starts again, publishes again and reserves again in the
/// same session. Its host receives both events. The same after the server was restarted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newer_reservation_takes_the_place_of_the_older_in_the_same_session() {
    let mut site = Site::on_sqlite().await;
    let host = site.player("host").await;
    let (connection, mut events) = host.open_stream().await.expect("a stream");
    let session = connection.advertise(advertise(OPEN_SET, "host", "host", 1, "itself")).await.expect("published");
    let id = session.id().to_owned();
    let guest = site.player("guest").await;
    let first = reserve(&guest, OPEN_SET, &id, &["guest"], "first").await.expect("a seat").reservation.expect("it");
    let again = reserve(&guest, OPEN_SET, &id, &["guest"], "first").await.expect("a retry").reservation.expect("it");
    assert_eq!(first.reservation_id, again.reservation_id);
    let second = reserve(&guest, OPEN_SET, &id, &["guest"], "second").await.expect("the only seat");
    let second = second.reservation.expect("it").reservation_id;
    let late = reserve(&guest, OPEN_SET, &id, &["guest"], "first").await;
    assert_refused(late, Code::FailedPrecondition, "RESERVATION_ENDED");
    let mut told = Vec::new();
    while told.len() < 3 {
        if let HostEvent::Reservation(event) = events.next_event().await.expect("an event") {
            told.push((event.reservation.expect("it").reservation_id, event.state));
        }
    }
    let state = |state: pb::ReservationState| i32::from(state);
    let expected = [
        (first.reservation_id.clone(), state(pb::ReservationState::Held)),
        (first.reservation_id, state(pb::ReservationState::Released)),
        (second.clone(), state(pb::ReservationState::Held)),
    ];
    assert_eq!(told, expected);

    drop((connection, events, host, guest));
    let server = site.servers.remove(0).restart().await;
    site.servers.push(server);
    let guest = site.player("guest").await;
    let third = reserve(&guest, OPEN_SET, &id, &["guest"], "third").await.expect("the only seat, after a restart");
    let host = site.player("host").await;
    let token = session.token().to_vec();
    let published = pb::MatchmakingUpdateAdvertisementResponse {
        advertisement_id: id,
        advertisement_token: token,
        ..Default::default()
    };
    let reservations = heartbeat(&host, &published).await.expect("a heartbeat").reservations;
    let ids: Vec<String> = reservations.into_iter().map(|it| it.reservation_id).collect();
    assert_eq!(ids, [third.reservation.expect("it").reservation_id]);
    let newer = host.update_advertisement(advertise(OPEN_SET, "host", "host", 1, "again")).await.expect("a newer one");
    assert_eq!(site.found_by("watcher", OPEN_SET).await, BTreeSet::from([newer.advertisement_id]));
}

/// Members of one party hold its seats once, also if several of them reserve. Another party of one of them is another party.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn party_holds_its_seats_once_if_two_members_reserve() {
    let site = Site::on_sqlite().await;
    let mut sessions = Vec::new();
    for number in 0..3 {
        let user = format!("host {number}");
        let client = site.player(&user).await;
        let published = client.update_advertisement(advertise(OPEN_SET, &user, &user, 4, "itself")).await;
        sessions.push((client, published.expect("published")));
    }
    let id = |number: usize| sessions[number].1.advertisement_id.as_str();
    let (leader, member) = (site.player("leader").await, site.player("member").await);
    reserve(&leader, OPEN_SET, id(0), &["leader", "member"], "a").await.expect("two seats");
    reserve(&member, OPEN_SET, id(1), &["member", "leader"], "b").await.expect("the same party elsewhere");
    reserve(&member, OPEN_SET, id(2), &["member"], "c").await.expect("the member alone");
    let mut seats = Vec::new();
    for (client, published) in &sessions {
        let held = heartbeat(client, published).await.expect("a heartbeat").reservations;
        seats.push(held.iter().map(|it| it.seats).collect::<Vec<_>>());
    }
    assert_eq!(seats, [vec![], vec![], vec![1]]);
}

/// A reservation that is refused changes nothing: the older one stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_reservation_replaces_nothing() {
    let site = Site::on_sqlite().await;
    let (host, full) = (site.player("host").await, site.player("full").await);
    let open = host.update_advertisement(advertise(OPEN_SET, "host", "host", 1, "itself")).await.expect("published");
    let taken = full.update_advertisement(advertise(OPEN_SET, "full", "full", 0, "itself")).await.expect("published");
    let guest = site.player("guest").await;
    let held = reserve(&guest, OPEN_SET, &open.advertisement_id, &["guest"], "a").await.expect("a seat");
    let refused = reserve(&guest, OPEN_SET, &taken.advertisement_id, &["guest"], "b").await;
    assert_refused(refused, Code::FailedPrecondition, "SEATS_TAKEN");
    let left = heartbeat(&host, &open).await.expect("a heartbeat").reservations;
    assert_eq!(left[0].reservation_id, held.reservation.expect("it").reservation_id);
}

/// If the ruleset lets an account have two clients, each has its own; a third takes the place of the oldest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_one_account_are_counted_apart_where_the_ruleset_says_so() {
    let site = Site::on_sqlite().await;
    let client = site.player("ada").await;
    let publish = async |set: u32, player: &str, key: &str| {
        site.servers[0].clock.advance_ms(1);
        let published = client.update_advertisement(advertise(set, "ada", player, 1, key)).await.expect("published");
        published.advertisement_id
    };
    let pc = publish(TWO_CLIENTS_SET, "pc", "1").await;
    let phone = publish(TWO_CLIENTS_SET, "phone", "2").await;
    assert_eq!(site.found_by("watcher", TWO_CLIENTS_SET).await, BTreeSet::from([pc, phone.clone()]));
    let pc = publish(TWO_CLIENTS_SET, "pc", "3").await;
    assert_eq!(site.found_by("watcher", TWO_CLIENTS_SET).await, BTreeSet::from([pc.clone(), phone]));
    let tablet = publish(TWO_CLIENTS_SET, "tablet", "4").await;
    assert_eq!(site.found_by("watcher", TWO_CLIENTS_SET).await, BTreeSet::from([pc, tablet]));
    // A set with one client per account counts the advertisements of all sets.
    let one = publish(OPEN_SET, "pc", "5").await;
    assert_eq!(site.found_by("watcher", TWO_CLIENTS_SET).await, BTreeSet::new());
    assert_eq!(site.found_by("watcher", OPEN_SET).await, BTreeSet::from([one]));
}

/// A game server has many advertisements, up to its limit; the refusal names the setting. Its own updates are not refused. It
/// reserves for many parties.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn game_server_is_refused_beyond_its_limit() {
    let site = Site::start(None, |config| config.max_advertisements_per_server = 3).await;
    let server = site.client_of(&site.servers[0], Role::GameServer, "fleet").await;
    let mut published = Vec::new();
    for number in 0..3 {
        let user = format!("guest {number}");
        let one = server.update_advertisement(advertise(OPEN_SET, &user, &user, 4, "itself")).await;
        published.push(one.expect("published"));
    }
    let beyond = server.update_advertisement(advertise(OPEN_SET, "guest 3", "guest 3", 4, "itself")).await;
    let error = assert_refused(beyond, Code::ResourceExhausted, "TOO_MANY_ADVERTISEMENTS");
    let metadata = &error.server_error().expect("details").metadata;
    assert_eq!(metadata.get("limit").map(String::as_str), Some("3"));
    assert_eq!(metadata.get("setting").map(String::as_str), Some("max_advertisements_per_server"));
    let again = server.update_advertisement(advertise(OPEN_SET, "guest 0", "guest 0", 4, "itself")).await;
    assert!(!again.expect("a repeated create").created);
    heartbeat(&server, &published[2]).await.expect("a heartbeat");

    let backend = site.client_of(&site.servers[0], Role::GameServer, "backend").await;
    for party in ["a", "b", "c"] {
        let id = &published[0].advertisement_id;
        reserve(&backend, OPEN_SET, id, &[party], party).await.expect("servers reserve for others");
    }
    assert_eq!(heartbeat(&server, &published[0]).await.expect("a heartbeat").reservations.len(), 3);

    let delete = pb::MatchmakingDeleteAdvertisementRequest {
        advertisement_id: published[1].advertisement_id.clone(),
        advertisement_token: published[1].advertisement_token.clone(),
    };
    server.delete_advertisement(delete).await.expect("deleted");
    let next = server.update_advertisement(advertise(OPEN_SET, "guest 3", "guest 3", 4, "itself")).await;
    assert!(next.expect("there is room").created);
}

/// Request of `users` to enter the queue of the set with this number.
fn enter(number: u32, users: &[&str]) -> pb::QueueEnterRequest {
    let players: Vec<(&str, f64)> = users.iter().map(|user| (*user, 20.0)).collect();
    pb::QueueEnterRequest {
        session_composition: Some(party_session(&players)),
        idempotency_key: format!("{users:?} in queue {number}"),
        ..enter_request(FIRST_QUEUE_SET + number, &[])
    }
}

/// A user waits in four queues. A client learns so of its own user only; game servers enter users without the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_waits_in_four_queues() {
    let site = Site::on_sqlite().await;
    let (ada, bob) = (site.player("ada").await, site.player("bob").await);
    let mut tickets = Vec::new();
    for number in 0..4 {
        tickets.push(ada.enter(enter(number, &["ada"])).await.expect("a ticket"));
    }
    let error = assert_refused(ada.enter(enter(4, &["ada"])).await, Code::ResourceExhausted, "TOO_MANY_TICKETS");
    let metadata = &error.server_error().expect("details").metadata;
    let value = |key: &str| metadata.get(key).cloned().unwrap_or_default();
    assert_eq!([value("player"), value("limit"), value("setting")], ["0", "4", "max_tickets_per_user"]);
    let other = bob.enter(enter(4, &["bob", "ada"])).await.expect_err("ada has too many");
    assert_ne!(other.server_error().and_then(|it| it.reason.clone()).as_deref(), Some("TOO_MANY_TICKETS"));
    assert_eq!(ada.enter(enter(3, &["ada"])).await.expect("a repeated enter").id(), tickets[3].id());

    let backend = site.client_of(&site.servers[0], Role::GameServer, "backend").await;
    backend.enter(enter(4, &["ada"])).await.expect("servers enter for others");
    let again = || pb::QueueEnterRequest { idempotency_key: "once more".into(), ..enter(0, &["ada"]) };
    assert!(tickets[0].leave().await.expect("left"));
    assert_refused(ada.enter(again()).await, Code::ResourceExhausted, "TOO_MANY_TICKETS");
    assert!(tickets[1].leave().await.expect("left"));
    ada.enter(again()).await.expect("there is room");
}

/// Two servers on one Postgres decide at the same time: there is one advertisement, one reservation, and no user has more
/// tickets than the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_servers_count_one_owner_together() {
    const ROUNDS: u32 = 20;
    let Some(site) = Site::on_postgres("racing_servers_count_one_owner_together").await else { return };
    let hoarder = [site.player("hoarder").await, site.player_elsewhere("hoarder").await];
    let mut sessions = Vec::new();
    for number in 0..2 {
        let user = format!("host {number}");
        let client = site.player(&user).await;
        let published = client.update_advertisement(advertise(OPEN_SET, &user, &user, 4, "itself")).await;
        sessions.push(published.expect("published").advertisement_id);
    }
    let all: BTreeSet<String> = sessions.iter().cloned().collect();
    wait_until("both servers have the sessions", async || site.found_by("watcher", OPEN_SET).await == all).await;
    for round in 0..ROUNDS {
        let publish = async |at: usize| {
            let request = advertise(OPEN_SET, "hoarder", "hoarder", 1, &format!("{round} at {at}"));
            hoarder[at].update_advertisement(request).await
        };
        let hold = async |at: usize| {
            let key = format!("{round} at {at}");
            reserve(&hoarder[at], OPEN_SET, &sessions[at], &["hoarder"], &key).await
        };
        let enter = async |at: usize| {
            let request = enter(round % 3 + 2 * at as u32, &["hoarder"]);
            let key = format!("round {round} at {at}");
            hoarder[at].enter(pb::QueueEnterRequest { idempotency_key: key, ..request }).await
        };
        let results = tokio::join!(publish(0), publish(1), hold(0), hold(1), enter(0), enter(1));
        results.0.expect("published");
        results.1.expect("published");
        results.2.expect("reserved");
        results.3.expect("reserved");
        let count = site.count("select count(*) from advertisement where body is not null").await;
        assert_eq!(count, 3, "two hosts, and one of the hoarder, in round {round}");
        assert_eq!(site.count("select count(*) from reservation where state <> 2").await, 1, "in round {round}");
        assert!(site.count("select count(*) from ticket where state = 0").await <= 4, "in round {round}");
    }
    assert_eq!(site.count("select count(*) from ticket where state = 0").await, 4);
}
