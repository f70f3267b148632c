//! Scripted matchmaking server: responses as bytes.

use std::collections::BTreeMap;

use fireteam_client::pb;
use prost::Message;

/// Responses of a server with these hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    pub(crate) advertises: bool,
    pub(crate) hosts: BTreeMap<u8, pb::ProbeEndpoint>,
}

/// Advertisement id of a host.
pub(crate) fn id(host: u8) -> String {
    format!("{host:016x}{:016x}", 0)
}

impl Script {
    fn candidate(&self, number: u8, round_trip_ms: f32) -> pb::Candidate {
        let probe = self.hosts.get(&number).cloned();
        let round_trip_ms = Some(round_trip_ms);
        pb::Candidate { advertisement_id: id(number), probe, round_trip_ms, ..Default::default() }
    }

    /// Response of an RPC.
    pub(crate) fn respond(&self, path: &str, request: &[u8]) -> Vec<u8> {
        match path.rsplit('/').next().unwrap_or_default() {
            "ChooseAction" => {
                let action =
                    if self.advertises { pb::MatchmakingAction::Advertise } else { pb::MatchmakingAction::Search };
                pb::MatchmakingChooseActionResponse { action: action.into(), ..Default::default() }.encode_to_vec()
            }
            "Search" => {
                let probe_players = pb::ProbePlayers::Never.into();
                let plan = pb::LatencyPlan { quick: 8, involved: 2, probe_players, quick_timeout_ms: 3_000 };
                pb::MatchmakingSearchResponse {
                    candidates: self.hosts.keys().map(|number| self.candidate(*number, 50.0)).collect(),
                    search_token: b"token".to_vec(),
                    next_expansion_in_ms: Some(1_000),
                    latency_plan: Some(plan),
                    ..Default::default()
                }
                .encode_to_vec()
            }
            "ReportLatency" => self.report(&pb::MatchmakingReportLatencyRequest::decode(request).unwrap()),
            "Reserve" => {
                let reserve = pb::MatchmakingReserveRequest::decode(request).unwrap();
                let reservation = pb::Reservation {
                    reservation_id: "5".repeat(32),
                    reservation_token: b"secret".to_vec(),
                    seats: 1,
                    expires_in_ms: 15_000,
                };
                let connect_data = format!("to {}", reserve.advertisement_id).into_bytes();
                pb::MatchmakingReserveResponse { reservation: Some(reservation), connect_data }.encode_to_vec()
            }
            "UpdateAdvertisement" => pb::MatchmakingUpdateAdvertisementResponse {
                advertisement_id: id(99),
                advertisement_token: b"owner".to_vec(),
                created: true,
                expires_in_ms: 30_000,
                next_beat_in_ms: Some(2_000),
                ..Default::default()
            }
            .encode_to_vec(),
            _ => Vec::new(),
        }
    }

    /// Orders the hosts that answered by their round trips.
    fn report(&self, report: &pb::MatchmakingReportLatencyRequest) -> Vec<u8> {
        let answered = report.measurements.iter().filter_map(|it| {
            let number = u8::from_str_radix(&it.advertisement_id[..16], 16).unwrap();
            Some(self.candidate(number, it.round_trip_ms?))
        });
        let mut candidates: Vec<_> = answered.collect();
        candidates.sort_by(|left, right| left.round_trip_ms.partial_cmp(&right.round_trip_ms).unwrap());
        pb::MatchmakingReportLatencyResponse {
            involved_phase_may_start: report.phase() == pb::LatencyPhase::Quick,
            search_token: b"token".to_vec(),
            candidates,
            ..Default::default()
        }
        .encode_to_vec()
    }
}
