//! Calls and answers of the search loop as protobuf bytes.

use std::collections::VecDeque;
use std::ffi::CStr;

use fireteam_client::matching::{Answer, CallError, Request};
use fireteam_client::{Code, Error, pb};
use prost::Message;
use prost::bytes::Bytes;
use tonic::Status;

use crate::types::FT_ID_BYTES;

/// Calls whose late answers are still understood.
const KNOWN_CALLS_MAX: usize = 1_024;

/// RPC of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rpc {
    ChooseAction,
    GetConfiguration,
    Search,
    ReportLatency,
    Reserve,
    Release,
    UpdateAdvertisement,
    DeleteAdvertisement,
}

/// RPCs of the latest calls, by call id.
#[derive(Debug, Default)]
pub(crate) struct KnownCalls(VecDeque<(u64, Rpc)>);

impl KnownCalls {
    /// Remembers a call.
    pub(crate) fn insert(&mut self, id: u64, rpc: Rpc) {
        if self.rpc(id).is_some() {
            return;
        }
        if KNOWN_CALLS_MAX <= self.0.len() {
            self.0.pop_front();
        }
        self.0.push_back((id, rpc));
    }

    /// RPC of a call.
    pub(crate) fn rpc(&self, id: u64) -> Option<Rpc> {
        self.0.iter().rev().find(|(known, _)| *known == id).map(|(_, rpc)| *rpc)
    }
}

impl Rpc {
    /// RPC of a request, and the request as bytes.
    pub(crate) fn of(request: &Request) -> (Self, Vec<u8>) {
        match request {
            Request::ChooseAction(request) => (Self::ChooseAction, request.encode_to_vec()),
            Request::GetConfiguration(request) => (Self::GetConfiguration, request.encode_to_vec()),
            Request::Search(request) => (Self::Search, request.encode_to_vec()),
            Request::ReportLatency(request) => (Self::ReportLatency, request.encode_to_vec()),
            Request::Reserve(request) => (Self::Reserve, request.encode_to_vec()),
            Request::Release(request) => (Self::Release, request.encode_to_vec()),
            Request::UpdateAdvertisement(request) => (Self::UpdateAdvertisement, request.encode_to_vec()),
            Request::DeleteAdvertisement(request) => (Self::DeleteAdvertisement, request.encode_to_vec()),
        }
    }

    /// Path of the method in HTTP/2.
    pub(crate) fn path(self) -> &'static CStr {
        match self {
            Self::ChooseAction => c"/fireteam.v1.MatchmakingService/ChooseAction",
            Self::GetConfiguration => c"/fireteam.v1.MatchmakingService/GetConfiguration",
            Self::Search => c"/fireteam.v1.MatchmakingService/Search",
            Self::ReportLatency => c"/fireteam.v1.MatchmakingService/ReportLatency",
            Self::Reserve => c"/fireteam.v1.MatchmakingService/Reserve",
            Self::Release => c"/fireteam.v1.MatchmakingService/Release",
            Self::UpdateAdvertisement => c"/fireteam.v1.MatchmakingService/UpdateAdvertisement",
            Self::DeleteAdvertisement => c"/fireteam.v1.MatchmakingService/DeleteAdvertisement",
        }
    }

    /// Answer from the bytes of a response. `None` if they are no response of this RPC, or an id in it is none of a fireteam server.
    pub(crate) fn decode(self, body: &[u8]) -> Option<Answer> {
        match self {
            Self::ChooseAction => Some(Answer::ChooseAction(Message::decode(body).ok()?)),
            Self::GetConfiguration => Some(Answer::GetConfiguration(Message::decode(body).ok()?)),
            Self::Search => {
                let found = pb::MatchmakingSearchResponse::decode(body).ok()?;
                are_ids(found.candidates.iter().map(|it| &it.advertisement_id)).then(|| Answer::Search(Box::new(found)))
            }
            Self::ReportLatency => {
                let report = pb::MatchmakingReportLatencyResponse::decode(body).ok()?;
                are_ids(report.candidates.iter().map(|it| &it.advertisement_id))
                    .then(|| Answer::ReportLatency(Box::new(report)))
            }
            Self::Reserve => {
                let reserved = pb::MatchmakingReserveResponse::decode(body).ok()?;
                are_ids(reserved.reservation.iter().map(|it| &it.reservation_id))
                    .then(|| Answer::Reserve(Box::new(reserved)))
            }
            Self::Release => pb::MatchmakingReleaseResponse::decode(body).ok().map(|_| Answer::Release),
            Self::UpdateAdvertisement => {
                let updated = pb::MatchmakingUpdateAdvertisementResponse::decode(body).ok()?;
                let ids = updated.reservations.iter().map(|it| &it.reservation_id);
                are_ids(ids.chain([&updated.advertisement_id])).then(|| Answer::UpdateAdvertisement(Box::new(updated)))
            }
            Self::DeleteAdvertisement => {
                pb::MatchmakingDeleteAdvertisementResponse::decode(body).ok().map(|_| Answer::DeleteAdvertisement)
            }
        }
    }
}

/// Whether each id fits into a structure of the interface, as text with a zero byte at its end.
pub(crate) fn are_ids<'a>(mut ids: impl Iterator<Item = &'a String>) -> bool {
    ids.all(|id| id.len() < FT_ID_BYTES && id.bytes().all(|byte| byte.is_ascii_graphic()))
}

/// Failure with the details of the server. `details` is a `google.rpc.Status`; bytes that are none count as no details.
pub(crate) fn call_error(status: i32, details: &[u8], reason: Option<&str>, retry_after_ms: Option<u64>) -> CallError {
    let details = Bytes::copy_from_slice(details);
    let status = Status::with_details(Code::from_i32(status), "the call failed", details);
    let mut error = CallError::from(&Error::from(status));
    if let Some(reason) = reason.and_then(|name| pb::ErrorReason::from_str_name(&format!("ERROR_REASON_{name}"))) {
        error.reason = reason;
    }
    error.retry_after_ms = retry_after_ms.or(error.retry_after_ms);
    error
}

/// Failure of a call whose answer cannot be read.
pub(crate) fn unreadable() -> CallError {
    let message = "the answer cannot be read".to_owned();
    CallError { code: Code::Internal, reason: pb::ErrorReason::Unspecified, retry_after_ms: None, message }
}
