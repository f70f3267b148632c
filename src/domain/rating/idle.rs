//! What idle time does: by Glicko's c, by Glicko-2's volatility, and by a ruleset's decay, which may stand still while nobody plays.

use crate::domain::rating::Skill;
use crate::domain::ruleset::rating::{Decay, DecayPeriods, RatingSpec, RatingSystem};
use crate::domain::time::UnixMs;

/// How far a set has been played: what decay goes by that stands still while nobody plays (S2-14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Played {
    /// Periods in which a match ended that changed ratings; 0 before the first.
    periods: u32,
    /// When the latest such match ended.
    last: UnixMs,
}

impl Played {
    /// As far as somebody's last match tells as well.
    #[must_use]
    pub fn with(self, skill: &Skill) -> Self {
        match skill.last {
            Some(last) if 0 < skill.played => self.max(Self { periods: skill.played, last }),
            _ => self,
        }
    }

    /// Periods with a match so far.
    pub fn periods(self) -> u32 {
        self.periods
    }

    /// Whether the latest match was in the period of `at`, or in a later one by another server's clock.
    fn is_now(self, every_ms: u64, at: UnixMs) -> bool {
        0 < self.periods && at.0 / every_ms <= self.last.0 / every_ms
    }

    /// The number of the period of `at`, if a match ends then.
    fn next(self, every_ms: u64, at: UnixMs) -> u32 {
        self.periods.saturating_add(u32::from(!self.is_now(every_ms, at)))
    }

    /// Periods that are over, with a match each. Whoever has not played in the present one still may.
    fn over(self, every_ms: u64, at: UnixMs) -> u32 {
        self.periods.saturating_sub(u32::from(self.is_now(every_ms, at)))
    }
}

impl RatingSpec {
    /// The skill as it stands at `at`, in a set that nobody played meanwhile: see [`RatingSpec::at_in`].
    pub fn at(&self, skill: Skill, at: UnixMs) -> Skill {
        self.at_in(skill, at, Played::default())
    }

    /// The skill as it stands at `at` in a set that was played so far: idle time has made it less sure, by Glicko's c (S1-62), by
    /// Glicko-2's volatility, and by `decay` (S2-14). For showing, and for queues; what is stored stays as it was, or the same time
    /// would count twice.
    pub fn at_in(&self, skill: Skill, at: UnixMs, played: Played) -> Skill {
        let idle_ms = skill.last.map_or(0, |last| at.since(last));
        let mut skill = skill;
        if idle_ms == 0 {
            return skill;
        }
        let deviation = skill.rated.deviation;
        skill.rated.deviation = match self.system {
            RatingSystem::Elo { .. } | RatingSystem::TrueSkill { .. } | RatingSystem::PlackettLuce { .. } => deviation,
            RatingSystem::Glicko { deviation: most, c, period_ms, .. } => {
                grown(deviation, c, idle_ms, period_ms).min(most)
            }
            RatingSystem::Glicko2 { deviation: most, period_ms, .. } => {
                grown(deviation, skill.volatility * GLICKO2_SCALE, idle_ms, period_ms).min(most)
            }
        };
        if let Some(decay) = self.decay.filter(|_| !matches!(self.system, RatingSystem::Elo { .. })) {
            let every_ms = decay.every_ms.max(1);
            let steps = match decay.periods {
                DecayPeriods::All => idle_ms / every_ms,
                DecayPeriods::Played => played.over(every_ms, at).saturating_sub(skill.played).into(),
            };
            skill.rated.deviation = decayed(skill.rated.deviation, decay, steps);
        }
        skill
    }

    /// Whether it matters how far the set has been played.
    pub fn counts_played(&self) -> bool {
        self.decay.is_some_and(|decay| decay.periods == DecayPeriods::Played)
    }

    /// The number of the period in which a match ends at `at`, where it matters.
    pub(super) fn period_of(&self, at: UnixMs, played: Played) -> Option<u32> {
        let decay = self.decay.filter(|decay| decay.periods == DecayPeriods::Played)?;
        Some(played.next(decay.every_ms.max(1), at))
    }
}

/// What a rating of Glicko-2's own scale is multiplied by on the scale of Glicko (Glickman 2013, step 2).
const GLICKO2_SCALE: f64 = 173.7178;

/// A deviation after some idle time, which need not be a whole number of periods: `sqrt(deviation² + growth² t)`.
fn grown(deviation: f64, growth: f64, idle_ms: u64, period_ms: u64) -> f64 {
    let periods = idle_ms as f64 / period_ms.max(1) as f64;
    deviation.hypot(growth * periods.sqrt())
}

/// A deviation after so many steps of decay; one that is beyond the greatest already stays.
fn decayed(deviation: f64, decay: Decay, steps: u64) -> f64 {
    (deviation + steps as f64 * decay.deviation).min(decay.max_deviation).max(deviation)
}
