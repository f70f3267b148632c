//! `<Rating>`: rating system, its constants and the leaderboard order.

use crate::limit::{RATING_CATEGORIES_MAX, RATING_PERIOD_MS_MAX, RULESET_DURATION_MS_MAX};
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::number_bounds::NumberBounds;
use crate::ruleset::rating::defaults::{
    FORMER_GLICKO_PERIOD_MS, FORMER_PLACKETT_LUCE_BETA, FORMER_TAU, FORMER_TRUESKILL_BETA, GLICKO_PERIOD_MS, SIGMA,
    SystemByDefaults, default_plackett_luce_beta, default_tau, default_trueskill_beta,
};
use crate::ruleset::rating::{
    DecayPeriodFilter, DisconnectPolicy, EqualWidthRatingCategories, InactiveDeviationGrowth, LeaderboardAccess,
    OpponentsPerRatedGame, PerformanceDistribution, RatingSpec, RatingSystem, StreakChangeFactor,
};
use crate::ruleset::raw::{Diagnostics, RawElement};
use crate::ruleset::validate::attributes::ATTRIBUTE_NUMBER_BOUNDS;

/// Constants that may be 0.
const NON_NEGATIVE_NUMBER: NumberBounds = NumberBounds::new_inclusive(0.0, 1e6);

/// Deviations that a leaderboard, or the matching of players, may deduct.
const DEDUCTED_DEVIATIONS_BOUNDS: NumberBounds = NumberBounds::new_inclusive(0.0, 10.0);

/// Maximum number of placement matches.
const PLACEMENT_MATCHES_MAX: u64 = 1_000;

/// Maximum streak length for momentum.
const MOMENTUM_STREAK_MAX: u64 = 1_000;

/// Momentum factors. Above 10 a rating would measure streaks more than skill.
const MOMENTUM_FACTOR_BOUNDS: NumberBounds = NumberBounds::new_inclusive(0.1, 10.0);

/// Default rating period of Glicko-2: one day, milliseconds. Matches change ratings at once; a period only determines
/// how fast the deviation of inactive players grows.
const DEFAULT_GLICKO2_PERIOD_MS: u64 = 24 * 60 * 60 * 1000;

/// `<Rating>` as a ruleset states it.
#[derive(Clone, Debug)]
pub(super) struct RatingSettings {
    /// Settings with the current default constants.
    pub(super) current: RatingSpec,
    /// Settings with the former default constants; `None` if they are the same.
    pub(super) former: Option<RatingSpec>,
    /// Name of the pool, if the set shares its ratings.
    pub(super) pool: Option<Box<str>>,
}

/// Value of `System`.
#[derive(Clone, Copy)]
enum RatingSystemName {
    Elo,
    Glicko,
    Glicko2,
    TrueSkill,
    PlackettLuce,
}

const SYSTEM_KEYWORDS: [(&str, RatingSystemName); 5] = [
    ("elo", RatingSystemName::Elo),
    ("glicko", RatingSystemName::Glicko),
    ("glicko2", RatingSystemName::Glicko2),
    ("trueskill", RatingSystemName::TrueSkill),
    ("plackett_luce", RatingSystemName::PlackettLuce),
];

