//! Limit of the probes that one client sends in all.

use std::time::Duration;

use crate::matching::monotonic_time::MonotonicTime;

/// Interval of packets: at most 40 a second.
const PACKET_INTERVAL: Duration = Duration::from_millis(25);

/// Probes that may still be sent. Spacing them evenly, instead of granting bursts, also keeps them from delaying each other.
#[derive(Debug, Default)]
pub(crate) struct PacketBudget {
    next_at: MonotonicTime,
}

impl PacketBudget {
    /// Time from which the next packet may be sent.
    pub(crate) fn next_at(&self) -> MonotonicTime {
        self.next_at
    }

    /// Records a packet that is sent now. One that could not wait for its time delays the next.
    pub(crate) fn record_sent_packet(&mut self, now: MonotonicTime) {
        self.next_at = self.next_at.max(now) + PACKET_INTERVAL;
    }
}
