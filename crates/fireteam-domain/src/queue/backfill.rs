//! Fills matches and sessions that have open seats before new matches are made.

use std::sync::Arc;

use crate::advertisement::Advertisement;
use crate::attribute_values::AttributeValues;
use crate::filter::{AdvertisementView, Refusal, Searcher, SessionView, admit};
use crate::id::{AdvertisementId, UserKey};
use crate::queue::avoidance::{self, AvoidanceSide};
use crate::queue::candidate_match::CandidateMatch;
use crate::queue::pass_progress::PassProgress;
use crate::queue::pass_state::PassState;
use crate::queue::quality::{self, QualityInput};
use crate::queue::rating_group;
use crate::queue::ticket::PlayerRating;
use crate::queue::waiting_list::WaitingList;
use crate::queue::window::{self, BucketRange};
use crate::ruleset::queue::{QualitySpec, RegionMode};
use crate::time::UnixMs;

/// A session with open seats, as a queue sees it.
#[derive(Clone, Debug)]
pub struct OpenSession {
    /// As published. Of a kind and set that this queue may fill, and of the queue's silo.
    pub advertisement: Arc<Advertisement>,
    /// What the ruleset sees of it.
    pub attribute_values: AttributeValues,
    /// Until when it is believed.
    pub expires_at: UnixMs,
    /// Seats that nobody holds.
    pub open_seats: u16,
    /// Open seats of each team, in the order of `TeamsSpec::sizes`, where it is known; they add up to `open_seats`.
    pub open_seats_by_team: Option<Box<[u16]>>,
    /// The ratings of those who are in it, on the set's scale; empty when they are not known.
    pub player_ratings: Box<[f64]>,
    /// The mean of its players' places on the leaderboard, 0 for the best, where it is known.
    pub leaderboard_position: Option<f64>,
}

/// Fills sessions, those first that have been open longest; of those who suit a session, who has waited longest comes first. A
/// session need not become full: whoever fits plays.
pub(super) fn fill_open_sessions<'a>(
    field: &PassState<'a>,
    line: &mut WaitingList,
    desk: &mut PassProgress,
) -> Vec<(AdvertisementId, CandidateMatch<'a>)> {
    let mut sessions: Vec<&OpenSession> = field.input.open_sessions.iter().collect();
    sessions.sort_unstable_by_key(|it| (it.advertisement.advertised_since, it.advertisement.id));
    let mut order: Vec<u32> = (0..field.tickets.len() as u32).collect();
    order
        .sort_unstable_by(|&one, &other| field.tickets[one as usize].compare_seniority(&field.tickets[other as usize]));
    let mut filled = Vec::new();
    for session in sessions {
        let mut host = SessionFill::new(field, session);
        let look_at = field.input.queue.selection.look_at.max(1) as usize;
        let waiting = order.iter().copied().filter(|&row| line.is_waiting(row));
        for row in waiting.take(look_at) {
            if host.open_seats.iter().all(|&seats| seats == 0) || !desk.spend_pair_check() {
                break;
            }
            if let Err(refusal) = host.try_add(row) {
                desk.record_refusal(row, refusal);
            }
        }
        let taken = host.joining_teams.iter().flatten().map(|(row, _)| *row);
        taken.for_each(|row| line.remove(row));
        if host.joining_teams.iter().any(|team| !team.is_empty()) {
            let made = CandidateMatch { quality: host.worst_quality, region: None, teams: host.joining_teams };
            filled.push((session.advertisement.id, made));
        }
    }
    filled
}

/// A session that is being filled.
struct SessionFill<'h, 'a> {
    pass_state: &'h PassState<'a>,
    session: &'h OpenSession,
    users: Vec<UserKey>,
    session_rating: Option<f64>,
    /// Its players on the set's scale; how uncertain they are nobody says.
    player_ratings: Vec<PlayerRating>,
    /// Seats left by team; in one lump where nobody says whose they are.
    open_seats: Vec<u16>,
    joining_teams: Vec<Vec<(u32, Vec<u16>)>>,
    /// The quality of the worst who came.
    worst_quality: f64,
}

impl<'h, 'a> SessionFill<'h, 'a> {
    fn new(field: &'h PassState<'a>, session: &'h OpenSession) -> Self {
        let teams = field.input.teams.team_sizes.len();
        let known = session.open_seats_by_team.as_ref().filter(|seats| seats.len() == teams);
        Self {
            pass_state: field,
            session,
            users: session.advertisement.session.sorted_users(),
            session_rating: field.input.queue.party_rating.aggregate(&session.player_ratings),
            player_ratings: session
                .player_ratings
                .iter()
                .map(|&rating| PlayerRating { rating, deviation: 0.0 })
                .collect(),
            open_seats: known.map_or_else(|| vec![session.open_seats], |seats| seats.to_vec()),
            joining_teams: vec![Vec::new(); teams],
            worst_quality: f64::INFINITY,
        }
    }

