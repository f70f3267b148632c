//! Backfill: fills open seats in matches and sessions before a pass makes new matches.
//!
//! Guests are judged as in a new match with the players who are there, as far as these are known: the rules of pairs
//! against each seated party, and the quality of the whole match by teams. A session whose players have no known
//! ratings is judged by its attributes, its place and its users alone.

mod open_roles;
mod seating;

use std::borrow::Cow;

use crate::filter::{AdvertisementView, AdvertsOfAvoidedPlayers, Refusal, Searcher, SessionView, admit_advertisement};
use crate::id::{AdvertisementId, UserKey};
use crate::latency::round_trip_estimate::PredictionEnd;
use crate::probe_result::ProbeResults;
use crate::queue::avoidance::{self, AvoidanceSide};
use crate::queue::backfill::open_roles::SeatedRoles;
use crate::queue::backfill::seating::{Seating, SeatingInput};
use crate::queue::candidate_match::CandidateMatch;
use crate::queue::pass_progress::PassProgress;
use crate::queue::pass_state::{PassState, PassTicket};
use crate::queue::placement;
use crate::queue::quality::{self, PartyQualityInput};
use crate::queue::rating_group;
use crate::queue::region::{self, RegionChoice};
use crate::queue::ticket::PlayerRating;
use crate::queue::ticket_vector::TicketBeaconVector;
use crate::queue::waiting_list::WaitingList;
use crate::queue::window::{self, BucketRange};
use crate::ruleset::queue::{QualitySpec, RegionUse};
use crate::team::TeamParty;

pub use crate::queue::input::OpenSession;
pub use crate::queue::seated_party::SeatedParty;

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
        let Some(mut fill) = SessionFill::new(pass_state, session) else { continue };
        let max_candidates = pass_state.input.queue.selection.max_candidates.max(1) as usize;
        let waiting = order.iter().copied().filter(|&row| waiting_list.is_waiting(row));
        for row in waiting.take(max_candidates) {
            if fill.seating.is_full() || !progress.spend_pair_check() {
                break;
            }
            if let Err(refusal) = fill.try_add(row) {
                progress.record_refusal(row, refusal);
            }
        }
        let taken = fill.guests_by_team.iter().flatten().map(|(row, _)| *row);
        taken.for_each(|row| waiting_list.remove(row));
        if fill.guests_by_team.iter().any(|team| !team.is_empty()) {
            fill.assign_roles();
            let region = fill.region.filter(|_| pass_state.input.queue.regions.is_some());
            let candidate = CandidateMatch { quality: fill.quality, region, teams: fill.guests_by_team };
            backfills.push((session.advertisement.id, candidate));
        }
    }
    backfills
}

/// Team that a ticket may join.
#[derive(Clone, Copy)]
struct CandidateTeam {
    team: u16,
    quality: f64,
    /// Sum of the positions of its players' roles in their lists.
    wanted_role_position_sum: usize,
    gap: f64,
    room: u16,
}

impl CandidateTeam {
    /// Among matches of equal quality the roles that are wanted more, then the more even match, then the team with most open seats,
    /// which comes first.
    fn is_better_than(&self, best: &Self) -> bool {
        let by_roles = self.wanted_role_position_sum.cmp(&best.wanted_role_position_sum);
        let by_quality = best.quality.total_cmp(&self.quality);
        by_quality.then(by_roles).then(self.gap.total_cmp(&best.gap)).then(best.room.cmp(&self.room)).is_lt()
    }
}

/// Session that is being filled.
struct SessionFill<'h, 'a> {
    pass_state: &'h PassState<'a>,
    session: &'a OpenSession,
    /// Region of the session, if it states one.
    region: Option<&'a str>,
    /// Users in the session, sorted.
    users: Vec<UserKey>,
    /// Parties in the session. If the teams have no room for them as parties, their players are parties of one.
    parties: Cow<'a, [SeatedParty]>,
    /// Rating of each seated party whose ratings are known, as of a ticket.
    known_party_ratings: Vec<f64>,
    /// Teams of the seated parties.
    party_teams: Vec<u16>,
    /// Whether the quality measure can be evaluated.
    can_evaluate_quality: bool,
    seating: Seating,
    /// Roles of its players; `None` without roles.
    seated_roles: Option<SeatedRoles>,
    guests_by_team: Vec<Vec<(u32, Vec<u16>)>>,
    /// Quality with the tickets added so far.
    quality: f64,
}

