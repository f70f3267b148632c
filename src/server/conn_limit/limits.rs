//! Limits of connections.

use std::time::Duration;

use crate::server::token_bucket::Rate;

/// Limits of a `ConnectionLimiter`.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Connections of untrusted peers in total.
    pub untrusted_total: usize,
    /// Connections of trusted peers in total.
    pub trusted_total: usize,
    /// Connections per client prefix; also the burst of new connections after a pause.
    pub per_host: u32,
    /// Connections per IPv6 /56; also the burst of new connections after a pause.
    pub per_site: u32,
    /// Connections per IPv4 /24 or IPv6 /48; also the burst of new connections after a pause.
    pub per_network: u32,
    /// Connections per trusted peer.
    pub per_trusted_peer: u32,
    /// Interval at which a prefix may open connections; trusted peers are not limited.
    pub host_connect_interval: Duration,
    /// Interval at which an IPv6 /56, an IPv4 /24 or an IPv6 /48 may open connections.
    pub network_connect_interval: Duration,
    /// Rate of control frames per prefix; trusted peers are not limited.
    pub control_frame_rate_per_host: Rate,
    /// Life of a connection without an identity while few places are free.
    pub crowded_unidentified_age_max: Duration,
}
