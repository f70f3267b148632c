//! Queue cooldown after failed ready checks. It grows with each failure and resets after a while without failures.

use crate::time::UnixMs;

/// Cooldown state of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Penalty {
    /// Failed ready checks since the last reset, at least 1.
    pub level: u32,
    /// The user may not queue before this time. A time in the past means no cooldown.
    pub cooldown_until: UnixMs,
    /// Time at which `level` restarts from 0 if no further ready check fails.
    pub resets_at: UnixMs,
}

impl Penalty {
    /// End of the cooldown. `None` if it has passed.
    pub fn active_cooldown_end(&self, now: UnixMs) -> Option<UnixMs> {
        Some(self.cooldown_until).filter(|until| now < *until)
    }

    /// Time at which the penalty has no effect any more and may be deleted.
    pub fn expires_at(&self) -> UnixMs {
        self.cooldown_until.max(self.resets_at)
    }
}

/// Penalty after a failed ready check at `now`.
///
/// `cooldowns_ms` holds cooldowns in milliseconds: for the first failure, the second, and so on. The last entry repeats. If
/// `cooldowns_ms` is empty, the failure is counted without a cooldown. A penalty whose `resets_at` has passed counts as none.
pub fn next_penalty(cooldowns_ms: &[u32], reset_after_ms: u64, before: Option<Penalty>, now: UnixMs) -> Penalty {
    let failures = before.filter(|before| now < before.resets_at).map_or(0, |before| before.level);
    let cooldown_ms = cooldowns_ms.get(failures as usize).or(cooldowns_ms.last()).copied().unwrap_or(0);
    // Another failure never shortens a cooldown that is already set.
    let current_end = before.map_or(now, |before| before.cooldown_until);
    Penalty {
        level: failures.saturating_add(1),
        cooldown_until: now.plus_ms(u64::from(cooldown_ms)).max(current_end),
        resets_at: now.plus_ms(reset_after_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ruleset::teams::DEFAULT_PENALTY_COOLDOWNS_MS;

    const SCHEDULE: [u32; 3] = [10, 100, 1_000];

    fn penalty_after_failure(before: Option<Penalty>, now: u64) -> Penalty {
        next_penalty(&SCHEDULE, 5_000, before, UnixMs(now))
    }

    #[test]
    fn penalty_level_rises_per_failure_up_to_the_last() {
        let mut penalty = None;
        for (now, until) in [(0, 10), (1_000, 1_100), (2_000, 3_000), (4_000, 5_000), (5_000, 6_000)] {
            penalty = Some(penalty_after_failure(penalty, now));
            assert_eq!(penalty.unwrap().cooldown_until, UnixMs(until), "at {now}");
        }
        assert_eq!(penalty.unwrap().level, 5);
    }

    const MINUTE: u64 = 60_000;

    /// Most matches within any hour that a user spoils in two days, who declines all proposals and queues again at once.
    fn spoiled_per_hour(cooldowns_ms: &[u32], reset_after_ms: u64) -> usize {
        let (mut declined_at, mut penalty, mut now) = (Vec::new(), None, UnixMs(0));
        while now.0 < 48 * 60 * MINUTE {
            declined_at.push(now.0);
            let next = next_penalty(cooldowns_ms, reset_after_ms, penalty, now);
            (penalty, now) = (Some(next), next.cooldown_until);
        }
        let within_an_hour =
            |first: &u64| declined_at.iter().filter(|at| (*first..first + 60 * MINUTE).contains(at)).count();
        declined_at.iter().map(within_an_hour).max().unwrap_or(0)
    }

    /// SEC-13: with the default cooldowns, reset after a day, a user who declines all proposals spoils three within an hour.
    /// Cooldowns of 30 s, 2, 10 and 30 minutes allow five.
    #[test]
    fn penalty_limits_matches_spoiled_by_constant_declining() {
        let day_ms = 24 * 60 * MINUTE;
        let by_default = spoiled_per_hour(&DEFAULT_PENALTY_COOLDOWNS_MS, day_ms);
        let with_short_steps = spoiled_per_hour(&[30_000, 120_000, 600_000, 1_800_000], day_ms);
        assert_eq!((by_default, with_short_steps), (3, 5));
    }

    #[test]
    fn penalty_level_resets_exactly_at_resets_at() {
        let first = penalty_after_failure(None, 0);
        assert_eq!((first.level, first.resets_at), (1, UnixMs(5_000)));
        assert_eq!(penalty_after_failure(Some(first), 4_999).level, 2);
        assert_eq!(penalty_after_failure(Some(first), 5_000), penalty_after_failure(None, 5_000));
    }

    #[test]
    fn penalty_expires_after_cooldown_and_reset() {
        let first = penalty_after_failure(None, 0);
        assert_eq!(first.active_cooldown_end(UnixMs(9)), Some(UnixMs(10)));
        assert_eq!(first.active_cooldown_end(UnixMs(10)), None);
        assert_eq!(first.expires_at(), UnixMs(5_000));
        let long = next_penalty(&[10_000], 5, None, UnixMs(0));
        assert_eq!(long.expires_at(), UnixMs(10_000));
    }

    #[test]
    fn penalty_cooldown_is_never_shortened_by_another_failure() {
        let long = next_penalty(&[10_000], 5, None, UnixMs(0));
        assert_eq!(next_penalty(&[1], 5, Some(long), UnixMs(100)).cooldown_until, UnixMs(10_000));
    }

    #[test]
    fn penalty_without_schedule_sets_no_cooldown() {
        let counted = next_penalty(&[], 5_000, None, UnixMs(7));
        assert_eq!((counted.level, counted.active_cooldown_end(UnixMs(7))), (1, None));
    }

    #[test]
    fn penalty_level_and_times_saturate() {
        let last = Penalty { level: u32::MAX, cooldown_until: UnixMs(0), resets_at: UnixMs(u64::MAX) };
        let next = next_penalty(&SCHEDULE, u64::MAX, Some(last), UnixMs(u64::MAX - 1));
        assert_eq!((next.level, next.cooldown_until), (u32::MAX, UnixMs(u64::MAX)));
    }
}
