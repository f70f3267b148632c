//! Seating of a session: which team its players are in, and where there is room.
//!
//! A team that is known stays. The other parties count as seated by the team split, as in a new match. Seats that stay
//! open count as players of the mean rating, so that a session is not judged by how far it is filled.

use crate::id::UserKey;
use crate::queue::seated_party::SeatedParty;
use crate::queue::ticket::PlayerRating;
use crate::ruleset::teams::TeamsSpec;
use crate::team::{self, TeamParty};

/// Largest team size that is split exactly. A pass may split a thousand sessions.
const EXACT_SPLIT_TEAM_SIZE_MAX: u16 = 6;

/// Seats of a session that is to be filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeatingInput {
    /// Seats that the session offers.
    pub(super) open: u16,
    /// Whether the quality depends on teams, so that players without a team are seated by the best split.
    pub(super) split_evenly: bool,
}

/// Teams of a session, with the guests who joined.
#[derive(Clone, Debug)]
pub(super) struct Seating {
    teams: Vec<SeatedTeam>,
    /// Seats that the session still offers; its teams may have room for more.
    open_seats: u16,
    /// Whether all teams have the same size: they are compared by sums, as in a split.
    equal_sizes: bool,
    /// Sum and number of all ratings.
    mean: RatingMean,
}

#[derive(Clone, Debug, Default)]
struct SeatedTeam {
    capacity: u16,
    open_seats: u16,
    rating_sum: f64,
    users: Vec<UserKey>,
}

/// Sums for the mean rating of known players.
#[derive(Clone, Copy, Debug, Default)]
struct RatingMean {
    ratings: f64,
    deviations: f64,
    count: f64,
}

impl RatingMean {
    fn add(&mut self, ratings: &[PlayerRating]) {
        for it in ratings.iter().filter(|it| it.rating.is_finite() && it.deviation.is_finite()) {
            self.ratings += it.rating;
            self.deviations += it.deviation;
            self.count += 1.0;
        }
    }

    fn rating(&self) -> PlayerRating {
        let count = self.count.max(1.0);
        PlayerRating { rating: self.ratings / count, deviation: self.deviations / count }
    }
}

impl Seating {
    /// Seats `parties`, and returns the team of each. `None` if the teams of the ruleset have no room for them.
    pub(super) fn new(spec: &TeamsSpec, parties: &[SeatedParty], seats: SeatingInput) -> Option<(Self, Vec<u16>)> {
        let team = |&size: &u16| SeatedTeam { capacity: size, open_seats: size, ..SeatedTeam::default() };
        let mut seating = Self {
            teams: spec.team_sizes.iter().map(team).collect(),
            open_seats: seats.open,
            equal_sizes: spec.team_sizes.iter().all(|size| *size == spec.team_sizes[0]),
            mean: RatingMean::default(),
        };
        parties.iter().filter_map(SeatedParty::ratings).for_each(|ratings| seating.mean.add(ratings));
        let mut teams: Vec<Option<u16>> = vec![None; parties.len()];
        for (party, known) in parties.iter().zip(&mut teams) {
            let named = party.team.filter(|team| seating.has_room_in_team(*team, party.player_count));
            *known = named.inspect(|team| seating.seat_party_in_team(*team, party));
        }
        if seats.split_evenly
            && teams.iter().all(Option::is_none)
            && let Some(split) = split_as_new_match(spec, parties)
        {
            parties.iter().zip(&split).for_each(|(party, team)| seating.seat_party_in_team(*team, party));
            return Some((seating, split));
        }
        seating.seat_one_by_one(parties, &mut teams)?;
        Some((seating, teams.into_iter().flatten().collect()))
    }

    /// Seats the parties without a team, large ones first, then by rating downwards, each in the weakest team with room.
    fn seat_one_by_one(&mut self, parties: &[SeatedParty], teams: &mut [Option<u16>]) -> Option<()> {
        let mut rest: Vec<usize> = (0..parties.len()).filter(|&index| teams[index].is_none()).collect();
        let rating = |index: usize| parties[index].matching_ratings().iter().sum::<f64>();
        rest.sort_by(|&one, &other| {
            let by_size = parties[other].player_count.cmp(&parties[one].player_count);
            by_size.then(rating(other).total_cmp(&rating(one))).then(one.cmp(&other))
        });
        for index in rest {
            let party = &parties[index];
            let fitting = (0..self.teams.len() as u16).filter(|&team| self.has_room_in_team(team, party.player_count));
            let weakest = fitting.min_by(|&one, &other| {
                let strength = |team: u16| self.strengths_with(team, 0.0, 0)[usize::from(team)];
                strength(one)
                    .total_cmp(&strength(other))
                    .then(self.open_seats_in_team(other).cmp(&self.open_seats_in_team(one)))
            })?;
            self.seat_party_in_team(weakest, party);
            teams[index] = Some(weakest);
        }
        Some(())
    }

    /// Whether a team has room for `players` more, for any number of offered seats.
    fn has_room_in_team(&self, team: u16, players: u16) -> bool {
        self.teams.get(usize::from(team)).is_some_and(|team| players <= team.open_seats)
    }

    /// Open seats of a team, for any number of offered seats.
    pub(super) fn open_seats_in_team(&self, team: u16) -> u16 {
        self.teams[usize::from(team)].open_seats
    }

