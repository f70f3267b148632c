//! Operators cancel matches, dismiss tickets, and see why a user cannot queue; in every stage, through any server.

use std::sync::Arc;

use fireteam::config::{PostgresUrl, RulesetSource, StoreTarget};
use fireteam::domain::id::UserKey;
use fireteam_client::pb;
use pb::{TicketEndReason, TicketState};
use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection};
use tonic::{Code, Response};

use crate::support::database::{TestDatabase, create_test_database};
use crate::support::generated_client as wire;
use crate::support::queue_server::{QueuedParty, SET_ID, duel_ruleset, enter_request, wait_until};
use crate::support::ruleset_dir::OperatorClient;
use crate::support::test_server::{TestClock, TestServer};
use wire::ErrorReason;

const CHECKED: &str = r#"<ReadyCheck TimeoutMs="20000" DeclineCooldownMs="60000"/>"#;
const HOSTED: &str = r#"<Hosting Mode="game_server" AllocationTimeoutMs="600000"/>"#;

/// One server on SQLite, or two on Postgres. Players use the first, and operators the last.
pub(crate) struct Site {
    pub(crate) servers: Vec<TestServer>,
    folder: tempfile::TempDir,
    database: Option<TestDatabase>,
}

impl Site {
    async fn start(database: Option<TestDatabase>, ruleset: &str) -> Self {
        let folder = tempfile::tempdir().expect("create a temporary directory");
        let postgres = database.as_ref().map(|it| StoreTarget::Postgres(PostgresUrl::parse(&it.url).expect("a URL")));
        let stores = match postgres {
            None => vec![StoreTarget::Sqlite(folder.path().join("store.db"))],
            Some(store) => vec![store.clone(), store],
        };
        std::fs::create_dir(folder.path().join("rules")).expect("create a directory");
        std::fs::write(folder.path().join("rules/duel.xml"), ruleset).expect("write");
        let mut servers = Vec::new();
        let clock = Arc::new(TestClock::new());
        for store in stores {
            let path = folder.path().to_owned();
            let start = TestServer::start_on_clock(Arc::clone(&clock), move |config| {
                config.store = store;
                config.rulesets = RulesetSource::Directory(path.join("rules"));
                config.token_key_file = Some(path.join("token-key"));
                config.audit_log_file = Some(path.join("audit.jsonl"));
                config.max_silos = 1;
            });
            servers.push(start.await);
        }
        Self { servers, folder, database }
    }

    pub(crate) async fn on_sqlite(ruleset: &str) -> Self {
        Self::start(None, ruleset).await
    }

    pub(crate) async fn on_postgres(test: &str, ruleset: &str) -> Option<Self> {
        let database = create_test_database(test).await?;
        Some(Self::start(Some(database), ruleset).await)
    }

    async fn operator(&self) -> Operator {
        Operator(OperatorClient::connect(self.servers.last().expect("a server")).await)
    }

    /// Abandoned matches of a user, in stored ratings.
    pub(crate) async fn stored_abandoned_matches(&self, user: &str) -> i64 {
        let user = UserKey::from_name(user).as_bytes().to_vec();
        let total = "select coalesce(sum(abandoned_matches), 0)";
        match &self.database {
            None => {
                let url = format!("sqlite:{}", self.folder.path().join("store.db").display());
                let mut connection = SqliteConnection::connect(&url).await.expect("open the file");
                let text = AssertSqlSafe(format!("{total} from rating where user_key = $1"));
                sqlx::query_scalar(text).bind(user).fetch_one(&mut connection).await.expect("read")
            }
            Some(database) => {
                let key = sqlx::types::Uuid::from_slice(&user).expect("16 bytes");
                let text = AssertSqlSafe(format!("{total}::bigint from rating where user_key = $1"));
                sqlx::query_scalar(text).bind(key).fetch_one(&mut database.connect().await).await.expect("read")
            }
        }
    }

    pub(crate) async fn enter(&self, name: &str) -> QueuedParty {
        QueuedParty::enter(&self.servers[0], SET_ID, &[(name, 20.0)]).await
    }

    fn audit_log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("audit.jsonl")).expect("an audit log")
    }
}

struct Operator(OperatorClient);

impl Operator {
    async fn cancel(&mut self, id: &str) -> wire::CancelMatchResponse {
        let request = wire::CancelMatchRequest { match_id: id.to_owned(), reason: "its server crashed".to_owned() };
        self.0.0.cancel_match(request).await.expect("cancel").into_inner()
    }

