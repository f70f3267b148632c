//! How a match is divided into teams, as a ruleset says it.

/// Teams of one match. Everyone against everyone is many teams of one.
#[derive(Clone, Debug, PartialEq)]
pub struct TeamsSpec {
    /// Players in each full team, one or more; two teams or more. Teams need not be of one size.
    pub team_sizes: Box<[u16]>,
    /// The largest party that may enter; never more than the largest team, for parties are not split (B-7).
    pub max_party_size: u16,
    /// Teams up to this size are split exactly, larger ones greedily: exact takes C(n-1, n/2-1) looks (S4-10, S4-13).
    pub exact_up_to_size: u16,
    /// Roles that every team must fill, in file order; empty when anyone does anything.
    pub roles: Box<[TeamRole]>,
    /// The texts attribute that says which roles a party's players offer: a place in `Ruleset::attributes`.
    pub role_attribute: Option<usize>,
}

/// A role that every team must fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamRole {
    /// What sessions call it.
    pub name: Box<str>,
    /// Players of a team who play it.
    pub per_team: u16,
}

impl TeamsSpec {
    /// Players in a full match.
    pub fn players_per_match(&self) -> u16 {
        self.team_sizes.iter().fold(0, |sum, size| sum.saturating_add(*size))
    }

    /// Players in the largest team.
    pub fn largest_team_size(&self) -> u16 {
        self.team_sizes.iter().copied().max().unwrap_or(0)
    }
}

/// Whether a match must be agreed to before it begins (S0-20).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyCheckSpec {
    /// How long players have to answer, milliseconds.
    pub deadline_ms: u32,
    /// How long those who declined or did not answer may not queue again, milliseconds: the first time, the second, and so
    /// on; the last holds from there on. Empty for at once.
    pub penalty_cooldowns_ms: Box<[u32]>,
    /// After how long without a failed check the ladder begins anew, milliseconds.
    pub reset_after_ms: u64,
}

/// Where a match is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostingSpec {
    /// Who runs it.
    pub mode: HostingMode,
    /// How long a match waits for a server before its players go back to the queue, milliseconds.
    pub wait_ms: u32,
    /// After how long a match whose end nobody reports is over, milliseconds.
    pub play_max_ms: u64,
}

/// Who runs the game of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostingMode {
    /// A game server that has advertised itself: found by search, its seats reserved.
    Advertised,
    /// One of the players: an open NAT first, then who has waited longest.
    Peer,
    /// Nobody that fireteam knows of: players are told of each other, and that is all.
    None,
}
