//! R1: many players wait in one queue at four servers, of which some are being killed or paused at any time. No player is in
//! two matches, no ticket is lost, no match is partial, and each result is rated once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fireteam_client::{Client, Error, pb};
use pb::{MatchEndReason, TicketEndReason, TicketState};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::history::{CallOutcome, call_outcome};
use crate::match_checks::{Observed, check_rows};
use crate::report::{TestReport, TestRng, percentile, scale, until};
use crate::seats::{Faults, inject_faults};
use crate::support::database::create_test_database;
use crate::support::party::party_session;

const SERVERS: usize = 4;
const PLAYERS: usize = 96;

/// Target number of kills, and the time limit: a slow machine reaches fewer kills, and reports the number.
const KILLS: usize = 500;
const TIME_MAX: Duration = Duration::from_secs(40);

/// Matches before the first fault, so that the test has enough load to show a violation.
const MATCHES_BEFORE_FAULTS: usize = 60;

/// Matchmaking set of the queue.
const SET: u32 = 11;

/// Any two players match, with a ready check: the test is about consistency, not about match quality.
pub(crate) const RULES: &str = r#"<Ruleset Name="Any two players" SetId="11">
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="20"/>
  <ReadyCheck TimeoutMs="3000" DeclineCooldownMs="0"/>
  <Rating System="elo"/>
</Ruleset>"#;

/// Limit on the time until another server runs the queue of a killed one.
const TAKEOVER_WITHIN: Duration = Duration::from_secs(3);

/// Share of the players who end their match without a result.
const END_WITHOUT_RESULT_SHARE: f64 = 0.3;

/// Share of the players who leave after they have entered.
const LEAVE_SHARE: f64 = 0.15;

/// A player who enters the queue again after each match.
struct Player {
    number: usize,
    cluster: Arc<Cluster>,
    observed: Arc<Observed>,
    rng: TestRng,
    tickets_entered: usize,
}

impl Player {
    /// A random server that is running.
    fn server(&self) -> Option<Client> {
        let first = self.rng.below(self.cluster.len());
        let all = (0..self.cluster.len()).map(|more| (first + more) % self.cluster.len());
        all.filter_map(|at| self.cluster.client(at, self.number)).next()
    }

    /// Repeats a call until its outcome is known.
    async fn call_until_answered<Request: Clone, T>(
        &self,
        stop: &AtomicBool,
        request: Request,
        call: impl AsyncFn(Client, Request) -> Result<T, Error>,
    ) -> Option<Result<T, Error>> {
        while !stop.load(Ordering::SeqCst) {
            let Some(server) = self.server() else {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            };
            let answer = call(server, request.clone()).await;
            if call_outcome(&answer) != CallOutcome::Unknown {
                return Some(answer);
            }
        }
        None
    }

