//! Ruleset settings for teams, roles, the ready check and match hosting.

/// Teams of one match. A free-for-all has one team per player.
#[derive(Clone, Debug, PartialEq)]
pub struct TeamsSpec {
    /// Players in each full team, at least 1. Two or more teams; sizes may differ.
    pub team_sizes: Box<[u16]>,
    /// Largest party that may enter. At most the largest team, because parties are not split.
    pub max_party_size: u16,
    /// Largest team size that is split exactly; larger teams are split greedily. An exact split takes C(n-1, n/2-1)
    /// evaluations.
    pub exact_up_to_team_size: u16,
    /// Roles that every team must fill, in file order. Empty if roles are not used.
    pub roles: Box<[TeamRole]>,
    /// Order of the teams in a match.
    pub order: TeamOrderInMatch,
    /// String list attribute with the roles that a party's players offer: an index into `Ruleset::attributes`.
    pub offered_roles_attribute: Option<usize>,
    /// Bots that take the seats for which no players are found. `None`: only full matches are made.
    pub bots: Option<BotsSpec>,
}

/// Bots that take the seats of a match for which no players are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BotsSpec {
    /// Time that one of the match's tickets has waited, milliseconds.
    pub after_ms: u64,
    /// Fewest players of a match, at least 2.
    pub min_players: u16,
}

/// Order of the teams in a match: which is the first, for games in which one side begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TeamOrderInMatch {
    /// As the split finds them, for example by rating.
    #[default]
    Split,
    /// Drawn for each match, among teams of the same size.
    Drawn,
}

/// Role that every team must fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamRole {
    /// Name of the role in sessions.
    pub name: Box<str>,
    /// Players per team with this role.
    pub per_team: u16,
}

impl TeamsSpec {
    /// Players in a full match; saturates at `u16::MAX`.
    pub fn players_per_match(&self) -> u16 {
        self.team_sizes.iter().fold(0, |sum, size| sum.saturating_add(*size))
    }

    /// Bots of each team, if these numbers of players are in them. Empty if no team has any.
    pub fn bots_by_team(&self, players_by_team: impl Iterator<Item = u16>) -> Box<[u16]> {
        let bots: Box<[u16]> =
            self.team_sizes.iter().zip(players_by_team).map(|(size, players)| size.saturating_sub(players)).collect();
        if bots.iter().all(|count| *count == 0) { Box::default() } else { bots }
    }

    /// Players in the largest team; 0 without teams.
    pub fn largest_team_size(&self) -> u16 {
        self.team_sizes.iter().copied().max().unwrap_or(0)
    }
}

/// Default cooldowns after the first, second and further failed ready checks, milliseconds: 30 seconds, 2 minutes, one hour.
/// Any three in a row take more than an hour, so a user spoils at most three proposals within an hour.
pub const DEFAULT_PENALTY_COOLDOWNS_MS: [u32; 3] = [30_000, 2 * 60 * 1000, 60 * 60 * 1000];

/// Ready check: players must accept a match before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyCheckSpec {
    /// Time to respond, milliseconds.
    pub timeout_ms: u32,
    /// Queue cooldown after a declined or unanswered ready check, milliseconds: for the first failure, the second, and
    /// so on. The last entry repeats. Empty for no cooldown.
    pub penalty_cooldowns_ms: Box<[u32]>,
    /// Time without a failed ready check after which the schedule restarts, milliseconds.
    pub reset_after_ms: u64,
}

