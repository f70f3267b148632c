//! What a metric may be split by: closed lists of words, so that no client can add a series (SEC-19).

use std::fmt;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelSetEncoder, LabelValueEncoder};

use crate::domain::filter::Refusal;

/// Defines a closed list of label words: an enum, the label's name, and the word of each variant.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident, $key:literal, $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// What the label is called.
            pub const KEY: &'static str = $key;
            /// Every word there is.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word.
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

label! {
    /// A call, by whichever of the three doors it came.
    Method, "method",
    /// The envelope; what it carried is counted as well.
    Core = "core",
    /// A long-lived connection.
    Connect = "connect",
    /// Look for sessions.
    Search = "search",
    /// Publish, replace or keep alive.
    UpdateAdvertisement = "update_advertisement",
    /// Withdraw.
    DeleteAdvertisement = "delete_advertisement",
    /// Fetch a ruleset.
    GetConfiguration = "get_configuration",
    /// Take seats.
    Reserve = "reserve",
    /// Give seats back.
    Release = "release",
    /// Report measured round trips.
    ReportLatency = "report_latency",
    /// Draw a role.
    ChooseAction = "choose_role",
    /// Come along with another player.
    GrantConsent = "grant_consent",
    /// Begin to wait in a queue.
    Enter = "enter",
    /// No longer wait.
    Leave = "leave",
    /// Hear of tickets, for as long as that lasts.
    Watch = "watch",
    /// Keep tickets alive.
    Heartbeat = "heartbeat",
    /// Answer a ready check.
    Respond = "respond",
    /// Say that a match is over.
    EndMatch = "end_match",
    /// Say what came of a match.
    ReportResult = "report_result",
    /// How good users are.
    GetRatings = "get_ratings",
    /// Who leads.
    GetLeaderboard = "get_leaderboard",
    /// How a match would end.
    PredictOutcome = "predict_outcome",
    /// What matches have made of a rating.
    GetRatingHistory = "get_rating_history",
    /// What a player thought of a match.
    SubmitFeedback = "score_match",
    /// Any call to the operator's service.
    Operator = "operator",
    /// Health, reflection, and names that do not exist.
    Other = "other",
}

label! {
    /// How a call ended: the sixteen codes of gRPC and success.
    GrpcCode, "code",
    /// 0.
    Ok = "ok",
    /// 1.
    Cancelled = "cancelled",
    /// 2, and numbers that gRPC does not have.
    Unknown = "unknown",
    /// 3.
    InvalidArgument = "invalid_argument",
    /// 4.
    DeadlineExceeded = "deadline_exceeded",
    /// 5.
    NotFound = "not_found",
    /// 6.
    AlreadyExists = "already_exists",
    /// 7.
    PermissionDenied = "permission_denied",
    /// 8.
    ResourceExhausted = "resource_exhausted",
    /// 9.
    FailedPrecondition = "failed_precondition",
    /// 10.
    Aborted = "aborted",
    /// 11.
    OutOfRange = "out_of_range",
    /// 12.
    Unimplemented = "unimplemented",
    /// 13.
    Internal = "internal",
    /// 14.
    Unavailable = "unavailable",
    /// 15.
    DataLoss = "data_loss",
    /// 16.
    Unauthenticated = "unauthenticated",
}

impl Method {
    /// The method of that full name, such as `fireteam.v1.MatchmakingService/Search`; `Other` when there is none.
    pub fn from_rpc_name(name: &str) -> Self {
        let Some((service, name)) = name.strip_prefix("fireteam.v1.").and_then(|it| it.split_once('/')) else {
            return Method::Other;
        };
        match (service, name) {
            ("Operator", _) => Method::Operator,
            ("Matchmaking", "Core") => Method::Core,
            ("Matchmaking", "Connect") => Method::Connect,
            ("Matchmaking", "Search") => Method::Search,
            ("Matchmaking", "UpdateAdvertisement") => Method::UpdateAdvertisement,
            ("Matchmaking", "DeleteAdvertisement") => Method::DeleteAdvertisement,
            ("Matchmaking", "GetConfiguration") => Method::GetConfiguration,
            ("Matchmaking", "Reserve") => Method::Reserve,
            ("Matchmaking", "Release") => Method::Release,
            ("Matchmaking", "ReportLatency") => Method::ReportLatency,
            ("Matchmaking", "ChooseRole") => Method::ChooseAction,
            ("Matchmaking", "GrantConsent") => Method::GrantConsent,
            ("Queue", "Enter") => Method::Enter,
            ("Queue", "Leave") => Method::Leave,
            ("Queue", "Watch") => Method::Watch,
            ("Queue", "Heartbeat") => Method::Heartbeat,
            ("Queue", "Respond") => Method::Respond,
            ("Queue", "EndMatch") => Method::EndMatch,
            ("Ratings", "ReportResult") => Method::ReportResult,
            ("Ratings", "GetRatings") => Method::GetRatings,
            ("Ratings", "GetLeaderboard") => Method::GetLeaderboard,
            ("Ratings", "PredictOutcome") => Method::PredictOutcome,
            ("Ratings", "GetRatingHistory") => Method::GetRatingHistory,
            ("Ratings", "ScoreMatch") => Method::SubmitFeedback,
            _ => Method::Other,
        }
    }
}

