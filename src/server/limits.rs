//! Every limit on a connection, with its reason (RELIABILITY section 3.1). tonic leaves most of them open.

use std::time::Duration;

use crate::server::h2_frame_limit::Rate;

/// Limits on connections and their lives.
#[derive(Clone, Debug)]
pub struct EdgeLimits {
    /// Connections in all. Keep it below the limit of file descriptors.
    pub connections_max: usize,
    /// Connections from one IPv4 address or one IPv6 /64.
    pub connections_per_prefix_max: u32,
    /// The same from this machine or a trusted proxy, which carry the connections of many.
    pub connections_per_trusted_peer_max: u32,
    /// How often one place may open a connection, once it has come with all that it may have at once.
    pub connect_interval_per_prefix: Duration,
    /// Connections that may be on their way at once, with TLS or a PROXY header to come; one more sends the oldest away.
    pub handshakes_max: usize,
    /// Streams open at once on one connection: each may hold 400 KiB that its client does not read.
    pub streams_per_connection_max: u32,
    /// The same for this machine and trusted proxies: a proxy carries many clients on one connection.
    pub streams_per_trusted_connection_max: u32,
    /// Frames that ask for nothing, which a stranger's connection may send beside what goes with calls and answers. A client
    /// that sends a PING a second, answers ours, and makes room now and then sends two a second, ten when it connects.
    pub control_frame_rate: Rate,
    /// The same for all connections of one IPv4 address or one IPv6 /64 together: all of them may connect at once.
    pub control_frame_rate_per_prefix: Rate,
    /// How long the first bytes of a connection may take; before that, its PROXY header and its TLS handshake together.
    pub first_bytes_timeout: Duration,
    /// When a connection is asked to go (GOAWAY), so that balancers may spread clients anew.
    pub connection_age: Duration,
    /// How long after that it is closed.
    pub connection_age_grace: Duration,
    /// How long a client may leave bytes unread before its connection is closed.
    pub write_stall_timeout: Duration,
    /// How long a unary call may take; a client may only ask for less.
    pub unary_deadline: Duration,
    /// How long a drained server still takes connections.
    pub drain_delay: Duration,
    /// How long a shutdown may take in all before what is open is closed.
    pub shutdown_grace: Duration,
}

impl Default for EdgeLimits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            connections_per_prefix_max: 64,
            connections_per_trusted_peer_max: 10_000,
            connect_interval_per_prefix: Duration::from_millis(100),
            handshakes_max: 256,
            streams_per_connection_max: 4,
            streams_per_trusted_connection_max: 64,
            control_frame_rate: Rate { burst: 500, interval: Duration::from_millis(10) },
            control_frame_rate_per_prefix: Rate { burst: 2_000, interval: Duration::from_millis(2) },
            first_bytes_timeout: Duration::from_secs(5),
            connection_age: Duration::from_secs(30 * 60),
            connection_age_grace: Duration::from_secs(60),
            write_stall_timeout: Duration::from_secs(30),
            unary_deadline: Duration::from_secs(5),
            drain_delay: Duration::from_millis(200),
            shutdown_grace: Duration::from_secs(9),
        }
    }
}

/// The share of the age that dice may add to it.
const AGE_JITTER_FRACTION: f64 = 0.2;

impl EdgeLimits {
    /// The age at which a connection is asked to go, with `dice` in [0, 1).
    pub fn jittered_connection_age(&self, dice: f64) -> Duration {
        self.connection_age.mul_f64(1.0 + AGE_JITTER_FRACTION * dice)
    }

    /// When a connection is closed whatever it does: after the latest age at which it may be asked to go.
    pub fn connection_lifetime(&self, dice: f64) -> Duration {
        self.jittered_connection_age(1.0) + self.connection_age_grace.mul_f64(1.0 + AGE_JITTER_FRACTION * dice)
    }
}
