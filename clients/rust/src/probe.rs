//! Latency probes: their packets, the prober of one host, and the answers of hosts.

pub use fireteam_probe::{
    ArrivalTime, HostCookieKey, HostProber, HostResponder, ProbeFinding, ProbeKey, ProbeTarget, Verdict, is_probe,
};