impl GrpcCode {
    /// The code that gRPC sends as `number`.
    pub fn from_number(number: i32) -> Self {
        usize::try_from(number).ok().and_then(|at| Self::ALL.get(at).copied()).unwrap_or(GrpcCode::Unknown)
    }
}

label! {
    /// Which kind of rule kept an advertisement from a searcher. A ruleset's own names never become labels.
    RefusalKind, "refusal",
    /// Another population.
    Silo = "silo",
    /// The searcher's own.
    OwnSession = "own",
    /// Not wanted again.
    Excluded = "excluded",
    /// No longer believed.
    Expired = "expired",
    /// Too few open seats.
    Full = "full",
    /// A hard filter of the ruleset.
    HardFilter = "filter",
    /// A range that the advertisement itself published.
    AllowedRange = "allowed",
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
            Refusal::HardFilter { filter_index: filter, side: _ } if filter < hard_filters => RefusalKind::HardFilter,
            Refusal::HardFilter { .. } => RefusalKind::AllowedRange,
            // The rest are queues' refusals, which no search has.
            _ => RefusalKind::HardFilter,
        }
    }
}

label! {
    /// What the store was asked to do.
    StoreOperation, "verb",
    /// Everything, for a start.
    Load = "load",
    /// A batch of changes.
    Commit = "commit",
    /// What is due.
    Purge = "forget",
    /// Flush and let go.
    Close = "close",
    /// Everything that queues keep, for a start.
    LoadQueues = "load_queues",
    /// A batch of changes to the queues.
    CommitQueues = "commit_queues",
    /// What is due in the queues.
    PurgeQueues = "forget_queues",
}

label! {
    /// What the changes of a transaction were.
    TransactionKind, "transaction",
    /// Advertisements published.
    Publish = "publish",
    /// Advertisements kept alive.
    Extend = "extend",
    /// Advertisements withdrawn.
    Delete = "delete",
    /// Advertisements whose time was over.
    Expire = "expire",
    /// Seats taken.
    Reserve = "reserve",
    /// Seats given back, or lapsed.
    EndReservation = "end",
    /// More than one of these.
    Mixed = "several",
    /// Parties that begin to wait.
    Enter = "enter",
    /// Tickets kept alive.
    TicketHeartbeat = "beat",
    /// Tickets that end while they wait.
    Leave = "leave",
    /// Matches proposed.
    Propose = "propose",
    /// Matches that go on to their next stage.
    MatchTransition = "move",
    /// Ratings set.
    ImportRatings = "rate",
    /// Results written down.
    RecordResult = "conclude",
    /// What players thought of matches.
    Feedback = "score",
    /// More than one of these.
    MixedQueue = "queues",
}

label! {
    /// Whether an address had a place.
    LookupOutcome, "outcome",
    /// It had.
    Hit = "hit",
    /// It had none.
    Miss = "miss",
}

label! {
    /// How an attempt to load something ended.
    LoadOutcome, "outcome",
    /// It was adopted.
    Loaded = "adopted",
    /// It was refused; the old one stays.
    Rejected = "rejected",
}

