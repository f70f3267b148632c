//! Scale of ratings: the settings that give a rating's number its meaning. Ratings of two scales are never mixed.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::id::{RatingKey, SetId};
use crate::ruleset::rating::{RatingSpec, RatingSystem};

/// Rating system with the constants that place its numbers. Under two equal scales, a number says the same.
///
/// All other settings say how fast ratings change, or how they are shown. They may change while ratings stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RatingScale {
    /// Elo.
    Elo {
        /// Initial rating.
        initial: f64,
        /// Rating difference at odds of ten to one.
        scale: f64,
    },
    /// Glicko; its differences always have the scale 400.
    Glicko {
        /// Initial rating.
        initial: f64,
    },
    /// Glicko-2; its differences always have the scale 400.
    Glicko2 {
        /// Initial rating.
        initial: f64,
    },
    /// TrueSkill.
    TrueSkill {
        /// Initial rating.
        mu: f64,
        /// Initial deviation.
        sigma: f64,
        /// Performance deviation.
        beta: f64,
    },
    /// Plackett-Luce.
    PlackettLuce {
        /// Initial rating.
        mu: f64,
        /// Initial deviation.
        sigma: f64,
        /// Performance deviation.
        beta: f64,
    },
}

/// Owner of ratings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RatingPool<'a> {
    /// One set, which shares its ratings with no other.
    Set(SetId),
    /// All sets that name this pool.
    Named(&'a str),
}

/// Rating settings, with the key of the ratings that they apply to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyedRatingSpec {
    /// Key of the ratings.
    pub key: RatingKey,
    /// Settings.
    pub spec: RatingSpec,
}

impl RatingSpec {
    /// Scale of the ratings.
    pub fn scale(&self) -> RatingScale {
        match self.system {
            RatingSystem::Elo { initial, k: _, scale } => RatingScale::Elo { initial, scale },
            RatingSystem::Glicko { initial, deviation: _, min_deviation: _, c: _, period_ms: _ } => {
                RatingScale::Glicko { initial }
            }
            RatingSystem::Glicko2 { initial, deviation: _, volatility: _, tau: _, period_ms: _ } => {
                RatingScale::Glicko2 { initial }
            }
            RatingSystem::TrueSkill { mu, sigma, beta, tau: _, draw_percent: _ } => {
                RatingScale::TrueSkill { mu, sigma, beta }
            }
            RatingSystem::PlackettLuce { mu, sigma, beta, kappa: _, tau: _ } => {
                RatingScale::PlackettLuce { mu, sigma, beta }
            }
        }
    }
}

impl RatingScale {
    /// Constants of the scale with their names in XML.
    pub fn constants(&self) -> Vec<(&'static str, f64)> {
        self.system_name_and_constants().1
    }

    /// Name of the rating system in XML, and its constants with their names.
    fn system_name_and_constants(&self) -> (&'static str, Vec<(&'static str, f64)>) {
        match *self {
            RatingScale::Elo { initial, scale } => ("elo", vec![("Initial", initial), ("Scale", scale)]),
            RatingScale::Glicko { initial } => ("glicko", vec![("Initial", initial)]),
            RatingScale::Glicko2 { initial } => ("glicko2", vec![("Initial", initial)]),
            RatingScale::TrueSkill { mu, sigma, beta } => {
                ("trueskill", vec![("Mu", mu), ("Sigma", sigma), ("Beta", beta)])
            }
            RatingScale::PlackettLuce { mu, sigma, beta } => {
                ("plackett_luce", vec![("Mu", mu), ("Sigma", sigma), ("Beta", beta)])
            }
        }
    }

    /// Digest key of the ratings of `pool` on this scale. It is stored, so its input never changes.
    pub fn rating_key_of_pool(&self, pool: RatingPool<'_>) -> RatingKey {
        let mut digest = Sha256::new();
        let mut write = |text: &str| {
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text);
        };
        write("fireteam rating 1");
        match pool {
            RatingPool::Set(set_id) => {
                write("set");
                write(&set_id.to_string());
            }
            RatingPool::Named(name) => {
                write("pool");
                write(name);
            }
        }
        let (system, constants) = self.system_name_and_constants();
        write(system);
        for (_, constant) in constants {
            digest.update((constant + 0.0).to_bits().to_be_bytes());
        }
        let digest: [u8; 32] = digest.finalize().into();
        RatingKey::of_pool_and_scale_digest(u64::from_be_bytes(std::array::from_fn(|index| digest[index])))
    }
}

