//! Search or advertise? If everyone did the same no groups would form, so the choice is drawn (S1-5).

/// The chance of advertising by party size, percent.
#[derive(Clone, Debug, PartialEq)]
pub struct AdvertiseChances {
    percents: Box<[f64]>,
}

/// What a party does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchmakingAction {
    /// Look for sessions.
    Search,
    /// Wait to be found.
    Advertise,
}

/// Never certain: two full parties that only advertise would never meet (S1-6).
pub const ADVERTISE_PERCENT_MAX: f64 = 99.0;

impl AdvertiseChances {
    /// A hand-tuned table: the first entry is for a party of one. `None` when it is empty or an entry lies outside
    /// [0, 99].
    pub fn from_table(percents: Vec<f64>) -> Option<Self> {
        let valid = percents.iter().all(|percent| (0.0..=ADVERTISE_PERCENT_MAX).contains(percent));
        (valid && !percents.is_empty()).then(|| Self { percents: percents.into() })
    }

    /// The same chance for every size of party; `percent` is held to [0, 99].
    pub fn constant(percent: f64) -> Self {
        Self { percents: [percent.clamp(0.0, ADVERTISE_PERCENT_MAX)].into() }
    }

    /// The rule of thumb for symmetric games: `party_size / (game_size / 2)`, as whole percents, rounded down and
    /// capped at 99 (S1-7). `game_size` is 2 or more.
    pub fn from_game_size(game_size: u16) -> Self {
        let half = f64::from(game_size.max(2)) / 2.0;
        let largest = (game_size.max(2) / 2).max(1);
        let percents =
            (1..=largest).map(|size| (f64::from(size) * 100.0 / half).floor().min(ADVERTISE_PERCENT_MAX)).collect();
        Self { percents }
    }

    /// The chance for a party of `party_size`, percent. Sizes beyond the table have the last entry's.
    pub fn percent_for_party(&self, party_size: u16) -> f64 {
        let last = self.percents.len() - 1;
        self.percents[usize::from(party_size.saturating_sub(1)).min(last)]
    }

    /// The whole table.
    pub fn percents(&self) -> &[f64] {
        &self.percents
    }

    /// Draws a role; `dice` is uniform in [0, 1).
    pub fn choose_action(&self, party_size: u16, dice: f64) -> MatchmakingAction {
        if dice * 100.0 < self.percent_for_party(party_size) {
            MatchmakingAction::Advertise
        } else {
            MatchmakingAction::Search
        }
    }
}
