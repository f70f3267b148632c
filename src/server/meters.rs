//! Carries what the doors and the store say of themselves into the metrics.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Code as GrpcCode;

use crate::api::layer::report::RpcObserver;
use crate::store::metered::Meter;
use crate::telemetry::label::{Code, Method, StoreVerb, TurnedAway};
use crate::telemetry::metric::{CallSeries, Metrics};

/// How often the log tells of connections turned away; a flood of them is no flood of lines (SEC-19).
const SAID_EVERY: Duration = Duration::from_secs(10);

/// Counts calls. Nearly all end well, and their counters are at hand: what ends otherwise is looked up.
#[derive(Debug)]
pub(super) struct Calls {
    metrics: Arc<Metrics>,
    /// By method.
    good: Vec<OnceLock<CallSeries>>,
    /// When the log last told of a connection turned away.
    said: Mutex<Option<Instant>>,
}

impl Calls {
    /// Counts into `metrics`.
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, good: Method::ALL.iter().map(|_| OnceLock::new()).collect(), said: Mutex::default() }
    }
}

impl RpcObserver for Calls {
    fn finished(&self, method: &'static str, code: GrpcCode, elapsed: Duration) {
        let (method, seconds) = (Method::of_name(method), elapsed.as_secs_f64());
        match (code, self.good.get(method as usize)) {
            (GrpcCode::Ok, Some(good)) => {
                good.get_or_init(|| self.metrics.call_series(method, Code::Ok)).record(seconds);
            }
            _ => self.metrics.record_call(method, Code::of(i32::from(code)), seconds),
        }
    }

    fn turned_away(&self, why: &'static str) {
        if let Some(&reason) = TurnedAway::ALL.iter().find(|known| known.as_str() == why) {
            self.metrics.turned_away.get_or_create(&reason).inc();
        }
        let now = Instant::now();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|said| SAID_EVERY < now - said) {
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

impl Meter for StoreMeter {
    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn on_verb(&self, verb: &'static str, took: Duration, ok: bool, rows: usize) {
        let Some(&verb) = StoreVerb::ALL.iter().find(|known| known.as_str() == verb) else { return };
        self.metrics.record_store(verb, rows as u64, took.as_secs_f64(), ok);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::method::of_path;

    /// What a door calls a method is what the metric knows it by.
    #[test]
    fn calls_are_counted_under_their_own_names() {
        let metrics = Arc::new(Metrics::new());
        let calls = Calls::new(metrics.clone());
        for (path, word) in [
            ("/fireteam.v1.Matchmaking/Search", "search"),
            ("/fireteam.v1.Matchmaking/UpdateAdvertisement", "update_advertisement"),
            ("/fireteam.v1.Matchmaking/Connect", "connect"),
            ("/fireteam.v1.Operator/ListRulesets", "operator"),
            ("/grpc.health.v1.Health/Check", "other"),
        ] {
            for (code, written) in [(GrpcCode::Ok, "ok"), (GrpcCode::Aborted, "aborted")] {
                calls.finished(of_path(path).name, code, Duration::from_millis(1));
                let line = format!("fireteam_rpc_calls_total{{method=\"{word}\",code=\"{written}\"}} 1");
                assert!(metrics.render().contains(&line), "{path}");
            }
            let line = format!("fireteam_rpc_seconds_count{{method=\"{word}\"}} 2");
            assert!(metrics.render().contains(&line), "{path}");
        }
    }
}
