//! Session composition: players, position, latencies and attributes. Syntax is checked; no ruleset is applied yet.

use crate::attribute::{AttributeValue, ValueOrigin};
use crate::id::{SiloId, UserKey};
use crate::locality::Locality;

/// Player of a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Player {
    /// Account of the player. Two players of one user are never matched with each other.
    pub user: UserKey,
    /// Connected client of the account.
    pub client_key: UserKey,
    /// Skill from the request, on the scale of the ruleset's `skill` attribute.
    pub stated_skill: Option<f64>,
}

/// Measured round trip to a region.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionLatency {
    /// Region name, chosen by the game.
    pub region: Box<str>,
    /// Milliseconds, in [0, `limit::ROUND_TRIP_MS_MAX`].
    pub round_trip_ms: f32,
}

/// Session composition. All counts and strings are within `limit`; all numbers are finite.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Session {
    /// Silo: the isolated population of the session.
    pub silo: SiloId,
    /// Size of each party, in order; at least one party, each with at least one player.
    pub party_sizes: Vec<u8>,
    /// Players in party order. Empty if only party sizes were given; otherwise one per seat of `party_sizes`.
    pub players: Vec<Player>,
    /// NAT type: 0 unknown, 1 open, 2 moderate, 3 strict. The ruleset defines the compatible pairs.
    pub nat_type: Option<i32>,
    /// Whether the game has started.
    pub game_in_progress: Option<bool>,
    /// Number of big parties in the session; the game defines "big".
    pub big_party_count: Option<i32>,
    /// Seats offered to other players, before reservations are subtracted.
    pub join_seats: u16,
    /// Position; `None` if unknown.
    pub locality: Option<Locality>,
    /// Custom attributes of the game, sorted by name, without duplicates.
    pub attributes: Vec<(Box<str>, AttributeValue)>,
    /// Round trips to regions, sorted by region name, without duplicates. Boxed, so that an `Advertisement` in an `Arc`
    /// fits an allocator size class exactly.
    pub region_latencies: Box<[RegionLatency]>,
    /// Kind of caller that sent the values.
    pub origin: ValueOrigin,
}

impl Session {
    /// Number of players, which is the number of seats that the session needs.
    pub fn player_count(&self) -> u16 {
        self.party_sizes.iter().map(|&size| u16::from(size)).sum()
    }

    /// Value of a custom attribute; `None` if it is not set.
    pub fn attribute_value(&self, name: &str) -> Option<&AttributeValue> {
        let index = self.attributes.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&self.attributes[index].1)
    }

    /// User keys of the players, sorted, without duplicates.
    pub fn sorted_users(&self) -> Vec<UserKey> {
        let mut users: Vec<UserKey> = self.players.iter().map(|player| player.user).collect();
        users.sort_unstable();
        users.dedup();
        users
    }
}
