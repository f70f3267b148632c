//! Table of all metrics. The registry is built from it, and a test compares docs/METRICS.md with it.

pub mod beacon_packets;
pub mod process_usage;
pub mod set_gauges;
mod statistic_buckets;
mod statistics;

use std::fmt::Write;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

use crate::domain::filter::Refusal;
use crate::domain::id::SetId;
use crate::domain::queue::report::PassReport;
use crate::telemetry::label::{
    AdvertisementKindLabel, AuthFailure, BeaconPacketOutcome, ConnectionRejection, DiskFolder, FeedLabel, GrpcCode,
    KnownSets, LoadOutcome, LookupOutcome, MatchEventLabel, MatchStageLabel, Method, OfferEvent, PredictionSide,
    ProbeOutcome, ProbePhase, RateLimitLabel, RateLimitRole, ReceiptLabel, RefusalKind, RoundTripLabel,
    SeatOutcomeLabel, SeatStateLabel, SetLabel, SpanDropReason, StatisticLabels, StoreOperation, TaskLabel,
    TicketOutcomeLabel, TicketStateLabel, TransactionKind,
};
use crate::telemetry::metric::beacon_packets::BeaconPacketCounters;
use crate::telemetry::metric::statistic_buckets::{
    empty_distance_meters_histogram, empty_quality_histogram, empty_round_trip_seconds_histogram,
    empty_stars_histogram, empty_wait_seconds_histogram,
};

/// Content type of the text that `render` returns.
pub const OPENMETRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Counter per label value.
pub type CounterBy<L> = Family<L, Counter>;
/// Histogram per label value.
pub type HistogramBy<L> = Family<L, Histogram, fn() -> Histogram>;

/// Labels of an exemplar: the id of a trace.
pub type TraceLabels = [(&'static str, String); 1];
/// Histogram per label value, with the trace of a recent event in each bucket that has one.
pub type TracedHistogramBy<L> =
    Family<L, HistogramWithExemplars<TraceLabels>, fn() -> HistogramWithExemplars<TraceLabels>>;

/// One metric: name, kind, labels and help text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricRow {
    /// Name in a scrape; histograms add `_bucket`, `_sum` and `_count`.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Names of the labels.
    pub labels: &'static [&'static str],
    /// Help text, one sentence.
    pub help: &'static str,
}

