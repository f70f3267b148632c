//! Latency probes: the answers of hosts on a socket, and the parts without a socket from the packet library.

mod responder;

pub use fireteam_probe::{
    ArrivalTime, HostCookieKey, HostProber, HostResponder, ProbeFinding, ProbeKey, ProbeTarget, Verdict, is_probe,
};
pub use responder::Responder;
