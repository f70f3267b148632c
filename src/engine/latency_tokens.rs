//! Latency tokens that come with a party.

/// Latency tokens of a party. Most calls have none, so they are boxed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyTokens(Option<Box<PartyTokens>>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PartyTokens {
    own: Vec<u8>,
    players: Vec<Vec<u8>>,
}

impl LatencyTokens {
    /// Tokens of the caller and of the players, in player order; each empty for none. The list may be shorter than that of the players.
    pub fn new(own: Vec<u8>, players: Vec<Vec<u8>>) -> Self {
        let is_empty = own.is_empty() && players.iter().all(Vec::is_empty);
        Self((!is_empty).then(|| Box::new(PartyTokens { own, players })))
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The caller's own token; empty for none.
    pub fn own(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |tokens| &tokens.own)
    }

    /// Tokens of the players.
    pub fn players(&self) -> &[Vec<u8>] {
        self.0.as_ref().map_or(&[], |tokens| &tokens.players)
    }
}
