//! `<Rating>`: one system, its constants, and the order of its leaderboard.

use crate::domain::limit::DURATION_MS_MAX;
use crate::domain::ruleset::draft::{Element, Mistakes};
use crate::domain::ruleset::fields::{Bounds, Fields};
use crate::domain::ruleset::rating::{Decay, DecayPeriods, GamePer, Momentum, OnDisconnect, RatingSpec, RatingSystem};
use crate::domain::ruleset::validate::attributes::ANY_NUMBER;

/// Numbers that must be more than nothing: factors, deviations, scales.
const POSITIVE: Bounds = Bounds::above(0.0, 1e6);

/// Numbers that may be nothing.
const NOT_NEGATIVE: Bounds = Bounds::within(0.0, 1e6);

/// How many deviations a leaderboard may deduct.
const Z: Bounds = Bounds::within(0.0, 10.0);

/// The most matches that a placement may take.
const PLACEMENT_MATCHES_MAX: u64 = 1_000;

/// The longest streak that momentum may wait for.
const STREAK_MAX: u64 = 1_000;

/// What momentum may multiply a change by. Beyond ten a rating says more about streaks than about skill.
const FACTOR: Bounds = Bounds::within(0.1, 10.0);

/// How long a period of Glicko-2 is where a file does not say: one day, milliseconds. Matches change ratings at once; a period only
/// says how fast idle players become uncertain.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// The same of Glicko: by the day, its usual c would forget whoever comes back after a month (docs/RATINGS.md).
const WEEK_MS: u64 = 7 * DAY_MS;

/// Reads `<Rating>`. Defaults are those of each system's authors but where it says otherwise; z is comprl's 1 (B-26).
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
        return RatingSpec::plain(RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 });
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
    let momentum = at.child("Momentum").map(|element| momentum(element, mistakes));
    let placement_matches = at.whole_or("PlacementMatches", 0, PLACEMENT_MATCHES_MAX, 0) as u32;
    let ways = [("rate", OnDisconnect::Rate), ("ignore", OnDisconnect::Ignore)];
    let on_disconnect = at.word("OnDisconnect", &ways).unwrap_or(OnDisconnect::Rate);
    let game_per = match chosen {
        System::Elo | System::Glicko | System::Glicko2 => {
            at.word("GamePer", &[("match", GamePer::Match), ("opponent", GamePer::Opponent)]).unwrap_or(GamePer::Match)
        }
        System::TrueSkill | System::PlackettLuce => GamePer::Match,
    };
    at.finish();
    RatingSpec { system, z, decay, momentum, placement_matches, on_disconnect, game_per }
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
        period_ms: at.whole_or("PeriodMs", 1, DURATION_MS_MAX, WEEK_MS),
    }
}

/// Tau between 0.3 and 1.2 is what Glickman (2013) calls reasonable.
fn glicko2(at: &mut Fields<'_>) -> RatingSystem {
    RatingSystem::Glicko2 {
        initial: at.number_or("Initial", ANY_NUMBER, 1500.0),
        deviation: at.number_or("Deviation", POSITIVE, 350.0),
        volatility: at.number_or("Volatility", POSITIVE, 0.06),
        tau: at.number_or("Tau", POSITIVE, 0.5),
        period_ms: at.whole_or("PeriodMs", 1, DURATION_MS_MAX, DAY_MS),
    }
}

/// The paper has beta = sigma / 2. More luck in a game predicts better on every set of matches that was tried (docs/RATINGS.md).
fn trueskill(at: &mut Fields<'_>) -> RatingSystem {
    RatingSystem::TrueSkill {
        mu: at.number_or("Mu", ANY_NUMBER, 25.0),
        sigma: at.number_or("Sigma", POSITIVE, 25.0 / 3.0),
        beta: at.number_or("Beta", POSITIVE, 10.0),
        tau: at.number_or("Tau", NOT_NEGATIVE, 25.0 / 300.0),
        draw_percent: at.number_or("DrawPercent", Bounds::within(0.0, 99.0), 5.0),
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
    let words = [("all", DecayPeriods::All), ("played", DecayPeriods::Played)];
    let periods = at.word("Periods", &words).unwrap_or(DecayPeriods::All);
    at.finish();
    Decay { every_ms, deviation, max_deviation, periods }
}

fn momentum(element: &Element, mistakes: &Mistakes) -> Momentum {
    let mut at = Fields::of(element, mistakes);
    let after = at.required_whole("After", 1, STREAK_MAX).unwrap_or(1) as u32;
    let factor = at.required_number("Factor", FACTOR).unwrap_or(1.0);
    at.finish();
    Momentum { after, factor }
}
