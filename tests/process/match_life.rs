//! Game servers and hosting players disappear at every stage of a match, clients fall silent and leave, ruleset files
//! vanish, servers are killed, and Postgres pauses for longer than every deadline. No player stays in a match that is dead for
//! longer than documented, and none is punished for the fault of another.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fireteam_client::{Client, Error, pb};
use pb::queue_leave_response::Result as LeaveResult;
use pb::{TicketEndReason, TicketState};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::hosting_servers::{HostStatistics, run_game_server};
use crate::random_servers::RandomServerClient;
use crate::report::{TestReport, TestRng, scale, scaled};
use crate::support::database::{PostgresCluster, TestDatabase};
use crate::support::party::party_session;

const SERVERS: usize = 3;
const PLAYERS: usize = 80;
const GAME_SERVERS: usize = 20;

/// Sets of the test: played on game servers, and hosted by players.
pub(crate) const SERVER_SET: u32 = 21;
const PEER_SET: u32 = 22;

/// Matches on game servers to reach per unit of `SCALE` above 1, and the time limit: a slow machine reaches fewer, and reports
/// the number. Otherwise the test ends after one outage of the store.
const MATCHES: usize = 500;
const TIME_MAX: Duration = Duration::from_secs(150);

/// Each deadline is granted once more after the death of a server.
const GRANTED: u32 = 2;

/// Deadlines of both rulesets.
const READY_CHECK: Duration = Duration::from_secs(5);
const PLACEMENT: Duration = Duration::from_secs(9);
const CONFIRMATION: Duration = Duration::from_secs(3);
const HOST_LOSS: Duration = Duration::from_secs(5);
const TICKET_TTL: Duration = Duration::from_secs(8);

/// Time after which a deadline is enforced although a server has just died: it looks alive for five seconds.
const ENFORCED_WITHIN: Duration = Duration::from_secs(8);

/// Longer than each of them.
const STORE_OUTAGE: Duration = Duration::from_secs(12);

/// Time for a transition, its way to another server, and the player's next heartbeat, on the slowest machine.
const MARGIN: Duration = Duration::from_secs(6);

/// Longest play of a match whose host lives.
pub(crate) const PLAY_MAX: Duration = Duration::from_millis(400);

/// Time in which a player's own fault may show as a cooldown: the fault is noticed after the longest deadline.
const OWN_FAULT_SHOWS_FOR: Duration = Duration::from_secs(50);

const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(150);

/// Rules of a set. The queues of sets with odd numbers have passes on change.
fn rules(set_id: u32, hosting: &str) -> String {
    let passes =
        ["PassIntervalMs=\"50\"", "PassIntervalMs=\"1000\" Pass=\"on_change\" GatherMs=\"10\""][set_id as usize % 2];
    format!(
        r#"<Ruleset Name="Set {set_id}" SetId="{set_id}">
  <Teams Count="2" Size="1"/>
  <Queue {passes} TicketTtlMs="{ttl}"/>
  <ReadyCheck TimeoutMs="{ready}" DeclineCooldownMs="1000"/>
  <Hosting {hosting} HostLossMs="{loss}" ConfirmMs="{confirm}"/>
</Ruleset>"#,
        ttl = TICKET_TTL.as_millis(),
        ready = READY_CHECK.as_millis(),
        loss = HOST_LOSS.as_millis(),
        confirm = CONFIRMATION.as_millis(),
    )
}

/// Shared by all players and the faults.
#[derive(Default)]
struct World {
    stop: AtomicBool,
    /// Held while a server starts, which needs the store, and while an outage begins.
    server_start: tokio::sync::Mutex<()>,
    /// Intervals in which Postgres was paused; the last one may be open.
    store_outages: Mutex<Vec<(Instant, Option<Instant>)>>,
    matches_seen: AtomicUsize,
    cooldowns_of_own_fault: AtomicUsize,
    left: AtomicUsize,
    silent: AtomicUsize,
    peer_hosts_lost: AtomicUsize,
    violations: Mutex<Vec<String>>,
}

impl World {
    fn violation(&self, what: String) {
        self.violations.lock().expect("unpoisoned").push(what);
    }

