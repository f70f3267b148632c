//! Clock of a loop on a tokio runtime: the time that its state machine counts in.

use tokio::time::Instant;

use crate::matching::MonotonicTime;

/// Time since the loop was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunClock {
    start: Instant,
}

impl RunClock {
    /// Clock that starts now.
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Time now.
    pub(crate) fn now(self) -> MonotonicTime {
        MonotonicTime::default() + self.start.elapsed()
    }

    /// Waits until a time, or for ever without one.
    pub(crate) async fn sleep_until(self, time: Option<MonotonicTime>) {
        match time {
            Some(time) => tokio::time::sleep_until(self.start + time.since(MonotonicTime::default())).await,
            None => std::future::pending().await,
        }
    }
}
