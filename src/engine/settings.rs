//! Engine settings; validated by `config`.

use std::num::NonZeroU32;

use crate::domain::advertisement::Advertisement;
use crate::domain::time::UnixMs;

/// Limits and switches. Durations are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// Default advertisement TTL.
    pub default_advertisement_ttl_ms: u32,
    /// Minimum advertisement TTL.
    pub min_advertisement_ttl_ms: u32,
    /// Maximum advertisement TTL. A tombstone lasts twice as long.
    pub max_advertisement_ttl_ms: u32,
    /// Default reservation hold.
    pub default_reservation_ttl_ms: u32,
    /// Minimum reservation hold.
    pub min_reservation_ttl_ms: u32,
    /// Maximum reservation hold.
    pub max_reservation_ttl_ms: u32,
    /// Idle time after which a search token restarts the search, so that wide limits are not kept forever.
    pub search_token_idle_timeout_ms: u64,
    /// Retention of ended reservations, to recognize late retries.
    pub ended_reservation_retention_ms: u64,
    /// Retention of ended tickets and matches, to recognize late retries.
    pub ended_ticket_retention_ms: u64,
    /// Retention of replaced rulesets.
    pub retired_ruleset_retention_ms: u64,
    /// Time for which the ruleset of a removed file stays in force.
    pub ruleset_removal_grace_ms: u64,
    /// Time for which ratings are kept after the last rated match; `None` to keep them until the user is erased.
    pub rating_retention_ms: Option<u64>,
    /// Whether clients may send their own location.
    pub allow_client_locality: bool,
    /// Whether searches may override rules.
    pub allow_search_overrides: bool,
    /// Maximum silos with live tickets or advertisements. Silos that the operator names are not limited.
    pub max_silos: u32,
    /// Maximum of those that one caller has opened.
    pub max_silos_per_user: u32,
    /// Maximum live advertisements of a kind of one client; a newer one takes the place of the oldest.
    pub max_advertisements_per_client: u32,
    /// Maximum live advertisements of a kind of one game server identity.
    pub max_advertisements_per_server: u32,
    /// Maximum live reservations of one client; a newer one takes the place of the oldest.
    pub max_reservations_per_client: u32,
    /// Maximum waiting tickets of one user, over all sets and silos, for clients that enter it.
    pub max_tickets_per_user: u32,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            default_advertisement_ttl_ms: 90_000,
            min_advertisement_ttl_ms: 5_000,
            max_advertisement_ttl_ms: 600_000,
            default_reservation_ttl_ms: 30_000,
            min_reservation_ttl_ms: 1_000,
            max_reservation_ttl_ms: 120_000,
            search_token_idle_timeout_ms: 60_000,
            ended_reservation_retention_ms: 600_000,
            ended_ticket_retention_ms: 60 * 60 * 1_000,
            retired_ruleset_retention_ms: 600_000,
            ruleset_removal_grace_ms: 600_000,
            rating_retention_ms: None,
            allow_client_locality: false,
            allow_search_overrides: false,
            max_silos: 1_024,
            max_silos_per_user: 8,
            max_advertisements_per_client: 1,
            max_advertisements_per_server: 1_000,
            max_reservations_per_client: 1,
            max_tickets_per_user: 4,
        }
    }
}

impl EngineSettings {
    /// Granted TTL: `requested` clamped to the limits, or the default.
    pub fn granted_advertisement_ttl_ms(&self, requested: Option<u32>) -> u32 {
        requested.map_or(self.default_advertisement_ttl_ms, |ms| {
            ms.clamp(self.min_advertisement_ttl_ms, self.max_advertisement_ttl_ms)
        })
    }

    /// TTL of a stored advertisement: its own, within today's limits, or the default if it was not kept.
    pub fn ttl_ms_of_loaded_advert(&self, advertisement: &Advertisement) -> u32 {
        self.granted_advertisement_ttl_ms(advertisement.ttl_ms.map(NonZeroU32::get))
    }

    /// End of the tombstone of an advertisement that is removed at `now`.
    pub fn tombstone_until(&self, now: UnixMs) -> UnixMs {
        now.plus_ms(u64::from(self.max_advertisement_ttl_ms) * 2)
    }

    /// Granted hold: `requested` clamped to the limits, or the default.
    pub fn granted_hold_ms(&self, requested: Option<u32>) -> u32 {
        requested.map_or(self.default_reservation_ttl_ms, |ms| {
            ms.clamp(self.min_reservation_ttl_ms, self.max_reservation_ttl_ms)
        })
    }
}
