//! Fills matches and sessions that have open seats before new matches are made.

use std::sync::Arc;

use crate::domain::advertisement::Advertisement;
use crate::domain::facts::Facts;
use crate::domain::filter::{Listed, Refusal, Searcher, Seen, admit};
use crate::domain::id::{AdvertisementId, UserKey};
use crate::domain::queue::avoid::{self, Wary};
use crate::domain::queue::desk::Desk;
use crate::domain::queue::field::Field;
use crate::domain::queue::group;
use crate::domain::queue::line::Line;
use crate::domain::queue::made::Made;
use crate::domain::queue::quality::{self, Member};
use crate::domain::queue::ticket::Rated;
use crate::domain::queue::window::{self, Look};
use crate::domain::ruleset::queue::{Quality, Regions};
use crate::domain::time::UnixMs;

/// A session with open seats, as a queue sees it.
#[derive(Clone, Debug)]
pub struct OpenSession {
    /// As published. Of a kind and set that this queue may fill, and of the queue's silo.
    pub advertisement: Arc<Advertisement>,
    /// What the ruleset sees of it.
    pub facts: Facts,
    /// Until when it is believed.
    pub expires: UnixMs,
    /// Seats that nobody holds.
    pub open_seats: u16,
    /// Open seats of each team, in the order of `TeamsSpec::sizes`, where it is known; they add up to `open_seats`.
    pub open_by_team: Option<Box<[u16]>>,
    /// The ratings of those who are in it, on the set's scale; empty when they are not known.
    pub ratings: Box<[f64]>,
    /// The mean of its players' places on the leaderboard, 0 for the best, where it is known.
    pub place: Option<f64>,
}

/// Fills sessions, those first that have been open longest; of those who suit a session, who has waited longest comes first. A
/// session need not become full: whoever fits plays.
pub(super) fn fill<'a>(field: &Field<'a>, line: &mut Line, desk: &mut Desk) -> Vec<(AdvertisementId, Made<'a>)> {
    let mut sessions: Vec<&OpenSession> = field.input.sessions.iter().collect();
    sessions.sort_unstable_by_key(|it| (it.advertisement.since, it.advertisement.id));
    let mut order: Vec<u32> = (0..field.rows.len() as u32).collect();
    order.sort_unstable_by(|&one, &other| field.rows[one as usize].seniority(&field.rows[other as usize]));
    let mut filled = Vec::new();
    for session in sessions {
        let mut host = Host::of(field, session);
        let look_at = field.input.queue.selection.look_at.max(1) as usize;
        let waiting = order.iter().copied().filter(|&row| line.is_waiting(row));
        for row in waiting.take(look_at) {
            if host.open.iter().all(|&seats| seats == 0) || !desk.look() {
                break;
            }
            if let Err(refusal) = host.take(row) {
                desk.refused(row, refusal);
            }
        }
        let taken = host.teams.iter().flatten().map(|(row, _)| *row);
        taken.for_each(|row| line.remove(row));
        if host.teams.iter().any(|team| !team.is_empty()) {
            let made = Made { quality: host.worst, region: None, teams: host.teams };
            filled.push((session.advertisement.id, made));
        }
    }
    filled
}

/// A session that is being filled.
struct Host<'h, 'a> {
    field: &'h Field<'a>,
    session: &'h OpenSession,
    users: Vec<UserKey>,
    rating: Option<f64>,
    /// Its players on the set's scale; how uncertain they are nobody says.
    rated: Vec<Rated>,
    /// Seats left by team; in one lump where nobody says whose they are.
    open: Vec<u16>,
    teams: Vec<Vec<(u32, Vec<u16>)>>,
    /// The quality of the worst who came.
    worst: f64,
}

impl<'h, 'a> Host<'h, 'a> {
    fn of(field: &'h Field<'a>, session: &'h OpenSession) -> Self {
        let teams = field.input.teams.sizes.len();
        let known = session.open_by_team.as_ref().filter(|seats| seats.len() == teams);
        Self {
            field,
            session,
            users: session.advertisement.session.users(),
            rating: field.input.queue.party_rating.reduce(&session.ratings),
            rated: session.ratings.iter().map(|&rating| Rated { rating, deviation: 0.0 }).collect(),
            open: known.map_or_else(|| vec![session.open_seats], |seats| seats.to_vec()),
            teams: vec![Vec::new(); teams],
            worst: f64::INFINITY,
        }
    }