    async fn dismiss(&mut self, party: &QueuedParty) -> Result<wire::DismissTicketResponse, tonic::Status> {
        let ticket_id = party.ticket.status.ticket_id.clone();
        let request = wire::DismissTicketRequest { ticket_id, reason: "a stuck party".to_owned() };
        self.0.0.dismiss_ticket(request).await.map(Response::into_inner)
    }

    async fn stage(&mut self, id: &str) -> wire::GetMatchResponse {
        self.0.0.get_match(wire::GetMatchRequest { match_id: id.to_owned() }).await.expect("an answer").into_inner()
    }

    async fn get_player(&mut self, user: &str) -> wire::GetPlayerResponse {
        let request = wire::GetPlayerRequest { user_id: user.to_owned(), ..Default::default() };
        self.get_player_with(request).await
    }

    async fn get_player_with(&mut self, request: wire::GetPlayerRequest) -> wire::GetPlayerResponse {
        self.0.0.get_player(request).await.expect("an answer").into_inner()
    }

    /// Reasons that the only set would refuse the user.
    async fn obstacles(&mut self, user: &str) -> Vec<ErrorReason> {
        let player = self.get_player(user).await;
        player.sets[0].obstacles.iter().map(wire::EntryObstacle::reason).collect()
    }
}

/// The match of a party in `state`.
async fn match_in(party: &mut QueuedParty, state: TicketState) -> String {
    party.wait_for_state(state).await.found_match.expect("a match").match_id
}

async fn accept(parties: [&mut QueuedParty; 2]) -> String {
    let mut id = String::new();
    for party in parties {
        id = party.respond_to_match(true).await;
    }
    id
}

/// S0-21: an operator frees players in every stage, without a penalty and without an invented result.
async fn operator_frees_players_in_every_stage(site: &Site) {
    let mut operator = site.operator().await;
    // Waiting.
    let mut ann = site.enter("ann").await;
    assert_eq!(operator.obstacles("ann").await, [ErrorReason::AlreadyQueued]);
    let player = operator.get_player("ann").await;
    assert_eq!(player.tickets[0].state(), wire::TicketState::Waiting);
    assert_eq!(player.tickets[0].expires_in_ms, Some(60_000));
    let dismissed = operator.dismiss(&ann).await.expect("dismiss");
    assert_eq!((dismissed.end_reason(), dismissed.had_ended), (wire::TicketEndReason::Cancelled, false));
    assert_eq!(ann.wait_for_end().await.end_reason(), TicketEndReason::Cancelled);
    let repeated = operator.dismiss(&ann).await.expect("dismiss");
    assert_eq!((repeated.end_reason(), repeated.had_ended), (wire::TicketEndReason::Cancelled, true));
    assert_eq!(operator.obstacles("ann").await, []);

    // Ready check: one ticket ends, the other waits again.
    let mut ann = site.enter("ann").await;
    let mut bob = site.enter("bob").await;
    let id = match_in(&mut ann, TicketState::Proposed).await;
    match_in(&mut bob, TicketState::Proposed).await;
    let seen = operator.stage(&id).await;
    assert_eq!((seen.stage(), seen.ends_in_ms), (wire::MatchStage::ReadyCheck, Some(20_000)));
    assert_eq!(operator.obstacles("bob").await, [ErrorReason::AlreadyInMatch, ErrorReason::AlreadyQueued]);
    operator.dismiss(&ann).await.expect("dismiss");
    assert_eq!(ann.wait_for_end().await.end_reason(), TicketEndReason::Cancelled);
    bob.wait_for_state(TicketState::Waiting).await;
    assert_eq!(operator.stage(&id).await.end_reason(), wire::MatchEndReason::Cancelled);

    // Placement: the match is cancelled, and both wait again.
    let mut ann = site.enter("ann").await;
    let placing = accept([&mut ann, &mut bob]).await;
    match_in(&mut ann, TicketState::Placing).await;
    match_in(&mut bob, TicketState::Placing).await;
    let seen = operator.stage(&placing).await;
    assert_eq!((seen.stage(), seen.ends_in_ms), (wire::MatchStage::Placing, Some(600_000)));
    let ticket = &seen.tickets[0].players[0];
    assert_eq!(ticket.acceptance(), wire::Acceptance::Accepted);
    let cancelled = operator.cancel(&placing).await;
    assert_eq!((cancelled.end_reason(), cancelled.had_ended), (wire::MatchEndReason::Cancelled, false));
    let again = operator.cancel(&placing).await;
    assert_eq!((again.end_reason(), again.had_ended), (wire::MatchEndReason::Cancelled, true));
    let next = accept([&mut ann, &mut bob]).await;
    assert_ne!(next, placing, "both wait again, and meet again");
    match_in(&mut ann, TicketState::Placing).await;
    match_in(&mut bob, TicketState::Placing).await;
    operator.dismiss(&bob).await.expect("dismiss");
    assert_eq!(bob.wait_for_end().await.end_reason(), TicketEndReason::Cancelled);
    ann.wait_for_state(TicketState::Waiting).await;
    for user in ["ann", "bob"] {
        assert_eq!(operator.get_player(user).await.penalties, [], "no one is penalized");
    }

    // The audit log has the reasons, and no account.
    let audit = site.audit_log();
    assert!(audit.contains(&format!("match {placing}: its server crashed")), "{audit}");
    assert!(audit.contains("OperatorService/DismissTicket") && audit.contains(": a stuck party"), "{audit}");
    assert!(audit.contains("OperatorService/GetPlayer") && !audit.contains("ann"), "{audit}");
}

