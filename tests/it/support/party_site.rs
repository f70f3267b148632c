//! Servers with caller identities on SQLite, or two on one Postgres; parties of players who consent.

use std::path::Path;
use std::sync::Arc;

use fireteam::auth::identity::Role;
use fireteam::clock::Clock as _;
use fireteam::config::{PostgresUrl, RateLimitSetting, RulesetSource, StoreTarget};
use fireteam_client::{Client, Code, Error, RetryPolicy, Ticket, pb};
use sqlx::{Connection as _, Executor as _, PgConnection, SqliteConnection};

use crate::support::database::{TestDatabase, create_test_database};
use crate::support::queue_server::{SET_ID, enter_request, wait_until};
use crate::support::test_server::{TestClock, TestServer};
use crate::support::tokens::TokenIssuer;

/// One server on SQLite, or two on Postgres, with identities and a ruleset that says nothing about consent.
pub(crate) struct PartySite {
    pub(crate) servers: Vec<TestServer>,
    pub(crate) issuer: TokenIssuer,
    pub(crate) clock: Arc<TestClock>,
    folder: tempfile::TempDir,
    database: Option<TestDatabase>,
}

/// Outage of the store: while it lasts, each write fails, and reads succeed.
pub(crate) enum StoreOutage {
    /// Another connection holds the write lock of the file.
    Sqlite(SqliteConnection),
    /// A transaction of another session locks the tables that the queues write.
    Postgres(PgConnection),
}

/// Two teams of two, with a ready check.
pub(crate) fn pairs_ruleset(more: &str) -> String {
    format!(
        r#"<Ruleset Name="Pairs" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <Teams Count="2" Size="2"/>
  <Queue PassIntervalMs="10"><RatingWindow Start="2" Max="2"/></Queue>
  {more}
</Ruleset>"#
    )
}

impl PartySite {
    pub(crate) async fn on_sqlite(ruleset: &str) -> Self {
        Self::start(None, ruleset).await
    }

    pub(crate) async fn on_postgres(test: &str, ruleset: &str) -> Option<Self> {
        let database = create_test_database(test).await?;
        Some(Self::start(Some(database), ruleset).await)
    }

    async fn start(database: Option<TestDatabase>, ruleset: &str) -> Self {
        let folder = tempfile::tempdir().expect("create a temporary directory");
        let clock = Arc::new(TestClock::new());
        let issuer = TokenIssuer::new(&*clock);
        let postgres = database.as_ref().map(|it| StoreTarget::Postgres(PostgresUrl::parse(&it.url).expect("a URL")));
        let stores = match postgres {
            None => vec![StoreTarget::Sqlite(folder.path().join("store.db"))],
            Some(store) => vec![store.clone(), store],
        };
        std::fs::create_dir(folder.path().join("rules")).expect("create a directory");
        std::fs::write(folder.path().join("rules/pairs.xml"), ruleset).expect("write");
        let mut servers = Vec::new();
        for store in stores {
            let (path, auth) = (folder.path().to_owned(), issuer.write_jwt_settings(folder.path()));
            let start = TestServer::start_on_clock(Arc::clone(&clock), move |config| {
                config.store = store;
                config.auth = Some(auth);
                // Tests ask more often than a player's client may.
                config.rate_limits = RateLimitSetting::Off;
                config.rulesets = RulesetSource::Directory(path.join("rules"));
                config.token_key_file = Some(path.join("token-key"));
            });
            servers.push(start.await);
        }
        Self { servers, issuer, clock, folder, database }
    }

    /// Makes the store refuse writes, and returns when each server has noticed.
    pub(crate) async fn begin_outage(&self) -> StoreOutage {
        let outage = match &self.database {
            None => {
                let mut connection = self.connect_to_file().await;
                connection.execute("begin immediate").await.expect("lock");
                StoreOutage::Sqlite(connection)
            }
            Some(database) => {
                let mut connection = database.connect().await;
                let tables = "ticket, match, block_list, advertisement, server_alive, outage_interval, statistic";
                connection.execute("begin").await.expect("begin");
                let lock = format!("lock table {tables} in exclusive mode");
                connection.execute(sqlx::AssertSqlSafe(lock)).await.expect("lock");
                StoreOutage::Postgres(connection)
            }
        };
        for server in &self.servers {
            let refused = self.try_to_write(server).await.expect_err("the store refuses writes");
            assert_eq!(refused.code(), Some(Code::Unavailable), "{refused}");
        }
        outage
    }

