//! Size and count limits, with compile-time checks that they are consistent.

/// Players in one session, one reservation or one match of a queue.
pub const PLAYERS_PER_SESSION_MAX: usize = 128;
/// Parties in one session.
pub const PARTIES_PER_SESSION_MAX: usize = PLAYERS_PER_SESSION_MAX;
/// Players in one party of a queue: a ticket has one bit for each.
pub const PLAYERS_PER_TICKET_MAX: usize = u64::BITS as usize;
/// Roles of one ruleset: a set of roles has one bit for each.
pub const ROLES_PER_RULESET_MAX: usize = u64::BITS as usize;
/// Roles that one player may want.
pub const WANTED_ROLES_PER_PLAYER_MAX: usize = 16;
/// Open seats in one advertisement.
pub const OPEN_SEATS_MAX: u16 = 1_000;
/// Attributes in one session, and attributes declared by one ruleset.
pub const ATTRIBUTES_MAX: usize = 32;
/// Bytes in a user id, an attribute name, a string value or a region name.
pub const STRING_BYTES_MAX: usize = 64;
/// Entries in a string list.
pub const STRING_LIST_ENTRIES_MAX: usize = 32;
/// Region round trips in one session.
pub const REGIONS_PER_SESSION_MAX: usize = 32;
/// Attribute ranges published by one advertisement.
pub const ALLOWED_RANGES_PER_ADVERTISEMENT_MAX: usize = 16;
/// Wishes of one session.
pub const WISHES_PER_SESSION_MAX: usize = 16;
/// Relaxations of one wish.
pub const WISH_STEPS_MAX: usize = 8;
/// Bytes of connect data in one advertisement.
pub const CONNECT_DATA_BYTES_MAX: usize = 512;
/// Bytes of the key of a probe endpoint.
pub const PROBE_KEY_BYTES_RANGE: std::ops::RangeInclusive<usize> = 16..=32;

/// Maximum packets of one reported latency probe.
pub const PACKETS_PER_REPORTED_PROBE_MAX: u32 = 1_000;
/// Excluded advertisement ids in one search.
pub const EXCLUDED_ADVERTISEMENTS_MAX: usize = 256;
/// Latency measurements in one report.
pub const CANDIDATE_MEASUREMENTS_PER_REPORT_MAX: usize = 256;
/// Bytes in an idempotency key.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;
/// Minimum bytes in an anonymous caller's idempotency key: only the key distinguishes anonymous callers.
pub const ANONYMOUS_IDEMPOTENCY_KEY_BYTES_MIN: usize = 16;
/// Maximum magnitude of a number in a session. Large enough for any rating, and small enough for precise differences
/// and squares.
pub const NUMBER_MAGNITUDE_MAX: f64 = 1e12;
/// Maximum round trip in a report, milliseconds.
pub const ROUND_TRIP_MS_MAX: f32 = 60_000.0;
/// Live reservations in one advertisement.
pub const RESERVATIONS_PER_ADVERTISEMENT_MAX: usize = 256;
/// Reservation ids that one advertisement update may confirm or end.
pub const RESERVATION_IDS_PER_UPDATE_MAX: usize = 256;
/// Blocked users of one ticket, over all its players.
pub const BLOCKED_USERS_PER_TICKET_MAX: usize = 1_000;
/// Users in one durable block list.
pub const BLOCKED_USERS_PER_LIST_MAX: usize = 1_000;
/// Tickets in one heartbeat or watch call.
pub const TICKETS_PER_CALL_MAX: usize = 256;
/// Matches that one host heartbeat names, and that its answer lists.
pub const HOSTED_MATCHES_PER_CALL_MAX: usize = 256;
/// Teams in one match of a session, and parties in all of them.
pub const PARTIES_PER_SESSION_MATCH_MAX: usize = 256;
/// Players in one match of a session.
pub const PLAYERS_PER_SESSION_MATCH_MAX: usize = 256;
/// Matchmaking sets that one heartbeat may name for its connected users.
pub const CONNECTED_MATCHMAKING_SETS_PER_HEARTBEAT_MAX: usize = 16;
/// Ratings set by one store transaction.
pub const RATINGS_PER_TRANSACTION_MAX: usize = 1_000;
/// Rating history entries stored per user and set; older ones are overwritten.
pub const RATING_HISTORY_ENTRIES_PER_RATING_MAX: u32 = 64;
/// Users in one rating query or outcome prediction.
pub const RATING_USERS_PER_CALL_MAX: usize = 128;
/// Entries in one page of a leaderboard, a rating history or finished matches.
pub const PAGE_ENTRIES_MAX: usize = 200;

