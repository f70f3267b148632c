//! Rewrites a gRPC response to a response of the Connect protocol.

use std::collections::BTreeMap;

use base64::Engine as _;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TE, TRAILER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use serde_json::{Map, Value, json};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::api::connect_protocol::error_body;
use crate::api::connect_protocol::json_message;
use crate::api::connect_protocol::methods::ConnectMethods;
use crate::api::connect_protocol::prefixed_messages::{MessageTooLarge, PrefixedMessages, prefix_message};
use crate::api::connect_protocol::request_head::{ConnectCall, MessageEncoding};
use crate::api::internal_error_status;
use crate::api::layer::response_body::CallResponseBody;

/// Size limit of a response message, bytes; that of the server's own tools. A page of 200 matches with 1,000 players each is
/// smaller.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes of the prefix of the one message in a unary response.
const PREFIX_BYTES_MAX: usize = 5;

/// Flag of the last message of a stream, which has the error and the trailers.
const END_OF_STREAM_FLAG: u8 = 2;

/// Headers of gRPC that have no meaning in the Connect protocol.
const PROTOCOL_HEADERS: [HeaderName; 9] = [
    CONTENT_TYPE,
    CONTENT_LENGTH,
    TE,
    TRAILER,
    HeaderName::from_static("grpc-status"),
    HeaderName::from_static("grpc-message"),
    HeaderName::from_static("grpc-status-details-bin"),
    HeaderName::from_static("grpc-encoding"),
    HeaderName::from_static("grpc-accept-encoding"),
];

/// Converts the response to a call.
pub(super) async fn from_grpc(
    response: Response<CallResponseBody>,
    call: &ConnectCall,
    methods: &std::sync::Arc<ConnectMethods>,
) -> Response<CallResponseBody> {
    let status = Status::from_header_map(response.headers());
    let is_grpc =
        response.headers().get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
    if status.is_none() && !is_grpc {
        // A page or an HTTP error.
        return response;
    }
    let (parts, body) = response.into_parts();
    let mut converted = if call.is_stream {
        stream_response(body, status, call.clone(), methods.clone())
    } else {
        unary_response(body, status, call, methods).await
    };
    let own_headers = parts.headers.iter().filter(|(name, _)| !PROTOCOL_HEADERS.contains(name));
    converted.headers_mut().extend(own_headers.map(|(name, value)| (name.clone(), value.clone())));
    converted
}

async fn unary_response(
    body: CallResponseBody,
    status: Option<Status>,
    call: &ConnectCall,
    methods: &ConnectMethods,
) -> Response<CallResponseBody> {
    let (data, trailers) = match Limited::new(body, RESPONSE_BYTES_MAX + PREFIX_BYTES_MAX).collect().await {
        Ok(collected) => {
            let trailers = collected.trailers().cloned().unwrap_or_default();
            (collected.to_bytes(), trailers)
        }
        Err(error) => return error_response(&Status::from_error(error), call, methods),
    };
    let status = status.or_else(|| Status::from_header_map(&trailers)).unwrap_or_else(internal_error_status);
    let mut response = if status.code() == Code::Ok {
        match unary_message(&data, call) {
            Ok(response) => response,
            Err(status) => error_response(&status, call, methods),
        }
    } else {
        error_response(&status, call, methods)
    };
    for (name, value) in trailers.iter().filter(|(name, _)| !PROTOCOL_HEADERS.contains(name)) {
        if let Ok(name) = HeaderName::try_from(format!("trailer-{name}")) {
            response.headers_mut().append(name, value.clone());
        }
    }
    response
}

