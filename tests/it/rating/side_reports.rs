//! Matches that a player hosts: each player reports, and the sides decide together. Over the wire, on SQLite and Postgres.

use fireteam::config::{Config, PostgresUrl, RulesetSource, StoreTarget};
use fireteam_client::{Code, pb};
use pb::{ReportState, TicketState, UnratedReason};

use crate::rating::results_and_leaderboards::{rank, rated_duel, rating};
use crate::store::replicas::Replicas;
use crate::support::database::{TestDatabase, create_test_database};
use crate::support::generated_client;
use crate::support::queue_server::{QueuedParty, SET_ID, enter_request, operator_client, wait_until};
use crate::support::ruleset_dir::RulesetDirectory;
use crate::support::test_server::TestServer;

/// Default of `ReportWindowMs`.
const WINDOW_MS: u64 = 5 * 60 * 1000;

/// A rated duel that a player hosts. The host is not lost within the report window.
fn peer_duel() -> String {
    rated_duel(r#"<Hosting Mode="peer" HostLossMs="3600000"/>"#)
}

/// A server on one kind of store, with its files and its database.
struct StoreFixture {
    server: TestServer,
    folder: tempfile::TempDir,
    database: Option<TestDatabase>,
}

impl StoreFixture {
    /// Servers with this ruleset file: one on SQLite, and one on Postgres if it is installed.
    async fn all(test: &str, ruleset: &str) -> Vec<Self> {
        let mut fixtures = vec![Self::start(None, Some(ruleset)).await];
        if let Some(database) = create_test_database(test).await {
            fixtures.push(Self::start(Some(database), Some(ruleset)).await);
        }
        fixtures
    }

    async fn start(database: Option<TestDatabase>, ruleset: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = folder.path().join("rules");
        std::fs::create_dir(&rules).expect("a folder");
        if let Some(ruleset) = ruleset {
            std::fs::write(rules.join("rules.xml"), ruleset).expect("rules");
        }
        let file = folder.path().join("store.db");
        let store = match &database {
            Some(database) => StoreTarget::Postgres(PostgresUrl::parse(&database.url).expect("a URL")),
            None => StoreTarget::Sqlite(file),
        };
        let has_file = ruleset.is_some();
        let change = move |config: &mut Config| {
            config.store = store;
            if has_file {
                config.rulesets = RulesetSource::Directory(rules);
            }
        };
        let server = TestServer::start_with_config(change).await;
        Self { server, folder, database }
    }

    async fn restart(self) -> Self {
        let Self { server, folder, database } = self;
        Self { server: server.restart().await, folder, database }
    }
}

/// Parties that are in one match, with their matches.
struct Started {
    parties: Vec<QueuedParty>,
    found: Vec<pb::MatchStatus>,
}

impl Started {
    async fn of_names(server: &TestServer, names: &[&str]) -> Self {
        let requests = names.iter().map(|name| enter_request(SET_ID, &[(name, 20.0)]));
        Self::of_requests(server, requests.collect()).await
    }

    /// The first one has waited longest and hosts.
    async fn of_requests(server: &TestServer, requests: Vec<pb::QueueEnterRequest>) -> Self {
        let (mut parties, mut found) = (Vec::new(), Vec::new());
        for request in requests {
            // A watch that opens late is heard at the time of the start, which is not after it.
            server.clock.advance_ms(1);
            parties.push(QueuedParty::enter_with_request(server, request).await);
        }
        for party in &mut parties {
            found.push(party.wait_for_state(TicketState::Matched).await.found_match.expect("a match"));
        }
        // A heartbeat from now on is later than the start of the match.
        server.clock.advance_ms(10);
        Self { parties, found }
    }

    fn id(&self) -> &str {
        &self.found[0].match_id
    }

    /// Ranks with the team of the party at `winner` first, and all other teams second.
    fn win_of(&self, winner: usize) -> Vec<(u32, i32)> {
        let mut teams: Vec<u32> = self.found.iter().map(|found| found.team).collect();
        teams.sort_unstable();
        teams.dedup();
        teams.into_iter().map(|team| (team, if team == self.found[winner].team { 1 } else { 2 })).collect()
    }

    /// The party at `reporter` reports `ranks`.
    async fn report(&self, reporter: usize, ranks: &[(u32, i32)]) -> pb::ReportResultResponse {
        self.parties[reporter].ticket.report_result(self.id(), ranks).await.expect("report")
    }

    /// Waits until the watch of a party tells the state of the reports.
    async fn wait_for_reports(&mut self, party: usize, state: ReportState) -> pb::TicketStatus {
        loop {
            let status = self.parties[party].next_status().await;
            let reports = status.found_match.as_ref().and_then(|found| found.reports);
            if reports.is_some_and(|reports| reports.state() == state) {
                return status;
            }
        }
    }
}

async fn ratings(server: &TestServer, users: [&str; 2]) -> [f64; 2] {
    let client = server.client().await;
    [rating(&client, users[0]).await, rating(&client, users[1]).await]
}

/// An operator reports the result.
async fn operator_reports(server: &TestServer, match_id: &str, ranks: &[(u32, i32)]) -> bool {
    let team_ranks = ranks.iter().map(|&(team, rank)| generated_client::TeamRank { team, rank }).collect();
    let report =
        generated_client::ReportResultRequest { match_id: match_id.to_owned(), team_ranks, ..Default::default() };
    let request = generated_client::OperatorReportResultRequest { report: Some(report) };
    let mut operator = operator_client(server).await;
    operator.report_result(request).await.expect("report").into_inner().report.expect("an answer").rated
}

/// SEC-6: a player who calls its client by the host's user is not the host, and its report of its own win is
/// not a result: the host was never heard since play began, so an operator decides. Before, it was rated at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thief_with_the_name_of_the_host_gains_no_rating() {
    let test = "thief_with_the_name_of_the_host_gains_no_rating";
    for fixture in StoreFixture::all(test, &peer_duel()).await {
        let server = &fixture.server;
        let mut thief = enter_request(SET_ID, &[("bob", 20.0)]);
        thief.session_composition.as_mut().expect("a party").players[0].player_id = "ann".into();
        let mut started = Started::of_requests(server, vec![enter_request(SET_ID, &[("ann", 20.0)]), thief]).await;
        let is_own = |found: &pb::MatchStatus| match found.assignment.clone().and_then(|it| it.host) {
            Some(pb::assignment::Host::PeerHost(host)) => host.is_own,
            other => panic!("a player hosts: {other:?}"),
        };
        assert!(is_own(&started.found[0]) && !is_own(&started.found[1]));
        let answer = started.report(1, &started.win_of(1)).await;
        assert_eq!((answer.rated, answer.state()), (false, ReportState::Waiting));
        assert_eq!(answer.window_left_ms, Some(WINDOW_MS));
        let told = started.wait_for_reports(0, ReportState::Waiting).await;
        assert_eq!(told.state(), TicketState::Matched, "a report of one player does not end the match");
        server.clock.advance_ms(WINDOW_MS);
        assert_eq!(started.wait_for_reports(1, ReportState::Held).await.state(), TicketState::Ended);
        assert_eq!(ratings(server, ["ann", "bob"]).await, [1500.0, 1500.0]);
        let late = started.parties[0].ticket.report_result(started.id(), &started.win_of(0)).await;
        assert_eq!(late.expect_err("too late").code(), Some(Code::FailedPrecondition));
        assert!(operator_reports(server, started.id(), &started.win_of(0)).await);
        assert_eq!(ratings(server, ["ann", "bob"]).await, [1516.0, 1484.0]);
    }
}

