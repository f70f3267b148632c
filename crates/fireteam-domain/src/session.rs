//! Session composition: players, position, latencies and attributes. Syntax is checked; no ruleset is applied yet.

use crate::attribute::{AttributeValue, ShortString, ValueOrigin};
use crate::id::{SiloId, UserKey};
use crate::latency::published_vector::PublishedVector;
use crate::locality::Locality;
use crate::wish::Wish;

/// Player of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Player {
    /// Account of the player. Two players of one user are never matched with each other.
    pub user: UserKey,
    /// Connected client of the account.
    pub client_key: UserKey,
    /// Skill from the request, on the scale of the ruleset's `skill` attribute.
    pub stated_skill: Option<f64>,
    /// Team in an advertised session, from 0, as its host states it. `None` for parties that wait or search.
    pub team: Option<u16>,
    /// Attributes and wanted roles of this player. Boxed: most players have none.
    pub details: Option<Box<PlayerDetails>>,
}

/// Values that a session states for one of its players, beside the skill.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlayerDetails {
    /// Attributes of this player, sorted by name, without duplicates.
    pub attributes: Vec<(ShortString, AttributeValue)>,
    /// Names of the roles that the player wants in a team, the most wanted first, without duplicates. Empty: as the party says.
    pub wanted_roles: Vec<Box<str>>,
}

impl Player {
    /// Player of whom only the account is known.
    pub fn from_user(user: UserKey) -> Self {
        Self { user, client_key: user, stated_skill: None, team: None, details: None }
    }

    /// Value of an attribute of this player; `None` if it is not set.
    pub fn attribute_value(&self, name: &str) -> Option<&AttributeValue> {
        find_attribute(&self.details.as_ref()?.attributes, name)
    }

    /// Names of the roles that the player wants, the most wanted first. Empty: as the party says.
    pub fn wanted_roles(&self) -> &[Box<str>] {
        self.details.as_ref().map_or(&[], |details| &details.wanted_roles)
    }
}

/// Measured round trip to a region.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionLatency {
    /// Region name, chosen by the game.
    pub region: Box<str>,
    /// Milliseconds, in [0, `limit::ROUND_TRIP_MS_MAX`].
    pub round_trip_ms: f32,
}

/// Sizes of parties; up to 15 need no allocation.
pub type PartySizes = ecow::EcoBytes;

/// Session composition. All counts and strings are within `limit`; all numbers are finite.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Session {
    /// Silo: the isolated population of the session.
    pub silo: SiloId,
    /// Size of each party, in order; at least one party, each with at least one player.
    pub party_sizes: PartySizes,
    /// Players in party order. Empty if only party sizes were given; otherwise one per seat of `party_sizes`.
    pub players: Vec<Player>,
    /// NAT type: 0 unknown, 1 open, 2 moderate, 3 strict. The ruleset defines the compatible pairs.
    pub nat_type: Option<i32>,
    /// Whether the game has started.
    pub game_in_progress: Option<bool>,
    /// Number of big parties in the session; the game defines "big".
    pub big_party_count: Option<i32>,
    /// Seats offered to other players, before reservations are subtracted.
    pub offered_seats: u16,
    /// Position; `None` if unknown.
    pub locality: Option<Locality>,
    /// Custom attributes of the game, sorted by name, without duplicates.
    pub attributes: Vec<(ShortString, AttributeValue)>,
    /// Round trips to regions, sorted by region name, without duplicates. Boxed, so that an `Advertisement` in an `Arc`
    /// fits an allocator size class exactly.
    pub region_latencies: Box<[RegionLatency]>,
    /// Kind of caller that sent the values.
    pub value_origin: ValueOrigin,
    /// Wishes, and round trips to beacons. Boxed: most sessions have none.
    pub details: Option<Box<SessionDetails>>,
}

/// Parts that most sessions lack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionDetails {
    /// Wishes for the other side, in the order of the request.
    pub wishes: Box<[Wish]>,
    /// Round trips to beacons by which others are matched with an advertisement or a ticket. They expire.
    pub published_vector: Option<PublishedVector>,
}

impl SessionDetails {
    /// Details with wishes; `None` for none.
    pub fn from_wishes(wishes: Vec<Wish>) -> Option<Box<Self>> {
        (!wishes.is_empty()).then(|| Box::new(Self { wishes: wishes.into(), published_vector: None }))
    }
}

impl Session {
    /// Number of players, which is the number of seats that the session needs.
    pub fn player_count(&self) -> u16 {
        self.party_sizes.iter().map(|&size| u16::from(size)).sum()
    }

    /// Value of a custom attribute; `None` if it is not set.
    pub fn stated_attribute_value(&self, name: &str) -> Option<&AttributeValue> {
        find_attribute(&self.attributes, name)
    }

    /// Region with the shortest measured round trip; `None` if none was measured.
    pub fn nearest_region(&self) -> Option<&str> {
        let nearest =
            self.region_latencies.iter().min_by(|one, other| one.round_trip_ms.total_cmp(&other.round_trip_ms));
        nearest.map(|latency| &*latency.region)
    }

    /// Its wishes, in the order of the request.
    #[inline]
    pub fn wishes(&self) -> &[Wish] {
        self.details.as_ref().map_or(&[], |details| &details.wishes)
    }

    /// Round trips to beacons by which others are matched with it, if it has published any. They may have expired.
    #[inline]
    pub fn published_beacon_vector(&self) -> Option<&PublishedVector> {
        self.details.as_ref()?.published_vector.as_ref()
    }

    /// Replaces the published round trips to beacons.
    pub fn set_published_beacon_vector(&mut self, vector: Option<PublishedVector>) {
        if vector.is_none() && self.wishes().is_empty() {
            self.details = None;
        } else {
            self.details.get_or_insert_default().published_vector = vector;
        }
    }

    /// User keys of the players, sorted, without duplicates.
    pub fn sorted_users(&self) -> Vec<UserKey> {
        let mut users: Vec<UserKey> = self.players.iter().map(|player| player.user).collect();
        users.sort_unstable();
        users.dedup();
        users
    }
}

fn find_attribute<'a>(sorted: &'a [(ShortString, AttributeValue)], name: &str) -> Option<&'a AttributeValue> {
    let index = sorted.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
    Some(&sorted[index].1)
}
