//! Match activity of a set: number of active periods and time of the latest match.

use crate::rating::skill::Skill;
use crate::time::UnixMs;

/// Match activity of a set: input of a decay that counts only active periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AllUsersMatchActivity {
    /// Number of periods in which a rated match ended; 0 before the first.
    active_periods: u32,
    /// End of the latest rated match.
    last_match_at: UnixMs,
}

impl AllUsersMatchActivity {
    /// Includes the last match of a user.
    #[must_use]
    pub fn including_last_match_of(self, skill: &Skill) -> Self {
        match skill.last_match_at {
            Some(last_match_at) if skill.last_match_active_period > 0 => {
                self.max(Self { active_periods: skill.last_match_active_period, last_match_at })
            }
            _ => self,
        }
    }

    /// Number of active periods so far.
    pub fn active_periods(self) -> u32 {
        self.active_periods
    }

    /// True if the latest match is in the period of `at`, or in a later one by another server's clock.
    fn is_current_period_active(self, every_ms: u64, at: UnixMs) -> bool {
        self.active_periods > 0 && at.0 / every_ms <= self.last_match_at.0 / every_ms
    }

    /// Number of the active period of `at`, if a match ends then.
    pub(crate) fn period_number_of_match_at(self, every_ms: u64, at: UnixMs) -> u32 {
        self.active_periods.saturating_add(u32::from(!self.is_current_period_active(every_ms, at)))
    }

    /// Number of active periods that have ended. A user who has not played in the current period still may.
    pub(crate) fn finished_active_periods(self, every_ms: u64, at: UnixMs) -> u32 {
        self.active_periods.saturating_sub(u32::from(self.is_current_period_active(every_ms, at)))
    }
}
