//! Closed table of everything that a call on the client port answers: each field is attacked by a test here, or its row says
//! why it does not depend on another player's place. A new field fails until it has a row.

use fireteam::api::pb;

use crate::support::message_fields::{answer_fields, assert_closed};

/// Judgement of a field.
enum Judgement {
    /// It may depend on another player's place, and these tests attack it.
    Attacked(&'static [&'static str]),
    /// It does not depend on another player's place.
    Independent(&'static str),
}

use Judgement::{Attacked, Independent};

/// Attacks on candidates of a search: numbers, order, membership and counts.
const SEARCH: Judgement = Attacked(&[
    "trilateration_from_fifty_addresses_misses_by_100_km",
    "players_in_one_grid_cell_get_identical_answers",
    "round_trip_to_a_known_region_counts_as_from_the_cell_center",
]);
/// Attacks on who is matched, when, and what players learn about it.
const MATCHES: Judgement = Attacked(&[
    "membership_at_any_limit_misses_by_100_km",
    "preference_of_a_queue_misses_by_100_km",
    "players_in_one_grid_cell_have_identical_matches",
    "own_round_trips_to_regions_miss_by_100_km_with_reference_hosts",
]);
const QUALITY: Judgement = Attacked(&[
    "quality_of_seven_matches_misses_by_100_km",
    "players_in_one_grid_cell_have_identical_matches",
    "round_trip_to_a_known_region_counts_as_from_the_cell_center",
]);
/// Attack on the whole published vectors, from which predictions follow.
const PREDICTIONS: Judgement = Attacked(&["round_trips_to_regions_miss_by_100_km"]);
/// Attacks on the region of a match, which follows from round trips.
const REGION: Judgement = Attacked(&[
    "round_trips_to_regions_miss_by_100_km",
    "own_round_trips_to_regions_miss_by_100_km_with_reference_hosts",
    "players_in_one_grid_cell_have_identical_matches",
]);
/// Attacks on the place where a match is played.
const HOST: Judgement = Attacked(&[
    "choice_of_a_game_server_misses_by_100_km",
    "choice_of_a_session_to_fill_misses_by_100_km",
    "players_in_one_grid_cell_have_identical_matches",
]);
/// Waits of other tickets follow from who may meet whom.
const WAITS: Judgement =
    Attacked(&["membership_at_any_limit_misses_by_100_km", "players_in_one_grid_cell_have_identical_matches"]);

const ECHO: Judgement = Independent("the caller's own request, or a token of it");
const ID: Judgement = Independent("a random id or a token");
const RULES: Judgement = Independent("the ruleset, its hash or its set");
const OWN_TIMES: Judgement = Independent("times of the caller's own objects, and settings");
const RATINGS: Judgement = Independent("ratings and results; places do not enter them");
const TEAMS: Judgement = Independent("teams and roles follow from ratings, roles and party sizes");
const REPLIES: Judgement = Independent("what players and hosts replied or reported");
const CHOSEN: Judgement = Independent("entries of lists that the parties state; places do not enter them");
const PUBLISHED: Judgement = Independent("as the advertiser published it, with its own seats");

const BEACONS: Judgement = Independent("machines of the operator, at places that it publishes");
const OWN_RECEIPTS: Judgement = Independent("measured by the caller itself, and told to it alone");