/// Entries per kind in one ruleset: hard filters, soft filters, expansions, steps of an expansion, advertise chances.
pub const RULESET_ENTRIES_PER_KIND_MAX: usize = 64;
/// Categories of equal width that a ruleset divides ratings into.
pub const RATING_CATEGORIES_MAX: u64 = 64;
/// Regions that a ruleset lists for its statistics.
pub const STATISTICS_REGIONS_MAX: usize = 32;
/// Search results that a ruleset may allow per search.
pub const SEARCH_RESULTS_MAX: u32 = 200;
/// Evaluated rows that a ruleset may allow per search.
pub const SEARCH_EVALUATED_ROWS_MAX: u32 = 10_000_000;
/// Problems reported for one ruleset file. Further problems are omitted.
pub const REPORTED_RULESET_PROBLEMS_MAX: usize = 100;
/// Maximum of a duration in a ruleset, such as an expansion step, timeout or period: 30 days, milliseconds.
pub const RULESET_DURATION_MS_MAX: u64 = 30 * 24 * 60 * 60 * 1000;
/// Maximum of a rating period in a ruleset: 366 days, milliseconds.
pub const RATING_PERIOD_MS_MAX: u64 = 366 * 24 * 60 * 60 * 1000;
/// Maximum weight of one soft filter.
pub const SOFT_FILTER_WEIGHT_MAX: f64 = 1_000.0;
/// Bytes in one ruleset file.
pub const RULESET_FILE_BYTES_MAX: usize = 256 * 1024;
/// Bytes of the text that says who loaded a ruleset.
pub const LOADED_BY_BYTES_MAX: usize = 512;
/// Former versions of one set that are listed.
pub const FORMER_RULESETS_LISTED_MAX: usize = 64;
/// Nesting depth of elements in a ruleset file, including the root.
pub const RULESET_XML_DEPTH_MAX: usize = 64;
/// Attributes of one element in a ruleset file.
pub const RULESET_XML_ATTRIBUTES_PER_ELEMENT_MAX: usize = 64;
/// Elements in one ruleset file.
pub const RULESET_XML_ELEMENTS_MAX: usize = 10_000;
/// Ruleset files in one directory.
pub const RULESET_FILES_MAX: usize = 256;
/// Retired rulesets that can still be found by hash; the oldest are dropped first.
pub const SUPERSEDED_RULESETS_IN_CATALOG_MAX: usize = 256;
/// Pair checks in one queue pass: at most about two seconds of work, and enough for 100,000 tickets.
pub const PAIR_CHECKS_PER_PASS_MAX: u64 = 20_000_000;

const _: () = assert!(PARTIES_PER_SESSION_MAX <= PLAYERS_PER_SESSION_MAX);
// A party size is stored in a byte.
const _: () = assert!(PLAYERS_PER_SESSION_MAX <= u8::MAX as usize);
const _: () = assert!(PLAYERS_PER_TICKET_MAX <= PLAYERS_PER_SESSION_MAX);
const _: () = assert!(PLAYERS_PER_SESSION_MAX <= OPEN_SEATS_MAX as usize);
const _: () = assert!(RESERVATION_IDS_PER_UPDATE_MAX <= RESERVATIONS_PER_ADVERTISEMENT_MAX);
