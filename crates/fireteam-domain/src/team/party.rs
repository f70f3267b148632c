//! Party as input of a team split.

/// A party as input of a split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TeamParty<'a> {
    /// Ratings of its players, in the party's order; at least one, all finite.
    pub ratings: &'a [f64],
    /// Roles that each of its players offers, as indexes into `TeamsSpec::roles`; see
    /// [`offered_roles`](crate::team::offered_roles). Ignored if the spec has no roles. Otherwise a player without roles
    /// fits into no team.
    pub offered_roles: &'a [u16],
    /// Roles that each of its players wants, the most wanted first; see [`wanted_roles`](crate::player_details::wanted_roles).
    /// A player with an empty list, or without one, offers `offered_roles`.
    pub wanted_roles: &'a [Box<[u16]>],
}

impl TeamParty<'_> {
    /// Roles that the player at `index` wants; empty for one who offers the party's.
    pub(super) fn wanted_roles_of_player(&self, index: usize) -> &[u16] {
        self.wanted_roles.get(index).map_or(&[], |roles| roles)
    }
}
