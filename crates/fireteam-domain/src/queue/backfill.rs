//! Backfill: fills open seats in matches and sessions before a pass makes new matches.

use crate::filter::{AdvertisementView, Refusal, Searcher, SessionView, admit};
use crate::id::{AdvertisementId, UserKey};
use crate::latency::LatencyEndpoint;
use crate::queue::avoidance::{self, AvoidanceSide};
use crate::queue::candidate_match::CandidateMatch;
use crate::queue::pass_progress::PassProgress;
use crate::queue::pass_state::PassState;
use crate::queue::placement;
use crate::queue::quality::{self, QualityInput};
use crate::queue::rating_group;
use crate::queue::region::{self, RegionChoice};
use crate::queue::ticket::PlayerRating;
use crate::queue::waiting_list::WaitingList;
use crate::queue::window::{self, BucketRange};
use crate::ruleset::queue::{QualitySpec, RegionMode};

pub use crate::queue::input::OpenSession;

/// Fills open sessions, oldest first, each with the longest waiting tickets that fit. A session need not become full.
pub(super) fn fill_open_sessions<'a>(
    pass_state: &PassState<'a>,
    waiting_list: &mut WaitingList,
    progress: &mut PassProgress,
) -> Vec<(AdvertisementId, CandidateMatch<'a>)> {
    let mut sessions: Vec<&OpenSession> = pass_state.input.open_sessions.iter().collect();
    sessions.sort_unstable_by_key(|it| (it.advertisement.advertised_since, it.advertisement.id));
    let mut order: Vec<u32> = (0..pass_state.tickets.len() as u32).collect();
    order.sort_unstable_by(|&one, &other| {
        pass_state.tickets[one as usize].compare_seniority(&pass_state.tickets[other as usize])
    });
    let mut backfills = Vec::new();
    for session in sessions {
        let mut fill = SessionFill::new(pass_state, session);
        let max_candidates = pass_state.input.queue.selection.max_candidates.max(1) as usize;
        let waiting = order.iter().copied().filter(|&row| waiting_list.is_waiting(row));
        for row in waiting.take(max_candidates) {
            if fill.open_seats.iter().all(|&seats| seats == 0) || !progress.spend_pair_check() {
                break;
            }
            if let Err(refusal) = fill.try_add(row) {
                progress.record_refusal(row, refusal);
            }
        }
        let taken = fill.joining_teams.iter().flatten().map(|(row, _)| *row);
        taken.for_each(|row| waiting_list.remove(row));
        if fill.joining_teams.iter().any(|team| !team.is_empty()) {
            let region = fill.region.filter(|_| pass_state.input.queue.regions.is_some());
            let candidate = CandidateMatch { quality: fill.worst_quality, region, teams: fill.joining_teams };
            backfills.push((session.advertisement.id, candidate));
        }
    }
    backfills
}

/// Session that is being filled.
struct SessionFill<'h, 'a> {
    pass_state: &'h PassState<'a>,
    session: &'a OpenSession,
    /// Region of the session, if it states one.
    region: Option<&'a str>,
    users: Vec<UserKey>,
    session_rating: Option<f64>,
    /// Ratings of its players; their deviations are unknown and set to 0.
    player_ratings: Vec<PlayerRating>,
    /// Remaining seats by team, or in one entry if the teams are unknown.
    open_seats: Vec<u16>,
    joining_teams: Vec<Vec<(u32, Vec<u16>)>>,
    /// Lowest quality of the tickets added.
    worst_quality: f64,
}

