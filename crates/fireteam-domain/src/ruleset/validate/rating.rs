//! `<Rating>`: rating system, its constants and the leaderboard order.

use crate::limit::RULESET_DURATION_MS_MAX;
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::number_bounds::NumberBounds;
use crate::ruleset::rating::{
    DecayPeriodFilter, DisconnectPolicy, InactivityDecay, LeaderboardAccess, RatedGameUnit, RatingSpec, RatingSystem,
    StreakMomentum,
};
use crate::ruleset::raw::{Diagnostics, RawElement};
use crate::ruleset::validate::attributes::ATTRIBUTE_NUMBER_BOUNDS;

/// Constants that may be 0.
const NON_NEGATIVE_NUMBER: NumberBounds = NumberBounds::new_inclusive(0.0, 1e6);

/// Deviations that a leaderboard may deduct.
const LEADERBOARD_Z_BOUNDS: NumberBounds = NumberBounds::new_inclusive(0.0, 10.0);

/// Maximum number of placement matches.
const PLACEMENT_MATCHES_MAX: u64 = 1_000;

/// Maximum streak length for momentum.
const MOMENTUM_STREAK_MAX: u64 = 1_000;

/// Momentum factors. Above 10 a rating would measure streaks more than skill.
const MOMENTUM_FACTOR_BOUNDS: NumberBounds = NumberBounds::new_inclusive(0.1, 10.0);

/// Default rating period of Glicko-2: one day, milliseconds. Matches change ratings at once; a period only determines
/// how fast the deviation of inactive players grows.
const DEFAULT_GLICKO2_PERIOD_MS: u64 = 24 * 60 * 60 * 1000;

/// Default rating period of Glicko: one week, milliseconds. With a daily period its usual c would reset players who
/// return after a month (docs/RATINGS.md).
const DEFAULT_GLICKO_PERIOD_MS: u64 = 7 * DEFAULT_GLICKO2_PERIOD_MS;

/// Reads `<Rating>`: its settings, and the name of its pool if it shares its ratings. Defaults are those of each
/// system's authors unless stated otherwise; z is 1, as in comprl.
pub(super) fn read_rating(element: &RawElement, diagnostics: &Diagnostics) -> (RatingSpec, Option<Box<str>>) {
    #[derive(Clone, Copy)]
    enum RatingSystemName {
        Elo,
        Glicko,
        Glicko2,
        TrueSkill,
        PlackettLuce,
    }
    let keywords = [
        ("elo", RatingSystemName::Elo),
        ("glicko", RatingSystemName::Glicko),
        ("glicko2", RatingSystemName::Glicko2),
        ("trueskill", RatingSystemName::TrueSkill),
        ("plackett_luce", RatingSystemName::PlackettLuce),
    ];
    let mut reader = ElementReader::new(element, diagnostics);
    let Some(system_name) = reader.required_keyword("System", &keywords) else {
        // The accepted attributes depend on the system, so nothing else can be checked without it.
        if reader.attribute("System").is_none() {
            let fix = format!("add System=\"…\" with one of {}", keywords.map(|(keyword, _)| keyword).join(", "));
            reader.report(element.name_span, "<Rating> has no `System`", fix);
        }
        let placeholder = RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 };
        return (RatingSpec::with_defaults(placeholder), None);
    };
    let system = match system_name {
        RatingSystemName::Elo => read_elo(&mut reader),
        RatingSystemName::Glicko => read_glicko(&mut reader),
        RatingSystemName::Glicko2 => read_glicko2(&mut reader),
        RatingSystemName::TrueSkill => read_trueskill(&mut reader),
        RatingSystemName::PlackettLuce => read_plackett_luce(&mut reader),
    };
    let (z, decay) = match system_name {
        RatingSystemName::Elo => (0.0, None),
        RatingSystemName::Glicko
        | RatingSystemName::Glicko2
        | RatingSystemName::TrueSkill
        | RatingSystemName::PlackettLuce => (
            reader.number_or("Z", LEADERBOARD_Z_BOUNDS, 1.0),
            reader.single_child("Decay").map(|element| read_inactivity_decay(element, diagnostics)),
        ),
    };
    let momentum = reader.single_child("Momentum").map(|element| read_streak_momentum(element, diagnostics));
    let placement_matches = reader.integer_or("PlacementMatches", 0, PLACEMENT_MATCHES_MAX, 0) as u32;
    let disconnect_policies = [("rate", DisconnectPolicy::Rate), ("ignore", DisconnectPolicy::Ignore)];
    let on_disconnect = reader.optional_keyword("OnDisconnect", &disconnect_policies).unwrap_or(DisconnectPolicy::Rate);
    let games_per = match system_name {
        RatingSystemName::Elo | RatingSystemName::Glicko | RatingSystemName::Glicko2 => reader
            .optional_keyword("GamesPer", &[("match", RatedGameUnit::Match), ("opponent", RatedGameUnit::Opponent)])
            .unwrap_or(RatedGameUnit::Match),
        RatingSystemName::TrueSkill | RatingSystemName::PlackettLuce => RatedGameUnit::Match,
    };
    let access = [("private", LeaderboardAccess::Private), ("public", LeaderboardAccess::Public)];
    let leaderboard = reader.optional_keyword("Leaderboard", &access).unwrap_or_default();
    let pool = reader.optional_identifier("Pool").map(|name| name.value.clone());
    reader.report_unread();
    (RatingSpec { system, z, decay, momentum, placement_matches, on_disconnect, games_per, leaderboard }, pool)
}

