//! Latency tokens that come with a party.

/// Latency tokens of a party.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyTokens {
    /// The caller's own token; empty for none.
    pub own: Vec<u8>,
    /// Tokens of the players, in player order; empty for none. May be shorter than the player list.
    pub players: Vec<Vec<u8>>,
}

impl LatencyTokens {
    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.players.iter().all(Vec::is_empty)
    }
}
