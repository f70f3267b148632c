//! The ladder that those climb who let a ready check fail: how long they may not queue, and when it begins anew.

use crate::time::UnixMs;

/// Where somebody stands on the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Penalty {
    /// Failed checks since the ladder last began anew; 1 or more.
    pub level: u32,
    /// Until when they may not queue; a moment that has come bars nobody.
    pub cooldown_until: UnixMs,
    /// When the ladder begins anew if no further check fails.
    pub resets_at: UnixMs,
}

impl Penalty {
    /// Until when its holder may not queue, if that is still to come.
    pub fn active_cooldown(&self, now: UnixMs) -> Option<UnixMs> {
        Some(self.cooldown_until).filter(|until| now < *until)
    }

    /// When it means nothing any more and may be forgotten.
    pub fn expires_at(&self) -> UnixMs {
        self.cooldown_until.max(self.resets_at)
    }
}

/// What a failed check at `now` makes of `before`: the first step of `ladder` (milliseconds) for the first failure, the
/// second for the second, and so on; the last holds from there on. A penalty whose reset has come counts as none. Where
/// the ladder is empty the failure is counted and bars nobody.
pub fn next_penalty(ladder: &[u32], reset_after_ms: u64, before: Option<Penalty>, now: UnixMs) -> Penalty {
    let counted = before.filter(|before| now < before.resets_at).map_or(0, |before| before.level);
    let step = ladder.get(counted as usize).or(ladder.last()).copied().unwrap_or(0);
    // A bar that a penalty has already set is never shortened by another failure.
    let set = before.map_or(now, |before| before.cooldown_until);
    Penalty {
        level: counted.saturating_add(1),
        cooldown_until: now.plus_ms(u64::from(step)).max(set),
        resets_at: now.plus_ms(reset_after_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// SEC-13: half a minute, two, ten and thirty minutes, forgotten in a day. Whoever declines all that is proposed,
    /// and queues again as soon as it is let, spoils five matches in its first hour and two in every further one.
    #[test]
    fn penalty_limits_matches_spoiled_by_constant_declining() {
        const MINUTE: u64 = 60_000;
        let ladder = [MINUTE as u32 / 2, 2 * MINUTE as u32, 10 * MINUTE as u32, 30 * MINUTE as u32];
        let (mut spoilt, mut penalty, mut now) = ([0; 48], None, UnixMs(0));
        while let Some(hour) = spoilt.get_mut((now.0 / (60 * MINUTE)) as usize) {
            *hour += 1;
            let next = next_penalty(&ladder, 24 * 60 * MINUTE, penalty, now);
            (penalty, now) = (Some(next), next.cooldown_until);
        }
        assert_eq!(spoilt[0], 5);
        assert_eq!(spoilt[1..], [2; 47]);
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
        assert_eq!(first.active_cooldown(UnixMs(9)), Some(UnixMs(10)));
        assert_eq!(first.active_cooldown(UnixMs(10)), None);
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
        assert_eq!((counted.level, counted.active_cooldown(UnixMs(7))), (1, None));
    }

    #[test]
    fn penalty_level_and_times_saturate() {
        let last = Penalty { level: u32::MAX, cooldown_until: UnixMs(0), resets_at: UnixMs(u64::MAX) };
        let next = next_penalty(&SCHEDULE, u64::MAX, Some(last), UnixMs(u64::MAX - 1));
        assert_eq!((next.level, next.cooldown_until), (u32::MAX, UnixMs(u64::MAX)));
    }
}
