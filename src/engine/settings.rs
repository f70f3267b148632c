//! What an operator may set about the engine; checked by `config`, read-only here.

/// Bounds and switches. Durations in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// How long an advertisement is believed when its host does not say.
    pub default_ttl_ms: u32,
    /// The shortest time to live that is granted.
    pub min_ttl_ms: u32,
    /// The longest; also how long a deleted advertisement stays deleted.
    pub max_ttl_ms: u32,
    /// How long seats are held when the client does not say.
    pub default_hold_ms: u32,
    /// The shortest hold that is granted.
    pub min_hold_ms: u32,
    /// The longest hold that is granted.
    pub max_hold_ms: u32,
    /// A search token that has not been used for this long no longer counts: nobody keeps the widest limits for ever.
    pub search_token_idle_timeout_ms: u64,
    /// How long an ended reservation is remembered, so that a late retry is recognised.
    pub ended_reservation_retention_ms: u64,
    /// How long an ended ticket and a match that is over are remembered, so that a late retry is recognised.
    pub ended_ticket_retention_ms: u64,
    /// How long a replaced ruleset's hash stays resolvable.
    pub retired_ruleset_retention_ms: u64,
    /// Whether clients may say where they are.
    pub allow_client_locality: bool,
    /// Whether searches may override the rules.
    pub allow_search_overrides: bool,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            default_ttl_ms: 90_000,
            min_ttl_ms: 5_000,
            max_ttl_ms: 600_000,
            default_hold_ms: 30_000,
            min_hold_ms: 1_000,
            max_hold_ms: 120_000,
            search_token_idle_timeout_ms: 60_000,
            ended_reservation_retention_ms: 600_000,
            ended_ticket_retention_ms: 60 * 60 * 1_000,
            retired_ruleset_retention_ms: 600_000,
            allow_client_locality: false,
            allow_search_overrides: false,
        }
    }
}

impl EngineSettings {
    /// The time to live that is granted when `asked` is asked for.
    pub fn granted_ttl_ms(&self, asked: Option<u32>) -> u32 {
        asked.map_or(self.default_ttl_ms, |it| it.clamp(self.min_ttl_ms, self.max_ttl_ms))
    }

    /// The hold that is granted when `asked` is asked for.
    pub fn granted_hold_ms(&self, asked: Option<u32>) -> u32 {
        asked.map_or(self.default_hold_ms, |it| it.clamp(self.min_hold_ms, self.max_hold_ms))
    }
}
