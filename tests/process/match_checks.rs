//! Compares what players of [`matches`](crate::matches) saw with the tables: tickets, matches, results and ratings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use sqlx::Executor as _;
use sqlx::types::Uuid;
use tokio::time::Instant;

use crate::report::TestReport;
use crate::support::database::TestDatabase;

/// Initial rating in the ruleset of the test.
const INITIAL_RATING: f64 = 1_500.0;

/// Number of the end reason of a ticket that left, from the queue or out of its match.
const END_REASON_LEFT: i16 = 0;

/// Time for servers to end matches without replies: a ready check, a lease, and a margin.
const MATCHES_ENDED_WITHIN: Duration = Duration::from_secs(20);

/// Acknowledged changes, as players have seen them.
#[derive(Default)]
pub(crate) struct Observed {
    /// Acknowledged tickets: ticket, player.
    pub(crate) entered: Mutex<Vec<(String, usize)>>,
    /// Matches in ticket statuses: ticket, match.
    pub(crate) matched: Mutex<Vec<(String, String)>>,
    /// Tickets acknowledged as left.
    pub(crate) left: Mutex<Vec<String>>,
    /// Time from entering to the match status, microseconds.
    pub(crate) waits: Mutex<Vec<u64>>,
    /// Matches whose result was acknowledged.
    pub(crate) reported: Mutex<BTreeSet<String>>,
    /// Matches acknowledged as played.
    pub(crate) played: AtomicUsize,
    /// Declined ready checks.
    pub(crate) failed: AtomicUsize,
}

/// Rows of tickets, matches, results and ratings.
struct Rows {
    tickets: BTreeMap<String, (i16, Option<String>)>,
    /// End reason of each ticket that has ended.
    end_reasons: BTreeMap<String, i16>,
    /// Number of changes of each ticket.
    versions: BTreeMap<String, i64>,
    matches: BTreeMap<String, (i16, Vec<(String, usize)>)>,
    playing: Vec<String>,
    /// Matches with a stored result.
    results: BTreeSet<String>,
    /// Rating of each rated user, with its number of matches.
    ratings: Vec<(f64, i64)>,
    /// Users with two rating changes for one match.
    duplicate_changes: i64,
}

/// Ticket id, state, match id, version and end reason.
type TicketColumns = (Uuid, i16, Option<Uuid>, i64, Option<i16>);