impl<'h, 'a> SessionFill<'h, 'a> {
    /// `None` if the teams of the ruleset have no room for the players of the session.
    fn new(pass_state: &'h PassState<'a>, session: &'a OpenSession) -> Option<Self> {
        let (teams, queue) = (pass_state.input.teams, pass_state.input.queue);
        let seats = SeatingInput { open: session.open_seats, split_evenly: quality_depends_on_teams(&queue.quality) };
        let mut parties = Cow::Borrowed(&*session.parties);
        let (seating, party_teams) = Seating::new(teams, &parties, seats).or_else(|| {
            parties = Cow::Owned(session.parties.iter().flat_map(SeatedParty::parties_of_one).collect());
            Seating::new(teams, &parties, seats)
        })?;
        let mut users = session.advertisement.session.sorted_users();
        users.extend(parties.iter().flat_map(|party| &party.users));
        users.sort_unstable();
        users.dedup();
        let party_rating = |party: &SeatedParty| queue.party_rating.aggregate(party.matching_ratings());
        Some(Self {
            pass_state,
            session,
            region: placement::region_of_server(pass_state.input.ruleset, &session.advertisement.session),
            users,
            known_party_ratings: parties.iter().filter_map(party_rating).collect(),
            seated_roles: SeatedRoles::new(teams, &parties, &party_teams),
            party_teams,
            can_evaluate_quality: can_evaluate_quality(&queue.quality, &parties),
            parties,
            seating,
            guests_by_team: vec![Vec::new(); teams.team_sizes.len()],
            quality: 0.0,
        })
    }

    fn ticket(&self, row: u32) -> &'h PassTicket<'a> {
        &self.pass_state.tickets[row as usize]
    }

