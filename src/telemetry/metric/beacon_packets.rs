//! Counters of one beacon's packets.

use prometheus_client::metrics::counter::Counter;

/// Packets of one beacon by outcome, without a look-up for each packet. Clones share their counts.
#[derive(Clone, Debug, Default)]
pub struct BeaconPacketCounters {
    /// Packets whose answer was sent.
    pub answered: Counter,
    /// Packets without an answer: invalid, over a limit, or not sendable.
    pub dropped: Counter,
}