/// SEC-6: in the bundled Control, a liar who claims to be the host is outvoted by its own team, and both
/// sides' reports are rated at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn liar_in_the_bundled_control_is_outvoted() {
    const CONTROL: u32 = 1;
    let mut stores = vec![StoreFixture::start(None, None).await];
    if let Some(database) = create_test_database("liar_in_the_bundled_control_is_outvoted").await {
        stores.push(StoreFixture::start(Some(database), None).await);
    }
    for fixture in stores {
        let server = &fixture.server;
        let names: Vec<String> = (0..12).map(|n| format!("player {n}")).collect();
        let mut requests: Vec<pb::QueueEnterRequest> =
            names.iter().map(|name| enter_request(CONTROL, &[(name, 20.0)])).collect();
        requests[11].session_composition.as_mut().expect("a party").players[0].player_id = names[0].clone();
        let started = Started::of_requests(server, requests).await;
        let (liar, truth) =
            (11, started.win_of((0..12).find(|n| started.found[*n].team != started.found[11].team).unwrap()));
        let answer = started.report(liar, &started.win_of(liar)).await;
        assert_eq!((answer.rated, answer.state()), (false, ReportState::Waiting));
        let mut answers = Vec::new();
        for honest in 0..11 {
            answers.push(started.report(honest, &truth).await);
        }
        let decided = answers.iter().position(|answer| answer.rated).expect("the sides agree");
        assert!(answers[decided..].iter().all(|answer| answer.rated && answer.state() == ReportState::Settled));
        let client = server.client().await;
        let users = [
            &*names[11],
            names.iter().zip(&started.found).find(|(_, found)| found.team != started.found[11].team).unwrap().0,
        ];
        let after = client.get_ratings(CONTROL, &users).await.expect("ratings");
        let after: Vec<f64> = after.iter().map(|it| it.rating.expect("a rating").rating).collect();
        assert!(after[0] < 0.0 && 0.0 < after[1], "{after:?}");
    }
}

