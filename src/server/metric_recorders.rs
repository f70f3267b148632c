//! Carries what the doors and the store say of themselves into the metrics.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Code;

use crate::api::layer::call_report::RpcObserver;
use crate::store::metered::StoreObserver;
use crate::telemetry::label::{AuthFailure, ConnectionRejection, GrpcCode, Method, StoreOperation, TransactionKind};
use crate::telemetry::metric::{CallSeries, Metrics};

/// How often the log tells of connections turned away; a flood of them is no flood of lines (SEC-19).
const REJECTION_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Counts calls. Nearly all end well, and their counters are at hand: what ends otherwise is looked up.
#[derive(Debug)]
pub(super) struct RpcMetrics {
    metrics: Arc<Metrics>,
    /// By method.
    ok_calls: Vec<OnceLock<CallSeries>>,
    /// When the log last told of a connection turned away.
    rejection_logged_at: Mutex<Option<Instant>>,
}

impl RpcMetrics {
    /// Counts into `metrics`.
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            ok_calls: Method::ALL.iter().map(|_| OnceLock::new()).collect(),
            rejection_logged_at: Mutex::default(),
        }
    }
}

impl RpcObserver for RpcMetrics {
    fn call_finished(&self, method: &'static str, code: Code, elapsed: Duration) {
        let (method, seconds) = (Method::from_rpc_name(method), elapsed.as_secs_f64());
        match (code, self.ok_calls.get(method as usize)) {
            (Code::Ok, Some(good)) => {
                good.get_or_init(|| self.metrics.call_series(method, GrpcCode::Ok)).record(seconds);
            }
            _ => self.metrics.record_call(method, GrpcCode::from_number(i32::from(code)), seconds),
        }
    }

    fn auth_failed(&self, why: &'static str) {
        let Some(&why) = AuthFailure::ALL.iter().find(|known| known.as_str() == why) else { return };
        self.metrics.auth_failures.get_or_create(&why).inc();
    }

    fn connection_count_changed(&self, change: i64) {
        self.metrics.connections.inc_by(change);
    }

    fn stream_count_changed(&self, change: i64) {
        self.metrics.streams.inc_by(change);
    }

    fn connection_rejected(&self, why: &'static str) {
        if let Some(&reason) = ConnectionRejection::ALL.iter().find(|known| known.as_str() == why) {
            self.metrics.connections_rejected.get_or_create(&reason).inc();
        }
        let now = Instant::now();
        let mut said = self.rejection_logged_at.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|said| REJECTION_LOG_INTERVAL < now - said) {
            *said = Some(now);
            tracing::warn!(why, "connections are turned away; fireteam_connections_turned_away_total counts them");
        }
    }
}

/// Counts and times the store's verbs.
pub(super) struct StoreMeter {
    pub(super) metrics: Arc<Metrics>,
    pub(super) started: Instant,
}

impl StoreObserver for StoreMeter {
    fn monotonic_time(&self) -> Duration {
        self.started.elapsed()
    }

    fn on_operation(&self, verb: &'static str, took: Duration, ok: bool, rows: usize) {
        let Some(&verb) = StoreOperation::ALL.iter().find(|known| known.as_str() == verb) else { return };
        self.metrics.record_store(verb, rows as u64, took.as_secs_f64(), ok);
    }

    fn on_transaction(&self, name: &'static str, took: Duration) {
        let Some(&name) = TransactionKind::ALL.iter().find(|known| known.as_str() == name) else { return };
        self.metrics.record_transaction(name, took.as_secs_f64());
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

    /// What the store calls a transaction is what the metric knows it by.
    #[test]
    fn store_transactions_are_recorded_under_their_names() {
        let metrics = Arc::new(Metrics::new());
        let meter = StoreMeter { metrics: metrics.clone(), started: Instant::now() };
        let id = AdvertisementId::from_bytes([1; 16]);
        let delete = AdvertWrite::Delete { advertisement_id: id, tombstone_until: UnixMs(2) };
        let expire = AdvertWrite::Expire { advertisement_id: id, now: UnixMs(1), expected_version: None };
        for batch in [vec![delete.clone()], vec![expire.clone()], vec![delete, expire]] {
            meter.on_transaction(transaction_label(&batch), Duration::from_millis(1));
        }
        let rate = QueueWrite::ImportRatings { rows: vec![] };
        let beat =
            QueueWrite::Heartbeat { ticket_id: TicketId::from_bytes([1; 16]), expires_at: UnixMs(2), now: UnixMs(1) };
        for batch in [vec![rate.clone()], vec![beat.clone()], vec![rate, beat]] {
            meter.on_transaction(queues::transaction_label(&batch), Duration::from_millis(1));
        }
        let text = metrics.render();
        for name in ["delete", "expire", "several", "rate", "beat", "queues"] {
            let line = format!("fireteam_store_transaction_seconds_count{{transaction=\"{name}\"}} 1");
            assert!(text.contains(&line), "{text}");
        }
    }

    /// Every reason has its label, and every label its reason.
    #[test]
    fn auth_failures_are_counted_by_reason() {
        let metrics = Arc::new(Metrics::new());
        let calls = RpcMetrics::new(metrics.clone());
        let reasons = CredentialError::ALL.iter().map(|refused| refused.as_str()).chain(["wrong_role"]);
        let reasons: Vec<&'static str> = reasons.collect();
        reasons.iter().for_each(|why| calls.auth_failed(why));
        for why in &reasons {
            let line = format!("fireteam_auth_refusals_total{{reason=\"{why}\"}} 1");
            assert!(metrics.render().contains(&line), "{why}");
        }
        assert_eq!(reasons.len(), AuthFailure::ALL.len());
    }

    /// What a door calls a method is what the metric knows it by.
    #[test]
    fn calls_are_counted_under_their_method_names() {
        let metrics = Arc::new(Metrics::new());
        let calls = RpcMetrics::new(metrics.clone());
        for (path, word) in [
            ("/fireteam.v1.MatchmakingService/Search", "search"),
            ("/fireteam.v1.MatchmakingService/UpdateAdvertisement", "update_advertisement"),
            ("/fireteam.v1.MatchmakingService/Connect", "connect"),
            ("/fireteam.v1.OperatorService/ListRulesets", "operator"),
            ("/grpc.health.v1.Health/Check", "other"),
        ] {
            for (code, written) in [(Code::Ok, "ok"), (Code::Aborted, "aborted")] {
                calls.call_finished(method_of_path(path).name, code, Duration::from_millis(1));
                let line = format!("fireteam_rpc_calls_total{{method=\"{word}\",code=\"{written}\"}} 1");
                assert!(metrics.render().contains(&line), "{path}");
            }
            let line = format!("fireteam_rpc_seconds_count{{method=\"{word}\"}} 2");
            assert!(metrics.render().contains(&line), "{path}");
        }
    }
}
