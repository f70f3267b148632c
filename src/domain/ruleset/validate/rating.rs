//! `<Rating>`: one system, its constants, and the order of its leaderboard.

use crate::domain::limit::DURATION_MS_MAX;
use crate::domain::ruleset::draft::{Element, Mistakes};
use crate::domain::ruleset::fields::{Bounds, Fields};
use crate::domain::ruleset::rating::{Decay, RatingSpec, RatingSystem};
use crate::domain::ruleset::validate::attributes::ANY_NUMBER;

/// Numbers that must be more than nothing: factors, deviations, scales.
const POSITIVE: Bounds = Bounds::above(0.0, 1e6);

/// Numbers that may be nothing.
const NOT_NEGATIVE: Bounds = Bounds::within(0.0, 1e6);

/// How many deviations a leaderboard may deduct.
const Z: Bounds = Bounds::within(0.0, 10.0);

/// One day: how long a rating period is where a file does not say, milliseconds.
const DEFAULT_PERIOD_MS: u64 = 24 * 60 * 60 * 1000;

/// Reads `<Rating>`. Defaults are those of each system's authors, but for z, which is comprl's 1 (B-26).
pub(super) fn read(element: &Element, mistakes: &Mistakes) -> RatingSpec {
    #[derive(Clone, Copy)]
    enum System {
        Elo,
        Glicko,
        Glicko2,
        TrueSkill,
        PlackettLuce,
    }
    let words = [
        ("elo", System::Elo),
        ("glicko", System::Glicko),
        ("glicko2", System::Glicko2),
        ("trueskill", System::TrueSkill),
        ("plackett_luce", System::PlackettLuce),
    ];
    let mut at = Fields::of(element, mistakes);
    let Some(chosen) = at.required_word("System", &words) else {
        // Which attributes belong here depends on the system: without it nothing more can be said.
        if at.written("System").is_none() {
            let right = format!("add System=\"…\" with one of {}", words.map(|(word, _)| word).join(", "));
            at.wrong(element.span, "<Rating> lacks `System`", right);
        }
        return RatingSpec {
            system: RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 },
            z: 0.0,
            decay: None,
        };
    };
    let system = match chosen {
        System::Elo => elo(&mut at),
        System::Glicko => glicko(&mut at),
        System::Glicko2 => glicko2(&mut at),
        System::TrueSkill => trueskill(&mut at),
        System::PlackettLuce => plackett_luce(&mut at),
    };
    let (z, decay) = match chosen {
        System::Elo => (0.0, None),
        System::Glicko | System::Glicko2 | System::TrueSkill | System::PlackettLuce => {
            (at.number_or("Z", Z, 1.0), at.child("Decay").map(|element| decay(element, mistakes)))
        }
    };
    at.finish();
    RatingSpec { system, z, decay }
}

/// K = 16, as the thesis's tables have it (S1-61).
fn elo(at: &mut Fields<'_>) -> RatingSystem {
    RatingSystem::Elo {
        initial: at.number_or("Initial", ANY_NUMBER, 1500.0),
        k: at.number_or("K", POSITIVE, 16.0),
        scale: at.number_or("Scale", POSITIVE, 400.0),
    }
}

/// c = 63.2 takes a deviation from 50 to 350 in 30 periods: Glickman's own example (S1-63).
fn glicko(at: &mut Fields<'_>) -> RatingSystem {
    RatingSystem::Glicko {
        initial: at.number_or("Initial", ANY_NUMBER, 1500.0),
        deviation: at.number_or("Deviation", POSITIVE, 350.0),
        min_deviation: at.number_or("MinDeviation", NOT_NEGATIVE, 30.0),
        c: at.number_or("C", NOT_NEGATIVE, 63.2),
        period_ms: at.whole_or("PeriodMs", 1, DURATION_MS_MAX, DEFAULT_PERIOD_MS),
    }
}

/// Tau between 0.3 and 1.2 is what Glickman (2013) calls reasonable.
fn glicko2(at: &mut Fields<'_>) -> RatingSystem {
    RatingSystem::Glicko2 {
        initial: at.number_or("Initial", ANY_NUMBER, 1500.0),
        deviation: at.number_or("Deviation", POSITIVE, 350.0),
        volatility: at.number_or("Volatility", POSITIVE, 0.06),
        tau: at.number_or("Tau", POSITIVE, 0.5),
        period_ms: at.whole_or("PeriodMs", 1, DURATION_MS_MAX, DEFAULT_PERIOD_MS),
    }
}

fn trueskill(at: &mut Fields<'_>) -> RatingSystem {
    RatingSystem::TrueSkill {
        mu: at.number_or("Mu", ANY_NUMBER, 25.0),
        sigma: at.number_or("Sigma", POSITIVE, 25.0 / 3.0),
        beta: at.number_or("Beta", POSITIVE, 25.0 / 6.0),
        tau: at.number_or("Tau", NOT_NEGATIVE, 25.0 / 300.0),
        draw_percent: at.number_or("DrawPercent", Bounds::within(0.0, 99.0), 10.0),
    }
}

/// The defaults of OpenSkill (D-10).
fn plackett_luce(at: &mut Fields<'_>) -> RatingSystem {
    RatingSystem::PlackettLuce {
        mu: at.number_or("Mu", ANY_NUMBER, 25.0),
        sigma: at.number_or("Sigma", POSITIVE, 25.0 / 3.0),
        beta: at.number_or("Beta", POSITIVE, 25.0 / 6.0),
        kappa: at.number_or("Kappa", POSITIVE, 1e-4),
        tau: at.number_or("Tau", NOT_NEGATIVE, 25.0 / 300.0),
    }
}

fn decay(element: &Element, mistakes: &Mistakes) -> Decay {
    let mut at = Fields::of(element, mistakes);
    let every_ms = at.required_whole("EveryMs", 1_000, DURATION_MS_MAX).unwrap_or(1_000);
    let deviation = at.required_number("Deviation", POSITIVE).unwrap_or(0.0);
    let max_deviation = at.required_number("MaxDeviation", POSITIVE).unwrap_or(0.0);
    at.finish();
    Decay { every_ms, deviation, max_deviation }
}