/// Both sides alike are rated at once; a player's second report must be the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_alike_are_rated_at_once() {
    for fixture in StoreFixture::all("both_sides_alike_are_rated_at_once", &peer_duel()).await {
        let server = &fixture.server;
        let mut started = Started::of_names(server, &["ann", "bob"]).await;
        let win = started.win_of(0);
        assert_eq!(started.report(0, &win).await.state(), ReportState::Waiting);
        let told = started.wait_for_reports(1, ReportState::Waiting).await;
        assert_eq!(told.state(), TicketState::Ended, "the host's report ends the match");
        let again = started.report(0, &win).await;
        assert!(again.already_reported && again.state() == ReportState::Waiting);
        let other = started.parties[0].ticket.report_result(started.id(), &started.win_of(1)).await;
        assert!(other.expect_err("another report").to_string().contains("a different result was reported"));
        let answer = started.report(1, &win).await;
        assert_eq!((answer.rated, answer.state(), answer.changes.len()), (true, ReportState::Settled, 1));
        started.wait_for_reports(1, ReportState::Settled).await;
        assert_eq!(ratings(server, ["ann", "bob"]).await, [1516.0, 1484.0]);
        assert!(started.report(0, &win).await.already_reported);
    }
}

/// A side that was heard since play began, and is silent then, loses what the other reports, also if
/// the server restarts before the window ends. One that was not heard does not. A heartbeat counts, and so does a late answer
/// to the ready check.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_side_is_rated_only_if_it_was_heard() {
    for mut fixture in StoreFixture::all("silent_side_is_rated_only_if_it_was_heard", &peer_duel()).await {
        let mut heard = Started::of_names(&fixture.server, &["ann", "bob"]).await;
        heard.parties[1].current_status().await;
        let silent = Started::of_names(&fixture.server, &["cid", "dan"]).await;
        let mut answered = Started::of_names(&fixture.server, &["eve", "fay"]).await;
        let match_id = answered.id().to_owned();
        let late =
            answered.parties[1].ticket.respond_to_ready_check(&match_id, true).await.expect_err("play has begun");
        assert_eq!(late.code(), Some(Code::FailedPrecondition), "{late}");
        assert_eq!(answered.report(0, &answered.win_of(0)).await.state(), ReportState::Waiting);
        // The silent player is not the last one whose watch opened: that may be heard a little later.
        assert_eq!(heard.report(0, &heard.win_of(0)).await.state(), ReportState::Waiting);
        assert_eq!(silent.report(1, &silent.win_of(1)).await.state(), ReportState::Waiting);
        let tickets = [heard.parties[0].ticket.reference(), silent.parties[1].ticket.reference()];
        drop((heard, silent, answered));
        fixture = fixture.restart().await;
        fixture.server.clock.advance_ms(WINDOW_MS - 1);
        let client = fixture.server.client().await;
        assert_eq!(rating(&client, "ann").await, 1500.0, "the window has not ended");
        // The restart took some milliseconds of the test's clock, which do not count.
        fixture.server.clock.advance_ms(1_000);
        wait_until("the heard side is rated", async || rating(&client, "ann").await == 1516.0).await;
        assert_eq!(rating(&client, "bob").await, 1484.0);
        wait_until("the answering side is rated", async || rating(&client, "eve").await == 1516.0).await;
        let heartbeat = pb::QueueHeartbeatRequest { tickets: tickets.to_vec(), ..Default::default() };
        let mut states = Vec::new();
        wait_until("both are decided", async || {
            let statuses = client.heartbeat_tickets(heartbeat.clone()).await.expect("heartbeat").statuses;
            let reports = statuses.iter().map(|status| status.found_match.as_ref().and_then(|found| found.reports));
            states = reports.map(|reports| reports.map_or(ReportState::Unspecified, |it| it.state())).collect();
            !states.contains(&ReportState::Waiting)
        })
        .await;
        assert_eq!(states, [ReportState::Settled, ReportState::Held], "on Postgres: {}", fixture.database.is_some());
        assert_eq!(rating(&client, "dan").await, 1500.0);
    }
}

