//! Rewrites a request of the Connect protocol to a gRPC request. Its body is converted while the handler reads it; an error
//! there is the status of the call.

use bytes::Bytes;
use futures_util::stream;
use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TE, TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, LengthLimitError, Limited, StreamBody};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::api::connect_protocol::json_message;
use crate::api::connect_protocol::prefixed_messages::{MessageTooLarge, PrefixedMessages, prefix_message};
use crate::api::connect_protocol::request_head::{ConnectCall, MessageEncoding};
use crate::api::pb::ErrorReason;
use crate::api::status::Rejection;

/// Limit of digits in a `connect-timeout-ms` (Connect protocol, "Timeout").
const TIMEOUT_DIGITS_MAX: usize = 10;
/// Longest timeout that `grpc-timeout` can say in milliseconds.
const GRPC_TIMEOUT_MS_MAX: u64 = 99_999_999;
/// Flag of a compressed message in a stream.
const COMPRESSED_FLAG: u8 = 1;

const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("connect-protocol-version");
const TIMEOUT_MS: HeaderName = HeaderName::from_static("connect-timeout-ms");
const STREAM_ENCODING: HeaderName = HeaderName::from_static("connect-content-encoding");
const STREAM_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("connect-accept-encoding");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Headers that have another meaning in gRPC, or none.
const REMOVED_HEADERS: [HeaderName; 14] = [
    CONTENT_TYPE,
    CONTENT_LENGTH,
    CONTENT_ENCODING,
    ACCEPT_ENCODING,
    CONNECTION,
    TRANSFER_ENCODING,
    TE,
    PROTOCOL_VERSION,
    TIMEOUT_MS,
    STREAM_ENCODING,
    STREAM_ACCEPT_ENCODING,
    GRPC_TIMEOUT,
    HeaderName::from_static("grpc-encoding"),
    HeaderName::from_static("grpc-accept-encoding"),
];

/// Converts a request with a body of at most `bytes_max` bytes, or messages of at most that size in a stream.
pub(super) fn to_grpc(request: Request<Body>, call: &ConnectCall, bytes_max: usize) -> Request<Body> {
    let (mut parts, body) = request.into_parts();
    let timeout = check_headers(&parts.headers);
    for name in &REMOVED_HEADERS {
        parts.headers.remove(name);
    }
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    parts.headers.insert(TE, HeaderValue::from_static("trailers"));
    let converter = MessageConverter { call: call.clone(), bytes_max };
    let body = match timeout {
        Err(rejection) => failed_body(rejection),
        Ok(timeout) => {
            if let Some(timeout) = timeout {
                parts.headers.insert(GRPC_TIMEOUT, timeout);
            }
            if call.is_stream { converter.convert_stream(body) } else { converter.convert_unary(body) }
        }
    };
    Request::from_parts(parts, body)
}

/// Checks the headers of the protocol. Returns the `grpc-timeout`, if the request has a timeout.
fn check_headers(headers: &HeaderMap) -> Result<Option<HeaderValue>, Rejection> {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("not ASCII").to_owned());
    if let Some(version) = text(&PROTOCOL_VERSION).filter(|version| version != "1") {
        return Err(invalid(format!("connect-protocol-version: {version} is not served; send 1, or no such header")));
    }
    for name in [&CONTENT_ENCODING, &STREAM_ENCODING] {
        if let Some(encoding) = text(name).filter(|encoding| encoding != "identity") {
            let message = format!("{name}: {encoding} is not served; send identity, or no such header");
            return Err(Rejection::new(Code::Unimplemented, ErrorReason::InvalidRequest, message));
        }
    }
    let Some(timeout) = text(&TIMEOUT_MS) else { return Ok(None) };
    let is_number =
        (1..=TIMEOUT_DIGITS_MAX).contains(&timeout.len()) && timeout.bytes().all(|digit| digit.is_ascii_digit());
    let Some(ms) = is_number.then(|| timeout.parse::<u64>().ok()).flatten() else {
        let message = format!(
            "connect-timeout-ms: {timeout} is no number of milliseconds; send 1 to {TIMEOUT_DIGITS_MAX} digits"
        );
        return Err(invalid(message));
    };
    let timeout = if ms > GRPC_TIMEOUT_MS_MAX { format!("{}S", ms / 1_000) } else { format!("{ms}m") };
    Ok(HeaderValue::try_from(timeout).ok())
}

