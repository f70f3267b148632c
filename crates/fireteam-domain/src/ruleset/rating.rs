//! Ruleset settings for ratings: one rating system per matchmaking set, its constants and its leaderboard.

mod constants;
pub mod defaults;
mod inactivity;
mod rate_match;
pub mod scale;

/// Rating system, its constants and the order of its leaderboard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatingSpec {
    /// Rating system and its constants.
    pub system: RatingSystem,
    /// Leaderboard order: `rating - z * deviation`. 0 for systems without a deviation.
    pub leaderboard_z: f64,
    /// Deviations deducted from a rating when players are matched, so that newcomers are matched low; 0 for none.
    pub match_z: f64,
    /// Growth of the deviation of inactive players; `None` for no growth.
    pub decay: Option<InactiveDeviationGrowth>,
    /// Effect of a win or loss streak on the next rating change; `None` for no effect.
    pub momentum: Option<StreakChangeFactor>,
    /// First matches of a user during which the rating is provisional; 0 for none.
    pub placement_matches: u32,
    /// Effect of a match that a player left early.
    pub on_disconnect: DisconnectPolicy,
    /// Unit of one rated game with several opponents. Used by Elo, Glicko and Glicko-2 only.
    pub opponents_per_game: OpponentsPerRatedGame,
    /// Callers who may read the leaderboard.
    pub leaderboard: LeaderboardAccess,
    /// Classes of ratings that players see; `None` for none.
    pub categories: Option<EqualWidthRatingCategories>,
    /// Form of the win probabilities of Plackett-Luce; the other systems have one form.
    pub prediction: PerformanceDistribution,
}

/// Distribution of performances by which Plackett-Luce predicts results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PerformanceDistribution {
    /// The model's own: performances have a Gumbel distribution.
    #[default]
    Logistic,
    /// Performances have a normal distribution, as in OpenSkill's predictions.
    Probit,
}

/// Classes of ratings, from 1 up, of equal width. The first also has all ratings below it, the last all above it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EqualWidthRatingCategories {
    /// Number of categories, at least 2.
    pub count: u16,
    /// Rating points per category, above 0.
    pub width: f64,
    /// Lowest rating of the first category.
    pub from: f64,
}

impl EqualWidthRatingCategories {
    /// Category of a rating, from 1 to `count`: `1 + floor((rating - from) / width)`, within the limits.
    pub fn category_of(&self, rating: f64) -> u16 {
        1 + self.category_index_of_rating(rating)
    }

    /// Category of a rating, counted from 0.
    #[inline]
    pub fn category_index_of_rating(&self, rating: f64) -> u16 {
        let last = f64::from(self.count.saturating_sub(1));
        ((rating - self.from) / self.width).floor().clamp(0.0, last) as u16
    }
}

/// Callers who may read a leaderboard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaderboardAccess {
    /// Callers without identity, on a server without authentication.
    #[default]
    Private,
    /// Each caller.
    Public,
}

impl RatingSpec {
    /// Settings for `system` without decay, momentum, placement or `match_z`; every match counts. z is 1 for systems with a
    /// deviation, otherwise 0.
    pub const fn with_defaults(system: RatingSystem) -> Self {
        let z = if matches!(system, RatingSystem::Elo { .. }) { 0.0 } else { 1.0 };
        Self {
            system,
            leaderboard_z: z,
            match_z: 0.0,
            decay: None,
            momentum: None,
            placement_matches: 0,
            on_disconnect: DisconnectPolicy::Rate,
            opponents_per_game: OpponentsPerRatedGame::All,
            leaderboard: LeaderboardAccess::Private,
            categories: None,
            prediction: PerformanceDistribution::Logistic,
        }
    }
}

