//! Options of a search loop: the party, its limits of time, and the session that it may host.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::pb;
use crate::secret_length::debug_secret_length;

/// Default of [`MatchingOptions::connect_timeout`].
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Default of [`MatchingOptions::redraw_after`].
const REDRAW_ACTION_AFTER: Duration = Duration::from_secs(30);

/// Party and settings of a search loop.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchingOptions {
    /// Matchmaking set.
    pub set_id: u32,
    /// The searching party.
    pub party: pb::SessionCompositionData,
    /// Hash of the client's ruleset; `None` for the server's current one. After STALE_CONFIGURATION the loop fetches the current one.
    pub service_configuration_hash: Option<u32>,
    /// Data for the host's game in involved probes, such as build and map; at most 1134 bytes are sent.
    pub game_data: Vec<u8>,
    /// Session that this client may host. `None`: the loop only searches. With a game server, a started loop ends at once with INVALID_ARGUMENT.
    pub hosting: Option<HostedSession>,
    /// Time for the game to connect to a host, 1 ms or more. Seats that expire sooner shorten it.
    pub connect_timeout: Duration,
    /// Time of searches without a join, or of an advertisement without guests, after which the loop draws its action again.
    pub redraw_after: Duration,
    /// Time from the start after which the loop ends without a session. `None`: it goes on until it is cancelled.
    pub give_up_after: Option<Duration>,
}

impl MatchingOptions {
    /// Options for a party that only searches, with the defaults: 10 s to connect, another draw after 30 s, no end.
    pub fn new(set_id: u32, party: pb::SessionCompositionData) -> Self {
        Self {
            set_id,
            party,
            service_configuration_hash: None,
            game_data: Vec::new(),
            hosting: None,
            connect_timeout: CONNECT_TIMEOUT,
            redraw_after: REDRAW_ACTION_AFTER,
            give_up_after: None,
        }
    }

    /// Number of players in the party, at least 1.
    pub(super) fn party_size(&self) -> u32 {
        let listed = self.party.players.len() as u32;
        let counted = self.party.party_size_composition.iter().map(|size| u32::try_from(*size).unwrap_or(0)).sum();
        listed.max(counted).max(1)
    }
}

/// Session as requests have it: with the client's latency token, unless it is empty.
pub(super) fn with_latency_token(session: &pb::SessionCompositionData, token: &[u8]) -> pb::SessionCompositionData {
    let mut session = session.clone();
    if !token.is_empty() {
        session.latency_token = token.to_vec();
    }
    session
}

/// Session that this client hosts, or would host.
#[derive(Clone, Default, PartialEq)]
pub struct HostedSession {
    /// Kind of the advertisement; unspecified for a session. A game server starts with [`Event::BecomeHost`](crate::matching::Event::BecomeHost);
    /// it never searches.
    pub kind: pb::AdvertisementKind,
    /// Players in the session, and its open seats in `max_allowed_join_reservation_count`.
    pub session: pb::SessionCompositionData,
    /// Told to parties that have reserved seats, such as the address; at most 512 bytes.
    pub connect_data: Vec<u8>,
    /// Ranges that are tighter than the ruleset's.
    pub allowed_ranges: Vec<pb::AllowedRange>,
    /// TTL of the advertisement; `None` for the server's default.
    pub time_to_live: Option<Duration>,
    /// UDP port at which this client answers latency probes. `None`: it publishes no endpoint, as behind a strict NAT.
    pub probe_port: Option<u16>,
    /// Address to publish with the port. `None`: the address that the server sees.
    pub probe_address: Option<IpAddr>,
    /// Keeps the advertisement while the session is full, as a host needs it that starts matches. Otherwise it is deleted.
    pub keep_when_full: bool,
}

impl HostedSession {
    /// Number of seats that the session leaves open.
    pub(super) fn open_seats(&self) -> u32 {
        self.session.max_allowed_join_reservation_count.map_or(0, |seats| u32::try_from(seats).unwrap_or(0))
    }

    /// Kind of the advertisement, as requests have it.
    pub(super) fn advertised_kind(&self) -> pb::AdvertisementKind {
        match self.kind {
            pb::AdvertisementKind::Unspecified => pb::AdvertisementKind::Session,
            kind => kind,
        }
    }
}

impl fmt::Debug for HostedSession {
    /// Prints no connect data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostedSession")
            .field("kind", &self.kind)
            .field("session", &self.session)
            .field("connect_data", &debug_secret_length(&self.connect_data))
            .field("allowed_ranges", &self.allowed_ranges)
            .field("time_to_live", &self.time_to_live)
            .field("probe_port", &self.probe_port)
            .field("keep_when_full", &self.keep_when_full)
            .finish_non_exhaustive()
    }
}
