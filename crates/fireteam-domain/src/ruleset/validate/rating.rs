//! `<Rating>`: one system, its constants, and the order of its leaderboard.

use crate::limit::RULESET_DURATION_MS_MAX;
use crate::ruleset::element_reader::{ElementReader, NumberBounds};
use crate::ruleset::rating::{
    DecayPeriodFilter, DisconnectPolicy, InactivityDecay, RatedGameUnit, RatingSpec, RatingSystem, StreakMomentum,
};
use crate::ruleset::raw::{Diagnostics, RawElement};
use crate::ruleset::validate::attributes::ATTRIBUTE_NUMBER_BOUNDS;

/// Numbers that must be more than nothing: factors, deviations, scales.
const POSITIVE_NUMBER: NumberBounds = NumberBounds::greater_than(0.0, 1e6);

/// Numbers that may be nothing.
const NON_NEGATIVE_NUMBER: NumberBounds = NumberBounds::inclusive(0.0, 1e6);

/// How many deviations a leaderboard may deduct.
const LEADERBOARD_Z_BOUNDS: NumberBounds = NumberBounds::inclusive(0.0, 10.0);

/// The most matches that a placement may take.
const PLACEMENT_MATCHES_MAX: u64 = 1_000;

/// The longest streak that momentum may wait for.
const MOMENTUM_STREAK_MAX: u64 = 1_000;

/// What momentum may multiply a change by. Beyond ten a rating says more about streaks than about skill.
const MOMENTUM_FACTOR_BOUNDS: NumberBounds = NumberBounds::inclusive(0.1, 10.0);

/// How long a period of Glicko-2 is where a file does not say: one day, milliseconds. Matches change ratings at once; a period only
/// says how fast idle players become uncertain.
const DEFAULT_GLICKO2_PERIOD_MS: u64 = 24 * 60 * 60 * 1000;

/// The same of Glicko: by the day, its usual c would forget whoever comes back after a month (docs/RATINGS.md).
const DEFAULT_GLICKO_PERIOD_MS: u64 = 7 * DEFAULT_GLICKO2_PERIOD_MS;

/// Reads `<Rating>`. Defaults are those of each system's authors but where it says otherwise; z is comprl's 1 (B-26).
pub(super) fn read_rating(element: &RawElement, mistakes: &Diagnostics) -> RatingSpec {
    #[derive(Clone, Copy)]
    enum RatingSystemName {
        Elo,
        Glicko,
        Glicko2,
        TrueSkill,
        PlackettLuce,
    }
    let words = [
        ("elo", RatingSystemName::Elo),
        ("glicko", RatingSystemName::Glicko),
        ("glicko2", RatingSystemName::Glicko2),
        ("trueskill", RatingSystemName::TrueSkill),
        ("plackett_luce", RatingSystemName::PlackettLuce),
    ];
    let mut at = ElementReader::new(element, mistakes);
    let Some(chosen) = at.required_keyword("System", &words) else {
        // Which attributes belong here depends on the system: without it nothing more can be said.
        if at.attribute("System").is_none() {
            let right = format!("add System=\"…\" with one of {}", words.map(|(word, _)| word).join(", "));
            at.report(element.name_span, "<Rating> lacks `System`", right);
        }
        return RatingSpec::with_defaults(RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 });
    };
    let system = match chosen {
        RatingSystemName::Elo => read_elo(&mut at),
        RatingSystemName::Glicko => read_glicko(&mut at),
        RatingSystemName::Glicko2 => read_glicko2(&mut at),
        RatingSystemName::TrueSkill => read_trueskill(&mut at),
        RatingSystemName::PlackettLuce => read_plackett_luce(&mut at),
    };
    let (z, decay) = match chosen {
        RatingSystemName::Elo => (0.0, None),
        RatingSystemName::Glicko
        | RatingSystemName::Glicko2
        | RatingSystemName::TrueSkill
        | RatingSystemName::PlackettLuce => (
            at.number_or("Z", LEADERBOARD_Z_BOUNDS, 1.0),
            at.single_child("Decay").map(|element| read_inactivity_decay(element, mistakes)),
        ),
    };
    let momentum = at.single_child("Momentum").map(|element| read_streak_momentum(element, mistakes));
    let placement_matches = at.integer_or("PlacementMatches", 0, PLACEMENT_MATCHES_MAX, 0) as u32;
    let ways = [("rate", DisconnectPolicy::Rate), ("ignore", DisconnectPolicy::Ignore)];
    let on_disconnect = at.optional_keyword("OnDisconnect", &ways).unwrap_or(DisconnectPolicy::Rate);
    let game_per = match chosen {
        RatingSystemName::Elo | RatingSystemName::Glicko | RatingSystemName::Glicko2 => at
            .optional_keyword("GamePer", &[("match", RatedGameUnit::Match), ("opponent", RatedGameUnit::Opponent)])
            .unwrap_or(RatedGameUnit::Match),
        RatingSystemName::TrueSkill | RatingSystemName::PlackettLuce => RatedGameUnit::Match,
    };
    at.report_unread();
    RatingSpec { system, z, decay, momentum, placement_matches, on_disconnect, game_per }
}