impl<'h, 'a> SessionFill<'h, 'a> {
    fn new(pass_state: &'h PassState<'a>, session: &'a OpenSession) -> Self {
        let teams = pass_state.input.teams.team_sizes.len();
        let known_seats = session.open_seats_by_team.as_ref().filter(|seats| seats.len() == teams);
        Self {
            pass_state,
            session,
            region: placement::region_of_server(pass_state.input.ruleset, &session.advertisement.session),
            users: session.advertisement.session.sorted_users(),
            session_rating: pass_state.input.queue.party_rating.aggregate(&session.player_ratings),
            player_ratings: session
                .player_ratings
                .iter()
                .map(|&rating| PlayerRating { rating, deviation: 0.0 })
                .collect(),
            open_seats: known_seats.map_or_else(|| vec![session.open_seats], |seats| seats.to_vec()),
            joining_teams: vec![Vec::new(); teams],
            worst_quality: f64::INFINITY,
        }
    }

    /// Adds a ticket, or returns the rule that refuses it.
    fn try_add(&mut self, row: u32) -> Result<(), Refusal> {
        let player_count = self.pass_state.tickets[row as usize].player_count;
        let others = self.joining_teams.iter().flatten().map(|(other, _)| *other);
        self.check_rules(row)?;
        self.check_place(row)?;
        for other in others {
            self.pass_state.check_pair(other, row)?;
        }
        let is_forbidden = |team: &Vec<(u32, Vec<u16>)>| {
            team.iter().any(|(other, _)| self.pass_state.must_be_in_different_teams(*other, row))
        };
        let seats = self
            .open_seats
            .iter()
            .enumerate()
            .filter(|&(team, &seats)| player_count <= seats && !is_forbidden(&self.joining_teams[team]));
        // The team with most open seats gets the next party.
        let (team, _) =
            seats.max_by_key(|&(team, &seats)| (seats, usize::MAX - team)).ok_or(Refusal::NotEnoughSeats)?;
        let quality = self.quality_with(row, team as u16)?;
        self.open_seats[team] -= player_count;
        self.joining_teams[team].push((row, Vec::new()));
        self.worst_quality = self.worst_quality.min(quality);
        Ok(())
    }

    /// Checks the rules between the session and a ticket: those of a search by the ticket, and those of the queue.
    fn check_rules(&self, row: u32) -> Result<(), Refusal> {
        let (input, queue) = (self.pass_state.input, self.pass_state.input.queue);
        let row = &self.pass_state.tickets[row as usize];
        let (view, waited_ms) = (row.waiting_session.session, row.waiting_session.waited_ms);
        let searcher = Searcher {
            attribute_values: view.attribute_values,
            locality: view.locality,
            region_latencies: view.region_latencies,
            seats_needed: row.prepared.player_count,
            users: &row.prepared.users,
            caller: None,
            excluded_ids: &[],
            waited_ms,
        };
        let OpenSession { advertisement, attribute_values, expires_at, open_seats, .. } = self.session;
        let advertised =
            AdvertisementView { advertisement, attribute_values, expires_at: *expires_at, open_seats: *open_seats };
        admit(input.ruleset, &searcher, &advertised, None, input.now)?;
        let since = advertisement.advertised_since;
        if let (Some(groups), Some(rating)) = (&queue.groups, self.session_rating) {
            let session_side = (
                rating_group::group_of_rating(groups, rating),
                rating_group::extra_groups(groups, input.now.ms_since(since)),
            );
            let ticket_side = (row.prepared.rating_group, row.extra_groups);
            rating_group::groups_may_meet(session_side, ticket_side).then_some(()).ok_or(Refusal::RatingGroup)?;
        }
        if let Some(RegionMode::Partition { attribute }) = queue.regions {
            let same = attribute_values.get(attribute).is_some()
                && attribute_values.get(attribute) == view.attribute_values.get(attribute);
            same.then_some(()).ok_or(Refusal::NoCommonRegion)?;
        }
        if let (Some(window), Some(rating)) = (&queue.window, self.session_rating) {
            let bucket = window::bucket_of(window, rating);
            let session_side =
                BucketRange { bucket, center: bucket, range: window::range_at(window, rating, since, input.now) };
            window::windows_may_meet(window, row.bucket_range(), session_side)
                .then_some(())
                .ok_or(Refusal::RatingWindow)?;
        }
        let players = AvoidanceSide { users: &self.users, blocked_users: &[] };
        let verdict = avoidance::evaluate_avoidance(
            &queue.avoid,
            input.past_matches,
            row.avoidance_view_of(),
            players,
            input.now,
        );
        (!verdict.never_meet).then_some(()).ok_or(Refusal::AvoidedPlayer)
    }

