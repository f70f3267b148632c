//! R1: many players wait in one queue at four servers, of which some are killed and some stand still all the time: nobody is in two
//! matches, nobody is lost, no match is half made, and ratings follow each result once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fireteam_client::{Client, Error, pb};
use pb::{MatchEndReason, TicketEndReason, TicketState};
use sqlx::Executor as _;
use sqlx::types::Uuid;
use tokio::time::Instant;

use crate::cluster::Fleet;
use crate::history::{Outcome, outcome};
use crate::report::{Chapter, Dice, percentile, scale, until};
use crate::seats::{Faults, torment};
use crate::support::database::{TestDatabase, create_test_database};
use crate::support::party::party_session;

const SERVERS: usize = 4;
const PLAYERS: usize = 96;

/// What is aimed at, and what it may take: the slower of two machines gets fewer, and says how many.
const KILLS: usize = 1_000;
const WITHIN: Duration = Duration::from_secs(80);

/// Matches a second before the first fault; with fewer the chapter would prove nothing.
const TRAFFIC_MIN: f64 = 20.0;

/// The set of the queue.
const SET: u32 = 11;

/// Anybody against anybody, by consent: what is to be shown here is who is matched with whom how often, not how well.
const RULES: &str = r#"<Ruleset Name="Anybody" SetId="11">
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="20"/>
  <ReadyCheck TimeoutMs="3000"/>
  <Rating System="elo"/>
</Ruleset>"#;

/// What somebody has who has never played, by that ruleset.
const NEWCOMER: f64 = 1_500.0;

/// How long servers may take to end what nobody answers any more: a ready check, a lease, and some.
const OVER_WITHIN: Duration = Duration::from_secs(20);

/// A queue whose server dies goes on at another one within this.
const MOVES_ON_WITHIN: Duration = Duration::from_secs(3);

/// How many say that their match is over, and not how it went.
const SAYS_NO_MORE: f64 = 0.3;

/// How many of those who enter leave again.
const LEAVES: f64 = 0.15;

/// What players were told.
#[derive(Default)]
struct Told {
    /// Tickets that a server said to have: ticket, player.
    entered: Mutex<Vec<(String, usize)>>,
    /// Matches that a ticket was told to be on: ticket, match.
    matched: Mutex<Vec<(String, String)>>,
    /// Tickets that were told to have left.
    left: Mutex<Vec<String>>,
    /// How long it took from entering to being told, microseconds.
    waits: Mutex<Vec<u64>>,
    /// Matches whose result was told to be taken.
    reported: Mutex<BTreeSet<String>>,
    /// Matches that were played to their end, told so.
    played: AtomicUsize,
    /// Ready checks that failed.
    failed: AtomicUsize,
}

/// Somebody who plays again and again.
struct Player {
    number: usize,
    fleet: Arc<Fleet>,
    told: Arc<Told>,
    dice: Dice,
    drawn: usize,
}

impl Player {
    /// Whoever is there, by chance.
    fn server(&self) -> Option<Client> {
        let first = self.dice.below(self.fleet.len());
        let all = (0..self.fleet.len()).map(|more| (first + more) % self.fleet.len());
        all.filter_map(|at| self.fleet.client(at, self.number)).next()
    }

    /// Asks until somebody says yes or no.
    async fn ask<Request: Clone, T>(
        &self,
        over: &AtomicBool,
        request: Request,
        call: impl AsyncFn(Client, Request) -> Result<T, Error>,
    ) -> Option<Result<T, Error>> {
        while !over.load(Ordering::SeqCst) {
            let Some(server) = self.server() else {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            };
            let answer = call(server, request.clone()).await;
            if outcome(&answer) != Outcome::Unknown {
                return Some(answer);
            }
        }
        None
    }