/// Contradicting reports leave the match unrated, and both sides' share of disputes goes up, by which
/// rulesets can filter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contradicting_sides_are_unrated_and_filtered_by_disputes() {
    let filtered = peer_duel()
        .replace("</Attributes>", r#"<Attribute Name="disputed_percent" Type="number"/></Attributes><HardFilters><Within Name="disputes" Attribute="disputed_percent" Limit="50"/></HardFilters>"#);
    for fixture in StoreFixture::all("contradicting_sides_are_unrated_and_filtered_by_disputes", &filtered).await {
        let server = &fixture.server;
        let mut started = Started::of_names(server, &["ann", "bob"]).await;
        started.report(0, &started.win_of(0)).await;
        let answer = started.report(1, &started.win_of(1)).await;
        assert_eq!((answer.rated, answer.state()), (false, ReportState::Disputed));
        assert_eq!(answer.unrated(), UnratedReason::Disputed);
        started.wait_for_reports(0, ReportState::Disputed).await;
        assert_eq!(ratings(server, ["ann", "bob"]).await, [1500.0, 1500.0]);
        // Ann has 100 percent, cid and eve have none: the filter keeps ann from both.
        let mut ann = QueuedParty::enter(server, SET_ID, &[("ann", 20.0)]).await;
        Started::of_names(server, &["cid", "eve"]).await;
        assert_eq!(ann.current_status().await.state(), TicketState::Waiting);
        let mut forged = enter_request(SET_ID, &[("fay", 20.0)]);
        let value = pb::AttributeValue { value: Some(pb::attribute_value::Value::NumberValue(0.0)) };
        let attributes = &mut forged.session_composition.as_mut().expect("a party").attributes;
        attributes.insert("disputed_percent".into(), value);
        let error = server.client().await.enter_queue(forged).await.expect_err("the server counts disputes");
        assert!(error.to_string().contains("counted by the server"), "{error}");
    }
}

/// The player who hosts leaves. The others contradict each other, but all rank the leaver
/// last: only the leaver is rated, as last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaver_is_rated_as_last_where_the_reports_agree() {
    let three = peer_duel().replace(r#"Count="2""#, r#"Count="3""#);
    for fixture in StoreFixture::all("leaver_is_rated_as_last_where_the_reports_agree", &three).await {
        let server = &fixture.server;
        let mut started = Started::of_names(server, &["ann", "bob", "cid"]).await;
        assert!(started.parties[0].ticket.leave().await.expect("leave"));
        let teams: Vec<u32> = started.found.iter().map(|found| found.team).collect();
        let first = [(teams[0], 3), (teams[1], 1), (teams[2], 2)];
        let second = [(teams[0], 3), (teams[1], 2), (teams[2], 1)];
        let refused = started.parties[0].ticket.report_result(started.id(), &first).await;
        assert_eq!(refused.expect_err("the leaver does not report").code(), Some(Code::PermissionDenied));
        assert_eq!(started.report(1, &first).await.state(), ReportState::Waiting);
        assert_eq!(started.report(2, &second).await.state(), ReportState::Disputed);
        let client = server.client().await;
        assert!(rating(&client, "ann").await < 1500.0);
        assert_eq!(ratings(server, ["bob", "cid"]).await, [1500.0, 1500.0]);
    }
}

/// The hosting player is gone and no player reports within the window: no one is rated, and a later
/// report is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn match_without_host_and_reports_is_unrated_after_the_window() {
    for fixture in StoreFixture::all("match_without_host_and_reports_is_unrated", &peer_duel()).await {
        let server = &fixture.server;
        let mut started = Started::of_names(server, &["ann", "bob"]).await;
        assert!(started.parties[0].ticket.leave().await.expect("leave"));
        server.clock.advance_ms(WINDOW_MS);
        started.wait_for_reports(1, ReportState::Unreported).await;
        let late = started.parties[1].ticket.report_result(started.id(), &started.win_of(1)).await;
        assert_eq!(late.expect_err("too late").code(), Some(Code::FailedPrecondition));
        assert_eq!(ratings(server, ["ann", "bob"]).await, [1500.0, 1500.0]);
    }
}