    /// Time since `since` in which players could do something: without the outages, and a margin after each.
    fn available_since(&self, since: Instant) -> Duration {
        let now = Instant::now();
        let outages = self.store_outages.lock().expect("unpoisoned");
        let lost = outages.iter().filter_map(|(from, to)| {
            let to = to.map_or(now, |to| (to + MARGIN).min(now));
            to.checked_duration_since(since.max(*from))
        });
        (now - since).saturating_sub(lost.sum())
    }
}

/// Behaviour of a player with one ticket.
#[derive(Clone, Copy, PartialEq)]
enum Behaviour {
    Faithful,
    Declines,
    /// Stops all calls after this time, for longer than every deadline.
    FallsSilentAfter(Duration),
    /// Leaves after this time, in any stage.
    LeavesAfter(Duration),
    /// Stops all calls when it hosts a match.
    DiesAsHost,
}

impl Behaviour {
    fn random(rng: &TestRng) -> Self {
        let after = Duration::from_millis(rng.below(1_500) as u64);
        match rng.below(100) {
            0..3 => Self::Declines,
            3..6 => Self::FallsSilentAfter(after),
            6..16 => Self::LeavesAfter(after),
            16..26 => Self::DiesAsHost,
            _ => Self::Faithful,
        }
    }
}

struct Player {
    client: RandomServerClient,
    world: Arc<World>,
    hosts: Arc<HostStatistics>,
    tickets_entered: usize,
    own_fault_until: Option<Instant>,
}

impl Player {
    /// Repeats a call at random servers until its outcome is known. `None` if the test stops before.
    async fn call<Request: Clone, T>(
        &self,
        request: Request,
        send: impl AsyncFn(Client, Request) -> Result<T, Error>,
    ) -> Option<Result<T, Error>> {
        self.client.call(&self.world.stop, request, send).await
    }

    fn is_at_fault(&self) -> bool {
        self.own_fault_until.is_some_and(|until| Instant::now() < until)
    }

    fn admit_fault(&mut self) {
        self.own_fault_until = Some(Instant::now() + OWN_FAULT_SHOWS_FOR);
    }

    /// Enters a queue, and lives through the ticket.
    async fn play(&mut self) {
        let Some(ticket) = self.enter().await else { return };
        let behaviour = Behaviour::random(&self.client.rng);
        let (entered, mut state, mut since, mut beat) =
            (Instant::now(), TicketState::Waiting, Instant::now(), Instant::now());
        let mut last_match = String::new();
        while !self.world.stop.load(Ordering::SeqCst) {
            match behaviour {
                Behaviour::LeavesAfter(after) if after < entered.elapsed() => return self.leave(&ticket).await,
                Behaviour::FallsSilentAfter(after) if after < entered.elapsed() => {
                    self.world.silent.fetch_add(1, Ordering::SeqCst);
                    return self.fall_silent().await;
                }
                _ => {}
            }
            // The test itself was too slow: the player was silent.
            if TICKET_TTL / 3 < beat.elapsed() {
                self.admit_fault();
            }
            beat = Instant::now();
            let heartbeat = pb::QueueHeartbeatRequest { tickets: vec![ticket.clone()], ..Default::default() };
            let Some(Ok(answer)) =
                self.call(heartbeat, async |server, request| server.heartbeat_tickets(request).await).await
            else {
                return;
            };
            let status = answer.statuses.into_iter().next().expect("its status");
            let found_match = status.found_match.clone().unwrap_or_default();
            if (status.state(), &found_match.match_id) != (state, &last_match) {
                (state, since, last_match) = (status.state(), Instant::now(), found_match.match_id.clone());
            }
            match state {
                TicketState::Proposed => self.respond(&ticket, &found_match, behaviour).await,
                TicketState::Matched if self.play_match(&ticket, &found_match, behaviour).await => return,
                // A server that has just started may not know the ticket yet.
                TicketState::Ended if status.end_reason() == TicketEndReason::Unspecified => {}
                TicketState::Ended => return,
                _ => {}
            }
            let limit = match state {
                TicketState::Proposed => READY_CHECK * GRANTED,
                TicketState::Placing => PLACEMENT * GRANTED + CONFIRMATION,
                TicketState::Matched => PLAY_MAX + HOST_LOSS * GRANTED,
                _ => Duration::MAX,
            };
            if limit.saturating_add(ENFORCED_WITHIN + MARGIN) < self.world.available_since(since) {
                let what =
                    format!("player {} is {state:?} for {:?}, match {last_match}", self.client.number, since.elapsed());
                self.world.violation(what);
                return self.leave(&ticket).await;
            }
            tokio::time::sleep(HEARTBEAT_INTERVAL).await;
        }
    }

