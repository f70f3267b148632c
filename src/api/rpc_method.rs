//! Table of RPC methods: kind, and roles that may call. A path outside the table is rejected, and never becomes a
//! metric label or a log field.

use crate::auth::policy::{
    ALL_AUTHENTICATED, AccessPolicy, CLIENTS_AND_GAME_SERVERS, GAME_SERVERS_ONLY, OPERATORS_AND_VIEWERS, OPERATORS_ONLY,
};

/// Kind of a method: unary or streaming, and the component that ends its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcKind {
    /// One request, one response.
    Unary,
    /// Unary, with a duration that grows with the data in memory: the client chooses the deadline.
    LongUnary,
    /// Response stream that the middleware ends when the server drains.
    LayerEndedStream,
    /// Response stream that ends itself after its last responses.
    SelfEndedStream,
}

/// One RPC method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcMethod {
    /// `package.Service/Method`; the label in metrics and logs.
    pub name: &'static str,
    /// Kind of the method.
    pub kind: RpcKind,
    /// Roles that may call it.
    pub access: AccessPolicy,
}

/// Method of each unknown path. Callers must authenticate before they learn that the path does not exist.
pub(super) const METHOD_OF_UNKNOWN_PATH: RpcMethod =
    RpcMethod { name: "other", kind: RpcKind::Unary, access: ALL_AUTHENTICATED };

