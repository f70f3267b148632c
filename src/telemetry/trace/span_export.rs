//! Export of spans to a collector by OTLP over gRPC, in batches, by a thread of its own. Spans that the collector does not take in
//! time are dropped and counted.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter as ExportSpans, SpanProcessor,
};
use prometheus_client::metrics::counter::Counter;
use tonic::transport::Endpoint;

use crate::telemetry::audit::NowFn;
use crate::telemetry::event_sampler::{EventSampler, Sampled};
use crate::telemetry::label::SpanDropReason;
use crate::telemetry::metric::Metrics;

/// Spans that wait for the collector, or are being sent to it; further ones are dropped.
const UNSENT_SPANS_MAX: usize = 2_048;

/// Spans of one export.
const SPANS_PER_EXPORT_MAX: usize = 512;

/// Time between exports.
const EXPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Time limit of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Time limit of an attempt to export, and the time after which a failed one is not repeated. The default of OpenTelemetry's exporters.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit of the last export.
pub(super) const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Time in which one log line is written about failed exports.
const FAILURE_LOG_WINDOW_MS: u64 = 60_000;

/// The export of traces cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TraceExportError {
    /// The endpoint is no URL.
    #[error("the endpoint is not a URL; use http://HOST:PORT")]
    InvalidEndpoint(#[from] tonic::transport::Error),
    /// A variable of OpenTelemetry is invalid.
    #[error(transparent)]
    InvalidVariable(#[from] ExporterBuildError),
}

/// Starts the thread that exports spans to `endpoint`.
pub(super) fn start_export(
    endpoint: &str,
    metrics: &Metrics,
    now: NowFn,
) -> Result<impl SpanProcessor + use<>, TraceExportError> {
    let endpoint = Endpoint::from_shared(endpoint.to_owned())?.connect_timeout(CONNECT_TIMEOUT).timeout(EXPORT_TIMEOUT);
    let channel = endpoint.connect_lazy();
    let exporter = SpanExporter::builder().with_tonic().with_channel(channel).with_timeout(EXPORT_TIMEOUT).build()?;
    let dropped = |reason| metrics.trace_spans_dropped.get_or_create(&reason).clone();
    let unsent_spans = Arc::new(AtomicUsize::new(0));
    let exporter = CountingExporter {
        exporter,
        unsent_spans: unsent_spans.clone(),
        dropped_spans: dropped(SpanDropReason::ExportFailed),
        failure_log: EventSampler::new(FAILURE_LOG_WINDOW_MS, 1),
        now,
    };
    let config = BatchConfigBuilder::default()
        .with_max_queue_size(UNSENT_SPANS_MAX)
        .with_max_export_batch_size(SPANS_PER_EXPORT_MAX)
        .with_scheduled_delay(EXPORT_INTERVAL)
        .build();
    let batches = BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
    Ok(BoundedSpanQueue { batches, unsent_spans, dropped_spans: dropped(SpanDropReason::QueueFull) })
}

/// Queue of spans that counts those it has no place for. `BatchSpanProcessor` drops them too, but does not report how many.
#[derive(Debug)]
struct BoundedSpanQueue {
    batches: BatchSpanProcessor,
    unsent_spans: Arc<AtomicUsize>,
    dropped_spans: Counter,
}

impl SpanProcessor for BoundedSpanQueue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.unsent_spans.fetch_add(1, Ordering::Relaxed) >= UNSENT_SPANS_MAX {
            self.unsent_spans.fetch_sub(1, Ordering::Relaxed);
            self.dropped_spans.inc();
            return;
        }
        self.batches.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

/// Exporter that counts the spans of failed exports, and logs a failure at most once in a window.
struct CountingExporter {
    exporter: SpanExporter,
    unsent_spans: Arc<AtomicUsize>,
    dropped_spans: Counter,
    failure_log: EventSampler<()>,
    now: NowFn,
}

impl ExportSpans for CountingExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.exporter.export(batch).await;
        self.unsent_spans.fetch_sub(spans, Ordering::Relaxed);
        if let Err(error) = &result {
            self.dropped_spans.inc_by(spans as u64);
            if let Sampled::Write { counted } = self.failure_log.sample((), (self.now)().0) {
                tracing::warn!(%error, spans, unlogged_failures = counted, "trace export failed, its spans are dropped");
            }
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl fmt::Debug for CountingExporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountingExporter").finish_non_exhaustive()
    }
}
