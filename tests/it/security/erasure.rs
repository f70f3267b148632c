//! Erasure and export of a user, over the wire: no table, file, log, metric or answer names an erased user, and what others
//! have stays as it is.

use std::path::Path;

use fireteam::domain::id::UserKey;
use fireteam_client::{Advertisement, Client, Ticket, pb};
use sqlx::{AssertSqlSafe, PgConnection};
use tonic::Code;

use crate::rating::results_and_leaderboards::{rank, rated_duel, rating};
use crate::support::database::{TestDatabase, create_test_database};
use crate::support::generated_client as wire;
use crate::support::queue_server::{SET_ID, enter_request, wait_until};
use crate::support::server_process::ServerProcess;
use crate::support::test_server::{advertise_request, party_session};

/// The user to erase, and its client.
const VICTIM: &str = "canary-victim-6f1c";
const VICTIM_CLIENT: &str = "canary-console-88aa";

/// One server on SQLite, or two on Postgres, with the same keys and audit log.
struct Site {
    servers: Vec<ServerProcess>,
    folder: tempfile::TempDir,
    database: Option<TestDatabase>,
    /// Logs of servers that have stopped.
    former_logs: String,
}

impl Site {
    fn start(database: Option<TestDatabase>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("rules")).expect("a folder");
        let ruleset = rated_duel("").replace(r#"K="32""#, r#"K="32" Leaderboard="public""#);
        std::fs::write(folder.path().join("rules/duel.xml"), ruleset).expect("a ruleset");
        let mut site = Self { servers: Vec::new(), folder, database, former_logs: String::new() };
        site.start_servers();
        site
    }

    fn start_servers(&mut self) {
        let mut arguments =
            vec!["--rulesets", "rules", "--audit-log-file", "audit.jsonl", "--log-level", "debug,sqlx=info"];
        arguments.extend(["--token-key-file", "fireteam.token-key", "--match-key-file", "match-key.pem"]);
        let count = match &self.database {
            None => 1,
            Some(database) => {
                arguments.extend(["--store", &database.url]);
                2
            }
        };
        self.servers = (0..count).map(|_| ServerProcess::start(self.folder.path(), &arguments)).collect();
    }

    /// Stops all servers and starts them again.
    fn restart(&mut self) {
        for server in self.servers.drain(..) {
            server.terminate();
            self.former_logs.push_str(&server.wait_for_exit().log);
        }
        self.start_servers();
    }

    async fn client(&self) -> Client {
        self.servers[0].client().await
    }

    /// Operators use the last server.
    async fn operator(&self) -> Operator {
        Operator(self.servers.last().expect("a server").operator_client().await)
    }

    async fn enter(&self, request: pb::QueueEnterRequest) -> Ticket {
        self.client().await.enter_queue(request).await.expect("enter")
    }

    /// Two users who enter, and play when this returns.
    async fn match_of(&self, users: [&str; 2]) -> ([Ticket; 2], pb::MatchStatus) {
        let mut request = enter_request(SET_ID, &[(users[0], 20.0)]);
        let players = &mut request.session_composition.as_mut().expect("a session").players;
        players[0].player_id = VICTIM_CLIENT.to_owned();
        let mut tickets = [self.enter(request).await, self.enter(enter_request(SET_ID, &[(users[1], 20.0)])).await];
        let mut updates = tickets[0].watch();
        let found = loop {
            let status = updates.next().await.expect("a status").expect("the ticket is open");
            if status.state() == pb::TicketState::Matched {
                break status.found_match.expect("a match");
            }
        };
        wait_until("both play", async || {
            tickets[1].heartbeat().await.expect("heartbeat").state() == pb::TicketState::Matched
        })
        .await;
        (tickets, found)
    }