/// Reads `<Rating>`. Defaults are those of each system's authors unless stated otherwise; z is 1, as in comprl.
pub(super) fn read_rating(element: &RawElement, diagnostics: &Diagnostics) -> RatingSettings {
    let mut reader = ElementReader::new(element, diagnostics);
    let Some(system_name) = reader.required_keyword("System", &SYSTEM_KEYWORDS) else {
        // The accepted attributes depend on the system, so nothing else can be checked without it.
        if reader.attribute("System").is_none() {
            let fix = format!("add System=\"…\" with one of {}", SYSTEM_KEYWORDS.map(|(name, _)| name).join(", "));
            reader.report_at(element.name_span, "<Rating> has no `System`", fix);
        }
        let placeholder = RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 };
        return RatingSettings { current: RatingSpec::with_defaults(placeholder), former: None, pool: None };
    };
    let system = match system_name {
        RatingSystemName::Elo => SystemByDefaults::new_same_for_both(read_elo(&mut reader)),
        RatingSystemName::Glicko => read_glicko(&mut reader),
        RatingSystemName::Glicko2 => SystemByDefaults::new_same_for_both(read_glicko2(&mut reader)),
        RatingSystemName::TrueSkill => read_trueskill(&mut reader),
        RatingSystemName::PlackettLuce => read_plackett_luce(&mut reader),
    };
    let (z, match_z, decay) = match system_name {
        RatingSystemName::Elo => (0.0, 0.0, None),
        RatingSystemName::Glicko
        | RatingSystemName::Glicko2
        | RatingSystemName::TrueSkill
        | RatingSystemName::PlackettLuce => (
            reader.number_or("Z", DEDUCTED_DEVIATIONS_BOUNDS, 1.0),
            reader.number_or("MatchZ", DEDUCTED_DEVIATIONS_BOUNDS, 0.0),
            reader.single_child("Decay").map(|element| read_inactive_deviation_growth(element, diagnostics)),
        ),
    };
    let momentum = reader.single_child("Momentum").map(|element| read_streak_momentum(element, diagnostics));
    let placement_matches = reader.integer_or("PlacementMatches", 0, PLACEMENT_MATCHES_MAX, 0) as u32;
    let disconnect_policies = [("rate", DisconnectPolicy::Rate), ("ignore", DisconnectPolicy::Ignore)];
    let on_disconnect = reader.optional_keyword("OnDisconnect", &disconnect_policies).unwrap_or(DisconnectPolicy::Rate);
    let games_per = match system_name {
        RatingSystemName::Elo | RatingSystemName::Glicko | RatingSystemName::Glicko2 => reader
            .optional_keyword(
                "GamesPer",
                &[("match", OpponentsPerRatedGame::All), ("opponent", OpponentsPerRatedGame::Each)],
            )
            .unwrap_or(OpponentsPerRatedGame::All),
        RatingSystemName::TrueSkill | RatingSystemName::PlackettLuce => OpponentsPerRatedGame::All,
    };
    let access = [("private", LeaderboardAccess::Private), ("public", LeaderboardAccess::Public)];
    let leaderboard = reader.optional_keyword("Leaderboard", &access).unwrap_or_default();
    let forms = [("logistic", PerformanceDistribution::Logistic), ("probit", PerformanceDistribution::Probit)];
    let prediction = match system_name {
        RatingSystemName::PlackettLuce => reader.optional_keyword("Prediction", &forms).unwrap_or_default(),
        _ => PerformanceDistribution::default(),
    };
    let categories = reader.single_child("Categories").map(|element| read_equal_width_categories(element, diagnostics));
    let pool = reader.optional_identifier("Pool").map(|name| name.value.clone());
    reader.report_unread_and_missing();
    let SystemByDefaults { current: system, former } = system;
    let current = RatingSpec {
        system,
        leaderboard_z: z,
        match_z,
        decay,
        momentum,
        placement_matches,
        on_disconnect,
        opponents_per_game: games_per,
        leaderboard,
        categories,
        prediction,
    };
    RatingSettings { current, former: (former != system).then_some(RatingSpec { system: former, ..current }), pool }
}

/// Reads `<Categories>`.
fn read_equal_width_categories(element: &RawElement, diagnostics: &Diagnostics) -> EqualWidthRatingCategories {
    let mut reader = ElementReader::new(element, diagnostics);
    let categories = EqualWidthRatingCategories {
        count: reader.required_integer("Count", 2, RATING_CATEGORIES_MAX).unwrap_or(2) as u16,
        width: reader.required_number("Width", NumberBounds::POSITIVE).unwrap_or(1.0),
        from: reader.number_or("From", ATTRIBUTE_NUMBER_BOUNDS, 0.0),
    };
    reader.report_unread_and_missing();
    categories
}

/// K defaults to 16, as in the thesis.
fn read_elo(reader: &mut ElementReader<'_>) -> RatingSystem {
    RatingSystem::Elo {
        initial: reader.number_or("Initial", ATTRIBUTE_NUMBER_BOUNDS, 1500.0),
        k: reader.number_or("K", NumberBounds::POSITIVE, 16.0),
        scale: reader.number_or("Scale", NumberBounds::POSITIVE, 400.0),
    }
}

/// Constants of *The Glicko system*: with c = 63.2 a deviation grows from 50 to 350 in 30 periods of two months.
fn read_glicko(reader: &mut ElementReader<'_>) -> SystemByDefaults {
    let initial = reader.number_or("Initial", ATTRIBUTE_NUMBER_BOUNDS, 1500.0);
    let deviation = reader.number_or("Deviation", NumberBounds::POSITIVE, 350.0);
    let min_deviation = reader.number_or("MinDeviation", NON_NEGATIVE_NUMBER, 30.0);
    let c = reader.number_or("C", NON_NEGATIVE_NUMBER, 63.2);
    let stated_period_ms = reader.optional_integer("PeriodMs", 1, RATING_PERIOD_MS_MAX);
    let with_period = |default_ms| {
        let period_ms = stated_period_ms.unwrap_or(default_ms);
        RatingSystem::Glicko { initial, deviation, min_deviation, c, period_ms }
    };
    SystemByDefaults { current: with_period(GLICKO_PERIOD_MS), former: with_period(FORMER_GLICKO_PERIOD_MS) }
}

