//! Choice between searching and advertising. It is random, because no groups form if all parties choose the same.

/// Probability of advertising by party size, percent.
#[derive(Clone, Debug, PartialEq)]
pub struct AdvertiseChances {
    percents: Box<[f64]>,
}

/// Next action of a party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchmakingAction {
    /// Search for sessions to join.
    Search,
    /// Advertise the own session and wait for others to join.
    Advertise,
}

/// Maximum probability, percent. At 100, two parties that only advertise would never find each other.
pub const ADVERTISE_PERCENT_MAX: f64 = 99.0;

impl AdvertiseChances {
    /// Table of percentages; the first entry is for a party of one. `None` if it is empty or an entry is outside [0,
    /// 99].
    pub fn from_percents_by_party_size(percents: Vec<f64>) -> Option<Self> {
        let valid = percents.iter().all(|percent| (0.0..=ADVERTISE_PERCENT_MAX).contains(percent));
        (valid && !percents.is_empty()).then(|| Self { percents: percents.into() })
    }

    /// Same probability for every party size; `percent` is clamped to [0, 99].
    pub fn constant(percent: f64) -> Self {
        Self { percents: [percent.clamp(0.0, ADVERTISE_PERCENT_MAX)].into() }
    }

    /// Rule of thumb for symmetric games (Villegas): `party_size / (game_size / 2)` in whole percent, rounded down, at
    /// most 99. A `game_size` below 2 counts as 2.
    pub fn from_game_size(game_size: u16) -> Self {
        let half = f64::from(game_size.max(2)) / 2.0;
        let largest = (game_size.max(2) / 2).max(1);
        let percents =
            (1..=largest).map(|size| (f64::from(size) * 100.0 / half).floor().min(ADVERTISE_PERCENT_MAX)).collect();
        Self { percents }
    }

    /// Probability for a party of `party_size`, percent. Sizes beyond the table use the last entry.
    pub fn percent_for_party(&self, party_size: u16) -> f64 {
        let last = self.percents.len() - 1;
        self.percents[usize::from(party_size.saturating_sub(1)).min(last)]
    }

    /// Percentages by party size, starting with size 1.
    pub fn percents(&self) -> &[f64] {
        &self.percents
    }

    /// Chooses an action at random; `random` is uniform in [0, 1).
    pub fn choose_action(&self, party_size: u16, random: f64) -> MatchmakingAction {
        if random * 100.0 < self.percent_for_party(party_size) {
            MatchmakingAction::Advertise
        } else {
            MatchmakingAction::Search
        }
    }
}