/// `OnDisconnect="ignore"` needs the host's word, and never lets off a player who left by the call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_by_the_call_does_not_make_a_match_unrated() {
    let strict = rated_duel("").replace("<Rating ", r#"<Rating OnDisconnect="ignore" "#);
    for fixture in StoreFixture::all("leaving_by_the_call_does_not_make_a_match_unrated", &strict).await {
        let mut started = Started::of_names(&fixture.server, &["ann", "bob"]).await;
        assert!(started.parties[0].ticket.leave().await.expect("leave"));
        assert!(started.report(1, &started.win_of(1)).await.rated);
        assert_eq!(ratings(&fixture.server, ["ann", "bob"]).await, [1484.0, 1516.0]);
        // The host says that cid disconnected, and dan left by the call: only dan is rated.
        let mut started = Started::of_names(&fixture.server, &["cid", "dan"]).await;
        assert!(started.parties[1].ticket.leave().await.expect("leave"));
        let team_ranks = started.win_of(0).into_iter().map(|(team, place)| rank(team, place)).collect();
        let report = pb::ReportResultRequest {
            match_id: started.id().to_owned(),
            team_ranks,
            disconnected_player_keys: vec![started.found[0].own_players[0].player_key.clone()],
            ticket_token: started.parties[0].ticket.reference().ticket_token,
            ..Default::default()
        };
        let answer = started.parties[0].client.report_result(report).await.expect("report");
        assert_eq!((answer.rated, answer.unrated()), (false, UnratedReason::Disconnected));
        assert_eq!(ratings(&fixture.server, ["cid", "dan"]).await, [1500.0, 1484.0]);
    }
}

/// SEC-6: a player_id names one player of a party.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enter_with_a_player_id_of_another_player_is_refused() {
    let fixture = StoreFixture::start(None, Some(&peer_duel().replace(r#"Size="1""#, r#"Size="2""#))).await;
    let client = fixture.server.client().await;
    for (ids, text) in
        [(["box", "box"], "is also the player_id of players[0]"), (["bob", ""], "is the user_id of players[1]")]
    {
        let mut request = enter_request(SET_ID, &[("ann", 20.0), ("bob", 20.0)]);
        let players = &mut request.session_composition.as_mut().expect("a party").players;
        players.iter_mut().zip(ids).for_each(|(player, id)| player.player_id = id.into());
        let error = client.enter_queue(request).await.expect_err("refused");
        assert!(error.to_string().contains(text), "{error}");
    }
}

/// The sides report at two servers of one store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sides_report_at_two_servers() {
    let Some(database) = create_test_database("sides_report_at_two_servers").await else { return };
    let rules = RulesetDirectory::with_files(&[("duel.xml", &peer_duel())]);
    let replicas = Replicas::start(&database, 2, &["--rulesets", &rules.path().display().to_string()]);
    let servers = &replicas.servers;
    let clients = [servers[0].client().await, servers[1].client().await];
    let ann = clients[0].enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("enter");
    let bob = clients[1].enter_queue(enter_request(SET_ID, &[("bob", 20.0)])).await.expect("enter");
    let mut found = None;
    wait_until("they are matched", async || {
        let request = pb::QueueHeartbeatRequest { tickets: vec![ann.reference()], ..Default::default() };
        let status = clients[0].heartbeat_tickets(request).await.expect("heartbeat").statuses.remove(0);
        let is_matched = status.state() == TicketState::Matched;
        found = status.found_match;
        is_matched
    })
    .await;
    let found = found.expect("a match");
    let ranks = [(found.team, 1), (1 - found.team, 2)];
    // Bob reports at the second server, ann at the first one.
    let waiting = bob.report_result(&found.match_id, &ranks).await.expect("report");
    assert_eq!(waiting.state(), ReportState::Waiting);
    assert!(ann.report_result(&found.match_id, &ranks).await.expect("report").rated);
    wait_until("the second server has the rating", async || rating(&clients[1], "bob").await < 1500.0).await;
}

/// A report window is extended by the time in which the server was down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_window_does_not_count_a_restart() {
    for fixture in StoreFixture::all("report_window_does_not_count_a_restart", &peer_duel()).await {
        let started = Started::of_names(&fixture.server, &["ann", "bob"]).await;
        assert_eq!(started.report(0, &started.win_of(0)).await.state(), ReportState::Waiting);
        let (ticket, match_id, win) =
            (started.parties[1].ticket.reference(), started.id().to_owned(), started.win_of(0));
        drop(started);
        let StoreFixture { server, folder: _folder, database: _database } = fixture;
        let server = server.restart_after(2 * WINDOW_MS).await;
        let client = server.client().await;
        let team_ranks = win.iter().map(|&(team, rank)| pb::TeamRank { team, rank }).collect();
        let report =
            pb::ReportResultRequest { match_id, team_ranks, ticket_token: ticket.ticket_token, ..Default::default() };
        let answer = client.report_result(report).await.expect("the window has not ended");
        assert_eq!((answer.rated, answer.state()), (true, ReportState::Settled));
        assert_eq!(ratings(&server, ["ann", "bob"]).await, [1516.0, 1484.0]);
    }
}
