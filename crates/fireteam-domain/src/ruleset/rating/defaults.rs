//! Default constants of rating systems. They changed once; sets with ratings from before keep the former ones.

use crate::id::{RatingKey, SetId};
use crate::ruleset::Ruleset;
use crate::ruleset::hash::ruleset_hash;
use crate::ruleset::rating::RatingSystem;
use crate::ruleset::rating::scale::RatingPool;

/// Glicko's default rating period: two months, a thirtieth of five years, in milliseconds. In Glickman's *The Glicko
/// system*, c = 63.2 belongs to this period.
pub(crate) const GLICKO_PERIOD_MS: u64 = 5_259_600_000;

/// Glicko's former default rating period: one week, milliseconds.
pub(crate) const FORMER_GLICKO_PERIOD_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// TrueSkill's former default performance deviation.
pub(crate) const FORMER_TRUESKILL_BETA: f64 = 10.0;

/// Former default performance deviation of Plackett-Luce, also with another initial deviation.
pub(crate) const FORMER_PLACKETT_LUCE_BETA: f64 = 25.0 / 6.0;

/// Former default of the deviation added before each game, of TrueSkill and Plackett-Luce.
pub(crate) const FORMER_TAU: f64 = 25.0 / 300.0;

/// Default initial deviation of TrueSkill and Plackett-Luce.
pub(crate) const SIGMA: f64 = 25.0 / 3.0;

/// Default constants that a set uses where its ruleset leaves one out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RatingDefaults {
    /// Those of 0.2, of which some were chosen on one game.
    Former,
    /// Those of the systems' papers, but for TrueSkill's Beta.
    Current,
}

/// Rating system as a ruleset states it, under both default constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SystemByDefaults {
    /// Under `RatingDefaults::Current`.
    pub(crate) current: RatingSystem,
    /// Under `RatingDefaults::Former`.
    pub(crate) former: RatingSystem,
}

impl SystemByDefaults {
    /// System whose constants do not depend on the defaults.
    pub(crate) fn new_same_for_both(system: RatingSystem) -> Self {
        Self { current: system, former: system }
    }
}

/// TrueSkill's default performance deviation: three quarters of the initial deviation. The paper (Herbrich, Minka and Graepel
/// 2006) has a half; three quarters predict better on each data set of docs/RATINGS.md.
pub(crate) fn default_trueskill_beta(sigma: f64) -> f64 {
    0.75 * sigma
}

/// Default performance deviation of Plackett-Luce: half of the initial deviation, as in OpenSkill.
pub(crate) fn default_plackett_luce_beta(sigma: f64) -> f64 {
    sigma / 2.0
}

/// Default deviation that is added before each game: a hundredth of the initial deviation (Herbrich, Minka and Graepel 2006).
/// For `SIGMA` it is the same number as before, to the bit.
pub(crate) fn default_tau(sigma: f64) -> f64 {
    if sigma == SIGMA { FORMER_TAU } else { sigma / 100.0 }
}

/// Constant that a ruleset leaves out and whose default has changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConstantWithChangedDefault {
    /// Name in XML.
    pub name: &'static str,
    /// Its value under the former defaults.
    pub former: f64,
    /// Its value under the current defaults.
    pub current: f64,
    /// Whether it belongs to the scale of the ratings.
    pub is_of_scale: bool,
}

/// Keys of a set's own ratings, under both default constants. They are equal if the ruleset states all constants that place
/// the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnRatingKeys {
    /// The set.
    pub set_id: SetId,
    /// Under `RatingDefaults::Current`.
    pub current: RatingKey,
    /// Under `RatingDefaults::Former`.
    pub former: RatingKey,
}

impl OwnRatingKeys {
    /// Key under `defaults`.
    pub fn key_for_defaults(&self, defaults: RatingDefaults) -> RatingKey {
        match defaults {
            RatingDefaults::Current => self.current,
            RatingDefaults::Former => self.former,
        }
    }
}

impl Ruleset {
    /// Keys of the set's own ratings on its scale, also if it uses a named pool; `None` without a rating system.
    pub fn own_rating_keys(&self) -> Option<OwnRatingKeys> {
        let rating = self.rating.as_ref()?;
        let key =
            |spec: &crate::ruleset::rating::RatingSpec| spec.scale().rating_key_of_pool(RatingPool::Set(self.set_id));
        let former = self.former_rating.as_ref().unwrap_or(rating);
        Some(OwnRatingKeys { set_id: self.set_id, current: key(rating), former: key(former) })
    }

    /// The ruleset as a set that keeps the former default constants uses it; `None` if that is no other. Its hash is the one
    /// that servers of 0.2 compute.
    pub fn with_former_rating_defaults(&self) -> Option<Self> {
        let mut ruleset = Self { rating: Some(self.former_rating?), former_rating: None, ..self.clone() };
        ruleset.hash = ruleset_hash(&ruleset);
        Some(ruleset)
    }

    /// Constants that the ruleset leaves out and whose default has changed.
    pub fn rating_constants_with_changed_default(&self) -> Vec<ConstantWithChangedDefault> {
        let (Some(rating), Some(former)) = (self.rating, self.former_rating) else { return Vec::new() };
        let scale = rating.scale();
        let all = rating.system.constants().into_iter().zip(former.system.constants());
        let changed = all.filter(|((_, current), (_, former))| current != former);
        changed
            .map(|((name, current), (_, former))| ConstantWithChangedDefault {
                name,
                former,
                current,
                is_of_scale: scale.constants().iter().any(|(known, _)| *known == name),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's Tau, and the same numbers as OpenSkill's for the default initial deviation.
    #[test]
    fn default_beta_and_tau_follow_the_initial_deviation() {
        assert_eq!((default_trueskill_beta(SIGMA), default_tau(SIGMA)), (6.25, 25.0 / 300.0));
        assert_eq!((default_trueskill_beta(400.0), default_tau(400.0)), (300.0, 4.0));
        assert_eq!((default_plackett_luce_beta(SIGMA), default_plackett_luce_beta(400.0)), (25.0 / 6.0, 200.0));
    }

    /// In Glickman's example a deviation of 50 grows to 350 in five years of two-month periods.
    #[test]
    fn glicko_period_takes_a_deviation_from_50_to_350_in_five_years() {
        let periods = 5.0 * 365.25 * 86_400_000.0 / GLICKO_PERIOD_MS as f64;
        let deviation = (50.0_f64.powi(2) + 63.2_f64.powi(2) * periods).sqrt();
        assert!((deviation - 350.0).abs() < 0.3, "{deviation}");
    }
}
