//! Pacing of a change feed: when a reader reads again, and which commits notify the readers.
//!
//! A commit that notifies holds a lock that all notifying commits of the database cluster share, until it is synced. So
//! commits notify only when readers may have stopped reading. While changes are found, readers read again after a short
//! pause, without notifications. Once no change is known for `QUIET_TIME`, the next commit notifies. A reader stops only
//! after `READ_ON_TIME`, which is longer: so a commit that does not notify is read within a pause. If a notification is
//! lost, the next poll finds the change.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Time without a known change after which a commit notifies the other servers.
const QUIET_TIME: Duration = Duration::from_millis(20);

/// Time without a known change after which a reader waits for a notification. The difference to `QUIET_TIME` allows for
/// the time that a commit takes, and for servers that learn of a change at different times.
const READ_ON_TIME: Duration = Duration::from_millis(100);

/// Interval between reads while no change is known.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Pause after a read that found changes.
const PAUSE_AFTER_CHANGES: Duration = Duration::from_millis(5);

/// Pause after a read that found no change.
const PAUSE_WITHOUT_CHANGES: Duration = Duration::from_millis(10);

/// Least pause, as a multiple of the duration of the read before it. It limits the share of time in which a reader loads
/// the database to a third.
const PAUSE_PER_READ_TIME: u32 = 2;

/// Time of the last change that this server knows of, by itself or by another server. Its write session and its feed of
/// one kind of change share it.
#[derive(Clone, Debug, Default)]
pub(in crate::store::postgres) struct LastKnownChange(watch::Sender<Option<Instant>>);

impl LastKnownChange {
    /// Records a change that was committed or read just now.
    pub(in crate::store::postgres) fn record_change(&self) {
        self.0.send_replace(Some(Instant::now()));
    }

    /// Whether readers may have stopped reading, so that a commit must notify them.
    pub(in crate::store::postgres) fn is_quiet(&self) -> bool {
        fail::fail_point!("skip_notifications", |_| false);
        is_older_than(*self.0.borrow(), QUIET_TIME, Instant::now())
    }
}

/// Whether no change is known in the `period` before `now`.
fn is_older_than(last_change: Option<Instant>, period: Duration, now: Instant) -> bool {
    last_change.is_none_or(|last_change| now.duration_since(last_change) >= period)
}

/// A read of the feed that has ended.
#[derive(Clone, Copy, Debug)]
struct EndedRead {
    ended_at: Instant,
    duration: Duration,
    result: ReadResult,
}

/// Result of a read of the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::postgres) enum ReadResult {
    /// Changes were found.
    Changes,
    /// No change was found.
    NoChanges,
    /// The read failed.
    Failed,
}

/// Pacing of one reader.
#[derive(Debug)]
pub(in crate::store::postgres) struct FeedPacing {
    last_change: LastKnownChange,
    changes: watch::Receiver<Option<Instant>>,
    last_read: Option<EndedRead>,
}

impl FeedPacing {
    pub(in crate::store::postgres) fn new(last_change: LastKnownChange) -> Self {
        let changes = last_change.0.subscribe();
        Self { last_change, changes, last_read: None }
    }

    /// Records a read that began at `started_at` and has just ended.
    pub(in crate::store::postgres) fn record_read(&mut self, started_at: Instant, result: ReadResult) {
        let ended_at = Instant::now();
        if result == ReadResult::Changes {
            self.last_change.record_change();
        }
        self.last_read = Some(EndedRead { ended_at, duration: ended_at.duration_since(started_at), result });
    }

    /// Waits until the next read is due; less if `notified` ends before.
    pub(in crate::store::postgres) async fn wait(&mut self, notified: impl Future<Output = ()>) {
        tokio::pin!(notified);
        let wait_started_at = Instant::now();
        loop {
            let last_change = *self.changes.borrow_and_update();
            let next_read = next_read_at(self.last_read, last_change, wait_started_at, Instant::now());
            tokio::select! {
                () = &mut notified => return,
                () = tokio::time::sleep_until(next_read.at) => return,
                // Fails only if the sender is dropped, and `self` holds it.
                _ = self.changes.changed(), if next_read.is_poll => {}
            }
        }
    }
}

/// Time of the next read, and whether it is a poll: no change is known that it could follow.
struct NextRead {
    at: Instant,
    is_poll: bool,
}

/// Time of the next read after `last_read`, if no notification arrives. The reader has waited since `wait_started_at`.
fn next_read_at(
    last_read: Option<EndedRead>,
    last_change: Option<Instant>,
    wait_started_at: Instant,
    now: Instant,
) -> NextRead {
    let pause = match last_read.map(|last_read| last_read.result) {
        None | Some(ReadResult::Failed) => return NextRead { at: wait_started_at + POLL_INTERVAL, is_poll: false },
        Some(_) if is_older_than(last_change, read_on_time(), now) => {
            return NextRead { at: wait_started_at + poll_interval(), is_poll: true };
        }
        Some(ReadResult::Changes) => PAUSE_AFTER_CHANGES,
        Some(ReadResult::NoChanges) => PAUSE_WITHOUT_CHANGES,
    };
    let read_time = last_read.map_or(Duration::ZERO, |last_read| last_read.duration);
    let pause = pause.max(read_time * PAUSE_PER_READ_TIME).min(POLL_INTERVAL);
    // A change of this server after the last read begins the pause again: another server's may follow it.
    let from = last_read.map(|last_read| last_read.ended_at).max(last_change).unwrap_or(wait_started_at);
    NextRead { at: from + pause, is_poll: false }
}

/// Time for which a reader reads on; none with the fail point `stop_reading_early`.
fn read_on_time() -> Duration {
    fail::fail_point!("stop_reading_early", |_| Duration::ZERO);
    READ_ON_TIME
}

/// Interval between polls; with the fail point `slow_feed_polls`, so long that only notifications and pauses matter.
fn poll_interval() -> Duration {
    fail::fail_point!("slow_feed_polls", |_| Duration::from_secs(3_600));
    POLL_INTERVAL
}

#[cfg(test)]
mod tests;