label! {
    /// Why what a caller showed was not taken; what of it the caller is told is less.
    AuthFailure, "reason",
    /// Nothing was shown.
    Missing = "missing",
    /// No token, or several.
    Malformed = "malformed",
    /// Larger than a token may be.
    TooLarge = "too_large",
    /// Signed in a way that none of the keys allows.
    AlgorithmNotAllowed = "algorithm",
    /// Names a key that nobody has.
    UnknownKey = "unknown_key",
    /// Nobody who is believed signed it.
    BadSignature = "signature",
    /// Issued by somebody else.
    WrongIssuer = "issuer",
    /// For somebody else.
    WrongAudience = "audience",
    /// For nobody in particular.
    InvalidSubject = "subject",
    /// Names a role that there is not.
    InvalidRole = "role",
    /// Not good yet.
    NotYetValid = "not_yet",
    /// Good for longer than a token may be.
    LifetimeTooLong = "lives_too_long",
    /// Good once.
    Expired = "expired",
    /// The certificate names nobody.
    InvalidCertificate = "certificate",
    /// It is known who calls, and the call is for others.
    WrongRole = "wrong_role",
}

label! {
    /// Why a connection was turned away before it began, or ended for what it sent.
    ConnectionRejection, "reason",
    /// There were too many in all.
    MaxConnections = "too_many",
    /// There were too many from there.
    MaxPerIp = "too_many_from_one_place",
    /// They came too fast from there.
    RatePerIp = "too_fast_from_one_place",
    /// It was the oldest of too many that had not begun.
    MaxHandshakes = "too_many_arriving",
    /// It came from none of the proxies from which alone connections are taken.
    UntrustedPeer = "no_proxy",
    /// It did not begin with a PROXY header that can be read.
    ProxyHeader = "proxy_header",
    /// TLS could not be agreed on.
    Tls = "tls",
    /// It took too long to begin.
    HandshakeTimeout = "too_slow",
    /// It sent too many frames that ask for nothing.
    FrameRate = "too_many_frames",
}

label! {
    /// For whom a quota is.
    RateLimitRole, "role",
    /// Players' clients.
    Client = "client",
    /// Game servers.
    GameServer = "server",
    /// Operators.
    Operator = "operator",
    /// Whoever has not shown who they are, by where they come from.
    Anonymous = "anonymous",
}

label! {
    /// What a quota is for.
    RateLimitLabel, "charge",
    /// Calling.
    Call = "call",
    /// Looking.
    Search = "search",
    /// Changing an advertisement.
    Update = "update",
    /// Keeping one alive.
    Heartbeat = "heartbeat",
    /// Taking seats or giving them back.
    Seats = "seats",
    /// Operating.
    Operator = "operate",
    /// Streams at once.
    Stream = "stream",
    /// Proofs of identity that were worth nothing.
    AuthFailure = "failure",
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::filter::RefusingSide;

    #[test]
    fn code_label_follows_the_grpc_numbering() {
        let spelled: Vec<&str> = [0, 1, 4, 8, 14, 16, 17, -1].map(|it| GrpcCode::from_number(it).as_str()).into();
        let expected = "ok cancelled deadline_exceeded resource_exhausted unavailable unauthenticated unknown unknown";
        assert_eq!(spelled, expected.split(' ').collect::<Vec<_>>());
    }

    /// Every call of the wire contract is counted by its name, and nothing else has one.
    #[test]
    fn method_label_exists_for_every_rpc() {
        let contracts = [
            ("Matchmaking", include_str!("../../proto/fireteam/v1/matchmaking.proto")),
            ("Queue", include_str!("../../proto/fireteam/v1/queue.proto")),
            ("Ratings", include_str!("../../proto/fireteam/v1/ratings.proto")),
        ];
        let calls = contracts.iter().flat_map(|(service, contract)| {
            let names = contract.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
            names.map(move |call| format!("fireteam.v1.{service}/{call}"))
        });
        let labels: Vec<Method> = calls.map(|call| Method::from_rpc_name(&call)).collect();
        let mut expected = Method::ALL.to_vec();
        expected.retain(|it| !matches!(it, Method::Operator | Method::Other));
        assert_eq!(labels, expected);
        assert_eq!(Method::from_rpc_name("fireteam.v1.OperatorService/Drain"), Method::Operator);
        for made_up in ["", "/", "/fireteam.v1.MatchmakingService/Nothing", "/grpc.health.v1.Health/Check", "Search"] {
            assert_eq!(Method::from_rpc_name(made_up), Method::Other);
        }
    }

    #[test]
    fn refusal_label_of_a_published_range_is_allowed_range() {
        let refusal = |filter| Refusal::HardFilter { filter_index: filter, side: RefusingSide::Advertiser };
        assert_eq!(RefusalKind::from_refusal(refusal(1), 2), RefusalKind::HardFilter);
        assert_eq!(RefusalKind::from_refusal(refusal(2), 2), RefusalKind::AllowedRange);
    }
}
