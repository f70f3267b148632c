//! The ladder that those climb who let a ready check fail: how long they may not queue, and when it begins anew.

use crate::domain::time::UnixMs;

/// Where somebody stands on the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Penalty {
    /// Failed checks since the ladder last began anew; 1 or more.
    pub rung: u32,
    /// Until when they may not queue; a moment that has come bars nobody.
    pub until: UnixMs,
    /// When the ladder begins anew if no further check fails.
    pub resets_at: UnixMs,
}

impl Penalty {
    /// Until when its holder may not queue, if that is still to come.
    pub fn bars(&self, now: UnixMs) -> Option<UnixMs> {
        Some(self.until).filter(|until| now < *until)
    }

    /// When it means nothing any more and may be forgotten.
    pub fn spent_at(&self) -> UnixMs {
        self.until.max(self.resets_at)
    }
}

/// What a failed check at `now` makes of `before`: the first step of `ladder` (milliseconds) for the first failure, the
/// second for the second, and so on; the last holds from there on. A penalty whose reset has come counts as none. Where
/// the ladder is empty the failure is counted and bars nobody.
pub fn penalise(ladder: &[u32], reset_after_ms: u64, before: Option<Penalty>, now: UnixMs) -> Penalty {
    let counted = before.filter(|before| now < before.resets_at).map_or(0, |before| before.rung);
    let step = ladder.get(counted as usize).or(ladder.last()).copied().unwrap_or(0);
    // A bar that a penalty has already set is never shortened by another failure.
    let set = before.map_or(now, |before| before.until);
    Penalty {
        rung: counted.saturating_add(1),
        until: now.after(u64::from(step)).max(set),
        resets_at: now.after(reset_after_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LADDER: [u32; 3] = [10, 100, 1_000];

    fn fail(before: Option<Penalty>, now: u64) -> Penalty {
        penalise(&LADDER, 5_000, before, UnixMs(now))
    }

    #[test]
    fn each_failure_climbs_a_step_and_the_last_step_holds() {
        let mut penalty = None;
        for (now, until) in [(0, 10), (1_000, 1_100), (2_000, 3_000), (4_000, 5_000), (5_000, 6_000)] {
            penalty = Some(fail(penalty, now));
            assert_eq!(penalty.unwrap().until, UnixMs(until), "at {now}");
        }
        assert_eq!(penalty.unwrap().rung, 5);
    }

    /// SEC-13: half a minute, two, ten and thirty minutes, forgotten in a day. Whoever declines all that is proposed,
    /// and queues again as soon as it is let, spoils five matches in its first hour and two in every further one.
    #[test]
    fn declining_whatever_is_proposed_spoils_little() {
        const MINUTE: u64 = 60_000;
        let ladder = [MINUTE as u32 / 2, 2 * MINUTE as u32, 10 * MINUTE as u32, 30 * MINUTE as u32];
        let (mut spoilt, mut penalty, mut now) = ([0; 48], None, UnixMs(0));
        while let Some(hour) = spoilt.get_mut((now.0 / (60 * MINUTE)) as usize) {
            *hour += 1;
            let next = penalise(&ladder, 24 * 60 * MINUTE, penalty, now);
            (penalty, now) = (Some(next), next.until);
        }
        assert_eq!(spoilt[0], 5);
        assert_eq!(spoilt[1..], [2; 47]);
    }

    #[test]
    fn the_ladder_begins_anew_when_the_time_has_come_and_not_a_moment_sooner() {
        let first = fail(None, 0);
        assert_eq!((first.rung, first.resets_at), (1, UnixMs(5_000)));
        assert_eq!(fail(Some(first), 4_999).rung, 2);
        assert_eq!(fail(Some(first), 5_000), fail(None, 5_000));
    }

    #[test]
    fn a_penalty_bars_until_its_moment_and_is_spent_when_it_also_no_longer_counts() {
        let first = fail(None, 0);
        assert_eq!(first.bars(UnixMs(9)), Some(UnixMs(10)));
        assert_eq!(first.bars(UnixMs(10)), None);
        assert_eq!(first.spent_at(), UnixMs(5_000));
        let long = penalise(&[10_000], 5, None, UnixMs(0));
        assert_eq!(long.spent_at(), UnixMs(10_000));
    }

    #[test]
    fn a_further_failure_never_shortens_a_bar() {
        let long = penalise(&[10_000], 5, None, UnixMs(0));
        assert_eq!(penalise(&[1], 5, Some(long), UnixMs(100)).until, UnixMs(10_000));
    }

    #[test]
    fn an_empty_ladder_bars_nobody() {
        let counted = penalise(&[], 5_000, None, UnixMs(7));
        assert_eq!((counted.rung, counted.bars(UnixMs(7))), (1, None));
    }

    #[test]
    fn moments_and_rungs_at_the_end_of_their_range_stay_there() {
        let last = Penalty { rung: u32::MAX, until: UnixMs(0), resets_at: UnixMs(u64::MAX) };
        let next = penalise(&LADDER, u64::MAX, Some(last), UnixMs(u64::MAX - 1));
        assert_eq!((next.rung, next.until), (u32::MAX, UnixMs(u64::MAX)));
    }
}