    /// Ends an outage, and returns when each server has noticed.
    pub(crate) async fn end_outage(&self, outage: StoreOutage) {
        match outage {
            StoreOutage::Sqlite(mut connection) => connection.execute("rollback").await.map(|_| ()),
            StoreOutage::Postgres(mut connection) => connection.execute("rollback").await.map(|_| ()),
        }
        .expect("rollback");
        for server in &self.servers {
            wait_until("the server writes again", async || self.try_to_write(server).await.is_ok()).await;
        }
    }

    /// Folder of the SQLite file, rulesets and keys.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Database of the Postgres store.
    pub(crate) fn database(&self) -> Option<&TestDatabase> {
        self.database.as_ref()
    }

    /// Waits until each server has said in the store that it lives, at the clock's present time.
    pub(crate) async fn wait_for_signs_of_life(&self) {
        let now_ms = self.clock.now().0;
        let query = format!("select count(*) from server_alive where alive_ms >= {now_ms}");
        wait_until("each server says that it lives", async || {
            usize::try_from(self.count_rows(&query).await) == Ok(self.servers.len())
        })
        .await;
    }

    /// Result of a query of one number, on the store.
    pub(crate) async fn count_rows(&self, query: &str) -> i64 {
        let query = sqlx::AssertSqlSafe(query.to_owned());
        let count = match &self.database {
            None => sqlx::query_scalar(query).fetch_one(&mut self.connect_to_file().await).await,
            Some(database) => sqlx::query_scalar(query).fetch_one(&mut database.connect().await).await,
        };
        count.expect("count")
    }

    /// Changes rows of the store.
    pub(crate) async fn execute(&self, statement: &str) {
        let statement = sqlx::AssertSqlSafe(statement.to_owned());
        match &self.database {
            None => self.connect_to_file().await.execute(statement).await.map(drop),
            Some(database) => database.connect().await.execute(statement).await.map(drop),
        }
        .expect("execute");
    }

    /// Connection to the file of the SQLite store.
    async fn connect_to_file(&self) -> SqliteConnection {
        let file = self.folder.path().join("store.db");
        SqliteConnection::connect(&format!("sqlite:{}", file.display())).await.expect("connect")
    }

    /// Makes a server write: a player enters the queue and leaves it.
    async fn try_to_write(&self, server: &TestServer) -> Result<(), Error> {
        let client = self.issuer.client_with_token(server, Role::GameServer, "prober").await;
        let client = client.with_retry_policy(RetryPolicy::NEVER);
        let mut ticket = client.enter_queue(enter_request(SET_ID, &[("prober", 49.0)])).await?;
        ticket.leave().await.map(|_| ())
    }

    /// The first server restarts.
    pub(crate) async fn restart_first(&mut self) {
        let first = self.servers.remove(0);
        self.servers.insert(0, first.restart().await);
    }

    /// Client of a player, at the first server.
    pub(crate) async fn player(&self, name: &str) -> Client {
        self.issuer.client_with_token(&self.servers[0], Role::Client, name).await
    }

    /// Client of a player at the last server: on Postgres another one than the first.
    pub(crate) async fn player_elsewhere(&self, name: &str) -> Client {
        self.issuer.client_with_token(self.servers.last().expect("a server"), Role::Client, name).await
    }

    /// Client of a game's backend, at the first server.
    pub(crate) async fn backend(&self) -> Client {
        self.issuer.client_with_token(&self.servers[0], Role::GameServer, "eu-1").await
    }

    /// Client of another backend than [`backend`](Self::backend), which hosts sessions, at the first server.
    pub(crate) async fn host(&self) -> Client {
        self.issuer.client_with_token(&self.servers[0], Role::GameServer, "eu-2").await
    }

