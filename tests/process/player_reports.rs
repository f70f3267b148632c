//! Players report the results of matches that one of them hosts, at random servers, while servers are killed. A match is rated
//! once, if both sides say the same, and not if they contradict each other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fireteam_client::pb;
use pb::{TicketEndReason, TicketState};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::random_servers::RandomServerClient;
use crate::report::{TestReport, scaled};
use crate::support::database::PostgresCluster;
use crate::support::party::party_session;

const SERVERS: usize = 3;
const PLAYERS: usize = 24;
const SET: u32 = 23;

/// Matches with both reports to reach, and the time limit: a slow machine reaches fewer, and reports the number.
const MATCHES: usize = 300;
const TIME_MAX: Duration = Duration::from_secs(12);

/// Longest time in which a player ends its match after the test has stopped.
const LAST_MATCH_MAX: Duration = Duration::from_secs(6);

const RULES: &str = r#"<Ruleset Name="Player reports" SetId="23">
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="20"/>
  <Hosting Mode="peer" ReportWindowMs="1800000"/>
  <Rating System="elo" K="32"/>
</Ruleset>"#;

/// Whether the players of a match contradict each other. Both know it from the match id.
fn is_disputed(match_id: &str) -> bool {
    match_id.bytes().map(u32::from).sum::<u32>().is_multiple_of(3)
}

/// Reports that were acknowledged: for each match, the players with their teams.
type Reports = Mutex<BTreeMap<String, Vec<(usize, u32)>>>;

struct Player {
    client: RandomServerClient,
    reports: Arc<Reports>,
    /// No further tickets are entered.
    is_ending: Arc<AtomicBool>,
    /// No further calls are made.
    is_over: Arc<AtomicBool>,
}

impl Player {
    /// Plays match after match. Returns the problem that stops the player, if there is one.
    async fn run(self) -> Option<String> {
        for ticket in 0.. {
            if self.is_ending.load(Ordering::SeqCst) {
                break;
            }
            if let Some(problem) = self.play(ticket).await {
                return Some(problem);
            }
        }
        None
    }

