//! Throttle for NOTIFY.

use std::time::Duration;

use tokio::time::Instant;

/// Minimum interval between notifications of the other servers. They find other changes at their next poll.
const NOTIFY_INTERVAL: Duration = Duration::from_millis(100);

/// Throttle for NOTIFY. A notification takes a lock that all commits of the database share, so not every commit sends
/// one.
#[derive(Debug, Default)]
pub(in crate::store::postgres) struct NotifyThrottle {
    last_notified: Option<Instant>,
}

impl NotifyThrottle {
    pub(in crate::store::postgres) fn should_notify(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.last_notified.is_none_or(|last| now.duration_since(last) >= NOTIFY_INTERVAL);
        if is_due {
            self.last_notified = Some(now);
        }
        is_due
    }
}
