//! What an operator may set about the engine; checked by `config`, read-only here.

/// Bounds and switches. Durations in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long an advertisement is believed when its host does not say.
    pub time_to_live_default_ms: u32,
    /// The shortest time to live that is granted.
    pub time_to_live_min_ms: u32,
    /// The longest; also how long a deleted advertisement stays deleted.
    pub time_to_live_max_ms: u32,
    /// How long seats are held when the client does not say.
    pub hold_default_ms: u32,
    /// The shortest hold that is granted.
    pub hold_min_ms: u32,
    /// The longest hold that is granted.
    pub hold_max_ms: u32,
    /// A search token that has not been used for this long no longer counts: nobody keeps the widest limits for ever.
    pub search_token_lapse_ms: u64,
    /// How long an ended reservation is remembered, so that a late retry is recognised.
    pub ended_kept_ms: u64,
    /// How long an ended ticket and a match that is over are remembered, so that a late retry is recognised.
    pub ticket_kept_ms: u64,
    /// How long a replaced ruleset's hash stays resolvable.
    pub retired_kept_ms: u64,
    /// Whether clients may say where they are.
    pub allow_client_locality: bool,
    /// Whether searches may override the rules.
    pub allow_overrides: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            time_to_live_default_ms: 90_000,
            time_to_live_min_ms: 5_000,
            time_to_live_max_ms: 600_000,
            hold_default_ms: 30_000,
            hold_min_ms: 1_000,
            hold_max_ms: 120_000,
            search_token_lapse_ms: 60_000,
            ended_kept_ms: 600_000,
            ticket_kept_ms: 60 * 60 * 1_000,
            retired_kept_ms: 600_000,
            allow_client_locality: false,
            allow_overrides: false,
        }
    }
}

impl Settings {
    /// The time to live that is granted when `asked` is asked for.
    pub fn time_to_live_ms(&self, asked: Option<u32>) -> u32 {
        asked.map_or(self.time_to_live_default_ms, |it| it.clamp(self.time_to_live_min_ms, self.time_to_live_max_ms))
    }

    /// The hold that is granted when `asked` is asked for.
    pub fn hold_ms(&self, asked: Option<u32>) -> u32 {
        asked.map_or(self.hold_default_ms, |it| it.clamp(self.hold_min_ms, self.hold_max_ms))
    }
}
