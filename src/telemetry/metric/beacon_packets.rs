//! Counters of one beacon's packets.

use prometheus_client::metrics::counter::Counter;

use crate::telemetry::label::BeaconPacketOutcome;
use crate::telemetry::metric::Metrics;

/// Packets of one beacon by outcome, without a look-up for each packet. Clones share their counts.
#[derive(Clone, Debug, Default)]
pub struct BeaconPacketCounters {
    /// Packets whose answer was sent.
    pub answered: Counter,
    /// Packets without an answer: invalid, over a limit, or not sendable.
    pub dropped: Counter,
}

impl Metrics {
    /// Counters of this process's beacon, which a scrape contains.
    pub fn beacon_packet_counters(&self) -> BeaconPacketCounters {
        let counter = |outcome| self.beacon_packets.get_or_create(&outcome).clone();
        BeaconPacketCounters {
            answered: counter(BeaconPacketOutcome::Answered),
            dropped: counter(BeaconPacketOutcome::Dropped),
        }
    }
}