    /// The victim publishes a session. Another's session lists the victim, who had joined it once, and confirms seats for the
    /// victim and one more. Returns that session.
    async fn hosted_session(&self) -> Advertisement {
        let client = self.client().await;
        let session = |names: &[(&str, f64)]| pb::MatchmakingUpdateAdvertisementRequest {
            matchmaking_set_id: Some(SET_ID),
            time_to_live_ms: Some(600_000),
            ..advertise_request(names, 4)
        };
        client.advertise(session(&[(VICTIM, 20.0)])).await.expect("advertise");
        let mut hosted = client.advertise(session(&[("fay", 20.0)])).await.expect("advertise");
        let joined = reserve(&client, &hosted, &[(VICTIM, 20.0)]).await;
        let mut update = session(&[("fay", 20.0)]);
        update.joined_reservation_ids = vec![joined];
        hosted.replace_published(update).await.expect("update");
        let held = reserve(&client, &hosted, &[(VICTIM, 20.0), ("gus", 20.0)]).await;
        let mut update = session(&[("fay", 20.0), (VICTIM, 20.0)]);
        update.confirmed_reservation_ids = vec![held];
        let seats = hosted.replace_published(update).await.expect("update").reservations;
        assert_eq!(seats.iter().map(|held| held.seats).collect::<Vec<_>>(), [2]);
        self.wait_for_sessions("hal", 2).await;
        self.wait_for_sessions(VICTIM, 0).await;
        hosted
    }

    /// Waits until each server has this number of sessions for a searcher. One that lists the searcher does not count.
    async fn wait_for_sessions(&self, searcher: &str, count: usize) {
        for server in &self.servers {
            let client = server.client().await;
            wait_until("the server has the sessions", async || {
                let mut search = client.new_search(SET_ID, party_session(&[(searcher, 20.0)]));
                search.search().await.expect("search").candidates.len() == count
            })
            .await;
        }
    }

    /// Everything that the site has written or answers to strangers: files, tables, logs, metrics.
    async fn all_outputs(&self) -> Vec<(String, Vec<u8>)> {
        let mut outputs = vec![("former logs".to_owned(), self.former_logs.clone().into_bytes())];
        collect_files(self.folder.path(), &mut outputs);
        for server in &self.servers {
            outputs.push(("log".to_owned(), server.log.text().into_bytes()));
            outputs.push(("metrics".to_owned(), server.operator_page("/metrics").await.into_bytes()));
        }
        if let Some(database) = &self.database {
            outputs.extend(table_texts(&mut database.connect().await).await);
        }
        outputs
    }

    /// Fails if an output has one of the patterns at the end of a minute.
    async fn wait_until_forgotten(&self, patterns: &[(String, Vec<u8>)]) {
        let mut found = Vec::new();
        for _ in 0..120 {
            let outputs = self.all_outputs().await;
            assert!(outputs.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > 10_000, "too little to search");
            found = named_in(&outputs, patterns);
            if found.is_empty() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
        panic!("still there after a minute: {found:?}");
    }
}

/// Reserves seats in a session, and returns the reservation's id.
async fn reserve(client: &Client, hosted: &Advertisement, players: &[(&str, f64)]) -> String {
    let mut search = client.new_search(SET_ID, party_session(players));
    search.search().await.expect("search");
    search.reserve(hosted.id()).await.expect("reserve").id
}

/// Places and descriptions of patterns.
pub(super) fn named_in(outputs: &[(String, Vec<u8>)], patterns: &[(String, Vec<u8>)]) -> Vec<String> {
    let mut found = Vec::new();
    for (place, bytes) in outputs {
        for (description, pattern) in patterns {
            if bytes.windows(pattern.len()).any(|window| window == pattern.as_slice()) {
                found.push(format!("{description} in {place}"));
            }
        }
    }
    found
}

pub(super) fn collect_files(folder: &Path, outputs: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect_files(&path, outputs);
        } else if let Ok(bytes) = std::fs::read(&path) {
            outputs.push((path.display().to_string(), bytes));
        }
    }
}

