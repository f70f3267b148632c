//! Hoarding: a client has one advertisement of a kind and the seats of one session, a user few tickets. Newer ones take the place of
//! older ones, on SQLite and on two servers with one Postgres.

mod advertisements;
mod reservations;
mod tickets;

use std::collections::BTreeSet;
use std::sync::Arc;

use fireteam::auth::identity::Role;
use fireteam::config::{Config, PostgresUrl, RateLimitSetting, RulesetSource, StoreTarget};
use fireteam_client::{Client, Code, Error, TokenSource, pb};
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
                config.rate_limits = RateLimitSetting::Off;
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
    assert_eq!(error.as_server_error().and_then(|details| details.reason.clone()).as_deref(), Some(reason), "{error}");
    error
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
            hoarder[at].enter_queue(pb::QueueEnterRequest { idempotency_key: key, ..request }).await
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
