//! Traces of calls by OTLP: a span for each sampled call, with a child span for each wait for a commit. A span has the method, the
//! matchmaking set and the status of its call. It has no user, no address, no silo and no token.

mod span_export;

use std::future::Future;
use std::sync::OnceLock;

use futures_util::future::Either;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{
    FutureExt as _, Span as _, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, Span};

use crate::domain::id::SetId;
use crate::telemetry::audit::NowFn;
use crate::telemetry::metric::Metrics;

pub use span_export::TraceExportError;

/// Header with the caller's span, by W3C Trace Context.
pub const TRACEPARENT_HEADER: &str = "traceparent";

/// Name of the span of a wait for a commit.
const COMMIT_WAIT_SPAN: &str = "wait for commit";

/// Most attributes of a span; a span of a call has four. Set so that the environment's `OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT` has no effect.
const SPAN_ATTRIBUTES_MAX: u32 = 16;

/// Starts spans of calls, and exports them.
#[derive(Debug)]
pub struct CallTracer {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// Span of a sampled call.
#[derive(Debug)]
pub struct CallSpan {
    /// Context with the span and a `CallScope`.
    context: Context,
}

/// Span of a wait. It ends when it is dropped.
#[derive(Debug)]
pub struct WaitSpan {
    _span: Span,
}

/// Values of a call that its handler reaches by the current context.
struct CallScope {
    tracer: SdkTracer,
    set_id: OnceLock<SetId>,
}

impl CallTracer {
    /// Starts the export to the collector at `endpoint` (`http://HOST:PORT`), which need not answer yet. `sample_ratio` of the calls
    /// without a `traceparent` are traced. Dropped spans are counted in `metrics`. `now` limits the log lines. Must be called within a
    /// Tokio runtime. Fails if the endpoint is no URL.
    pub fn start(endpoint: &str, sample_ratio: f64, metrics: &Metrics, now: NowFn) -> Result<Self, TraceExportError> {
        let resource = Resource::builder_empty()
            .with_service_name("fireteam")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(span_export::start_export(endpoint, metrics, now)?)
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(sample_ratio))))
            .with_resource(resource)
            .with_max_attributes_per_span(SPAN_ATTRIBUTES_MAX)
            .build();
        Ok(Self { tracer: provider.tracer("fireteam"), provider })
    }

    /// Starts the span of a call of `method`. `traceparent` is the caller's header, if any; an invalid one is ignored. `None` if the
    /// call is not sampled.
    pub fn start_span(&self, method: &'static str, traceparent: Option<&str>) -> Option<CallSpan> {
        let parent = traceparent.map_or_else(Context::new, |header| {
            TraceContextPropagator::new().extract_with_context(&Context::new(), &Traceparent(header))
        });
        let builder = self.tracer.span_builder(method).with_kind(SpanKind::Server);
        let mut span = builder.start_with_context(&self.tracer, &parent);
        if !span.is_recording() {
            return None;
        }
        span.set_attributes([KeyValue::new("rpc.system.name", "grpc"), KeyValue::new("rpc.method", method)]);
        let scope = CallScope { tracer: self.tracer.clone(), set_id: OnceLock::new() };
        Some(CallSpan { context: Context::new().with_span(span).with_value(scope) })
    }

    /// Exports the spans that wait, for a second at most, and ends the export. Blocks.
    pub fn shut_down(&self) {
        if let Err(error) = self.provider.shutdown_with_timeout(span_export::FLUSH_TIMEOUT) {
            tracing::warn!(%error, "last trace export failed");
        }
    }
}

impl CallSpan {
    /// Id of the trace, 32 lower-case hexadecimal digits.
    pub fn trace_id(&self) -> String {
        self.context.span().span_context().trace_id().to_string()
    }

    /// Ends the span with the name of the call's status code.
    pub fn end(self, code: &'static str, is_server_fault: bool) {
        let span = self.context.span();
        if let Some(set_id) = self.context.get::<CallScope>().and_then(|scope| scope.set_id.get()) {
            span.set_attribute(KeyValue::new("fireteam.set_id", i64::from(set_id.0)));
        }
        span.set_attribute(KeyValue::new("rpc.response.status_code", code));
        if is_server_fault {
            span.set_status(Status::error(""));
        }
        span.end();
    }
}

/// Runs the handler of a call. While it is polled, `record_set_id` and `start_commit_wait` reach `span`, if the call has one.
pub fn run_in_span<F: Future>(span: Option<&CallSpan>, handler: F) -> impl Future<Output = F::Output> + use<F> {
    match span {
        Some(span) => Either::Left(handler.with_context(span.context.clone())),
        None => Either::Right(handler),
    }
}

/// Records the matchmaking set that the request of the current call names; the first one counts.
pub fn record_set_id(set_id: SetId) {
    Context::map_current(|context| {
        if let Some(scope) = context.get::<CallScope>() {
            // A set is recorded already.
            let _ = scope.set_id.set(set_id);
        }
    });
}

/// Starts the span of a wait for a commit, as a child of the current call's span; `None` if the call is not traced.
pub fn start_commit_wait() -> Option<WaitSpan> {
    Context::map_current(|context| {
        let tracer = &context.get::<CallScope>()?.tracer;
        Some(WaitSpan { _span: tracer.span_builder(COMMIT_WAIT_SPAN).start_with_context(tracer, context) })
    })
}

/// The header `traceparent` alone: `tracestate` is a text of the caller.
struct Traceparent<'a>(&'a str);

impl Extractor for Traceparent<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == TRACEPARENT_HEADER).then_some(self.0)
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT_HEADER]
    }
}
