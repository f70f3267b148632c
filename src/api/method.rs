//! The methods that there are: how each speaks and who may call it. What is not in this table is
//! refused, and what a stranger writes into a path never becomes a label or a log line (SEC-4, SEC-19).

use crate::auth::policy::{Access, IDENTIFIED, OPERATORS, PLAYERS};

/// How a method speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One request, one answer.
    Unary,
    /// The same, but the more there is in memory the longer it takes: its client says how long it will wait.
    Patient,
    /// A stream that the layer ends when the server goes away.
    Stream,
    /// A stream that ends itself, after its last answers.
    Conversation,
}

/// One method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// `package.Service/Method`; the label in metrics and logs.
    pub name: &'static str,
    /// How it speaks.
    pub shape: Shape,
    /// Who may call it.
    pub access: Access,
}

/// What every unknown path is called. Whoever calls it has to show who they are before they hear that it is not there.
const OTHER: Method = Method { name: "other", shape: Shape::Unary, access: IDENTIFIED };

/// Every method that the server serves, on either port; the most frequent first.
const METHODS: [Method; 37] = [
    unary("fireteam.v1.MatchmakingService/UpdateAdvertisement", PLAYERS),
    unary("fireteam.v1.MatchmakingService/Search", PLAYERS),
    unary("fireteam.v1.MatchmakingService/Core", PLAYERS),
    Method { shape: Shape::Conversation, ..unary("fireteam.v1.MatchmakingService/Connect", PLAYERS) },
    unary("fireteam.v1.MatchmakingService/DeleteAdvertisement", PLAYERS),
    unary("fireteam.v1.MatchmakingService/GetConfiguration", PLAYERS),
    unary("fireteam.v1.MatchmakingService/Reserve", PLAYERS),
    unary("fireteam.v1.MatchmakingService/Release", PLAYERS),
    unary("fireteam.v1.MatchmakingService/ReportLatency", PLAYERS),
    unary("fireteam.v1.MatchmakingService/ChooseAction", PLAYERS),
    unary("fireteam.v1.MatchmakingService/GrantConsent", PLAYERS),
    unary("fireteam.v1.QueueService/Heartbeat", PLAYERS),
    unary("fireteam.v1.QueueService/Enter", PLAYERS),
    stream("fireteam.v1.QueueService/Watch", PLAYERS),
    unary("fireteam.v1.QueueService/Respond", PLAYERS),
    unary("fireteam.v1.QueueService/Leave", PLAYERS),
    unary("fireteam.v1.QueueService/EndMatch", PLAYERS),
    unary("fireteam.v1.RatingService/ReportResult", PLAYERS),
    unary("fireteam.v1.RatingService/GetRatings", PLAYERS),
    unary("fireteam.v1.RatingService/GetLeaderboard", PLAYERS),
    unary("fireteam.v1.RatingService/PredictOutcome", PLAYERS),
    unary("fireteam.v1.RatingService/GetRatingHistory", PLAYERS),
    unary("fireteam.v1.RatingService/SubmitFeedback", PLAYERS),
    unary("fireteam.v1.OperatorService/CheckRuleset", OPERATORS),
    unary("fireteam.v1.OperatorService/ReloadRulesets", OPERATORS),
    unary("fireteam.v1.OperatorService/ListRulesets", OPERATORS),
    unary("fireteam.v1.OperatorService/Drain", OPERATORS),
    unary("fireteam.v1.OperatorService/Explain", OPERATORS),
    unary("fireteam.v1.OperatorService/GetStatistics", OPERATORS),
    unary("fireteam.v1.OperatorService/ImportRatings", OPERATORS),
    unary("fireteam.v1.OperatorService/ReportResult", OPERATORS),
    unary("fireteam.v1.OperatorService/ExportMatches", OPERATORS),
    Method { shape: Shape::Patient, ..unary("fireteam.v1.OperatorService/CheckConsistency", OPERATORS) },
    unary("grpc.health.v1.Health/Check", Access::Anyone),
    stream("grpc.health.v1.Health/Watch", Access::Anyone),
    stream("grpc.reflection.v1.ServerReflection/ServerReflectionInfo", IDENTIFIED),
    stream("grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", IDENTIFIED),
];

/// Every method of `proto/`, as `build.rs` has read it.
const SERVED: &[&str] = &include!(concat!(env!("OUT_DIR"), "/served.rs"));

/// A method without a row does not build (SEC-4).
const _: () = {
    let mut at = 0;
    while at < SERVED.len() {
        assert!(has_row(SERVED[at]), "a method of proto/ has no row in METHODS");
        at += 1;
    }
};

const fn has_row(name: &str) -> bool {
    let mut at = 0;
    while at < METHODS.len() {
        if is_same(METHODS[at].name.as_bytes(), name.as_bytes()) {
            return true;
        }
        at += 1;
    }
    false
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

const fn unary(name: &'static str, access: Access) -> Method {
    Method { name, shape: Shape::Unary, access }
}

const fn stream(name: &'static str, access: Access) -> Method {
    Method { name, shape: Shape::Stream, access }
}

/// Whether there is a method behind a path.
pub fn is_known(path: &str) -> bool {
    of_path(path) != OTHER
}

/// The method behind a path.
pub fn of_path(path: &str) -> Method {
    let name = path.strip_prefix('/').unwrap_or(path);
    METHODS.iter().copied().find(|method| method.name == name).unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost_types::FileDescriptorSet;

    use super::*;
    use crate::api::pb;

    /// SEC-4: a call without a row does not build; one with the row of others fails here.
    #[test]
    fn every_method_of_the_contract_is_known() {
        for descriptors in [pb::MATCHMAKING_DESCRIPTORS, pb::OPERATOR_DESCRIPTORS] {
            let set = FileDescriptorSet::decode(descriptors).unwrap();
            for file in &set.file {
                for service in &file.service {
                    for method in &service.method {
                        let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                        let known = of_path(&path);
                        assert_eq!(format!("/{}", known.name), path);
                        let streams = !matches!(known.shape, Shape::Unary | Shape::Patient);
                        assert_eq!(streams, method.server_streaming(), "{path}");
                        let wanted = if service.name() == "Operator" { OPERATORS } else { PLAYERS };
                        assert_eq!(known.access, wanted, "{path}");
                    }
                }
            }
        }
    }

    /// SEC-19: strangers' paths are all one label.
    #[test]
    fn whatever_is_not_known_is_other() {
        for path in ["", "/", "/fireteam.v1.MatchmakingService/Nothing", "/fireteam.v1.MatchmakingService/Search/", "/x\ny"] {
            assert_eq!(of_path(path), OTHER, "{path:?}");
        }
    }
}
