//! Calls and answers of the queue loop as protobuf bytes.

use std::ffi::CStr;

use fireteam_client::pb;
use fireteam_client::queueing::{QueueAnswer, QueueRequest};
use prost::Message;

use crate::identifier::all_fit_id_text;

/// Path of the watch in HTTP/2.
pub(crate) const WATCH_PATH: &CStr = c"/fireteam.v1.QueueService/Watch";

/// RPC of the queue loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueRpc {
    Enter,
    Respond,
    Leave,
    ReportResult,
    Heartbeat,
}

impl QueueRpc {
    /// RPC of a request, and the request as bytes.
    pub(crate) fn encode_request(request: &QueueRequest) -> (Self, Vec<u8>) {
        match request {
            QueueRequest::Enter(request) => (Self::Enter, request.encode_to_vec()),
            QueueRequest::Respond(request) => (Self::Respond, request.encode_to_vec()),
            QueueRequest::Leave(request) => (Self::Leave, request.encode_to_vec()),
            QueueRequest::ReportResult(request) => (Self::ReportResult, request.encode_to_vec()),
            QueueRequest::Heartbeat(request) => (Self::Heartbeat, request.encode_to_vec()),
        }
    }

    /// Path of the method in HTTP/2.
    pub(crate) fn path(self) -> &'static CStr {
        match self {
            Self::Enter => c"/fireteam.v1.QueueService/Enter",
            Self::Respond => c"/fireteam.v1.QueueService/Respond",
            Self::Leave => c"/fireteam.v1.QueueService/Leave",
            Self::ReportResult => c"/fireteam.v1.RatingService/ReportResult",
            Self::Heartbeat => c"/fireteam.v1.QueueService/Heartbeat",
        }
    }

    /// Answer from the bytes of a response. `None` if they are no response of this RPC, or an id in it is none of a fireteam server.
    pub(crate) fn decode(self, body: &[u8]) -> Option<QueueAnswer> {
        match self {
            Self::Enter => {
                let entered = pb::QueueEnterResponse::decode(body).ok()?;
                entered.status.iter().all(status_ids_fit).then(|| QueueAnswer::Enter(Box::new(entered)))
            }
            Self::Respond => {
                let response = pb::QueueRespondResponse::decode(body).ok()?;
                response.status.iter().all(status_ids_fit).then(|| QueueAnswer::Respond(Box::new(response)))
            }
            Self::Leave => Some(QueueAnswer::Leave(Box::new(Message::decode(body).ok()?))),
            Self::ReportResult => Some(QueueAnswer::ReportResult(Box::new(Message::decode(body).ok()?))),
            Self::Heartbeat => Some(QueueAnswer::Heartbeat(Message::decode(body).ok()?)),
        }
    }
}

/// Message of a watch from its bytes, as [`QueueRpc::decode`].
pub(crate) fn decode_watch_message(bytes: &[u8]) -> Option<pb::QueueWatchResponse> {
    pb::QueueWatchResponse::decode(bytes).ok().filter(|message| message.status.iter().all(status_ids_fit))
}

/// Whether the ids of a status fit into a structure of the interface.
fn status_ids_fit(status: &pb::TicketStatus) -> bool {
    let found = status.found_match.iter();
    let hosts = found.clone().filter_map(|it| match it.assignment.as_ref()?.host.as_ref()? {
        pb::assignment::Host::GameServer(server) => Some(&server.advertisement_id),
        pb::assignment::Host::PeerHost(peer) => Some(&peer.player_key),
        pb::assignment::Host::Unhosted(_) => None,
    });
    all_fit_id_text([&status.ticket_id].into_iter().chain(found.map(|it| &it.match_id)).chain(hosts))
}
