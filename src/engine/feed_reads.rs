//! Times of the last reads of the change feeds, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::domain::time::UnixMs;
use crate::telemetry::label::FeedLabel;

/// Time of the last successful read of each feed; 0 before the first.
#[derive(Debug, Default)]
pub(crate) struct FeedReads([AtomicU64; FeedLabel::ALL.len()]);

impl FeedReads {
    /// Records a successful read at `now`.
    pub(crate) fn record(&self, feed: FeedLabel, now: UnixMs) {
        self.0[feed as usize].fetch_max(now.0, Ordering::Relaxed);
    }

    /// Times since the last reads, milliseconds, of the feeds that were read.
    pub(crate) fn ages_ms(&self, now: UnixMs) -> impl Iterator<Item = (FeedLabel, u64)> + '_ {
        let read_at = FeedLabel::ALL.iter().zip(&self.0).map(|(feed, at)| (*feed, UnixMs(at.load(Ordering::Relaxed))));
        read_at.filter(|(_, at)| at.0 != 0).map(move |(feed, at)| (feed, now.ms_since(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feed_age_is_the_time_since_its_last_read() {
        let reads = FeedReads::default();
        assert_eq!(reads.ages_ms(UnixMs(5_000)).count(), 0, "a store of one server has no feed");
        reads.record(FeedLabel::Queues, UnixMs(4_000));
        reads.record(FeedLabel::Queues, UnixMs(3_000));
        assert_eq!(reads.ages_ms(UnixMs(5_500)).collect::<Vec<_>>(), [(FeedLabel::Queues, 1_500)]);
        reads.record(FeedLabel::Advertisements, UnixMs(6_000));
        let ages = [(FeedLabel::Advertisements, 1_000), (FeedLabel::Queues, 3_000)];
        assert_eq!(reads.ages_ms(UnixMs(7_000)).collect::<Vec<_>>(), ages);
    }
}
