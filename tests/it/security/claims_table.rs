//! Closed table of everything that a client can say in a call on the client port: each claim is tried as a lie by tests of the
//! server, or its row says why there is nothing to lie about, or that the lie is accepted. A new field fails until it has a row.

use fireteam::api::pb;

use crate::support::message_fields::{assert_closed, request_fields};
use crate::support::source_tree::{SourceFile, read_source_files, repository_root};

/// Judgement of a claim.
enum Judgement {
    /// A lie is refused; these tests try it.
    Refused(&'static [&'static str]),
    /// A lie is ignored, or replaced by what is possible; these tests try it.
    Ignored(&'static [&'static str]),
    /// A lie is taken, and decides nothing for others; these tests try it.
    WithoutAuthority(&'static [&'static str]),
    /// Nothing to lie about: a wish or a choice for the caller itself, or data that is passed on.
    OwnWish(&'static str),
    /// A lie is accepted. SECURITY.md says so under "What is not promised".
    Accepted(&'static str),
}

use Judgement::{Accepted, Ignored, OwnWish, Refused, WithoutAuthority};

// Claims about oneself.

/// The account of a player: the caller's own, or that of another who consented.
const ACCOUNT: Judgement = Refused(&[
    "client_requests_must_include_the_callers_own_user",
    "party_members_need_a_valid_consent_token",
    "queue_enter_requires_consent_and_ignores_untrusted_skill",
]);
/// Rating theft: a player whose client has the name of the host reports its own win.
const CLIENT_NAME: Judgement = WithoutAuthority(&[
    "thief_with_the_name_of_the_host_gains_no_rating",
    "liar_in_the_bundled_control_is_outvoted",
    "enter_with_a_player_id_of_another_player_is_refused",
]);
/// Attributes are ignored where the ruleset does not trust clients with them, which is the default for skill.
const SKILL: Judgement = Ignored(&[
    "queue_enter_requires_consent_and_ignores_untrusted_skill",
    "untrusted_values_of_a_party_are_listed_and_ignored",
    "untrusted_attribute_value_has_no_effect",
]);
const CONSENT: Judgement = Refused(&[
    "party_members_need_a_valid_consent_token",
    "first_ticket_takes_the_consent_on_sqlite",
    "first_reservation_takes_the_consent_on_sqlite",
    "revoked_consent_is_refused_on_sqlite",
]);
/// The self-made host: a player claims an open NAT, hosts, and reports alone.
const NAT_TYPE: Judgement = WithoutAuthority(&[
    "self_made_host_that_reports_alone_gains_no_rating",
    "opponent_is_not_disconnected_by_the_word_of_the_loser",
    "untrusted_values_of_a_party_are_listed_and_ignored",
]);
const ATTRIBUTES: Judgement =
    Ignored(&["untrusted_attribute_value_has_no_effect", "contradicting_sides_are_unrated_and_filtered_by_disputes"]);
/// Attributes of one player: as those of the party.
const PLAYER_ATTRIBUTES: Judgement = Ignored(&[
    "untrusted_attribute_of_a_player_is_ignored_on_sqlite",
    "untrusted_attribute_of_a_waiting_player_is_ignored_on_sqlite",
]);
/// A wish, where the ruleset lets clients state the roles of their parties.
const WANTED_ROLES: Judgement = Ignored(&["untrusted_roles_of_players_are_ignored_on_sqlite"]);
const PROGRESS: Judgement = Ignored(&[
    "queue_ignores_place_seats_and_progress_that_a_party_states",
    "untrusted_values_of_a_party_are_listed_and_ignored",
    "untrusted_attribute_value_has_no_effect",
]);
const BIG_PARTIES: Judgement =
    Ignored(&["untrusted_values_of_a_party_are_listed_and_ignored", "untrusted_attribute_value_has_no_effect"]);
const PLACE: Judgement = Ignored(&[
    "untrusted_fields_are_listed_as_ignored",
    "latency_report_lists_ignored_fields",
    "queue_ignores_place_seats_and_progress_that_a_party_states",
    "forwarded_address_from_an_untrusted_peer_is_ignored",
]);
/// Teams in the host's own session, which the host decides anyway.
const STATED_TEAM: Judgement = Refused(&["team_that_the_ruleset_lacks_is_refused"]);
const PARTY_SIZES: Judgement = Refused(&["party_sizes_other_than_the_players_are_refused"]);
const SEATS: Judgement = WithoutAuthority(&[
    "queue_ignores_place_seats_and_progress_that_a_party_states",
    "reserve_by_64_concurrent_parties_never_exceeds_the_seats",
]);
const SILO: Judgement =
    Refused(&["silo_limits_apply_per_identity_and_in_all", "search_token_is_bound_to_party_set_and_silo"]);
const ROUND_TRIP: Judgement = Ignored(&["latency_claim_faster_than_light_is_clamped"]);
const REGION_ROUND_TRIP: Judgement = Ignored(&["proven_round_trip_is_the_least_that_counts"]);
const OWN_PROBES: Judgement = OwnWish("of the packets of the client's own search, which counts in this search only");
const PACKETS: Judgement = Refused(&["invalid_measurements_are_refused_by_field"]);
const RECEIPTS: Judgement = Ignored(&["receipts_get_verdicts_and_become_a_token"]);
const BEACON_CLAIM: Judgement = Ignored(&["proven_round_trip_is_the_least_that_counts"]);
const LATENCY_TOKEN: Judgement = Ignored(&["proven_round_trip_is_the_least_that_counts"]);
const BEACON: Judgement = Refused(&["beacons_are_announced_and_listed_while_they_live"]);
const ROLE: Judgement = Refused(&["game_server_and_client_calls_require_their_role"]);
const PROBE_ADDRESS: Judgement =
    Refused(&["invalid_probe_endpoint_is_refused", "probe_endpoint_is_told_of_game_servers_only"]);
const HOSTED: Judgement = Ignored(&["probe_endpoint_is_told_of_game_servers_only"]);
const CONNECTED: Judgement = Refused(&["connected_users_of_others_are_refused"]);
const CONNECTED_IN: Judgement = OwnWish("where the caller's own user counts, once, as any connected player does");
const OVERRIDES: Judgement = Refused(&["search_overrides_are_refused_unless_allowed"]);

// Claims about what is whose.

const LIST_OWNER: Judgement = Refused(&["only_the_own_block_list_can_be_changed_on_sqlite"]);
const LISTED: Judgement = OwnWish("whom the caller's own user will not meet, also against that user's wish");

const ADVERTISEMENT: Judgement = Refused(&[
    "advertisement_calls_by_another_caller_are_refused_alike",
    "advertisement_token_is_useless_to_another_caller",
    "recreated_advertisement_keeps_its_owner",
]);
const RESERVATION: Judgement = Refused(&[
    "advertisement_calls_by_another_caller_are_refused_alike",
    "advertisement_token_is_useless_to_another_caller",
]);
/// Hosts start matches of their own sessions only, with players who came, and rate no one who was not heard.
const STARTED_SESSION: Judgement = Refused(&["session_match_refuses_lies_of_hosts_on_sqlite"]);
const START_KEY: Judgement = Refused(&["session_match_start_is_idempotent_on_sqlite"]);
const ROSTER: Judgement = Refused(&[
    "session_match_refuses_lies_of_hosts_on_sqlite",
    "session_match_has_no_player_who_is_only_listed_on_sqlite",
    "session_match_has_friends_of_the_host_by_consent_on_sqlite",
    "session_match_is_not_rated_by_a_lone_host_on_sqlite",
    "session_match_is_not_rated_by_a_majority_alone_on_sqlite",
]);
const OWN_SEAT: Judgement = WithoutAuthority(&["member_releases_its_own_seat_on_sqlite"]);
const NAMED_RESERVATIONS: Judgement = WithoutAuthority(&[
    "reservations_of_another_session_cannot_be_confirmed_or_ended",
    "advertisement_calls_by_another_caller_are_refused_alike",
]);
const TICKET: Judgement =
    Refused(&["ticket_token_of_another_party_is_refused", "member_leaves_by_its_own_token_on_sqlite"]);
const SEARCH_TOKEN: Judgement = Refused(&["search_token_is_bound_to_party_set_and_silo"]);
const SEARCHED: Judgement = Refused(&["handles_of_two_searchers_cannot_be_compared"]);
const KEY: Judgement = WithoutAuthority(&["idempotency_key_of_another_caller_is_another_request"]);
const OTHERS_OF_THE_TICKET: Judgement =
    Refused(&["members_answer_for_themselves_on_sqlite", "leader_who_declines_is_barred_alone_on_sqlite"]);
const REVOKED: Judgement = Refused(&["revoked_consent_is_refused_on_sqlite"]);
const READABLE: Judgement = Refused(&["player_reads_ratings_of_itself_and_of_users_it_has_played_with"]);
const AROUND: Judgement = Refused(&["public_leaderboard_is_read_by_all_and_around_users_one_may_read"]);
const HOSTED_BY: Judgement = Refused(&[
    "host_heartbeat_requires_the_token_of_an_advertisement",
    "report_is_accepted_from_the_hosting_server_only",
    "end_match_during_a_ready_check_is_refused",
]);
const HOSTED_MATCH: Judgement = WithoutAuthority(&["one_process_hosts_matches_of_several_sets"]);
const OFFER: Judgement = Refused(&[
    "allocation_is_for_game_servers_and_its_tokens_for_their_owners",
    "allocation_messages_that_are_wrong_name_the_field",
]);

// Claims about a match and its players.

const RESULT: Judgement = WithoutAuthority(&[
    "self_made_host_that_reports_alone_gains_no_rating",
    "thief_with_the_name_of_the_host_gains_no_rating",
    "liar_in_the_bundled_control_is_outvoted",
    "contradicting_sides_are_unrated_and_filtered_by_disputes",
    "silent_side_is_rated_only_if_it_was_heard",
]);
const DISCONNECTED: Judgement = WithoutAuthority(&[
    "opponent_is_not_disconnected_by_the_word_of_the_loser",
    "leaving_by_the_call_does_not_make_a_match_unrated",
]);
const DURATION: Judgement =
    Accepted("recorded with a result on which the sides agree; no rating and no other match follows from it");
const PLAYER_OF_THE_TICKET: Judgement = Refused(&["reports_and_feedback_for_other_players_are_refused"]);
const MATCH: Judgement = Refused(&[
    "report_with_invalid_fields_has_no_effect",
    "report_of_an_unplayed_match_is_refused",
    "report_is_accepted_from_the_hosting_server_only",
]);
const PROPOSAL: Judgement = Refused(&["reply_to_the_proposal_of_others_is_refused"]);
const HOSTING_PLAYER: Judgement =
    Refused(&["hosting_by_a_peer_names_one_host", "end_match_during_a_ready_check_is_refused"]);
const FAILED: Judgement = WithoutAuthority(&["late_failure_of_a_peer_host_counts_as_played"]);
const ANSWER: Judgement = WithoutAuthority(&[
    "griefer_spoils_at_most_three_proposals_per_hour",
    "leader_who_declines_is_barred_alone_on_sqlite",
    "silence_is_a_fault_of_players_with_the_match_on_sqlite",
]);
const STARS: Judgement = WithoutAuthority(&["feedback_is_recorded_once_and_exported"]);

// Nothing to lie about.

const HASH: Judgement = Refused(&["unknown_ruleset_hash_error_names_the_current_hash"]);
const SET: Judgement = OwnWish("where the caller wants to play; an unknown set is refused, tokens are bound to theirs");
const ECHO: Judgement = OwnWish("echoed, or says what the message is");
const DISPLAY: Judgement = OwnWish("for statistics of the game; filters nothing");
const FILTER: Judgement = OwnWish("narrows what the caller itself is offered");
/// A wish narrows what the caller itself meets, by the values of others as rules see them. What the ruleset does not allow is refused.
const WISHES: Judgement =
    Refused(&["invalid_wishes_are_refused_with_their_field", "wish_for_skill_is_judged_by_the_servers_rating"]);
const PAGE: Judgement = OwnWish("which part of a list the caller reads, of a list that it may read");
const PAGE_TOKEN: Judgement =
    OwnWish("a place in a list; whether the caller may read the list is checked for each page");
const RESUME: Judgement = OwnWish("what the caller has received; without it, a status is sent again");
const TTL: Judgement = OwnWish("how long the caller's own object lives, within the bounds of the server");
const PASSED_ON: Judgement = OwnWish("passed on as it is, to those who have reserved or are matched");
const PARTY_SIZE: Judgement =
    OwnWish("changes the caller's own draw only; a search or an advertisement counts players");
const GRANTED: Judgement = OwnWish("what the caller allows another to do for it");
const CAPACITY: Judgement = OwnWish("what an allocator, which has the role game_server, takes on");
const HOST_IDENTITY: Judgement = OwnWish("whom an allocator lets host its matches; the token is of no use to others");
const GIVES_UP: Judgement = OwnWish("a game server gives up a match of its own; another one is sought");
const REASON: Judgement = OwnWish("for the log, at most 64 bytes on one line");

/// Fields by message.
type Row = (&'static str, &'static [(&'static Judgement, &'static [&'static str])]);

const TABLE: &[Row] = &[
    (
        "MatchmakingCoreRequest",
        &[
            (&ECHO, &["request_type", "request_nonce", "managed_session_index"]),
            (&DISPLAY, &["platform_type", "matchmaking_type"]),
            (&SET, &["matchmaking_set_id"]),
        ],
    ),
    (
        "MatchmakingSearchRequest",
        &[
            (&HASH, &["service_configuration_hash"]),
            (&SET, &["matchmaking_set_id"]),
            (&SEARCH_TOKEN, &["search_token"]),
            (&FILTER, &["exclude_advertisement_ids"]),
        ],
    ),
    (
        "SessionCompositionData",
        &[
            (&SILO, &["silo_id"]),
            (&NAT_TYPE, &["nat_type"]),
            (&PARTY_SIZES, &["party_size_composition"]),
            (&PROGRESS, &["game_in_progress"]),
            (&BIG_PARTIES, &["big_party_count"]),
            (&SEATS, &["max_allowed_join_reservation_count"]),
            (&ACCOUNT, &["players"]),
            (&ATTRIBUTES, &["attributes"]),
            (&REGION_ROUND_TRIP, &["region_latencies"]),
            (&LATENCY_TOKEN, &["latency_token"]),
            (&WISHES, &["wishes"]),
        ],
    ),
    ("Wish", &[(&WISHES, &["attribute", "relaxations", "accept_missing"])]),
    ("AcceptedValues", &[(&WISHES, &["min", "max", "strings", "flag"])]),
    ("WishRelaxation", &[(&WISHES, &["after_ms"])]),
    ("LocalityData", &[(&PLACE, &["locality_x", "locality_y", "locality_z", "latitude_degrees", "longitude_degrees"])]),
    (
        "PlayerData",
        &[
            (&ACCOUNT, &["user_id"]),
            (&CLIENT_NAME, &["player_id"]),
            (&SKILL, &["skill"]),
            (&CONSENT, &["consent_token"]),
            (&LATENCY_TOKEN, &["latency_token"]),
            (&STATED_TEAM, &["team"]),
            (&PLAYER_ATTRIBUTES, &["attributes"]),
            (&WANTED_ROLES, &["roles"]),
        ],
    ),
    ("AttributeValue", &[(&ATTRIBUTES, &["number_value", "string_value", "bool_value"])]),
    ("StringList", &[(&ATTRIBUTES, &["values"])]),
    ("RegionLatency", &[(&REGION_ROUND_TRIP, &["region", "round_trip_ms"])]),
    (
        "MatchmakingSearchConfigOverrides",
        &[(&OVERRIDES, &["max_results", "max_evaluated", "searching_for_ms", "weights", "limits"])],
    ),
    (
        "MatchmakingUpdateAdvertisementRequest",
        &[
            (&ADVERTISEMENT, &["advertisement_id", "advertisement_token"]),
            (&HASH, &["service_configuration_hash"]),
            (&SET, &["matchmaking_set_id"]),
            (&TTL, &["time_to_live_ms"]),
            (&PASSED_ON, &["connect_data"]),
            (&FILTER, &["allowed_ranges"]),
            (&ROLE, &["kind"]),
            (&NAMED_RESERVATIONS, &["confirmed_reservation_ids", "joined_reservation_ids"]),
            (&KEY, &["idempotency_key"]),
        ],
    ),
    ("AllowedRange", &[(&FILTER, &["attribute", "min", "max"])]),
    ("ProbeEndpoint", &[(&PROBE_ADDRESS, &["address", "port", "probe_key"]), (&HOSTED, &["hosted"])]),
    ("MatchmakingDeleteAdvertisementRequest", &[(&ADVERTISEMENT, &["advertisement_id", "advertisement_token"])]),
    (
        "MatchmakingGetConfigurationRequest",
        &[(&SET, &["matchmaking_set_id"]), (&RESUME, &["service_configuration_hash"])],
    ),
    (
        "MatchmakingReserveRequest",
        &[
            (&SEARCHED, &["advertisement_id"]),
            (&ACCOUNT, &["players"]),
            (&KEY, &["idempotency_key"]),
            (&TTL, &["hold_for_ms"]),
            (&SEARCH_TOKEN, &["search_token"]),
            (&SET, &["matchmaking_set_id"]),
        ],
    ),
    (
        "MatchmakingStartMatchRequest",
        &[
            (&STARTED_SESSION, &["advertisement_id", "advertisement_token"]),
            (&START_KEY, &["idempotency_key"]),
            (&ROSTER, &["teams", "host_party"]),
        ],
    ),
    ("SessionTeam", &[(&ROSTER, &["host_party", "reservation_ids"])]),
    (
        "MatchmakingReleaseRequest",
        &[(&RESERVATION, &["reservation_id", "reservation_token"]), (&OWN_SEAT, &["advertisement_id"])],
    ),
    (
        "MatchmakingReportLatencyRequest",
        &[
            (&SEARCH_TOKEN, &["search_token"]),
            (&ECHO, &["phase"]),
            (&ROUND_TRIP, &["measurements"]),
            (&SET, &["matchmaking_set_id"]),
            (&HASH, &["service_configuration_hash"]),
        ],
    ),
    (
        "LatencyMeasurement",
        &[(&SEARCHED, &["advertisement_id"]), (&ROUND_TRIP, &["round_trip_ms"]), (&OWN_PROBES, &["outcome"])],
    ),
    (
        "RoundTripStatistics",
        &[
            (&ROUND_TRIP, &["floor_ms", "p50_ms"]),
            (&PACKETS, &["sent", "answered"]),
            (&OWN_PROBES, &["jitter_ms", "age_ms"]),
        ],
    ),
    ("ReportTripsRequest", &[(&RECEIPTS, &["receipts"]), (&BEACON_CLAIM, &["claims"])]),
    ("BeaconClaim", &[(&BEACON_CLAIM, &["beacon_id"])]),
    ("AnnounceBeaconRequest", &[(&BEACON, &["key_id", "trips"])]),
    ("Beacon", &[(&BEACON, &["id", "region", "address", "port", "latitude", "longitude", "measure_first"])]),
    ("BeaconTrip", &[(&BEACON, &["beacon_id", "floor_ms", "age_ms"])]),
    ("MatchmakingChooseActionRequest", &[(&SET, &["matchmaking_set_id"]), (&PARTY_SIZE, &["party_size"])]),
    (
        "MatchmakingGrantConsentRequest",
        &[(&GRANTED, &["leader_user_id", "use", "may_answer"]), (&SET, &["matchmaking_set_id"])],
    ),
    ("MatchmakingRevokeConsentRequest", &[(&REVOKED, &["consent_token"])]),
    (
        "MatchmakingUpdateBlockListRequest",
        &[(&LIST_OWNER, &["user_id"]), (&LISTED, &["replace", "add_user_ids", "remove_user_ids"])],
    ),
    (
        "QueueEnterRequest",
        &[
            (&SET, &["matchmaking_set_id"]),
            (&HASH, &["service_configuration_hash"]),
            (&KEY, &["idempotency_key"]),
            (&FILTER, &["blocked_user_ids"]),
        ],
    ),
    ("QueueLeaveRequest", &[(&TICKET, &["ticket_id", "ticket_token"]), (&OTHERS_OF_THE_TICKET, &["user_ids"])]),
    ("QueueWatchRequest", &[(&TICKET, &["tickets"]), (&LATENCY_TOKEN, &["latency_token"])]),
    ("TicketReference", &[(&TICKET, &["ticket_id", "ticket_token"]), (&RESUME, &["resume_token"])]),
    (
        "QueueHeartbeatRequest",
        &[
            (&TICKET, &["tickets"]),
            (&CONNECTED, &["connected_user_ids"]),
            (&CONNECTED_IN, &["silo_id", "connected_matchmaking_set_ids"]),
            (&LATENCY_TOKEN, &["latency_token"]),
        ],
    ),
    (
        "QueueRespondRequest",
        &[
            (&TICKET, &["ticket_id", "ticket_token"]),
            (&PROPOSAL, &["match_id"]),
            (&ANSWER, &["accept"]),
            (&OTHERS_OF_THE_TICKET, &["user_ids"]),
        ],
    ),
    (
        "QueueEndMatchRequest",
        &[
            (&HOSTING_PLAYER, &["match_id", "ticket_token"]),
            (&HOSTED_BY, &["advertisement_token"]),
            (&FAILED, &["failed"]),
        ],
    ),
    ("QueueHostHeartbeatRequest", &[(&HOSTED_BY, &["advertisement_token"]), (&HOSTED_MATCH, &["matches"])]),
    ("HostedMatchBeat", &[(&HOSTED_MATCH, &["match_id"]), (&GIVES_UP, &["gives_up"])]),
    (
        "ReportResultRequest",
        &[
            (&MATCH, &["match_id"]),
            (&RESULT, &["team_ranks", "player_ranks"]),
            (&DISCONNECTED, &["disconnected_player_keys"]),
            (&DURATION, &["duration_ms"]),
            (&HOSTED_BY, &["advertisement_token"]),
            (&PLAYER_OF_THE_TICKET, &["ticket_token", "player_key"]),
        ],
    ),
    ("TeamRank", &[(&RESULT, &["team", "rank"])]),
    ("PlayerRank", &[(&RESULT, &["player_key", "rank"])]),
    ("GetRatingsRequest", &[(&SET, &["matchmaking_set_id"]), (&READABLE, &["user_ids"])]),
    (
        "GetLeaderboardRequest",
        &[
            (&SET, &["matchmaking_set_id"]),
            (&PAGE, &["from_rank", "page_size"]),
            (&PAGE_TOKEN, &["page_token"]),
            (&AROUND, &["around_user_id"]),
        ],
    ),
    ("PredictOutcomeRequest", &[(&SET, &["matchmaking_set_id"]), (&READABLE, &["sides"])]),
    ("PredictedSide", &[(&READABLE, &["user_ids"])]),
    (
        "GetRatingHistoryRequest",
        &[
            (&SET, &["matchmaking_set_id"]),
            (&READABLE, &["user_id"]),
            (&PAGE, &["page_size"]),
            (&PAGE_TOKEN, &["page_token"]),
        ],
    ),
    (
        "SubmitFeedbackRequest",
        &[(&MATCH, &["match_id"]), (&PLAYER_OF_THE_TICKET, &["ticket_token", "player_key"]), (&STARS, &["stars"])],
    ),
    ("AllocatorRegistration", &[(&CAPACITY, &["matchmaking_set_ids", "regions", "max_open_offers"])]),
    ("HostIdentity", &[(&HOST_IDENTITY, &["issuer", "subject"])]),
    ("PlaceAnswer", &[(&OFFER, &["offer_token"]), (&PASSED_ON, &["connect_data"])]),
    ("RefuseAnswer", &[(&OFFER, &["offer_token"]), (&REASON, &["reason"])]),
];

/// Whether a file has a test of this name: a test function, or one that its macro makes for each store.
fn has_test(file: &SourceFile, name: &str) -> bool {
    let is_attribute = |line: &str| line.trim() == "#[test]" || line.trim().starts_with("#[tokio::test");
    let lines: Vec<&str> = file.text.lines().collect();
    let is_function = lines.windows(2).any(|pair| is_attribute(pair[0]) && pair[1].contains(&format!("fn {name}()")));
    let made_by_macro = file
        .text
        .split_once("on_each_store! {")
        .is_some_and(|(_, calls)| calls.split(|it: char| !it.is_alphanumeric() && it != '_').any(|word| word == name));
    is_function || made_by_macro
}

/// SEC-5, SEC-6: each field of each request on the client port has a row, each row is a field, and each lie that a row names is a
/// test of the integration tests.
#[test]
fn every_claim_of_a_client_is_tried_as_a_lie() {
    let rows = TABLE.iter().flat_map(|(message, groups)| {
        groups.iter().flat_map(|(_, fields)| fields.iter()).map(move |field| (*message, *field))
    });
    let advice = "try each as a lie, or say in the table why there is nothing to lie about";
    assert_closed(&request_fields(pb::CLIENT_PORT_SERVICE_DESCRIPTORS), rows, advice);
    let files = read_source_files(&repository_root().join("tests/it"));
    let (mut fields_in_all, mut tried) = (0, 0);
    for (judgement, fields) in TABLE.iter().flat_map(|(_, groups)| groups.iter()) {
        fields_in_all += fields.len();
        match judgement {
            Refused(tests) | Ignored(tests) | WithoutAuthority(tests) => {
                let unknown: Vec<_> =
                    tests.iter().filter(|test| !files.iter().any(|file| has_test(file, test))).collect();
                assert!(!tests.is_empty() && unknown.is_empty(), "no such test: {unknown:?}");
                tried += fields.len();
            }
            OwnWish(reason) | Accepted(reason) => assert!(!reason.is_empty()),
        }
    }
    println!("{fields_in_all} fields of {} messages, {tried} tried as a lie", TABLE.len());
}
