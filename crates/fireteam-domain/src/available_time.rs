//! Deadlines in available time: outages of servers do not count.
//!
//! A deadline was set at a time and passes when as much available time has passed since as its duration. An outage is an
//! interval in which a server refused writes. It counts for deadlines that were set before it began; a deadline that was
//! set later was set through another server, which the client had found.

use crate::time::UnixMs;

/// Tolerance for the start of an outage, milliseconds. A start is known from the last sign of life before it, so a
/// deadline may have been set a little later.
pub const OUTAGE_START_TOLERANCE_MS: u64 = 5_000;

/// Time for which outages may hold up a match before play, in all, milliseconds. Then it is cancelled.
pub const MATCH_START_DELAY_BY_OUTAGES_MAX_MS: u64 = 600_000;

/// Interval in which a server refused writes: from `from` up to, but not including, `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outage {
    /// First millisecond.
    pub from: UnixMs,
    /// End; `UnixMs(u64::MAX)` while the outage lasts.
    pub to: UnixMs,
}

/// Outages of all servers, and servers that are silent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutageTimes {
    /// Outages by start.
    outages: Vec<Outage>,
    /// Last signs of life of servers that have been silent since.
    last_seen_of_silent_servers: Vec<UnixMs>,
}

impl OutageTimes {
    /// No outages.
    pub const NONE: &'static OutageTimes =
        &OutageTimes { outages: Vec::new(), last_seen_of_silent_servers: Vec::new() };

    /// Outages in any order, and the last signs of life of silent servers.
    pub fn new(mut outages: Vec<Outage>, silent_since: Vec<UnixMs>) -> Self {
        outages.retain(|outage| outage.from < outage.to);
        outages.sort_unstable();
        Self { outages, last_seen_of_silent_servers: silent_since }
    }

    /// Whether there are no outages, so that each deadline is in effect as it was set.
    pub fn is_empty(&self) -> bool {
        self.outages.is_empty() && self.last_seen_of_silent_servers.is_empty()
    }

    /// Time at which a deadline passes that was set at `set_at`.
    ///
    /// A deadline that a silent server's clients may have been unable to meet has its whole duration again, once.
    pub fn effective_deadline(&self, set_at: UnixMs, deadline: UnixMs) -> UnixMs {
        if self.is_empty() || deadline <= set_at {
            return deadline;
        }
        let mut end = deadline;
        for counted in self.counted_outages_since(set_at) {
            if end <= counted.from {
                break;
            }
            end = end.plus_ms(counted.to.ms_since(counted.from));
        }
        let is_affected = |since: &UnixMs| is_counted_for_deadline(*since, set_at) && *since < end;
        if self.last_seen_of_silent_servers.iter().any(is_affected) {
            end.plus_ms(deadline.ms_since(set_at))
        } else {
            end
        }
    }

    /// Milliseconds of outages from `since` to `until` that count for deadlines set at `since`.
    pub fn outage_ms_between(&self, since: UnixMs, until: UnixMs) -> u64 {
        self.counted_outages_since(since).map(|counted| counted.to.min(until).ms_since(counted.from)).sum()
    }

    /// Whether between `since` and `until` players may have been unable to reach the store: an outage that counts for deadlines
    /// set at `since`, or a server that has been silent since then.
    pub fn has_interrupted(&self, since: UnixMs, until: UnixMs) -> bool {
        let has_fallen_silent =
            |silent_since: &UnixMs| is_counted_for_deadline(*silent_since, since) && *silent_since < until;
        self.outage_ms_between(since, until) > 0 || self.last_seen_of_silent_servers.iter().any(has_fallen_silent)
    }

    /// The parts after `set_at` of the outages that count for a deadline set then, in order and without overlaps.
    fn counted_outages_since(&self, set_at: UnixMs) -> impl Iterator<Item = Outage> + '_ {
        let counted = self.outages.iter().filter(move |outage| is_counted_for_deadline(outage.from, set_at));
        counted.scan(set_at, |covered_until, outage| {
            let from = outage.from.max(*covered_until);
            let to = outage.to.max(from);
            *covered_until = to;
            Some(Outage { from, to })
        })
    }
}