    /// Gives `row` seats, or says which rule keeps it out.
    fn try_add(&mut self, row: u32) -> Result<(), Refusal> {
        let size = self.pass_state.tickets[row as usize].player_count;
        let others = self.joining_teams.iter().flatten().map(|(other, _)| *other);
        self.check_rules(row)?;
        for other in others {
            self.pass_state.check_pair(other, row)?;
        }
        let apart = |team: &Vec<(u32, Vec<u16>)>| {
            team.iter().any(|(other, _)| self.pass_state.must_be_in_different_teams(*other, row))
        };
        let seats = self
            .open_seats
            .iter()
            .enumerate()
            .filter(|&(team, &seats)| size <= seats && !apart(&self.joining_teams[team]));
        // The team that lacks most gets the next party.
        let (team, _) =
            seats.max_by_key(|&(team, &seats)| (seats, usize::MAX - team)).ok_or(Refusal::NotEnoughSeats)?;
        let reached = self.quality_with(row, team as u16)?;
        self.open_seats[team] -= size;
        self.joining_teams[team].push((row, Vec::new()));
        self.worst_quality = self.worst_quality.min(reached);
        Ok(())
    }

    /// The rules between the session and a ticket: all that a search by that ticket would go by, and the queue's own.
    fn check_rules(&self, row: u32) -> Result<(), Refusal> {
        let (input, queue) = (self.pass_state.input, self.pass_state.input.queue);
        let row = &self.pass_state.tickets[row as usize];
        let (seen, waited_ms) = (row.waiting_session.session, row.waiting_session.waited_ms);
        let searcher = Searcher {
            attribute_values: seen.attribute_values,
            locality: seen.locality,
            region_latencies: seen.region_latencies,
            seats_needed: row.prepared.player_count,
            users: &row.prepared.users,
            caller: None,
            excluded_ids: &[],
            waited_ms,
        };
        let OpenSession { advertisement, attribute_values: facts, expires_at: expires, open_seats, .. } = self.session;
        let listed =
            AdvertisementView { advertisement, attribute_values: facts, expires_at: *expires, open_seats: *open_seats };
        admit(input.ruleset, &searcher, &listed, None, input.now)?;
        let since = advertisement.advertised_since;
        if let (Some(groups), Some(rating)) = (&queue.groups, self.session_rating) {
            let host = (
                rating_group::group_of_rating(groups, rating),
                rating_group::extra_groups(groups, input.now.ms_since(since)),
            );
            let guest = (row.prepared.rating_group, row.extra_groups);
            rating_group::groups_may_meet(host, guest).then_some(()).ok_or(Refusal::RatingGroup)?;
        }
        if let Some(RegionMode::Separate { attribute }) = queue.regions {
            let same = facts.get(attribute).is_some() && facts.get(attribute) == seen.attribute_values.get(attribute);
            same.then_some(()).ok_or(Refusal::NoCommonRegion)?;
        }
        if let (Some(window), Some(rating)) = (&queue.window, self.session_rating) {
            let bucket = window::bucket_of(window, rating);
            let host =
                BucketRange { bucket, center: bucket, range: window::range_at(window, rating, since, input.now) };
            window::windows_may_meet(window, row.bucket_range(), host).then_some(()).ok_or(Refusal::RatingWindow)?;
        }
        let inside = AvoidanceSide { users: &self.users, blocked_users: &[] };
        let avoided =
            avoidance::evaluate_avoidance(&queue.avoid, input.past_matches, row.avoidance_side(), inside, input.now);
        (!avoided.never_meet).then_some(()).ok_or(Refusal::AvoidedPlayer)
    }

    /// How good it is with `row` in it, if that is good enough. Whose ratings nobody knows is judged by the soft filters alone.
    fn quality_with(&self, row: u32, team: u16) -> Result<f64, Refusal> {
        let (input, queue) = (self.pass_state.input, self.pass_state.input.queue);
        let row = &self.pass_state.tickets[row as usize];
        let knows = match queue.quality {
            QualitySpec::Any | QualitySpec::SoftScore { .. } => true,
            QualitySpec::LeaderboardGauss { .. } => self.session.leaderboard_position.is_some(),
            QualitySpec::AverageSimilarity { .. } | QualitySpec::CategorySimilarity { .. } => {
                !self.session.player_ratings.is_empty()
            }
            // Who in the session plays for whom is not known.
            QualitySpec::WinProbability { .. } | QualitySpec::DrawProbability { .. } => false,
        };
        if !knows {
            return Ok(0.0);
        }
        let session = &self.session.advertisement.session;
        let seen = SessionView {
            attribute_values: &self.session.attribute_values,
            locality: session.locality,
            region_latencies: &session.region_latencies,
        };
        let host = QualityInput {
            session: seen,
            finite_ratings: &self.session.player_ratings,
            player_ratings: &self.player_ratings,
            leaderboard_position: self.session.leaderboard_position,
            waited_ms: input.now.ms_since(self.session.advertisement.advertised_since),
            team,
        };
        let inside = AvoidanceSide { users: &self.users, blocked_users: &[] };
        let grudges =
            |rule| avoidance::avoidance_cost(rule, input.past_matches, row.avoidance_side(), inside, input.now);
        let costs: f64 = queue.avoid.iter().map(grudges).sum();
        let members = [host, row.quality_input(team)];
        let worth =
            quality::evaluate_quality(input.ruleset, &queue.quality, queue.wait_bonus.as_ref(), &members, costs);
        worth.passes.then_some(worth.quality).ok_or(Refusal::LowQuality)
    }
}
