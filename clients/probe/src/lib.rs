//! UDP packets of round trip measurements. Three kinds of conversation, all with integers in big-endian order:
//!
//! | conversation | packets |
//! |---|---|
//! | quick probe of a host | [`EchoRequest`] → [`EchoReply`] |
//! | involved probe of a host, with data of the game | [`Involved`] → [`InvolvedReply`] |
//! | receipt of a beacon | [`Hello`] → [`Challenge`] → [`ChallengeProof`] → [`Receipt`] |
//!
//! Each packet starts with the same eight bytes: `FTL`, a version, a type, flags, and a sequence number. A packet of another length,
//! version or type, with unknown flags or with padding that is not zero, is no packet of this protocol: drop it without an answer.
//! An answer is never longer than its question, and nothing is sent unasked, so that no one is flooded through a host or beacon.
//!
//! [`HostResponder`] and [`BeaconResponder`] answer, within limits; [`HostProber`] and [`BeaconProber`] ask, and [`ProbeRun`] counts what it
//! measures, and says when it is enough. The crate has no socket, no clock and no keys of its own: the caller
//! passes bytes, times and random keys.

mod address;
mod beacon;
mod beacon_prober;
mod beacon_responder;
mod echo;
mod error;
#[cfg(feature = "failpoints")]
mod fail_points;
mod header;
mod host_responder;
mod involved;
mod mac;
mod prober;
mod rate_limit;
mod run;

pub use crate::address::AddressPrefix;
pub use crate::beacon::{
    BeaconCookieKey, BeaconKey, Challenge, ChallengeProof, FleetKey, Hello, RECEIPT_ROUND_TRIP_US_MAX, Receipt,
    ReceiptClaims,
};
pub use crate::beacon_prober::{BeaconAnswer, BeaconFinding, BeaconProber, BeaconTarget, CONVERSATIONS_MAX};
pub use crate::beacon_responder::BeaconResponder;
pub use crate::echo::{
    EchoReply, EchoRequest, HostCookieKey, HostStateFlags, PROBE_KEY_LENGTHS, ProbeKey, ReturnedQuestionFields,
};
pub use crate::error::PacketError;
pub use crate::header::{FIXED_PACKET_BYTES, is_probe};
pub use crate::host_responder::{ArrivalAndAnswerTime, HostResponder};
pub use crate::involved::{GAME_DATA_BYTES_MAX, INVOLVED_BYTES_MAX, Involved, InvolvedReply, Verdict};
pub use crate::prober::{HostProber, ProbeFinding, ProbeTarget};
pub use crate::run::{
    LossInterval, PACKETS_PER_RUN_MAX, PACKETS_TO_SILENT_HOST_MAX, ProbeRun, RoundTripStatistics,
    answer_timeout_from_estimate_ms,
};

#[cfg(test)]
mod tests;