/// Fields by message.
type Row = (&'static str, &'static [(&'static Judgement, &'static [&'static str])]);

const TABLE: &[Row] = &[
    ("MatchmakingCoreResponse", &[(&ECHO, &["request_type", "request_nonce", "managed_session_index"])]),
    (
        "RequestError",
        &[
            (&SEARCH, &["code", "message", "field", "reason"]),
            (&Independent("rate limits, and the load of the server"), &["retry_after_ms"]),
        ],
    ),
    (
        "MatchmakingSearchResponse",
        &[
            (&SEARCH, &["candidates", "evaluated", "truncated", "refusals"]),
            (&ECHO, &["search_token", "searching_for_ms", "ignored_fields"]),
            (&RULES, &["service_configuration_hash", "next_expansion_in_ms"]),
            (&Independent("the age of the store's data"), &["stale_for_ms"]),
        ],
    ),
    (
        "Candidate",
        &[
            (&ID, &["advertisement_id"]),
            (
                &SEARCH,
                &[
                    "score",
                    "terms",
                    "distance_miles",
                    "round_trip_ms",
                    "round_trip_source",
                    "round_trip_low_ms",
                    "round_trip_high_ms",
                ],
            ),
            (&PUBLISHED, &["open_seats", "party_size_composition"]),
            (&CHOSEN, &["chosen"]),
        ],
    ),
    ("LatencyPlan", &[(&RULES, &["quick", "involved", "probe_players", "quick_timeout_ms"])]),
    (
        "GetBeaconsResponse",
        &[(&BEACONS, &["beacons", "beacons_wanted"]), (&OWN_RECEIPTS, &["binding"]), (&OWN_TIMES, &["good_for_ms"])],
    ),
    (
        "Beacon",
        &[
            (&BEACONS, &["id", "region", "address", "port", "latitude", "longitude"]),
            (&OWN_RECEIPTS, &["measure_first"]),
        ],
    ),
    (
        "ReportTripsResponse",
        &[(&OWN_RECEIPTS, &["latency_token", "verdicts", "regions"]), (&OWN_TIMES, &["good_for_ms", "fresh_until_ms"])],
    ),
    ("RegionRoundTrip", &[(&OWN_RECEIPTS, &["region", "round_trip_ms", "claimed"])]),
    ("AnnounceBeaconResponse", &[(&OWN_TIMES, &["announce_again_in_ms"])]),
    ("ChosenValue", &[(&CHOSEN, &["attribute", "value"])]),
    ("ProbeEndpoint", &[(&PUBLISHED, &["address", "port", "probe_key", "hosted"])]),
    (
        "MatchmakingUpdateBlockListResponse",
        &[(&Independent("length of the caller's own list"), &["blocked_user_count"])],
    ),
    ("MatchmakingRevokeConsentResponse", &[(&Independent("use of the caller's own consent"), &["was_used"])]),
    ("QueueMineResponse", &[(&OWN_TIMES, &["tickets", "cooldowns"])]),
    ("OwnTicket", &[(&ID, &["ticket_token"]), (&ECHO, &["entered_by_another"])]),
    ("QueueCooldown", &[(&OWN_TIMES, &["ends_in_ms"]), (&RULES, &["matchmaking_set_id"])]),
    ("ScoreTerm", &[(&RULES, &["name"]), (&SEARCH, &["value"])]),
    ("RefusalCount", &[(&SEARCH, &["rule", "count", "kind", "side"])]),
    (
        "MatchmakingReportLatencyResponse",
        &[
            (&SEARCH, &["candidates", "ignored_fields"]),
            (&ECHO, &["involved_phase_may_start", "search_token", "answered", "probed"]),
            (&PUBLISHED, &["probes"]),
        ],
    ),
    ("CandidateProbe", &[(&ID, &["advertisement_id"])]),
    (
        "MatchmakingUpdateAdvertisementResponse",
        &[
            (&ID, &["advertisement_id", "advertisement_token"]),
            (&OWN_TIMES, &["created", "expires_in_ms", "not_yet_durable", "next_beat_in_ms"]),
            (&RULES, &["service_configuration_hash", "next_expansion_in_ms"]),
            (&ECHO, &["ignored_fields"]),
            (&SEARCH, &["reservations"]),
            (&HOST, &["hosted_match_ids"]),
        ],
    ),
    (
        "MatchmakingGetConfigurationResponse",
        &[(&RULES, &["matchmaking_set_id", "service_configuration_hash", "not_modified", "ruleset_xml"])],
    ),
    (
        "MatchmakingStartMatchResponse",
        &[
            (&ID, &["ticket_id", "ticket_token"]),
            (&OWN_TIMES, &["next_beat_in_ms"]),
            (&REPLIES, &["unavailable_reservation_ids"]),
        ],
    ),
    ("MatchmakingReserveResponse", &[(&PUBLISHED, &["connect_data"])]),
    ("MatchmakingChooseActionResponse", &[(&RULES, &["action", "advertise_percent"])]),
    ("MatchmakingGrantConsentResponse", &[(&ID, &["consent_token"]), (&OWN_TIMES, &["expires_in_ms"])]),
    (
        "Reservation",
        &[
            (&ID, &["reservation_id", "reservation_token"]),
            (&Independent("the size of the party that chose to reserve"), &["seats"]),
            (&OWN_TIMES, &["expires_in_ms"]),
        ],
    ),
    ("ReservationEvent", &[(&ID, &["advertisement_id"]), (&REPLIES, &["state"])]),
    (
        "HostedMatch",
        &[
            (&ID, &["match_id", "advertisement_id", "reservation_id"]),
            (&HOST, &["state", "backfill"]),
            (&RULES, &["matchmaking_set_id", "service_configuration_hash"]),
            (&REGION, &["region"]),
            (&OWN_TIMES, &["confirm_in_ms"]),
            (&MATCHES, &["parties"]),
            (&CHOSEN, &["chosen"]),
            (&TEAMS, &["bots_by_team"]),
        ],
    ),
    (
        "HostedParty",
        &[
            (&TEAMS, &["team"]),
            (&ID, &["reservation_id"]),
            (&MATCHES, &["players"]),
            (&Independent("attributes that the party stated, where the ruleset tells them"), &["attributes"]),
        ],
    ),
    (
        "HostedPlayer",
        &[
            (&ID, &["player_key"]),
            (&TEAMS, &["team_role"]),
            (&REPLIES, &["left"]),
            (&RATINGS, &["rating", "deviation"]),
            (&Independent("attributes that the party stated, where the ruleset tells them"), &["attributes"]),
        ],
    ),
    (
        "AttributeValue",
        &[(&Independent("an attribute that a party stated"), &["number_value", "string_value", "bool_value"])],
    ),
    ("StringList", &[(&Independent("an attribute that a party stated"), &["values"])]),
    ("QueueEnterResponse", &[(&ID, &["ticket_token"]), (&OWN_TIMES, &["expires_in_ms"]), (&ECHO, &["ignored_fields"])]),
    ("QueueHeartbeatResponse", &[(&ECHO, &["statuses"]), (&OWN_TIMES, &["expires_in_ms"])]),
    ("QueueEndMatchResponse", &[(&REPLIES, &["end_reason"])]),
    (
        "QueueHostHeartbeatResponse",
        &[(&ECHO, &["matches"]), (&HOST, &["hosted_match_ids"]), (&OWN_TIMES, &["next_beat_in_ms"])],
    ),
    (
        "TicketStatus",
        &[
            (&ID, &["ticket_id", "resume_token"]),
            (&MATCHES, &["state", "blocking_rule", "end_reason", "return_reason"]),
            (&RULES, &["matchmaking_set_id", "offered_matchmaking_set_id"]),
            (&OWN_TIMES, &["waited_ms"]),
            (&WAITS, &["position", "estimated_wait_p50_ms", "estimated_wait_p90_ms"]),
        ],
    ),
    (
        "MatchStatus",
        &[
            (&ID, &["match_id"]),
            (&RULES, &["service_configuration_hash"]),
            (&REPLIES, &["accepted_count", "end_reason"]),
            (&OWN_TIMES, &["deadline_in_ms"]),
            (&TEAMS, &["team", "player_count"]),
            (&ECHO, &["own_players"]),
            (&REGION, &["region"]),
            (&QUALITY, &["quality"]),
            (&MATCHES, &["players"]),
            (&CHOSEN, &["chosen"]),
            (&TEAMS, &["bots_by_team"]),
            (&PREDICTIONS, &["worst_round_trip_ms"]),
        ],
    ),
    ("MatchReports", &[(&REPLIES, &["state", "window_left_ms"])]),
    ("TicketPlayer", &[(&ID, &["player_key", "credential"]), (&TEAMS, &["team_role"]), (&REPLIES, &["acceptance"])]),
    ("MatchPlayer", &[(&ID, &["player_key"]), (&TEAMS, &["team"]), (&REPLIES, &["left"])]),
    ("GameServerAssignment", &[(&HOST, &["advertisement_id", "connect_data"])]),
    // By NAT type, predicted round trips and waiting time.
    ("PeerHostAssignment", &[(&PREDICTIONS, &["player_key", "is_own"])]),
    (
        "ReportResultResponse",
        &[(&RATINGS, &["rated", "unrated", "changes", "already_reported", "state", "window_left_ms"])],
    ),
    ("PlayerRatingChange", &[(&ID, &["player_key"]), (&RATINGS, &["category"])]),
    ("RatingValue", &[(&RATINGS, &["rating", "deviation"])]),
    ("GetRatingsResponse", &[(&RATINGS, &["ratings"])]),
    (
        "UserRating",
        &[
            (&ECHO, &["user_id", "user_key"]),
            (
                &RATINGS,
                &[
                    "rating_low_95",
                    "rating_high_95",
                    "matches",
                    "streak",
                    "provisional",
                    "conservative_rating",
                    "leaderboard_rank",
                    "category",
                ],
            ),
        ],
    ),
    ("GetLeaderboardResponse", &[(&RATINGS, &["entries", "total", "next_page_token"])]),
    ("PredictOutcomeResponse", &[(&RATINGS, &["win_probabilities"])]),
    ("GetRatingHistoryResponse", &[(&RATINGS, &["changes", "next_page_token"])]),
    ("RatingChange", &[(&RATINGS, &["match_id", "reported_at_unix_ms", "rank", "sides", "matches"])]),
    (
        "AllocationOffer",
        &[
            (&ID, &["offer_token", "match_id", "advertisement_id", "host_token"]),
            (&RULES, &["matchmaking_set_id", "service_configuration_hash", "silo_id"]),
            (&REGION, &["region"]),
            (&TEAMS, &["seats"]),
            (&Independent("attributes that all parties stated"), &["attributes"]),
            (&OWN_TIMES, &["answer_within_ms"]),
        ],
    ),
    ("AnswerAck", &[(&ECHO, &["offer_token"]), (&REPLIES, &["outcome"])]),
];

/// The sources of the attacks, where each named test must be.
const SOURCES: [&str; 4] = [
    include_str!("../trilateration.rs"),
    include_str!("decisions.rs"),
    include_str!("queue_answers.rs"),
    include_str!("round_trips.rs"),
];

/// SEC-9: each field of each answer on the client port has a row, each row is a field, and each attack that a row names is a
/// test.
#[test]
fn every_answer_is_attacked_or_does_not_depend_on_a_place() {
    let rows = TABLE.iter().flat_map(|(message, groups)| {
        groups.iter().flat_map(|(_, fields)| fields.iter()).map(move |field| (*message, *field))
    });
    let advice = "add an attack, or say in the table why they do not depend on another player's place";
    assert_closed(&answer_fields(pb::CLIENT_PORT_SERVICE_DESCRIPTORS), rows, advice);
    for (judgement, _) in TABLE.iter().flat_map(|(_, groups)| groups.iter()) {
        match judgement {
            Attacked(tests) => {
                let is_test = |test: &&&str| SOURCES.iter().any(|source| source.contains(&format!("fn {test}()")));
                let unknown: Vec<_> = tests.iter().filter(|test| !is_test(test)).collect();
                assert!(!tests.is_empty() && unknown.is_empty(), "{unknown:?}");
            }
            Independent(reason) => assert!(!reason.is_empty()),
        }
    }
    let fields: usize = TABLE.iter().flat_map(|(_, groups)| groups.iter()).map(|(_, fields)| fields.len()).sum();
    println!("{fields} fields of {} messages", TABLE.len());
}
