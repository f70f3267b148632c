//! Middleware tests without a network: calls that never end, calls that are dropped, requests that are not gRPC.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use tonic::Code;
use tonic::body::Body;
use tower::{Layer, Service, service_fn};

use super::*;
use crate::api::health::HealthState;
use crate::telemetry::trace::CallSpan;

const HOUR: Duration = Duration::from_secs(3_600);

#[derive(Default)]
struct RecordingObserver(Mutex<Vec<(&'static str, Code)>>);

impl RpcObserver for RecordingObserver {
    fn call_finished(&self, method: &'static str, code: Code, _: Duration, _: Option<&CallSpan>) {
        self.0.lock().unwrap().push((method, code));
    }

    fn connection_rejected(&self, _: &'static str) {}
}

fn request(timeout: Option<&str>, content_type: &str) -> Request<Body> {
    let mut request =
        Request::builder().uri("/fireteam.v1.MatchmakingService/Search").header("content-type", content_type);
    if let Some(timeout) = timeout {
        request = request.header("grpc-timeout", timeout);
    }
    request.body(Body::empty()).unwrap()
}

/// Expects `expected` from a call of a service that never answers, with the server's deadline `limit`.
async fn check_deadline(request: Request<Body>, limit: Duration, expected: Code) {
    let observer = Arc::new(RecordingObserver::default());
    let layer = CallLayer::new(observer.clone(), Authorizer::default(), limit, &Drain::new(HealthState::default()));
    let never = service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    let response = layer.layer(never).call(request).await.unwrap();
    assert_eq!(Status::from_header_map(response.headers()).unwrap().code(), expected);
    assert_eq!(*observer.0.lock().unwrap(), [("fireteam.v1.MatchmakingService/Search", Code::DeadlineExceeded)]);
}

/// G3: the shorter deadline of client and server ends the call.
#[tokio::test]
async fn deadline_of_a_call_is_the_shorter_of_client_and_server() {
    let short = Duration::from_millis(5);
    check_deadline(request(Some("5m"), "application/grpc"), HOUR, Code::DeadlineExceeded).await;
    check_deadline(request(Some("1H"), "application/grpc"), short, Code::DeadlineExceeded).await;
    check_deadline(request(None, "application/grpc+proto"), short, Code::DeadlineExceeded).await;
    check_deadline(request(Some("nonsense"), "application/grpc"), short, Code::DeadlineExceeded).await;
}

/// A call whose client has gone is counted as CANCELLED, once.
#[tokio::test]
async fn dropped_call_is_counted_as_cancelled() {
    let observer = Arc::new(RecordingObserver::default());
    let layer = CallLayer::new(observer.clone(), Authorizer::default(), HOUR, &Drain::new(HealthState::default()));
    let never = service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    drop(layer.layer(never).call(request(None, "application/grpc")));
    assert_eq!(*observer.0.lock().unwrap(), [("fireteam.v1.MatchmakingService/Search", Code::Cancelled)]);
}

/// Pages that are not gRPC pass through unchanged and uncounted.
#[tokio::test]
async fn non_grpc_page_passes_through_uncounted() {
    let observer = Arc::new(RecordingObserver::default());
    let layer = CallLayer::new(observer.clone(), Authorizer::default(), HOUR, &Drain::new(HealthState::default()));
    let page = service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let mut page_request = request(None, "text/html");
    *page_request.uri_mut() = "/metrics".parse().unwrap();
    let mut service = layer.layer(page);
    service.call(page_request).await.unwrap();
    assert!(observer.0.lock().unwrap().is_empty());
}

/// SEC-4: a request that names a method and is not gRPC never reaches the method.
#[tokio::test]
async fn non_grpc_request_to_a_method_is_unsupported_media_type() {
    let layer = CallLayer::new(
        Arc::new(RecordingObserver::default()),
        Authorizer::default(),
        HOUR,
        &Drain::new(HealthState::default()),
    );
    let ok_service = service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let response = layer.layer(ok_service).call(request(None, "text/html")).await.unwrap();
    assert_eq!(response.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
}