    /// Consent of `member` for the party of `leader`.
    pub(crate) async fn consent(&self, member: &str, leader: &str, may_answer: bool, r#use: pb::ConsentUse) -> Vec<u8> {
        let request = pb::MatchmakingGrantConsentRequest {
            leader_user_id: leader.to_owned(),
            matchmaking_set_id: Some(SET_ID),
            r#use: r#use.into(),
            may_answer,
        };
        self.player(member).await.grant_party_consent(request).await.expect("consent").consent_token
    }

    /// Enters `leader` with `member`, who consented.
    pub(crate) async fn enter_pair(&self, leader: &str, member: &str, may_answer: bool) -> Ticket {
        let token = self.consent(member, leader, may_answer, pb::ConsentUse::Queue).await;
        let request = enter_pair_request(leader, (member, &token), "");
        self.player(leader).await.enter_queue(request).await.expect("enter")
    }

    /// Enters two players through the backend, as opponents.
    pub(crate) async fn enter_opponents(&self) -> Ticket {
        let request = enter_request(SET_ID, &[("olga", 20.0), ("otto", 20.0)]);
        self.backend().await.enter_queue(request).await.expect("enter")
    }

    /// Ends each server.
    pub(crate) async fn shut_down(self) {
        for server in self.servers {
            server.app.shutdown().await;
        }
    }
}

/// Request to enter a leader and a member with this consent. Without a key the client draws one.
pub(crate) fn enter_pair_request(leader: &str, (member, token): (&str, &[u8]), key: &str) -> pb::QueueEnterRequest {
    let mut request = enter_request(SET_ID, &[(leader, 20.0), (member, 20.0)]);
    let players = request.session_composition.iter_mut().flat_map(|session| &mut session.players);
    for player in players.filter(|player| player.user_id == member) {
        player.consent_token = token.to_vec();
    }
    pb::QueueEnterRequest { idempotency_key: key.to_owned(), ..request }
}

/// Request with an operator's token.
pub(crate) fn by_operator<T>(site: &PartySite, message: T) -> tonic::Request<T> {
    site.issuer.operator_request("ops", message)
}

/// Waits until a ticket is in `state`; each look is a heartbeat of its holder.
pub(crate) async fn wait_for_state(ticket: &mut Ticket, state: pb::TicketState) -> pb::TicketStatus {
    wait_until("a state of the ticket", async || ticket.heartbeat().await.expect("heartbeat").state() == state).await;
    ticket.status.clone()
}

/// Waits until a pass has refused a player's ticket by this rule. Only the server that runs the passes says so.
pub(crate) async fn wait_for_rule(site: &PartySite, user: &str, rule: &str) {
    let clients = [site.player(user).await, site.player_elsewhere(user).await];
    wait_until("a pass has refused the ticket", async || {
        let mut is_refused = false;
        for client in &clients {
            let (own, _) = client.own_tickets_and_cooldowns().await.expect("mine");
            // The other server may not know the ticket yet.
            let Some(ticket) = own.first() else { continue };
            assert_eq!(ticket.status.state(), pb::TicketState::Waiting, "{:?}", ticket.status);
            is_refused |= ticket.status.blocking_rule == rule;
        }
        is_refused
    })
    .await;
}

/// Reason of a refused call.
pub(crate) fn reason(error: &Error) -> &str {
    error.as_server_error().and_then(|status| status.reason.as_deref()).unwrap_or_default()
}

/// Tests of scenarios of a site: each on SQLite, and through two servers on one Postgres.
macro_rules! on_each_store {
    ($($scenario:ident, $ruleset:expr, $sqlite:ident, $postgres:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $sqlite() {
            $scenario($crate::support::party_site::PartySite::on_sqlite(&$ruleset).await).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $postgres() {
            let test = stringify!($postgres);
            if let Some(site) = $crate::support::party_site::PartySite::on_postgres(test, &$ruleset).await {
                $scenario(site).await;
            }
        }
    )*};
}

pub(crate) use on_each_store;
