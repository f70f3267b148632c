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
}