/// Rating systems and their constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RatingSystem {
    /// Elo. In teams, the mean change over all opponents.
    Elo {
        /// Initial rating.
        initial: f64,
        /// Maximum change per game.
        k: f64,
        /// Rating difference at odds of ten to one.
        scale: f64,
    },
    /// Glicko.
    Glicko {
        /// Initial rating.
        initial: f64,
        /// Initial and maximum deviation.
        deviation: f64,
        /// Minimum deviation, so that a rating can always change.
        min_deviation: f64,
        /// Deviation growth of inactive players, points per square root of a period.
        c: f64,
        /// Rating period, milliseconds.
        period_ms: u64,
    },
    /// Glicko-2 (Glickman 2013).
    Glicko2 {
        /// Initial rating.
        initial: f64,
        /// Initial deviation.
        deviation: f64,
        /// Initial volatility.
        volatility: f64,
        /// Constraint on the change of volatility.
        tau: f64,
        /// Rating period, milliseconds.
        period_ms: u64,
    },
    /// TrueSkill (Herbrich et al. 2006).
    TrueSkill {
        /// Initial rating.
        mu: f64,
        /// Initial deviation.
        sigma: f64,
        /// Performance deviation: the amount of luck in one game.
        beta: f64,
        /// Deviation added before each game.
        tau: f64,
        /// Draw rate of games between equal players, percent.
        draw_percent: f64,
    },
    /// Plackett-Luce after Weng and Lin (2011), as in OpenSkill.
    PlackettLuce {
        /// Initial rating.
        mu: f64,
        /// Initial deviation.
        sigma: f64,
        /// Performance deviation: the amount of luck in one game.
        beta: f64,
        /// Minimum factor by which a deviation shrinks.
        kappa: f64,
        /// Deviation added before each game.
        tau: f64,
    },
}

/// Growth of the deviation of inactive players.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InactiveDeviationGrowth {
    /// Period, milliseconds.
    pub every_ms: u64,
    /// Added to the deviation each period.
    pub deviation_per_period: f64,
    /// Upper bound of the deviation.
    pub max_deviation: f64,
    /// Periods that count.
    pub periods: DecayPeriodFilter,
}

/// Periods that increase the deviation of inactive players.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecayPeriodFilter {
    /// All periods since the player's last match.
    All,
    /// Only periods, by the clock, in which a rated match of the set ended after the player's last match. Without
    /// matches no deviation grows.
    Played,
}

/// Multiplier on the rating change of a player who extends a streak of at least `after` wins or losses. The match that
/// ends a streak counts once. Deviations do not change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreakChangeFactor {
    /// Matches in a row; at least 1.
    pub after: u32,
    /// Multiplier of the change. Above 1 it amplifies streaks, below 1 it damps them.
    pub factor: f64,
}

/// Effect on ratings of a match that a player left early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisconnectPolicy {
    /// The result counts as usual.
    Rate,
    /// No rating changes.
    Ignore,
}

/// Number of opponents in one rated game of a player, in systems for two players.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpponentsPerRatedGame {
    /// All opponents of the match: results against them are averaged. Glicko-2 counts each other side as one opponent.
    All,
    /// Each opponent is a game of its own: the original formulas, for tournaments. Ratings in large teams change a
    /// lot.
    Each,
}

impl RatingSystem {
    /// Rating of a new player.
    pub fn initial_rating(&self) -> f64 {
        match *self {
            RatingSystem::Elo { initial, .. }
            | RatingSystem::Glicko { initial, .. }
            | RatingSystem::Glicko2 { initial, .. } => initial,
            RatingSystem::TrueSkill { mu, .. } | RatingSystem::PlackettLuce { mu, .. } => mu,
        }
    }

    /// Performance deviation in rating points; `None` for systems without one.
    pub fn beta(&self) -> Option<f64> {
        match *self {
            RatingSystem::TrueSkill { beta, .. } | RatingSystem::PlackettLuce { beta, .. } => Some(beta),
            RatingSystem::Elo { .. } | RatingSystem::Glicko { .. } | RatingSystem::Glicko2 { .. } => None,
        }
    }

    /// Name in XML.
    pub fn as_str(&self) -> &'static str {
        match self {
            RatingSystem::Elo { .. } => "elo",
            RatingSystem::Glicko { .. } => "glicko",
            RatingSystem::Glicko2 { .. } => "glicko2",
            RatingSystem::TrueSkill { .. } => "trueskill",
            RatingSystem::PlackettLuce { .. } => "plackett_luce",
        }
    }
}
