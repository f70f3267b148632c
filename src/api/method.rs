//! The methods that there are, so that what a stranger writes into a path never becomes a label or a log line (SEC-19).

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
}

/// What every unknown path is called.
const OTHER: Method = Method { name: "other", shape: Shape::Unary };

/// Every method that the server serves, on either port; the most frequent first.
const METHODS: [Method; 19] = [
    unary("fireteam.v1.Matchmaking/UpdateAdvertisement"),
    unary("fireteam.v1.Matchmaking/Search"),
    unary("fireteam.v1.Matchmaking/Core"),
    Method { name: "fireteam.v1.Matchmaking/Connect", shape: Shape::Conversation },
    unary("fireteam.v1.Matchmaking/DeleteAdvertisement"),
    unary("fireteam.v1.Matchmaking/GetConfiguration"),
    unary("fireteam.v1.Matchmaking/Reserve"),
    unary("fireteam.v1.Matchmaking/Release"),
    unary("fireteam.v1.Matchmaking/ReportLatency"),
    unary("fireteam.v1.Matchmaking/ChooseRole"),
    unary("fireteam.v1.Operator/CheckRuleset"),
    unary("fireteam.v1.Operator/ReloadRulesets"),
    unary("fireteam.v1.Operator/ListRulesets"),
    unary("fireteam.v1.Operator/Drain"),
    Method { name: "fireteam.v1.Operator/Audit", shape: Shape::Patient },
    unary("grpc.health.v1.Health/Check"),
    stream("grpc.health.v1.Health/Watch"),
    stream("grpc.reflection.v1.ServerReflection/ServerReflectionInfo"),
    stream("grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
];

const fn unary(name: &'static str) -> Method {
    Method { name, shape: Shape::Unary }
}

const fn stream(name: &'static str) -> Method {
    Method { name, shape: Shape::Stream }
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
                    }
                }
            }
        }
    }

    /// SEC-19: strangers' paths are all one label.
    #[test]
    fn whatever_is_not_known_is_other() {
        for path in ["", "/", "/fireteam.v1.Matchmaking/Nothing", "/fireteam.v1.Matchmaking/Search/", "/x\ny"] {
            assert_eq!(of_path(path), OTHER, "{path:?}");
        }
    }
}