    /// Enters one of the queues. After a ticket has ended, the player must be able to: soon, or after a cooldown that is
    /// their own fault.
    async fn enter(&mut self) -> Option<pb::TicketReference> {
        self.tickets_entered += 1;
        let request = pb::QueueEnterRequest {
            session_composition: Some(party_session(&[(&format!("player {:03}", self.client.number), 0.0)])),
            matchmaking_set_id: Some(if self.client.rng.chance(0.5) { SERVER_SET } else { PEER_SET }),
            idempotency_key: format!("ticket {:06} of player {:03}", self.tickets_entered, self.client.number),
            ..Default::default()
        };
        let started = Instant::now();
        while !self.world.stop.load(Ordering::SeqCst) {
            let error =
                match self.call(request.clone(), async |server, request| server.enter_queue(request).await).await? {
                    Ok(queued) => return Some(queued.reference()),
                    Err(error) => error,
                };
            if error.as_server_error().is_some_and(|error| error.reason.as_deref() == Some("QUEUE_COOLDOWN")) {
                if !self.is_at_fault() {
                    self.world.violation(format!("player {} is punished without a fault: {error}", self.client.number));
                    self.admit_fault();
                }
                self.world.cooldowns_of_own_fault.fetch_add(1, Ordering::SeqCst);
            }
            // A player who fell silent may still be in the match that they left behind.
            let limit = if self.is_at_fault() { OWN_FAULT_SHOWS_FOR } else { HOST_LOSS * GRANTED };
            if limit + ENFORCED_WITHIN + MARGIN < self.world.available_since(started) {
                self.world.violation(format!("player {} is locked out: {error}", self.client.number));
                return None;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        None
    }

    async fn leave(&mut self, ticket: &pb::TicketReference) {
        self.admit_fault();
        let leave = pb::QueueLeaveRequest {
            ticket_id: ticket.ticket_id.clone(),
            ticket_token: ticket.ticket_token.clone(),
            ..Default::default()
        };
        let left = self.call(leave, async |server, leave| server.leave_queue(leave).await).await;
        match left {
            Some(Ok(answer)) => {
                self.world.left.fetch_add(1, Ordering::SeqCst);
                if !matches!(answer.result, Some(LeaveResult::Ended(_))) {
                    self.world.violation(format!("player {} left and the ticket goes on", self.client.number));
                }
            }
            Some(Err(error)) => self.world.violation(format!("player {} cannot leave: {error}", self.client.number)),
            None => {}
        }
    }

    /// Makes no call for longer than every deadline.
    async fn fall_silent(&mut self) {
        self.admit_fault();
        let until = Instant::now() + TICKET_TTL + HOST_LOSS + ENFORCED_WITHIN + MARGIN;
        while Instant::now() < until && !self.world.stop.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.admit_fault();
    }

    async fn respond(&mut self, ticket: &pb::TicketReference, found: &pb::MatchStatus, behaviour: Behaviour) {
        let accept = behaviour != Behaviour::Declines;
        if !accept {
            self.admit_fault();
        }
        let respond = pb::QueueRespondRequest {
            ticket_id: ticket.ticket_id.clone(),
            ticket_token: ticket.ticket_token.clone(),
            match_id: found.match_id.clone(),
            accept,
            user_ids: Vec::new(),
        };
        // If it is too late, or another player declined, the next heartbeat has the status.
        let _ = self.call(respond, async |server, respond| server.respond_to_ready_check(respond).await).await;
    }

    /// One heartbeat in a match. True if the player has disappeared.
    async fn play_match(
        &mut self,
        ticket: &pb::TicketReference,
        found: &pb::MatchStatus,
        behaviour: Behaviour,
    ) -> bool {
        self.world.matches_seen.fetch_add(1, Ordering::SeqCst);
        let host = found.assignment.as_ref().and_then(|assignment| match &assignment.host {
            Some(pb::assignment::Host::PeerHost(peer)) => Some(peer.player_key.clone()),
            _ => None,
        });
        let hosts = host.is_some() && host == found.own_players.first().map(|own| own.player_key.clone());
        let is_named = |hosts: &HostStatistics| hosts.named.lock().expect("unpoisoned").contains(&found.match_id);
        if host.is_none() && !is_named(&self.hosts) {
            self.world.violation(format!("match {} began without the word of a game server", found.match_id));
        }
        if !hosts {
            return false;
        }
        if behaviour == Behaviour::DiesAsHost {
            self.world.peer_hosts_lost.fetch_add(1, Ordering::SeqCst);
            self.fall_silent().await;
            return true;
        }
        let end = pb::QueueEndMatchRequest {
            match_id: found.match_id.clone(),
            ticket_token: ticket.ticket_token.clone(),
            ..Default::default()
        };
        let _ = self.call(end, async |server, end| server.end_match(end).await).await;
        false
    }
}

/// Kills servers and removes the file of the peer set for a while, until stopped. Blocking.
fn inject_faults(cluster: &Cluster, rules: &std::path::Path, rng: &TestRng, world: &World) -> usize {
    let (file, away) = (rules.join("peers.xml"), rules.join("peers.xml.away"));
    let mut kills = 0;
    while !world.stop.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(500 + rng.below(1_500) as u64));
        if rng.chance(0.3) {
            std::fs::rename(&file, &away).expect("the file is removed");
            std::thread::sleep(Duration::from_millis(rng.below(2_000) as u64));
            std::fs::rename(&away, &file).expect("the file is back");
            continue;
        }
        let _no_outage_begins = world.server_start.blocking_lock();
        if world.store_outages.lock().expect("unpoisoned").iter().all(|(_, end)| end.is_some()) {
            // A server starts only while the store answers.
            let at = rng.below(cluster.len());
            cluster.kill(at);
            kills += 1;
            cluster.fill(at, None, &[]);
        }
    }
    kills
}