/// K = 16, as the thesis's tables have it (S1-61).
fn read_elo(at: &mut ElementReader<'_>) -> RatingSystem {
    RatingSystem::Elo {
        initial: at.number_or("Initial", ATTRIBUTE_NUMBER_BOUNDS, 1500.0),
        k: at.number_or("K", POSITIVE_NUMBER, 16.0),
        scale: at.number_or("Scale", POSITIVE_NUMBER, 400.0),
    }
}

/// c = 63.2 takes a deviation from 50 to 350 in 30 periods: Glickman's own example (S1-63).
fn read_glicko(at: &mut ElementReader<'_>) -> RatingSystem {
    RatingSystem::Glicko {
        initial: at.number_or("Initial", ATTRIBUTE_NUMBER_BOUNDS, 1500.0),
        deviation: at.number_or("Deviation", POSITIVE_NUMBER, 350.0),
        min_deviation: at.number_or("MinDeviation", NON_NEGATIVE_NUMBER, 30.0),
        c: at.number_or("C", NON_NEGATIVE_NUMBER, 63.2),
        period_ms: at.integer_or("PeriodMs", 1, RULESET_DURATION_MS_MAX, DEFAULT_GLICKO_PERIOD_MS),
    }
}

/// Tau between 0.3 and 1.2 is what Glickman (2013) calls reasonable.
fn read_glicko2(at: &mut ElementReader<'_>) -> RatingSystem {
    RatingSystem::Glicko2 {
        initial: at.number_or("Initial", ATTRIBUTE_NUMBER_BOUNDS, 1500.0),
        deviation: at.number_or("Deviation", POSITIVE_NUMBER, 350.0),
        volatility: at.number_or("Volatility", POSITIVE_NUMBER, 0.06),
        tau: at.number_or("Tau", POSITIVE_NUMBER, 0.5),
        period_ms: at.integer_or("PeriodMs", 1, RULESET_DURATION_MS_MAX, DEFAULT_GLICKO2_PERIOD_MS),
    }
}

/// The paper has beta = sigma / 2. More luck in a game predicts better on every set of matches that was tried (docs/RATINGS.md).
fn read_trueskill(at: &mut ElementReader<'_>) -> RatingSystem {
    RatingSystem::TrueSkill {
        mu: at.number_or("Mu", ATTRIBUTE_NUMBER_BOUNDS, 25.0),
        sigma: at.number_or("Sigma", POSITIVE_NUMBER, 25.0 / 3.0),
        beta: at.number_or("Beta", POSITIVE_NUMBER, 10.0),
        tau: at.number_or("Tau", NON_NEGATIVE_NUMBER, 25.0 / 300.0),
        draw_percent: at.number_or("DrawPercent", NumberBounds::inclusive(0.0, 99.0), 5.0),
    }
}

/// The defaults of OpenSkill (D-10).
fn read_plackett_luce(at: &mut ElementReader<'_>) -> RatingSystem {
    RatingSystem::PlackettLuce {
        mu: at.number_or("Mu", ATTRIBUTE_NUMBER_BOUNDS, 25.0),
        sigma: at.number_or("Sigma", POSITIVE_NUMBER, 25.0 / 3.0),
        beta: at.number_or("Beta", POSITIVE_NUMBER, 25.0 / 6.0),
        kappa: at.number_or("Kappa", POSITIVE_NUMBER, 1e-4),
        tau: at.number_or("Tau", NON_NEGATIVE_NUMBER, 25.0 / 300.0),
    }
}

fn read_inactivity_decay(element: &RawElement, mistakes: &Diagnostics) -> InactivityDecay {
    let mut at = ElementReader::new(element, mistakes);
    let every_ms = at.required_integer("EveryMs", 1_000, RULESET_DURATION_MS_MAX).unwrap_or(1_000);
    let deviation = at.required_number("Deviation", POSITIVE_NUMBER).unwrap_or(0.0);
    let max_deviation = at.required_number("MaxDeviation", POSITIVE_NUMBER).unwrap_or(0.0);
    let words = [("all", DecayPeriodFilter::All), ("played", DecayPeriodFilter::Played)];
    let periods = at.optional_keyword("Periods", &words).unwrap_or(DecayPeriodFilter::All);
    at.report_unread();
    InactivityDecay { every_ms, deviation, max_deviation, periods }
}

fn read_streak_momentum(element: &RawElement, mistakes: &Diagnostics) -> StreakMomentum {
    let mut at = ElementReader::new(element, mistakes);
    let after = at.required_integer("After", 1, MOMENTUM_STREAK_MAX).unwrap_or(1) as u32;
    let factor = at.required_number("Factor", MOMENTUM_FACTOR_BOUNDS).unwrap_or(1.0);
    at.report_unread();
    StreakMomentum { after, factor }
}
