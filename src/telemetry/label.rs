//! Labels of metrics, as closed sets of values, so that no client can add a metric series. Those of statistics come from rulesets
//! (`label/statistic.rs`).

use std::fmt;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelSetEncoder, LabelValueEncoder};

use crate::domain::filter::Refusal;

/// Defines a label: its name, an enum, and the label value of each variant.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident, $key:literal, $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// Name of the label.
            pub const KEY: &'static str = $key;
            /// All values.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// Label value.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
                EncodeLabelValue::encode(&self.as_str(), encoder)
            }
        }

        impl EncodeLabelSet for $name {
            fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
                use prometheus_client::encoding::EncodeLabel;
                (Self::KEY, *self).encode(encoder.encode_label())
            }
        }
    };
}

mod rpc;
mod set;
mod statistic;
mod store;

pub use self::rpc::{GrpcCode, Method};
pub use self::set::{
    AdvertisementKindLabel, FeedLabel, KnownSets, MatchEventLabel, MatchStageLabel, SeatOutcomeLabel, SeatStateLabel,
    SetLabel, TicketOutcomeLabel, TicketStateLabel,
};
pub use self::statistic::StatisticLabels;
pub use self::store::{StoreOperation, TransactionKind};

label! {
    /// Kind of rule that refused a candidate. Names from a ruleset never become labels.
    RefusalKind, "refusal",
    /// Another silo.
    Silo = "silo",
    /// The searcher is already in the session.
    OwnSession = "own",
    /// Excluded by the searcher.
    Excluded = "excluded",
    /// TTL expired.
    Expired = "expired",
    /// Too few open seats.
    Full = "full",
    /// A hard filter of the ruleset.
    HardFilter = "filter",
    /// A range published by the advertiser.
    AllowedRange = "allowed_range",
    /// A wish of the searcher or of the advertisement.
    Wish = "wish",
    /// The host did not answer the searcher's probes, or is incompatible.
    Silent = "silent",
}

impl RefusalKind {
    /// The kind of `refusal` under a ruleset with `hard_filters` hard filters.
    pub fn from_refusal(refusal: Refusal, hard_filters: usize) -> Self {
        match refusal {
            Refusal::Silo => RefusalKind::Silo,
            Refusal::OwnSession => RefusalKind::OwnSession,
            Refusal::Excluded => RefusalKind::Excluded,
            Refusal::Expired => RefusalKind::Expired,
            Refusal::NotEnoughSeats => RefusalKind::Full,
            Refusal::Silent => RefusalKind::Silent,
            Refusal::HardFilter { filter_index: filter, side: _ } if filter < hard_filters => RefusalKind::HardFilter,
            Refusal::HardFilter { filter_index, .. } if filter_index == hard_filters => RefusalKind::AllowedRange,
            Refusal::HardFilter { .. } => RefusalKind::Wish,
            // The other refusals occur in queues only.
            _ => RefusalKind::HardFilter,
        }
    }
}

label! {
    /// Phase of a latency probe.
    ProbePhase, "phase",
    /// A few packets to each candidate.
    Quick = "quick",
    /// A full test with game data.
    Involved = "involved",
}

label! {
    /// Outcome of a latency probe, as a client reports it.
    ProbeOutcome, "outcome",
    /// The host answered.
    Answered = "answered",
    /// The host did not answer.
    Silent = "silent",
    /// The host is incompatible.
    Incompatible = "incompatible",
    /// The host is full.
    Full = "full",
    /// No packet was sent.
    NotProbed = "not_probed",
}

label! {
    /// Source of a candidate's round trip.
    RoundTripLabel, "source",
    /// Measured in the search.
    Measured = "measured",
    /// Predicted from round trips to beacons.
    Predicted = "predicted",
    /// Round trips of both sides to a common region.
    Region = "region",
    /// Distance.
    Distance = "distance",
    /// None is known.
    Unknown = "unknown",
}

label! {
    /// Side of a predicted interval.
    PredictionSide, "side",
    /// The measured round trip is less than its low end.
    Low = "low",
    /// The measured round trip is more than its high end.
    High = "high",
}

label! {
    /// Verdict on a receipt.
    ReceiptLabel, "verdict",
    /// It counts.
    Proven = "proven",
    /// Not a receipt packet.
    Malformed = "malformed",
    /// No live beacon has its id.
    UnknownBeacon = "unknown_beacon",
    /// Its key is not the fleet's.
    UnknownKey = "unknown_key",
    /// Not what a beacon signed.
    BadMac = "bad_mac",
    /// Another user's, or of an earlier day.
    ForeignBinding = "foreign_binding",
    /// Too old.
    Stale = "stale",
    /// From the future.
    Future = "future",
    /// Impossible round trip.
    OutOfRange = "out_of_range",
    /// Of another network.
    ForeignPrefix = "foreign_prefix",
}