/// Response with the one message of a unary call.
fn unary_message(data: &[u8], call: &ConnectCall) -> Result<Response<CallResponseBody>, Status> {
    let mut messages = PrefixedMessages::new(RESPONSE_BYTES_MAX);
    messages.push(data);
    let Ok(Some((0, message))) = messages.next_message() else { return Err(internal_error_status()) };
    let content_type = match call.encoding {
        MessageEncoding::Json => "application/json",
        MessageEncoding::Protobuf => "application/proto",
    };
    let message = encode_message(message, call)?;
    let mut response = Response::new(CallResponseBody::passthrough(Body::new(Full::new(message))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(response)
}

/// Message in the encoding of the call.
fn encode_message(message: Bytes, call: &ConnectCall) -> Result<Bytes, Status> {
    match (call.encoding, &call.method) {
        (MessageEncoding::Json, Some(method)) => {
            json_message::from_protobuf(&method.output(), &message).map(Bytes::from)
        }
        _ => Ok(message),
    }
}

fn error_response(status: &Status, call: &ConnectCall, methods: &ConnectMethods) -> Response<CallResponseBody> {
    let is_unknown_method = call.method.is_none() && status.code() == Code::Unimplemented;
    let http_status = if is_unknown_method { StatusCode::NOT_FOUND } else { error_body::http_status(status.code()) };
    error_body::json_response(http_status, error_of_status(status, call, methods))
}

/// JSON object of the error of a call.
fn error_of_status(status: &Status, call: &ConnectCall, methods: &ConnectMethods) -> Value {
    if call.method.is_none() && status.code() == Code::Unimplemented {
        let message =
            "there is no such method on this port; send the path /package.Service/Method of a method in proto/";
        return error_body::error_object("unimplemented", message, Vec::new());
    }
    error_body::error_object_of_status(status, &methods.error_details)
}

/// Stream of messages that is being converted.
struct ConvertedStream {
    body: CallResponseBody,
    /// Status in the head of a response without messages.
    status: Option<Status>,
    messages: PrefixedMessages,
    call: ConnectCall,
    methods: std::sync::Arc<ConnectMethods>,
    is_ended: bool,
}

fn stream_response(
    body: CallResponseBody,
    status: Option<Status>,
    call: ConnectCall,
    methods: std::sync::Arc<ConnectMethods>,
) -> Response<CallResponseBody> {
    let content_type = match call.encoding {
        MessageEncoding::Json => "application/connect+json",
        MessageEncoding::Protobuf => "application/connect+proto",
    };
    let messages = PrefixedMessages::new(RESPONSE_BYTES_MAX);
    let converted = ConvertedStream { body, status, messages, call, methods, is_ended: false };
    let frames = stream::unfold(converted, |mut converted| async {
        let data = converted.next_data().await?;
        Some((Ok::<_, Status>(Frame::data(data)), converted))
    });
    let mut response = Response::new(CallResponseBody::passthrough(Body::new(StreamBody::new(frames))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

impl ConvertedStream {
    /// Next message with its prefix; the last one has the error and the trailers. `None` after it.
    async fn next_data(&mut self) -> Option<Bytes> {
        while !self.is_ended {
            match self.messages.next_message() {
                Ok(Some((_, message))) => {
                    return Some(match encode_message(message, &self.call) {
                        Ok(message) => prefix_message(0, &message),
                        Err(status) => self.end(&status, &HeaderMap::new()),
                    });
                }
                Ok(None) => {}
                Err(MessageTooLarge { .. }) => return Some(self.end(&internal_error_status(), &HeaderMap::new())),
            }
            match self.body.frame().await {
                Some(Ok(frame)) => match frame.into_trailers() {
                    Ok(trailers) => {
                        let status = Status::from_header_map(&trailers).unwrap_or_else(internal_error_status);
                        return Some(self.end(&status, &trailers));
                    }
                    Err(frame) => self.messages.push(frame.data_ref().map_or(&[][..], |data| data)),
                },
                Some(Err(status)) => return Some(self.end(&status, &HeaderMap::new())),
                None => {
                    let status = self.status.take().unwrap_or_else(internal_error_status);
                    return Some(self.end(&status, &HeaderMap::new()));
                }
            }
        }
        None
    }

    /// Last message of the stream.
    fn end(&mut self, status: &Status, trailers: &HeaderMap) -> Bytes {
        self.is_ended = true;
        let mut end = Map::new();
        if status.code() != Code::Ok {
            end.insert("error".to_owned(), error_of_status(status, &self.call, &self.methods));
        }
        let metadata = metadata_object(trailers);
        if !metadata.is_empty() {
            end.insert("metadata".to_owned(), json!(metadata));
        }
        prefix_message(END_OF_STREAM_FLAG, Value::Object(end).to_string().as_bytes())
    }
}

/// Trailers as lists of texts by name. Binary values are base64, as in headers.
fn metadata_object(trailers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut metadata: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in trailers.iter().filter(|(name, _)| !PROTOCOL_HEADERS.contains(name)) {
        let text = value
            .to_str()
            .map_or_else(|_| base64::engine::general_purpose::STANDARD_NO_PAD.encode(value.as_bytes()), str::to_owned);
        metadata.entry(name.as_str().to_owned()).or_default().push(text);
    }
    metadata
}
