//! HTTP client without gRPC, as a script has it: one request, one response with status, headers and body.

use std::net::SocketAddr;

use bytes::{Buf, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use crate::support::scripted_server::TEST_TIMEOUT;

/// Client of one port.
#[derive(Clone)]
pub(crate) struct HttpClient {
    client: Client<HttpConnector, Full<Bytes>>,
    address: SocketAddr,
    headers: Vec<(String, String)>,
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl HttpClient {
    /// Client by HTTP/1.1.
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), address, headers: Vec::new() }
    }

    /// Client by HTTP/2 without TLS.
    pub(crate) fn http2(address: SocketAddr) -> Self {
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        Self { client, ..Self::new(address) }
    }

    /// The same client with a header in each request.
    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends a request, and returns the response when its head is there.
    pub(crate) async fn start(&self, method: &str, path: &str, body: Vec<u8>) -> http::Response<Incoming> {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::from(body)).expect("valid request");
        let answered = tokio::time::timeout(TEST_TIMEOUT, self.client.request(request));
        answered.await.expect("a response in time").expect("a response")
    }

    /// Sends a request with this body, and reads the whole response.
    pub(crate) async fn send(&self, method: &str, path: &str, body: impl Into<Vec<u8>>) -> HttpResponse {
        let (parts, body) = self.start(method, path, body.into()).await.into_parts();
        let body = tokio::time::timeout(TEST_TIMEOUT, body.collect()).await.expect("in time").expect("a whole body");
        HttpResponse { status: parts.status, headers: parts.headers, body: body.to_bytes() }
    }

    /// Calls a unary method with JSON.
    pub(crate) async fn call(&self, path: &str, json: &str) -> HttpResponse {
        self.clone().with_header("content-type", "application/json").send("POST", path, json).await
    }
}

impl HttpResponse {
    /// Body as JSON.
    pub(crate) fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {} {text}", self.status))
    }

    /// Asserts that the call succeeded, and returns the body as JSON.
    #[track_caller]
    pub(crate) fn success(&self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{}", String::from_utf8_lossy(&self.body));
        assert_eq!(self.headers[CONTENT_TYPE], "application/json");
        self.json()
    }

    /// Asserts that the call failed with this HTTP status and code, and returns the message.
    #[track_caller]
    pub(crate) fn failure(&self, status: u16, code: &str) -> String {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status.as_u16(), status, "{text}");
        assert_eq!(self.headers[CONTENT_TYPE], "application/json");
        let error = self.json();
        assert_eq!(error["code"], code, "{text}");
        error["message"].as_str().unwrap_or_default().to_owned()
    }
}

/// Messages of a stream of the Connect protocol, with their flags, and whether no part of a message is left.
pub(crate) fn split_stream(mut body: Bytes) -> (Vec<(u8, Value)>, bool) {
    let mut messages = Vec::new();
    while body.len() >= 5 && body.len() - 5 >= u32::from_be_bytes([body[1], body[2], body[3], body[4]]) as usize {
        let flags = body.get_u8();
        let length = body.get_u32() as usize;
        messages.push((flags, serde_json::from_slice(&body.split_to(length)).expect("JSON")));
    }
    (messages, body.is_empty())
}

/// A JSON message with the prefix of streams.
pub(crate) fn prefixed(flags: u8, json: &str) -> Vec<u8> {
    let mut message = BytesMut::from(&[flags][..]);
    message.extend_from_slice(&u32::try_from(json.len()).unwrap().to_be_bytes());
    message.extend_from_slice(json.as_bytes());
    message.to_vec()
}