label! {
    /// Outcome of a packet to a beacon.
    BeaconPacketOutcome, "outcome",
    /// A challenge or a receipt was sent.
    Answered = "answered",
    /// Invalid, or over a limit: dropped without an answer.
    Dropped = "dropped",
}

label! {
    /// Result of a GeoIP lookup.
    LookupOutcome, "outcome",
    /// The address has a locality.
    Hit = "hit",
    /// The address has no locality.
    Miss = "miss",
}

label! {
    /// Result of loading a file.
    LoadOutcome, "outcome",
    /// The file is in use.
    Loaded = "loaded",
    /// The file is invalid; the old one stays in use.
    Rejected = "rejected",
}

label! {
    /// Reason why a span was not exported.
    SpanDropReason, "reason",
    /// Too many spans wait for the collector.
    QueueFull = "queue_full",
    /// The collector did not take the span in time, or refused it.
    ExportFailed = "export_failed",
}

label! {
    /// Reason of an authentication failure, in more detail than the caller receives.
    AuthFailure, "reason",
    /// No token and no certificate.
    Missing = "missing",
    /// Not a well-formed token, or several tokens.
    Malformed = "malformed",
    /// Token too long.
    TooLarge = "too_large",
    /// Type that is not a caller's token.
    WrongType = "type",
    /// Algorithm that no key allows.
    AlgorithmNotAllowed = "algorithm",
    /// No key with the token's `kid`.
    UnknownKey = "unknown_key",
    /// Signature does not verify.
    BadSignature = "signature",
    /// Another issuer.
    WrongIssuer = "issuer",
    /// Another audience.
    WrongAudience = "audience",
    /// Missing or invalid subject.
    InvalidSubject = "subject",
    /// Unknown role, or too many scopes.
    InvalidRole = "role",
    /// Role that the key may not sign for.
    RoleNotOfKey = "key_role",
    /// Not valid yet.
    NotYetValid = "not_yet_valid",
    /// Lifetime too long.
    LifetimeTooLong = "lifetime_too_long",
    /// Expired.
    Expired = "expired",
    /// Certificate without an identity.
    InvalidCertificate = "certificate",
    /// Authenticated, but the role may not make the call.
    WrongRole = "wrong_role",
    /// The `Host` header does not name the operator port.
    WrongHost = "wrong_host",
    /// The `Origin` header names another origin than the operator port.
    CrossOrigin = "cross_origin",
}

label! {
    /// Folder that the server writes to.
    DiskFolder, "folder",
    /// Folder of the SQLite file.
    Store = "store",
    /// Folder of the audit log file.
    AuditLog = "audit_log",
    /// Folder of the inputs of failed passes.
    PassFailures = "pass_failures",
}

label! {
    /// Reason why a connection was rejected or closed.
    ConnectionRejection, "reason",
    /// Too many connections in all.
    MaxConnections = "max_connections",
    /// Too many connections from one address.
    MaxPerIp = "max_per_ip",
    /// New connections from one address above the rate limit.
    RatePerIp = "rate_per_ip",
    /// Too many connections from one IPv4 /24, IPv6 /56 or IPv6 /48.
    MaxPerNetwork = "max_per_network",
    /// New connections from one IPv4 /24, IPv6 /56 or IPv6 /48 above the rate limit.
    RatePerNetwork = "rate_per_network",
    /// No identity in time, while few places were free.
    NoIdentityTimeout = "no_identity_timeout",
    /// No identity, and the place was needed for a new connection.
    NoIdentityReplaced = "no_identity_replaced",
    /// Too many handshakes in progress; the oldest is closed.
    MaxHandshakes = "max_handshakes",
    /// Peer is not one of the required proxies.
    UntrustedPeer = "untrusted_peer",
    /// Missing or invalid PROXY protocol header.
    ProxyHeader = "proxy_header",
    /// TLS handshake failed.
    Tls = "tls",
    /// Handshake took too long.
    HandshakeTimeout = "handshake_timeout",
    /// HTTP/2 control frames above the rate limit.
    FrameRate = "frame_rate",
}

