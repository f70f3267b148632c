//! Latency probes: the answers of hosts on a socket, and the parts without a socket from the packet library.

#[cfg(feature = "runtime")]
mod responder;

pub use fireteam_probe::{
    ArrivalTime, HostCookieKey, HostProber, HostResponder, ProbeFinding, ProbeKey, ProbeTarget, Verdict, is_probe,
};
#[cfg(feature = "runtime")]
pub use responder::Responder;
