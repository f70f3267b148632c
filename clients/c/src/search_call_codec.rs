//! Calls and answers of the search loop as protobuf bytes.

use std::ffi::CStr;

use fireteam_client::matching::{Answer, Request};
use fireteam_client::pb;
use prost::Message;

use crate::identifier::all_fit_id_text;

/// RPC of the search loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SearchRpc {
    ChooseAction,
    GetConfiguration,
    Search,
    ReportLatency,
    Reserve,
    Release,
    UpdateAdvertisement,
    DeleteAdvertisement,
}

impl SearchRpc {
    /// RPC of a request, and the request as bytes.
    pub(crate) fn encode_request(request: &Request) -> (Self, Vec<u8>) {
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
                all_fit_id_text(found.candidates.iter().map(|it| &it.advertisement_id))
                    .then(|| Answer::Search(Box::new(found)))
            }
            Self::ReportLatency => {
                let report = pb::MatchmakingReportLatencyResponse::decode(body).ok()?;
                all_fit_id_text(report.candidates.iter().map(|it| &it.advertisement_id))
                    .then(|| Answer::ReportLatency(Box::new(report)))
            }
            Self::Reserve => {
                let reserved = pb::MatchmakingReserveResponse::decode(body).ok()?;
                all_fit_id_text(reserved.reservation.iter().map(|it| &it.reservation_id))
                    .then(|| Answer::Reserve(Box::new(reserved)))
            }
            Self::Release => pb::MatchmakingReleaseResponse::decode(body).ok().map(|_| Answer::Release),
            Self::UpdateAdvertisement => {
                let updated = pb::MatchmakingUpdateAdvertisementResponse::decode(body).ok()?;
                let ids = updated.reservations.iter().map(|it| &it.reservation_id);
                all_fit_id_text(ids.chain([&updated.advertisement_id]))
                    .then(|| Answer::UpdateAdvertisement(Box::new(updated)))
            }
            Self::DeleteAdvertisement => {
                pb::MatchmakingDeleteAdvertisementResponse::decode(body).ok().map(|_| Answer::DeleteAdvertisement)
            }
        }
    }
}
