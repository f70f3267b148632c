//! Collector of traces in the test process: a receiver of OTLP over gRPC that decodes what it gets.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use super::in_time;

/// Most exports that wait for the test.
const EXPORTS_MAX: usize = 64;

/// Service that passes exports on.
struct Receiver {
    exports: mpsc::Sender<ExportTraceServiceRequest>,
    /// Value of the header `x-collector-key` in the last export.
    last_key: Arc<Mutex<Option<String>>>,
}

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let key = request.metadata().get("x-collector-key").map(|value| value.to_str().expect("a text").to_owned());
        *self.last_key.lock().expect("no panic") = key;
        self.exports.try_send(request.into_inner()).map_err(|_| Status::resource_exhausted("too many exports"))?;
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A running collector, and what it has received.
pub(super) struct Collector {
    /// Value of `--otlp-endpoint`.
    pub(super) endpoint: String,
    /// Attributes of the resource in the last export.
    pub(super) resource: Vec<(String, String)>,
    last_key: Arc<Mutex<Option<String>>>,
    exports: mpsc::Receiver<ExportTraceServiceRequest>,
    received_bytes: Vec<u8>,
    spans: VecDeque<Span>,
}

impl Collector {
    pub(super) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let (sender, exports) = mpsc::channel(EXPORTS_MAX);
        let last_key = Arc::default();
        let receiver = Receiver { exports: sender, last_key: Arc::clone(&last_key) };
        let server = tonic::transport::Server::builder().add_service(TraceServiceServer::new(receiver));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Self { endpoint, resource: Vec::new(), last_key, exports, received_bytes: Vec::new(), spans: VecDeque::new() }
    }

    /// Waits for the next span with this name, and takes it.
    pub(super) async fn next_span(&mut self, name: &str) -> Span {
        loop {
            if let Some(at) = self.spans.iter().position(|span| span.name == name) {
                return self.spans.remove(at).expect("a span");
            }
            let export = in_time(self.exports.recv()).await.expect("an export");
            self.add_export(export);
        }
    }

    /// All spans that have been received and not taken.
    pub(super) fn further_spans(&mut self) -> Vec<Span> {
        while let Ok(export) = self.exports.try_recv() {
            self.add_export(export);
        }
        self.spans.drain(..).collect()
    }

    /// Value of the header `x-collector-key` in the last export.
    pub(super) fn last_key(&self) -> Option<String> {
        self.last_key.lock().expect("no panic").clone()
    }

    /// Whether `text` is in the bytes of an export.
    pub(super) fn received_text(&self, text: &str) -> bool {
        self.received_bytes.windows(text.len()).any(|window| window == text.as_bytes())
    }

    fn add_export(&mut self, export: ExportTraceServiceRequest) {
        self.received_bytes.extend(export.encode_to_vec());
        for of_resource in export.resource_spans {
            self.resource = texts(&of_resource.resource.unwrap_or_default().attributes);
            self.spans.extend(of_resource.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans));
        }
    }
}

/// Names and values of attributes, sorted.
pub(super) fn texts(attributes: &[KeyValue]) -> Vec<(String, String)> {
    let text = |it: &KeyValue| match it.value.as_ref().and_then(|value| value.value.clone()) {
        Some(any_value::Value::StringValue(text)) => text,
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        other => panic!("{}: {other:?}", it.key),
    };
    let mut texts: Vec<_> = attributes.iter().map(|it| (it.key.clone(), text(it))).collect();
    texts.sort();
    texts
}

/// Hexadecimal digits of an id.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
