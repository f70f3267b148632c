//! Every metric there is, in one table: the table makes the registry, and a test holds docs/METRICS.md against it.

use std::fmt::Write;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

use crate::domain::filter::Refusal;
use crate::domain::queue::report::PassReport;
use crate::telemetry::label::{
    AuthFailure, ConnectionRejection, GrpcCode, LoadOutcome, LookupOutcome, Method, RateLimitLabel, RateLimitRole,
    RefusalKind, StoreOperation, TransactionKind,
};

/// What `render` writes.
pub const OPENMETRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Counted by label.
pub type CounterBy<L> = Family<L, Counter>;
/// Spread by label.
pub type HistogramBy<L> = Family<L, Histogram, fn() -> Histogram>;

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricRow {
    /// The name as scraped; histograms add `_bucket`, `_sum` and `_count`.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// The labels' names.
    pub labels: &'static [&'static str],
    /// One sentence.
    pub help: &'static str,
}

/// Makes the struct, its registration and the table of rows out of one list.
macro_rules! metrics {
    ($(#[doc = $help:literal] $field:ident: $type:ty = $make:expr, $kind:literal $name:literal [$($label:expr),*];)*) => {
        /// All metrics, to be shared by whoever counts. Recording is a few atomic additions and cannot fail.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Registry,
            $(#[doc = $help] pub $field: $type,)*
        }

        /// The table, in the order of docs/METRICS.md.
        pub const METRIC_ROWS: &[MetricRow] = &[
            $(MetricRow { name: $name, kind: $kind, labels: &[$($label),*], help: $help.trim_ascii() },)*
            MetricRow {
                name: "fireteam_build_info",
                kind: "info",
                labels: &["version"],
                help: "Always 1; says which version runs.",
            },
        ];

        impl Metrics {
            fn with(mut registry: Registry) -> Self {
                $(
                    let $field: $type = $make;
                    register_metric(&mut registry, $kind, $name, $help, $field.clone());
                )*
                Self { registry, $($field),* }
            }
        }
    };
}

metrics! {
    /// Calls that ended, by how.
    rpc_calls: CounterBy<(Method, GrpcCode)> = Family::default(), "counter" "fireteam_rpc_calls_total" [Method::KEY, GrpcCode::KEY];
    /// Time from a call's arrival to its answer.
    rpc_duration_seconds: HistogramBy<Method> = Family::new_with_constructor(duration_histogram), "histogram" "fireteam_rpc_seconds" [Method::KEY];
    /// Calls that were not let in, by what was wrong with what the caller showed.
    auth_failures: CounterBy<AuthFailure> = Family::default(), "counter" "fireteam_auth_refusals_total" [AuthFailure::KEY];
    /// Attempts to load the keys that verify callers' tokens.
    auth_key_loads: CounterBy<LoadOutcome> = Family::default(), "counter" "fireteam_auth_key_loads_total" [LoadOutcome::KEY];
    /// Calls and streams that a quota refused.
    rate_limited: CounterBy<(RateLimitRole, RateLimitLabel)> = Family::default(), "counter" "fireteam_quota_refusals_total" [RateLimitRole::KEY, RateLimitLabel::KEY];
    /// Connections open now.
    connections: Gauge = Gauge::default(), "gauge" "fireteam_connections" [];
    /// Connections turned away before they began, or ended for what they sent.
    connections_rejected: CounterBy<ConnectionRejection> = Family::default(), "counter" "fireteam_connections_turned_away_total" [ConnectionRejection::KEY];
    /// Attempts to load the certificate, its key and the certificates of those who sign clients' certificates.
    tls_loads: CounterBy<LoadOutcome> = Family::default(), "counter" "fireteam_tls_loads_total" [LoadOutcome::KEY];
    /// Connect streams open now.
    streams: Gauge = Gauge::default(), "gauge" "fireteam_streams" [];
    /// Rows that a search looked at.
    search_evaluated_rows: Histogram = powers_of_four_histogram(), "histogram" "fireteam_search_evaluated_rows" [];
    /// Candidates that a search returned.
    search_candidates: Histogram = powers_of_two_histogram(), "histogram" "fireteam_search_candidates" [];
    /// Searches that the evaluation limit cut short.
    search_truncated: Counter = Counter::default(), "counter" "fireteam_search_truncated_total" [];
    /// Rows refused among those looked at, by the kind of rule that refused first.
    search_refusals: CounterBy<RefusalKind> = Family::default(), "counter" "fireteam_search_refusals_total" [RefusalKind::KEY];
    /// Advertisements held now.
    advertisements: Gauge = Gauge::default(), "gauge" "fireteam_advertisements" [];
    /// Heartbeats that were answered from memory, without a write.
    heartbeats_unwritten: Counter = Counter::default(), "counter" "fireteam_quiet_heartbeats_total" [];
    /// Advertisements that ended because nobody kept them alive.
    advertisements_expired: Counter = Counter::default(), "counter" "fireteam_advertisements_expired_total" [];
    /// Reservations that hold seats now.
    reservations: Gauge = Gauge::default(), "gauge" "fireteam_reservations" [];
    /// Tickets held now, those that ended a moment ago included.
    tickets: Gauge = Gauge::default(), "gauge" "fireteam_tickets" [];
    /// Matches held now, those that ended a while ago included.
    matches: Gauge = Gauge::default(), "gauge" "fireteam_matches" [];
    /// Time that a pass over a queue took.
    pass_duration_seconds: Histogram = duration_histogram(), "histogram" "fireteam_pass_seconds" [];
    /// Pairs of tickets that passes judged.
    pass_pairs_evaluated: Counter = Counter::default(), "counter" "fireteam_pass_looks_total" [];
    /// Tickets that passes put into proposals.
    pass_tickets_proposed: Counter = Counter::default(), "counter" "fireteam_pass_tickets_placed_total" [];
    /// Pairs that passes refused, by the kind of rule that refused first.
    pass_refusals: CounterBy<RefusalKind> = Family::default(), "counter" "fireteam_pass_refusals_total" [RefusalKind::KEY];
    /// Passes that ran out of looks before they had come to every ticket.
    passes_truncated: Counter = Counter::default(), "counter" "fireteam_passes_cut_short_total" [];
    /// Time that the store took.
    store_duration_seconds: HistogramBy<StoreOperation> = Family::new_with_constructor(duration_histogram), "histogram" "fireteam_store_seconds" [StoreOperation::KEY];
    /// Rows that the store was asked to read or change.
    store_rows: CounterBy<StoreOperation> = Family::default(), "counter" "fireteam_store_rows_total" [StoreOperation::KEY];
    /// Verbs that the store could not do; the log says why.
    store_failures: CounterBy<StoreOperation> = Family::default(), "counter" "fireteam_store_failures_total" [StoreOperation::KEY];
    /// Time that a transaction of changes took, by what the changes were.
    store_transaction_duration_seconds: HistogramBy<TransactionKind> = Family::new_with_constructor(duration_histogram), "histogram" "fireteam_store_transaction_seconds" [TransactionKind::KEY];
    /// How long the store that servers share has been out of reach, milliseconds; 0 while it is not.
    store_staleness_seconds: Gauge = Gauge::default(), "gauge" "fireteam_store_stale_milliseconds" [];
    /// Advertisements kept alive in memory that the store has yet to be told of.
    advertisements_pending: Gauge = Gauge::default(), "gauge" "fireteam_advertisements_pending" [];
    /// Advertisements about which memory and store differed when they were last compared; 0 before that.
    consistency_differences: Gauge = Gauge::default(), "gauge" "fireteam_audit_differences" [];
    /// Rulesets in use now.
    rulesets: Gauge = Gauge::default(), "gauge" "fireteam_rulesets" [];
    /// Ruleset files that are refused now; whatever they replaced stays in use.
    rulesets_rejected: Gauge = Gauge::default(), "gauge" "fireteam_rulesets_rejected" [];
    /// Attempts to load the rulesets.
    ruleset_loads: CounterBy<LoadOutcome> = Family::default(), "counter" "fireteam_ruleset_loads_total" [LoadOutcome::KEY];
    /// Attempts to load the locality files.
    locality_loads: CounterBy<LoadOutcome> = Family::default(), "counter" "fireteam_locality_loads_total" [LoadOutcome::KEY];
    /// Addresses looked up.
    locality_lookups: CounterBy<LookupOutcome> = Family::default(), "counter" "fireteam_locality_look_ups_total" [LookupOutcome::KEY];
}

/// The series of one method's calls that end one way.
#[derive(Clone, Debug)]
pub struct CallSeries {
    calls: Counter,
    duration_seconds: Histogram,
}

impl CallSeries {
    /// One call that ended, `seconds` after it came.
    pub fn record(&self, seconds: f64) {
        self.calls.inc();
        self.duration_seconds.observe(seconds);
    }
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        // The encoder puts `_info` behind the name by itself.
        registry.register("fireteam_build", "Always 1; says which version runs", build);
        let metrics = Self::with(registry);
        metrics.create_series();
        metrics
    }

    /// Everything, in OpenMetrics text (`CONTENT_TYPE`).
    pub fn render(&self) -> String {
        let mut text = String::with_capacity(16 * 1024);
        if encode(&mut text, &self.registry).is_err() {
            // A string takes whatever is written to it; should that ever change, say so in the scrape.
            let _ = text.write_str("# metrics could not be written\n");
        }
        text
    }

    /// One call that ended, `seconds` after it came.
    pub fn record_call(&self, method: Method, code: GrpcCode, seconds: f64) {
        self.call_series(method, code).record(seconds);
    }

    /// What calls of a method that end with `code` are recorded in, for whoever records so many that looking it up for
    /// each would count.
    pub fn call_series(&self, method: Method, code: GrpcCode) -> CallSeries {
        let calls = self.rpc_calls.get_or_create(&(method, code)).clone();
        CallSeries { calls, duration_seconds: self.rpc_duration_seconds.get_or_create(&method).clone() }
    }

    /// One verb of the store that ended: how many rows it was about, how long it took, and
    /// whether it could do it.
    pub fn record_store(&self, verb: StoreOperation, rows: u64, seconds: f64, ok: bool) {
        self.store_duration_seconds.get_or_create(&verb).observe(seconds);
        self.store_rows.get_or_create(&verb).inc_by(rows);
        if !ok {
            self.store_failures.get_or_create(&verb).inc();
        }
    }

    /// One transaction of changes that ended, made or not.
    pub fn record_transaction(&self, name: TransactionKind, seconds: f64) {
        self.store_transaction_duration_seconds.get_or_create(&name).observe(seconds);
    }

    /// One address that was looked up.
    pub fn record_locality_lookup(&self, found: bool) {
        let outcome = if found { LookupOutcome::Hit } else { LookupOutcome::Miss };
        self.locality_lookups.get_or_create(&outcome).inc();
    }

    /// One search that was answered. `hard_filters` is how many hard filters its ruleset has.
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

    /// One pass over a queue that ended. `hard_filters` is how many hard filters its ruleset has.
    pub fn record_pass(&self, seconds: f64, report: &PassReport, hard_filters: usize) {
        self.pass_duration_seconds.observe(seconds);
        self.pass_pairs_evaluated.inc_by(report.pair_checks);
        self.pass_tickets_proposed.inc_by(u64::from(report.proposed_count));
        self.passes_truncated.inc_by(u64::from(report.truncated));
        for &(refusal, count) in &report.refusal_counts {
            self.pass_refusals.get_or_create(&RefusalKind::from_refusal(refusal, hard_filters)).inc_by(count);
        }
    }

    /// Makes every series with one label exist from the start, so that a rate over it is right from its first event.
    fn create_series(&self) {
        RefusalKind::ALL.iter().for_each(|it| drop(self.search_refusals.get_or_create(it)));
        RefusalKind::ALL.iter().for_each(|it| drop(self.pass_refusals.get_or_create(it)));
        ConnectionRejection::ALL.iter().for_each(|it| drop(self.connections_rejected.get_or_create(it)));
        for role in RateLimitRole::ALL {
            RateLimitLabel::ALL.iter().for_each(|it| drop(self.rate_limited.get_or_create(&(*role, *it))));
        }
        LookupOutcome::ALL.iter().for_each(|it| drop(self.locality_lookups.get_or_create(it)));
        Method::ALL.iter().for_each(|it| drop(self.rpc_duration_seconds.get_or_create(it)));
        for verb in StoreOperation::ALL {
            drop(self.store_duration_seconds.get_or_create(verb));
            drop(self.store_rows.get_or_create(verb));
        }
        TransactionKind::ALL.iter().for_each(|it| drop(self.store_transaction_duration_seconds.get_or_create(it)));
        AuthFailure::ALL.iter().for_each(|it| drop(self.auth_failures.get_or_create(it)));
        for load in LoadOutcome::ALL {
            drop(self.auth_key_loads.get_or_create(load));
            drop(self.ruleset_loads.get_or_create(load));
            drop(self.locality_loads.get_or_create(load));
            drop(self.tls_loads.get_or_create(load));
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// The encoder puts `_total` behind a counter's name and a full stop behind the help by itself.
fn register_metric(registry: &mut Registry, kind: &str, name: &str, help: &str, metric: impl Metric) {
    let name = if kind == "counter" { name.trim_end_matches("_total") } else { name };
    registry.register(name, help.trim().trim_end_matches('.'), metric);
}

/// 50 µs to 26 s, doubling.
fn duration_histogram() -> Histogram {
    Histogram::new(exponential_buckets(50e-6, 2.0, 20))
}

/// 1 to 4 million.
fn powers_of_four_histogram() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 4.0, 12))
}

/// 1 to 256.
fn powers_of_two_histogram() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 9))
}

#[cfg(test)]
mod tests;