/// Whether an outage that began at `from` counts for a deadline set at `set_at`.
fn is_counted_for_deadline(from: UnixMs, set_at: UnixMs) -> bool {
    set_at <= from.plus_ms(OUTAGE_START_TOLERANCE_MS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn outages(intervals: &[(u64, u64)]) -> OutageTimes {
        OutageTimes::new(
            intervals.iter().map(|&(from, to)| Outage { from: UnixMs(from), to: UnixMs(to) }).collect(),
            vec![],
        )
    }

    fn effective(times: &OutageTimes, set_at: u64, deadline: u64) -> u64 {
        times.effective_deadline(UnixMs(set_at), UnixMs(deadline)).0
    }

    /// The same, one millisecond after another.
    fn effective_by_steps(intervals: &[(u64, u64)], set_at: u64, deadline: u64) -> u64 {
        let counted = |&&(from, _): &&(u64, u64)| set_at <= from + OUTAGE_START_TOLERANCE_MS;
        let counted: Vec<_> = intervals.iter().filter(counted).collect();
        let (mut now, mut left) = (set_at, deadline.saturating_sub(set_at));
        while left > 0 {
            let is_out = counted.iter().any(|&&(from, to)| from <= now && now < to);
            left -= u64::from(!is_out);
            now += 1;
        }
        now.max(deadline)
    }

    #[test]
    fn deadline_without_outage_is_unchanged() {
        assert_eq!(effective(OutageTimes::NONE, 10, 20), 20);
        assert_eq!(effective(&outages(&[(20, 30)]), 10, 20), 20, "the outage began when the deadline had passed");
        assert_eq!(effective(&outages(&[(0, 5)]), 10, 20), 20, "the outage was over when the deadline was set");
    }

    #[test]
    fn extended_deadline_may_overlap_a_later_outage() {
        assert_eq!(effective(&outages(&[(15, 25), (28, 38)]), 10, 20), 40);
        assert_eq!(effective(&outages(&[(15, 25), (20, 38)]), 10, 20), 43, "overlapping outages count once");
    }

    /// A deadline set long after an outage had begun was set through another server.
    #[test]
    fn deadline_set_during_an_outage_of_another_server_is_unchanged() {
        let times = outages(&[(1_000, 60_000)]);
        assert_eq!(effective(&times, 6_000, 10_000), 64_000, "within the tolerance");
        assert_eq!(effective(&times, 6_001, 10_000), 10_000);
    }

    #[test]
    fn deadline_never_passes_during_an_outage() {
        assert_eq!(effective(&outages(&[(15, u64::MAX)]), 10, 20), u64::MAX);
    }

    #[test]
    fn silent_server_grants_the_whole_duration_once_more() {
        let times = OutageTimes::new(Vec::new(), vec![UnixMs(15), UnixMs(16)]);
        assert_eq!(effective(&times, 10, 20), 30);
        assert_eq!(effective(&times, 10, 15), 15, "it was heard until the deadline");
        assert_eq!(effective(&times, 15 + OUTAGE_START_TOLERANCE_MS + 2, 20_000), 20_000, "set since then");
    }

    #[test]
    fn outage_time_of_a_match_adds_up() {
        let times = outages(&[(15, 25), (20, 30), (50, 60)]);
        assert_eq!(times.outage_ms_between(UnixMs(10), UnixMs(55)), 20);
        assert_eq!(times.outage_ms_between(UnixMs(22), UnixMs(24)), 2);
    }

    #[test]
    fn interruption_is_an_outage_or_silence_that_counts() {
        let times = outages(&[(15, 25), (50, u64::MAX)]);
        let interrupted = |since, until| times.has_interrupted(UnixMs(since), UnixMs(until));
        assert!(!interrupted(10, 15) && interrupted(10, 16), "it begins within");
        assert!(interrupted(24, 30) && !interrupted(25, 50), "it ends within");
        assert!(interrupted(25, 51), "it lasts");
        let silent = OutageTimes::new(Vec::new(), vec![UnixMs(15)]);
        assert!(silent.has_interrupted(UnixMs(10), UnixMs(16)));
        assert!(!silent.has_interrupted(UnixMs(10), UnixMs(15)), "it was heard until then");
        assert!(!silent.has_interrupted(UnixMs(15 + OUTAGE_START_TOLERANCE_MS + 1), UnixMs(90_000)), "since then");
        assert!(!OutageTimes::NONE.has_interrupted(UnixMs(10), UnixMs(90_000)));
    }

    proptest! {
        #[test]
        fn effective_deadline_equals_counting_milliseconds(
            intervals in prop::collection::vec((0_u64..12_000, 0_u64..3_000), 0..6),
            set_at in 0_u64..12_000,
            duration in 0_u64..4_000,
        ) {
            let intervals: Vec<(u64, u64)> = intervals.iter().map(|&(from, length)| (from, from + length)).collect();
            let by_steps = effective_by_steps(&intervals, set_at, set_at + duration);
            prop_assert_eq!(effective(&outages(&intervals), set_at, set_at + duration), by_steps);
        }
    }
}