    /// Enters, and sees it through: to the end of a match, or of the ticket.
    async fn play(&mut self, over: &AtomicBool) {
        self.drawn += 1;
        let request = pb::QueueEnterRequest {
            session_composition: Some(party_session(&[(&format!("player {:03}", self.number), 0.0)])),
            matchmaking_set_id: Some(SET),
            idempotency_key: format!("ticket {:06} of player {:03}", self.drawn, self.number),
            ..Default::default()
        };
        let begun = Instant::now();
        let Some(entered) = self.ask(over, request, async |server, request| server.enter(request).await).await else {
            return;
        };
        // Still in a match that another ticket found, of which the end is not known everywhere.
        let Ok(queued) = entered else {
            return tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let reference = queued.reference();
        let id = reference.ticket_id.clone();
        self.told.entered.lock().unwrap().push((id.clone(), self.number));
        if self.dice.chance(LEAVES) && self.leave(over, &reference).await {
            return;
        }
        let mut told_of = BTreeSet::new();
        while !over.load(Ordering::SeqCst) {
            let beat = pb::QueueHeartbeatRequest { tickets: vec![reference.clone()], ..Default::default() };
            let Some(Ok(answer)) = self.ask(over, beat, async |server, beat| server.heartbeat(beat).await).await else {
                return;
            };
            let status = answer.statuses.into_iter().next().expect("its status");
            let play = status.found_match.clone().unwrap_or_default();
            match status.state() {
                TicketState::Proposed => self.answer(over, &reference, &play.match_id).await,
                TicketState::Matched => {
                    if told_of.insert(play.match_id.clone()) {
                        self.told.matched.lock().unwrap().push((id.clone(), play.match_id.clone()));
                        self.told.waits.lock().unwrap().push(begun.elapsed().as_micros() as u64);
                    }
                    self.end(over, &reference, &play.match_id).await;
                }
                // Nobody knows it: the server that was asked has only just begun. Another will.
                TicketState::Ended if status.end_reason() == TicketEndReason::Unspecified => {}
                TicketState::Ended => return,
                _ => {}
            }
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
    }

    /// Thinks better of it, at a server that may not be the one that runs the queue; whether it was soon enough.
    async fn leave(&self, over: &AtomicBool, ticket: &pb::TicketReference) -> bool {
        tokio::time::sleep(Duration::from_millis(self.dice.below(60) as u64)).await;
        let leave =
            pb::QueueLeaveRequest { ticket_id: ticket.ticket_id.clone(), ticket_token: ticket.ticket_token.clone() };
        let left = self.ask(over, leave, async |server, leave| server.leave(leave).await).await;
        let Some(pb::queue_leave_response::Result::Ended(status)) = left.and_then(Result::ok).and_then(|it| it.result)
        else {
            return false;
        };
        // Or it was over already: nobody answered for it while every server was gone.
        if status.end_reason() == TicketEndReason::Left {
            self.told.left.lock().unwrap().push(ticket.ticket_id.clone());
        }
        true
    }

    async fn answer(&self, over: &AtomicBool, ticket: &pb::TicketReference, match_id: &str) {
        let respond = pb::QueueRespondRequest {
            ticket_id: ticket.ticket_id.clone(),
            ticket_token: ticket.ticket_token.clone(),
            match_id: match_id.to_owned(),
            accept: !self.dice.chance(0.03),
            user_ids: Vec::new(),
        };
        if !respond.accept {
            self.told.failed.fetch_add(1, Ordering::SeqCst);
        }
        // Too late, or somebody else declined: the next heartbeat says.
        let _ = self.ask(over, respond, async |server, respond| server.respond(respond).await).await;
    }

    /// Says how the match went, or at times only that it is over. Both of its players do, and say the same.
    async fn end(&self, over: &AtomicBool, ticket: &pb::TicketReference, match_id: &str) {
        if !self.dice.chance(SAYS_NO_MORE) {
            let report = pb::ReportResultRequest {
                match_id: match_id.to_owned(),
                team_ranks: vec![pb::TeamRank { team: 0, rank: 1 }, pb::TeamRank { team: 1, rank: 2 }],
                ticket_token: ticket.ticket_token.clone(),
                ..Default::default()
            };
            let reported = self.ask(over, report, async |server, report| server.report_result(report).await).await;
            if reported.is_some_and(|it| it.is_ok()) {
                self.told.played.fetch_add(1, Ordering::SeqCst);
                self.told.reported.lock().unwrap().insert(match_id.to_owned());
            }
            return;
        }
        let end = pb::QueueEndMatchRequest {
            match_id: match_id.to_owned(),
            ticket_token: ticket.ticket_token.clone(),
            ..Default::default()
        };
        let ended = self.ask(over, end, async |server, end| server.end_match(end).await).await;
        if ended.is_some_and(|it| it.is_ok_and(|it| it.end_reason() == MatchEndReason::Played)) {
            self.told.played.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// R1, R5, S3-5, S3-6: any server takes any call, and one of them runs the queue; when it dies another goes on with all
/// that it had. No player in two matches, none told of one that is not there, none lost, no match half made, each
/// result applied once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn players_are_matched_once_whoever_dies() {
    let rounds = scale().ceil();
    for round in 0..rounds as u64 {
        fight(round, scale() / rounds).await;
    }
}

/// One round, which is this much of the short form.
async fn fight(round: u64, share: f64) {
    let mut chapter = Chapter::begin("matches").await;
    let Some(database) = create_test_database("players_are_matched_once_whoever_dies").await else { return };
    let rules = tempfile::tempdir().expect("a folder");
    std::fs::write(rules.path().join("anybody.xml"), RULES).expect("a ruleset");
    let folder = rules.path().display().to_string();
    let fleet = Arc::new(Fleet::start_with(&database.url, SERVERS, &["--rulesets", &folder]));
    let (told, faults, over) =
        (Arc::new(Told::default()), Arc::new(Faults::default()), Arc::new(AtomicBool::new(false)));
    let players: Vec<_> = (0..PLAYERS)
        .map(|number| {
            let (fleet, told, over) = (Arc::clone(&fleet), Arc::clone(&told), Arc::clone(&over));
            let mut player =
                Player { number, fleet, told, dice: chapter.dice(round * 10_000 + number as u64), drawn: 0 };
            tokio::spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    player.play(&over).await;
                }
            })
        })
        .collect();

    let begun = Instant::now();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let traffic = told.played.load(Ordering::SeqCst) as f64 / 2.0 / begun.elapsed().as_secs_f64();
    assert!(TRAFFIC_MIN <= traffic, "{traffic:.0} matches a second: too few to prove anything");
    chapter.figure("matches/s before", format!("{traffic:.0}"));
    let mut waits = std::mem::take(&mut *told.waits.lock().unwrap());
    waits.sort_unstable();
    chapter.figure("told after ms, p50", percentile(&waits, 0.5) / 1_000);
    chapter.figure("p99", percentile(&waits, 0.99) / 1_000);

    let begun = Instant::now();
    let (kills, within) = ((KILLS as f64 * share) as usize, WITHIN.mul_f64(share));
    let tormentors: Vec<_> = (0..SERVERS)
        .map(|at| {
            let (fleet, faults) = (Arc::clone(&fleet), Arc::clone(&faults));
            let dice = chapter.dice(round * 10_000 + 1_000 + at as u64);
            tokio::task::spawn_blocking(move || torment(&fleet, at, &dice, &faults))
        })
        .collect();
    while faults.kills.load(Ordering::SeqCst) < kills && begun.elapsed() < within {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    faults.over.store(true, Ordering::SeqCst);
    for task in tormentors {
        task.await.expect("it ends by itself");
    }
    let took = begun.elapsed();
    moves_on(&mut chapter, &fleet, &told).await;
    over.store(true, Ordering::SeqCst);
    for task in players {
        task.await.expect("it ends by itself");
    }

    chapter.figure("seconds", format!("{:.0}", took.as_secs_f64()));
    chapter.figure("kills", faults.kills.load(Ordering::SeqCst));
    chapter.figure("pauses", faults.pauses.load(Ordering::SeqCst));
    chapter.figure("told matched", told.matched.lock().unwrap().len());
    chapter.figure("left", told.left.lock().unwrap().len());
    chapter.figure("declined", told.failed.load(Ordering::SeqCst));
    check(&mut chapter, &database, &told).await;
    chapter.end();
}

/// The server that runs the queue dies: another goes on.
async fn moves_on(chapter: &mut Chapter, fleet: &Arc<Fleet>, told: &Told) {
    let mut slowest = Duration::ZERO;
    for at in 0..fleet.len() {
        fleet.kill(at);
        let before = told.matched.lock().unwrap().len();
        let took = until("another server goes on", async || before < told.matched.lock().unwrap().len()).await;
        slowest = slowest.max(took);
        let fleet = Arc::clone(fleet);
        tokio::task::spawn_blocking(move || fleet.fill(at, None, &[])).await.expect("it starts");
    }
    chapter.figure("moves on within ms", slowest.as_millis());
    if MOVES_ON_WITHIN < slowest {
        chapter.violated(format!("a queue stood still for {} ms after its server had died", slowest.as_millis()));
    }
}

/// A ticket's row, and a match's.
struct Rows {
    tickets: BTreeMap<String, (i16, Option<String>)>,
    /// How often each ticket has changed.
    editions: BTreeMap<String, i64>,
    matches: BTreeMap<String, (i16, Vec<(String, usize)>)>,
    playing: Vec<String>,
    /// Matches whose result was taken.
    results: BTreeSet<String>,
    /// The rating of every user who has one, and how many matches count in it.
    ratings: Vec<(f64, i64)>,
    /// Users whose rating has followed one match twice.
    twice: i64,
}

impl Rows {
    async fn read(database: &TestDatabase) -> Self {
        let mut connection = database.connect().await;
        // All of one moment: servers go on meanwhile.
        connection.execute("begin isolation level repeatable read read only").await.expect("a transaction");
        let name = |id: Uuid| id.simple().to_string();
        let tickets: Vec<(Uuid, i16, Option<Uuid>, i64)> =
            sqlx::query_as("select ticket_id, state, match_id, edition from ticket")
                .fetch_all(&mut connection)
                .await
                .expect("tickets");
        let matches: Vec<(Uuid, i16, String)> = sqlx::query_as("select match_id, stage, body from match")
            .fetch_all(&mut connection)
            .await
            .expect("matches");
        let playing: Vec<Uuid> =
            sqlx::query_scalar("select match_id from match_user").fetch_all(&mut connection).await.expect("players");
        let results: Vec<Uuid> =
            sqlx::query_scalar("select match_id from result").fetch_all(&mut connection).await.expect("results");
        let ratings: Vec<(f64, i64)> =
            sqlx::query_as("select rating, matches from rating").fetch_all(&mut connection).await.expect("ratings");
        let twice: i64 =
            sqlx::query_scalar("select count(*) - count(distinct (user_key, match_id)) from rating_change")
                .fetch_one(&mut connection)
                .await
                .expect("changes");
        let members = |body: &str| -> Vec<(String, usize)> {
            let body: serde_json::Value = serde_json::from_str(body).expect("a body");
            let members = body["m"].as_array().expect("members");
            let member = |it: &serde_json::Value| {
                let ticket = it[0].as_str().expect("a ticket").to_owned();
                (ticket, it[3].as_array().expect("seats").len())
            };
            members.iter().map(member).collect()
        };
        Self {
            editions: tickets.iter().map(|(id, .., edition)| (name(*id), *edition)).collect(),
            tickets: tickets.into_iter().map(|(id, state, by, _)| (name(id), (state, by.map(name)))).collect(),
            matches: matches.into_iter().map(|(id, stage, body)| (name(id), (stage, members(&body)))).collect(),
            playing: playing.into_iter().map(name).collect(),
            results: results.into_iter().map(name).collect(),
            ratings,
            twice,
        }
    }

    /// Matches that are not over and that nobody plays.
    fn unfinished(&self) -> usize {
        self.matches.values().filter(|(stage, _)| *stage < 2).count()
    }

    /// Half of a change without the other half.
    fn contradictions(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (id, (state, by)) in &self.tickets {
            let Some(by) = by.as_ref().filter(|_| *state == 1) else { continue };
            match self.matches.get(by) {
                Some((stage, members)) if *stage < 3 && members.iter().any(|(ticket, _)| ticket == id) => {}
                Some((stage, _)) => {
                    wrong.push(format!("half: ticket {id} is in match {by}, of stage {stage}, without it"))
                }
                None => wrong.push(format!("half: ticket {id} is in match {by}, which is not there")),
            }
        }
        // A ticket changes when it enters, when it comes into a match and when it leaves that: one that has not was never in it.
        let mut changes: BTreeMap<&str, i64> = BTreeMap::new();
        for (stage, members) in self.matches.values() {
            for (ticket, _) in members {
                *changes.entry(ticket).or_insert(1) += if *stage < 3 { 1 } else { 2 };
            }
        }
        for (ticket, changes) in changes {
            if let Some(edition) = self.editions.get(ticket).filter(|edition| **edition < changes) {
                wrong.push(format!("partial: ticket {ticket} has changed {edition} times, by its matches {changes}"));
            }
        }
        for (id, (stage, members)) in &self.matches {
            if members.len() != 2 {
                wrong.push(format!("partial: match {id} has {} tickets", members.len()));
            }
            let held = self.playing.iter().filter(|it| *it == id).count();
            let wanted = if *stage < 3 { members.iter().map(|(_, seats)| seats).sum() } else { 0 };
            if held != wanted {
                wrong.push(format!("half: match {id}, of stage {stage}, holds {held} players of {wanted}"));
            }
            for (ticket, _) in members.iter().filter(|_| *stage < 3) {
                if self.tickets.get(ticket) != Some(&(1, Some(id.clone()))) {
                    wrong.push(format!("half: match {id}, of stage {stage}, has ticket {ticket}, which is not in it"));
                }
            }
        }
        wrong
    }

    /// Results that ratings have followed twice, half, or not at all.
    fn miscounted(&self, told: &Told) -> Vec<String> {
        let mut wrong = Vec::new();
        let counted: i64 = self.ratings.iter().map(|(_, matches)| matches).sum();
        if counted != 2 * self.results.len() as i64 {
            wrong.push(format!(
                "ratings count {counted} matches of players, {} results have two each",
                self.results.len()
            ));
        }
        // What one wins the other loses.
        let drift: f64 = self.ratings.iter().map(|(rating, _)| rating - NEWCOMER).sum();
        if 1e-6 < drift.abs() {
            wrong.push(format!("half: all ratings together are {drift} from where they began"));
        }
        if self.twice != 0 {
            wrong.push(format!("twice: {} changes of a rating follow a match that it had followed", self.twice));
        }
        let lost = told.reported.lock().unwrap().iter().filter(|id| !self.results.contains(*id)).count();
        if 0 < lost {
            wrong.push(format!("lost: {lost} results were acknowledged and are not there"));
        }
        wrong
    }

    /// What players were told and the tables do not say.
    fn broken_promises(&self, told: &Told) -> Vec<String> {
        let mut wrong = Vec::new();
        for (ticket, player) in told.entered.lock().unwrap().iter() {
            if !self.tickets.contains_key(ticket) {
                wrong.push(format!("lost: ticket {ticket} of player {player} was acknowledged and is not there"));
            }
        }
        for ticket in told.left.lock().unwrap().iter() {
            if let Some((state, by)) = self.tickets.get(ticket).filter(|it| **it != (2, None)) {
                wrong.push(format!("twice: ticket {ticket} was told to have left and is in state {state}, {by:?}"));
            }
        }
        let mut on: BTreeMap<&str, &str> = BTreeMap::new();
        let matched = told.matched.lock().unwrap();
        for (ticket, play) in matched.iter() {
            if let Some(other) = on.insert(ticket, play).filter(|other| *other != play) {
                wrong.push(format!("twice: ticket {ticket} was told to be in {other} and in {play}"));
            }
            match self.matches.get(play) {
                None => wrong.push(format!("lost: match {play} was told to {ticket} and is not there")),
                Some((_, members)) if !members.iter().any(|(member, _)| member == ticket) => {
                    wrong.push(format!("lost: match {play} was told to {ticket}, which is not in it"));
                }
                Some(_) => {}
            }
        }
        wrong
    }
}

/// Holds everything against everything, once what nobody answers any more is over.
async fn check(chapter: &mut Chapter, database: &TestDatabase, told: &Told) {
    let begun = Instant::now();
    let mut rows = Rows::read(database).await;
    while 0 < rows.unfinished() && begun.elapsed() < OVER_WITHIN {
        tokio::time::sleep(Duration::from_millis(200)).await;
        rows = Rows::read(database).await;
    }
    if 0 < rows.unfinished() {
        chapter.violated(format!("{} matches never came to an end", rows.unfinished()));
    }
    chapter.figure("tickets", rows.tickets.len());
    chapter.figure("matches", rows.matches.len());
    chapter.figure("results", rows.results.len());
    chapter.all_violated(rows.contradictions());
    chapter.all_violated(rows.miscounted(told));
    chapter.all_violated(rows.broken_promises(told));
}