impl fmt::Display for RatingScale {
    /// As in XML: `elo Initial="1500" Scale="400"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (system, constants) = self.system_name_and_constants();
        f.write_str(system)?;
        constants.iter().try_for_each(|(name, constant)| write!(f, " {name}=\"{constant}\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ruleset::rating::{
        DecayPeriodFilter, DisconnectPolicy, EqualWidthRatingCategories, InactiveDeviationGrowth, LeaderboardAccess,
        OpponentsPerRatedGame, PerformanceDistribution, RatingSpec, StreakChangeFactor,
    };

    const SET: RatingPool<'_> = RatingPool::Set(SetId(11));

    fn key(system: RatingSystem) -> RatingKey {
        RatingSpec::with_defaults(system).scale().rating_key_of_pool(SET)
    }

    /// Checks that each system of `others` has the key of the first, or that none has.
    fn assert_scale(first: RatingSystem, is_equal: bool, others: &[RatingSystem]) {
        for other in others {
            assert_eq!(key(first) == key(*other), is_equal, "{first:?} and {other:?}");
            let scales = [first, *other].map(|system| RatingSpec::with_defaults(system).scale());
            assert_eq!(scales[0] == scales[1], is_equal, "{scales:?}");
            assert_eq!(scales[0].to_string() == scales[1].to_string(), is_equal, "{scales:?}");
        }
    }

    #[test]
    fn scale_of_elo_is_initial_and_scale_but_not_k() {
        let elo = |initial, k, scale| RatingSystem::Elo { initial, k, scale };
        assert_scale(elo(1500.0, 16.0, 400.0), true, &[elo(1500.0, 32.0, 400.0)]);
        assert_scale(elo(1500.0, 16.0, 400.0), false, &[elo(1000.0, 16.0, 400.0), elo(1500.0, 16.0, 200.0)]);
    }

    #[test]
    fn scale_of_glicko_is_initial_but_not_its_deviations_c_and_period() {
        let glicko = |initial, deviation, min_deviation, c, period_ms| RatingSystem::Glicko {
            initial,
            deviation,
            min_deviation,
            c,
            period_ms,
        };
        let first = glicko(1500.0, 350.0, 30.0, 63.2, 1);
        let paces = [
            glicko(1500.0, 300.0, 30.0, 63.2, 1),
            glicko(1500.0, 350.0, 40.0, 63.2, 1),
            glicko(1500.0, 350.0, 30.0, 10.0, 1),
            glicko(1500.0, 350.0, 30.0, 63.2, 2),
        ];
        assert_scale(first, true, &paces);
        assert_scale(first, false, &[glicko(1000.0, 350.0, 30.0, 63.2, 1)]);
    }

    #[test]
    fn scale_of_glicko2_is_initial_but_not_its_deviation_volatility_tau_and_period() {
        let glicko2 = |initial, deviation, volatility, tau, period_ms| RatingSystem::Glicko2 {
            initial,
            deviation,
            volatility,
            tau,
            period_ms,
        };
        let first = glicko2(1500.0, 350.0, 0.06, 0.5, 1);
        let paces = [
            glicko2(1500.0, 300.0, 0.06, 0.5, 1),
            glicko2(1500.0, 350.0, 0.05, 0.5, 1),
            glicko2(1500.0, 350.0, 0.06, 0.3, 1),
            glicko2(1500.0, 350.0, 0.06, 0.5, 2),
        ];
        assert_scale(first, true, &paces);
        assert_scale(first, false, &[glicko2(1000.0, 350.0, 0.06, 0.5, 1)]);
    }

    #[test]
    fn scale_of_trueskill_is_mu_sigma_and_beta_but_not_tau_and_draws() {
        let trueskill =
            |mu, sigma, beta, tau, draw_percent| RatingSystem::TrueSkill { mu, sigma, beta, tau, draw_percent };
        let first = trueskill(25.0, 8.0, 10.0, 0.1, 5.0);
        assert_scale(first, true, &[trueskill(25.0, 8.0, 10.0, 0.2, 5.0), trueskill(25.0, 8.0, 10.0, 0.1, 6.0)]);
        let scales = [
            trueskill(26.0, 8.0, 10.0, 0.1, 5.0),
            trueskill(25.0, 9.0, 10.0, 0.1, 5.0),
            trueskill(25.0, 8.0, 4.0, 0.1, 5.0),
        ];
        assert_scale(first, false, &scales);
    }

    #[test]
    fn scale_of_plackett_luce_is_mu_sigma_and_beta_but_not_kappa_and_tau() {
        let plackett_luce = |mu, sigma, beta, kappa, tau| RatingSystem::PlackettLuce { mu, sigma, beta, kappa, tau };
        let first = plackett_luce(25.0, 8.0, 4.0, 1e-4, 0.1);
        assert_scale(
            first,
            true,
            &[plackett_luce(25.0, 8.0, 4.0, 1e-3, 0.1), plackett_luce(25.0, 8.0, 4.0, 1e-4, 0.2)],
        );
        let scales = [
            plackett_luce(26.0, 8.0, 4.0, 1e-4, 0.1),
            plackett_luce(25.0, 9.0, 4.0, 1e-4, 0.1),
            plackett_luce(25.0, 8.0, 5.0, 1e-4, 0.1),
        ];
        assert_scale(first, false, &scales);
    }

    #[test]
    fn scale_of_every_system_differs_also_with_equal_numbers() {
        let (mu, sigma, beta) = (25.0, 8.0, 4.0);
        let systems = [
            RatingSystem::Elo { initial: mu, k: 1.0, scale: 400.0 },
            RatingSystem::Glicko { initial: mu, deviation: sigma, min_deviation: 1.0, c: 1.0, period_ms: 1 },
            RatingSystem::Glicko2 { initial: mu, deviation: sigma, volatility: 1.0, tau: 1.0, period_ms: 1 },
            RatingSystem::TrueSkill { mu, sigma, beta, tau: 1.0, draw_percent: 1.0 },
            RatingSystem::PlackettLuce { mu, sigma, beta, kappa: 1.0, tau: 1.0 },
        ];
        for (index, system) in systems.iter().enumerate() {
            assert_scale(*system, false, &systems[index + 1..]);
        }
    }

    #[test]
    fn scale_does_not_depend_on_settings_that_all_systems_share() {
        let system = RatingSystem::Glicko { initial: 1.0, deviation: 2.0, min_deviation: 1.0, c: 1.0, period_ms: 1 };
        let plain = RatingSpec::with_defaults(system);
        let decay = InactiveDeviationGrowth {
            every_ms: 1,
            deviation_per_period: 1.0,
            max_deviation: 2.0,
            periods: DecayPeriodFilter::All,
        };
        let changed = RatingSpec {
            system,
            leaderboard_z: 3.0,
            match_z: 1.5,
            decay: Some(decay),
            momentum: Some(StreakChangeFactor { after: 3, factor: 2.0 }),
            placement_matches: 10,
            on_disconnect: DisconnectPolicy::Ignore,
            opponents_per_game: OpponentsPerRatedGame::Each,
            leaderboard: LeaderboardAccess::Public,
            categories: Some(EqualWidthRatingCategories { count: 2, width: 1.0, from: 0.0 }),
            prediction: PerformanceDistribution::Probit,
        };
        assert_eq!(plain.scale(), changed.scale());
    }

    #[test]
    fn key_depends_on_the_pool_and_never_changes() {
        let scale = RatingScale::Elo { initial: 1500.0, scale: 400.0 };
        let pools = [SET, RatingPool::Set(SetId(12)), RatingPool::Named("11"), RatingPool::Named("duels")];
        let mut keys: Vec<RatingKey> = pools.iter().map(|pool| scale.rating_key_of_pool(*pool)).collect();
        assert_eq!(scale.to_string(), r#"elo Initial="1500" Scale="400""#);
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), pools.len());
        // Stored keys: if this fails, users lose their ratings.
        assert_eq!(scale.rating_key_of_pool(SET).to_stored(), STORED_KEY);
    }

    /// Key of `elo Initial="1500" Scale="400"` of set 11 in existing databases.
    const STORED_KEY: i64 = -7_719_817_129_711_880_523;
}