    /// Enters, plays one match and reports its result. Returns the problem, if there is one.
    async fn play(&self, number: usize) -> Option<String> {
        let name = user_id(self.client.number);
        let request = pb::QueueEnterRequest {
            session_composition: Some(party_session(&[(&name, 0.0)])),
            matchmaking_set_id: Some(SET),
            idempotency_key: format!("ticket {number:06} of {name}"),
            ..Default::default()
        };
        let entered =
            self.client.call(&self.is_over, request, async |server, request| server.enter_queue(request).await).await?;
        let ticket = match entered {
            Ok(ticket) => ticket.reference(),
            Err(error) => return Some(format!("{name} cannot enter: {error}")),
        };
        let mut has_reported = false;
        loop {
            let status = self.client.status(&self.is_over, &ticket).await?;
            let has_ended = status.state() == TicketState::Ended && status.end_reason() != TicketEndReason::Unspecified;
            if let Some(found) = status.found_match.as_ref().filter(|found| found.assignment.is_some())
                && !has_reported
            {
                has_reported = true;
                if let Some(problem) = self.report(&ticket, found).await {
                    return Some(problem);
                }
            }
            if has_ended {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn report(&self, ticket: &pb::TicketReference, found: &pb::MatchStatus) -> Option<String> {
        let own_win = [found.team, 1 - found.team];
        let winner_first = if is_disputed(&found.match_id) { own_win } else { [0, 1] };
        let rank = |(at, team): (usize, u32)| pb::TeamRank { team, rank: at as i32 + 1 };
        let request = pb::ReportResultRequest {
            match_id: found.match_id.clone(),
            team_ranks: winner_first.into_iter().enumerate().map(rank).collect(),
            ticket_token: ticket.ticket_token.clone(),
            ..Default::default()
        };
        let send = async |server: fireteam_client::Client, request| server.report_result(request).await;
        match self.client.call(&self.is_over, request, send).await? {
            Ok(_) => {
                let mut reports = self.reports.lock().expect("unpoisoned");
                reports.entry(found.match_id.clone()).or_default().push((self.client.number, found.team));
                None
            }
            Err(error) => Some(format!("report of player {} of {}: {error}", self.client.number, found.match_id)),
        }
    }
}

fn user_id(player: usize) -> String {
    format!("player {player:03}")
}

/// Rated matches of a player, with the rank.
async fn rated_matches(client: &RandomServerClient, player: usize) -> BTreeMap<String, u32> {
    let never = AtomicBool::new(false);
    let (mut rated, mut page_token) = (BTreeMap::new(), Vec::new());
    loop {
        let request = pb::GetRatingHistoryRequest {
            matchmaking_set_id: Some(SET),
            user_id: user_id(player),
            page_size: Some(200),
            page_token,
        };
        let send = async |server: fireteam_client::Client, request| server.get_rating_history(request).await;
        let page = client.call(&never, request, send).await.expect("an answer").expect("the history");
        rated.extend(page.changes.into_iter().map(|change| (change.match_id, change.rank)));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return rated;
        }
    }
}

/// Compares the rated matches of each player with the reports. Returns the numbers of agreed and of disputed matches.
async fn check_ratings(report: &mut TestReport, client: &RandomServerClient, reports: &Reports) -> [usize; 2] {
    let reports = reports.lock().expect("unpoisoned").clone();
    let mut expected = vec![BTreeMap::new(); PLAYERS];
    let mut disputed = 0;
    for (match_id, sides) in reports.into_iter().filter(|(_, sides)| sides.len() == 2) {
        if is_disputed(&match_id) {
            disputed += 1;
            continue;
        }
        for (player, team) in sides {
            expected[player].insert(match_id.clone(), team + 1);
        }
    }
    let rated: usize = expected.iter().map(BTreeMap::len).sum();
    report.record("rated", rated / 2);
    report.record("disputed", disputed);
    for (player, expected) in expected.iter().enumerate() {
        let rated = rated_matches(client, player).await;
        let differs = |(id, rank): &(&String, &u32)| rated.get(*id) != Some(*rank);
        report.violations(expected.iter().filter(differs).map(|(id, _)| format!("{id} is not rated")).collect());
        let is_unexpected = |id: &&String| !expected.contains_key(*id);
        report.violations(
            rated.keys().filter(is_unexpected).map(|id| format!("{id} is rated without agreement")).collect(),
        );
    }
    [rated / 2, disputed]
}

/// Authority of players: a result needs both sides, at any server, and also if servers die meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn matches_are_rated_only_if_both_sides_agree() {
    let mut report = TestReport::start("player reports").await;
    let Some(postgres) = PostgresCluster::start("player_reports") else { return };
    let database = postgres.create_database("fireteam").await;
    let cluster = Arc::new(Cluster::start_with_ruleset(&database.url, SERVERS, RULES));
    let (reports, is_ending, is_over) = (Arc::<Reports>::default(), Arc::default(), Arc::default());
    let players: Vec<_> = (0..PLAYERS)
        .map(|number| Player {
            client: RandomServerClient::new(&cluster, number, &report),
            reports: Arc::clone(&reports),
            is_ending: Arc::clone(&is_ending),
            is_over: Arc::clone(&is_over),
        })
        .map(|player| tokio::spawn(player.run()))
        .collect();
    let faults = {
        let (cluster, is_ending, rng) = (Arc::clone(&cluster), Arc::clone(&is_ending), report.rng(1_000));
        tokio::task::spawn_blocking(move || cluster.kill_at_random(&rng, 400..1_400, &is_ending))
    };
    let count = || reports.lock().expect("unpoisoned").values().filter(|sides| sides.len() == 2).count();
    let started = Instant::now();
    while count() < scaled(MATCHES) && started.elapsed() < TIME_MAX {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    is_ending.store(true, Ordering::SeqCst);
    report.record("kills", faults.await.expect("the faults end"));
    let checker = RandomServerClient::new(&cluster, PLAYERS, &report);
    tokio::spawn(async move {
        tokio::time::sleep(LAST_MATCH_MAX).await;
        is_over.store(true, Ordering::SeqCst);
    });
    for player in players {
        report.violations(player.await.expect("the task ends").into_iter().collect());
    }
    let counts = check_ratings(&mut report, &checker, &reports).await;
    drop((checker, cluster));
    report.finish();
    assert!(!counts.contains(&0), "agreed and disputed matches {counts:?}: the test shows nothing");
}
