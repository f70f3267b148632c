//! Connection limits and timeouts, with the reason of each value. Most of them are unlimited in tonic by default.

use std::time::Duration;

use crate::server::token_bucket::Rate;

/// Limits and timeouts of connections.
#[derive(Clone, Debug)]
pub struct EdgeLimits {
    /// Connections of untrusted peers in total. Keep the sum with `trusted_connections_max` below the limit of file
    /// descriptors.
    pub untrusted_connections_max: usize,
    /// Connections from loopback and from trusted proxies in total, beside `untrusted_connections_max`.
    pub trusted_connections_max: usize,
    /// Connections per client prefix: an IPv4 address or an IPv6 /64.
    pub connections_per_host_max: u32,
    /// Connections per IPv6 /56, which a provider may give to one household: four times as many as for a /64.
    pub connections_per_site_max: u32,
    /// Connections per IPv4 /24 or IPv6 /48, which one customer of a hosting provider may hold. A carrier has several
    /// thousand players behind one.
    pub connections_per_network_max: u32,
    /// Connections from loopback or from one trusted proxy, which carry many clients.
    pub connections_per_trusted_peer_max: u32,
    /// Life of a connection on which no identity was accepted, from 80 % of `untrusted_connections_max` on. A client connects and
    /// sends its first call in less.
    pub crowded_unidentified_age_max: Duration,
    /// Interval at which a client prefix may open connections, after a burst of `connections_per_host_max`.
    pub connect_interval_per_host: Duration,
    /// Interval at which an IPv6 /56, an IPv4 /24 or an IPv6 /48 may open connections, after a burst of its limit.
    pub connect_interval_per_network: Duration,
    /// Connections waiting for a PROXY header or a TLS handshake. One more closes the oldest.
    pub handshakes_max: usize,
    /// Concurrent streams per connection. Each may hold 400 KiB that its client does not read.
    pub streaming_calls_per_untrusted_connection_max: u32,
    /// Concurrent streams per connection from loopback or a trusted proxy, which carries many clients.
    pub streaming_calls_per_trusted_connection_max: u32,
    /// Rate of control frames per untrusted connection, beyond those that belong to calls. A client that sends one PING
    /// per second, answers pings and updates windows needs two per second, and ten when it connects.
    pub control_frame_rate_per_connection: Rate,
    /// Rate of control frames for all connections of a client prefix together. All of them may connect at once.
    pub control_frame_rate_per_host: Rate,
    /// Timeout for the first bytes of a connection. Also the timeout for its PROXY header and TLS handshake together.
    pub first_bytes_timeout: Duration,
    /// Age at which a connection receives GOAWAY, so that load balancers can distribute clients again.
    pub connection_age: Duration,
    /// Delay from GOAWAY until the connection is closed.
    pub connection_age_grace: Duration,
    /// Time that a client may leave response bytes unread before its connection is closed.
    pub write_stall_timeout: Duration,
    /// Deadline of a unary call. A client may set a shorter one.
    pub unary_deadline: Duration,
    /// Time that a draining server still accepts connections.
    pub drain_delay: Duration,
    /// Duration of a shutdown after which open connections are closed.
    pub shutdown_grace: Duration,
}

impl Default for EdgeLimits {
    fn default() -> Self {
        Self {
            untrusted_connections_max: 10_000,
            trusted_connections_max: 10_000,
            connections_per_host_max: 64,
            connections_per_site_max: 256,
            connections_per_network_max: 2_048,
            connections_per_trusted_peer_max: 10_000,
            crowded_unidentified_age_max: Duration::from_secs(2),
            connect_interval_per_host: Duration::from_millis(100),
            connect_interval_per_network: Duration::from_millis(10),
            handshakes_max: 1_024,
            streaming_calls_per_untrusted_connection_max: 4,
            streaming_calls_per_trusted_connection_max: 64,
            control_frame_rate_per_connection: Rate { burst: 500, interval: Duration::from_millis(10) },
            control_frame_rate_per_host: Rate { burst: 2_000, interval: Duration::from_millis(2) },
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

/// Limit of the random part added to the connection age, as a fraction of the age.
const AGE_JITTER_FRACTION: f64 = 0.2;

impl EdgeLimits {
    /// Age at which a connection receives GOAWAY; `jitter` is random in [0, 1).
    pub fn jittered_connection_age(&self, jitter: f64) -> Duration {
        self.connection_age.mul_f64(1.0 + AGE_JITTER_FRACTION * jitter)
    }

    /// Age at which a connection is closed in any case: after the latest possible GOAWAY and its grace period.
    pub fn connection_lifetime(&self, jitter: f64) -> Duration {
        self.jittered_connection_age(1.0) + self.connection_age_grace.mul_f64(1.0 + AGE_JITTER_FRACTION * jitter)
    }
}