/// Hosting of matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostingSpec {
    /// Host of a match.
    pub mode: HostingMode,
    /// Time to wait for a game server before the players return to the queue, milliseconds.
    pub allocation_timeout_ms: u32,
    /// Time after which a match without an end report is over, milliseconds.
    pub max_match_ms: u64,
    /// Time for the host to confirm a match, milliseconds.
    pub confirm_ms: u32,
    /// Time without a sign of life after which the host of a match is lost, milliseconds.
    pub host_loss_ms: u32,
    /// Time for the other sides to report after the first player has reported a result, milliseconds.
    pub report_window_ms: u32,
    /// Order in which game servers are tried.
    pub game_server_order: GameServerOrder,
    /// Longest expected round trip between a player and the game server, milliseconds. `None` for no limit.
    pub max_round_trip_ms: Option<u32>,
    /// Data about its players that a game server receives with a match.
    pub host_data: PlayerDataForHost,
    /// Offers of matches to allocators.
    pub allocator_offers: AllocatorOfferSpec,
}

impl HostingSpec {
    /// Interval of the heartbeats of a host that may have to confirm a match, milliseconds.
    pub fn heartbeat_interval_before_confirm_ms(&self) -> u64 {
        u64::from((self.confirm_ms / 2).max(HOST_CONFIRM_MS_MIN))
    }

    /// Interval of the heartbeats of a host during play, milliseconds: two may be lost.
    pub fn play_heartbeat_interval_ms(&self) -> u64 {
        u64::from((self.host_loss_ms / 3).max(HOST_CONFIRM_MS_MIN))
    }
}

/// Data about its players that a game server receives with a match, beside keys, teams, parties and roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlayerDataForHost {
    /// Attributes of the players' tickets.
    pub includes_attributes: bool,
    /// Ratings of the players when they entered the queue.
    pub includes_ratings: bool,
}

/// Offers of matches to allocators, which start game servers on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocatorOfferSpec {
    /// Matches that are offered.
    pub mode: MatchesOfferedToAllocators,
    /// Time for an allocator to answer an offer, milliseconds.
    pub offer_ms: u32,
}

impl AllocatorOfferSpec {
    /// No offers.
    pub const NO_OFFERS: Self = Self { mode: MatchesOfferedToAllocators::Never, offer_ms: 5_000 };
}

/// Matches that are offered to allocators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchesOfferedToAllocators {
    /// No match: only advertised game servers host.
    #[default]
    Never,
    /// Matches for which there is no advertised game server.
    Fallback,
    /// All matches; advertised game servers are not asked.
    Always,
}

/// Order in which game servers are tried for a match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GameServerOrder {
    /// Best score by the soft filters first.
    #[default]
    BestScore,
    /// Shortest round trip of the farthest player first.
    Closest,
    /// Most open seats first, to spread the load.
    Emptiest,
    /// Fewest open seats first, so that other servers become empty and can be stopped.
    Fullest,
}

/// Default time without a sign of life after which a host is lost, milliseconds.
pub const DEFAULT_HOST_LOSS_MS: u32 = 90_000;

/// Default time for the other sides to report a result: five minutes, milliseconds.
pub const DEFAULT_OTHER_SIDES_REPORT_MS: u32 = 5 * 60 * 1000;

/// Highest default time for a host to confirm, milliseconds.
const DEFAULT_CONFIRM_MS_MAX: u32 = 10_000;

/// Lowest time for a host to confirm, milliseconds.
pub const HOST_CONFIRM_MS_MIN: u32 = 1_000;

/// Lowest time for a host without a stream to confirm, milliseconds: it learns of a match with its next heartbeat.
pub const HOST_CONFIRM_WITHOUT_STREAM_MS_MIN: u32 = 3_000;

/// Default time for a host to confirm, milliseconds: a third of the allocation timeout, so that two other servers can be
/// asked, and at most ten seconds.
pub fn default_host_confirm_ms(allocation_timeout_ms: u32) -> u32 {
    (allocation_timeout_ms / 3).clamp(HOST_CONFIRM_MS_MIN, DEFAULT_CONFIRM_MS_MAX)
}

/// Host of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostingMode {
    /// An advertised game server. A search finds it and its seats are reserved.
    GameServer,
    /// One of the players: open NAT first, then longest wait.
    Peer,
    /// No host known to the server; players only receive each other's data.
    None,
}