    /// Gives `row` seats, or says which rule keeps it out.
    fn take(&mut self, row: u32) -> Result<(), Refusal> {
        let size = self.field.rows[row as usize].size;
        let others = self.teams.iter().flatten().map(|(other, _)| *other);
        self.admits(row)?;
        for other in others {
            self.field.meet(other, row)?;
        }
        let apart = |team: &Vec<(u32, Vec<u16>)>| team.iter().any(|(other, _)| self.field.apart(*other, row));
        let seats = self.open.iter().enumerate().filter(|&(team, &seats)| size <= seats && !apart(&self.teams[team]));
        // The team that lacks most gets the next party.
        let (team, _) = seats.max_by_key(|&(team, &seats)| (seats, usize::MAX - team)).ok_or(Refusal::Full)?;
        let reached = self.quality_with(row, team as u16)?;
        self.open[team] -= size;
        self.teams[team].push((row, Vec::new()));
        self.worst = self.worst.min(reached);
        Ok(())
    }

    /// The rules between the session and a ticket: all that a search by that ticket would go by, and the queue's own.
    fn admits(&self, row: u32) -> Result<(), Refusal> {
        let (input, queue) = (self.field.input, self.field.input.queue);
        let row = &self.field.rows[row as usize];
        let (seen, waited_ms) = (row.waits.seen, row.waits.waited_ms);
        let searcher = Searcher {
            facts: seen.facts,
            locality: seen.locality,
            regions: seen.regions,
            seats: row.entrant.size,
            users: &row.entrant.users,
            subject: None,
            excluded: &[],
            waited_ms,
        };
        let OpenSession { advertisement, facts, expires, open_seats, .. } = self.session;
        let listed = Listed { advertisement, facts, expires: *expires, open_seats: *open_seats };
        admit(input.ruleset, &searcher, &listed, None, input.now)?;
        let since = advertisement.since;
        if let (Some(groups), Some(rating)) = (&queue.groups, self.rating) {
            let host = (group::group_of(groups, rating), group::neighbours(groups, input.now.since(since)));
            let guest = (row.entrant.group, row.neighbours);
            group::may_meet(host, guest).then_some(()).ok_or(Refusal::Group)?;
        }
        if let Some(Regions::Separate { attribute }) = queue.regions {
            let same = facts.get(attribute).is_some() && facts.get(attribute) == seen.facts.get(attribute);
            same.then_some(()).ok_or(Refusal::Region)?;
        }
        if let (Some(window), Some(rating)) = (&queue.window, self.rating) {
            let bucket = window::bucket_of(window, rating);
            let host = Look { bucket, centre: bucket, range: window::range_of(window, rating, since, input.now) };
            window::may_meet(window, row.look(), host).then_some(()).ok_or(Refusal::Window)?;
        }
        let inside = Wary { users: &self.users, blocked: &[] };
        let avoided = avoid::judge(&queue.avoid, input.meetings, row.wary(), inside, input.now);
        (!avoided.never).then_some(()).ok_or(Refusal::Avoid)
    }

    /// How good it is with `row` in it, if that is good enough. Whose ratings nobody knows is judged by the soft filters alone.
    fn quality_with(&self, row: u32, team: u16) -> Result<f64, Refusal> {
        let (input, queue) = (self.field.input, self.field.input.queue);
        let row = &self.field.rows[row as usize];
        let knows = match queue.quality {
            Quality::Any | Quality::SoftScore { .. } => true,
            Quality::LeaderboardGauss { .. } => self.session.place.is_some(),
            Quality::AverageSimilarity { .. } | Quality::CategorySimilarity { .. } => !self.session.ratings.is_empty(),
            // Who in the session plays for whom is not known.
            Quality::WinProbability { .. } | Quality::DrawProbability { .. } => false,
        };
        if !knows {
            return Ok(0.0);
        }
        let session = &self.session.advertisement.session;
        let seen = Seen { facts: &self.session.facts, locality: session.locality, regions: &session.regions };
        let host = Member {
            seen,
            ratings: &self.session.ratings,
            rated: &self.rated,
            place: self.session.place,
            waited_ms: input.now.since(self.session.advertisement.since),
            team,
        };
        let inside = Wary { users: &self.users, blocked: &[] };
        let grudges = |rule| avoid::cost(rule, input.meetings, row.wary(), inside, input.now);
        let costs: f64 = queue.avoid.iter().map(grudges).sum();
        let members = [host, row.member(team)];
        let worth = quality::judge(input.ruleset, &queue.quality, queue.wait_bonus.as_ref(), &members, costs);
        worth.passes.then_some(worth.quality).ok_or(Refusal::Quality)
    }
}