/// Rows that show a match or a ticket that did not end.
async fn unfinished_rows(database: &TestDatabase) -> Vec<String> {
    let mut connection = database.connect().await;
    let mut rows = Vec::new();
    for (what, query) in [
        ("matches that did not end", "select count(*) from match where stage <> 3"),
        ("players in a match", "select count(*) from match_user"),
        ("tickets in a match", "select count(*) from ticket where state = 1"),
    ] {
        let count: i64 = sqlx::query_scalar(query).fetch_one(&mut connection).await.expect("a count");
        if count != 0 {
            rows.push(format!("{count} {what}"));
        }
    }
    rows
}

/// Everything ends after the last call: no match, ticket or player stays behind.
async fn check_end(report: &mut TestReport, database: &TestDatabase) {
    let mut rows = unfinished_rows(database).await;
    let ended = Instant::now();
    while !rows.is_empty() && ended.elapsed() < TICKET_TTL + PLACEMENT + HOST_LOSS + MARGIN {
        tokio::time::sleep(Duration::from_millis(500)).await;
        rows = unfinished_rows(database).await;
    }
    report.violations(rows);
    let matches: i64 = sqlx::query_scalar("select count(*) from match")
        .fetch_one(&mut database.connect().await)
        .await
        .expect("a count");
    report.record("matches in all", matches);
}

/// Counts of the cases that must happen for the test to show something, by name.
fn counts<'a>(world: &'a World, hosts: &'a HostStatistics) -> [(&'static str, &'a AtomicUsize); 9] {
    [
        ("matches on game servers", &hosts.ended),
        ("confirmed", &hosts.confirmed),
        ("died before confirming", &hosts.died_unconfirmed),
        ("died in play", &hosts.died_in_play),
        ("gave up", &hosts.gave_up),
        ("peer hosts lost", &world.peer_hosts_lost),
        ("left", &world.left),
        ("silent", &world.silent),
        ("cooldowns of own fault", &world.cooldowns_of_own_fault),
    ]
}

