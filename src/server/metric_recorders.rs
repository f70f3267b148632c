//! Observers that record calls, connections and store operations in the metrics.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;
use tonic::Code;

use crate::api::layer::call_reporter::{RpcObserver, log_unlogged_failure_count};
use crate::store::metered::StoreObserver;
use crate::telemetry::event_sampler::{EventSampler, Sampled};
use crate::telemetry::label::{AuthFailure, ConnectionRejection, GrpcCode, Method, StoreOperation, TransactionKind};
use crate::telemetry::metric::{CallSeries, Metrics};
use crate::telemetry::trace::{CallSpan, CallTracer, TRACEPARENT_HEADER};

/// Interval of log lines about rejected connections, so that a flood of connections does not flood the log.
const CONNECTION_REJECTION_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Time in which `FAILED_CALL_LINES_MAX` log lines are written about failed calls of one method with one code.
const FAILED_CALL_LOG_WINDOW_MS: u64 = 60_000;

/// Log lines about failed calls of one method with one code in a window; the others are counted.
const FAILED_CALL_LINES_MAX: u32 = 5;

/// Records calls and connections. The series of successful calls are cached per method, because most calls succeed.
#[derive(Debug)]
pub(super) struct RpcMetrics {
    metrics: Arc<Metrics>,
    /// Starts the spans of calls; `None` without traces.
    tracer: Option<CallTracer>,
    /// Series of successful calls, by method.
    ok_calls: Vec<OnceLock<CallSeries>>,
    /// Time of the last log line about a rejected connection.
    connection_rejection_logged_at: Mutex<Option<Instant>>,
    /// Limits the log lines about failed calls, by method and code.
    failed_call_log_sampler: EventSampler<(&'static str, i32)>,
    started_at: Instant,
}

impl RpcMetrics {
    /// Records into `metrics`, and traces with `tracer`.
    pub(super) fn new(metrics: Arc<Metrics>, tracer: Option<CallTracer>) -> Self {
        Self {
            metrics,
            tracer,
            ok_calls: Method::ALL.iter().map(|_| OnceLock::new()).collect(),
            connection_rejection_logged_at: Mutex::default(),
            failed_call_log_sampler: EventSampler::new(FAILED_CALL_LOG_WINDOW_MS, FAILED_CALL_LINES_MAX),
            started_at: Instant::now(),
        }
    }

    /// Logs the numbers of failed calls that were only counted in windows that have ended; with `all` also in the current
    /// ones.
    pub(super) fn log_unlogged_failures(&self, all: bool) {
        let counted = if all {
            self.failed_call_log_sampler.take_all_counts()
        } else {
            self.failed_call_log_sampler.take_ended_counts(self.elapsed_ms())
        };
        for ((method, code), count) in counted {
            log_unlogged_failure_count(method, Code::from(code), count);
        }
    }