/// S0-21: during play, an operator cancels the match: its players are free, and no result is accepted. A ticket alone cannot be
/// dismissed then.
async fn operator_cancels_a_match_during_play(site: &Site) {
    let mut operator = site.operator().await;
    let mut ann = site.enter("ann").await;
    let mut bob = site.enter("bob").await;
    let id = match_in(&mut ann, TicketState::Matched).await;
    match_in(&mut bob, TicketState::Matched).await;
    let player = operator.get_player("ann").await;
    let current = player.current_match.as_ref().expect("a match");
    assert_eq!((&*current.match_id, current.stage()), (&*id, wire::MatchStage::Playing));
    assert_eq!(current.ends_in_ms, Some(14_400_000));
    let obstacle = &player.sets[0].obstacles[0];
    assert_eq!((obstacle.reason(), &*obstacle.match_id), (ErrorReason::AlreadyInMatch, &*id));
    assert!(obstacle.message.contains("being played"), "{obstacle:?}");
    let by_key = wire::GetPlayerRequest { user_key: player.user_key.clone(), ..Default::default() };
    assert_eq!(operator.get_player_with(by_key).await.current_match.expect("a match").match_id, id);
    let refused = operator.dismiss(&ann).await.expect_err("being played");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains(&id) && refused.message().contains("CancelMatch"), "{refused}");

    let report = pb::ReportResultRequest {
        match_id: id.clone(),
        team_ranks: vec![pb::TeamRank { team: 0, rank: 1 }, pb::TeamRank { team: 1, rank: 2 }],
        ticket_token: ann.ticket.reference().ticket_token,
        ..Default::default()
    };
    assert_eq!(operator.cancel(&id).await.end_reason(), wire::MatchEndReason::Cancelled);
    ann.client.report_result(report).await.expect_err("a cancelled match has no result");
    // They wait again and meet again; both can leave and enter.
    assert!(ann.ticket.leave().await.expect("leave"));
    assert!(bob.ticket.leave().await.expect("leave"));
    assert_eq!(operator.obstacles("ann").await, []);
    ann.client.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("ann is free");
}

