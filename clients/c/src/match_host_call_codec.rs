//! Calls and answers of a host of matches as protobuf bytes.

use std::ffi::CStr;

use fireteam_client::match_hosting::{HostAnswer, HostRequest};
use fireteam_client::pb;
use prost::Message;

use crate::identifier::all_fit_id_text;

/// RPC of a host of matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchHostRpc {
    Heartbeat,
    EndMatch,
    ReportResult,
}

impl MatchHostRpc {
    /// RPC of a request, and the request as bytes.
    pub(crate) fn encode_request(request: &HostRequest) -> (Self, Vec<u8>) {
        match request {
            HostRequest::Heartbeat(request) => (Self::Heartbeat, request.encode_to_vec()),
            HostRequest::EndMatch(request) => (Self::EndMatch, request.encode_to_vec()),
            HostRequest::ReportResult(request) => (Self::ReportResult, request.encode_to_vec()),
        }
    }

    /// Path of the method in HTTP/2.
    pub(crate) fn path(self) -> &'static CStr {
        match self {
            Self::Heartbeat => c"/fireteam.v1.QueueService/HostHeartbeat",
            Self::EndMatch => c"/fireteam.v1.QueueService/EndMatch",
            Self::ReportResult => c"/fireteam.v1.RatingService/ReportResult",
        }
    }

    /// Answer from the bytes of a response. `None` if they are no response of this RPC, or an id in it is none of a fireteam server.
    pub(crate) fn decode(self, body: &[u8]) -> Option<HostAnswer> {
        match self {
            Self::Heartbeat => {
                let response = pb::QueueHostHeartbeatResponse::decode(body).ok()?;
                let ids = response.matches.iter().map(|it| &it.match_id).chain(&response.hosted_match_ids);
                all_fit_id_text(ids).then(|| HostAnswer::Heartbeat(Box::new(response)))
            }
            Self::EndMatch => Some(HostAnswer::EndMatch(Message::decode(body).ok()?)),
            Self::ReportResult => Some(HostAnswer::ReportResult(Box::new(Message::decode(body).ok()?))),
        }
    }
}
