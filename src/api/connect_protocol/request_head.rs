//! Head of a request: whether it is a call of the Connect protocol, and the HTTP error of one that cannot be.

use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use prost_reflect::MethodDescriptor;
use tonic::body::Body;

use crate::api::connect_protocol::error_body;
use crate::api::connect_protocol::methods::ConnectMethods;
use crate::api::layer::response_body::CallResponseBody;

/// Encoding of the messages of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageEncoding {
    /// The JSON form of protobuf.
    Json,
    /// Protobuf.
    Protobuf,
}

/// A call of the Connect protocol.
#[derive(Clone, Debug)]
pub(super) struct ConnectCall {
    /// Encoding of request and response.
    pub(super) encoding: MessageEncoding,
    /// Whether the bodies are streams of messages with prefixes.
    pub(super) is_stream: bool,
    /// The method; `None` for one that does not exist, which only an authenticated caller learns.
    pub(super) method: Option<MethodDescriptor>,
}

/// Reason why a request for a method is no call.
#[derive(Clone, Debug)]
pub(super) struct HeadRefusal {
    status: StatusCode,
    message: String,
    header: Option<(HeaderName, &'static str)>,
}

/// Kind of a request, by its head.
#[derive(Clone, Debug)]
pub(super) enum RequestHead {
    /// gRPC, gRPC-Web, a preflight of a browser, or a page.
    OtherProtocol,
    /// A call.
    Call(ConnectCall),
    /// A request for a method with the wrong verb, content type or HTTP version.
    Refused(HeadRefusal),
}

/// Content types of unary methods and of streams.
const UNARY_CONTENT_TYPES: &str = "application/json, application/proto";
const STREAM_CONTENT_TYPES: &str = "application/connect+json, application/connect+proto";
/// Header with the content types that a method takes in POST requests (W3C LDP 1.0).
const ACCEPT_POST: HeaderName = HeaderName::from_static("accept-post");

impl RequestHead {
    /// Reads the head of a request.
    pub(super) fn read(methods: &ConnectMethods, request: &Request<Body>) -> Self {
        let path = request.uri().path();
        let method = methods.of_path(path);
        if method.is_none() && !is_path_of_a_service(path) {
            return Self::OtherProtocol;
        }
        let content_type = request.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        if content_type.starts_with(b"application/grpc") {
            return Self::OtherProtocol;
        }
        let parsed = parse_content_type(content_type);
        let Some(method) = method else {
            return match parsed {
                Some((encoding, is_stream)) if request.method() == Method::POST => {
                    Self::Call(ConnectCall { encoding, is_stream, method: None })
                }
                _ => Self::OtherProtocol,
            };
        };
        if request.method() != Method::POST {
            let message = format!("a call is no {} request; send POST", request.method());
            return Self::refused(StatusCode::METHOD_NOT_ALLOWED, message, Some((ALLOW, "POST")));
        }
        let takes_streams = method.is_server_streaming() || method.is_client_streaming();
        let Some((encoding, is_stream)) = parsed.filter(|(_, is_stream)| *is_stream == takes_streams) else {
            let accepted = if takes_streams { STREAM_CONTENT_TYPES } else { UNARY_CONTENT_TYPES };
            let message = format!("{path} is not served with this content type; send one of {accepted}");
            return Self::refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, message, Some((ACCEPT_POST, accepted)));
        };
        if method.is_client_streaming() && request.version() < Version::HTTP_2 {
            let message = format!("{path} has a stream of requests, which HTTP/1.1 cannot carry; use HTTP/2");
            return Self::refused(StatusCode::HTTP_VERSION_NOT_SUPPORTED, message, None);
        }
        Self::Call(ConnectCall { encoding, is_stream, method: Some(method.clone()) })
    }

    fn refused(status: StatusCode, message: String, header: Option<(HeaderName, &'static str)>) -> Self {
        Self::Refused(HeadRefusal { status, message, header })
    }
}

impl HeadRefusal {
    /// HTTP error with a body like that of a failed call.
    pub(super) fn into_response(self) -> Response<CallResponseBody> {
        let code = if self.status == StatusCode::METHOD_NOT_ALLOWED { "unimplemented" } else { "invalid_argument" };
        let mut response =
            error_body::json_response(self.status, error_body::error_object(code, &self.message, Vec::new()));
        if let Some((name, value)) = self.header {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// Whether a path has the form of a method of the server's services, though it may name none.
fn is_path_of_a_service(path: &str) -> bool {
    path.starts_with("/fireteam.") || path.starts_with("/grpc.")
}

/// Encoding of a content type of the protocol, and whether it is that of streams. JSON is UTF-8: other charsets are unknown.
fn parse_content_type(content_type: &[u8]) -> Option<(MessageEncoding, bool)> {
    let text = std::str::from_utf8(content_type).ok()?.to_ascii_lowercase();
    let (kind, parameters) = text.split_once(';').unwrap_or((&text, ""));
    let is_utf8 = matches!(parameters.trim(), "" | "charset=utf-8" | "charset=\"utf-8\"");
    match kind.trim() {
        "application/json" if is_utf8 => Some((MessageEncoding::Json, false)),
        "application/connect+json" if is_utf8 => Some((MessageEncoding::Json, true)),
        "application/proto" => Some((MessageEncoding::Protobuf, false)),
        "application/connect+proto" => Some((MessageEncoding::Protobuf, true)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_type_names_encoding_and_stream() {
        let json = Some((MessageEncoding::Json, false));
        for text in [
            "application/json",
            "Application/JSON",
            "application/json; charset=UTF-8",
            "application/json ;charset=\"utf-8\"",
        ] {
            assert_eq!(parse_content_type(text.as_bytes()), json, "{text}");
        }
        assert_eq!(parse_content_type(b"application/connect+json"), Some((MessageEncoding::Json, true)));
        assert_eq!(parse_content_type(b"application/proto"), Some((MessageEncoding::Protobuf, false)));
        assert_eq!(parse_content_type(b"application/connect+proto"), Some((MessageEncoding::Protobuf, true)));
        for text in
            ["", "text/plain", "application/json; charset=latin1", "application/jsonp", "application/x-protobuf"]
        {
            assert_eq!(parse_content_type(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_content_type(b"\xff"), None);
    }
}