/// GetPlayer says each reason that Enter would be refused: cooldown, unknown set, silos.
async fn operator_sees_cooldowns_sets_and_silos(site: &Site) {
    let mut operator = site.operator().await;
    let mut ann = site.enter("ann").await;
    let mut bob = site.enter("bob").await;
    ann.respond_to_match(false).await;
    bob.wait_for_state(TicketState::Waiting).await;
    let player = operator.get_player("ann").await;
    assert_eq!(player.tickets, []);
    let penalty = &player.penalties[0];
    assert_eq!((penalty.matchmaking_set_id, penalty.level, penalty.cooldown_ms), (SET_ID, 1, Some(60_000)));
    let obstacle = &player.sets[0].obstacles[0];
    assert_eq!((obstacle.reason(), obstacle.ends_in_ms), (ErrorReason::QueueCooldown, Some(60_000)));

    let elsewhere = wire::GetPlayerRequest {
        user_id: "eve".to_owned(),
        matchmaking_set_id: Some(999),
        silo_id: 7,
        ..Default::default()
    };
    wait_until("the operator's server knows bob's ticket", async || {
        operator.get_player_with(elsewhere.clone()).await.silo.expect("a silo").open_silos == 1
    })
    .await;
    let player = operator.get_player_with(elsewhere).await;
    let silo = player.silo.expect("a silo");
    assert_eq!((silo.is_open, silo.open_silos, silo.max_silos, silo.max_silos_per_user), (false, 1, Some(1), Some(8)));
    let reasons: Vec<ErrorReason> = player.sets[0].obstacles.iter().map(wire::EntryObstacle::reason).collect();
    assert_eq!(reasons, [ErrorReason::UnknownMatchmakingSet, ErrorReason::TooManySilos]);
    assert_eq!((&*player.sets[0].name, player.sets[0].has_queue), ("", false));

    // Another silo is another queue, but only one silo may be open.
    let other_silo = wire::GetPlayerRequest { user_id: "bob".to_owned(), silo_id: 7, ..Default::default() };
    let player = operator.get_player_with(other_silo).await;
    let reasons: Vec<ErrorReason> = player.sets[0].obstacles.iter().map(wire::EntryObstacle::reason).collect();
    assert!(reasons.contains(&ErrorReason::TooManySilos), "{reasons:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_frees_players_in_every_stage_on_sqlite() {
    operator_frees_players_in_every_stage(&Site::on_sqlite(&duel_ruleset(&format!("{CHECKED}{HOSTED}"))).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_frees_players_in_every_stage_on_postgres() {
    let ruleset = duel_ruleset(&format!("{CHECKED}{HOSTED}"));
    let site = Site::on_postgres("operator_frees_players_in_every_stage_on_postgres", &ruleset).await;
    let Some(site) = site else { return };
    operator_frees_players_in_every_stage(&site).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_cancels_a_match_during_play_on_sqlite() {
    operator_cancels_a_match_during_play(&Site::on_sqlite(&duel_ruleset("")).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_cancels_a_match_during_play_on_postgres() {
    let site = Site::on_postgres("operator_cancels_a_match_during_play_on_postgres", &duel_ruleset("")).await;
    let Some(site) = site else { return };
    operator_cancels_a_match_during_play(&site).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_sees_cooldowns_sets_and_silos_on_sqlite() {
    operator_sees_cooldowns_sets_and_silos(&Site::on_sqlite(&duel_ruleset(CHECKED)).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_sees_cooldowns_sets_and_silos_on_postgres() {
    let site = Site::on_postgres("operator_sees_cooldowns_sets_and_silos_on_postgres", &duel_ruleset(CHECKED)).await;
    let Some(site) = site else { return };
    operator_sees_cooldowns_sets_and_silos(&site).await;
}

/// Unknown ids are NOT_FOUND; a missing or long reason, and a malformed user, name their field.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_calls_refuse_unknown_ids_and_missing_reasons() {
    let site = Site::on_sqlite(&duel_ruleset("")).await;
    let mut operator = site.operator().await;
    let id = "0f".repeat(16);
    let client = &mut operator.0.0;
    let cancel = |match_id: &str, reason: &str| wire::CancelMatchRequest {
        match_id: match_id.to_owned(),
        reason: reason.to_owned(),
    };
    assert_eq!(client.cancel_match(cancel(&id, "gone")).await.expect_err("unknown").code(), Code::NotFound);
    let dismiss = wire::DismissTicketRequest { ticket_id: id.clone(), reason: "gone".to_owned() };
    assert_eq!(client.dismiss_ticket(dismiss).await.expect_err("unknown").code(), Code::NotFound);
    let request = wire::GetMatchRequest { match_id: id.clone() };
    assert_eq!(client.get_match(request).await.expect_err("unknown").code(), Code::NotFound);
    for (match_id, reason, field) in
        [(&*id, " ", "reason"), (&*id, &*"x".repeat(257), "reason"), ("", "gone", "match_id")]
    {
        let error = client.cancel_match(cancel(match_id, reason)).await.expect_err("invalid");
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        assert!(error.message().contains(field), "{error}");
    }
    let both = wire::GetPlayerRequest { user_id: "ann".to_owned(), user_key: id, ..Default::default() };
    for request in [both, wire::GetPlayerRequest::default()] {
        let error = client.get_player(request).await.expect_err("invalid");
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        assert!(error.message().contains("user_id"), "{error}");
    }
}