    /// Tickets added so far, with their teams.
    fn joining(&self) -> impl Iterator<Item = (u32, u16)> + '_ {
        let teams = self.guests_by_team.iter().zip(0_u16..);
        teams.flat_map(|(tickets, team)| tickets.iter().map(move |(row, _)| (*row, team)))
    }

    /// Adds a ticket to the team for which the match is best, or returns the rule that refuses it.
    fn try_add(&mut self, row: u32) -> Result<(), Refusal> {
        self.check_rules(row)?;
        self.check_region_and_round_trip(row)?;
        for (other, _) in self.joining() {
            self.pass_state.check_pair(other, row)?;
        }
        let rows: Vec<u32> = self.joining_rows_with(row).collect();
        self.pass_state.choose_values(&rows, Some(self.session.advertisement.id))?;
        let prepared = self.ticket(row).prepared;
        let mut refusal = Refusal::NotEnoughSeats;
        let mut best: Option<CandidateTeam> = None;
        for team in self.seating.teams_with_room(prepared.player_count) {
            if self.is_kept_out_of_team(row, team) {
                continue;
            }
            let Some(quality) = self.quality_with(row, team) else {
                refusal = Refusal::LowQuality;
                continue;
            };
            let Some(role_cost) = self.role_cost(row, team) else {
                refusal = Refusal::RolesNotFilled;
                continue;
            };
            let gap = self.seating.rating_gap_if_guests_join(team, &prepared.matching_ratings);
            let joined = CandidateTeam {
                team,
                quality,
                wanted_role_position_sum: role_cost,
                gap,
                room: self.seating.open_seats_in_team(team),
            };
            if best.is_none_or(|best| joined.is_better_than(&best)) {
                best = Some(joined);
            }
        }
        let CandidateTeam { team, quality, .. } = best.ok_or(refusal)?;
        self.seating.seat_guests_in_team(
            team,
            &prepared.ticket.player_ratings,
            &prepared.matching_ratings,
            &prepared.users,
        );
        self.guests_by_team[usize::from(team)].push((row, Vec::new()));
        self.quality = quality;
        Ok(())
    }

    /// Sum of the positions of the roles that a ticket's players would have in `team`; `None` if the roles refuse it.
    fn role_cost(&self, row: u32, team: u16) -> Option<usize> {
        let Some(open_roles) = &self.seated_roles else { return Some(0) };
        let ticket = self.ticket(row).prepared.team_party();
        let place = (team, self.seating.open_seats_in_team(team));
        open_roles.wanted_role_position_sum(self.pass_state.input.teams, place, &self.guests_in(team), ticket)
    }

    /// Tickets added to a team so far.
    fn guests_in(&self, team: u16) -> Vec<TeamParty<'h>> {
        let guests = self.guests_by_team[usize::from(team)].iter();
        guests.map(|(row, _)| self.ticket(*row).prepared.team_party()).collect()
    }

    /// Gives each guest a role that is open in the team.
    fn assign_roles(&mut self) {
        let Some(open_roles) = self.seated_roles.take() else { return };
        for team in 0..self.guests_by_team.len() as u16 {
            let place = (team, self.seating.open_seats_in_team(team));
            let roles = open_roles.roles_of_joining_parties(self.pass_state.input.teams, place, &self.guests_in(team));
            let guests = self.guests_by_team[usize::from(team)].iter_mut();
            guests.zip(roles).for_each(|((_, own), roles)| *own = roles);
        }
    }

    /// Whether an avoidance rule keeps a ticket out of a team.
    fn is_kept_out_of_team(&self, row: u32, team: u16) -> bool {
        let mut guests = self.guests_by_team[usize::from(team)].iter();
        guests.any(|(other, _)| self.pass_state.must_be_in_different_teams(*other, row))
            || self.meeting_restriction_with(row, self.seating.users_in(team), &[]).separate_teams
    }

    fn meeting_restriction_with(
        &self,
        row: u32,
        users: &[UserKey],
        blocked_users: &[UserKey],
    ) -> avoidance::MeetingRestriction {
        let input = self.pass_state.input;
        let players = AvoidanceSide { users, blocked_users };
        let side = self.ticket(row).avoidance_side();
        avoidance::meeting_restriction_between(&input.queue.avoid, input.past_matches, side, players, input.now)
    }

    /// Checks the rules between the session and a ticket: those of a search by the ticket, and those of the queue against
    /// each seated party. A seated party has waited as long as the session.
    fn check_rules(&self, row: u32) -> Result<(), Refusal> {
        let (input, queue) = (self.pass_state.input, self.pass_state.input.queue);
        let ticket = self.ticket(row);
        let (view, waited_ms) = (ticket.waiting_session.session, ticket.waiting_session.waited_ms);
        let searcher = Searcher {
            attribute_values: view.attribute_values,
            locality: view.locality,
            region_latencies: view.region_latencies,
            wishes: view.wishes,
            seats_needed: ticket.prepared.player_count,
            users: &ticket.prepared.users,
            caller: None,
            excluded_ids: &[],
            avoided: AdvertsOfAvoidedPlayers::default(),
            probes: ProbeResults::default(),
            predictor: ticket.prepared.vector_at(input.now).map(|vector| vector.search_predictor(input.now)),
            waited_ms,
        };
        let OpenSession { advertisement, attribute_values, expires_at, open_seats, .. } = self.session;
        let advertised = AdvertisementView {
            advertisement,
            attribute_values,
            expires_at: *expires_at,
            open_seats: *open_seats,
            completed_vector: self.session.vector_at(input.now).map(|vector| &vector.completed),
        };
        admit_advertisement(input.ruleset, &searcher, &advertised, input.now)?;
        if let Some(RegionUse::Partition { attribute }) = queue.regions {
            let same = attribute_values.get(attribute).is_some()
                && attribute_values.get(attribute) == view.attribute_values.get(attribute);
            same.then_some(()).ok_or(Refusal::NoCommonRegion)?;
        }
        self.known_party_ratings.iter().try_for_each(|&rating| self.check_rating(ticket, rating))?;
        let verdict = self.meeting_restriction_with(row, &self.users, &self.session.blocked_users);
        (!verdict.never_meet).then_some(()).ok_or(Refusal::AvoidedPlayer)
    }

    /// Checks group and window between a ticket and a seated party of this rating.
    fn check_rating(&self, ticket: &PassTicket<'_>, rating: f64) -> Result<(), Refusal> {
        let (queue, now) = (self.pass_state.input.queue, self.pass_state.input.now);
        let since = self.session.advertisement.advertised_since;
        if let Some(groups) = &queue.groups {
            let party_side = (
                rating_group::group_of_rating(groups, rating),
                rating_group::extra_group_count(groups, now.ms_since(since)),
            );
            let ticket_side = (ticket.rating_group, ticket.extra_groups);
            rating_group::groups_may_meet(party_side, ticket_side).then_some(()).ok_or(Refusal::RatingGroup)?;
        }
        if let Some(window) = &queue.window {
            let bucket = window::bucket_of(window, rating);
            let party_side =
                BucketRange { own_bucket: bucket, center: bucket, range: window::range_at(window, rating, since, now) };
            window::windows_satisfy_pair_rule(window, ticket.bucket_range(), party_side)
                .then_some(())
                .ok_or(Refusal::RatingWindow)?;
        }
        Ok(())
    }

    /// Checks that the session is where its joining tickets would play: in the region that they agree on, and not too far.
    fn check_region_and_round_trip(&self, row: u32) -> Result<(), Refusal> {
        let input = self.pass_state.input;
        let ticket = self.ticket(row);
        let view = ticket.waiting_session.session;
        let party = view.as_estimate_end();
        let (session, prediction) = (&self.session.advertisement.session, self.prediction_end());
        if placement::round_trip_to_session_exceeds_limit(input.ruleset, party, session, prediction) {
            return Err(Refusal::NoCommonRegion);
        }
        let (Some(mode), Some(own)) = (input.queue.regions, self.region) else { return Ok(()) };
        let names = &self.pass_state.region_names;
        let is_allowed = match mode {
            // Compared by attribute, in `check_rules`.
            RegionUse::Partition { .. } => true,
            RegionUse::Filter { .. } => {
                let regions = &ticket.reachable_regions;
                !regions.has_measurements || regions.round_trips.iter().any(|trip| names.name(trip.0) == own)
            }
            RegionUse::Quality { .. } => match self.agreed_region_with(mode, row) {
                RegionChoice::Chosen(agreed, _) => agreed == own,
                RegionChoice::NoCommonRegion | RegionChoice::Unrestricted => true,
            },
        };
        is_allowed.then_some(()).ok_or(Refusal::NoCommonRegion)
    }

    /// Region that the joining tickets and one more agree on.
    fn agreed_region_with(&self, mode: RegionUse, row: u32) -> RegionChoice<'a> {
        let members: Vec<_> = self.joining_rows_with(row).map(|row| &self.ticket(row).reachable_regions).collect();
        region::choose_region(mode, &self.pass_state.region_names, &members)
    }

    fn joining_rows_with(&self, row: u32) -> impl Iterator<Item = u32> + '_ {
        self.joining().map(|(other, _)| other).chain([row])
    }

    /// Quality of the match if the ticket joins `team`; `None` if it does not suffice. What is unknown costs nothing.
    fn quality_with(&self, row: u32, team: u16) -> Option<f64> {
        if !self.can_evaluate_quality {
            return Some(0.0);
        }
        let (input, queue) = (self.pass_state.input, self.pass_state.input.queue);
        let (stand_ins, rating) =
            self.seating.placeholders_for_open_seats(team, &self.ticket(row).prepared.ticket.player_ratings);
        let stand_ins: Vec<Vec<PlayerRating>> =
            stand_ins.iter().map(|&count| vec![rating; usize::from(count)]).collect();
        let mut members: Vec<PartyQualityInput<'_>> = self.seated_quality_inputs();
        let joining = self.joining().chain([(row, team)]);
        members.extend(joining.map(|(row, team)| self.ticket(row).quality_input(team)));
        if quality_depends_on_teams(&queue.quality) {
            let with_stand_ins = stand_ins.iter().zip(0_u16..).filter(|(players, _)| !players.is_empty());
            members.extend(with_stand_ins.map(|(players, team)| PartyQualityInput {
                player_ratings: players,
                ..self.quality_input_without_players(team)
            }));
        }
        let costs = self.avoidance_cost(row) + self.region_cost(row);
        let quality =
            quality::evaluate_quality(input.ruleset, &queue.quality, queue.wait_bonus.as_ref(), &members, costs);
        quality.passes.then_some(quality.quality)
    }

    /// The players of the session as members of the match. It has waited once, for any number of parties.
    fn seated_quality_inputs(&self) -> Vec<PartyQualityInput<'_>> {
        let since = self.session.advertisement.advertised_since;
        let waited_ms = self.pass_state.input.now.ms_since(since);
        // Soft filters compare sessions: the seated parties are one.
        if let QualitySpec::SoftScore { .. } | QualitySpec::Any = self.pass_state.input.queue.quality {
            return vec![PartyQualityInput { waited_ms, ..self.quality_input_without_players(0) }];
        }
        let mut members = Vec::with_capacity(self.parties.len());
        for (party, &team) in self.parties.iter().zip(&self.party_teams) {
            members.push(PartyQualityInput {
                matching_ratings: party.matching_ratings(),
                player_ratings: party.ratings().unwrap_or_default(),
                leaderboard_position: party.leaderboard_position,
                waited_ms: if members.is_empty() { waited_ms } else { 0 },
                ..self.quality_input_without_players(team)
            });
        }
        members
    }

    /// The session as one end of a prediction.
    fn prediction_end(&self) -> Option<PredictionEnd<'a>> {
        self.session.vector_at(self.pass_state.input.now).map(TicketBeaconVector::prediction_input)
    }

    /// Member of the session without players.
    fn quality_input_without_players(&self, team: u16) -> PartyQualityInput<'a> {
        let session = &self.session.advertisement.session;
        PartyQualityInput {
            session: SessionView {
                attribute_values: &self.session.attribute_values,
                locality: session.locality,
                region_latencies: &session.region_latencies,
                wishes: session.wishes(),
                prediction_end: self.prediction_end(),
            },
            matching_ratings: &[],
            player_ratings: &[],
            leaderboard_position: None,
            waited_ms: 0,
            team,
        }
    }

    /// Quality cost of avoidance rules: the sum over rules of the highest cost of any guest, with the session or another
    /// guest.
    fn avoidance_cost(&self, row: u32) -> f64 {
        let input = self.pass_state.input;
        let rows: Vec<u32> = self.joining_rows_with(row).collect();
        let players = AvoidanceSide { users: &self.users, blocked_users: &self.session.blocked_users };
        let cost_of = |rule| {
            let cost = |one, other| avoidance::avoidance_rule_cost(rule, input.past_matches, one, other, input.now);
            let side = |row: u32| self.ticket(row).avoidance_side();
            let with_session = rows.iter().map(|&row| cost(side(row), players));
            let pairs = rows
                .iter()
                .enumerate()
                .flat_map(|(index, &one)| rows[index + 1..].iter().map(move |&other| (one, other)));
            with_session.chain(pairs.map(|(one, other)| cost(side(one), side(other)))).fold(0.0, f64::max)
        };
        input.queue.avoid.iter().map(cost_of).sum()
    }

    /// Quality cost of the round trips of the guests.
    fn region_cost(&self, row: u32) -> f64 {
        let Some(mode @ RegionUse::Quality { .. }) = self.pass_state.input.queue.regions else { return 0.0 };
        let members: Vec<_> = self.joining_rows_with(row).map(|row| &self.ticket(row).reachable_regions).collect();
        region::region_cost(mode, self.agreed_region_with(mode, row), &members)
    }
}

/// Whether a quality measure depends on the teams.
fn quality_depends_on_teams(quality: &QualitySpec) -> bool {
    matches!(quality, QualitySpec::WinProbability { .. } | QualitySpec::DrawProbability { .. })
}

/// Whether enough is known of the seated parties to evaluate a quality measure.
fn can_evaluate_quality(quality: &QualitySpec, parties: &[SeatedParty]) -> bool {
    match quality {
        QualitySpec::Any | QualitySpec::SoftScore { .. } => true,
        QualitySpec::LeaderboardGauss { .. } => {
            !parties.is_empty() && parties.iter().all(|party| party.leaderboard_position.is_some())
        }
        QualitySpec::AverageSimilarity { .. }
        | QualitySpec::CategorySimilarity { .. }
        | QualitySpec::WinProbability { .. }
        | QualitySpec::DrawProbability { .. } => {
            !parties.is_empty() && parties.iter().all(|party| party.ratings().is_some())
        }
    }
}