/// All methods on both ports, the most frequent first.
const RPC_METHODS: [RpcMethod; 59] = [
    unary_method("fireteam.v1.MatchmakingService/UpdateAdvertisement", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.MatchmakingService/Search", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.MatchmakingService/Core", CLIENTS_AND_GAME_SERVERS),
    RpcMethod {
        kind: RpcKind::SelfEndedStream,
        ..unary_method("fireteam.v1.MatchmakingService/Connect", CLIENTS_AND_GAME_SERVERS)
    },
    unary_method("fireteam.v1.MatchmakingService/DeleteAdvertisement", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.MatchmakingService/GetConfiguration", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.MatchmakingService/Reserve", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.MatchmakingService/Release", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.MatchmakingService/StartMatch", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.MatchmakingService/ReportLatency", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.MatchmakingService/ChooseAction", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.MatchmakingService/GrantConsent", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.MatchmakingService/RevokeConsent", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.MatchmakingService/UpdateBlockList", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.LatencyService/GetBeacons", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.LatencyService/ReportTrips", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.LatencyService/AnnounceBeacon", GAME_SERVERS_ONLY),
    unary_method("fireteam.v1.QueueService/Heartbeat", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.QueueService/HostHeartbeat", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.QueueService/Enter", CLIENTS_AND_GAME_SERVERS),
    layer_ended_stream_method("fireteam.v1.QueueService/Watch", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.QueueService/Respond", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.QueueService/Leave", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.QueueService/Mine", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.QueueService/EndMatch", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.RatingService/ReportResult", CLIENTS_AND_GAME_SERVERS),
    unary_method("fireteam.v1.RatingService/GetRatings", ALL_AUTHENTICATED),
    unary_method("fireteam.v1.RatingService/GetLeaderboard", ALL_AUTHENTICATED),
    unary_method("fireteam.v1.RatingService/PredictOutcome", ALL_AUTHENTICATED),
    unary_method("fireteam.v1.RatingService/GetRatingHistory", ALL_AUTHENTICATED),
    unary_method("fireteam.v1.RatingService/SubmitFeedback", CLIENTS_AND_GAME_SERVERS),
    layer_ended_stream_method("fireteam.v1.AllocationService/Allocate", GAME_SERVERS_ONLY),
    unary_method("fireteam.v1.OperatorService/CheckRuleset", OPERATORS_AND_VIEWERS),
    unary_method("fireteam.v1.OperatorService/ReloadRulesets", OPERATORS_ONLY),
    unary_method("fireteam.v1.OperatorService/SwapRuleset", OPERATORS_ONLY),
    unary_method("fireteam.v1.OperatorService/ListRulesets", OPERATORS_AND_VIEWERS),
    unary_method("fireteam.v1.OperatorService/GetRuleset", OPERATORS_AND_VIEWERS),
    RpcMethod {
        kind: RpcKind::LongUnary,
        ..unary_method("fireteam.v1.OperatorService/TryRuleset", OPERATORS_AND_VIEWERS)
    },
    unary_method("fireteam.v1.OperatorService/RetireSet", OPERATORS_ONLY),
    unary_method("fireteam.v1.OperatorService/Drain", OPERATORS_ONLY),
    unary_method("fireteam.v1.OperatorService/Explain", OPERATORS_AND_VIEWERS),
    RpcMethod {
        kind: RpcKind::LongUnary,
        ..unary_method("fireteam.v1.OperatorService/GetStatistics", OPERATORS_AND_VIEWERS)
    },
    layer_ended_stream_method("fireteam.v1.OperatorService/WatchOverview", OPERATORS_AND_VIEWERS),
    unary_method("fireteam.v1.OperatorService/ImportRatings", OPERATORS_ONLY),
    unary_method("fireteam.v1.OperatorService/ReportResult", OPERATORS_ONLY),
    unary_method("fireteam.v1.OperatorService/ExportMatches", OPERATORS_ONLY),
    unary_method("fireteam.v1.OperatorService/CancelMatch", OPERATORS_ONLY),
    unary_method("fireteam.v1.OperatorService/DismissTicket", OPERATORS_ONLY),
    unary_method("fireteam.v1.OperatorService/ListTickets", OPERATORS_AND_VIEWERS),
    unary_method("fireteam.v1.OperatorService/ListMatches", OPERATORS_AND_VIEWERS),
    unary_method("fireteam.v1.OperatorService/GetMatch", OPERATORS_AND_VIEWERS),
    unary_method("fireteam.v1.OperatorService/GetPlayer", OPERATORS_AND_VIEWERS),
    RpcMethod {
        kind: RpcKind::LongUnary,
        ..unary_method("fireteam.v1.OperatorService/CheckConsistency", OPERATORS_AND_VIEWERS)
    },
    RpcMethod { kind: RpcKind::LongUnary, ..unary_method("fireteam.v1.OperatorService/EraseUser", OPERATORS_ONLY) },
    RpcMethod { kind: RpcKind::LongUnary, ..unary_method("fireteam.v1.OperatorService/ExportUser", OPERATORS_ONLY) },
    unary_method("grpc.health.v1.Health/Check", AccessPolicy::Public),
    layer_ended_stream_method("grpc.health.v1.Health/Watch", AccessPolicy::Public),
    layer_ended_stream_method("grpc.reflection.v1.ServerReflection/ServerReflectionInfo", ALL_AUTHENTICATED),
    layer_ended_stream_method("grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", ALL_AUTHENTICATED),
];

/// All methods of `proto/`, generated by `build.rs`.
const PROTO_METHODS: &[&str] = &include!(concat!(env!("OUT_DIR"), "/served.rs"));

// A method of `proto/` without a row does not compile.
const _: () = {
    let mut at = 0;
    while at < PROTO_METHODS.len() {
        assert!(is_in_table(PROTO_METHODS[at]), "a method of proto/ has no row in RPC_METHODS");
        at += 1;
    }
};

const fn is_in_table(name: &str) -> bool {
    let mut at = 0;
    while at < RPC_METHODS.len() {
        if bytes_equal(RPC_METHODS[at].name.as_bytes(), name.as_bytes()) {
            return true;
        }
        at += 1;
    }
    false
}

const fn bytes_equal(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

const fn unary_method(name: &'static str, access: AccessPolicy) -> RpcMethod {
    RpcMethod { name, kind: RpcKind::Unary, access }
}

const fn layer_ended_stream_method(name: &'static str, access: AccessPolicy) -> RpcMethod {
    RpcMethod { name, kind: RpcKind::LayerEndedStream, access }
}

/// Whether a path names a known method.
pub fn is_known_path(path: &str) -> bool {
    method_of_path(path) != METHOD_OF_UNKNOWN_PATH
}

/// Method of a path; `other` for an unknown path.
pub fn method_of_path(path: &str) -> RpcMethod {
    let name = path.strip_prefix('/').unwrap_or(path);
    RPC_METHODS.iter().copied().find(|method| method.name == name).unwrap_or(METHOD_OF_UNKNOWN_PATH)
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost_types::FileDescriptorSet;

    use super::*;
    use crate::api::pb;

    /// Calls of the operator service that change nothing, and give no page of users' data.
    const VIEWED: [&str; 12] = [
        "CheckRuleset",
        "GetRuleset",
        "TryRuleset",
        "ListRulesets",
        "CheckConsistency",
        "Explain",
        "GetStatistics",
        "WatchOverview",
        "ListTickets",
        "ListMatches",
        "GetMatch",
        "GetPlayer",
    ];

    /// SEC-4: a method without a row does not compile; a row with the wrong access fails here.
    #[test]
    fn method_table_has_every_proto_method_with_its_access() {
        for descriptors in [pb::CLIENT_PORT_SERVICE_DESCRIPTORS, pb::OPERATOR_DESCRIPTORS] {
            let set = FileDescriptorSet::decode(descriptors).unwrap();
            for file in &set.file {
                for service in &file.service {
                    for method in &service.method {
                        let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                        let known = method_of_path(&path);
                        assert_eq!(format!("/{}", known.name), path);
                        let streams = !matches!(known.kind, RpcKind::Unary | RpcKind::LongUnary);
                        assert_eq!(streams, method.server_streaming(), "{path}");
                        let expected = match (service.name(), method.name()) {
                            ("OperatorService", name) if VIEWED.contains(&name) => OPERATORS_AND_VIEWERS,
                            ("OperatorService", _) => OPERATORS_ONLY,
                            ("AllocationService", _) | ("LatencyService", "AnnounceBeacon") => GAME_SERVERS_ONLY,
                            ("RatingService", "ReportResult" | "SubmitFeedback") => CLIENTS_AND_GAME_SERVERS,
                            ("RatingService", _) => ALL_AUTHENTICATED,
                            _ => CLIENTS_AND_GAME_SERVERS,
                        };
                        assert_eq!(known.access, expected, "{path}");
                    }
                }
            }
        }
    }

    /// SEC-19: unknown paths share one label.
    #[test]
    fn unknown_method_paths_share_one_label() {
        for path in
            ["", "/", "/fireteam.v1.MatchmakingService/Nothing", "/fireteam.v1.MatchmakingService/Search/", "/x\ny"]
        {
            assert_eq!(method_of_path(path), METHOD_OF_UNKNOWN_PATH, "{path:?}");
        }
    }
}
