//! How a match is divided into teams, as a ruleset says it.

/// Teams of one match. Everyone against everyone is many teams of one.
#[derive(Clone, Debug, PartialEq)]
pub struct TeamsSpec {
    /// Teams in a match; two or more.
    pub count: u16,
    /// Players in a full team; one or more.
    pub size: u16,
    /// The largest party that may enter; never more than a team, for parties are not split (B-7).
    pub max_party_size: u16,
    /// Teams up to this size are split exactly, larger ones greedily: exact takes C(n-1, n/2-1) looks (S4-10, S4-13).
    pub exact_up_to_size: u16,
    /// Roles that every team must fill, in file order; empty when anyone does anything.
    pub roles: Box<[Role]>,
    /// The texts attribute that says which roles a party's players offer: a place in `Ruleset::attributes`.
    pub role_attribute: Option<usize>,
}

/// A role that every team must fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// What sessions call it.
    pub name: Box<str>,
    /// Players of a team who play it.
    pub per_team: u16,
}

impl TeamsSpec {
    /// Players in a full match.
    pub fn match_size(&self) -> u16 {
        self.count.saturating_mul(self.size)
    }
}

/// Whether a match must be agreed to before it begins (S0-20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyCheck {
    /// How long players have to answer, milliseconds.
    pub deadline_ms: u32,
    /// How long those who declined or did not answer may not queue again, milliseconds; 0 for at once.
    pub decline_cooldown_ms: u32,
}