/// Names of the counts that are zero.
fn names_of_zeros(world: &World, hosts: &HostStatistics) -> Vec<&'static str> {
    let zeros = counts(world, hosts).into_iter().filter(|(_, count)| count.load(Ordering::SeqCst) == 0);
    zeros.map(|(name, _)| name).collect()
}

/// Records the counts and the violations.
fn record_counts(report: &mut TestReport, world: &World, hosts: &HostStatistics) {
    for (name, count) in counts(world, hosts) {
        report.record(name, count.load(Ordering::SeqCst));
    }
    report.violations(world.violations.lock().expect("unpoisoned").clone());
}

/// Cases 1 to 6 of the life of a match, at random and all at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_player_is_locked_out_or_punished_when_something_else_breaks() {
    let mut report = TestReport::start("match life").await;
    let Some(postgres) = PostgresCluster::start_with_tcp_addresses("match_life", "") else { return };
    let database = postgres.create_database("fireteam").await;
    let folder = tempfile::tempdir().expect("a folder");
    let placement = format!(r#"Mode="game_server" AllocationTimeoutMs="{}""#, PLACEMENT.as_millis());
    std::fs::write(folder.path().join("servers.xml"), rules(SERVER_SET, &placement)).expect("a ruleset");
    std::fs::write(folder.path().join("peers.xml"), rules(PEER_SET, r#"Mode="peer""#)).expect("a ruleset");
    let rules_folder = folder.path().display().to_string();
    let cluster = Arc::new(Cluster::start_with(&database.url, SERVERS, &["--rulesets", &rules_folder]));
    let (world, hosts) = (Arc::new(World::default()), Arc::new(HostStatistics::default()));

    let mut tasks = Vec::new();
    for number in 0..GAME_SERVERS {
        let rng = report.rng(2_000 + number as u64);
        let (cluster, world, hosts) = (Arc::clone(&cluster), Arc::clone(&world), Arc::clone(&hosts));
        tasks.push(tokio::spawn(async move { run_game_server(number, cluster, rng, hosts, &world.stop).await }));
    }
    for number in 0..PLAYERS {
        let mut player = Player {
            client: RandomServerClient::new(&cluster, number, &report),
            world: Arc::clone(&world),
            hosts: Arc::clone(&hosts),
            tickets_entered: 0,
            own_fault_until: None,
        };
        tasks.push(tokio::spawn(async move {
            while !player.world.stop.load(Ordering::SeqCst) {
                player.play().await;
            }
        }));
    }
    let faults = {
        let (cluster, world, rng) = (Arc::clone(&cluster), Arc::clone(&world), report.rng(1_000));
        let rules = folder.path().to_owned();
        tokio::task::spawn_blocking(move || inject_faults(&cluster, &rules, &rng, &world))
    };

    let wanted = if scale() <= 1.0 { 0 } else { scaled(MATCHES) };
    let (time_max, started) = (TIME_MAX.mul_f64(scale().max(1.0)), Instant::now());
    let mut outages = 0;
    while (hosts.ended.load(Ordering::SeqCst) < wanted || outages == 0) && started.elapsed() < time_max {
        tokio::time::sleep(Duration::from_secs(if outages == 0 { 10 } else { 25 })).await;
        {
            let _no_server_starts = world.server_start.lock().await;
            world.store_outages.lock().expect("unpoisoned").push((Instant::now(), None));
            postgres.send_command("pause");
        }
        tokio::time::sleep(STORE_OUTAGE).await;
        postgres.send_command("resume");
        world.store_outages.lock().expect("unpoisoned").last_mut().expect("an outage").1 = Some(Instant::now());
        outages += 1;
        tokio::time::sleep(Duration::from_secs(8)).await;
    }
    // Each is rare on a busy machine.
    while !names_of_zeros(&world, &hosts).is_empty() && started.elapsed() < time_max {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    world.stop.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.expect("the task ends");
    }
    report.record("kills", faults.await.expect("the faults end"));
    report.record("store outages", outages);
    check_end(&mut report, &database).await;
    record_counts(&mut report, &world, &hosts);
    let zero = names_of_zeros(&world, &hosts);
    drop(cluster);
    report.finish();
    assert!(zero.is_empty(), "{zero:?} did not happen: the test shows nothing");
}
