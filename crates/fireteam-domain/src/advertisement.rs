//! Advertisement: a session or game server that is open to join.

use std::num::NonZeroU32;

use crate::attribute::ValueOrigin;
use crate::id::{AdvertisementId, RulesetHash, SetId, UserKey};
use crate::session::Session;
use crate::time::UnixMs;

/// Advertised party: a session of players or a game server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AdvertisementKind {
    /// A session of players that looks for more players; clients and queues can find it.
    #[default]
    Session,
    /// A game server that waits for a match; only queues find it, not clients.
    GameServer,
}

/// Attribute range published by one advertisement, in addition to its ruleset. The searcher's value must lie in it.
#[derive(Clone, Debug, PartialEq)]
pub struct AllowedRange {
    /// Name of a number attribute.
    pub attribute: Box<str>,
    /// Lowest value that passes, inclusive; `None` for no lower limit.
    pub min: Option<f64>,
    /// Highest value that passes, inclusive; `None` for no upper limit.
    pub max: Option<f64>,
}

/// Address at which a game server, or the machine of a player who hosts, answers latency probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeEndpoint {
    /// IPv6 address, or IPv4 address in its mapped form; never of a player's own machine.
    pub address: [u8; 16],
    /// UDP port, at least 1.
    pub port: u16,
    /// Key that a probe must know, of `limit::PROBE_KEY_BYTES_RANGE`.
    pub key: Box<[u8]>,
}

/// An advertisement as published. Expiry and open seats change often and are stored outside this struct.
#[derive(Clone, Debug, PartialEq)]
pub struct Advertisement {
    /// Advertisement id.
    pub id: AdvertisementId,
    /// Matchmaking set.
    pub set_id: SetId,
    /// Session or game server; never changes.
    pub kind: AdvertisementKind,
    /// Authenticated caller that published it; `None` when anonymous.
    pub publisher: Option<UserKey>,
    /// Start of the advertisement. Its limits relax with the time since then.
    pub advertised_since: UnixMs,
    /// Hash of the ruleset at publication.
    pub ruleset_hash: RulesetHash,
    /// Session composition.
    pub session: Session,
    /// Time to live after each heartbeat, in milliseconds. `None` in rows of version 0.2.0, which did not keep it.
    pub ttl_ms: Option<NonZeroU32>,
    /// Additional ranges for searchers.
    pub allowed_ranges: Box<[AllowedRange]>,
    /// Opaque bytes for parties that have reserved or are matched, such as an address.
    pub connect_data: Box<[u8]>,
    /// Endpoint for latency probes: of a game server, or of a player's own machine where the ruleset lets players be probed.
    /// Boxed: most advertisements have none.
    pub probe: Option<Box<ProbeEndpoint>>,
}

/// Memory holds up to a million advertisements, each in an `Arc` with two reference counts. 256 bytes is an allocator
/// size class; one more byte would cost 64.
const _: () = assert!(size_of::<Advertisement>() + 2 * size_of::<usize>() <= 256);

impl Advertisement {
    /// Endpoint that searches tell: that of a game server.
    pub fn game_server_probe(&self) -> Option<&ProbeEndpoint> {
        self.probe.as_deref().filter(|_| self.session.value_origin == ValueOrigin::GameServer)
    }

    /// Endpoint of a player's own machine.
    pub fn player_probe(&self) -> Option<&ProbeEndpoint> {
        self.probe.as_deref().filter(|_| self.session.value_origin == ValueOrigin::Client)
    }
}
