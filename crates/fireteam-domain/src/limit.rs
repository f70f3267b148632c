//! Every bound on a size or a count in the domain, and proofs at compile time that they fit together.

/// Parties in one session (S1-13).
pub const PARTIES_PER_SESSION_MAX: usize = 32;
/// Players in one session or one reservation.
pub const PLAYERS_PER_SESSION_MAX: usize = 64;
/// Open seats that an advertisement may offer.
pub const OPEN_SEATS_MAX: u16 = 1_000;
/// Named attributes on one session, and attributes one ruleset may declare.
pub const ATTRIBUTES_MAX: usize = 32;
/// Bytes in a user id, an attribute's name, a text value or a region's name.
pub const STRING_BYTES_MAX: usize = 64;
/// Entries in a list of texts.
pub const STRING_LIST_ENTRIES_MAX: usize = 32;
/// Regions for which one session may give round trips.
pub const REGIONS_PER_SESSION_MAX: usize = 32;
/// Ranges that one advertisement may publish on top of its ruleset.
pub const ALLOWED_RANGES_MAX: usize = 16;
/// Bytes of connect data in one advertisement.
pub const CONNECT_DATA_BYTES_MAX: usize = 512;
/// Advertisements that one search may ask not to be shown.
pub const EXCLUDED_ADVERTISEMENTS_MAX: usize = 256;
/// Measurements in one latency report.
pub const LATENCY_MEASUREMENTS_MAX: usize = 256;
/// Bytes in an idempotency key.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;
/// Characters that an anonymous caller's idempotency key must have at least: it is all that keeps strangers apart.
pub const ANONYMOUS_IDEMPOTENCY_KEY_BYTES_MIN: usize = 16;
/// The largest magnitude of a number that a session may state. Large enough for any rating, small enough that
/// differences and squares stay exact to many digits.
pub const NUMBER_MAGNITUDE_MAX: f64 = 1e12;
/// The longest round trip that anyone may report, milliseconds.
pub const ROUND_TRIP_MS_MAX: f32 = 60_000.0;
/// Live reservations in one advertisement.
pub const RESERVATIONS_PER_ADVERTISEMENT_MAX: usize = 256;
/// Reservation ids that one update may confirm or settle.
pub const RESERVATION_IDS_PER_UPDATE_MAX: usize = 256;
/// Users whom the players of one ticket may have blocked, all together.
pub const BLOCKED_USERS_PER_TICKET_MAX: usize = 1_000;
/// Tickets that one call may keep alive or watch.
pub const TICKETS_PER_CALL_MAX: usize = 256;
/// Ratings that one transaction may set.
pub const RATINGS_PER_TRANSACTION_MAX: usize = 1_000;
/// Changes of one user's rating in one set that are remembered: the latest.
pub const RATING_HISTORY_ENTRIES_MAX: u32 = 64;
/// Users whose ratings one call may ask for, or whose chances it may weigh.
pub const RATING_USERS_PER_CALL_MAX: usize = 128;
/// Entries of one page of a leaderboard, of a user's changes, or of finished matches.
pub const PAGE_ENTRIES_MAX: usize = 200;

/// Filters of one kind, expansions, steps of one expansion, or advertise chances in a ruleset.
pub const RULESET_ENTRIES_PER_KIND_MAX: usize = 64;
/// Results that a ruleset may let one search return.
pub const SEARCH_RESULTS_MAX: u32 = 200;
/// Rows that a ruleset may let one search evaluate.
pub const SEARCH_EVALUATED_ROWS_MAX: u32 = 10_000_000;
/// Mistakes that are reported about one file; a file with more needs another look, not a longer list.
pub const REPORTED_RULESET_PROBLEMS_MAX: usize = 100;
/// The longest that one expansion step, deadline or period of a ruleset may be: 30 days, milliseconds.
pub const RULESET_DURATION_MS_MAX: u64 = 30 * 24 * 60 * 60 * 1000;
/// The heaviest that one soft filter may weigh.
pub const SOFT_FILTER_WEIGHT_MAX: f64 = 1_000.0;
/// Bytes in one ruleset file.
pub const RULESET_FILE_BYTES_MAX: usize = 256 * 1024;
/// Elements within elements in a ruleset file, the root included.
pub const RULESET_XML_DEPTH_MAX: usize = 64;
/// Attributes of one element in a ruleset file.
pub const RULESET_XML_ATTRIBUTES_PER_ELEMENT_MAX: usize = 64;
/// Elements in one ruleset file.
pub const RULESET_XML_ELEMENTS_MAX: usize = 10_000;
/// Ruleset files in one directory.
pub const RULESET_FILES_MAX: usize = 256;
/// Retired rulesets that are still resolved by hash; the oldest go first.
pub const RETIRED_RULESETS_MAX: usize = 256;
/// Pairs that one pass over a queue may judge: some two seconds of work at the worst, and a hundred thousand tickets without want.
pub const PAIR_CHECKS_PER_PASS_MAX: u64 = 20_000_000;

const _: () = assert!(PARTIES_PER_SESSION_MAX <= PLAYERS_PER_SESSION_MAX);
const _: () = assert!(PLAYERS_PER_SESSION_MAX <= OPEN_SEATS_MAX as usize);
const _: () = assert!(RESERVATION_IDS_PER_UPDATE_MAX <= RESERVATIONS_PER_ADVERTISEMENT_MAX);
