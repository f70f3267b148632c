//! Growth of the deviation during inactivity: by Glicko's c, by Glicko-2's volatility, and by the ruleset's decay.
//! Decay may count only the periods in which the set was played.

use crate::rating::{AllUsersMatchActivity, Skill};
use crate::ruleset::rating::{DecayPeriodFilter, InactiveDeviationGrowth, RatingSpec, RatingSystem};
use crate::time::UnixMs;

impl RatingSpec {
    /// Skill at `at`, for a set without matches in between; see [`RatingSpec::skill_at_with_activity`].
    pub fn skill_at(&self, skill: Skill, at: UnixMs) -> Skill {
        self.skill_at_with_activity(skill, at, AllUsersMatchActivity::default())
    }

    /// Skill at `at`, given the match activity of the set. Inactivity raises the deviation by Glicko's c, by Glicko-2's
    /// volatility and by the ruleset's decay. Use it for display and in queues. Do not store the result: the same time
    /// would count twice.
    pub fn skill_at_with_activity(&self, skill: Skill, at: UnixMs, activity: AllUsersMatchActivity) -> Skill {
        let idle_ms = skill.last_match_at.map_or(0, |last| at.ms_since(last));
        let mut skill = skill;
        if idle_ms == 0 {
            return skill;
        }
        let deviation = skill.estimate.deviation;
        skill.estimate.deviation = match self.system {
            RatingSystem::Elo { .. } | RatingSystem::TrueSkill { .. } | RatingSystem::PlackettLuce { .. } => deviation,
            RatingSystem::Glicko { deviation: max_deviation, c, period_ms, .. } => {
                grow_deviation_by_rating_periods(deviation, c, idle_ms, period_ms).min(max_deviation)
            }
            RatingSystem::Glicko2 { deviation: max_deviation, period_ms, .. } => {
                grow_deviation_by_rating_periods(deviation, skill.volatility * GLICKO2_SCALE, idle_ms, period_ms)
                    .min(max_deviation)
            }
        };
        if let Some(decay) = self.decay.filter(|_| !matches!(self.system, RatingSystem::Elo { .. })) {
            let every_ms = decay.every_ms.max(1);
            let steps = match decay.periods {
                DecayPeriodFilter::All => idle_ms / every_ms,
                DecayPeriodFilter::Played => {
                    activity.finished_active_periods(every_ms, at).saturating_sub(skill.last_match_active_period).into()
                }
            };
            skill.estimate.deviation = grow_deviation_by_decay(skill.estimate.deviation, decay, steps);
        }
        skill
    }

    /// True if the decay depends on the set's match activity.
    pub fn decays_by_active_periods(&self) -> bool {
        self.decay.is_some_and(|decay| decay.periods == DecayPeriodFilter::Played)
    }

    /// Number of the active period in which a match ends at `at`, if the decay counts active periods.
    pub(super) fn active_period_number_of_match_at(&self, at: UnixMs, activity: AllUsersMatchActivity) -> Option<u32> {
        let decay = self.decay.filter(|decay| decay.periods == DecayPeriodFilter::Played)?;
        Some(activity.period_number_of_match_at(decay.every_ms.max(1), at))
    }
}

/// Factor from Glicko-2's own scale to Glicko's scale (Glickman 2013, step 2).
const GLICKO2_SCALE: f64 = 173.7178;

/// Deviation after inactivity of any length, `sqrt(deviation² + growth² t)` with t in periods.
fn grow_deviation_by_rating_periods(deviation: f64, growth: f64, idle_ms: u64, period_ms: u64) -> f64 {
    let periods = idle_ms as f64 / period_ms.max(1) as f64;
    deviation.hypot(growth * periods.sqrt())
}

/// Deviation after n steps of decay. A deviation already above the decay's maximum stays.
fn grow_deviation_by_decay(deviation: f64, decay: InactiveDeviationGrowth, steps: u64) -> f64 {
    (deviation + steps as f64 * decay.deviation_per_period).min(decay.max_deviation).max(deviation)
}
