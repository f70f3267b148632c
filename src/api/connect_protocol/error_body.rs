//! Errors of the Connect protocol: code, HTTP status and JSON object of a gRPC status.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::{Map, Value, json};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::api::layer::response_body::CallResponseBody;

/// Name of a code in errors of the protocol; `unknown` for OK, which is no error.
pub(super) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Cancelled => "canceled",
        Code::Ok | Code::Unknown => "unknown",
        Code::InvalidArgument => "invalid_argument",
        Code::DeadlineExceeded => "deadline_exceeded",
        Code::NotFound => "not_found",
        Code::AlreadyExists => "already_exists",
        Code::PermissionDenied => "permission_denied",
        Code::ResourceExhausted => "resource_exhausted",
        Code::FailedPrecondition => "failed_precondition",
        Code::Aborted => "aborted",
        Code::OutOfRange => "out_of_range",
        Code::Unimplemented => "unimplemented",
        Code::Internal => "internal",
        Code::Unavailable => "unavailable",
        Code::DataLoss => "data_loss",
        Code::Unauthenticated => "unauthenticated",
    }
}

/// HTTP status of a code (Connect protocol, "Error Codes").
pub(super) fn http_status(code: Code) -> StatusCode {
    let status = match code {
        Code::Cancelled => 499,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => 400,
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::AlreadyExists | Code::Aborted => 409,
        Code::ResourceExhausted => 429,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
        Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss => 500,
    };
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// JSON object of an error.
pub(super) fn error_object(code: &str, message: &str, details: Vec<Value>) -> Value {
    let mut object = Map::from_iter([("code".to_owned(), json!(code))]);
    if !message.is_empty() {
        object.insert("message".to_owned(), json!(message));
    }
    if !details.is_empty() {
        object.insert("details".to_owned(), json!(details));
    }
    Value::Object(object)
}

/// JSON object of a gRPC status; `pool` has the messages of its details.
pub(super) fn error_object_of_status(status: &Status, pool: &DescriptorPool) -> Value {
    let details = tonic_types::pb::Status::decode(status.details()).map(|status| status.details).unwrap_or_default();
    let details = details.iter().map(|detail| {
        let type_name = detail.type_url.rsplit('/').next().unwrap_or_default();
        let mut object = json!({ "type": type_name, "value": STANDARD_NO_PAD.encode(&detail.value) });
        // A copy for people and for scripts without protobuf.
        let message = pool.get_message_by_name(type_name);
        if let Some(Ok(message)) = message.map(|message| DynamicMessage::decode(message, &*detail.value))
            && let Ok(debug) = serde_json::to_value(&message)
        {
            object["debug"] = debug;
        }
        object
    });
    error_object(code_name(status.code()), status.message(), details.collect())
}

/// Response with a JSON body.
pub(super) fn json_response(status: StatusCode, body: Value) -> Response<CallResponseBody> {
    let mut response = Response::new(CallResponseBody::passthrough(Body::new(body.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