    fn seat_party_in_team(&mut self, team: u16, party: &SeatedParty) {
        let ratings = party.matching_ratings().iter().sum();
        self.take_seats(team, party.player_count, ratings, &party.users);
    }

    fn take_seats(&mut self, team: u16, players: u16, rating_sum: f64, users: &[UserKey]) {
        let team = &mut self.teams[usize::from(team)];
        team.open_seats -= players;
        team.rating_sum += rating_sum;
        team.users.extend(users);
        team.users.sort_unstable();
    }

    /// Seats guests in a team that [`Self::teams_with_room`] names.
    pub(super) fn seat_guests_in_team(
        &mut self,
        team: u16,
        ratings: &[PlayerRating],
        matching: &[f64],
        users: &[UserKey],
    ) {
        let players = matching.len() as u16;
        self.take_seats(team, players, matching.iter().sum(), users);
        self.open_seats -= players;
        self.mean.add(ratings);
    }

    /// Whether the session offers no seat, or has no room for any player.
    pub(super) fn is_full(&self) -> bool {
        self.open_seats == 0 || self.teams.iter().all(|team| team.open_seats == 0)
    }

    /// Teams that a party of `players` may join.
    pub(super) fn teams_with_room(&self, players: u16) -> impl Iterator<Item = u16> + '_ {
        let offered = players <= self.open_seats;
        (0..self.teams.len() as u16).filter(move |&team| offered && self.has_room_in_team(team, players))
    }

    /// Users in a team, sorted.
    pub(super) fn users_in(&self, team: u16) -> &[UserKey] {
        &self.teams[usize::from(team)].users
    }

    /// Largest difference between two teams, as a split measures it, if guests with these ratings join `team`.
    pub(super) fn rating_gap_if_guests_join(&self, team: u16, matching: &[f64]) -> f64 {
        let strengths = self.strengths_with(team, matching.iter().sum(), matching.len() as u16);
        let highest = strengths.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        highest - strengths.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Strength of each team, if `players` with this sum of ratings join `team`.
    fn strengths_with(&self, joined: u16, rating_sum: f64, players: u16) -> Vec<f64> {
        let mean = (self.teams.iter().map(|team| team.rating_sum).sum::<f64>() + rating_sum)
            / f64::from(self.teams.iter().map(|team| team.capacity - team.open_seats).sum::<u16>() + players).max(1.0);
        let strength = |(team, index): (&SeatedTeam, u16)| {
            let (added, seats) = if index == joined { (rating_sum, players) } else { (0.0, 0) };
            let sum = team.rating_sum + added + mean * f64::from(team.open_seats - seats);
            if self.equal_sizes { sum } else { sum / f64::from(team.capacity) }
        };
        self.teams.iter().zip(0_u16..).map(strength).collect()
    }

    /// Players who stand for the seats that stay open when guests with these ratings join `team`: team, number and
    /// rating. The team with most room gets the first.
    pub(super) fn placeholders_for_open_seats(&self, team: u16, ratings: &[PlayerRating]) -> (Vec<u16>, PlayerRating) {
        let mut mean = self.mean;
        mean.add(ratings);
        let players = ratings.len() as u16;
        let mut room: Vec<u16> = self.teams.iter().map(|team| team.open_seats).collect();
        room[usize::from(team)] -= players;
        let mut counts = vec![0; room.len()];
        for _ in 0..self.open_seats - players {
            let widest = (0..room.len()).max_by_key(|&index| (room[index], usize::MAX - index));
            let Some(index) = widest.filter(|&index| room[index] > 0) else { break };
            room[index] -= 1;
            counts[index] += 1;
        }
        (counts, mean.rating())
    }
}

/// Team of each party by the split of a new match, in which players of the mean rating take the other seats. `None` if a
/// rating is unknown or there is no such match.
fn split_as_new_match(spec: &TeamsSpec, parties: &[SeatedParty]) -> Option<Vec<u16>> {
    parties.iter().all(|party| party.ratings().is_some()).then_some(())?;
    let players: u16 = parties.iter().map(|party| party.player_count).sum();
    let stand_ins = spec.players_per_match().checked_sub(players)?;
    let sum: f64 = parties.iter().flat_map(SeatedParty::matching_ratings).sum();
    let mean = [sum / f64::from(players.max(1))];
    let party = |ratings| TeamParty { ratings, offered_roles: &[], wanted_roles: &[] };
    let all: Vec<TeamParty<'_>> = parties
        .iter()
        .map(|seated| party(seated.matching_ratings()))
        .chain((0..stand_ins).map(|_| party(&mean)))
        .collect();
    // The players stay together as they are: roles are considered for guests only.
    let without_roles = TeamsSpec {
        roles: Box::default(),
        exact_up_to_team_size: spec.exact_up_to_team_size.min(EXACT_SPLIT_TEAM_SIZE_MAX),
        ..spec.clone()
    };
    let split = team::split_into_teams(&without_roles, &all, &|_, _| false)?;
    let mut teams = vec![0; parties.len()];
    for (team, index) in split.teams.iter().zip(0_u16..) {
        let seated = team.iter().filter(|(party, _)| *party < parties.len());
        seated.for_each(|(party, _)| teams[*party] = index);
    }
    Some(teams)
}
