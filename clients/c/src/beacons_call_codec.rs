//! Calls and answers of the measurement of beacons as protobuf bytes.

use std::ffi::CStr;

use fireteam_client::probe::beacons::{BeaconsAnswer, BeaconsRequest};
use prost::Message;

/// RPC of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BeaconsRpc {
    GetBeacons,
    ReportTrips,
}

impl BeaconsRpc {
    /// RPC of a request, and the request as bytes.
    pub(crate) fn encode_request(request: &BeaconsRequest) -> (Self, Vec<u8>) {
        match request {
            BeaconsRequest::GetBeacons(request) => (Self::GetBeacons, request.encode_to_vec()),
            BeaconsRequest::ReportTrips(request) => (Self::ReportTrips, request.encode_to_vec()),
        }
    }

    /// Path of the method in HTTP/2.
    pub(crate) fn path(self) -> &'static CStr {
        match self {
            Self::GetBeacons => c"/fireteam.v1.LatencyService/GetBeacons",
            Self::ReportTrips => c"/fireteam.v1.LatencyService/ReportTrips",
        }
    }

    /// Answer from the bytes of a response. `None` if they are no response of this RPC.
    pub(crate) fn decode(self, body: &[u8]) -> Option<BeaconsAnswer> {
        match self {
            Self::GetBeacons => Some(BeaconsAnswer::GetBeacons(Message::decode(body).ok()?)),
            Self::ReportTrips => Some(BeaconsAnswer::ReportTrips(Message::decode(body).ok()?)),
        }
    }
}