/// Converts the messages of one request.
#[derive(Clone, Debug)]
struct MessageConverter {
    call: ConnectCall,
    bytes_max: usize,
}

impl MessageConverter {
    fn convert_unary(self, body: Body) -> Body {
        // A length in the head says that reading is useless.
        if body.size_hint().lower() > self.bytes_max as u64 {
            return failed_body(self.too_large());
        }
        Body::new(StreamBody::new(stream::once(async move {
            let message = match Limited::new(body, self.bytes_max).collect().await {
                Ok(collected) => collected.to_bytes(),
                Err(error) if error.is::<LengthLimitError>() => return Err(self.too_large().into_status()),
                Err(error) => return Err(Status::from_error(error)),
            };
            self.to_prefixed_protobuf(&message)
        })))
    }

    fn convert_stream(self, body: Body) -> Body {
        let messages = PrefixedMessages::new(self.bytes_max);
        Body::new(StreamBody::new(stream::try_unfold((self, body, messages), |(this, mut body, mut messages)| async {
            loop {
                if let Some(message) = this.next_message(&mut messages)? {
                    return Ok::<_, Status>(Some((message, (this, body, messages))));
                }
                match body.frame().await {
                    Some(Ok(frame)) => messages.push(frame.data_ref().map_or(&[][..], |data| data)),
                    Some(Err(status)) => return Err(status),
                    None if messages.is_empty() => return Ok(None),
                    None => {
                        let message = "the body ends within a message; send each message with its five-byte prefix";
                        return Err(invalid(message).into_status());
                    }
                }
            }
        })))
    }

    /// Next message of a stream; `None` until it is complete.
    fn next_message(&self, messages: &mut PrefixedMessages) -> Result<Option<Frame<Bytes>>, Status> {
        let next = messages.next_message().map_err(|MessageTooLarge { .. }| self.too_large().into_status())?;
        let Some((flags, message)) = next else { return Ok(None) };
        match flags {
            0 => self.to_prefixed_protobuf(&message).map(Some),
            COMPRESSED_FLAG => {
                let message = "the message has the flag 1 of compression, which is not served; send the flags 0";
                Err(Rejection::new(Code::Unimplemented, ErrorReason::InvalidRequest, message).into_status())
            }
            flags => {
                let message =
                    format!("the flags {flags} of a message are unknown; send the flags 0 before each message");
                Err(invalid(message).into_status())
            }
        }
    }

    fn to_prefixed_protobuf(&self, message: &[u8]) -> Result<Frame<Bytes>, Status> {
        let prefixed = match (&self.call.method, self.call.encoding) {
            (Some(method), MessageEncoding::Json) => {
                let protobuf = json_message::to_protobuf(&method.input(), message).map_err(Rejection::into_status)?;
                prefix_message(0, &protobuf)
            }
            (_, MessageEncoding::Protobuf) => prefix_message(0, message),
            // Nothing reads the request of a method that does not exist.
            (None, MessageEncoding::Json) => Bytes::new(),
        };
        Ok(Frame::data(prefixed))
    }

    /// The code is that of gRPC for a large message.
    fn too_large(&self) -> Rejection {
        let message = format!("the request is too large; send at most {} bytes", self.bytes_max);
        Rejection::new(Code::OutOfRange, ErrorReason::InvalidRequest, message)
    }
}

fn invalid(message: impl Into<String>) -> Rejection {
    Rejection::new(Code::InvalidArgument, ErrorReason::InvalidRequest, message)
}

/// Body whose reader gets this error.
fn failed_body(rejection: Rejection) -> Body {
    Body::new(StreamBody::new(stream::once(async { Err::<Frame<Bytes>, _>(rejection.into_status()) })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_in_milliseconds_becomes_a_grpc_timeout() {
        let check = |text: &'static str, expected: Option<&str>| {
            let headers = HeaderMap::from_iter([(TIMEOUT_MS, HeaderValue::from_static(text))]);
            let timeout = check_headers(&headers).ok().flatten();
            assert_eq!(timeout.as_ref().and_then(|timeout| timeout.to_str().ok()), expected, "{text:?}");
        };
        check("1500", Some("1500m"));
        check("0", Some("0m"));
        check("99999999", Some("99999999m"));
        check("9999999999", Some("9999999S"));
        for text in ["", "-1", "+1", "1s", "1.5", "99999999999"] {
            check(text, None);
        }
        assert!(check_headers(&HeaderMap::new()).unwrap().is_none());
    }
}