/// Glickman (2013) recommends tau between 0.3 and 1.2.
fn read_glicko2(reader: &mut ElementReader<'_>) -> RatingSystem {
    RatingSystem::Glicko2 {
        initial: reader.number_or("Initial", ATTRIBUTE_NUMBER_BOUNDS, 1500.0),
        deviation: reader.number_or("Deviation", NumberBounds::POSITIVE, 350.0),
        volatility: reader.number_or("Volatility", NumberBounds::POSITIVE, 0.06),
        tau: reader.number_or("Tau", NumberBounds::POSITIVE, 0.5),
        period_ms: reader.integer_or("PeriodMs", 1, RATING_PERIOD_MS_MAX, DEFAULT_GLICKO2_PERIOD_MS),
    }
}

/// Herbrich, Minka and Graepel (2006): Tau is a hundredth of the initial deviation. They give no share of draws; most games
/// have few. Beta: see `default_trueskill_beta`.
fn read_trueskill(reader: &mut ElementReader<'_>) -> SystemByDefaults {
    let mu = reader.number_or("Mu", ATTRIBUTE_NUMBER_BOUNDS, 25.0);
    let sigma = reader.number_or("Sigma", NumberBounds::POSITIVE, SIGMA);
    let (stated_beta, stated_tau) = read_beta_and_tau(reader);
    let draw_percent = reader.number_or("DrawPercent", NumberBounds::new_inclusive(0.0, 99.0), 5.0);
    let with = |beta: f64, tau: f64| {
        let (beta, tau) = (stated_beta.unwrap_or(beta), stated_tau.unwrap_or(tau));
        RatingSystem::TrueSkill { mu, sigma, beta, tau, draw_percent }
    };
    let current = with(default_trueskill_beta(sigma), default_tau(sigma));
    SystemByDefaults { current, former: with(FORMER_TRUESKILL_BETA, FORMER_TAU) }
}

/// Defaults of OpenSkill, in proportion to the initial deviation.
fn read_plackett_luce(reader: &mut ElementReader<'_>) -> SystemByDefaults {
    let mu = reader.number_or("Mu", ATTRIBUTE_NUMBER_BOUNDS, 25.0);
    let sigma = reader.number_or("Sigma", NumberBounds::POSITIVE, SIGMA);
    let (stated_beta, stated_tau) = read_beta_and_tau(reader);
    let kappa = reader.number_or("Kappa", NumberBounds::POSITIVE, 1e-4);
    let with = |beta: f64, tau: f64| {
        let (beta, tau) = (stated_beta.unwrap_or(beta), stated_tau.unwrap_or(tau));
        RatingSystem::PlackettLuce { mu, sigma, beta, kappa, tau }
    };
    let current = with(default_plackett_luce_beta(sigma), default_tau(sigma));
    SystemByDefaults { current, former: with(FORMER_PLACKETT_LUCE_BETA, FORMER_TAU) }
}

/// `Beta` and `Tau`, if stated.
fn read_beta_and_tau(reader: &mut ElementReader<'_>) -> (Option<f64>, Option<f64>) {
    (reader.optional_number("Beta", NumberBounds::POSITIVE), reader.optional_number("Tau", NON_NEGATIVE_NUMBER))
}

fn read_inactive_deviation_growth(element: &RawElement, diagnostics: &Diagnostics) -> InactiveDeviationGrowth {
    let mut reader = ElementReader::new(element, diagnostics);
    let every_ms = reader.required_integer("EveryMs", 1_000, RULESET_DURATION_MS_MAX).unwrap_or(1_000);
    let deviation = reader.required_number("Deviation", NumberBounds::POSITIVE).unwrap_or(0.0);
    let max_deviation = reader.required_number("MaxDeviation", NumberBounds::POSITIVE).unwrap_or(0.0);
    let keywords = [("all", DecayPeriodFilter::All), ("played", DecayPeriodFilter::Played)];
    let periods = reader.optional_keyword("Periods", &keywords).unwrap_or(DecayPeriodFilter::All);
    reader.report_unread_and_missing();
    InactiveDeviationGrowth { every_ms, deviation_per_period: deviation, max_deviation, periods }
}

fn read_streak_momentum(element: &RawElement, diagnostics: &Diagnostics) -> StreakChangeFactor {
    let mut reader = ElementReader::new(element, diagnostics);
    let after = reader.required_integer("After", 1, MOMENTUM_STREAK_MAX).unwrap_or(1) as u32;
    let factor = reader.required_number("Factor", MOMENTUM_FACTOR_BOUNDS).unwrap_or(1.0);
    reader.report_unread_and_missing();
    StreakChangeFactor { after, factor }
}
