//! What a session says about itself, checked for form but not yet held against any ruleset.

use crate::attribute::{AttributeValue, ValueOrigin};
use crate::id::{SiloId, UserKey};
use crate::locality::Locality;

/// One player of a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Player {
    /// The account. Two players of one user never meet.
    pub user: UserKey,
    /// The connected client of that account.
    pub client_key: UserKey,
    /// How good the player is said to be, on the scale of the ruleset's `skill`.
    pub stated_skill: Option<f64>,
}

/// A measured round trip to a region.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionLatency {
    /// The region's name, as the game calls it.
    pub region: Box<str>,
    /// Milliseconds, in [0, `limit::ROUND_TRIP_MS_MAX`].
    pub round_trip_ms: f32,
}

/// A session's composition. Every count and text is within `limit`; every number is finite.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Session {
    /// The population it belongs to.
    pub silo: SiloId,
    /// The size of each party, in order; at least one party, each of at least one player.
    pub party_sizes: Vec<u8>,
    /// The players, in party order. Empty when only party sizes were given; otherwise as many as the sizes add up to.
    pub players: Vec<Player>,
    /// 0 unknown, 1 open, 2 moderate, 3 strict; which pairs suit is the ruleset's to say.
    pub nat_type: Option<i32>,
    /// Whether the game has begun.
    pub game_in_progress: Option<bool>,
    /// How many big parties the session has; what counts as big is the game's to say.
    pub big_party_count: Option<i32>,
    /// Seats that others may take, before reservations are deducted.
    pub join_seats: u16,
    /// Where it is; absent when unknown.
    pub locality: Option<Locality>,
    /// The game's own attributes, by name, in name order, each name once.
    pub attributes: Vec<(Box<str>, AttributeValue)>,
    /// Round trips to regions, in name order, each region once. Boxed, because an `Advertisement` behind an `Arc` is then
    /// just as large as a size that allocators have.
    pub region_latencies: Box<[RegionLatency]>,
    /// Who said all this.
    pub origin: ValueOrigin,
}

impl Session {
    /// How many players it has, and so how many seats it needs.
    pub fn player_count(&self) -> u16 {
        self.party_sizes.iter().map(|&size| u16::from(size)).sum()
    }

    /// The value of one of the game's own attributes.
    pub fn attribute_value(&self, name: &str) -> Option<&AttributeValue> {
        let at = self.attributes.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&self.attributes[at].1)
    }

    /// Its users, sorted, each once.
    pub fn sorted_users(&self) -> Vec<UserKey> {
        let mut users: Vec<UserKey> = self.players.iter().map(|player| player.user).collect();
        users.sort_unstable();
        users.dedup();
        users
    }
}