    /// Exports the spans that wait, for a second at most, and ends the export. Blocks.
    pub(super) fn flush_traces(&self) {
        self.tracer.iter().for_each(CallTracer::shut_down);
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl RpcObserver for RpcMetrics {
    fn call_finished(&self, method: &'static str, code: Code, elapsed: Duration, span: Option<&CallSpan>) {
        let (method, seconds) = (Method::from_rpc_name(method), elapsed.as_secs_f64());
        let trace_id = span.map(CallSpan::trace_id);
        match (code, self.ok_calls.get(method as usize)) {
            (Code::Ok, Some(series)) => {
                series.get_or_init(|| self.metrics.call_series(method, GrpcCode::Ok)).record(seconds, trace_id);
            }
            _ => self.metrics.record_call(method, GrpcCode::from_number(i32::from(code)), seconds, trace_id),
        }
    }

    fn start_span(&self, method: &'static str, headers: &HeaderMap) -> Option<CallSpan> {
        let tracer = self.tracer.as_ref()?;
        tracer.start_span(method, headers.get(TRACEPARENT_HEADER).and_then(|value| value.to_str().ok()))
    }

    fn auth_failed(&self, reason: &'static str) {
        let Some(&reason) = AuthFailure::ALL.iter().find(|known| known.as_str() == reason) else { return };
        self.metrics.auth_failures.get_or_create(&reason).inc();
    }

    fn sample_failed_call(&self, method: &'static str, code: Code) -> Sampled {
        self.failed_call_log_sampler.sample((method, i32::from(code)), self.elapsed_ms())
    }

    fn connection_count_changed(&self, change: i64) {
        self.metrics.connections.inc_by(change);
    }

    fn connect_stream_count_changed(&self, change: i64) {
        self.metrics.streams.inc_by(change);
    }

    fn connection_rejected(&self, reason: &'static str) {
        if let Some(&label) = ConnectionRejection::ALL.iter().find(|known| known.as_str() == reason) {
            self.metrics.connections_rejected.get_or_create(&label).inc();
        }
        let now = Instant::now();
        let mut logged_at = self.connection_rejection_logged_at.lock().unwrap_or_else(PoisonError::into_inner);
        if logged_at.is_none_or(|logged_at| now - logged_at > CONNECTION_REJECTION_LOG_INTERVAL) {
            *logged_at = Some(now);
            tracing::warn!(reason, "connection rejected; fireteam_connections_rejected_total counts all");
        }
    }
}

/// Records count and duration of store operations and transactions.
pub(super) struct StoreMeter {
    pub(super) metrics: Arc<Metrics>,
    pub(super) monotonic_origin: Instant,
}

impl StoreObserver for StoreMeter {
    fn monotonic_time(&self) -> Duration {
        self.monotonic_origin.elapsed()
    }

    fn on_operation(&self, operation: &'static str, duration: Duration, is_ok: bool, rows: usize) {
        let Some(&operation) = StoreOperation::ALL.iter().find(|known| known.as_str() == operation) else { return };
        self.metrics.record_store(operation, rows as u64, duration.as_secs_f64(), is_ok);
    }

    fn on_transaction(&self, name: &'static str, duration: Duration) {
        let Some(&name) = TransactionKind::ALL.iter().find(|known| known.as_str() == name) else { return };
        self.metrics.record_transaction(name, duration.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::rpc_method::method_of_path;
    use crate::auth::credential_error::CredentialError;
    use crate::domain::id::{AdvertisementId, TicketId};
    use crate::domain::time::UnixMs;
    use crate::store::queues::{self, QueueWrite};
    use crate::store::{AdvertWrite, transaction_label};

    /// Each transaction label of the store has a series of its own.
    #[test]
    fn store_transactions_are_recorded_under_their_names() {
        let metrics = Arc::new(Metrics::new());
        let meter = StoreMeter { metrics: metrics.clone(), monotonic_origin: Instant::now() };
        let id = AdvertisementId::from_bytes([1; 16]);
        let delete = AdvertWrite::Delete { advertisement_id: id, tombstone_until: UnixMs(2) };
        let expire = AdvertWrite::Expire { advertisement_id: id, now: UnixMs(1), expected_version: None };
        for batch in [vec![delete.clone()], vec![expire.clone()], vec![delete, expire]] {
            meter.on_transaction(transaction_label(&batch), Duration::from_millis(1));
        }
        let import = QueueWrite::ImportRatings { rows: vec![] };
        let heartbeat =
            QueueWrite::Heartbeat { ticket_id: TicketId::from_bytes([1; 16]), expires_at: UnixMs(2), now: UnixMs(1) };
        for batch in [vec![import.clone()], vec![heartbeat.clone()], vec![import, heartbeat]] {
            meter.on_transaction(queues::transaction_label(&batch), Duration::from_millis(1));
        }
        let text = metrics.render();
        for name in ["delete", "expire", "mixed", "import_ratings", "ticket_heartbeat", "mixed_queue"] {
            let line = format!("fireteam_store_transaction_duration_seconds_count{{transaction=\"{name}\"}} 1");
            assert!(text.contains(&line), "{text}");
        }
    }

    /// Each reason has a label, and each label a reason.
    #[test]
    fn auth_failures_are_counted_by_reason() {
        let metrics = Arc::new(Metrics::new());
        let rpc_metrics = RpcMetrics::new(metrics.clone(), None);
        let reasons = CredentialError::ALL.iter().map(|error| error.as_str()).chain(["wrong_role"]);
        let reasons = reasons.chain(["wrong_host", "cross_origin"]);
        let reasons: Vec<&'static str> = reasons.collect();
        reasons.iter().for_each(|reason| rpc_metrics.auth_failed(reason));
        for reason in &reasons {
            let line = format!("fireteam_auth_failures_total{{reason=\"{reason}\"}} 1");
            assert!(metrics.render().contains(&line), "{reason}");
        }
        assert_eq!(reasons.len(), AuthFailure::ALL.len());
    }

    /// Each method path is counted under its label.
    #[test]
    fn calls_are_counted_under_their_method_names() {
        let metrics = Arc::new(Metrics::new());
        let rpc_metrics = RpcMetrics::new(metrics.clone(), None);
        for (path, label) in [
            ("/fireteam.v1.MatchmakingService/Search", "search"),
            ("/fireteam.v1.MatchmakingService/UpdateAdvertisement", "update_advertisement"),
            ("/fireteam.v1.MatchmakingService/Connect", "connect"),
            ("/fireteam.v1.OperatorService/ListRulesets", "operator"),
            ("/grpc.health.v1.Health/Check", "other"),
        ] {
            for (code, code_label) in [(Code::Ok, "ok"), (Code::Aborted, "aborted")] {
                rpc_metrics.call_finished(method_of_path(path).name, code, Duration::from_millis(1), None);
                let line = format!("fireteam_rpc_calls_total{{method=\"{label}\",code=\"{code_label}\"}} 1");
                assert!(metrics.render().contains(&line), "{path}");
            }
            let line = format!("fireteam_rpc_duration_seconds_count{{method=\"{label}\"}} 2");
            assert!(metrics.render().contains(&line), "{path}");
        }
    }
}
