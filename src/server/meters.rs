//! Carries what the doors and the store say of themselves into the metrics.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tonic::Code as GrpcCode;

use crate::api::layer::report::RpcObserver;
use crate::store::metered::Meter;
use crate::telemetry::label::{Code, Method, StoreVerb};
use crate::telemetry::metric::Metrics;

/// Counts calls.
#[derive(Debug)]
pub(super) struct Calls(pub(super) Arc<Metrics>);

impl RpcObserver for Calls {
    fn finished(&self, method: &'static str, code: GrpcCode, elapsed: Duration) {
        self.0.record_call(Method::of_name(method), Code::of(i32::from(code)), elapsed.as_secs_f64());
    }

    fn turned_away(&self, why: &'static str) {
        tracing::warn!(why, "connection turned away");
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
        let calls = Calls(metrics.clone());
        for (path, word) in [
            ("/fireteam.v1.Matchmaking/Search", "search"),
            ("/fireteam.v1.Matchmaking/UpdateAdvertisement", "update_advertisement"),
            ("/fireteam.v1.Matchmaking/Connect", "connect"),
            ("/fireteam.v1.Operator/ListRulesets", "operator"),
            ("/grpc.health.v1.Health/Check", "other"),
        ] {
            calls.finished(of_path(path).name, GrpcCode::Ok, Duration::from_millis(1));
            let line = format!("fireteam_rpc_calls_total{{method=\"{word}\",code=\"ok\"}} 1");
            assert!(metrics.render().contains(&line), "{path}");
        }
    }
}