    /// Enters the queue, and continues to the end of the match or of the ticket.
    async fn play(&mut self, stop: &AtomicBool) {
        self.tickets_entered += 1;
        let request = pb::QueueEnterRequest {
            session_composition: Some(party_session(&[(&format!("player {:03}", self.number), 0.0)])),
            matchmaking_set_id: Some(SET),
            idempotency_key: format!("ticket {:06} of player {:03}", self.tickets_entered, self.number),
            ..Default::default()
        };
        let started = Instant::now();
        let Some(entered) =
            self.call_until_answered(stop, request, async |server, request| server.enter_queue(request).await).await
        else {
            return;
        };
        // The player's match of another ticket has ended, but not yet at all servers.
        let Ok(queued) = entered else {
            return tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let reference = queued.reference();
        let id = reference.ticket_id.clone();
        self.observed.entered.lock().unwrap().push((id.clone(), self.number));
        if self.rng.chance(LEAVE_SHARE) && self.leave(stop, &reference).await {
            return;
        }
        let mut seen_matches = BTreeSet::new();
        while !stop.load(Ordering::SeqCst) {
            let heartbeat = pb::QueueHeartbeatRequest { tickets: vec![reference.clone()], ..Default::default() };
            let Some(Ok(answer)) = self
                .call_until_answered(stop, heartbeat, async |server, heartbeat| {
                    server.heartbeat_tickets(heartbeat).await
                })
                .await
            else {
                return;
            };
            let status = answer.statuses.into_iter().next().expect("its status");
            let found_match = status.found_match.clone().unwrap_or_default();
            match status.state() {
                TicketState::Proposed => self.respond(stop, &reference, &found_match.match_id).await,
                TicketState::Matched => {
                    if seen_matches.insert(found_match.match_id.clone()) {
                        self.observed.matched.lock().unwrap().push((id.clone(), found_match.match_id.clone()));
                        self.observed.waits.lock().unwrap().push(started.elapsed().as_micros() as u64);
                    }
                    self.end_match(stop, &reference, &found_match.match_id).await;
                }
                // This server has just started and does not know the ticket yet. Another server does.
                TicketState::Ended if status.end_reason() == TicketEndReason::Unspecified => {}
                TicketState::Ended => return,
                _ => {}
            }
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
    }

    /// Leaves after a random time, at any server; true if the ticket ended.
    async fn leave(&self, stop: &AtomicBool, ticket: &pb::TicketReference) -> bool {
        tokio::time::sleep(Duration::from_millis(self.rng.below(60) as u64)).await;
        let leave = pb::QueueLeaveRequest {
            ticket_id: ticket.ticket_id.clone(),
            ticket_token: ticket.ticket_token.clone(),
            ..Default::default()
        };
        let left = self.call_until_answered(stop, leave, async |server, leave| server.leave_queue(leave).await).await;
        let Some(pb::queue_leave_response::Result::Ended(status)) = left.and_then(Result::ok).and_then(|it| it.result)
        else {
            return false;
        };
        // Or it had expired, because no server was running.
        if status.end_reason() == TicketEndReason::Left {
            self.observed.left.lock().unwrap().push(ticket.ticket_id.clone());
        }
        true
    }

    async fn respond(&self, stop: &AtomicBool, ticket: &pb::TicketReference, match_id: &str) {
        let respond = pb::QueueRespondRequest {
            ticket_id: ticket.ticket_id.clone(),
            ticket_token: ticket.ticket_token.clone(),
            match_id: match_id.to_owned(),
            accept: !self.rng.chance(0.03),
            user_ids: Vec::new(),
        };
        if !respond.accept {
            self.observed.failed.fetch_add(1, Ordering::SeqCst);
        }
        // Too late, or the other player declined: the next heartbeat has the status.
        let _ = self
            .call_until_answered(stop, respond, async |server, respond| server.respond_to_ready_check(respond).await)
            .await;
    }

    /// Reports the result, or sometimes only the end. Both players report the same.
    async fn end_match(&self, stop: &AtomicBool, ticket: &pb::TicketReference, match_id: &str) {
        if !self.rng.chance(END_WITHOUT_RESULT_SHARE) {
            let report = pb::ReportResultRequest {
                match_id: match_id.to_owned(),
                team_ranks: vec![pb::TeamRank { team: 0, rank: 1 }, pb::TeamRank { team: 1, rank: 2 }],
                ticket_token: ticket.ticket_token.clone(),
                ..Default::default()
            };
            let reported =
                self.call_until_answered(stop, report, async |server, report| server.report_result(report).await).await;
            if reported.is_some_and(|it| it.is_ok()) {
                self.observed.played.fetch_add(1, Ordering::SeqCst);
                self.observed.reported.lock().unwrap().insert(match_id.to_owned());
            }
            return;
        }
        let end = pb::QueueEndMatchRequest {
            match_id: match_id.to_owned(),
            ticket_token: ticket.ticket_token.clone(),
            ..Default::default()
        };
        let ended = self.call_until_answered(stop, end, async |server, end| server.end_match(end).await).await;
        if ended.is_some_and(|it| it.is_ok_and(|it| it.end_reason() == MatchEndReason::Played)) {
            self.observed.played.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// R1, R5, S3-5, S3-6: any server takes any call, and one of them runs the queue; when it is killed, another continues with all
/// tickets. No player is in two matches, no match in a status is missing, no ticket is lost, no match is partial, and each
/// result is rated once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn players_are_matched_once_when_servers_are_killed() {
    let rounds = scale().ceil();
    for round in 0..rounds as u64 {
        run_round(round, scale() / rounds).await;
    }
}

/// Starts all players. Each plays until `stop`, with random numbers of its own.
pub(crate) fn spawn_players(
    cluster: &Arc<Cluster>,
    observed: &Arc<Observed>,
    stop: &Arc<AtomicBool>,
    rng: impl Fn(u64) -> TestRng,
) -> Vec<JoinHandle<()>> {
    let spawn = |number: usize| {
        let (cluster, observed, stop) = (Arc::clone(cluster), Arc::clone(observed), Arc::clone(stop));
        let mut player = Player { number, cluster, observed, rng: rng(number as u64), tickets_entered: 0 };
        tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                player.play(&stop).await;
            }
        })
    };
    (0..PLAYERS).map(spawn).collect()
}

/// One round, with `share` of the kills and of the time limit.
async fn run_round(round: u64, share: f64) {
    let mut report = TestReport::start("matches").await;
    let Some(database) = create_test_database("players_are_matched_once_when_servers_are_killed").await else { return };
    let cluster = Arc::new(Cluster::start_with_ruleset(&database.url, SERVERS, RULES));
    let (observed, faults, stop) =
        (Arc::new(Observed::default()), Arc::new(Faults::default()), Arc::new(AtomicBool::new(false)));
    let players = spawn_players(&cluster, &observed, &stop, |number| report.rng(round * 10_000 + number));

    let started = Instant::now();
    let played = || observed.played.load(Ordering::SeqCst) / 2;
    until("matches are played", async || MATCHES_BEFORE_FAULTS <= played()).await;
    report.record("matches/s before", format!("{:.0}", played() as f64 / started.elapsed().as_secs_f64()));
    let mut waits = std::mem::take(&mut *observed.waits.lock().unwrap());
    waits.sort_unstable();
    report.record("match status after ms, p50", percentile(&waits, 0.5) / 1_000);
    report.record("p99", percentile(&waits, 0.99) / 1_000);

    let started = Instant::now();
    let (kills, time_max) = ((KILLS as f64 * share) as usize, TIME_MAX.mul_f64(share));
    let fault_tasks: Vec<_> = (0..SERVERS)
        .map(|at| {
            let (cluster, faults) = (Arc::clone(&cluster), Arc::clone(&faults));
            let rng = report.rng(round * 10_000 + 1_000 + at as u64);
            tokio::task::spawn_blocking(move || inject_faults(&cluster, at, &rng, &faults))
        })
        .collect();
    while faults.kills.load(Ordering::SeqCst) < kills && started.elapsed() < time_max {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    faults.stop.store(true, Ordering::SeqCst);
    for task in fault_tasks {
        task.await.expect("the task ends");
    }
    let took = started.elapsed();
    measure_takeover(&mut report, &cluster, &observed).await;
    stop.store(true, Ordering::SeqCst);
    for task in players {
        task.await.expect("the task ends");
    }

    report.record("seconds", format!("{:.0}", took.as_secs_f64()));
    report.record("kills", faults.kills.load(Ordering::SeqCst));
    report.record("pauses", faults.pauses.load(Ordering::SeqCst));
    report.record("matched", observed.matched.lock().unwrap().len());
    report.record("left", observed.left.lock().unwrap().len());
    report.record("declined", observed.failed.load(Ordering::SeqCst));
    check_rows(&mut report, &database, &observed).await;
    report.finish();
}

/// Kills each server in turn and measures the time until another one runs the queue.
async fn measure_takeover(report: &mut TestReport, cluster: &Arc<Cluster>, observed: &Observed) {
    let mut slowest = Duration::ZERO;
    for at in 0..cluster.len() {
        cluster.kill(at);
        let before = observed.matched.lock().unwrap().len();
        let took =
            until("another server runs the queue", async || before < observed.matched.lock().unwrap().len()).await;
        slowest = slowest.max(took);
        let cluster = Arc::clone(cluster);
        tokio::task::spawn_blocking(move || cluster.fill(at, None, &[])).await.expect("the server starts");
    }
    report.record("takeover within ms", slowest.as_millis());
    if TAKEOVER_WITHIN < slowest {
        report.violation(format!("a queue did not run for {} ms after its server was killed", slowest.as_millis()));
    }
}
