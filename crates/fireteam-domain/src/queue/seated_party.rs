//! Parties in a session with open seats, as far as they are known: input of backfill.

use crate::id::UserKey;
use crate::queue::ticket::PlayerRating;
use crate::ruleset::Ruleset;

/// Players with a seat in a session, who are together in one team: a party, or its part in that team. Guests count from
/// the proposal of their match on, before their host lists them.
#[derive(Clone, Debug, PartialEq)]
pub struct SeatedParty {
    /// Its users, in the order of their ratings; fewer than `player_count` if some are unknown.
    pub users: Box<[UserKey]>,
    /// Number of players, at least 1.
    pub player_count: u16,
    /// Team, an index into `TeamsSpec::team_sizes`; `None` if unknown.
    pub team: Option<u16>,
    /// Roles that each of its players plays or may play, the most wanted first: indexes into `TeamsSpec::roles`, in the order of
    /// `users`. Empty for a player whose role is unknown.
    pub roles: Box<[Box<[u16]>]>,
    /// Ratings of all its players; `None` if one is unknown.
    ratings: Option<Box<[PlayerRating]>>,
    /// The same as the numbers by which players are matched: [`PlayerRating::matching_rating`].
    matching_ratings: Box<[f64]>,
    /// Mean leaderboard position of its players, 0 for the best. `None` if unknown.
    pub leaderboard_position: Option<f64>,
}

impl SeatedParty {
    /// Party of `users`, of whom nothing else is known.
    pub fn new(users: Vec<UserKey>, player_count: u16, team: Option<u16>) -> Self {
        Self {
            users: users.into(),
            player_count,
            team,
            roles: Box::default(),
            ratings: None,
            matching_ratings: Box::default(),
            leaderboard_position: None,
        }
    }

    /// The party with the ratings of its players, if there is one for each.
    pub fn with_ratings(mut self, ruleset: &Ruleset, ratings: Option<Vec<PlayerRating>>) -> Self {
        self.ratings =
            ratings.filter(|ratings| ratings.len() == usize::from(self.player_count)).map(Vec::into_boxed_slice);
        self.matching_ratings = self.ratings.iter().flatten().map(|it| it.matching_rating(ruleset.match_z())).collect();
        self
    }

    /// Ratings of all its players; `None` if one is unknown.
    pub fn ratings(&self) -> Option<&[PlayerRating]> {
        self.ratings.as_deref()
    }

    /// Numbers by which its players are matched; empty if a rating is unknown.
    pub fn matching_ratings(&self) -> &[f64] {
        &self.matching_ratings
    }

    /// Its players as parties of one, in the same team.
    pub fn parties_of_one(&self) -> impl Iterator<Item = SeatedParty> + '_ {
        (0..usize::from(self.player_count)).map(|index| SeatedParty {
            users: self.users.get(index).copied().into_iter().collect(),
            player_count: 1,
            team: self.team,
            roles: self.roles.get(index).cloned().into_iter().collect(),
            ratings: self.ratings.as_ref().map(|ratings| [ratings[index]].into()),
            matching_ratings: self.matching_ratings.get(index).copied().into_iter().collect(),
            leaderboard_position: self.leaderboard_position,
        })
    }
}
