//! What idle time does: by Glicko's c, by Glicko-2's volatility, and by a ruleset's decay, which may stand still while nobody plays.

use crate::rating::Skill;
use crate::ruleset::rating::{DecayPeriodFilter, InactivityDecay, RatingSpec, RatingSystem};
use crate::time::UnixMs;

/// How far a set has been played: what decay goes by that stands still while nobody plays (S2-14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetActivity {
    /// Periods in which a match ended that changed ratings; 0 before the first.
    active_periods: u32,
    /// When the latest such match ended.
    last_match_at: UnixMs,
}

impl SetActivity {
    /// As far as somebody's last match tells as well.
    #[must_use]
    pub fn including_skill(self, skill: &Skill) -> Self {
        match skill.last_match_at {
            Some(last) if 0 < skill.active_periods => {
                self.max(Self { active_periods: skill.active_periods, last_match_at: last })
            }
            _ => self,
        }
    }

    /// Periods with a match so far.
    pub fn active_periods(self) -> u32 {
        self.active_periods
    }

    /// Whether the latest match was in the period of `at`, or in a later one by another server's clock.
    fn is_current_period_active(self, every_ms: u64, at: UnixMs) -> bool {
        0 < self.active_periods && at.0 / every_ms <= self.last_match_at.0 / every_ms
    }

    /// The number of the period of `at`, if a match ends then.
    fn period_number_of_match_at(self, every_ms: u64, at: UnixMs) -> u32 {
        self.active_periods.saturating_add(u32::from(!self.is_current_period_active(every_ms, at)))
    }

    /// Periods that are over, with a match each. Whoever has not played in the present one still may.
    fn finished_active_periods(self, every_ms: u64, at: UnixMs) -> u32 {
        self.active_periods.saturating_sub(u32::from(self.is_current_period_active(every_ms, at)))
    }
}

impl RatingSpec {
    /// The skill as it stands at `at`, in a set that nobody played meanwhile: see [`RatingSpec::at_in`].
    pub fn skill_at(&self, skill: Skill, at: UnixMs) -> Skill {
        self.skill_at_with_activity(skill, at, SetActivity::default())
    }

    /// The skill as it stands at `at` in a set that was played so far: idle time has made it less sure, by Glicko's c (S1-62), by
    /// Glicko-2's volatility, and by `decay` (S2-14). For showing, and for queues; what is stored stays as it was, or the same time
    /// would count twice.
    pub fn skill_at_with_activity(&self, skill: Skill, at: UnixMs, played: SetActivity) -> Skill {
        let idle_ms = skill.last_match_at.map_or(0, |last| at.ms_since(last));
        let mut skill = skill;
        if idle_ms == 0 {
            return skill;
        }
        let deviation = skill.estimate.deviation;
        skill.estimate.deviation = match self.system {
            RatingSystem::Elo { .. } | RatingSystem::TrueSkill { .. } | RatingSystem::PlackettLuce { .. } => deviation,
            RatingSystem::Glicko { deviation: most, c, period_ms, .. } => {
                grow_deviation(deviation, c, idle_ms, period_ms).min(most)
            }
            RatingSystem::Glicko2 { deviation: most, period_ms, .. } => {
                grow_deviation(deviation, skill.volatility * GLICKO2_SCALE, idle_ms, period_ms).min(most)
            }
        };
        if let Some(decay) = self.decay.filter(|_| !matches!(self.system, RatingSystem::Elo { .. })) {
            let every_ms = decay.every_ms.max(1);
            let steps = match decay.periods {
                DecayPeriodFilter::All => idle_ms / every_ms,
                DecayPeriodFilter::Played => {
                    played.finished_active_periods(every_ms, at).saturating_sub(skill.active_periods).into()
                }
            };
            skill.estimate.deviation = decay_deviation(skill.estimate.deviation, decay, steps);
        }
        skill
    }

    /// Whether it matters how far the set has been played.
    pub fn decays_by_active_periods(&self) -> bool {
        self.decay.is_some_and(|decay| decay.periods == DecayPeriodFilter::Played)
    }

    /// The number of the period in which a match ends at `at`, where it matters.
    pub(super) fn active_period_number(&self, at: UnixMs, played: SetActivity) -> Option<u32> {
        let decay = self.decay.filter(|decay| decay.periods == DecayPeriodFilter::Played)?;
        Some(played.period_number_of_match_at(decay.every_ms.max(1), at))
    }
}

/// What a rating of Glicko-2's own scale is multiplied by on the scale of Glicko (Glickman 2013, step 2).
const GLICKO2_SCALE: f64 = 173.7178;

/// A deviation after some idle time, which need not be a whole number of periods: `sqrt(deviation² + growth² t)`.
fn grow_deviation(deviation: f64, growth: f64, idle_ms: u64, period_ms: u64) -> f64 {
    let periods = idle_ms as f64 / period_ms.max(1) as f64;
    deviation.hypot(growth * periods.sqrt())
}

/// A deviation after so many steps of decay; one that is beyond the greatest already stays.
fn decay_deviation(deviation: f64, decay: InactivityDecay, steps: u64) -> f64 {
    (deviation + steps as f64 * decay.deviation).min(decay.max_deviation).max(deviation)
}