    /// Checks that the session is where its joining tickets would play: in the region that they agree on, and not too far.
    fn check_place(&self, row: u32) -> Result<(), Refusal> {
        let (input, tickets) = (self.pass_state.input, &self.pass_state.tickets);
        let ticket = &tickets[row as usize];
        let view = ticket.waiting_session.session;
        let party = LatencyEndpoint { locality: view.locality, region_latencies: view.region_latencies };
        if placement::is_too_far(input.ruleset, party, &self.session.advertisement.session) {
            return Err(Refusal::NoCommonRegion);
        }
        let (Some(mode), Some(own)) = (input.queue.regions, self.region) else { return Ok(()) };
        let names = &self.pass_state.region_names;
        let is_allowed = match mode {
            // Compared by attribute, in `check_rules`.
            RegionMode::Partition { .. } => true,
            RegionMode::Filter { .. } => {
                let regions = &ticket.reachable_regions;
                !regions.has_measurements || regions.round_trips.iter().any(|trip| names.name(trip.0) == own)
            }
            RegionMode::Quality { .. } => {
                let joining = self.joining_teams.iter().flatten().map(|(other, _)| *other).chain([row]);
                let members: Vec<_> = joining.map(|row| &tickets[row as usize].reachable_regions).collect();
                match region::choose_region(mode, names, &members) {
                    RegionChoice::Chosen(agreed, _) => agreed == own,
                    RegionChoice::NoCommonRegion | RegionChoice::Unrestricted => true,
                }
            }
        };
        is_allowed.then_some(()).ok_or(Refusal::NoCommonRegion)
    }

    /// Quality of the session with the ticket, or `LowQuality`. A session with unknown ratings is judged by soft
    /// filters alone.
    fn quality_with(&self, row: u32, team: u16) -> Result<f64, Refusal> {
        let (input, queue) = (self.pass_state.input, self.pass_state.input.queue);
        let row = &self.pass_state.tickets[row as usize];
        let is_known = match queue.quality {
            QualitySpec::Any | QualitySpec::SoftScore { .. } => true,
            QualitySpec::LeaderboardGauss { .. } => self.session.leaderboard_position.is_some(),
            QualitySpec::AverageSimilarity { .. } | QualitySpec::CategorySimilarity { .. } => {
                !self.session.player_ratings.is_empty()
            }
            // The teams of the session's players are unknown.
            QualitySpec::WinProbability { .. } | QualitySpec::DrawProbability { .. } => false,
        };
        if !is_known {
            return Ok(0.0);
        }
        let session = &self.session.advertisement.session;
        let view = SessionView {
            attribute_values: &self.session.attribute_values,
            locality: session.locality,
            region_latencies: &session.region_latencies,
        };
        let session_input = QualityInput {
            session: view,
            finite_ratings: &self.session.player_ratings,
            player_ratings: &self.player_ratings,
            leaderboard_position: self.session.leaderboard_position,
            waited_ms: input.now.ms_since(self.session.advertisement.advertised_since),
            team,
        };
        let players = AvoidanceSide { users: &self.users, blocked_users: &[] };
        let cost_of =
            |rule| avoidance::avoidance_cost(rule, input.past_matches, row.avoidance_view_of(), players, input.now);
        let costs: f64 = queue.avoid.iter().map(cost_of).sum();
        let inputs = [session_input, row.quality_input(team)];
        let quality =
            quality::evaluate_quality(input.ruleset, &queue.quality, queue.wait_bonus.as_ref(), &inputs, costs);
        quality.passes.then_some(quality.quality).ok_or(Refusal::LowQuality)
    }
}