/// Text of each row of each table, and of the samples that the planner keeps.
pub(super) async fn table_texts(connection: &mut PgConnection) -> Vec<(String, Vec<u8>)> {
    let tables = "select format('%I', table_name) from information_schema.tables where table_schema = 'public'";
    let mut tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut *connection).await.expect("tables");
    tables.push("pg_stats".to_owned());
    let mut texts = Vec::new();
    for table in tables {
        let query = AssertSqlSafe(format!("select t::text from {table} t"));
        let rows: Vec<String> = sqlx::query_scalar(query).fetch_all(&mut *connection).await.expect("rows");
        texts.push((format!("table {table}"), rows.join("\n").into_bytes()));
    }
    texts
}

/// A key as bytes, as hexadecimal digits, and as a UUID.
pub(super) fn key_patterns(description: &str, key: UserKey) -> Vec<(String, Vec<u8>)> {
    let text = key.to_string();
    let uuid = [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-");
    let forms = [key.as_bytes().to_vec(), text.into_bytes(), uuid.into_bytes()];
    forms.into_iter().map(|bytes| (description.to_owned(), bytes)).collect()
}

/// All names of a user: the account, its digests, and its public keys.
fn patterns_of(player: &wire::GetPlayerResponse) -> Vec<(String, Vec<u8>)> {
    let mut patterns = vec![
        ("the account".to_owned(), VICTIM.as_bytes().to_vec()),
        ("the client".to_owned(), VICTIM_CLIENT.as_bytes().to_vec()),
    ];
    let user = UserKey::from_name(VICTIM);
    patterns.extend(key_patterns("the digest of the account", user));
    let client = UserKey::of_client_of_user(user, UserKey::from_name(VICTIM_CLIENT));
    patterns.extend(key_patterns("the digest of the client", client));
    for (purpose, key) in [
        ("operators", &player.user_key),
        ("leaderboards", &player.leaderboard_user_key),
        ("credentials", &player.credential_user_key),
    ] {
        let key = UserKey::parse(key).expect("a key");
        patterns.extend(key_patterns(&format!("the key for {purpose}"), key));
    }
    patterns
}

struct Operator(wire::operator_service_client::OperatorServiceClient<tonic::transport::Channel>);

impl Operator {
    async fn erase(&mut self, user: &str) -> wire::EraseUserResponse {
        let request = wire::EraseUserRequest {
            user_id: user.to_owned(),
            reason: "request 4711".to_owned(),
            ..Default::default()
        };
        self.0.erase_user(request).await.expect("erase").into_inner()
    }

    async fn player(&mut self, user: &str) -> wire::GetPlayerResponse {
        let request = wire::GetPlayerRequest { user_id: user.to_owned(), ..Default::default() };
        self.0.get_player(request).await.expect("a player").into_inner()
    }

    async fn matches(&mut self) -> Vec<wire::FinishedMatch> {
        let request = wire::ExportMatchesRequest::default();
        self.0.export_matches(request).await.expect("matches").into_inner().matches
    }

    async fn export(&mut self, user: &str) -> wire::ExportUserResponse {
        let request = wire::ExportUserRequest { user_id: user.to_owned(), ..Default::default() };
        self.0.export_user(request).await.expect("an export").into_inner()
    }
}

/// Report of a match without a host: the second user has won.
fn second_won(tickets: &[Ticket; 2], found: &pb::MatchStatus) -> pb::ReportResultRequest {
    pb::ReportResultRequest {
        match_id: found.match_id.clone(),
        team_ranks: vec![rank(found.team, 2), rank(1 - found.team, 1)],
        ticket_token: tickets[1].reference().ticket_token,
        ..Default::default()
    }
}

async fn leaderboard_total(client: &Client) -> u64 {
    let request = pb::GetLeaderboardRequest { matchmaking_set_id: Some(SET_ID), ..Default::default() };
    client.get_leaderboard(request).await.expect("a leaderboard").total
}

/// The records of others, as an operator sees them, without the keys of players.
fn without_keys(mut matches: Vec<wire::FinishedMatch>) -> Vec<wire::FinishedMatch> {
    for finished in &mut matches {
        for player in finished.sides.iter_mut().flat_map(|side| &mut side.players) {
            player.user_key.clear();
        }
        finished.disconnected_user_keys.iter_mut().for_each(String::clear);
    }
    matches
}

/// SEC-17: a user who has played, plays, and is blocked by others is erased; the others keep what they have.
#[expect(clippy::too_many_lines, reason = "one case after another")]
async fn erased_user_is_nowhere_and_others_keep_what_they_have(mut site: Site) {
    let client = site.client().await;
    // A finished match with feedback, and one in play.
    let (tickets, found) = site.match_of([VICTIM, "bob"]).await;
    client.report_result(second_won(&tickets, &found)).await.expect("report");
    tickets[0].submit_feedback(&found.match_id, 2).await.expect("feedback");
    let (mut playing, in_play) = site.match_of([VICTIM, "dan"]).await;
    let blocking = pb::QueueEnterRequest {
        blocked_user_ids: vec![VICTIM.to_owned(), "eve".to_owned()],
        ..enter_request(SET_ID, &[("cid", 20.0)])
    };
    let mut cid = site.enter(blocking).await;
    let mut hosted = site.hosted_session().await;
    let mut operator = site.operator().await;
    let player = operator.player(VICTIM).await;
    let patterns = patterns_of(&player);
    let before = site.all_outputs().await;
    let named = named_in(&before, &patterns);
    assert!(named.iter().any(|place| place.contains("the digest of the account")), "the search finds it: {named:?}");
    let audit = |outputs: &[(String, Vec<u8>)]| {
        let (_, file) = outputs.iter().find(|(place, _)| place.ends_with("audit.jsonl")).expect("an audit log");
        String::from_utf8(file.clone()).expect("text")
    };
    assert!(audit(&before).contains(&format!("user {}", player.log_key)), "the operator finds the lines of a user");
    let matches_before = operator.matches().await;
    let victims_rating = rating(&client, VICTIM).await;
    let bobs_rating = rating(&client, "bob").await;
    assert!(victims_rating < 1500.0 && bobs_rating > 1500.0);
    wait_until("the operator's server knows the tickets", async || operator.export(VICTIM).await.tickets.len() == 2)
        .await;
    let exported = operator.export(VICTIM).await;
    assert_eq!((exported.ratings.len(), exported.matches.len(), exported.feedback.len()), (1, 2, 1), "{exported:?}");
    assert_eq!(exported.ratings[0].changes.len(), 1);
    assert!(exported.tickets.iter().all(|ticket| ticket.party_size == 1));

    let erased = operator.erase(VICTIM).await;
    assert_eq!((erased.tickets, erased.matches, erased.results), (3, 2, 1), "{erased:?}");
    site.wait_until_forgotten(&patterns).await;
    wait_until("the seat in the session of others is released", async || {
        let held = hosted.heartbeat().await.expect("heartbeat").reservations;
        held.iter().map(|held| held.seats).eq([1])
    })
    .await;
    site.wait_for_sessions("hal", 1).await;
    let log = audit(&site.all_outputs().await);
    assert!(log.contains(&format!("user {}: request 4711", player.log_key)), "the erasure is in the audit log: {log}");

    // The others.
    assert_eq!(without_keys(operator.matches().await), without_keys(matches_before));
    assert_eq!(rating(&client, "bob").await, bobs_rating);
    wait_until("the player has left the match", async || {
        let status = playing[1].heartbeat().await.expect("heartbeat").found_match.clone().expect("a match");
        status.players.iter().filter(|player| player.left).count() == 1
    })
    .await;
    let waiting = cid.heartbeat().await.expect("heartbeat").state();
    assert_eq!(waiting, pb::TicketState::Waiting);
    // A result that comes later counts as if the player had not been erased.
    let report = client.report_result(second_won(&playing, &in_play)).await.expect("report");
    assert!(report.rated, "{report:?}");
    let expected = 1500.0 + 32.0 * (1.0 - 1.0 / (1.0 + 10_f64.powf((victims_rating - 1500.0) / 400.0)));
    assert!((rating(&client, "dan").await - expected).abs() < 1e-9, "dan's rating is exact");
    assert!(client.report_result(second_won(&playing, &in_play)).await.expect("repeat").already_reported);
    let again = client.report_result(second_won(&tickets, &found)).await.expect("repeat");
    assert!(again.already_reported, "the result of before is still the same");

    // The erased user is a newcomer, here and on each other server.
    for server in &site.servers {
        let client = server.client().await;
        wait_until("ratings and leaderboard forget the user", async || {
            let ratings = client.get_ratings(SET_ID, &[VICTIM]).await.expect("ratings");
            ratings[0].matches == 0 && rating(&client, VICTIM).await == 1500.0 && leaderboard_total(&client).await == 2
        })
        .await;
    }
    site.wait_for_sessions(VICTIM, 1).await;
    let nothing = operator.export(VICTIM).await;
    assert!(nothing.ratings.is_empty() && nothing.matches.is_empty() && nothing.tickets.is_empty(), "{nothing:?}");

    // Again, and after a restart.
    assert_eq!(operator.erase(VICTIM).await, wire::EraseUserResponse::default());
    site.restart();
    let client = site.client().await;
    assert_eq!((leaderboard_total(&client).await, rating(&client, "bob").await), (2, bobs_rating));
    let names: Vec<(String, Vec<u8>)> = patterns_of(&player);
    site.wait_until_forgotten(&names).await;
    assert_eq!(site.operator().await.erase(VICTIM).await, wire::EraseUserResponse::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erased_user_is_nowhere_and_others_keep_what_they_have_on_sqlite() {
    erased_user_is_nowhere_and_others_keep_what_they_have(Site::start(None)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erased_user_is_nowhere_and_others_keep_what_they_have_on_postgres() {
    let test = "erased_user_is_nowhere_and_others_keep_what_they_have_on_postgres";
    let Some(database) = create_test_database(test).await else { return };
    erased_user_is_nowhere_and_others_keep_what_they_have(Site::start(Some(database))).await;
}

/// SEC-17: a server that was killed in the middle of an erasure leaves a part behind; the repeated call finishes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erasure_is_finished_by_a_repeated_call_after_a_kill() {
    let mut site = Site::start(None);
    let client = site.client().await;
    for opponent in 0..6 {
        let (tickets, found) = site.match_of([VICTIM, &format!("opponent-{opponent}")]).await;
        client.report_result(second_won(&tickets, &found)).await.expect("report");
    }
    let patterns = patterns_of(&site.operator().await.player(VICTIM).await);
    let mut operator = site.operator().await;
    let call = tokio::spawn(async move {
        let request = wire::EraseUserRequest {
            user_id: VICTIM.to_owned(),
            reason: "request 4712".to_owned(),
            ..Default::default()
        };
        operator.0.erase_user(request).await
    });
    tokio::task::yield_now().await;
    for server in site.servers.drain(..) {
        server.kill();
    }
    drop(call.await);
    site.start_servers();
    site.operator().await.erase(VICTIM).await;
    site.wait_until_forgotten(&patterns).await;
    let client = site.client().await;
    assert_eq!(leaderboard_total(&client).await, 6);
}

/// Refusals name the field, and a reason may not name the account.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erase_user_refuses_a_missing_user_or_reason() {
    let site = Site::start(None);
    let mut operator = site.operator().await;
    for (user, key, reason, field) in [
        ("", "", "why", "user_id"),
        ("ann", "0f", "why", "user_id"),
        ("", "0f", "why", "user_key"),
        ("ann", "", " ", "reason"),
        ("ann", "", "ann asked for it", "reason"),
    ] {
        let request =
            wire::EraseUserRequest { user_id: user.to_owned(), user_key: key.to_owned(), reason: reason.to_owned() };
        let error = operator.0.erase_user(request).await.expect_err("invalid");
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        assert!(error.message().contains(field), "{error}");
    }
    let request = wire::ExportUserRequest {
        user_id: "ann".to_owned(),
        page_token: b"short".to_vec(),
        page_size: Some(0),
        ..Default::default()
    };
    let error = operator.0.export_user(request).await.expect_err("invalid");
    assert!(error.message().contains("page_size") || error.message().contains("page_token"), "{error}");
}
