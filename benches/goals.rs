//! Names of the goals: each code of docs/BENCHMARKS.md with words. `cargo bench --` selects rows by the start of either.

/// Code and words of each goal.
const GOALS: &[(&str, &str)] = &[
    ("PS1", "search_latency"),
    ("PS2", "search_latency_without_vector_instructions"),
    ("PS4", "search_worst_cases"),
    ("PS5", "filtered_search_by_sqlite"),
    ("PS6", "ordered_search_by_sqlite"),
    ("PS7", "search_by_predicted_round_trips"),
    ("PU1", "index_update"),
    ("PU2", "search_after_updates"),
    ("PU3", "search_during_updates"),
    ("PU4", "search_during_rating_changes"),
    ("MEM", "memory_per_advertisement"),
    ("PD1", "publish_rate"),
    ("PD2", "batched_publish_rate"),
    ("PD3", "acknowledgement_latency"),
    ("PD5", "heartbeat_cost"),
    ("PD6", "store_load"),
    ("PAGE", "sqlite_page_size"),
    ("START", "server_start_sqlite"),
    ("REBUILD", "server_start_postgres"),
    ("PG1", "publish_rate_postgres"),
    ("PG2", "batched_publish_rate_postgres"),
    ("PG5", "heartbeat_cost_postgres"),
    ("PG6", "store_load_postgres"),
    ("PF1", "feed_latency"),
    ("PF2", "feed_throughput"),
    ("PH1", "one_machine"),
    ("PR1", "unary_publish_cpu"),
    ("PR2", "streamed_publish_cpu"),
    ("PR3", "streamed_publish_time"),
    ("PR4", "search_call"),
    ("PR5", "unary_latency"),
    ("PR6", "idle_connection_memory"),
    ("AUTH", "authentication_cpu"),
    ("DELAY", "update_visibility"),
    ("TOLD", "match_notification"),
    ("ASSIGN", "match_rate"),
    ("QD1", "queue_drive_sqlite"),
    ("QD2", "queue_drive_postgres"),
    ("QD3", "queue_drive_memory"),
    ("QD4", "queue_drive_delay"),
    ("QD5", "waiting_tickets"),
    ("QD6", "queue_drive_redis"),
    ("GEO", "search_by_distance"),
    ("PQ1", "pass_by_rating"),
    ("PQ2", "pass_by_rating_and_distance"),
    ("PQ3", "pass_cost_by_optimum"),
    ("PQ4", "exact_pass"),
    ("PQ6", "pass_kinds"),
    ("PQ7", "pass_of_shipped_rulesets"),
    ("PQ8", "pass_avoiding_past_matches"),
    ("PQ9", "pass_with_long_block_lists"),
    ("QIDLE", "idle_queues"),
    ("PGIDLE", "idle_queues on Postgres"),
    ("PL0", "leaderboard_build"),
    ("PL1", "leaderboard_rank"),
    ("PL2", "leaderboard_page"),
    ("PL3", "leaderboard_move"),
    ("RT1", "rating_update"),
    ("RP1", "round_trip_prediction"),
    ("PM1", "simulation_speed"),
    ("PM2", "simulation_pass_share"),
    ("LAT4", "beacon"),
    ("SEC14", "ruleset_rejection"),
];

/// Words of a goal; `goal` may have more after its code, such as a limit.
fn words(goal: &str) -> &'static str {
    let code = goal.split(' ').next().unwrap_or_default();
    GOALS.iter().find(|(known, _)| *known == code).map_or("", |(_, words)| *words)
}

/// Whether the goal is selected: no name is given, or one is the start of its code or of its words.
pub(crate) fn is_selected(goal: &str, names: &[String]) -> bool {
    names.is_empty()
        || names.iter().any(|name| goal.starts_with(name.as_str()) || words(goal).starts_with(name.as_str()))
}

/// The subject of a row, with the goal's words before it.
pub(crate) fn describe(goal: &str, subject: &str) -> String {
    format!("{}: {subject}", words(goal))
}