label! {
    /// Long-lived task, or part of one whose panics are caught.
    TaskLabel, "task",
    /// Writer of advertisements.
    AdvertWriter = "advert_writer",
    /// Reader of other replicas' changes to advertisements.
    AdvertFeed = "advert_feed",
    /// Expiry sweep of advertisements and holds.
    AdvertExpiry = "advert_expiry",
    /// Writer of queue changes.
    QueueWriter = "queue_writer",
    /// Reader of other replicas' changes to queues.
    QueueFeed = "queue_feed",
    /// Queue leases, and purges of ended tickets and matches.
    QueueLeases = "queue_leases",
    /// Runner of one queue.
    QueueRunner = "queue_runner",
    /// One pass over a queue.
    Pass = "pass",
    /// Offers of matches to allocators.
    Allocation = "allocation",
    /// Wake-ups of queues that fill open sessions.
    Backfill = "backfill",
    /// Overviews for operators who watch.
    Overview = "overview",
    /// Probe of the store while commits fail.
    WriteProbe = "write_probe",
    /// Accept loop of the client port.
    ClientPort = "client_port",
    /// Accept loop of the operator port.
    OperatorPort = "operator_port",
    /// Health status.
    Health = "health",
    /// Reload of rulesets, certificates, keys or geolocation files.
    Reload = "reload",
    /// Reads of the beacons of the store.
    Beacons = "beacons",
    /// The beacon of this process: its socket, and its announcements.
    OwnBeacon = "own_beacon",
    /// Comparison of rulesets with their copies in the store.
    RulesetCopies = "ruleset_copies",
    /// Purge of retired rulesets.
    RulesetPurge = "ruleset_purge",
    /// Watcher of changed files.
    FileWatcher = "file_watcher",
    /// Checkpoints of the write-ahead log.
    WalCheckpoint = "wal_checkpoint",
    /// Listener for notifications of changes.
    ChangeListener = "change_listener",
    /// Measurement of the free space of disks.
    DiskSpace = "disk_space",
    /// Numbers of rejected calls for the log and the audit log.
    CountedEvents = "counted_events",
    /// Counts of matchmaking statistics, written to the store.
    Statistics = "statistics",
}

label! {
    /// Event of an offer to an allocator.
    OfferEvent, "event",
    /// Sent to an allocator.
    Sent = "sent",
    /// Answered with a place that was taken.
    Placed = "placed",
    /// Answered with a place that was not wanted.
    NotWanted = "not_wanted",
    /// Refused.
    Refused = "refused",
    /// Not answered in time.
    Unanswered = "unanswered",
}

label! {
    /// Class of callers with a rate limit.
    RateLimitRole, "role",
    /// Players' clients.
    Client = "client",
    /// Game servers.
    GameServer = "game_server",
    /// Operators.
    Operator = "operator",
    /// Players' clients of one address together.
    ClientAddress = "client_address",
    /// Unauthenticated callers, by address.
    Anonymous = "anonymous",
    /// Health checks of trusted proxies.
    HealthCheck = "health_check",
}

label! {
    /// Kind of rate limit.
    RateLimitLabel, "limit",
    /// All calls.
    Call = "call",
    /// Searches.
    Search = "search",
    /// Changes to advertisements.
    Update = "update",
    /// Heartbeats of advertisements.
    Heartbeat = "heartbeat",
    /// Reservations and releases.
    Seats = "seats",
    /// Operator calls.
    Operator = "operator",
    /// Open streams.
    Stream = "stream",
    /// Failed authentications.
    AuthFailure = "auth_failure",
    /// Signatures to verify.
    Verification = "verification",
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::filter::RefusingSide;

    #[test]
    fn code_label_follows_the_grpc_numbering() {
        let labels: Vec<&str> =
            [0, 1, 4, 8, 14, 16, 17, -1].map(|number| GrpcCode::from_number(number).as_str()).into();
        let expected = "ok cancelled deadline_exceeded resource_exhausted unavailable unauthenticated unknown unknown";
        assert_eq!(labels, expected.split(' ').collect::<Vec<_>>());
    }

    /// Every RPC in the proto files has its own label, and there are no other labels.
    #[test]
    fn method_label_exists_for_every_rpc() {
        let proto_files = [
            ("MatchmakingService", include_str!("../../proto/fireteam/v1/matchmaking.proto")),
            ("QueueService", include_str!("../../proto/fireteam/v1/queue.proto")),
            ("RatingService", include_str!("../../proto/fireteam/v1/ratings.proto")),
            ("AllocationService", include_str!("../../proto/fireteam/v1/allocation.proto")),
            ("LatencyService", include_str!("../../proto/fireteam/v1/latency.proto")),
        ];
        let calls = proto_files.iter().flat_map(|(service, proto)| {
            let names = proto.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
            names.map(move |call| format!("fireteam.v1.{service}/{call}"))
        });
        let labels: Vec<Method> = calls.map(|call| Method::from_rpc_name(&call)).collect();
        let mut expected = Method::ALL.to_vec();
        expected.retain(|method| !matches!(method, Method::Operator | Method::Other));
        assert_eq!(labels, expected);
        assert_eq!(Method::from_rpc_name("fireteam.v1.OperatorService/Drain"), Method::Operator);
        for unknown in ["", "/", "/fireteam.v1.MatchmakingService/Nothing", "/grpc.health.v1.Health/Check", "Search"] {
            assert_eq!(Method::from_rpc_name(unknown), Method::Other);
        }
    }

    #[test]
    fn refusal_label_of_a_published_range_is_allowed_range() {
        let refusal = |filter| Refusal::HardFilter { filter_index: filter, side: RefusingSide::Advertiser };
        assert_eq!(RefusalKind::from_refusal(refusal(1), 2), RefusalKind::HardFilter);
        assert_eq!(RefusalKind::from_refusal(refusal(2), 2), RefusalKind::AllowedRange);
    }
}
