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
        let method = method_of(method);
        let code = Code::of(i32::from(code));
        self.0.rpc_calls.get_or_create(&(method, code)).inc();
        self.0.rpc_seconds.get_or_create(&method).observe(elapsed.as_secs_f64());
    }

    fn turned_away(&self, why: &'static str) {
        tracing::warn!(why, "connection turned away");
    }
}

/// The metric's word for a method of the contract.
fn method_of(name: &str) -> Method {
    let word = match name.rsplit_once('/') {
        Some(("fireteam.v1.Operator", _)) => return Method::Operator,
        Some(("fireteam.v1.Matchmaking", method)) => method,
        _ => return Method::Other,
    };
    match word {
        "Core" => Method::Core,
        "Connect" => Method::Connect,
        "Search" => Method::Search,
        "UpdateAdvertisement" => Method::UpdateAdvertisement,
        "DeleteAdvertisement" => Method::DeleteAdvertisement,
        "GetConfiguration" => Method::GetConfiguration,
        "Reserve" => Method::Reserve,
        "Release" => Method::Release,
        "ReportLatency" => Method::ReportLatency,
        "ChooseRole" => Method::ChooseRole,
        _ => Method::Other,
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
        self.metrics.store_seconds.get_or_create(&verb).observe(took.as_secs_f64());
        self.metrics.store_rows.get_or_create(&verb).inc_by(u64::try_from(rows).unwrap_or(u64::MAX));
        if !ok {
            self.metrics.store_failures.get_or_create(&verb).inc();
        }
    }
}