impl Rows {
    async fn read(database: &TestDatabase) -> Self {
        let mut connection = database.connect().await;
        // A snapshot: servers write at the same time.
        connection.execute("begin isolation level repeatable read read only").await.expect("a transaction");
        let name = |id: Uuid| id.simple().to_string();
        let tickets: Vec<TicketColumns> =
            sqlx::query_as("select ticket_id, state, match_id, version, end_reason from ticket")
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
            sqlx::query_as("select rating, match_count from rating").fetch_all(&mut connection).await.expect("ratings");
        let duplicate_changes: i64 =
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
            versions: tickets.iter().map(|(id, .., version, _)| (name(*id), *version)).collect(),
            end_reasons: tickets.iter().filter_map(|(id, .., reason)| Some((name(*id), (*reason)?))).collect(),
            tickets: tickets.into_iter().map(|(id, state, by, ..)| (name(id), (state, by.map(name)))).collect(),
            matches: matches.into_iter().map(|(id, stage, body)| (name(id), (stage, members(&body)))).collect(),
            playing: playing.into_iter().map(name).collect(),
            results: results.into_iter().map(name).collect(),
            ratings,
            duplicate_changes,
        }
    }

    /// Matches that have not ended.
    fn unfinished(&self) -> usize {
        self.matches.values().filter(|(stage, _)| *stage < 2).count()
    }

    /// Changes of which only a part was stored.
    fn inconsistencies(&self) -> Vec<String> {
        let mut violations = Vec::new();
        for (id, (state, by)) in &self.tickets {
            let Some(by) = by.as_ref().filter(|_| *state == 1) else { continue };
            match self.matches.get(by) {
                Some((stage, members)) if *stage < 3 && members.iter().any(|(ticket, _)| ticket == id) => {}
                Some((stage, _)) => violations.push(format!(
                    "incomplete: ticket {id} is in match {by}, of stage {stage}, which does not list it"
                )),
                None => violations.push(format!("incomplete: ticket {id} is in match {by}, which is not stored")),
            }
        }
        // A ticket changes when it enters, when it joins a match and when that match ends. With fewer changes it never joined.
        let mut changes: BTreeMap<&str, i64> = BTreeMap::new();
        for (stage, members) in self.matches.values() {
            for (ticket, _) in members {
                *changes.entry(ticket).or_insert(1) += if *stage < 3 { 1 } else { 2 };
            }
        }
        for (ticket, changes) in changes {
            if let Some(version) = self.versions.get(ticket).filter(|version| **version < changes) {
                violations
                    .push(format!("partial: ticket {ticket} has {version} changes, its matches require {changes}"));
            }
        }
        for (id, (stage, members)) in &self.matches {
            if members.len() != 2 {
                violations.push(format!("partial: match {id} has {} tickets", members.len()));
            }
            let held = self.playing.iter().filter(|it| *it == id).count();
            let wanted = if *stage < 3 { members.iter().map(|(_, seats)| seats).sum() } else { 0 };
            if held != wanted {
                violations.push(format!("incomplete: match {id}, of stage {stage}, holds {held} players of {wanted}"));
            }
            for (ticket, _) in members.iter().filter(|_| *stage < 3) {
                if self.tickets.get(ticket) != Some(&(1, Some(id.clone()))) {
                    violations.push(format!(
                        "incomplete: match {id}, of stage {stage}, has ticket {ticket}, which is not in it"
                    ));
                }
            }
        }
        violations
    }

    /// Results that were rated twice, partially, or not at all.
    fn rating_errors(&self, observed: &Observed) -> Vec<String> {
        let mut violations = Vec::new();
        let counted: i64 = self.ratings.iter().map(|(_, matches)| matches).sum();
        if counted != 2 * self.results.len() as i64 {
            violations.push(format!(
                "ratings count {counted} matches of players, {} results have two each",
                self.results.len()
            ));
        }
        // With Elo, one player gains what the other loses.
        let drift: f64 = self.ratings.iter().map(|(rating, _)| rating - INITIAL_RATING).sum();
        if 1e-6 < drift.abs() {
            violations.push(format!("incomplete: the sum of all ratings has changed by {drift}"));
        }
        if self.duplicate_changes != 0 {
            violations.push(format!(
                "twice: {} rating changes are for a match that was rated already",
                self.duplicate_changes
            ));
        }
        let lost = observed.reported.lock().unwrap().iter().filter(|id| !self.results.contains(*id)).count();
        if 0 < lost {
            violations.push(format!("lost: {lost} results were acknowledged and are not stored"));
        }
        violations
    }

    /// Acknowledged changes that the tables do not have.
    fn lost_acknowledgements(&self, observed: &Observed) -> Vec<String> {
        let mut violations = Vec::new();
        for (ticket, player) in observed.entered.lock().unwrap().iter() {
            if !self.tickets.contains_key(ticket) {
                violations.push(format!("lost: ticket {ticket} of player {player} was acknowledged and is not stored"));
            }
        }
        for ticket in observed.left.lock().unwrap().iter() {
            let Some((state, by)) = self.tickets.get(ticket) else { continue };
            let end_reason = self.end_reasons.get(ticket);
            if *state != 2 || end_reason != Some(&END_REASON_LEFT) {
                violations.push(format!(
                    "twice: ticket {ticket} was acknowledged as left and is in state {state}, {by:?}, {end_reason:?}"
                ));
            }
        }
        let mut on: BTreeMap<&str, &str> = BTreeMap::new();
        let matched = observed.matched.lock().unwrap();
        for (ticket, match_id) in matched.iter() {
            if let Some(other) = on.insert(ticket, match_id).filter(|other| *other != match_id) {
                violations.push(format!("twice: ticket {ticket} had statuses with match {other} and match {match_id}"));
            }
            match self.matches.get(match_id) {
                None => {
                    violations.push(format!("lost: match {match_id} was in the status of {ticket} and is not stored"))
                }
                Some((_, members)) if !members.iter().any(|(member, _)| member == ticket) => {
                    violations
                        .push(format!("lost: match {match_id} was in the status of {ticket}, which it does not list"));
                }
                Some(_) => {}
            }
        }
        violations
    }
}

/// Compares tables and observations, after matches without replies have ended.
pub(crate) async fn check_rows(report: &mut TestReport, database: &TestDatabase, observed: &Observed) {
    let started = Instant::now();
    let mut rows = Rows::read(database).await;
    while 0 < rows.unfinished() && started.elapsed() < MATCHES_ENDED_WITHIN {
        tokio::time::sleep(Duration::from_millis(200)).await;
        rows = Rows::read(database).await;
    }
    if 0 < rows.unfinished() {
        report.violation(format!("{} matches did not end", rows.unfinished()));
    }
    report.record("tickets", rows.tickets.len());
    report.record("matches", rows.matches.len());
    report.record("results", rows.results.len());
    report.violations(rows.inconsistencies());
    report.violations(rows.rating_errors(observed));
    report.violations(rows.lost_acknowledgements(observed));
}