/// K defaults to 16, as in the thesis.
fn read_elo(reader: &mut ElementReader<'_>) -> RatingSystem {
    RatingSystem::Elo {
        initial: reader.number_or("Initial", ATTRIBUTE_NUMBER_BOUNDS, 1500.0),
        k: reader.number_or("K", NumberBounds::POSITIVE, 16.0),
        scale: reader.number_or("Scale", NumberBounds::POSITIVE, 400.0),
    }
}

/// c = 63.2 grows a deviation from 50 to 350 in 30 periods: Glickman's example.
fn read_glicko(reader: &mut ElementReader<'_>) -> RatingSystem {
    RatingSystem::Glicko {
        initial: reader.number_or("Initial", ATTRIBUTE_NUMBER_BOUNDS, 1500.0),
        deviation: reader.number_or("Deviation", NumberBounds::POSITIVE, 350.0),
        min_deviation: reader.number_or("MinDeviation", NON_NEGATIVE_NUMBER, 30.0),
        c: reader.number_or("C", NON_NEGATIVE_NUMBER, 63.2),
        period_ms: reader.integer_or("PeriodMs", 1, RULESET_DURATION_MS_MAX, DEFAULT_GLICKO_PERIOD_MS),
    }
}

/// Glickman (2013) recommends tau between 0.3 and 1.2.
fn read_glicko2(reader: &mut ElementReader<'_>) -> RatingSystem {
    RatingSystem::Glicko2 {
        initial: reader.number_or("Initial", ATTRIBUTE_NUMBER_BOUNDS, 1500.0),
        deviation: reader.number_or("Deviation", NumberBounds::POSITIVE, 350.0),
        volatility: reader.number_or("Volatility", NumberBounds::POSITIVE, 0.06),
        tau: reader.number_or("Tau", NumberBounds::POSITIVE, 0.5),
        period_ms: reader.integer_or("PeriodMs", 1, RULESET_DURATION_MS_MAX, DEFAULT_GLICKO2_PERIOD_MS),
    }
}

/// The paper has beta = sigma / 2. A larger beta predicts better on all data sets tried (docs/RATINGS.md).
fn read_trueskill(reader: &mut ElementReader<'_>) -> RatingSystem {
    RatingSystem::TrueSkill {
        mu: reader.number_or("Mu", ATTRIBUTE_NUMBER_BOUNDS, 25.0),
        sigma: reader.number_or("Sigma", NumberBounds::POSITIVE, 25.0 / 3.0),
        beta: reader.number_or("Beta", NumberBounds::POSITIVE, 10.0),
        tau: reader.number_or("Tau", NON_NEGATIVE_NUMBER, 25.0 / 300.0),
        draw_percent: reader.number_or("DrawPercent", NumberBounds::new_inclusive(0.0, 99.0), 5.0),
    }
}

/// Defaults of OpenSkill.
fn read_plackett_luce(reader: &mut ElementReader<'_>) -> RatingSystem {
    RatingSystem::PlackettLuce {
        mu: reader.number_or("Mu", ATTRIBUTE_NUMBER_BOUNDS, 25.0),
        sigma: reader.number_or("Sigma", NumberBounds::POSITIVE, 25.0 / 3.0),
        beta: reader.number_or("Beta", NumberBounds::POSITIVE, 25.0 / 6.0),
        kappa: reader.number_or("Kappa", NumberBounds::POSITIVE, 1e-4),
        tau: reader.number_or("Tau", NON_NEGATIVE_NUMBER, 25.0 / 300.0),
    }
}

fn read_inactivity_decay(element: &RawElement, diagnostics: &Diagnostics) -> InactivityDecay {
    let mut reader = ElementReader::new(element, diagnostics);
    let every_ms = reader.required_integer("EveryMs", 1_000, RULESET_DURATION_MS_MAX).unwrap_or(1_000);
    let deviation = reader.required_number("Deviation", NumberBounds::POSITIVE).unwrap_or(0.0);
    let max_deviation = reader.required_number("MaxDeviation", NumberBounds::POSITIVE).unwrap_or(0.0);
    let keywords = [("all", DecayPeriodFilter::All), ("played", DecayPeriodFilter::Played)];
    let periods = reader.optional_keyword("Periods", &keywords).unwrap_or(DecayPeriodFilter::All);
    reader.report_unread();
    InactivityDecay { every_ms, deviation, max_deviation, periods }
}

fn read_streak_momentum(element: &RawElement, diagnostics: &Diagnostics) -> StreakMomentum {
    let mut reader = ElementReader::new(element, diagnostics);
    let after = reader.required_integer("After", 1, MOMENTUM_STREAK_MAX).unwrap_or(1) as u32;
    let factor = reader.required_number("Factor", MOMENTUM_FACTOR_BOUNDS).unwrap_or(1.0);
    reader.report_unread();
    StreakMomentum { after, factor }
}
