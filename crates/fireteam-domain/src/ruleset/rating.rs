//! Which rating system a matchmaking set uses, as a ruleset says it (B-32: one system a set, never two scales mixed).

/// A rating system, its constants, and how its leaderboard is ordered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatingSpec {
    /// The system.
    pub system: RatingSystem,
    /// The leaderboard is ordered by `rating - z * deviation` (S2-3, B-26); 0 for systems without a deviation.
    pub z: f64,
    /// How idle players become less certain; `None` when they do not (S2-14).
    pub decay: Option<InactivityDecay>,
    /// What a run of wins or losses does to the next change; `None` for nothing (S4-16).
    pub momentum: Option<StreakMomentum>,
    /// The first matches of a user, during which the rating is shown as provisional; 0 for none.
    pub placement_matches: u32,
    /// What a match changes that somebody left before its end (S2-13).
    pub on_disconnect: DisconnectPolicy,
    /// What counts as one game where there are several opponents; only Elo, Glicko and Glicko-2 look at it.
    pub game_per: RatedGameUnit,
}

impl RatingSpec {
    /// A system by itself: nobody decays, no momentum, no placement, every match counts. The leaderboard deducts one deviation
    /// (B-26), where there is one.
    pub fn with_defaults(system: RatingSystem) -> Self {
        let z = if matches!(system, RatingSystem::Elo { .. }) { 0.0 } else { 1.0 };
        Self {
            system,
            z,
            decay: None,
            momentum: None,
            placement_matches: 0,
            on_disconnect: DisconnectPolicy::Rate,
            game_per: RatedGameUnit::Match,
        }
    }
}

/// The systems, with what each lets a designer choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RatingSystem {
    /// Elo (S1-61); in teams, the mean change over all opponents (S4-14).
    Elo {
        /// What a newcomer has.
        initial: f64,
        /// The most that one game can move.
        k: f64,
        /// The difference that makes the odds ten to one.
        scale: f64,
    },
    /// Glicko (S1-62).
    Glicko {
        /// What a newcomer has.
        initial: f64,
        /// A newcomer's deviation, and the greatest there is.
        deviation: f64,
        /// The least deviation, so that a rating never freezes.
        min_deviation: f64,
        /// How fast idle players become uncertain, points per square root of a period (S1-63).
        c: f64,
        /// One rating period, milliseconds.
        period_ms: u64,
    },
    /// Glicko-2 (Glickman 2013).
    Glicko2 {
        /// What a newcomer has.
        initial: f64,
        /// A newcomer's deviation.
        deviation: f64,
        /// A newcomer's volatility.
        volatility: f64,
        /// How much volatility may change.
        tau: f64,
        /// One rating period, milliseconds.
        period_ms: u64,
    },
    /// TrueSkill (Herbrich et al. 2006).
    TrueSkill {
        /// What a newcomer has.
        mu: f64,
        /// A newcomer's deviation.
        sigma: f64,
        /// How much luck there is in one game.
        beta: f64,
        /// Added to every deviation before a game.
        tau: f64,
        /// Draws among games of equals, percent.
        draw_percent: f64,
    },
    /// Plackett-Luce after Weng and Lin (2011), as OpenSkill has it (S2-1).
    PlackettLuce {
        /// What a newcomer has.
        mu: f64,
        /// A newcomer's deviation.
        sigma: f64,
        /// How much luck there is in one game (D-10).
        beta: f64,
        /// The least factor by which a deviation shrinks.
        kappa: f64,
        /// Added to every deviation before a game.
        tau: f64,
    },
}

/// How the deviation of idle players grows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InactivityDecay {
    /// How often, milliseconds.
    pub every_ms: u64,
    /// Added to the deviation each time.
    pub deviation: f64,
    /// Never beyond this.
    pub max_deviation: f64,
    /// Which periods count.
    pub periods: DecayPeriodFilter,
}

/// Which periods make idle players less certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecayPeriodFilter {
    /// All that have gone by since the player's last match.
    All,
    /// Those of the clock in which any match of the set ended that changed ratings, after that of the player's last: nobody forgets
    /// anything while nobody plays (S2-14).
    Played,
}

/// What a streak does: whoever has won, or lost, as many matches in a row as `after`, and does so again, has the change of the
/// rating multiplied (S4-16). What ends a streak counts once, as ever; deviations are not touched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreakMomentum {
    /// Matches in a row; 1 or more.
    pub after: u32,
    /// What the change is multiplied by: above 1 streaks carry further, below 1 they are held back.
    pub factor: f64,
}

/// What a match changes that somebody left before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisconnectPolicy {
    /// As any other: the result stands.
    Rate,
    /// Nobody's rating (S2-13).
    Ignore,
}

/// What counts as one game for a player with several opponents, to systems that know only two players.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RatedGameUnit {
    /// The match: what it says of each opponent is averaged (S4-14, B-18). Glicko-2 counts each other side as one opponent.
    Match,
    /// Every opponent, as if each had been met alone: S1-62 to the letter, and tournaments. Large teams move far.
    Opponent,
}

impl RatingSystem {
    /// The rating that a newcomer has.
    pub fn initial_rating(&self) -> f64 {
        match *self {
            RatingSystem::Elo { initial, .. }
            | RatingSystem::Glicko { initial, .. }
            | RatingSystem::Glicko2 { initial, .. } => initial,
            RatingSystem::TrueSkill { mu, .. } | RatingSystem::PlackettLuce { mu, .. } => mu,
        }
    }

    /// How much luck there is in one game, in rating points, where the system says.
    pub fn beta(&self) -> Option<f64> {
        match *self {
            RatingSystem::TrueSkill { beta, .. } | RatingSystem::PlackettLuce { beta, .. } => Some(beta),
            RatingSystem::Elo { .. } | RatingSystem::Glicko { .. } | RatingSystem::Glicko2 { .. } => None,
        }
    }

    /// The word in XML.
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
