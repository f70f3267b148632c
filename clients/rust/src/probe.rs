//! Latency probes: the answers of hosts on a socket, the measurement of beacons, and the parts without a socket from the packet library.

pub mod beacons;
#[cfg(feature = "runtime")]
mod responder;

pub use beacons::Beacons;
pub use fireteam_probe::{
    ArrivalAndAnswerTime, HostCookieKey, HostProber, HostResponder, ProbeFinding, ProbeKey, ProbeTarget, Verdict,
    is_probe,
};
#[cfg(feature = "runtime")]
pub use responder::Responder;
