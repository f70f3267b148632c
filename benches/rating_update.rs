//! Goal RT: rating updates per second on one core for each system, compared with a bare loop over the same players.

use fireteam::domain::rating::{Side, Skill};
use fireteam::domain::ruleset::rating::{RatingSpec, RatingSystem};
use fireteam::domain::time::UnixMs;

use crate::harness::{Timing, compare, time_all};
use crate::split_mix64::SplitMix64;

/// Number of rated players.
const PLAYERS: u64 = 100_000;

/// Duels in one round.
const DUELS: usize = 100_000;

/// Limit of an Elo or Glicko-2 update, microseconds: a million per second.
const UPDATE_US: f64 = 1.0;

const WEEK_MS: u64 = 7 * 24 * 60 * 60 * 1000;

pub(crate) fn run(wanted: &dyn Fn(&str) -> bool) {
    if !wanted("RT1") {
        return;
    }
    let systems = [
        RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 },
        RatingSystem::Glicko { initial: 1500.0, deviation: 350.0, min_deviation: 30.0, c: 63.2, period_ms: WEEK_MS },
        RatingSystem::Glicko2 { initial: 1500.0, deviation: 350.0, volatility: 0.06, tau: 0.5, period_ms: WEEK_MS / 7 },
        RatingSystem::TrueSkill { mu: 25.0, sigma: 25.0 / 3.0, beta: 10.0, tau: 25.0 / 300.0, draw_percent: 5.0 },
        RatingSystem::PlackettLuce { mu: 25.0, sigma: 25.0 / 3.0, beta: 25.0 / 6.0, kappa: 1e-4, tau: 25.0 / 300.0 },
    ];
    systems.into_iter().for_each(duels);
}

/// Times duels; each is two updates.
fn duels(system: RatingSystem) {
    let spec = RatingSpec::with_defaults(system);
    let mut rng = SplitMix64(11);
    let pairs: Vec<(usize, usize, bool)> = (0..DUELS)
        .map(|_| {
            let one = rng.below(PLAYERS);
            let other = (one + 1 + rng.below(PLAYERS - 1)) % PLAYERS;
            (one as usize, other as usize, rng.below(2) == 0)
        })
        .collect();
    let mut skills: Vec<Skill> = vec![spec.initial_skill(); PLAYERS as usize];
    let mut bare = skills.clone();
    let mut now = 0;
    let subject = || {
        per_update(time_all(DUELS, |number| {
            let (one, other, first) = pairs[number];
            now += 1_000;
            let ranks = if first { [1, 2] } else { [2, 1] };
            let sides = [
                Side { players: vec![skills[one]], rank: ranks[0] },
                Side { players: vec![skills[other]], rank: ranks[1] },
            ];
            let after = spec.rate_match(&sides, UnixMs(now)).expect("a valid match");
            (skills[one], skills[other]) = (after[0][0], after[1][0]);
        }))
    };
    // The work of any update: read both, change both, write both.
    let reference = || {
        per_update(time_all(DUELS, |number| {
            let (one, other, first) = pairs[number];
            let change = if first { 1.0 } else { -1.0 };
            bare[one].estimate.rating += change;
            bare[other].estimate.rating -= change;
            bare[one].match_count += 1;
            bare[other].match_count += 1;
        }))
    };
    let limit = match system {
        RatingSystem::Elo { .. } | RatingSystem::Glicko2 { .. } => format!(" (at most {UPDATE_US} us)"),
        _ => String::new(),
    };
    compare("RT1", &format!("{}, an update{limit}", system.as_str()), "bare loop", subject, reference);
    assert!(skills.iter().all(|skill| skill.estimate.rating.is_finite()) && bare.len() == skills.len());
}

fn per_update(duel: Timing) -> Timing {
    Timing { wall_us: duel.wall_us / 2.0, cpu_us: duel.cpu_us / 2.0 }
}