/// Generates the struct, its registration and the table of metrics from one list.
macro_rules! metrics {
    ($(#[doc = $help:literal] $field:ident: $type:ty = $make:expr, $kind:literal $name:literal [$($label:expr),*];)*) => {
        /// All metrics of a server. Recording costs a few atomic additions and cannot fail.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Registry,
            /// Sets that the metrics tell apart.
            known_sets: KnownSets,
            $(#[doc = $help] pub $field: $type,)*
        }

        /// All metrics, in the order of docs/METRICS.md.
        pub const METRIC_ROWS: &[MetricRow] = &[
            $(MetricRow { name: $name, kind: $kind, labels: &[$($label),*], help: $help.trim_ascii() },)*
            MetricRow {
                name: "fireteam_build_info",
                kind: "info",
                labels: &["version"],
                help: "Always 1; the label is the version of the server.",
            },
        ];

        impl Metrics {
            fn register_all(mut registry: Registry) -> Self {
                $(
                    let $field: $type = $make;
                    register_metric(&mut registry, $kind, $name, $help, $field.clone());
                )*
                Self { registry, known_sets: KnownSets::default(), $($field),* }
            }
        }
    };
}

metrics! {
    /// Finished calls.
    rpc_calls: CounterBy<(Method, GrpcCode)> = Family::default(), "counter" "fireteam_rpc_calls_total" [Method::KEY, GrpcCode::KEY];
    /// Time from the arrival of a call to its response.
    rpc_duration_seconds: TracedHistogramBy<Method> = Family::new_with_constructor(traced_duration_histogram), "histogram" "fireteam_rpc_duration_seconds" [Method::KEY];
    /// Calls rejected by authentication or by the caller's role.
    auth_failures: CounterBy<AuthFailure> = Family::default(), "counter" "fireteam_auth_failures_total" [AuthFailure::KEY];
    /// Loads of the keys that verify callers' tokens.
    auth_key_loads: CounterBy<LoadOutcome> = Family::default(), "counter" "fireteam_auth_key_loads_total" [LoadOutcome::KEY];
    /// Calls and streams rejected by a rate limit.
    rate_limited: CounterBy<(RateLimitRole, RateLimitLabel)> = Family::default(), "counter" "fireteam_rate_limited_total" [RateLimitRole::KEY, RateLimitLabel::KEY];
    /// Open connections.
    connections: Gauge = Gauge::default(), "gauge" "fireteam_connections" [];
    /// Connections rejected during the handshake, or closed because of their HTTP/2 frames.
    connections_rejected: CounterBy<ConnectionRejection> = Family::default(), "counter" "fireteam_connections_rejected_total" [ConnectionRejection::KEY];
    /// Loads of the TLS certificate, its key and the client CA certificates.
    tls_loads: CounterBy<LoadOutcome> = Family::default(), "counter" "fireteam_tls_loads_total" [LoadOutcome::KEY];
    /// Open Connect streams.
    streams: Gauge = Gauge::default(), "gauge" "fireteam_streams" [];
    /// Reported latency probes.
    probe_reports: CounterBy<(ProbePhase, ProbeOutcome)> = Family::default(), "counter" "fireteam_probe_reports_total" [ProbePhase::KEY, ProbeOutcome::KEY];
    /// Round trips of candidates in answers to searches, by source.
    round_trip_sources: CounterBy<RoundTripLabel> = Family::default(), "counter" "fireteam_round_trip_sources_total" [RoundTripLabel::KEY];
    /// Difference of a predicted round trip and the least one that a client then measured.
    prediction_error_seconds: Histogram = Histogram::new(exponential_buckets(1e-3, 2.0, 11)), "histogram" "fireteam_prediction_error_seconds" [];
    /// Measured round trips outside the interval that was predicted to hold nine of ten, by side.
    prediction_outside: CounterBy<PredictionSide> = Family::default(), "counter" "fireteam_prediction_outside_total" [PredictionSide::KEY];
    /// Receipts of beacons, by verdict.
    receipts: CounterBy<ReceiptLabel> = Family::default(), "counter" "fireteam_receipts_total" [ReceiptLabel::KEY];
    /// Live beacons that this server knows.
    beacons: Gauge = Gauge::default(), "gauge" "fireteam_beacons" [];
    /// Packets that the beacon of this process has received.
    beacon_packets: CounterBy<BeaconPacketOutcome> = Family::default(), "counter" "fireteam_beacon_packets_total" [BeaconPacketOutcome::KEY];
    /// Rows evaluated by a search.
    search_evaluated_rows: Histogram = powers_of_four_histogram(), "histogram" "fireteam_search_evaluated_rows" [];
    /// Candidates returned by a search.
    search_candidates: Histogram = powers_of_two_histogram(), "histogram" "fireteam_search_candidates" [];
    /// Searches truncated by the evaluation limit.
    search_truncated: Counter = Counter::default(), "counter" "fireteam_search_truncated_total" [];
    /// Evaluated rows refused by a rule; the first refusing rule counts.
    search_refusals: CounterBy<RefusalKind> = Family::default(), "counter" "fireteam_search_refusals_total" [RefusalKind::KEY];
    /// Advertisements in memory.
    advertisements: Gauge = Gauge::default(), "gauge" "fireteam_advertisements" [];
    /// Advertisements in memory, by set, kind and whether seats are open.
    set_advertisements: Family<(SetLabel, (AdvertisementKindLabel, SeatStateLabel)), Gauge> = Family::default(), "gauge" "fireteam_set_advertisements" [SetLabel::KEY, AdvertisementKindLabel::KEY, SeatStateLabel::KEY];
    /// Heartbeats answered from memory, without a write to the store.
    heartbeats_unwritten: Counter = Counter::default(), "counter" "fireteam_heartbeats_unwritten_total" [];
    /// Advertisements whose TTL expired.
    advertisements_expired: Counter = Counter::default(), "counter" "fireteam_advertisements_expired_total" [];
    /// Reservations that hold seats.
    reservations: Gauge = Gauge::default(), "gauge" "fireteam_reservations" [];
    /// Tickets in memory, including recently ended ones.
    tickets: Gauge = Gauge::default(), "gauge" "fireteam_tickets" [];
    /// Matches in memory, including recently ended ones.
    matches: Gauge = Gauge::default(), "gauge" "fireteam_matches" [];
    /// Tickets that have not ended, by set and state.
    queue_tickets: Family<(SetLabel, TicketStateLabel), Gauge> = Family::default(), "gauge" "fireteam_queue_tickets" [SetLabel::KEY, TicketStateLabel::KEY];
    /// Players of waiting tickets, by set.
    queue_waiting_players: Family<SetLabel, Gauge> = Family::default(), "gauge" "fireteam_queue_waiting_players" [SetLabel::KEY];
    /// Matches that have not ended, by set and stage.
    queue_matches: Family<(SetLabel, MatchStageLabel), Gauge> = Family::default(), "gauge" "fireteam_queue_matches" [SetLabel::KEY, MatchStageLabel::KEY];
    /// Matches that were proposed, began or ended, by set and event; the event of an end is its reason.
    match_events: CounterBy<(SetLabel, MatchEventLabel)> = Family::default(), "counter" "fireteam_match_events_total" [SetLabel::KEY, MatchEventLabel::KEY];
    /// Players who left a match during play, by set.
    players_left: CounterBy<SetLabel> = Family::default(), "counter" "fireteam_players_left_total" [SetLabel::KEY];
    /// Time from entering a queue until play began (outcome `played`) or, without play, until the ticket ended, by the reason; counted when it ends.
    ticket_wait_seconds: HistogramBy<(SetLabel, TicketOutcomeLabel)> = Family::new_with_constructor(empty_wait_seconds_histogram), "histogram" "fireteam_ticket_wait_seconds" [SetLabel::KEY, TicketOutcomeLabel::KEY];
    /// Silos with a live ticket or advertisement.
    open_silos: Gauge = Gauge::default(), "gauge" "fireteam_open_silos" [];
    /// Allocators connected to this server.
    allocators: Gauge = Gauge::default(), "gauge" "fireteam_allocators" [];
    /// Matches that wait for an allocator's place, as seen by this server while allocators are connected to it.
    matches_to_allocate: Gauge = Gauge::default(), "gauge" "fireteam_matches_to_allocate" [];
    /// Offers of matches to allocators, by what happened to them.
    allocation_offers: CounterBy<OfferEvent> = Family::default(), "counter" "fireteam_allocation_offers_total" [OfferEvent::KEY];
    /// Rounds of queue runners; each checks deadlines, allocations and whether a pass is due.
    queue_rounds: Counter = Counter::default(), "counter" "fireteam_queue_rounds_total" [];
    /// Duration of a pass over a queue.
    pass_duration_seconds: HistogramBy<SetLabel> = Family::new_with_constructor(duration_histogram), "histogram" "fireteam_pass_duration_seconds" [SetLabel::KEY];
    /// Pairs of tickets evaluated by passes.
    pass_pairs_evaluated: CounterBy<SetLabel> = Family::default(), "counter" "fireteam_pass_pairs_evaluated_total" [SetLabel::KEY];
    /// Tickets that passes put into proposed matches.
    pass_tickets_proposed: CounterBy<SetLabel> = Family::default(), "counter" "fireteam_pass_tickets_proposed_total" [SetLabel::KEY];
    /// Pairs of tickets refused by a rule in a pass; the first refusing rule counts.
    pass_refusals: CounterBy<RefusalKind> = Family::default(), "counter" "fireteam_pass_refusals_total" [RefusalKind::KEY];
    /// Passes that exhausted their budget of pair evaluations before the last ticket.
    passes_truncated: CounterBy<SetLabel> = Family::default(), "counter" "fireteam_passes_truncated_total" [SetLabel::KEY];
    /// Time from a party's first search until its seats were reserved; counted when they are confirmed.
    search_to_seat_seconds: HistogramBy<StatisticLabels> = Family::new_with_constructor(empty_wait_seconds_histogram), "histogram" "fireteam_search_to_seat_seconds" ["set", "region", "party_size"];
    /// Time from a party's first search until the outcome of each of its attempts to take seats.
    seat_attempt_seconds: HistogramBy<(SetLabel, SeatOutcomeLabel)> = Family::new_with_constructor(empty_wait_seconds_histogram), "histogram" "fireteam_seat_attempt_seconds" [SetLabel::KEY, SeatOutcomeLabel::KEY];
    /// Score of the session in which a searching party has a seat; lower is better.
    seat_score: HistogramBy<StatisticLabels> = Family::new_with_constructor(empty_quality_histogram), "histogram" "fireteam_seat_score" ["set", "region", "party_size"];
    /// Distance of a searching party to the session in which it has a seat.
    seat_distance_meters: HistogramBy<StatisticLabels> = Family::new_with_constructor(empty_distance_meters_histogram), "histogram" "fireteam_seat_distance_meters" ["set", "region", "party_size"];
    /// Expected round trip of a searching party to the session in which it has a seat.
    seat_round_trip_seconds: HistogramBy<StatisticLabels> = Family::new_with_constructor(empty_round_trip_seconds_histogram), "histogram" "fireteam_seat_round_trip_seconds" ["set", "region", "party_size"];
    /// Time from entering a queue until a match was proposed, for each party of each proposal.
    enter_to_match_seconds: HistogramBy<StatisticLabels> = Family::new_with_constructor(empty_wait_seconds_histogram), "histogram" "fireteam_enter_to_match_seconds" ["set", "region", "party_size"];
    /// Time from entering a queue until play began, for each party.
    enter_to_play_seconds: HistogramBy<StatisticLabels> = Family::new_with_constructor(empty_wait_seconds_histogram), "histogram" "fireteam_enter_to_play_seconds" ["set", "region", "party_size"];
    /// Quality of matches that began in play; higher is better.
    match_quality: HistogramBy<StatisticLabels> = Family::new_with_constructor(empty_quality_histogram), "histogram" "fireteam_match_quality" ["set", "region", "party_size"];
    /// Largest distance between two parties of a match that began in play.
    match_distance_meters: HistogramBy<StatisticLabels> = Family::new_with_constructor(empty_distance_meters_histogram), "histogram" "fireteam_match_distance_meters" ["set", "region", "party_size"];
    /// Round trip of a party to the region of its match that began in play.
    match_round_trip_seconds: HistogramBy<StatisticLabels> = Family::new_with_constructor(empty_round_trip_seconds_histogram), "histogram" "fireteam_match_round_trip_seconds" ["set", "region", "party_size"];
    /// Sessions that a rule refused in searches, by rule.
    search_rule_refusals: CounterBy<StatisticLabels> = Family::default(), "counter" "fireteam_search_rule_refusals_total" ["set", "party_size", "rule"];
    /// Pairs of parties that a rule refused in passes, by rule.
    pass_rule_refusals: CounterBy<StatisticLabels> = Family::default(), "counter" "fireteam_pass_rule_refusals_total" ["set", "party_size", "rule"];
    /// Feedback of players on matches.
    feedback_stars: HistogramBy<StatisticLabels> = Family::new_with_constructor(empty_stars_histogram), "histogram" "fireteam_feedback_stars" ["set", "ruleset"];
    /// Matches with a result.
    match_results: CounterBy<StatisticLabels> = Family::default(), "counter" "fireteam_match_results_total" ["set", "ruleset"];
    /// Values that were not counted because too many counts wait for the store, and reservations because too many wait for their hosts.
    statistics_dropped: Counter = Counter::default(), "counter" "fireteam_statistics_dropped_total" [];
    /// Duration of a store operation.
    store_duration_seconds: HistogramBy<StoreOperation> = Family::new_with_constructor(duration_histogram), "histogram" "fireteam_store_duration_seconds" [StoreOperation::KEY];
    /// Rows read or changed by store operations.
    store_rows: CounterBy<StoreOperation> = Family::default(), "counter" "fireteam_store_rows_total" [StoreOperation::KEY];
    /// Failed store operations; the log has the error.
    store_failures: CounterBy<StoreOperation> = Family::default(), "counter" "fireteam_store_failures_total" [StoreOperation::KEY];
    /// Duration of a store transaction.
    store_transaction_duration_seconds: HistogramBy<TransactionKind> = Family::new_with_constructor(duration_histogram), "histogram" "fireteam_store_transaction_duration_seconds" [TransactionKind::KEY];
    /// Rows in the store that a newer server wrote and this server cannot decode; it does not change them.
    store_unknown_rows: Gauge = Gauge::default(), "gauge" "fireteam_store_unknown_rows" [];
    /// Time since the shared store became unavailable, seconds; 0 while it is available.
    store_staleness_seconds: Gauge<f64, AtomicU64> = Gauge::default(), "gauge" "fireteam_store_staleness_seconds" [];
    /// Time since the change feed of a shared store was last read, seconds.
    feed_age_seconds: Family<FeedLabel, Gauge<f64, AtomicU64>> = Family::default(), "gauge" "fireteam_feed_age_seconds" [FeedLabel::KEY];
    /// Advertisements whose latest heartbeat is in memory and not yet in the store.
    advertisements_pending: Gauge = Gauge::default(), "gauge" "fireteam_advertisements_pending" [];
    /// Advertisements that differed between memory and store in the last consistency check; 0 before the first check.
    consistency_differences: Gauge = Gauge::default(), "gauge" "fireteam_consistency_differences" [];
    /// Free space of the disk of a folder that the server writes to, bytes.
    disk_free_bytes: Family<DiskFolder, Gauge> = Family::default(), "gauge" "fireteam_disk_free_bytes" [DiskFolder::KEY];
    /// Panics of long-lived tasks and of passes; the log has the reason.
    task_panics: CounterBy<TaskLabel> = Family::default(), "counter" "fireteam_task_panics_total" [TaskLabel::KEY];
    /// Rulesets in use.
    rulesets: Gauge = Gauge::default(), "gauge" "fireteam_rulesets" [];
    /// Sets whose ruleset file was removed and whose removal grace period has not ended.
    rulesets_retired: Gauge = Gauge::default(), "gauge" "fireteam_rulesets_retired" [];
    /// Ruleset files that are invalid; the former rulesets stay in use.
    rulesets_rejected: Gauge = Gauge::default(), "gauge" "fireteam_rulesets_rejected" [];
    /// Loads of the rulesets.
    ruleset_loads: CounterBy<LoadOutcome> = Family::default(), "counter" "fireteam_ruleset_loads_total" [LoadOutcome::KEY];
    /// Loads of the GeoIP files.
    locality_loads: CounterBy<LoadOutcome> = Family::default(), "counter" "fireteam_locality_loads_total" [LoadOutcome::KEY];
    /// GeoIP lookups of addresses.
    locality_lookups: CounterBy<LookupOutcome> = Family::default(), "counter" "fireteam_locality_lookups_total" [LookupOutcome::KEY];
    /// Build time of the oldest GeoIP file in use, seconds since 1970; 0 without files.
    geolocation_build_timestamp_seconds: Gauge = Gauge::default(), "gauge" "fireteam_geolocation_build_timestamp_seconds" [];
    /// Spans of traces that were dropped.
    trace_spans_dropped: CounterBy<SpanDropReason> = Family::default(), "counter" "fireteam_trace_spans_dropped_total" [SpanDropReason::KEY];
    /// Processor time of the process, seconds.
    process_cpu_seconds: Counter<f64, AtomicU64> = Counter::default(), "counter" "process_cpu_seconds_total" [];
    /// Memory of the process in RAM, bytes.
    process_resident_memory_bytes: Gauge = Gauge::default(), "gauge" "process_resident_memory_bytes" [];
    /// Start of the process, seconds since 1970.
    process_start_time_seconds: Gauge = Gauge::default(), "gauge" "process_start_time_seconds" [];
}

/// Metric series of one RPC method and one gRPC code.
#[derive(Clone, Debug)]
pub struct CallSeries {
    calls: Counter,
    duration_seconds: HistogramWithExemplars<TraceLabels>,
}

impl CallSeries {
    /// Records a finished call that took `seconds`. `trace_id` is that of a traced call.
    pub fn record(&self, seconds: f64, trace_id: Option<String>) {
        self.calls.inc();
        self.duration_seconds.observe(seconds, trace_id.map(|trace_id| [("trace_id", trace_id)]), None);
    }
}

impl Metrics {
    /// Metrics with all values at zero.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        // The encoder appends `_info` to the name.
        registry.register("fireteam_build", "Always 1; the label is the version of the server", build);
        let metrics = Self::register_all(registry);
        metrics.create_series();
        metrics
    }

    /// All metrics as OpenMetrics text (`OPENMETRICS_CONTENT_TYPE`).
    pub fn render(&self) -> String {
        let mut text = String::with_capacity(16 * 1024);
        if encode(&mut text, &self.registry).is_err() {
            // Writing to a string cannot fail; if it ever does, the scrape reports it.
            let _ = text.write_str("# encoding the metrics failed\n");
        }
        text
    }

    /// Records a finished call that took `seconds`. `trace_id` is that of a traced call.
    pub fn record_call(&self, method: Method, code: GrpcCode, seconds: f64, trace_id: Option<String>) {
        self.call_series(method, code).record(seconds, trace_id);
    }

    /// Metric series of a method and a code. Callers on a hot path keep it, to save the lookup per call.
    pub fn call_series(&self, method: Method, code: GrpcCode) -> CallSeries {
        let calls = self.rpc_calls.get_or_create(&(method, code)).clone();
        CallSeries { calls, duration_seconds: self.rpc_duration_seconds.get_or_create(&method).clone() }
    }

    /// Records a finished store operation: rows read or changed, duration in seconds, success.
    pub fn record_store(&self, operation: StoreOperation, rows: u64, seconds: f64, ok: bool) {
        self.store_duration_seconds.get_or_create(&operation).observe(seconds);
        self.store_rows.get_or_create(&operation).inc_by(rows);
        if !ok {
            self.store_failures.get_or_create(&operation).inc();
        }
    }

    /// Records a finished store transaction, committed or not.
    pub fn record_transaction(&self, kind: TransactionKind, seconds: f64) {
        self.store_transaction_duration_seconds.get_or_create(&kind).observe(seconds);
    }

    /// Records the lookup of one address.
    pub fn record_locality_lookup(&self, found: bool) {
        let outcome = if found { LookupOutcome::Hit } else { LookupOutcome::Miss };
        self.locality_lookups.get_or_create(&outcome).inc();
    }

    /// Records a load of the GeoIP files. `oldest_build_s`: build time of the oldest file that is now in use, seconds since 1970.
    pub fn record_locality_load(&self, outcome: LoadOutcome, oldest_build_s: Option<u64>) {
        self.locality_loads.get_or_create(&outcome).inc();
        let timestamp = i64::try_from(oldest_build_s.unwrap_or(0)).unwrap_or(i64::MAX);
        self.geolocation_build_timestamp_seconds.set(timestamp);
    }

    /// Records an answered search. `hard_filters` is the number of hard filters in its ruleset.
    pub fn record_search(
        &self,
        evaluated: u32,
        candidates: usize,
        truncated: bool,
        refusals: &[(Refusal, u32)],
        hard_filters: usize,
    ) {
        self.search_evaluated_rows.observe(f64::from(evaluated));
        self.search_candidates.observe(candidates as f64);
        self.search_truncated.inc_by(u64::from(truncated));
        for &(refusal, count) in refusals {
            let kind = RefusalKind::from_refusal(refusal, hard_filters);
            self.search_refusals.get_or_create(&kind).inc_by(u64::from(count));
        }
    }

    /// Records the sources of the candidates' round trips, by `RoundTripLabel`.
    pub fn record_round_trip_sources(&self, counts: [u64; RoundTripLabel::ALL.len()]) {
        for (source, count) in RoundTripLabel::ALL.iter().zip(counts).filter(|(_, count)| *count != 0) {
            self.round_trip_sources.get_or_create(source).inc_by(count);
        }
    }

    /// Counters of this process's beacon.
    pub fn beacon_packet_counters(&self) -> BeaconPacketCounters {
        let counter = |outcome| self.beacon_packets.get_or_create(&outcome).clone();
        let [answered, dropped] = [BeaconPacketOutcome::Answered, BeaconPacketOutcome::Dropped].map(counter);
        BeaconPacketCounters { answered, dropped }
    }

    /// Label of a set: its number, or `other` for sets beyond the limit.
    pub fn set_label(&self, set_id: SetId) -> SetLabel {
        self.known_sets.label(set_id)
    }

    /// Records a finished pass over a queue of `set_id`. `hard_filters` is the number of hard filters in its ruleset.
    pub fn record_pass(&self, set_id: SetId, seconds: f64, report: &PassReport, hard_filters: usize) {
        let set = self.set_label(set_id);
        self.pass_duration_seconds.get_or_create(&set).observe(seconds);
        self.pass_pairs_evaluated.get_or_create(&set).inc_by(report.pair_checks);
        self.pass_tickets_proposed.get_or_create(&set).inc_by(u64::from(report.proposed_ticket_count));
        self.passes_truncated.get_or_create(&set).inc_by(u64::from(report.truncated));
        for &(refusal, count) in &report.refusal_counts {
            self.pass_refusals.get_or_create(&RefusalKind::from_refusal(refusal, hard_filters)).inc_by(count);
        }
    }

    /// Records an event of a match of `set_id`. With the first one, all events of the set have a series.
    pub fn record_match_event(&self, set_id: SetId, event: MatchEventLabel) {
        let set = self.set_label(set_id);
        if event == MatchEventLabel::Proposed {
            MatchEventLabel::ALL.iter().for_each(|event| drop(self.match_events.get_or_create(&(set, *event))));
            drop(self.players_left.get_or_create(&set));
        }
        self.match_events.get_or_create(&(set, event)).inc();
    }

    /// Records players of `set_id` who left a match during play.
    pub fn record_players_left(&self, set_id: SetId, players: u64) {
        self.players_left.get_or_create(&self.set_label(set_id)).inc_by(players);
    }

    /// Records the end of a ticket of `set_id` that had waited for `seconds`.
    pub fn record_ticket_end(&self, set_id: SetId, outcome: TicketOutcomeLabel, seconds: f64) {
        self.ticket_wait_seconds.get_or_create(&(self.set_label(set_id), outcome)).observe(seconds);
    }

    /// Records the outcome of an attempt to take seats in a session of `set_id`, `seconds` after the party's first search.
    pub fn record_seat_attempt(&self, set_id: SetId, outcome: SeatOutcomeLabel, seconds: f64) {
        self.seat_attempt_seconds.get_or_create(&(self.set_label(set_id), outcome)).observe(seconds);
    }

    /// Creates all label combinations with a closed set at the start, so that a rate is right from the first event.
    fn create_series(&self) {
        RefusalKind::ALL.iter().for_each(|kind| drop(self.search_refusals.get_or_create(kind)));
        RefusalKind::ALL.iter().for_each(|kind| drop(self.pass_refusals.get_or_create(kind)));
        ConnectionRejection::ALL.iter().for_each(|reason| drop(self.connections_rejected.get_or_create(reason)));
        for role in RateLimitRole::ALL {
            RateLimitLabel::ALL.iter().for_each(|limit| drop(self.rate_limited.get_or_create(&(*role, *limit))));
        }
        BeaconPacketOutcome::ALL.iter().for_each(|outcome| drop(self.beacon_packets.get_or_create(outcome)));
        for phase in ProbePhase::ALL {
            ProbeOutcome::ALL.iter().for_each(|outcome| drop(self.probe_reports.get_or_create(&(*phase, *outcome))));
        }
        RoundTripLabel::ALL.iter().for_each(|source| drop(self.round_trip_sources.get_or_create(source)));
        PredictionSide::ALL.iter().for_each(|side| drop(self.prediction_outside.get_or_create(side)));
        ReceiptLabel::ALL.iter().for_each(|verdict| drop(self.receipts.get_or_create(verdict)));
        OfferEvent::ALL.iter().for_each(|event| drop(self.allocation_offers.get_or_create(event)));
        SpanDropReason::ALL.iter().for_each(|reason| drop(self.trace_spans_dropped.get_or_create(reason)));
        LookupOutcome::ALL.iter().for_each(|outcome| drop(self.locality_lookups.get_or_create(outcome)));
        Method::ALL.iter().for_each(|method| drop(self.rpc_duration_seconds.get_or_create(method)));
        for operation in StoreOperation::ALL {
            drop(self.store_duration_seconds.get_or_create(operation));
            drop(self.store_rows.get_or_create(operation));
            drop(self.store_failures.get_or_create(operation));
        }
        TransactionKind::ALL.iter().for_each(|kind| drop(self.store_transaction_duration_seconds.get_or_create(kind)));
        TaskLabel::ALL.iter().for_each(|task| drop(self.task_panics.get_or_create(task)));
        AuthFailure::ALL.iter().for_each(|reason| drop(self.auth_failures.get_or_create(reason)));
        for outcome in LoadOutcome::ALL {
            drop(self.auth_key_loads.get_or_create(outcome));
            drop(self.ruleset_loads.get_or_create(outcome));
            drop(self.locality_loads.get_or_create(outcome));
            drop(self.tls_loads.get_or_create(outcome));
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Registers one metric. The encoder appends `_total` to a counter's name and a full stop to the help text.
fn register_metric(registry: &mut Registry, kind: &str, name: &str, help: &str, metric: impl Metric) {
    let name = if kind == "counter" { name.trim_end_matches("_total") } else { name };
    registry.register(name, help.trim().trim_end_matches('.'), metric);
}

/// Histogram of seconds: buckets from 50 µs to 26 s, doubling.
fn duration_histogram() -> Histogram {
    Histogram::new(exponential_buckets(50e-6, 2.0, 20))
}

/// Histogram like `duration_histogram`, with exemplars.
fn traced_duration_histogram() -> HistogramWithExemplars<TraceLabels> {
    HistogramWithExemplars::new(exponential_buckets(50e-6, 2.0, 20))
}

/// Histogram with buckets from 1 to 4 million.
fn powers_of_four_histogram() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 4.0, 12))
}

/// Histogram with buckets from 1 to 256.
fn powers_of_two_histogram() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 9))
}

#[cfg(test)]
mod tests;
