//! Labels of calls: method and status code.

use std::fmt;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelSetEncoder, LabelValueEncoder};

label! {
    /// Method of a call, whether it came as an RPC, in an envelope or on a stream.
    Method, "method",
    /// A core request (the envelope); the enclosed request is counted as well.
    Core = "core",
    /// A long-lived stream of core requests.
    Connect = "connect",
    /// Search for sessions.
    Search = "search",
    /// Publish or replace an advertisement, or extend its TTL.
    UpdateAdvertisement = "update_advertisement",
    /// Delete an advertisement.
    DeleteAdvertisement = "delete_advertisement",
    /// Fetch a ruleset.
    GetConfiguration = "get_configuration",
    /// Reserve seats.
    Reserve = "reserve",
    /// Release reserved seats.
    Release = "release",
    /// Start of a session's match.
    StartMatch = "start_match",
    /// Report measured round trips.
    ReportLatency = "report_latency",
    /// Choose between searching and advertising.
    ChooseAction = "choose_action",
    /// Consent to another player's party.
    GrantConsent = "grant_consent",
    /// Revocation of such a consent.
    RevokeConsent = "revoke_consent",
    /// Change of a block list.
    UpdateBlockList = "update_block_list",
    /// Enter a queue.
    Enter = "enter",
    /// Leave a queue.
    Leave = "leave",
    /// Tickets of the caller's own user.
    Mine = "mine",
    /// Stream of ticket updates.
    Watch = "watch",
    /// Extend the TTL of tickets.
    Heartbeat = "heartbeat",
    /// Accept or decline a match.
    Respond = "respond",
    /// End a match.
    EndMatch = "end_match",
    /// Confirm matches and keep them alive, as their host.
    HostHeartbeat = "host_heartbeat",
    /// Report the result of a match.
    ReportResult = "report_result",
    /// Fetch ratings of users.
    GetRatings = "get_ratings",
    /// Fetch a page of the leaderboard.
    GetLeaderboard = "get_leaderboard",
    /// Predict win probabilities.
    PredictOutcome = "predict_outcome",
    /// Fetch the rating changes of a user.
    GetRatingHistory = "get_rating_history",
    /// Submit a player's feedback on a match.
    SubmitFeedback = "submit_feedback",
    /// Stream of offers to an allocator.
    Allocate = "allocate",
    /// Latency service.
    GetBeacons = "get_beacons",
    /// Latency service.
    ReportTrips = "report_trips",
    /// Latency service.
    AnnounceBeacon = "announce_beacon",
    /// Any call to the operator service.
    Operator = "operator",
    /// Health checks, reflection, and unknown methods.
    Other = "other",
}

label! {
    /// gRPC status code of a finished call.
    GrpcCode, "code",
    /// 0.
    Ok = "ok",
    /// 1.
    Cancelled = "cancelled",
    /// 2, and unknown numbers.
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
    /// Method with the full name `name`, such as `fireteam.v1.MatchmakingService/Search`; `Other` if unknown.
    pub fn from_rpc_name(name: &str) -> Self {
        let Some((service, name)) = name.strip_prefix("fireteam.v1.").and_then(|path| path.split_once('/')) else {
            return Method::Other;
        };
        match (service, name) {
            ("OperatorService", _) => Method::Operator,
            ("MatchmakingService", "Core") => Method::Core,
            ("MatchmakingService", "Connect") => Method::Connect,
            ("MatchmakingService", "Search") => Method::Search,
            ("MatchmakingService", "UpdateAdvertisement") => Method::UpdateAdvertisement,
            ("MatchmakingService", "DeleteAdvertisement") => Method::DeleteAdvertisement,
            ("MatchmakingService", "GetConfiguration") => Method::GetConfiguration,
            ("MatchmakingService", "Reserve") => Method::Reserve,
            ("MatchmakingService", "Release") => Method::Release,
            ("MatchmakingService", "ReportLatency") => Method::ReportLatency,
            ("MatchmakingService", "ChooseAction") => Method::ChooseAction,
            ("MatchmakingService", "GrantConsent") => Method::GrantConsent,
            ("MatchmakingService", "StartMatch") => Method::StartMatch,
            ("MatchmakingService", "RevokeConsent") => Method::RevokeConsent,
            ("MatchmakingService", "UpdateBlockList") => Method::UpdateBlockList,
            ("QueueService", "Mine") => Method::Mine,
            ("QueueService", "Enter") => Method::Enter,
            ("QueueService", "Leave") => Method::Leave,
            ("QueueService", "Watch") => Method::Watch,
            ("QueueService", "Heartbeat") => Method::Heartbeat,
            ("QueueService", "Respond") => Method::Respond,
            ("QueueService", "EndMatch") => Method::EndMatch,
            ("QueueService", "HostHeartbeat") => Method::HostHeartbeat,
            ("RatingService", "ReportResult") => Method::ReportResult,
            ("RatingService", "GetRatings") => Method::GetRatings,
            ("RatingService", "GetLeaderboard") => Method::GetLeaderboard,
            ("RatingService", "PredictOutcome") => Method::PredictOutcome,
            ("RatingService", "GetRatingHistory") => Method::GetRatingHistory,
            ("RatingService", "SubmitFeedback") => Method::SubmitFeedback,
            ("AllocationService", "Allocate") => Method::Allocate,
            ("LatencyService", "GetBeacons") => Method::GetBeacons,
            ("LatencyService", "ReportTrips") => Method::ReportTrips,
            ("LatencyService", "AnnounceBeacon") => Method::AnnounceBeacon,
            _ => Method::Other,
        }
    }
}

impl GrpcCode {
    /// Code with the gRPC number `number`; `Unknown` if there is none.
    pub fn from_number(number: i32) -> Self {
        usize::try_from(number).ok().and_then(|index| Self::ALL.get(index).copied()).unwrap_or(GrpcCode::Unknown)
    }
}
